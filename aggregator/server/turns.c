#include "aggregator/server/turns.h"

static bool has_begun_lately(const fedge_turns *turns, const fedge_peer_address *from)
{
    const uint32_t number =
        turns->num_begun < FEDGE_TURNS_APART ? turns->num_begun : FEDGE_TURNS_APART;
    for (uint32_t i = 0; i < number; i++) {
        if (fedge_peer_address_same_place(&turns->begun[i], from))
            return true;
    }
    return false;
}

unsigned fedge_turns_rank(const fedge_turns *turns, const fedge_peer_address *from, bool known)
{
    if (has_begun_lately(turns, from))
        return 2;
    return turns->flooded && !known ? 1 : 0;
}

void fedge_turns_begin(fedge_turns *turns, const fedge_peer_address *from)
{
    turns->begun[turns->num_begun++ % FEDGE_TURNS_APART] = *from;
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
