/* SHA-256 (FIPS 180-4), for blobs, models and fingerprints.
 *
 * By libgcrypt, which uses the CPU's own instructions, where it is built in (FEDGE_FAST_CRYPTO) and
 * there is much to hash; else by mbedTLS where identities are built, and by plain C where they are
 * not, so that a simulator needs no network libraries. All give the same hashes. Any thread.
 */
#ifndef FEDGE_SECURE_HASH_SHA256_H
#define FEDGE_SECURE_HASH_SHA256_H

#include <stddef.h>
#include <stdint.h>

void fedge_sha256(const void *data, size_t size, uint8_t hash[32]);

/* The same as 64 lower-case hex digits and NUL. */
void fedge_sha256_text(const void *data, size_t size, char text[65]);

/* The same, never by libgcrypt. */
void fedge_sha256_portable(const void *data, size_t size, uint8_t hash[32]);

#endif
