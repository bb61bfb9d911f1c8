/* The engine's thread. Threads of the network speak to the engine through it alone: requests in,
 * replies out.
 */
#ifndef FEDGE_AGGREGATOR_RUN_ENGINE_THREAD_H
#define FEDGE_AGGREGATOR_RUN_ENGINE_THREAD_H

#include <stdbool.h>
#include <stdint.h>

#include "aggregator/exchange/exchange.h"
#include "aggregator/run/engine.h"
#include "edge/core/status.h"

#define FEDGE_ENGINE_TICK_MS 100
/* Bytes of requests that may wait for the engine. Who sends more is read from again once half of
 * them are gone. */
#define FEDGE_ENGINE_INBOX_BYTES ((uint64_t)8 << 20)

typedef struct fedge_engine_thread fedge_engine_thread;

/* Not running yet. [on_reply] is called, on the engine's thread, when there are replies to take; it
 * must be thread-safe. */
FEDGE_MUST_USE fedge_status fedge_engine_thread_new(fedge_engine_thread **thread,
                                                    void (*on_reply)(void *user), void *user,
                                                    fedge_error *err);
/* After fedge_engine_thread_stop and fedge_engine_free. NULL is fine. */
void fedge_engine_thread_free(fedge_engine_thread *thread);

/* For fedge_engine_config: wakes the thread, which may not run yet; [thread] is one. */
void fedge_engine_thread_wake(void *thread);
fedge_mailbox *fedge_engine_thread_replies(fedge_engine_thread *thread);
/* Counts what connections send and receive; for the engine's config as well. */
fedge_traffic *fedge_engine_thread_traffic(fedge_engine_thread *thread);

/* Takes a reply to one connection or to all, which is its own from then on, on the engine's thread.
 * A failure ends the run. */
typedef fedge_status (*fedge_deliver_fn)(void *user, fedge_reply *reply, fedge_error *err);
/* Before the start: [deliver] gets what is for connections; what is for the service (ROUND) is left
 * for fedge_engine_thread_take. Without it all is. */
void fedge_engine_thread_deliver_to(fedge_engine_thread *thread, fedge_deliver_fn deliver,
                                    void *user);

/* In place of a start, where the engine is another process's: requests go to [forward], which
 * answers as fedge_engine_thread_post does and may be called by any thread. What is asked of the
 * thread is answered with what it was told last. */
typedef bool (*fedge_forward_fn)(void *user, fedge_request *request);
void fedge_engine_thread_stand_in(fedge_engine_thread *thread, fedge_forward_fn forward,
                                  void *user);
void fedge_engine_thread_tell(fedge_engine_thread *thread, const fedge_run_status *status);
void fedge_engine_thread_end(fedge_engine_thread *thread, const fedge_error *failure);

/* From now on [engine] is the thread's, until fedge_engine_thread_stop. */
FEDGE_MUST_USE fedge_status fedge_engine_thread_start(fedge_engine_thread *thread,
                                                      fedge_engine *engine, fedge_error *err);
/* Waits for what it has in hand; requests that it has not begun are dropped. Nothing happens when
 * it does not run. */
void fedge_engine_thread_stop(fedge_engine_thread *thread);

/* For any thread: */

/* [request] is the engine's from now on. False: the inbox is over its limit; read no more from this
 * peer until FEDGE_REPLY_RESUME comes. */
bool fedge_engine_thread_post(fedge_engine_thread *thread, fedge_request *request);
/* The thread as the network sees it; valid as long as the thread is. */
fedge_run_link fedge_engine_thread_link(fedge_engine_thread *thread);
/* All replies that are not delivered, oldest first; each is freed with fedge_reply_free. NULL:
 * none. */
fedge_reply *fedge_engine_thread_take(fedge_engine_thread *thread);
/* Once it was started. Asks the thread and waits for what it has in hand; once it was stopped,
 * looks for itself. */
void fedge_engine_thread_status(fedge_engine_thread *thread, fedge_run_status *status);
/* As fedge_engine_done. All replies that the engine made before are delivered, or there to be
 * taken.
 */
bool fedge_engine_thread_done(fedge_engine_thread *thread, fedge_error *failure);

#endif
