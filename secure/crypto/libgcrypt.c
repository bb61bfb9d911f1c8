#include "secure/crypto/libgcrypt.h"

#include <pthread.h>
#include <string.h>

#include <gcrypt.h>

#include "secure/crypto/sha256.h"

static const char *version, *refusal;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* FIPS 180-4's example of one block, and a size that goes through the loop for many. */
static const char *check_hash(void)
{
    static const uint8_t abc[32] = {0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea,
                                    0x41, 0x41, 0x40, 0xde, 0x5d, 0xae, 0x22, 0x23,
                                    0xb0, 0x03, 0x61, 0xa3, 0x96, 0x17, 0x7a, 0x9c,
                                    0xb4, 0x10, 0xff, 0x61, 0xf2, 0x00, 0x15, 0xad};
    uint8_t hash[32], expected[32], many[1000];
    gcry_md_hash_buffer(GCRY_MD_SHA256, hash, "abc", 3);
    if (memcmp(hash, abc, sizeof(hash)) != 0)
        return "its SHA-256 is wrong";
    for (size_t i = 0; i < sizeof(many); i++)
        many[i] = (uint8_t)(i * 7);
    gcry_md_hash_buffer(GCRY_MD_SHA256, hash, many, sizeof(many));
    fedge_sha256_portable(many, sizeof(many), expected);
    return memcmp(hash, expected, sizeof(hash)) != 0 ? "its SHA-256 is wrong" : NULL;
}

static void start(void)
{
    version = gcry_check_version(GCRYPT_VERSION);
    if (!version) {
        version = gcry_check_version(NULL);
        refusal = "it is older than the one compiled with";
        return;
    }
    if (gcry_control(GCRYCTL_INITIALIZATION_FINISHED_P) == 0) {
        (void)gcry_control(GCRYCTL_DISABLE_SECMEM, 0);
        (void)gcry_control(GCRYCTL_INITIALIZATION_FINISHED, 0);
    }
    /* There it refuses nonces that it has not made itself. */
    refusal = gcry_fips_mode_active() ? "it is in FIPS mode" : check_hash();
}

const char *fedge_libgcrypt_refusal(void)
{
    (void)pthread_once(&once, start);
    return refusal;
}

const char *fedge_libgcrypt_version(void)
{
    (void)pthread_once(&once, start);
    return version;
}
