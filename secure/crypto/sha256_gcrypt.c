#include "secure/crypto/sha256.h"

#include <gcrypt.h>

#include "secure/crypto/libgcrypt.h"

/* Less is not worth libgcrypt's start, which takes a millisecond and a megabyte: the certificates
 * of programs that hash nothing else. */
#define MIN_SIZE 65536u

void fedge_sha256(const void *data, size_t size, uint8_t hash[32])
{
    if (size >= MIN_SIZE && !fedge_libgcrypt_refusal())
        gcry_md_hash_buffer(GCRY_MD_SHA256, hash, data, size);
    else
        fedge_sha256_portable(data, size, hash);
}
