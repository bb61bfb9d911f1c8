/* SHA-256 (FIPS 180-4), for blobs, models and fingerprints.
 *
 * By libgcrypt, which uses the CPU's own instructions, where it is built in (FEDGE_FAST_CRYPTO) and
 * there is much to hash; else by mbedTLS where identities are built, and by plain C where they are
 * not, so that a simulator needs no network libraries. All give the same hashes. Any thread.
 */
#ifndef FEDGE_SECURE_CRYPTO_SHA256_H
#define FEDGE_SECURE_CRYPTO_SHA256_H

#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"

void fedge_sha256(const void *data, size_t size, uint8_t hash[32]);

/* The same as 64 lower-case hex digits and NUL. */
void fedge_sha256_text(const void *data, size_t size, char text[65]);

/* The same for data in chunks, where identities are built (FEDGE_NETWORK). One thread at a time. */
typedef struct fedge_sha256_stream fedge_sha256_stream;

/* [size]: of all data, by which the library is chosen. FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_sha256_stream_new(uint64_t size, fedge_sha256_stream **stream,
                                                    fedge_error *err);
void fedge_sha256_stream_add(fedge_sha256_stream *stream, const void *data, size_t size);
/* The hash of the data so far, as fedge_sha256_text gives it; nothing may be added afterwards. */
void fedge_sha256_stream_text(fedge_sha256_stream *stream, char text[65]);
void fedge_sha256_stream_free(fedge_sha256_stream *stream); /* NULL is fine */

/* The same as fedge_sha256, never by libgcrypt. */
void fedge_sha256_portable(const void *data, size_t size, uint8_t hash[32]);

/* libgcrypt, where FEDGE_FAST_CRYPTO is on. The first call starts it, without memory that is locked
 * against swapping: the keys that it sees are in mbedTLS's memory, too. If the program has started
 * it before, it stays as it is. */

/* NULL: libgcrypt can be used, and has given the known hashes of FIPS 180-4. Else the reason: "it
 * is in FIPS mode", "its SHA-256 is wrong", … */
const char *fedge_libgcrypt_refusal(void);

/* "1.10.1": the version that runs. */
const char *fedge_libgcrypt_version(void);

#endif
