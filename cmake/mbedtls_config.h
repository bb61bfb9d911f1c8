/*
 * mbedTLS configuration of fedge: mbedTLS's own default and the differences below.
 *
 * cmake/deps.sh installs this file as mbedtls/mbedtls_config.h, and the default beside it as
 * mbedtls/mbedtls_config_default.h, so that every user sees what the library was compiled with
 * and needs no define. Changing this file makes the next cmake/deps.sh rebuild both libraries.
 */
#ifndef FEDGE_MBEDTLS_CONFIG_H
#define FEDGE_MBEDTLS_CONFIG_H

#include <mbedtls/mbedtls_config_default.h>

/* Sessions, verification and random numbers are used from several threads. */
#define MBEDTLS_THREADING_C
#define MBEDTLS_THREADING_PTHREAD

/* It counts operations in variables that all threads share. */
#undef MBEDTLS_SELF_TEST

/* Boards without a battery-backed clock verify certificates at a time that the client sets with
 * mbedtls_platform_set_time(); unset, it is time(2). */
#define MBEDTLS_PLATFORM_TIME_ALT

/* The identity of a peer is the SHA-256 of its certificate, read after the handshake. */
#ifndef MBEDTLS_SSL_KEEP_PEER_CERTIFICATE
#error "fedge needs MBEDTLS_SSL_KEEP_PEER_CERTIFICATE: a peer is known by its certificate"
#endif

/* Ages of tickets, as the two sides' clocks have them, need not agree: the rule keeps early data
 * from being played again, and here there is none. A server whose wall clock was set would
 * otherwise make full handshakes with all that hold tickets of before. */
#define MBEDTLS_SSL_TLS1_3_TICKET_AGE_TOLERANCE (7 * 24 * 3600 * 1000)

/* Record buffers stay at 16 KB each way (MBEDTLS_SSL_IN_CONTENT_LEN, MBEDTLS_SSL_OUT_CONTENT_LEN):
 * smaller ones would slow transfers, and a server's idle connections have none
 * (secure/identity/tls.h).
 * MBEDTLS_SSL_VARIABLE_BUFFER_LENGTH shrinks buffers only where a maximum fragment length was
 * negotiated, which fedge does not do. */

#endif
