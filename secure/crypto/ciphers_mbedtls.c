/* mbedTLS's own ciphers, under the names that the linker gives to what --wrap replaces. */
#include "secure/crypto/cipher_implementation.h"

#define REAL(function, ...) int __real_##function(__VA_ARGS__)

REAL(mbedtls_gcm_crypt_and_tag, mbedtls_gcm_context *context, int mode, size_t size,
     const unsigned char *iv, size_t iv_size, const unsigned char *aad, size_t aad_size,
     const unsigned char *in, unsigned char *out, size_t tag_size, unsigned char *tag);
REAL(mbedtls_gcm_auth_decrypt, mbedtls_gcm_context *context, size_t size, const unsigned char *iv,
     size_t iv_size, const unsigned char *aad, size_t aad_size, const unsigned char *tag,
     size_t tag_size, const unsigned char *in, unsigned char *out);
REAL(mbedtls_chachapoly_encrypt_and_tag, mbedtls_chachapoly_context *context, size_t size,
     const unsigned char nonce[12], const unsigned char *aad, size_t aad_size,
     const unsigned char *in, unsigned char *out, unsigned char tag[16]);
REAL(mbedtls_chachapoly_auth_decrypt, mbedtls_chachapoly_context *context, size_t size,
     const unsigned char nonce[12], const unsigned char *aad, size_t aad_size,
     const unsigned char tag[16], const unsigned char *in, unsigned char *out);

const fedge_ciphers fedge_ciphers_mbedtls = {
    .gcm_crypt_and_tag = __real_mbedtls_gcm_crypt_and_tag,
    .gcm_auth_decrypt = __real_mbedtls_gcm_auth_decrypt,
    .chachapoly_encrypt_and_tag = __real_mbedtls_chachapoly_encrypt_and_tag,
    .chachapoly_auth_decrypt = __real_mbedtls_chachapoly_auth_decrypt,
};
