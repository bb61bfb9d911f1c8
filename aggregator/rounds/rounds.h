/* The round state machine. It decides which clients train when, and when a round closes.
 *
 * It is pure: no I/O, no clock, no threads. Events and the time go in, actions come out of a queue.
 * The same events in the same order give the same actions, so a test runs a federation with faults
 * in milliseconds. The caller (the server, or the simulator) executes the actions.
 *
 *     WAITING ──enough nodes──▶ OPENING ──opened()──▶ RUNNING ──all reported / deadline──▶ CLOSING
 *        ▲                                                                                  │
 *        └──────────── next round, or the same again when too few reported ◀──closed()──────┘
 *
 * With fraction-evaluate > 0 an evaluation phase of the new model follows each training phase. Its
 * tasks are of kind EVALUATE and it passes the same states. An evaluation that fails is not
 * repeated.
 *
 * A phase asks as many clients as sampler.h says. It closes when [wanted] of them have reported and
 * cancels the other tasks. It also closes when every task has ended and enough clients have
 * reported. At the deadline it closes with enough reports and fails with fewer. An empty slot goes
 * to a connected client that has had no task in the phase, or to the next one that joins.
 *
 * A client that declines the job is set aside until it joins again. A round that too few clients
 * are left to open fails at its deadline, as an attempt.
 *
 * A disconnected client keeps its task until the deadline, since it may reconnect and finish. A
 * client that gives up is set aside: it gets no task of this round unless it joins again. A phase
 * fails at once when clients have given up, no connected client is at work, and too few would
 * report even if all disconnected ones returned. The next attempt opens with the remaining clients;
 * from the third attempt on there is a pause before it. When too few remain, the clients set aside
 * are asked again after a longer wait. Both waits double with each attempt. The next round, and an
 * attempt after a deadline, asks all clients.
 *
 * With a buffer (spec.buffer_size > 0, set by asynchronous strategies) a phase closes after that
 * many reports. Open tasks carry over into the next phase with the base model they were given. They
 * are cancelled once they would be staler than max_staleness, and when a second attempt at a round
 * fails: their devices may hang. One cohort's size of clients is at work at a time. A client that
 * has reported may get another task at once, but only one for each model.
 */
#ifndef FEDGE_AGGREGATOR_ROUNDS_ROUNDS_H
#define FEDGE_AGGREGATOR_ROUNDS_ROUNDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "aggregator/rounds/sampler.h"
#include "edge/core/status.h"
#include "edge/plan/plan.h"
#include "edge/wire/protocol.h"

#define FEDGE_ROUNDS_MAX_CLIENTS 16777216u /* clients connected at once */
#define FEDGE_ROUNDS_MAX_SLOTS 65536u      /* slots of a phase with a buffer */
#define FEDGE_ROUNDS_PAUSE_MS 1000u        /* pause before the third attempt when clients gave up */
#define FEDGE_ROUNDS_MAX_PAUSE_MS 60000u
#define FEDGE_ROUNDS_RETRY_MS 10000u /* pause before clients that gave up are asked again */
#define FEDGE_ROUNDS_MAX_RETRY_MS 600000u
#define FEDGE_ROUNDS_GRACE_MS 10000u /* wait of a drained phase for disconnected clients */
/* Such a wait after a restart. Clients reconnect within 60 s. */
#define FEDGE_ROUNDS_RESTORED_GRACE_MS 65000u

typedef struct fedge_rounds fedge_rounds;

typedef enum fedge_rounds_state {
    FEDGE_ROUNDS_WAITING, /* too few clients are available, or a pause runs */
    FEDGE_ROUNDS_OPENING, /* the caller journals the cohort */
    FEDGE_ROUNDS_RUNNING, /* tasks are out */
    FEDGE_ROUNDS_CLOSING, /* the caller sums, steps, checkpoints */
    FEDGE_ROUNDS_FINISHED
} fedge_rounds_state;

typedef enum fedge_task_state {
    FEDGE_TASK_OPEN,
    FEDGE_TASK_REPORTED, /* accepted and durable */
    FEDGE_TASK_LOST      /* declined, failed for good, or the phase closed without it */
} fedge_task_state;

/* A task of the present phase. Its position in the cohort is its slot in the journal. A slot with
 * task_id 0 is LOST and has had no task: a client may still get it while a buffer fills. */
typedef struct fedge_rounds_task {
    uint64_t task_id;
    uint32_t client_index;
    uint32_t base; /* version of the model it trains: rounds closed when the client was asked */
    fedge_task_state state;
} fedge_rounds_task;

typedef enum fedge_rounds_action_type {
    FEDGE_ROUNDS_OPEN, /* journal the cohort (fedge_rounds_cohort), then call fedge_rounds_opened */
    FEDGE_ROUNDS_SEND, /* send the task to the client, if it is connected */
    FEDGE_ROUNDS_CANCEL, /* tell the client to stop working on the task */
    FEDGE_ROUNDS_CLOSE,  /* phase over: step with the reports, then call fedge_rounds_closed */
    FEDGE_ROUNDS_FAIL,   /* too few reports, or the phase could not be opened: discard its updates,
                            then call fedge_rounds_closed */
    FEDGE_ROUNDS_FINISH  /* all rounds done (fedge_rounds_is_complete), or drained: the end */
} fedge_rounds_action_type;

typedef struct fedge_rounds_action {
    fedge_rounds_action_type type;
    fedge_task_kind kind; /* kind of the phase */
    uint32_t round;       /* number of the round, from 1 */
    uint32_t attempt;     /* attempt at this round, from 0 */
    uint64_t task_id;     /* SEND, CANCEL */
    uint32_t client_index;
    uint32_t slot; /* SEND, CANCEL */
    bool fresh;    /* SEND: the slot has another client since OPEN; journal that first */
} fedge_rounds_action;

/* Makes a machine; [spec] is copied. [seed] is the job's: cohorts are drawn by the random stream
 * (seed, SAMPLE, round, attempt) from the connected client indices in ascending order. */
FEDGE_MUST_USE fedge_status fedge_rounds_new(const fedge_rounds_spec *spec, uint64_t seed,
                                             fedge_rounds **rounds, fedge_error *err);
void fedge_rounds_free(fedge_rounds *rounds); /* NULL is fine */

/* Sets the history that the job's sampler reads; without one every draw is uniform. Call it before
 * any event. [history] outlives the machine and may change only while no phase is OPENING or
 * RUNNING. */
void fedge_rounds_draw_by(fedge_rounds *rounds, const fedge_client_history *history);

/* What a recovered run had done. With num_tasks > 0 the training phase of round last_closed + 1 is
 * open. */
typedef struct fedge_rounds_progress {
    uint32_t last_closed;           /* training steps taken */
    uint64_t next_task_id;          /* ≥ 1 */
    uint32_t attempt;               /* attempt of the open phase */
    uint32_t wanted;                /* reports that close the open phase */
    const fedge_rounds_task *tasks; /* (num_tasks): some may be REPORTED or LOST */
    uint32_t num_tasks;
} fedge_rounds_progress;

/* Continues a recovered run. Call it before any event. The deadline of an open phase starts anew at
 * [now_ms]. FEDGE_INVALID_ARGUMENT or FEDGE_CORRUPT when [progress] contradicts itself or the
 * spec. */
FEDGE_MUST_USE fedge_status fedge_rounds_restore(fedge_rounds *rounds,
                                                 const fedge_rounds_progress *progress,
                                                 uint64_t now_ms, fedge_error *err);

/* Sets how the cohort of a restored open phase was drawn. Call it after fedge_rounds_restore. */
void fedge_rounds_restore_draw(fedge_rounds *rounds, const fedge_draw *draw);

/* Continues a recovered run at an evaluation, in place of fedge_rounds_restore. [last_closed] ≥ 1
 * training steps are taken; the evaluation after the last of them has not begun or was cut off. */
void fedge_rounds_restore_evaluation(fedge_rounds *rounds, uint32_t last_closed,
                                     uint64_t next_task_id);

/* Events. [now_ms] comes from a monotonic clock. Unknown or closed task ids return FEDGE_STALE and
 * change nothing. */

/* A device is connected and ready to work. If it has an open task, SEND follows. A device that had
 * given up counts as new. */
FEDGE_MUST_USE fedge_status fedge_rounds_join(fedge_rounds *rounds, uint32_t client_index,
                                              uint64_t now_ms, fedge_error *err);
/* Joins the devices that are connected when the machine starts, [client_indices] ascending. No
 * phase opens before the last has joined. Call it before any other event. */
FEDGE_MUST_USE fedge_status fedge_rounds_join_all(fedge_rounds *rounds,
                                                  const uint32_t *client_indices,
                                                  uint32_t num_clients, uint64_t now_ms,
                                                  fedge_error *err);
/* The device's connection is lost. Its task stays open, since it may reconnect before the deadline.
 * The phase may end: take the actions. */
void fedge_rounds_leave(fedge_rounds *rounds, uint32_t client_index);
/* The task's result is validated and durable. FEDGE_DUPLICATE when it was reported before. A result
 * that became durable while the phase was CLOSING still counts (FEDGE_OK). In a phase that has
 * failed it is FEDGE_STALE and the task is LOST, so its client is asked again. After
 * fedge_rounds_closed it is FEDGE_STALE. */
FEDGE_MUST_USE fedge_status fedge_rounds_report(fedge_rounds *rounds, uint64_t task_id,
                                                fedge_error *err);
/* The task is lost and its client did not say why. Another connected device may get a new task in
 * the same slot; while OPENING, once the phase is open. */
FEDGE_MUST_USE fedge_status fedge_rounds_lose(fedge_rounds *rounds, uint64_t task_id,
                                              fedge_error *err);
/* The client will not do the task, or its result was refused for good. The task is lost and the
 * client is set aside. */
FEDGE_MUST_USE fedge_status fedge_rounds_give_up(fedge_rounds *rounds, uint64_t task_id,
                                                 fedge_error *err);
/* The device declines the job and leaves. It is set aside, and named by fedge_rounds_describe,
 * until it joins again; its open task is given up. A round that still waits for nodes one deadline
 * later fails as an attempt. When memory is short the device counts as one that left. */
void fedge_rounds_decline(fedge_rounds *rounds, uint32_t client_index, uint64_t now_ms);
/* The device asks for no work before [not_before_ms]; UINT64_MAX: until it joins again. Cohorts
 * leave it out while there are enough other clients. When memory is short the request is ignored.
 */
void fedge_rounds_defer(fedge_rounds *rounds, uint32_t client_index, uint64_t not_before_ms);
/* The last time passed to fedge_rounds_defer; 0 when there is none or it is long over. */
uint64_t fedge_rounds_not_before(const fedge_rounds *rounds, uint32_t client_index);
/* Checks the deadline and pauses, which no other event does, and with a buffer asks clients in the
 * place of those that have left while at work. Call it when fedge_rounds_deadline_ms
 * has come, and regularly while WAITING. */
void fedge_rounds_tick(fedge_rounds *rounds, uint64_t now_ms);
void fedge_rounds_opened(fedge_rounds *rounds, uint64_t now_ms);
void fedge_rounds_closed(fedge_rounds *rounds, uint64_t now_ms);
/* The reports of [slots], ascending, are lost. Call it in place of fedge_rounds_closed, and not
 * with a buffer. The phase is open again, its deadline starts anew, and SEND of every open task
 * follows. */
void fedge_rounds_reopen(fedge_rounds *rounds, const uint32_t *slots, uint32_t num_slots,
                         uint64_t now_ms);
/* Finishes after the open phase, or at once when none is open. When no connected client has worked
 * on the phase for FEDGE_ROUNDS_GRACE_MS, it closes if enough have reported; otherwise it is left
 * open for fedge_rounds_restore. */
void fedge_rounds_drain(fedge_rounds *rounds);

/* Takes the next action; false when there is none. Empty the queue after every event. */
bool fedge_rounds_next(fedge_rounds *rounds, fedge_rounds_action *action);

/* Makes [round] the last of the run, as if the job had no more. It is the present round or, before
 * fedge_rounds_restore, the last that has closed. */
void fedge_rounds_end_after(fedge_rounds *rounds, uint32_t round);

/* Queries. */
fedge_rounds_state fedge_rounds_get_state(const fedge_rounds *rounds);
/* Whether the machine is FINISHED and the run is done, its last evaluation included. */
bool fedge_rounds_is_complete(const fedge_rounds *rounds);
uint32_t fedge_rounds_round(const fedge_rounds *rounds); /* present or next round */
uint32_t fedge_rounds_attempt(const fedge_rounds *rounds);
fedge_task_kind fedge_rounds_kind(const fedge_rounds *rounds);
uint64_t fedge_rounds_deadline_ms(const fedge_rounds *rounds); /* monotonic; 0 when none runs */
/* The tasks of the present phase, in slot order; valid until the next event. */
const fedge_rounds_task *fedge_rounds_cohort(const fedge_rounds *rounds, uint32_t *num_tasks);
/* How the cohort of the present phase was drawn; stored in the journal. */
fedge_draw fedge_rounds_draw(const fedge_rounds *rounds);
/* The reports that close the present phase; stored in the journal for fedge_rounds_restore. */
uint32_t fedge_rounds_wanted(const fedge_rounds *rounds);
uint32_t fedge_rounds_num_connected(const fedge_rounds *rounds);
/* Finds a task of the present phase, and its slot; NULL when there is none. */
const fedge_rounds_task *fedge_rounds_find(const fedge_rounds *rounds, uint64_t task_id,
                                           uint32_t *slot);
/* Whether it is WAITING, or RUNNING while no connected client is at work. */
bool fedge_rounds_is_stalled(const fedge_rounds *rounds);
/* Describes for logs and health checks what it waits for: "waiting for nodes: 3 of 8 connected",
 * "round 3, training: 1 of 3 reported, 0 at work; not connected: clients 4, 7", … */
void fedge_rounds_describe(const fedge_rounds *rounds, char *text, size_t size);

#endif
