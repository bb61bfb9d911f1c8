#include "aggregator/server/turns.h"

bool fedge_turns_lately(const fedge_turns *turns, const fedge_peer_address *from)
{
    const uint64_t place = fedge_peer_address_place(from);
    for (uint32_t i = 0; i < FEDGE_TURNS_APART; i++) {
        if (atomic_load(&turns->begun[i]) == place)
            return true;
    }
    return false;
}

unsigned fedge_turns_rank(const fedge_turns *turns, const fedge_peer_address *from, bool known)
{
    if (fedge_turns_lately(turns, from))
        return 2;
    return turns->flooded && !known ? 1 : 0;
}

void fedge_turns_begin(fedge_turns *turns, const fedge_peer_address *from)
{
    atomic_store(&turns->begun[turns->num_begun++ % FEDGE_TURNS_APART],
                 fedge_peer_address_place(from));
}

bool fedge_turns_in_vain(fedge_turns *turns)
{
    if (++turns->num_in_vain < FEDGE_FLOOD_SIZE || turns->flooded)
        return false;
    turns->flooded = true;
    return true;
}

void fedge_turns_second(fedge_turns *turns)
{
    turns->flooded = turns->num_in_vain >= FEDGE_FLOOD_SIZE;
    turns->num_in_vain = 0;
}

unsigned fedge_turns_spare(const fedge_turns_guest *guest)
{
    if (guest->at_door)
        return FEDGE_TURNS_MOST_SPARE;
    if (!guest->waits && guest->silent_ms >= FEDGE_STOPPED_AFTER_MS)
        return 4;
    if (guest->age_ms < FEDGE_SLOW_AFTER_MS)
        return 0;
    /* Whose handshake is under way is itself one that has begun. */
    if (guest->waits && guest->lately)
        return 3;
    return guest->known ? 1 : 2;
}
