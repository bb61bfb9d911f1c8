/* The library that encrypts TLS records and hashes models in this process.
 *
 * mbedTLS's AES-GCM and ChaCha20-Poly1305 are portable C and take 2.2 to 2.5 CPU seconds per GB;
 * libgcrypt, which uses special CPU instructions, takes 0.2 to 0.3. Where it is built in
 * (FEDGE_FAST_CRYPTO), programs that link fedge_ciphers carry -Wl,--wrap options for the four
 * functions of mbedTLS that encrypt or decrypt a whole message, and the wrappers call libgcrypt.
 * Keys stay in mbedTLS's contexts; mbedTLS does everything else of TLS.
 *
 * On first use each implementation must give the known answers of NIST and RFC 8439. libgcrypt is
 * not used if it fails, or in FIPS mode.
 */
#ifndef FEDGE_SECURE_CRYPTO_CIPHERS_H
#define FEDGE_SECURE_CRYPTO_CIPHERS_H

#include "edge/core/status.h"

enum { FEDGE_CIPHERS_TEXT = 160 };

/* For logs and --version: "libgcrypt 1.10.1", "mbedTLS 3.6.7", or "mbedTLS 3.6.7, not libgcrypt
 * 1.10.1: it is in FIPS mode". Returns [text]. Any thread. */
const char *fedge_ciphers_text(char text[FEDGE_CIPHERS_TEXT]);

/* FEDGE_INTERNAL: no built-in cipher gives the known answers, so nothing may be encrypted. Any
 * thread. */
FEDGE_MUST_USE fedge_status fedge_ciphers_check(fedge_error *err);

#endif
