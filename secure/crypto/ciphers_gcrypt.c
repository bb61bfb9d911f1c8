/* libgcrypt's ciphers for contexts of mbedTLS. A handle takes 2 KB and setting a key 0.1 µs, so
 * each thread has one handle for each cipher, and each message sets its key. */
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <gcrypt.h>
#include <mbedtls/aes.h>
#include <mbedtls/constant_time.h>
#include <mbedtls/error.h>
#include <mbedtls/platform_util.h>

#include "secure/crypto/cipher_implementation.h"

enum {
    NONCE = 12, /* bytes of a nonce; TLS uses no other size */
    TAG = 16,
    KEY_MAX = 32
};

typedef enum cipher { AES_128_GCM, AES_256_GCM, CHACHA20_POLY1305, NUM_CIPHERS } cipher;

/* Handles of a thread; NULL: not open yet. */
typedef struct handles {
    gcry_cipher_hd_t of[NUM_CIPHERS];
} handles;

static pthread_key_t key_of_handles;
static bool has_key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void close_handles(void *user)
{
    handles *mine = user;
    for (int i = 0; i < NUM_CIPHERS; i++)
        gcry_cipher_close(mine->of[i]);
    free(mine);
}

static void make_key(void)
{
    has_key = pthread_key_create(&key_of_handles, close_handles) == 0;
}

/* NULL: no memory. */
static gcry_cipher_hd_t handle_of(cipher which)
{
    static const struct {
        int algorithm, mode;
    } kinds[] = {
        [AES_128_GCM] = {GCRY_CIPHER_AES128, GCRY_CIPHER_MODE_GCM},
        [AES_256_GCM] = {GCRY_CIPHER_AES256, GCRY_CIPHER_MODE_GCM},
        [CHACHA20_POLY1305] = {GCRY_CIPHER_CHACHA20, GCRY_CIPHER_MODE_POLY1305},
    };
    (void)pthread_once(&once, make_key);
    handles *mine = has_key ? pthread_getspecific(key_of_handles) : NULL;
    if (has_key && !mine) {
        mine = calloc(1, sizeof(*mine));
        if (mine && pthread_setspecific(key_of_handles, mine) != 0) {
            free(mine);
            mine = NULL;
        }
    }
    if (!mine)
        return NULL;
    if (!mine->of[which] &&
        gcry_cipher_open(&mine->of[which], kinds[which].algorithm, kinds[which].mode, 0) != 0)
        mine->of[which] = NULL;
    return mine->of[which];
}

/* A message and its parameters. */
typedef struct message {
    cipher which;
    bool encrypt;
    unsigned char key[KEY_MAX];
    size_t key_size;
    const unsigned char *nonce, *aad, *in;
    size_t aad_size, size;
    unsigned char *out;
    unsigned char tag[TAG]; /* out: computed from the ciphertext */
} message;

static bool crypt_message(gcry_cipher_hd_t handle, message *m)
{
    /* NULL: in place. */
    const unsigned char *in = m->in == m->out ? NULL : m->in;
    const size_t in_size = in ? m->size : 0;
    gcry_error_t code = gcry_cipher_setkey(handle, m->key, m->key_size);
    mbedtls_platform_zeroize(m->key, sizeof(m->key));
    if (code == 0)
        code = gcry_cipher_setiv(handle, m->nonce, NONCE);
    if (code == 0 && m->aad_size > 0)
        code = gcry_cipher_authenticate(handle, m->aad, m->aad_size);
    if (code == 0) {
        code = m->encrypt ? gcry_cipher_encrypt(handle, m->out, m->size, in, in_size)
                          : gcry_cipher_decrypt(handle, m->out, m->size, in, in_size);
    }
    if (code == 0)
        code = gcry_cipher_gettag(handle, m->tag, TAG);
    return code == 0;
}

/* Whether libgcrypt takes the message; then sets its key. [context] is AES-GCM's; AES's first round
 * keys are its key. */
static bool takes_gcm(const mbedtls_gcm_context *context, size_t iv_size, message *m)
{
    const mbedtls_cipher_context_t *inner = &context->MBEDTLS_PRIVATE(cipher_ctx);
    if (m->size == 0 || iv_size != NONCE ||
        mbedtls_cipher_get_cipher_mode(inner) != MBEDTLS_MODE_ECB)
        return false;
    switch (mbedtls_cipher_get_type(inner)) {
    case MBEDTLS_CIPHER_AES_128_ECB:
        m->which = AES_128_GCM;
        m->key_size = 16;
        break;
    case MBEDTLS_CIPHER_AES_256_ECB:
        m->which = AES_256_GCM;
        m->key_size = 32;
        break;
    default:
        return false;
    }
    const mbedtls_aes_context *aes = inner->MBEDTLS_PRIVATE(cipher_ctx);
    const uint32_t *round_keys = aes->MBEDTLS_PRIVATE(buf) + aes->MBEDTLS_PRIVATE(rk_offset);
    for (size_t i = 0; i < m->key_size; i++)
        m->key[i] = (unsigned char)(round_keys[i / 4] >> 8 * (i % 4));
    return true;
}

static int gcm_crypt_and_tag(mbedtls_gcm_context *context, int mode, size_t size,
                             const unsigned char *iv, size_t iv_size, const unsigned char *aad,
                             size_t aad_size, const unsigned char *in, unsigned char *out,
                             size_t tag_size, unsigned char *tag)
{
    message m = {.encrypt = mode == MBEDTLS_GCM_ENCRYPT,
                 .nonce = iv,
                 .aad = aad,
                 .aad_size = aad_size,
                 .in = in,
                 .out = out,
                 .size = size};
    gcry_cipher_hd_t handle =
        tag_size <= TAG && takes_gcm(context, iv_size, &m) ? handle_of(m.which) : NULL;
    if (!handle) {
        return fedge_ciphers_mbedtls.gcm_crypt_and_tag(context, mode, size, iv, iv_size, aad,
                                                       aad_size, in, out, tag_size, tag);
    }
    if (!crypt_message(handle, &m))
        return MBEDTLS_ERR_PLATFORM_HW_ACCEL_FAILED;
    memcpy(tag, m.tag, tag_size);
    return 0;
}

static int gcm_auth_decrypt(mbedtls_gcm_context *context, size_t size, const unsigned char *iv,
                            size_t iv_size, const unsigned char *aad, size_t aad_size,
                            const unsigned char *tag, size_t tag_size, const unsigned char *in,
                            unsigned char *out)
{
    unsigned char expected[TAG];
    if (tag_size > TAG)
        return MBEDTLS_ERR_GCM_BAD_INPUT;
    int code = gcm_crypt_and_tag(context, MBEDTLS_GCM_DECRYPT, size, iv, iv_size, aad, aad_size, in,
                                 out, tag_size, expected);
    if (code != 0 || mbedtls_ct_memcmp(tag, expected, tag_size) == 0)
        return code;
    mbedtls_platform_zeroize(out, size);
    return MBEDTLS_ERR_GCM_AUTH_FAILED;
}

/* libgcrypt's handle for the message, or NULL if mbedTLS takes it. */
static gcry_cipher_hd_t take_chachapoly(const mbedtls_chachapoly_context *context, message *m)
{
    enum {
        KEY_WORDS = 8, /* words of the 16-word state, after four constants: RFC 8439, 2.3 */
        KEY_AT = 4
    };
    const mbedtls_chacha20_context *chacha20 = &context->MBEDTLS_PRIVATE(chacha20_ctx);
    if (m->size == 0)
        return NULL;
    m->which = CHACHA20_POLY1305;
    m->key_size = 4 * KEY_WORDS;
    for (size_t i = 0; i < m->key_size; i++) {
        m->key[i] =
            (unsigned char)(chacha20->MBEDTLS_PRIVATE(state)[KEY_AT + i / 4] >> 8 * (i % 4));
    }
    return handle_of(m->which);
}

static int chachapoly_encrypt_and_tag(mbedtls_chachapoly_context *context, size_t size,
                                      const unsigned char nonce[12], const unsigned char *aad,
                                      size_t aad_size, const unsigned char *in, unsigned char *out,
                                      unsigned char tag[16])
{
    message m = {.encrypt = true,
                 .nonce = nonce,
                 .aad = aad,
                 .aad_size = aad_size,
                 .in = in,
                 .out = out,
                 .size = size};
    gcry_cipher_hd_t handle = take_chachapoly(context, &m);
    if (!handle) {
        return fedge_ciphers_mbedtls.chachapoly_encrypt_and_tag(context, size, nonce, aad, aad_size,
                                                                in, out, tag);
    }
    if (!crypt_message(handle, &m))
        return MBEDTLS_ERR_PLATFORM_HW_ACCEL_FAILED;
    memcpy(tag, m.tag, TAG);
    return 0;
}

static int chachapoly_auth_decrypt(mbedtls_chachapoly_context *context, size_t size,
                                   const unsigned char nonce[12], const unsigned char *aad,
                                   size_t aad_size, const unsigned char tag[16],
                                   const unsigned char *in, unsigned char *out)
{
    message m = {
        .nonce = nonce, .aad = aad, .aad_size = aad_size, .in = in, .out = out, .size = size};
    gcry_cipher_hd_t handle = take_chachapoly(context, &m);
    if (!handle) {
        return fedge_ciphers_mbedtls.chachapoly_auth_decrypt(context, size, nonce, aad, aad_size,
                                                             tag, in, out);
    }
    if (!crypt_message(handle, &m))
        return MBEDTLS_ERR_PLATFORM_HW_ACCEL_FAILED;
    if (mbedtls_ct_memcmp(tag, m.tag, TAG) == 0)
        return 0;
    mbedtls_platform_zeroize(out, size);
    return MBEDTLS_ERR_CHACHAPOLY_AUTH_FAILED;
}

const fedge_ciphers fedge_ciphers_gcrypt = {
    .gcm_crypt_and_tag = gcm_crypt_and_tag,
    .gcm_auth_decrypt = gcm_auth_decrypt,
    .chachapoly_encrypt_and_tag = chachapoly_encrypt_and_tag,
    .chachapoly_auth_decrypt = chachapoly_auth_decrypt,
};
