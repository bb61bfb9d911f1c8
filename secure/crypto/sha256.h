/* SHA-256 (FIPS 180-4) of blobs, models and fingerprints: by libgcrypt, which uses special CPU
 * instructions, where it is built in (FEDGE_FAST_CRYPTO): for large data, and for all data once it
 * is initialised. Otherwise by mbedTLS in builds with identities, and by plain C in others, so that
 * a simulator needs no network libraries. All give the same hashes. Any thread. */
#ifndef FEDGE_SECURE_CRYPTO_SHA256_H
#define FEDGE_SECURE_CRYPTO_SHA256_H

#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"

void fedge_sha256(const void *data, size_t size, uint8_t hash[32]);

/* The hash as 64 lower-case hex digits with NUL. */
void fedge_sha256_text(const void *data, size_t size, char text[65]);

/* Hashing in chunks, in builds with identities (FEDGE_NETWORK). One thread at a time. */
typedef struct fedge_sha256_stream fedge_sha256_stream;

/* [size]: total size, which selects the library. FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_sha256_stream_new(uint64_t size, fedge_sha256_stream **stream,
                                                    fedge_error *err);
void fedge_sha256_stream_add(fedge_sha256_stream *stream, const void *data, size_t size);
/* Returns the hash as fedge_sha256_text does; nothing may be added afterwards. */
void fedge_sha256_stream_text(fedge_sha256_stream *stream, char text[65]);
void fedge_sha256_stream_free(fedge_sha256_stream *stream); /* NULL is allowed */

/* As fedge_sha256, but never by libgcrypt. */
void fedge_sha256_portable(const void *data, size_t size, uint8_t hash[32]);

/* libgcrypt, if FEDGE_FAST_CRYPTO is on. The first call initialises it without locked memory, since
 * its keys are in mbedTLS's unlocked memory anyway. A library that the program has initialised is
 * left unchanged. */

/* NULL: libgcrypt is usable and has given the known hashes of FIPS 180-4. Otherwise the reason: "it
 * is in FIPS mode", "its SHA-256 is wrong", … */
const char *fedge_libgcrypt_refusal(void);

/* The version at run time: "1.10.1". */
const char *fedge_libgcrypt_version(void);

#endif
