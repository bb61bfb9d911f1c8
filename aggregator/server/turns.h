/* Whose handshake a network thread begins next, and whether so many are in vain that they begin in
 * their turns only, however idle the thread is. */
#ifndef FEDGE_AGGREGATOR_SERVER_TURNS_H
#define FEDGE_AGGREGATOR_SERVER_TURNS_H

#include <stdbool.h>
#include <stdint.h>

#include "aggregator/server/listener.h"

/* From one place a handshake begins after those of as many others that wait. */
#define FEDGE_TURNS_APART 8
#define FEDGE_FLOOD_SIZE 25 /* handshakes in vain of a thread in a second: fewer than its turns */

typedef struct fedge_turns {
    fedge_peer_address begun[FEDGE_TURNS_APART]; /* where the last came from, in a ring */
    uint32_t num_begun;
    uint32_t num_in_vain; /* that ended without an accepted certificate, in this second */
    bool flooded;         /* there were FEDGE_FLOOD_SIZE in this second or the last one */
} fedge_turns;

/* 0: before all others. Who comes from where others have come from waits behind those from
 * elsewhere; and in a flood, who comes from where no device has come from behind those from a
 * place that is [known]. Of one rank the first that came is the next. */
unsigned fedge_turns_rank(const fedge_turns *turns, const fedge_peer_address *from, bool known);
/* A handshake with [from] begins. */
void fedge_turns_begin(fedge_turns *turns, const fedge_peer_address *from);
/* A handshake was in vain. True: that makes a flood. */
bool fedge_turns_in_vain(fedge_turns *turns);
/* A second is over. */
void fedge_turns_second(fedge_turns *turns);

#endif
