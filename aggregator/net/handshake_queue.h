/* Whose handshake a network thread begins next, whether so many are in vain that they begin in
 * their turns only, however idle the thread is, and who makes room when there is none. */
#ifndef FEDGE_AGGREGATOR_NET_HANDSHAKE_QUEUE_H
#define FEDGE_AGGREGATOR_NET_HANDSHAKE_QUEUE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "aggregator/net/listener.h"

/* From one place a handshake begins after those of as many others that wait. */
#define FEDGE_TURNS_APART 8
#define FEDGE_FLOOD_SIZE 25 /* handshakes in vain of a thread in a second: fewer than its turns */

#define FEDGE_STOPPED_AFTER_MS                                                                     \
    2000u /* silence in a handshake, of which a second may be the last look's */
#define FEDGE_SLOW_AFTER_MS 2000u /* the age from which a connection may end for another */

/* Of one thread, but for fedge_turns_lately. */
typedef struct fedge_turns {
    /* Where the last came from, in a ring (fedge_peer_address_place; 0: none). */
    _Atomic uint64_t begun[FEDGE_TURNS_APART];
    uint32_t num_begun;   /* that went into the ring */
    uint32_t num_turns;   /* all that have begun */
    uint32_t num_in_vain; /* that ended without an accepted certificate, in this second */
    bool flooded;         /* there were FEDGE_FLOOD_SIZE in this second or the last one */
} fedge_turns;

/* 0: before all others. Who comes from where others have come from waits behind those from
 * elsewhere; and in a flood, who comes from where no device has come from behind those from a
 * place that is [known]. Then two of three turns are for known places if somebody waits there,
 * lately or not: a flooder behind a device's address has no more of these than it asks for, and the
 * device waits no longer than one that is new. Of one rank the first that came is the next. */
unsigned fedge_turns_rank(const fedge_turns *turns, const fedge_peer_address *from, bool known);
/* Any thread: one of the last handshakes that have begun was from the same place. */
bool fedge_turns_lately(const fedge_turns *turns, const fedge_peer_address *from);
/* A handshake with [from] begins. */
void fedge_turns_begin(fedge_turns *turns, const fedge_peer_address *from);
/* A handshake was in vain. True: that makes a flood. */
bool fedge_turns_in_vain(fedge_turns *turns);
/* A second is over. */
void fedge_turns_second(fedge_turns *turns);

/* A connection without an accepted certificate. */
typedef struct fedge_turns_guest {
    bool at_door; /* it has not said hello */
    bool waits;   /* for the server, which has not begun its handshake */
    bool known;   /* it comes from where a device has come from */
    bool lately;  /* or from where a handshake has just begun */
    uint64_t age_ms, silent_ms;
} fedge_turns_guest;

#define FEDGE_TURNS_MOST_SPARE 5
/* How well it can be spared for another, up to FEDGE_TURNS_MOST_SPARE; 0: not at all. Before all
 * others go who has not begun and who has stopped in a handshake. Silence while it waits is the
 * server's own: of those that are old enough, who came from where others have come from goes before
 * a place that is not known, and that before one that is. Of one number the oldest goes. */
unsigned fedge_turns_spare(const fedge_turns_guest *guest);

#endif
