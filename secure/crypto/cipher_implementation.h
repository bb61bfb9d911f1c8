/* The implementations of the ciphers behind ciphers.h, and how one is checked and chosen. */
#ifndef FEDGE_SECURE_CRYPTO_CIPHER_IMPLEMENTATION_H
#define FEDGE_SECURE_CRYPTO_CIPHER_IMPLEMENTATION_H

#include <mbedtls/chachapoly.h>
#include <mbedtls/gcm.h>

#include "secure/crypto/ciphers.h"

/* One whole message, encrypted and authenticated or the other way round. Each function takes and
 * returns what mbedTLS's of the same name does, contexts with their keys set by mbedTLS included.
 */
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

/* mbedTLS's own. */
extern const fedge_ciphers fedge_ciphers_mbedtls;

/* libgcrypt's. AES-192, nonces of other than 12 bytes and empty messages go to mbedTLS's. */
extern const fedge_ciphers fedge_ciphers_gcrypt;

/* NULL if [ciphers] gives the known answers in both directions, in place and not, and refuses
 * changed messages; else the first fault: "its AES-128-GCM is wrong". A message of a whole TLS
 * record is compared with [reference]'s, since only long ones use a CPU's widest instructions. */
const char *fedge_known_answers(const fedge_ciphers *ciphers, const fedge_ciphers *reference);

/* Chooses [fast], or [portable] if there is a [refusal] of [fast] (NULL: none) or it gives wrong
 * answers; NULL when neither gives the known answers. *why: the reason against [fast], or NULL. */
const fedge_ciphers *fedge_ciphers_choose(const fedge_ciphers *fast, const char *refusal,
                                          const fedge_ciphers *portable, const char **why);

#endif
