/* SHA-256 (FIPS 180-4), for blobs, models and fingerprints.
 *
 * By mbedTLS where identities are built; by plain C where they are not, so that a simulator needs
 * no network libraries. Both give the same hashes.
 */
#ifndef FEDGE_SECURE_HASH_SHA256_H
#define FEDGE_SECURE_HASH_SHA256_H

#include <stddef.h>
#include <stdint.h>

void fedge_sha256(const void *data, size_t size, uint8_t hash[32]);

/* The same as 64 lower-case hex digits and NUL. */
void fedge_sha256_text(const void *data, size_t size, char text[65]);

#endif
