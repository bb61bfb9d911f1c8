/* SHA-256 by the libraries of the build: FEDGE_WITH_MBEDTLS, FEDGE_WITH_LIBGCRYPT, both or none. */
#include "secure/crypto/sha256.h"

#include <stdlib.h>
#include <string.h>

#include "edge/core/text.h"

#ifdef FEDGE_WITH_MBEDTLS
#include <mbedtls/sha256.h>
#endif
#ifdef FEDGE_WITH_LIBGCRYPT
#include <gcrypt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#endif

/* Initialising libgcrypt takes a millisecond and a megabyte, too much for programs that hash only
 * certificates. Once it has been, it is several times as fast for any size. */
#define LIBGCRYPT_MIN_SIZE 65536u

#ifdef FEDGE_WITH_MBEDTLS
void fedge_sha256_portable(const void *data, size_t size, uint8_t hash[32])
{
    /* Only a hardware driver can fail, and fedge configures none. */
    if (mbedtls_sha256(data, size, hash, 0) != 0)
        abort();
}
#else

/* --- SHA-256 as FIPS 180-4, section 6.2, writes it -------------------------------------------- */

enum {
    BLOCK = 64,
    LENGTH = 8
}; /* bytes of a message block, and of the length at the end of the last one */

/* The first 32 bits of the fractional parts of the cube roots of the first 64 primes (4.2.2). */
static const uint32_t k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotr(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static void compress(uint32_t h[8], const uint8_t *block)
{
    uint32_t w[64];
    for (int t = 0; t < 16; t++) {
        w[t] = (uint32_t)block[4 * t] << 24 | (uint32_t)block[4 * t + 1] << 16 |
               (uint32_t)block[4 * t + 2] << 8 | block[4 * t + 3];
    }
    for (int t = 16; t < 64; t++) {
        const uint32_t s0 = rotr(w[t - 15], 7) ^ rotr(w[t - 15], 18) ^ w[t - 15] >> 3;
        const uint32_t s1 = rotr(w[t - 2], 17) ^ rotr(w[t - 2], 19) ^ w[t - 2] >> 10;
        w[t] = s1 + w[t - 7] + s0 + w[t - 16];
    }
    uint32_t v[8]; /* working variables a to h */
    memcpy(v, h, sizeof(v));
    for (int t = 0; t < 64; t++) {
        const uint32_t s1 = rotr(v[4], 6) ^ rotr(v[4], 11) ^ rotr(v[4], 25);
        const uint32_t choice = (v[4] & v[5]) ^ (~v[4] & v[6]);
        const uint32_t t1 = v[7] + s1 + choice + k[t] + w[t];
        const uint32_t s0 = rotr(v[0], 2) ^ rotr(v[0], 13) ^ rotr(v[0], 22);
        const uint32_t majority = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
        memmove(v + 1, v, 7 * sizeof(*v));
        v[4] += t1;
        v[0] = t1 + s0 + majority;
    }
    for (int i = 0; i < 8; i++)
        h[i] += v[i];
}

void fedge_sha256_portable(const void *data, size_t size, uint8_t hash[32])
{
    uint32_t h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                     0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    const uint8_t *at = data;
    const size_t whole = size / BLOCK * BLOCK, remainder = size - whole;
    for (size_t i = 0; i < whole; i += BLOCK)
        compress(h, at + i);
    /* Pads: the remainder, a bit 1, zeros, and the length in bits, in one block or two. */
    uint8_t last[2 * BLOCK] = {0};
    if (remainder > 0)
        memcpy(last, at + whole, remainder);
    last[remainder] = 0x80;
    const size_t end = remainder + 1 + LENGTH <= BLOCK ? BLOCK : 2 * BLOCK;
    for (int i = 0; i < LENGTH; i++)
        last[end - 1 - (size_t)i] = (uint8_t)((uint64_t)size * 8 >> 8 * i);
    for (size_t i = 0; i < end; i += BLOCK)
        compress(h, last + i);
    for (int i = 0; i < 32; i++)
        hash[i] = (uint8_t)(h[i / 4] >> (24 - 8 * (i % 4)));
}
#endif

#ifdef FEDGE_WITH_LIBGCRYPT

/* --- the start of libgcrypt ----------------------------------------------------------------- */

static const char *version, *refusal;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_bool has_started; /* and can be used */

/* FIPS 180-4's example of one block, and a size that uses the multi-block loop. */
static const char *check_hash(void)
{
    static const uint8_t abc[32] = {0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea,
                                    0x41, 0x41, 0x40, 0xde, 0x5d, 0xae, 0x22, 0x23,
                                    0xb0, 0x03, 0x61, 0xa3, 0x96, 0x17, 0x7a, 0x9c,
                                    0xb4, 0x10, 0xff, 0x61, 0xf2, 0x00, 0x15, 0xad};
    uint8_t hash[32], expected[32], long_message[1000];
    gcry_md_hash_buffer(GCRY_MD_SHA256, hash, "abc", 3);
    if (memcmp(hash, abc, sizeof(hash)) != 0)
        return "its SHA-256 is wrong";
    for (size_t i = 0; i < sizeof(long_message); i++)
        long_message[i] = (uint8_t)(i * 7);
    gcry_md_hash_buffer(GCRY_MD_SHA256, hash, long_message, sizeof(long_message));
    fedge_sha256_portable(long_message, sizeof(long_message), expected);
    return memcmp(hash, expected, sizeof(hash)) != 0 ? "its SHA-256 is wrong" : NULL;
}

static const char *check(void)
{
    version = gcry_check_version(GCRYPT_VERSION);
    if (!version) {
        version = gcry_check_version(NULL);
        return "it is older than the one compiled with";
    }
    if (gcry_control(GCRYCTL_INITIALIZATION_FINISHED_P) == 0) {
        (void)gcry_control(GCRYCTL_DISABLE_SECMEM, 0);
        (void)gcry_control(GCRYCTL_INITIALIZATION_FINISHED, 0);
    }
    /* In FIPS mode it refuses nonces that it has not generated. */
    return gcry_fips_mode_active() ? "it is in FIPS mode" : check_hash();
}

static void start(void)
{
    refusal = check();
    atomic_store(&has_started, !refusal);
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

static bool takes_libgcrypt(uint64_t size)
{
    return atomic_load(&has_started) || (size >= LIBGCRYPT_MIN_SIZE && !fedge_libgcrypt_refusal());
}

#endif

void fedge_sha256(const void *data, size_t size, uint8_t hash[32])
{
#ifdef FEDGE_WITH_LIBGCRYPT
    if (takes_libgcrypt(size)) {
        gcry_md_hash_buffer(GCRY_MD_SHA256, hash, data, size);
        return;
    }
#endif
    fedge_sha256_portable(data, size, hash);
}

void fedge_sha256_text(const void *data, size_t size, char text[65])
{
    uint8_t hash[32];
    fedge_sha256(data, size, hash);
    fedge_hex_encode(hash, sizeof(hash), text);
}

#ifdef FEDGE_WITH_MBEDTLS
struct fedge_sha256_stream {
#ifdef FEDGE_WITH_LIBGCRYPT
    gcry_md_hd_t fast; /* NULL: use [portable] */
#endif
    mbedtls_sha256_context portable;
};

fedge_status fedge_sha256_stream_new(uint64_t size, fedge_sha256_stream **stream, fedge_error *err)
{
    *stream = NULL;
    fedge_sha256_stream *fresh = malloc(sizeof(*fresh));
    if (!fresh)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to hash");
#ifdef FEDGE_WITH_LIBGCRYPT
    if (!takes_libgcrypt(size) || gcry_md_open(&fresh->fast, GCRY_MD_SHA256, 0) != 0)
        fresh->fast = NULL;
#else
    (void)size;
#endif
    mbedtls_sha256_init(&fresh->portable);
    (void)mbedtls_sha256_starts(&fresh->portable, 0); /* fails only for kinds other than 0 and 1 */
    *stream = fresh;
    return FEDGE_OK;
}

void fedge_sha256_stream_add(fedge_sha256_stream *stream, const void *data, size_t size)
{
#ifdef FEDGE_WITH_LIBGCRYPT
    if (stream->fast) {
        gcry_md_write(stream->fast, data, size);
        return;
    }
#endif
    if (mbedtls_sha256_update(&stream->portable, data, size) != 0)
        abort();
}

void fedge_sha256_stream_text(fedge_sha256_stream *stream, char text[65])
{
    uint8_t hash[32];
#ifdef FEDGE_WITH_LIBGCRYPT
    if (stream->fast) {
        memcpy(hash, gcry_md_read(stream->fast, GCRY_MD_SHA256), sizeof(hash));
        fedge_hex_encode(hash, sizeof(hash), text);
        return;
    }
#endif
    if (mbedtls_sha256_finish(&stream->portable, hash) != 0)
        abort();
    fedge_hex_encode(hash, sizeof(hash), text);
}

void fedge_sha256_stream_free(fedge_sha256_stream *stream)
{
    if (!stream)
        return;
#ifdef FEDGE_WITH_LIBGCRYPT
    if (stream->fast)
        gcry_md_close(stream->fast);
#endif
    mbedtls_sha256_free(&stream->portable);
    free(stream);
}
#endif
