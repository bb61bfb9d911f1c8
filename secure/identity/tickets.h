/* Session tickets (RFC 8446, 4.6.1): a reconnecting device shows a ticket instead of its
 * certificate, which saves both sides signatures for the price of one key exchange.
 *
 * The server seals a ticket (AES-256-GCM) with a daily key derived from the server's key: tickets
 * survive a restart without storage, end with the server's key, and cannot be forged without it. A
 * ticket has the device's id, role and certificate fingerprint, and its chain's root and validity.
 * It is valid for FEDGE_TICKET_LIFETIME_MS from the handshake in which the device proved its key; a
 * resumed session gets no new ticket. Resumption always includes a new key exchange, so recorded
 * traffic stays secret even if the keys leak.
 *
 * A ticket does not admit a device: on resumption its chain is checked here against roots and time,
 * and the registry by fedge_peer_recheck. A device with a bad ticket makes a full handshake.
 */
#ifndef FEDGE_SECURE_IDENTITY_TICKETS_H
#define FEDGE_SECURE_IDENTITY_TICKETS_H

#include <stdbool.h>
#include <stdint.h>

#include "secure/identity/chain.h"
#include "secure/identity/identity.h"
#include "secure/identity/tls.h"

/* The maximum of TLS 1.3. */
#define FEDGE_TICKET_LIFETIME_MS ((uint64_t)7 * 24 * 3600 * 1000)

/* The sealed description of the owner. Plain data. */
typedef struct fedge_ticket_owner {
    uint8_t fingerprint[FEDGE_FINGERPRINT_SIZE]; /* fingerprint of the certificate shown at first */
    char device_id[FEDGE_UUID_TEXT];
    fedge_role role;
    fedge_chain chain;
} fedge_ticket_owner;

typedef struct fedge_tickets {
    void *user;
    /* Gets the verified chain of this socket's peer; false: unknown, so no ticket is issued. */
    bool (*chain_of)(void *user, int socket, fedge_chain *chain);
    /* Called for a valid ticket. It counts once the handshake is complete and the peer has no
     * certificate (mbedtls_ssl_get_peer_cert), which proves that the peer owns the ticket. */
    void (*shown)(void *user, int socket, const fedge_ticket_owner *owner);
} fedge_tickets;

/* Applies to connections of [group] that are set up from now on. [tickets] is copied. */
void fedge_tickets_begin(fedge_tls_group *group, const fedge_tickets *tickets);

/* --- a client's tickets ---
 *
 * A client keeps the latest ticket of its server, in memory, and shows it on the next connection to
 * the same host, until a handshake with it fails, or two in a row are lost with their connections.
 * The server's certificate stays that of the handshake in which it was verified, and the caller
 * checks it again (fedge_peer_check).
 *
 * For all connections of one group, to one server at a time. Without tickets in mbedTLS these
 * functions do nothing. */

void fedge_resume_begin(fedge_tls_group *group);
/* The next connection makes a full handshake. */
void fedge_resume_forget(fedge_tls_group *group);

#endif
