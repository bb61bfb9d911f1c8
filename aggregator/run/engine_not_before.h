/* Duty cycle: clients that may hang up (HELLO's hangs-up) need not hold a connection through a
 * round that has no task for them. They are told when to call again: shortly before it ends. */
#ifndef FEDGE_AGGREGATOR_RUN_ENGINE_NOT_BEFORE_H
#define FEDGE_AGGREGATOR_RUN_ENGINE_NOT_BEFORE_H

#include "aggregator/run/engine_state.h"

#define FEDGE_ENGINE_NOT_BEFORE_CHECK_MS 1000  /* between looks who may rest */
#define FEDGE_ENGINE_MIN_NOT_BEFORE_MS 5000    /* a shorter one is not worth a handshake */
#define FEDGE_ENGINE_FIRST_NOT_BEFORE_MS 60000 /* before a round has shown how long they take */

/* A round was closed that took so long: what the next is expected to take. */
void fedge_engine_note_round(fedge_engine *engine, uint64_t took_ms);

/* While a phase runs: says BYE (come-later) to those without a task in it. Cheap when called often.
 */
void fedge_engine_send_not_before(fedge_engine *engine, uint64_t now_ms);

#endif
