/* The client's part in resumption (tickets.h): keeps the latest ticket of its server, in memory,
 * and shows it on the next connection to the same host, until a handshake with it fails, or two in
 * a row are lost with their connections. The server's certificate stays that of the handshake in
 * which it was verified, and is for the caller to check again (fedge_peer_check).
 *
 * For all connections of one thread, to one server at a time.
 */
#ifndef FEDGE_SECURE_IDENTITY_RESUME_H
#define FEDGE_SECURE_IDENTITY_RESUME_H

/* From now on. Where mbedTLS is built without tickets nothing happens, in all of these. */
void fedge_resume_begin(void);
/* The next connection makes a full handshake. */
void fedge_resume_forget(void);
void fedge_resume_end(void);

#endif
