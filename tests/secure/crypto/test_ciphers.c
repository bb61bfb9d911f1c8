/* The known answers, of both implementations and of ones that are broken in each way; the choice;
 * the functions of mbedTLS that programs reach; many threads. */
#include "tests/edge/core/cmocka_all.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <mbedtls/cipher.h>
#include <mbedtls/version.h>

#include "secure/crypto/cipher_implementation.h"
#include "secure/crypto/sha256.h"

#define MAX_SIZE 20000

static void both_give_the_known_answers(void **unused)
{
    (void)unused;
    assert_null(fedge_known_answers(&fedge_ciphers_mbedtls, &fedge_ciphers_mbedtls));
    assert_null(fedge_known_answers(&fedge_ciphers_gcrypt, &fedge_ciphers_mbedtls));
}

/* --- broken ones -------------------------------------------------------------------------------
 */

/* What is wrong with [broken], which is made of libgcrypt's. */
static enum { TEXT, TAG_MADE, LONG, TAKES_ANY } fault;

static int broken_gcm_crypt(mbedtls_gcm_context *context, int mode, size_t size,
                            const unsigned char *iv, size_t iv_size, const unsigned char *aad,
                            size_t aad_size, const unsigned char *in, unsigned char *out,
                            size_t tag_size, unsigned char *tag)
{
    int code = fedge_ciphers_gcrypt.gcm_crypt_and_tag(context, mode, size, iv, iv_size, aad,
                                                      aad_size, in, out, tag_size, tag);
    if (fault == TEXT || (fault == LONG && size > 4096))
        out[size / 2] ^= 4;
    if (fault == TAG_MADE)
        tag[0] ^= 1;
    return code;
}

static int broken_chachapoly_encrypt(mbedtls_chachapoly_context *context, size_t size,
                                     const unsigned char nonce[12], const unsigned char *aad,
                                     size_t aad_size, const unsigned char *in, unsigned char *out,
                                     unsigned char tag[16])
{
    int code = fedge_ciphers_gcrypt.chachapoly_encrypt_and_tag(context, size, nonce, aad, aad_size,
                                                               in, out, tag);
    if (fault == TEXT || (fault == LONG && size > 4096))
        out[size / 2] ^= 4;
    if (fault == TAG_MADE)
        tag[0] ^= 1;
    return code;
}

static int lax_gcm_decrypt(mbedtls_gcm_context *context, size_t size, const unsigned char *iv,
                           size_t iv_size, const unsigned char *aad, size_t aad_size,
                           const unsigned char *tag, size_t tag_size, const unsigned char *in,
                           unsigned char *out)
{
    unsigned char made[16];
    (void)tag;
    return fedge_ciphers_gcrypt.gcm_crypt_and_tag(context, MBEDTLS_GCM_DECRYPT, size, iv, iv_size,
                                                  aad, aad_size, in, out, tag_size, made);
}

static int lax_chachapoly_decrypt(mbedtls_chachapoly_context *context, size_t size,
                                  const unsigned char nonce[12], const unsigned char *aad,
                                  size_t aad_size, const unsigned char tag[16],
                                  const unsigned char *in, unsigned char *out)
{
    (void)fedge_ciphers_gcrypt.chachapoly_auth_decrypt(context, size, nonce, aad, aad_size, tag, in,
                                                       out);
    return 0;
}

static void broken_ones_are_not_used(void **unused)
{
    (void)unused;
    for (fault = TEXT; fault <= TAKES_ANY; fault++) {
        const char *why = NULL;
        fedge_ciphers broken = fedge_ciphers_gcrypt;
        if (fault == TAKES_ANY)
            broken.gcm_auth_decrypt = lax_gcm_decrypt;
        else
            broken.gcm_crypt_and_tag = broken_gcm_crypt;
        assert_ptr_equal(fedge_ciphers_choose(&broken, NULL, &fedge_ciphers_mbedtls, &why),
                         &fedge_ciphers_mbedtls);
        assert_string_equal(why, "its AES-128-GCM is wrong");
        broken = fedge_ciphers_gcrypt;
        if (fault == TAKES_ANY)
            broken.chachapoly_auth_decrypt = lax_chachapoly_decrypt;
        else
            broken.chachapoly_encrypt_and_tag = broken_chachapoly_encrypt;
        assert_ptr_equal(fedge_ciphers_choose(&broken, NULL, &fedge_ciphers_mbedtls, &why),
                         &fedge_ciphers_mbedtls);
        assert_string_equal(why, "its ChaCha20-Poly1305 is wrong");
        if (fault != LONG) { /* which only shows beside another */
            assert_null(fedge_ciphers_choose(&broken, NULL, &broken, &why));
        }
    }
}

static void choices(void **unused)
{
    (void)unused;
    const char *why = "something";
    assert_ptr_equal(
        fedge_ciphers_choose(&fedge_ciphers_gcrypt, NULL, &fedge_ciphers_mbedtls, &why),
        &fedge_ciphers_gcrypt);
    assert_null(why);
    assert_ptr_equal(fedge_ciphers_choose(&fedge_ciphers_gcrypt, "it is in FIPS mode",
                                          &fedge_ciphers_mbedtls, &why),
                     &fedge_ciphers_mbedtls);
    assert_string_equal(why, "it is in FIPS mode");
}

static void the_process_says_what_it_uses(void **unused)
{
    (void)unused;
    char text[FEDGE_CIPHERS_TEXT], expected[FEDGE_CIPHERS_TEXT];
    fedge_error err;
    if (!fedge_libgcrypt_refusal()) {
        snprintf(expected, sizeof(expected), "libgcrypt %s", fedge_libgcrypt_version());
    } else {
        snprintf(expected, sizeof(expected), "mbedTLS %s, not libgcrypt %s: %s",
                 MBEDTLS_VERSION_STRING, fedge_libgcrypt_version(), fedge_libgcrypt_refusal());
    }
    assert_string_equal(fedge_ciphers_text(text), expected);
    assert_int_equal(fedge_ciphers_check(&err), FEDGE_OK);
}

/* --- as TLS calls them --------------------------------------------------------------------------
 */

/* Both ways through mbedtls_cipher_auth_*_ext, whose functions are wrapped, against [other]. */
static void round_trip(mbedtls_cipher_type_t type, size_t size, uint64_t seed)
{
    static _Thread_local unsigned char plain[MAX_SIZE], sealed[MAX_SIZE + 16], opened[MAX_SIZE],
        expected[MAX_SIZE];
    unsigned char key[32], nonce[12], aad[32], tag[16];
    const size_t aad_size = size % sizeof(aad);
    size_t made = 0;
    for (size_t i = 0; i < sizeof(key); i++)
        key[i] = (unsigned char)(seed * 7 + i * 13);
    for (size_t i = 0; i < sizeof(nonce); i++)
        nonce[i] = (unsigned char)(seed + i);
    for (size_t i = 0; i < sizeof(aad); i++)
        aad[i] = (unsigned char)(seed ^ i);
    for (size_t i = 0; i < size; i++)
        plain[i] = (unsigned char)(i * seed);
    mbedtls_cipher_context_t cipher;
    mbedtls_cipher_init(&cipher);
    assert_int_equal(mbedtls_cipher_setup(&cipher, mbedtls_cipher_info_from_type(type)), 0);
    const int key_bits =
        (int)mbedtls_cipher_info_get_key_bitlen(mbedtls_cipher_info_from_type(type));
    assert_int_equal(mbedtls_cipher_setkey(&cipher, key, key_bits, MBEDTLS_ENCRYPT), 0);
    assert_int_equal(mbedtls_cipher_auth_encrypt_ext(&cipher, nonce, 12, aad, aad_size, plain, size,
                                                     sealed, sizeof(sealed), &made, 16),
                     0);
    assert_int_equal(made, size + 16);
    if (type == MBEDTLS_CIPHER_CHACHA20_POLY1305) {
        mbedtls_chachapoly_context context;
        mbedtls_chachapoly_init(&context);
        assert_int_equal(mbedtls_chachapoly_setkey(&context, key), 0);
        assert_int_equal(fedge_ciphers_mbedtls.chachapoly_encrypt_and_tag(
                             &context, size, nonce, aad, aad_size, plain, expected, tag),
                         0);
        mbedtls_chachapoly_free(&context);
    } else {
        mbedtls_gcm_context context;
        mbedtls_gcm_init(&context);
        assert_int_equal(
            mbedtls_gcm_setkey(&context, MBEDTLS_CIPHER_ID_AES, key, (unsigned)key_bits), 0);
        assert_int_equal(fedge_ciphers_mbedtls.gcm_crypt_and_tag(&context, MBEDTLS_GCM_ENCRYPT,
                                                                 size, nonce, 12, aad, aad_size,
                                                                 plain, expected, 16, tag),
                         0);
        mbedtls_gcm_free(&context);
    }
    assert_memory_equal(sealed, expected, size);
    assert_memory_equal(sealed + size, tag, 16);
    assert_int_equal(mbedtls_cipher_auth_decrypt_ext(&cipher, nonce, 12, aad, aad_size, sealed,
                                                     size + 16, opened, sizeof(opened), &made, 16),
                     0);
    assert_memory_equal(opened, plain, size);
    sealed[size + 3] ^= 1;
    assert_int_equal(mbedtls_cipher_auth_decrypt_ext(&cipher, nonce, 12, aad, aad_size, sealed,
                                                     size + 16, opened, sizeof(opened), &made, 16),
                     MBEDTLS_ERR_CIPHER_AUTH_FAILED);
    mbedtls_cipher_free(&cipher);
}

static const mbedtls_cipher_type_t types[] = {
    MBEDTLS_CIPHER_AES_128_GCM, MBEDTLS_CIPHER_AES_192_GCM, MBEDTLS_CIPHER_AES_256_GCM,
    MBEDTLS_CIPHER_CHACHA20_POLY1305};

static void every_cipher_at_every_size(void **unused)
{
    (void)unused;
    static const size_t sizes[] = {0,  1,   15,  16,   17,   63,    64,
                                   65, 255, 256, 1000, 4096, 16384, 16401};
    for (size_t t = 0; t < 4; t++) {
        for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++)
            round_trip(types[t], sizes[s], t * 100 + s + 1);
    }
}

static void *many(void *user)
{
    for (uint64_t i = 0; i < 60; i++)
        round_trip(types[(i + (uintptr_t)user) % 4], 100 + i * 37, i * 8 + (uintptr_t)user);
    return NULL;
}

static void threads_do_not_mix(void **unused)
{
    (void)unused;
    pthread_t threads[8];
    for (uintptr_t i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, many, (void *)i), 0);
    for (size_t i = 0; i < 8; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
}

/* A long nonce, a short tag: what TLS has not, and mbedTLS's own code does. */
static void nonces_of_other_sizes(void **unused)
{
    (void)unused;
    static const unsigned char key[16] = {1}, nonce[60] = {2}, plain[40] = {3};
    unsigned char a[40], b[40], tag_a[16], tag_b[16];
    mbedtls_gcm_context context;
    mbedtls_gcm_init(&context);
    assert_int_equal(mbedtls_gcm_setkey(&context, MBEDTLS_CIPHER_ID_AES, key, 128), 0);
    for (size_t nonce_size = 8; nonce_size <= 60; nonce_size += 4) {
        for (size_t tag_size = 4; tag_size <= 16; tag_size += 4) {
            assert_int_equal(mbedtls_gcm_crypt_and_tag(&context, MBEDTLS_GCM_ENCRYPT, sizeof(plain),
                                                       nonce, nonce_size, NULL, 0, plain, a,
                                                       tag_size, tag_a),
                             0);
            assert_int_equal(fedge_ciphers_mbedtls.gcm_crypt_and_tag(
                                 &context, MBEDTLS_GCM_ENCRYPT, sizeof(plain), nonce, nonce_size,
                                 NULL, 0, plain, b, tag_size, tag_b),
                             0);
            assert_memory_equal(a, b, sizeof(a));
            assert_memory_equal(tag_a, tag_b, tag_size);
        }
    }
    mbedtls_gcm_free(&context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_give_the_known_answers),
        cmocka_unit_test(broken_ones_are_not_used),
        cmocka_unit_test(choices),
        cmocka_unit_test(the_process_says_what_it_uses),
        cmocka_unit_test(every_cipher_at_every_size),
        cmocka_unit_test(threads_do_not_mix),
        cmocka_unit_test(nonces_of_other_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
