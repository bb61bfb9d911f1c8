/* Admission of peers: the registry, the trusted roots and the aggregator's identity, loaded from
 * their directories and reloaded on SIGHUP, and the log of refusals.
 *
 * All functions may be called by any thread, except fedge_peers_new, fedge_peers_free and
 * fedge_peers_reload, which belong to one thread.
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
#include "secure/identity/tls.h"

#define FEDGE_REFUSALS_PER_SECOND 10 /* logged one by one; the rest is counted */
#define FEDGE_LINES_PER_SECOND 10    /* per device and per connection */
#define FEDGE_LINES_BURST 256        /* burst of a device over all its connections */
#define FEDGE_DISPLACED_TIMES                                                                      \
    4 /* this often within FEDGE_DISPLACED_MS: two devices probably share an identity */
#define FEDGE_DISPLACED_MS 60000
#define FEDGE_PEERS_REMEMBERED 16384 /* addresses of devices that are remembered */

typedef struct fedge_peers fedge_peers;

/* Directories as in identity.h and registry.h; texts and [log] outlive the peers. Errors name the
 * file and the remedy. FEDGE_EXPIRED: the aggregator's certificate. */
FEDGE_MUST_USE fedge_status fedge_peers_new(const char *identity_dir, const char *trust_dir,
                                            const char *registry_dir, const fedge_log *log,
                                            fedge_peers **peers, fedge_error *err);
void fedge_peers_free(fedge_peers *peers); /* NULL is allowed */

/* Reloads all three; new connections use the new identity and roots. A part that cannot be loaded
 * keeps its old state while the others are replaced. Returns the first error and logs the others.
 */
FEDGE_MUST_USE fedge_status fedge_peers_reload(fedge_peers *peers, fedge_error *err);

/* The settings of TLS, with the present roots and identity. Valid until fedge_peers_free. */
fedge_tls *fedge_peers_tls(const fedge_peers *peers);
/* Certificate time (clock.h). */
uint64_t fedge_peers_now_ms(const fedge_peers *peers);

/* Valid until the next reload. */
const fedge_identity *fedge_peers_identity(const fedge_peers *peers);
uint32_t fedge_peers_num_devices(fedge_peers *peers);
/* Calls [fn] for every device of the registry. */
fedge_registry_counts fedge_peers_count(fedge_peers *peers);

/* Checks that a certificate's owner may connect as a device, as fedge_peer_check does. Sets
 * [fingerprint] on success. */
FEDGE_MUST_USE fedge_status fedge_peers_admit(fedge_peers *peers, const uint8_t *der,
                                              size_t der_size,
                                              uint8_t fingerprint[FEDGE_FINGERPRINT_SIZE],
                                              fedge_registry_match *match, fedge_error *err);

/* Checks the owner of a session ticket (tickets.h), whose certificate was verified before. */
FEDGE_MUST_USE fedge_status fedge_peers_admit_resumed(fedge_peers *peers,
                                                      const fedge_ticket_owner *owner,
                                                      fedge_registry_match *match,
                                                      fedge_error *err);

/* Checks that a connected device may stay with the match it was admitted by. FEDGE_REVOKED with a
 * message otherwise. */
FEDGE_MUST_USE fedge_status fedge_peers_recheck(fedge_peers *peers,
                                                const uint8_t fingerprint[FEDGE_FINGERPRINT_SIZE],
                                                const fedge_registry_match *was, fedge_error *err);

/* Logs that [who] (a name, a certificate's subject or "") at [address] was refused. Logs at most
 * FEDGE_REFUSALS_PER_SECOND lines a second, then one with the number of the others. */
void fedge_peers_refused(fedge_peers *peers, const char *address, const char *who,
                         const char *reason, uint64_t now_ms);
/* Whether a line caused by the device [match] may be logged: at most FEDGE_LINES_PER_SECOND for its
 * connection, whose quota is [connection], and for the device over time. Suppressed lines are
 * counted, and the count is logged once a second. */
bool fedge_peers_may_log(fedge_peers *peers, const fedge_registry_match *match,
                         fedge_quota *connection, uint64_t now_ms);

/* Records that [match] has connected from [address]. */
void fedge_peers_connected(fedge_peers *peers, const fedge_registry_match *match,
                           const fedge_peer_address *address);
/* Whether a device has recently connected from this address. At least about FEDGE_PEERS_REMEMBERED
 * / 2 of the last addresses are remembered. */
bool fedge_peers_has_seen(fedge_peers *peers, const fedge_peer_address *address);
/* Records that a newer connection replaced one of [match] from [address]. Logs
 * identity-in-use-twice when this repeats. */
void fedge_peers_displaced(fedge_peers *peers, const fedge_registry_match *match,
                           const fedge_peer_address *address, uint64_t now_ms);

/* Call about once a second; logs the counts of suppressed lines. */
void fedge_peers_tick(fedge_peers *peers, uint64_t now_ms);
/* Refusals since the start, for /metrics. */
uint64_t fedge_peers_num_refused(fedge_peers *peers);

#endif
