/* The order in which a network thread begins handshakes, flood detection, and the score by which
 * unauthenticated peers are evicted. Pure: no sockets, no clock.
 *
 * An unauthenticated peer is a connection that has not yet shown a certificate of a registered
 * device. An address is recent if one of the last handshakes came from it, and known if a device
 * has connected from it (fedge_peers_has_seen). Addresses are compared without their port, IPv6 by
 * /64 (fedge_peer_address_key).
 */
#ifndef FEDGE_AGGREGATOR_NET_HANDSHAKE_QUEUE_H
#define FEDGE_AGGREGATOR_NET_HANDSHAKE_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "aggregator/net/listener.h"

#define FEDGE_HANDSHAKES_RECENT 8 /* handshakes for which an address stays recent */
/* Failed handshakes of a thread in one second that start a flood; fewer than it begins per second
 * in a flood. */
#define FEDGE_FLOOD_SIZE 25

/* State of one thread, all zero at first. */
typedef struct fedge_handshake_queue {
    uint64_t recent[FEDGE_HANDSHAKES_RECENT]; /* ring buffer of address keys; 0: empty */
    uint32_t num_recent;                      /* addresses entered so far */
    uint32_t num_begun;                       /* handshakes begun */
    uint32_t num_failed;                      /* failed handshakes of the present second */
    bool flooded; /* FEDGE_FLOOD_SIZE failed in this second or the previous one */
} fedge_handshake_queue;

/* Priority of the peer [from], which waits for its handshake; 0 is highest. Of several with one
 * priority the first to come is next.
 *
 * | flood | peer                    | priority                                               |
 * | ----- | ----------------------- | ------------------------------------------------------ |
 * | no    | not recent              | 0                                                      |
 * | no    | recent                  | 3                                                      |
 * | yes   | known, not recent       | 0                                                      |
 * | yes   | known and recent        | 1 for two of three handshakes, 3 for the third         |
 * | yes   | neither                 | 2                                                      |
 * | yes   | recent, not known       | 3                                                      |
 *
 * So a flooder behind a device's address gets no more handshakes than it would from an address of
 * its own, and the device waits no longer than one whose address is new. */
unsigned fedge_handshake_priority(const fedge_handshake_queue *queue,
                                  const fedge_peer_address *from, bool known);
/* Call when a handshake with [from] begins. */
void fedge_handshake_begins(fedge_handshake_queue *queue, const fedge_peer_address *from);
/* Call when a handshake has failed. True: this failure starts a flood. */
bool fedge_handshake_failed(fedge_handshake_queue *queue);
/* Call once a second. */
void fedge_handshake_second_over(fedge_handshake_queue *queue);

#define FEDGE_STALLED_AFTER_MS 2000u /* silence during a handshake; it is checked once a second */
#define FEDGE_SLOW_AFTER_MS 2000u    /* limit from accept to an accepted certificate */
#define FEDGE_MAX_EVICTION_SCORE 3u

/* The state of an unauthenticated peer that decides its eviction score. */
typedef struct fedge_eviction_facts {
    bool before_hello; /* it has sent nothing, or less than a ClientHello's header */
    bool queued; /* the server has not begun its handshake, so the server causes its silence */
    uint64_t age_ms, silent_ms;
} fedge_eviction_facts;

/* At a limit the peer with the highest score is evicted for a new one; of several, the oldest.
 *
 * | score | the peer                                                 |
 * | ----- | -------------------------------------------------------- |
 * | 3     | has sent nothing                                         |
 * | 2     | has stalled in its handshake for FEDGE_STALLED_AFTER_MS  |
 * | 1     | came FEDGE_SLOW_AFTER_MS ago or earlier                  |
 * | 0     | none of these: it stays. If all do, the new one is refused |
 */
unsigned fedge_eviction_score(const fedge_eviction_facts *peer);

#endif
