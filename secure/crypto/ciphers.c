/* Selects the ciphers, and wraps mbedTLS's functions to use them. Both are in one file, so that a
 * program which uses the selection links all wrappers. Without libgcrypt there is no choice, and
 * nothing is wrapped. */
#include "secure/crypto/ciphers.h"

#include <stdio.h>

#include <mbedtls/version.h>

#define MBEDTLS_NAME "mbedTLS " MBEDTLS_VERSION_STRING

#ifdef FEDGE_WITH_LIBGCRYPT

#include <pthread.h>

#include <mbedtls/error.h>

#include "secure/crypto/cipher_implementation.h"
#include "secure/crypto/sha256.h"

static const fedge_ciphers *chosen; /* NULL: none is usable */
static const char *why_not_fast;
static pthread_once_t once = PTHREAD_ONCE_INIT;

const fedge_ciphers *fedge_ciphers_choose(const fedge_ciphers *fast, const char *refusal,
                                          const fedge_ciphers *portable, const char **why)
{
    *why = refusal;
    if (!*why)
        *why = fedge_known_answers(fast, portable);
    if (!*why)
        return fast;
    return !fedge_known_answers(portable, portable) ? portable : NULL;
}

static void choose(void)
{
    chosen = fedge_ciphers_choose(&fedge_ciphers_gcrypt, fedge_libgcrypt_refusal(),
                                  &fedge_ciphers_mbedtls, &why_not_fast);
}

static const fedge_ciphers *current(void)
{
    (void)pthread_once(&once, choose);
    return chosen;
}

const char *fedge_ciphers_text(char text[FEDGE_CIPHERS_TEXT])
{
    const fedge_ciphers *in_use = current();
    if (!why_not_fast) {
        snprintf(text, FEDGE_CIPHERS_TEXT, "libgcrypt %s", fedge_libgcrypt_version());
    } else {
        snprintf(text, FEDGE_CIPHERS_TEXT, "%s, not libgcrypt %s: %s",
                 in_use ? MBEDTLS_NAME : "none", fedge_libgcrypt_version(), why_not_fast);
    }
    return text;
}

fedge_status fedge_ciphers_check(fedge_error *err)
{
    char text[FEDGE_CIPHERS_TEXT];
    if (current())
        return FEDGE_OK;
    return fedge_fail(err, FEDGE_INTERNAL,
                      "the ciphers give wrong answers, so nothing can be encrypted (%s): the "
                      "machine or the build is damaged",
                      fedge_ciphers_text(text));
}

/* --- the wrapped functions -------------------------------------------------------------------- */

/* The linker's --wrap calls __wrap_X in place of X; __real_X is mbedTLS's. */
#define WRAP(function, ...)                                                                        \
    int __real_##function(__VA_ARGS__);                                                            \
    int __wrap_##function(__VA_ARGS__);                                                            \
    int __wrap_##function(__VA_ARGS__)

WRAP(mbedtls_gcm_crypt_and_tag, mbedtls_gcm_context *context, int mode, size_t size,
     const unsigned char *iv, size_t iv_size, const unsigned char *aad, size_t aad_size,
     const unsigned char *in, unsigned char *out, size_t tag_size, unsigned char *tag)
{
    const fedge_ciphers *ciphers = current();
    return !ciphers ? MBEDTLS_ERR_PLATFORM_FEATURE_UNSUPPORTED
                    : ciphers->gcm_crypt_and_tag(context, mode, size, iv, iv_size, aad, aad_size,
                                                 in, out, tag_size, tag);
}

WRAP(mbedtls_gcm_auth_decrypt, mbedtls_gcm_context *context, size_t size, const unsigned char *iv,
     size_t iv_size, const unsigned char *aad, size_t aad_size, const unsigned char *tag,
     size_t tag_size, const unsigned char *in, unsigned char *out)
{
    const fedge_ciphers *ciphers = current();
    return !ciphers ? MBEDTLS_ERR_PLATFORM_FEATURE_UNSUPPORTED
                    : ciphers->gcm_auth_decrypt(context, size, iv, iv_size, aad, aad_size, tag,
                                                tag_size, in, out);
}

WRAP(mbedtls_chachapoly_encrypt_and_tag, mbedtls_chachapoly_context *context, size_t size,
     const unsigned char nonce[12], const unsigned char *aad, size_t aad_size,
     const unsigned char *in, unsigned char *out, unsigned char tag[16])
{
    const fedge_ciphers *ciphers = current();
    return !ciphers ? MBEDTLS_ERR_PLATFORM_FEATURE_UNSUPPORTED
                    : ciphers->chachapoly_encrypt_and_tag(context, size, nonce, aad, aad_size, in,
                                                          out, tag);
}

WRAP(mbedtls_chachapoly_auth_decrypt, mbedtls_chachapoly_context *context, size_t size,
     const unsigned char nonce[12], const unsigned char *aad, size_t aad_size,
     const unsigned char tag[16], const unsigned char *in, unsigned char *out)
{
    const fedge_ciphers *ciphers = current();
    return !ciphers ? MBEDTLS_ERR_PLATFORM_FEATURE_UNSUPPORTED
                    : ciphers->chachapoly_auth_decrypt(context, size, nonce, aad, aad_size, tag, in,
                                                       out);
}

const fedge_ciphers fedge_ciphers_mbedtls = {
    .gcm_crypt_and_tag = __real_mbedtls_gcm_crypt_and_tag,
    .gcm_auth_decrypt = __real_mbedtls_gcm_auth_decrypt,
    .chachapoly_encrypt_and_tag = __real_mbedtls_chachapoly_encrypt_and_tag,
    .chachapoly_auth_decrypt = __real_mbedtls_chachapoly_auth_decrypt,
};

#else

const char *fedge_ciphers_text(char text[FEDGE_CIPHERS_TEXT])
{
    snprintf(text, FEDGE_CIPHERS_TEXT, "%s", MBEDTLS_NAME);
    return text;
}

fedge_status fedge_ciphers_check(fedge_error *err)
{
    (void)err;
    return FEDGE_OK;
}

#endif
