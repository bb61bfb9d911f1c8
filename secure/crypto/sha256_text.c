#include "edge/core/text.h"
#include "secure/crypto/sha256.h"

void fedge_sha256_text(const void *data, size_t size, char text[65])
{
    uint8_t hash[32];
    fedge_sha256(data, size, hash);
    fedge_hex_encode(hash, sizeof(hash), text);
}
