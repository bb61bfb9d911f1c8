/* Implementations of the ciphers behind ciphers.h, and how one is checked and selected. */
#ifndef FEDGE_SECURE_CRYPTO_CIPHER_IMPLEMENTATION_H
#define FEDGE_SECURE_CRYPTO_CIPHER_IMPLEMENTATION_H

#include <mbedtls/chachapoly.h>
#include <mbedtls/gcm.h>

#include "secure/crypto/ciphers.h"

/* Functions that encrypt or decrypt one whole message with authentication. Each has the parameters
 * and results of mbedTLS's function of the same name; mbedTLS sets the contexts' keys. */
typedef struct fedge_ciphers {
    int (*gcm_crypt_and_tag)(mbedtls_gcm_context *context, int mode, size_t size,
                             const unsigned char *iv, size_t iv_size, const unsigned char *aad,
                             size_t aad_size, const unsigned char *in, unsigned char *out,
                             size_t tag_size, unsigned char *tag);
    int (*gcm_auth_decrypt)(mbedtls_gcm_context *context, size_t size, const unsigned char *iv,
                            size_t iv_size, const unsigned char *aad, size_t aad_size,
                            const unsigned char *tag, size_t tag_size, const unsigned char *in,
                            unsigned char *out);
    int (*chachapoly_encrypt_and_tag)(mbedtls_chachapoly_context *context, size_t size,
                                      const unsigned char nonce[12], const unsigned char *aad,
                                      size_t aad_size, const unsigned char *in, unsigned char *out,
                                      unsigned char tag[16]);
    int (*chachapoly_auth_decrypt)(mbedtls_chachapoly_context *context, size_t size,
                                   const unsigned char nonce[12], const unsigned char *aad,
                                   size_t aad_size, const unsigned char tag[16],
                                   const unsigned char *in, unsigned char *out);
} fedge_ciphers;

/* mbedTLS's implementation. */
extern const fedge_ciphers fedge_ciphers_mbedtls;

/* libgcrypt's implementation. It passes AES-192, nonces of other than 12 bytes and empty messages
 * to mbedTLS. */
extern const fedge_ciphers fedge_ciphers_gcrypt;

/* Checks [ciphers] against known answers in both directions, in place and out of place, and that it
 * refuses changed messages. NULL, or the first fault: "its AES-128-GCM is wrong". A message of a
 * whole TLS record is compared with [reference]'s, since only long ones use the widest instructions
 * of a CPU. */
const char *fedge_known_answers(const fedge_ciphers *ciphers, const fedge_ciphers *reference);

/* Selects [fast], or [portable] if [fast] has a [refusal] (NULL: none) or wrong answers; NULL if
 * neither gives the known answers. *why: the reason against [fast], or NULL. */
const fedge_ciphers *fedge_ciphers_choose(const fedge_ciphers *fast, const char *refusal,
                                          const fedge_ciphers *portable, const char **why);

#endif
