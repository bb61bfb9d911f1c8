/* The engine's thread. Network threads reach the engine through it alone: requests in, replies out.
 */
#ifndef FEDGE_AGGREGATOR_RUN_ENGINE_THREAD_H
#define FEDGE_AGGREGATOR_RUN_ENGINE_THREAD_H

#include <stdbool.h>
#include <stdint.h>

#include "aggregator/exchange/exchange.h"
#include "aggregator/run/engine.h"
#include "edge/core/status.h"

#define FEDGE_ENGINE_TICK_MS 100
/* Bytes of requests that may wait for the engine. A peer beyond that is paused until half of them
 * are handled. */
#define FEDGE_ENGINE_INBOX_BYTES ((uint64_t)8 << 20)

typedef struct fedge_engine_thread fedge_engine_thread;

/* Creates the thread's object; fedge_engine_thread_start starts it. [on_reply] is called on the
 * engine's thread when there are replies to take, and must be thread-safe. */
FEDGE_MUST_USE fedge_status fedge_engine_thread_new(fedge_engine_thread **thread,
                                                    void (*on_reply)(void *user), void *user,
                                                    fedge_error *err);
/* After fedge_engine_thread_stop and fedge_engine_free. NULL is fine. */
void fedge_engine_thread_free(fedge_engine_thread *thread);

/* A fedge_engine_config.wake: wakes [thread], a fedge_engine_thread that need not run yet. */
void fedge_engine_thread_wake(void *thread);
fedge_mailbox *fedge_engine_thread_replies(fedge_engine_thread *thread);
/* Counts what connections send and receive; for fedge_engine_config, too. */
fedge_traffic *fedge_engine_thread_traffic(fedge_engine_thread *thread);

/* Takes over a reply to one connection or to all, on the engine's thread. A failure ends the run.
 */
typedef fedge_status (*fedge_deliver_fn)(void *user, fedge_reply *reply, fedge_error *err);
/* Call before the start. [deliver] gets the replies to connections; those to the service (ROUND)
 * wait for fedge_engine_thread_take. Without [deliver] all of them wait there. */
void fedge_engine_thread_deliver_to(fedge_engine_thread *thread, fedge_deliver_fn deliver,
                                    void *user);

/* Replaces a start where another process has the engine. Requests go to [forward], which returns
 * what fedge_engine_thread_post returns and may be called on any thread. Status and end are those
 * set last by _tell and _end. */
typedef bool (*fedge_forward_fn)(void *user, fedge_request *request);
void fedge_engine_thread_stand_in(fedge_engine_thread *thread, fedge_forward_fn forward,
                                  void *user);
void fedge_engine_thread_set_status(fedge_engine_thread *thread, const fedge_run_status *status);
void fedge_engine_thread_end(fedge_engine_thread *thread, const fedge_error *failure);

/* Starts the thread, which owns [engine] until fedge_engine_thread_stop. */
FEDGE_MUST_USE fedge_status fedge_engine_thread_start(fedge_engine_thread *thread,
                                                      fedge_engine *engine, fedge_error *err);
/* Waits for the request in progress and drops those not begun. Does nothing when the thread does
 * not run. */
void fedge_engine_thread_stop(fedge_engine_thread *thread);

/* Any thread may call the functions below. */

/* Takes over [request]. False: the inbox is over its limit; read no more from this peer until
 * FEDGE_REPLY_RESUME comes. */
bool fedge_engine_thread_post(fedge_engine_thread *thread, fedge_request *request);
/* The thread as the network sees it, valid as long as [thread]. */
fedge_run_link fedge_engine_thread_link(fedge_engine_thread *thread);
/* Takes all waiting replies, oldest first; free each with fedge_reply_free. NULL: none. */
fedge_reply *fedge_engine_thread_take(fedge_engine_thread *thread);
/* Call after the start. Asks the thread and waits for its answer; after a stop reads the engine
 * directly. */
void fedge_engine_thread_status(fedge_engine_thread *thread, fedge_run_status *status);
/* Returns what fedge_engine_done does. When it returns true, all replies made before are delivered
 * or can be taken. */
bool fedge_engine_thread_done(fedge_engine_thread *thread, fedge_error *failure);

#endif
