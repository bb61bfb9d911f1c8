#include "aggregator/net/handshake_queue.h"

bool fedge_turns_lately(const fedge_turns *turns, const fedge_peer_address *from)
{
    const uint64_t place = fedge_peer_address_place(from);
    for (uint32_t i = 0; i < FEDGE_TURNS_APART; i++) {
        if (atomic_load(&turns->begun[i]) == place)
            return true;
    }
    return false;
}

/* Two of three, in a flood, are for known places first. */
static bool is_for_known(const fedge_turns *turns)
{
    return turns->flooded && turns->num_turns % 3 != 0;
}

unsigned fedge_turns_rank(const fedge_turns *turns, const fedge_peer_address *from, bool known)
{
    const bool lately = fedge_turns_lately(turns, from);
    if (!turns->flooded)
        return lately ? 3 : 0;
    if (known && lately)
        return is_for_known(turns) ? 1 : 3;
    return lately ? 3 : known ? 0 : 2;
}

void fedge_turns_begin(fedge_turns *turns, const fedge_peer_address *from)
{
    /* In a turn of the known, one that is in the ring already leaves it as it is: else it would be
     * full of who has more turns, and those who have begun lately would not be found there. */
    if (!is_for_known(turns) || !fedge_turns_lately(turns, from)) {
        atomic_store(&turns->begun[turns->num_begun++ % FEDGE_TURNS_APART],
                     fedge_peer_address_place(from));
    }
    turns->num_turns++;
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
