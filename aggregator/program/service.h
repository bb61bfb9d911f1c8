/* The main thread: the loop that accepts connections, its timers and signals, and the end of a run.
 */
#ifndef FEDGE_AGGREGATOR_PROGRAM_SERVICE_H
#define FEDGE_AGGREGATOR_PROGRAM_SERVICE_H

#include "aggregator/net/transport.h"
#include "aggregator/run/engine_thread.h"
#include "edge/core/log.h"
#include "edge/core/status.h"

#define FEDGE_SERVICE_TICK_MS 100    /* the transport needs one a second */
#define FEDGE_SERVICE_STOP_MS 900    /* time after a signal to notify clients */
#define FEDGE_SERVICE_FINISH_MS 3000 /* time after the last round to notify clients */
#define FEDGE_SERVICE_AWAY_MS 10000  /* default of away_ms */

typedef enum fedge_ending {
    FEDGE_ENDING_COMPLETE, /* all rounds are done */
    FEDGE_ENDING_DRAINED,
    FEDGE_ENDING_STOPPED, /* SIGTERM or SIGINT */
    FEDGE_ENDING_FAILED
} fedge_ending;

typedef struct fedge_service fedge_service;

typedef struct fedge_service_config {
    const fedge_log *log; /* outlives the service */
    uint64_t away_ms;     /* delay until clients reconnect after a stop; 0: FEDGE_SERVICE_AWAY_MS */
    /* Called every FEDGE_SERVICE_TICK_MS and after each closed phase, for a progress bar. Each may
     * be NULL. */
    void (*on_tick)(void *user);
    void (*on_round)(void *user, const fedge_round_summary *summary);
    void (*on_reload)(void *user); /* called on SIGHUP */
    void *user;
} fedge_service_config;

/* Creates the loop. */
FEDGE_MUST_USE fedge_status fedge_service_new(const fedge_service_config *config,
                                              fedge_service **service, fedge_error *err);
/* Free transport and engine first. NULL is allowed. */
void fedge_service_free(fedge_service *service);

/* For fedge_transport_config. */
struct ev_loop *fedge_service_loop(fedge_service *service);

/* For fedge_engine_thread_new: makes the loop look at the engine's replies. Any thread. */
void fedge_service_wake(void *service);

/* From now on TERM and INT stop the service, even before it runs. Before that they end the program
 * at once, so that a long recovery can be interrupted. */
void fedge_service_catch_signals(fedge_service *service);

/* Serves until the run ends or fails, or a signal arrives: TERM and INT stop (the second at once),
 * HUP reloads (fedge_transport_reload, on_reload), USR1 drains, PIPE is ignored. *failure: the
 * reason for FEDGE_ENDING_FAILED. */
fedge_ending fedge_service_run(fedge_service *service, fedge_transport *transport,
                               fedge_engine_thread *engine, fedge_error *failure);

#endif
