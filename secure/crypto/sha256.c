/* Without libgcrypt (FEDGE_FAST_CRYPTO) there is one implementation. */
#include "secure/crypto/sha256.h"

void fedge_sha256(const void *data, size_t size, uint8_t hash[32])
{
    fedge_sha256_portable(data, size, hash);
}
