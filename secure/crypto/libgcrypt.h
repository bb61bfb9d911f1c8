/* The start of libgcrypt, for what uses it: hashes, and the ciphers.
 *
 * It is compiled where FEDGE_FAST_CRYPTO is on. Both functions start libgcrypt at their first call,
 * without memory that is locked against swapping: the keys that it sees lie in mbedTLS's memory,
 * too. A program that has started it before has it left as it is. Any thread.
 */
#ifndef FEDGE_SECURE_CRYPTO_LIBGCRYPT_H
#define FEDGE_SECURE_CRYPTO_LIBGCRYPT_H

/* NULL: libgcrypt can be used, and has given the known hashes of FIPS 180-4. Else why not: "it is
 * in FIPS mode", "its SHA-256 is wrong", … */
const char *fedge_libgcrypt_refusal(void);

/* "1.10.1": the version that runs. */
const char *fedge_libgcrypt_version(void);

#endif
