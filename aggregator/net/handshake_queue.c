#include "aggregator/net/handshake_queue.h"

static bool is_recent(const fedge_handshake_queue *queue, uint64_t key)
{
    for (uint32_t i = 0; i < FEDGE_HANDSHAKES_RECENT; i++) {
        if (queue->recent[i] == key)
            return true;
    }
    return false;
}

/* In a flood two of three handshakes go to known addresses first. */
static bool prefers_known(const fedge_handshake_queue *queue)
{
    return queue->flooded && queue->num_begun % 3 != 0;
}

unsigned fedge_handshake_priority(const fedge_handshake_queue *queue,
                                  const fedge_peer_address *from, bool known)
{
    const bool recent = is_recent(queue, fedge_peer_address_key(from));
    if (!queue->flooded)
        return recent ? 3 : 0;
    if (known && recent)
        return prefers_known(queue) ? 1 : 3;
    return recent ? 3 : known ? 0 : 2;
}

void fedge_handshake_begins(fedge_handshake_queue *queue, const fedge_peer_address *from)
{
    const uint64_t key = fedge_peer_address_key(from);
    /* A known address is not entered while it is preferred: it would fill the ring and displace the
     * other recent ones. */
    if (!prefers_known(queue) || !is_recent(queue, key))
        queue->recent[queue->num_recent++ % FEDGE_HANDSHAKES_RECENT] = key;
    queue->num_begun++;
}

bool fedge_handshake_failed(fedge_handshake_queue *queue)
{
    if (++queue->num_failed < FEDGE_FLOOD_SIZE || queue->flooded)
        return false;
    queue->flooded = true;
    return true;
}

void fedge_handshake_second_over(fedge_handshake_queue *queue)
{
    queue->flooded = queue->num_failed >= FEDGE_FLOOD_SIZE;
    queue->num_failed = 0;
}

unsigned fedge_eviction_score(const fedge_eviction_facts *peer)
{
    if (peer->before_hello)
        return FEDGE_MAX_EVICTION_SCORE;
    if (!peer->queued && peer->silent_ms >= FEDGE_STALLED_AFTER_MS)
        return 2;
    return peer->age_ms >= FEDGE_SLOW_AFTER_MS ? 1 : 0;
}
