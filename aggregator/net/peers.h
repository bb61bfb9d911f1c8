/* Who may connect: the registry, the trusted roots and the aggregator's own identity, loaded from
 * their directories and loaded again on SIGHUP; and the log of who was refused. Identity and roots
 * become the process's TLS settings (tls.h), so there is one fedge_peers at a time.
 * Any thread may call all of it but fedge_peers_new, fedge_peers_free and fedge_peers_reload, which
 * are for one thread.
 */
#ifndef FEDGE_AGGREGATOR_NET_PEERS_H
#define FEDGE_AGGREGATOR_NET_PEERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "aggregator/exchange/exchange.h"
#include "aggregator/net/listener.h"
#include "edge/core/log.h"
#include "edge/core/status.h"
#include "secure/identity/identity.h"
#include "secure/identity/registry.h"
#include "secure/identity/tickets.h"

#define FEDGE_REFUSALS_PER_SECOND 10 /* logged one by one; more are counted */
#define FEDGE_LINES_PER_SECOND 10    /* about one device, and about one connection */
#define FEDGE_LINES_BURST 256        /* about one device at once, over several connections */
#define FEDGE_DISPLACED_TIMES 4      /* within FEDGE_DISPLACED_MS: two devices, it seems */
#define FEDGE_DISPLACED_MS 60000
#define FEDGE_PEERS_REMEMBERED 16384 /* where devices have connected from, remembered */

typedef struct fedge_peers fedge_peers;

/* The directories are those of identity.h and registry.h; texts and [log] outlive the peers.
 * Errors name the file and what mends it; FEDGE_EXPIRED: the own certificate. */
FEDGE_MUST_USE fedge_status fedge_peers_new(const char *identity_dir, const char *trust_dir,
                                            const char *registry_dir, const fedge_log *log,
                                            fedge_peers **peers, fedge_error *err);
void fedge_peers_free(fedge_peers *peers); /* NULL is fine */

/* Loads all three again; connections made from then on get the new identity and roots. Of the
 * three, each that cannot be loaded stays as it was, and the others are taken over; the error is of
 * the first, and those of others are logged. */
FEDGE_MUST_USE fedge_status fedge_peers_reload(fedge_peers *peers, fedge_error *err);

/* Valid until the next reload. */
const fedge_identity *fedge_peers_identity(const fedge_peers *peers);
uint32_t fedge_peers_num_devices(fedge_peers *peers);
/* Looks at every device of the registry. */
fedge_registry_counts fedge_peers_count(fedge_peers *peers);

/* May the owner of this certificate connect as a device? As fedge_peer_check; [fingerprint] is set
 * when the answer is yes. */
FEDGE_MUST_USE fedge_status fedge_peers_admit(fedge_peers *peers, const uint8_t *der,
                                              size_t der_size,
                                              uint8_t fingerprint[FEDGE_FINGERPRINT_SIZE],
                                              fedge_registry_match *match, fedge_error *err);

/* The same for the owner of a ticket (tickets.h), whose certificate was shown before. */
FEDGE_MUST_USE fedge_status fedge_peers_admit_again(fedge_peers *peers,
                                                    const fedge_ticket_owner *owner,
                                                    fedge_registry_match *match, fedge_error *err);

/* May it stay, as whom it was let in ([was])? FEDGE_REVOKED with a message otherwise. */
FEDGE_MUST_USE fedge_status fedge_peers_keep(fedge_peers *peers,
                                             const uint8_t fingerprint[FEDGE_FINGERPRINT_SIZE],
                                             const fedge_registry_match *was, fedge_error *err);

/* Logs that [who] (a name, a certificate's subject, or "") at [address] was refused. At most
 * FEDGE_REFUSALS_PER_SECOND lines a second, then one with their number. */
void fedge_peers_refused(fedge_peers *peers, const char *address, const char *who,
                         const char *reason, uint64_t now_ms);
/* Whether a line may be logged that the device [match] has caused. At most FEDGE_LINES_PER_SECOND a
 * second for its connection, whose quota is [connection], and over time for the device; the rest is
 * counted, and logged as a number once a second. */
bool fedge_peers_may_log(fedge_peers *peers, const fedge_registry_match *match,
                         fedge_quota *connection, uint64_t now_ms);

/* [match] has connected from [address]. */
void fedge_peers_connected(fedge_peers *peers, const fedge_registry_match *match,
                           const fedge_peer_address *address);
/* Whether a device has connected from there recently: among the last addresses, of which at least
 * FEDGE_PEERS_REMEMBERED / 2 or so are remembered. */
bool fedge_peers_has_seen(fedge_peers *peers, const fedge_peer_address *address);
/* A connection of [match] from [address] was replaced by the one that was told last. Logs
 * identity-in-use-twice when that happens again and again. */
void fedge_peers_displaced(fedge_peers *peers, const fedge_registry_match *match,
                           const fedge_peer_address *address, uint64_t now_ms);

/* Once a second or so, for the lines with numbers. */
void fedge_peers_tick(fedge_peers *peers, uint64_t now_ms);
/* Refused since the start, for /metrics. */
uint64_t fedge_peers_num_refused(fedge_peers *peers);

#endif
