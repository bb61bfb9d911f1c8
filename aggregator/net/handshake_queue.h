/* The order in which a network thread begins handshakes, what a flood of failing ones changes, and
 * which unauthenticated peer is evicted for another. Pure: no sockets and no clock.
 *
 * An unauthenticated peer is a connection that has shown no certificate of a registered device yet.
 * It is recent if one of the last handshakes began with its address, and known if a device has
 * connected from its address (fedge_peers_has_seen). Addresses are compared without their port, and
 * those of IPv6 by their /64 (fedge_peer_address_key).
 */
#ifndef FEDGE_AGGREGATOR_NET_HANDSHAKE_QUEUE_H
#define FEDGE_AGGREGATOR_NET_HANDSHAKE_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "aggregator/net/listener.h"

#define FEDGE_HANDSHAKES_RECENT 8 /* an address is recent for as many handshakes */
/* Failed handshakes of a thread in a second that make a flood: fewer than it begins in a flood. */
#define FEDGE_FLOOD_SIZE 25

/* Of one thread. All zero at first. */
typedef struct fedge_handshake_queue {
    uint64_t recent[FEDGE_HANDSHAKES_RECENT]; /* a ring of addresses' keys; 0: none */
    uint32_t num_recent;                      /* that went into the ring */
    uint32_t num_begun;                       /* handshakes */
    uint32_t num_failed;                      /* without an accepted certificate, in this second */
    bool flooded; /* FEDGE_FLOOD_SIZE failed in this second or the last one */
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
/* A handshake with [from] begins. */
void fedge_handshake_begins(fedge_handshake_queue *queue, const fedge_peer_address *from);
/* A handshake has failed. True: a flood begins with it. */
bool fedge_handshake_failed(fedge_handshake_queue *queue);
/* A second is over. */
void fedge_handshake_second_over(fedge_handshake_queue *queue);

#define FEDGE_STALLED_AFTER_MS                                                                     \
    2000u                         /* of silence in a handshake; the last check may be 1 s ago      \
                                   */
#define FEDGE_SLOW_AFTER_MS 2000u /* from accept to an accepted certificate */
#define FEDGE_MAX_EVICTION_SCORE 3u

/* What decides whether an unauthenticated peer is evicted. */
typedef struct fedge_eviction_facts {
    bool before_hello; /* it has sent nothing, or too little to be a ClientHello */
    bool queued;       /* its handshake has not begun: its silence is the server's doing */
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
