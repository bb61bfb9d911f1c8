/* What the network's threads may ask of the run, which they know by this alone.
 *
 * The engine of a run fills it (aggregator/run/engine_thread.h); on the other ranks of an
 * aggregator something else stands behind it, and the network does not see the difference.
 */
#ifndef FEDGE_AGGREGATOR_EXCHANGE_RUN_LINK_H
#define FEDGE_AGGREGATOR_EXCHANGE_RUN_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "aggregator/exchange/exchange.h"
#include "aggregator/reduce/accumulator.h"
#include "aggregator/rounds/selection.h"
#include "edge/core/os.h"
#include "edge/wire/protocol.h"

/* Numbers for /metrics, /healthz and the last line of a run. Counters are since the start of the
 * process unless they say run. */
#define FEDGE_RUN_STATE_TEXT 384
typedef struct fedge_run_status {
    char run_id[FEDGE_RUN_ID_TEXT];
    char state[FEDGE_RUN_STATE_TEXT]; /* "round 3: 5 of 8 reported"; who is missing, and why,
                                            when it waits */
    bool healthy;                     /* false after a fatal error */
    bool complete;                    /* nothing of the run is left to do */
    uint32_t round, rounds_closed, num_server_rounds, connected, incarnation;
    uint64_t updates_accepted, updates_refused, updates_duplicate;
    uint64_t bytes_up, bytes_down;         /* of this process */
    uint64_t run_bytes_up, run_bytes_down; /* of the run's phases, since it began */
    double seconds; /* since the run began, without the time when no process ran it */
    uint64_t ingest_queued_bytes;
    double seconds_validate, seconds_journal, seconds_sum;
    double accuracy, loss; /* last evaluation on the test set; NaN before */
    bool stopped_early;    /* by early-stopping, before the job's last round */
    bool keeps_best;
    fedge_criterion criterion; /* of keep-best; the rest once the run is over: */
    fedge_selected best;       /* round 0: none; model "": none, or its checkpoint is damaged */
    double best_value;
    char accumulator[16]; /* what sums */
    uint32_t num_gpus;    /* of gpus[] */
    fedge_gpu_stats gpus[FEDGE_ACCUMULATOR_MAX_GPUS];
    char model_hash[FEDGE_HASH_TEXT];
    char run_dir[FEDGE_MAX_PATH];
} fedge_run_status;

typedef struct fedge_run_link {
    void *run;
    /* Takes the request. False: the inbox is over its limit; read no more from this peer until
     * FEDGE_REPLY_RESUME comes. */
    bool (*post)(void *run, fedge_request *request);
    void (*status)(void *run, fedge_run_status *status);
    fedge_traffic *traffic; /* counts what connections send and receive */
} fedge_run_link;

#endif
