/* Session tickets of a server (RFC 8446, 4.6.1): a device that comes back shows one in place of its
 * certificate, and both sides are spared signatures, for the price of one key exchange.
 *
 * A ticket is sealed (AES-256-GCM) with a key of the day, which is made from the server's own key:
 * it survives a restart without being kept anywhere, is another when the server's key is another,
 * and whoever could forge a ticket has the server's key. In it stands who the device is, by which
 * certificate, and what its chain rests on. It is good for FEDGE_TICKET_LIFETIME_MS from the
 * handshake in which the device has proved its key; what resumes gets no new one. Resumption always
 * includes a fresh key exchange, so recorded traffic stays secret whatever becomes of the keys.
 *
 * A ticket says nothing of whether the device may connect: on resumption its chain is asked again
 * here, against the roots and the time, and the registry by fedge_peer_check_again. Whose ticket is
 * not good makes a full handshake.
 */
#ifndef FEDGE_SECURE_IDENTITY_TICKETS_H
#define FEDGE_SECURE_IDENTITY_TICKETS_H

#include <stdbool.h>
#include <stdint.h>

#include "secure/identity/chain.h"
#include "secure/identity/identity.h"

/* The longest that TLS 1.3 allows. */
#define FEDGE_TICKET_LIFETIME_MS ((uint64_t)7 * 24 * 3600 * 1000)

/* What is sealed about the owner. Plain data. */
typedef struct fedge_ticket_owner {
    uint8_t fingerprint[FEDGE_FINGERPRINT_SIZE]; /* of the certificate shown at first */
    char device_id[FEDGE_UUID_TEXT];
    fedge_role role;
    fedge_chain chain;
} fedge_ticket_owner;

typedef struct fedge_tickets {
    void *user;
    /* What the verified chain of this socket's peer rests on; false: not known, and no ticket. */
    bool (*chain_of)(void *user, int socket, fedge_chain *chain);
    /* A good ticket was shown. It counts when the handshake is over and the peer has no certificate
     * (mbedtls_ssl_get_peer_cert): then it has proved that the ticket is its own. */
    void (*shown)(void *user, int socket, const fedge_ticket_owner *owner);
} fedge_tickets;

/* For connections of this thread that are set up from now on. [tickets] is copied. */
void fedge_tickets_begin(const fedge_tickets *tickets);
void fedge_tickets_end(void);

/* --- a client's tickets ---
 *
 * A client keeps the latest ticket of its server, in memory, and shows it on the next connection to
 * the same host, until a handshake with it fails, or two in a row are lost with their connections.
 * The server's certificate stays that of the handshake in which it was verified, and the caller
 * checks it again (fedge_peer_check).
 *
 * For all connections of one thread, to one server at a time. Without tickets in mbedTLS these
 * functions do nothing. */

void fedge_resume_begin(void);
/* The next connection makes a full handshake. */
void fedge_resume_forget(void);
void fedge_resume_end(void);

#endif
