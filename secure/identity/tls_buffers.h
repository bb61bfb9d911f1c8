/* Record buffers on loan, for servers with many idle connections: mbedTLS keeps two buffers of 16
 * KiB for each connection, of which one that waits for its peer needs neither. */
#ifndef FEDGE_SECURE_IDENTITY_TLS_BUFFERS_H
#define FEDGE_SECURE_IDENTITY_TLS_BUFFERS_H

/* From now on this thread's connections have buffers only while bytes are on their way: those that
 * are done hand theirs to the next. The program is linked with mbedtls_ssl_write and
 * mbedtls_ssl_close_notify wrapped, as fedge_identity_tls has mbedtls_ssl_read. */
void fedge_tls_buffers_begin(void);
/* At the end of the thread: frees what nobody has on loan. */
void fedge_tls_buffers_end(void);

#endif
