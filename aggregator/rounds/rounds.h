/* The round state machine: who trains when, and when a round closes.
 *
 * Pure: no I/O, no clock, no threads. Events and the time go in, actions come out of a queue; the
 * same events in the same order give the same actions, so a federation with faults runs in a test
 * in milliseconds. The caller (the server, or the simulator) carries the actions out.
 *
 *     WAITING ──enough nodes──▶ OPENING ──opened()──▶ RUNNING ──all reported / deadline──▶ CLOSING
 *        ▲                                                                                  │
 *        └──────────── next round, or the same again when too few reported ◀──closed()──────┘
 *
 * With fraction-evaluate > 0 each training phase is followed by an evaluation phase of the new
 * model, with tasks of kind EVALUATE, through the same states; one that fails is not repeated.
 *
 * A phase asks sampler.h's number of clients and closes when [wanted] of them have reported (the
 * rest is cancelled), or when every task has ended and enough of the wanted have reported, or at
 * the deadline: with enough reports it closes then, with fewer it fails. An empty slot goes to a
 * connected client that has had no task in the phase, or to the next one that joins.
 *
 * A client that declines the job is set aside until it joins anew. When too few are left to open a
 * round it fails by its deadline, as an attempt.
 *
 * A client that is away keeps its task until the deadline: it may come back and finish it. One that
 * gives up is set aside: it is not asked again in this round before it joins anew. When clients
 * have given up, nobody that is connected is at work, and too few would report even if all who are
 * away came back, the phase fails at once. The next attempt opens with who is left, from the third
 * on after a pause; when too few are left, those set aside are asked again in the end. Both waits
 * double with each attempt. Another round, or an attempt that the deadline ended, asks everybody.
 *
 * With a buffer (spec.buffer_size > 0, of asynchronous strategies) a phase closes when so many have
 * reported, and tasks that are open then go on into the next phase as they are, each with the base
 * that it was given, until they would be staler than max_staleness: those are cancelled. As many
 * clients as a cohort has are at work at a time. One that has reported may be asked again at once,
 * but once only for each model.
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

#define FEDGE_ROUNDS_MAX_CLIENTS 16777216u /* connected at once */
#define FEDGE_ROUNDS_MAX_SLOTS 65536u      /* of a phase with a buffer */
#define FEDGE_ROUNDS_PAUSE_MS 1000u        /* before the third attempt when clients gave up */
#define FEDGE_ROUNDS_MAX_PAUSE_MS 60000u
#define FEDGE_ROUNDS_ASK_AGAIN_MS 10000u /* until those who gave up are asked again */
#define FEDGE_ROUNDS_MAX_ASK_AGAIN_MS 600000u
#define FEDGE_ROUNDS_GRACE_MS 10000u /* for clients that are away when a phase is drained */
#define FEDGE_ROUNDS_RESTORED_GRACE_MS 65000u /* of a restored one: they come within 60 s */

typedef struct fedge_rounds fedge_rounds;

typedef enum fedge_rounds_state {
    FEDGE_ROUNDS_WAITING, /* for min-available-nodes */
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

/* One task of the present phase; its position in the cohort is its slot in the journal. With
 * task_id 0 it is none yet: a LOST slot for a client that is asked while a buffer fills. */
typedef struct fedge_rounds_task {
    uint64_t task_id;
    uint32_t client_index;
    uint32_t base; /* rounds that had closed when its client was asked: which model it trains */
    fedge_task_state state;
} fedge_rounds_task;

typedef enum fedge_rounds_action_type {
    FEDGE_ROUNDS_OPEN, /* journal the cohort (fedge_rounds_cohort), then call fedge_rounds_opened */
    FEDGE_ROUNDS_SEND, /* send the task to the client, if it is connected */
    FEDGE_ROUNDS_CANCEL, /* tell the client to stop working on the task */
    FEDGE_ROUNDS_CLOSE, /* phase over: step with what was reported, then call fedge_rounds_closed */
    FEDGE_ROUNDS_FAIL,  /* phase over with too few reports, or one that could not be opened: drop
                           what there is of it, then call fedge_rounds_closed */
    FEDGE_ROUNDS_FINISH /* all rounds done (fedge_rounds_is_complete), or drained: the end */
} fedge_rounds_action_type;

typedef struct fedge_rounds_action {
    fedge_rounds_action_type type;
    fedge_task_kind kind; /* of the phase */
    uint32_t round;       /* from 1 */
    uint32_t attempt;     /* of this round, from 0 */
    uint64_t task_id;     /* SEND, CANCEL */
    uint32_t client_index;
    uint32_t slot; /* SEND, CANCEL */
    bool fresh;    /* SEND: the slot has changed hands since OPEN; journal that first */
} fedge_rounds_action;

/* [spec] is copied. [seed]: of the job; cohorts come from (seed, SAMPLE, round, attempt) over the
 * connected client indices in ascending order. */
FEDGE_MUST_USE fedge_status fedge_rounds_new(const fedge_rounds_spec *spec, uint64_t seed,
                                             fedge_rounds **rounds, fedge_error *err);
void fedge_rounds_free(fedge_rounds *rounds); /* NULL is fine */

/* What the job's sampler draws by, which outlives the machine: it may change while no phase is
 * OPENING or RUNNING. Without it every draw is uniform. Before any event. */
void fedge_rounds_draw_by(fedge_rounds *rounds, const fedge_client_history *history);

/* What a recovered run had done. With num_tasks > 0 the training phase of round last_closed + 1 is
 * open. */
typedef struct fedge_rounds_progress {
    uint32_t last_closed;           /* training steps taken */
    uint64_t next_task_id;          /* from 1 */
    uint32_t attempt;               /* of the open phase */
    uint32_t wanted;                /* reports that close the open phase */
    const fedge_rounds_task *tasks; /* of the open phase, [num_tasks]; some REPORTED or LOST */
    uint32_t num_tasks;
} fedge_rounds_progress;

/* Continues a recovered run. Call it before any event. The deadline of an open phase starts anew at
 * [now_ms]. FEDGE_INVALID_ARGUMENT or FEDGE_CORRUPT when [progress] contradicts itself or the
 * spec. */
FEDGE_MUST_USE fedge_status fedge_rounds_restore(fedge_rounds *rounds,
                                                 const fedge_rounds_progress *progress,
                                                 uint64_t now_ms, fedge_error *err);

/* After fedge_rounds_restore of an open phase: how its cohort was drawn. */
void fedge_rounds_restore_draw(fedge_rounds *rounds, const fedge_draw *draw);

/* In place of fedge_rounds_restore: [last_closed] ≥ 1 training steps are taken, and the evaluation
 * that follows the last of them comes next: it has not begun, or was cut off. */
void fedge_rounds_restore_evaluation(fedge_rounds *rounds, uint32_t last_closed,
                                     uint64_t next_task_id);

/* Events. [now_ms] is monotonic and never goes back. Unknown or closed task ids return
 * FEDGE_STALE and change nothing. */

/* A device is connected and ready to work. If it has an open task, SEND follows. One that had given
 * up is as if it came for the first time. */
FEDGE_MUST_USE fedge_status fedge_rounds_join(fedge_rounds *rounds, uint32_t client_index,
                                              uint64_t now_ms, fedge_error *err);
/* Devices that are there when the machine starts, [client_indices] ascending: as if they joined one
 * after another, but nothing opens before the last. Before any other event but
 * fedge_rounds_restore. */
FEDGE_MUST_USE fedge_status fedge_rounds_join_all(fedge_rounds *rounds,
                                                  const uint32_t *client_indices,
                                                  uint32_t num_clients, uint64_t now_ms,
                                                  fedge_error *err);
/* Its connection is gone. Its task stays open: it may come back before the deadline. The phase may
 * end (see above): take the actions. */
void fedge_rounds_leave(fedge_rounds *rounds, uint32_t client_index);
/* Its result is validated and durable. FEDGE_DUPLICATE when it was reported before. A result that
 * became durable while the phase was CLOSING counts too (FEDGE_OK); once a phase has failed it is
 * FEDGE_STALE and the task is LOST, so that its client is asked again; once fedge_rounds_closed was
 * called it is FEDGE_STALE. */
FEDGE_MUST_USE fedge_status fedge_rounds_report(fedge_rounds *rounds, uint64_t task_id,
                                                fedge_error *err);
/* The task is lost without a word from its client; another connected device may get a fresh task in
 * the same slot (while OPENING: once the phase is open). */
FEDGE_MUST_USE fedge_status fedge_rounds_lose(fedge_rounds *rounds, uint64_t task_id,
                                              fedge_error *err);
/* The same when the client will not do the task, or its result was refused for good: it is set
 * aside. */
FEDGE_MUST_USE fedge_status fedge_rounds_give_up(fedge_rounds *rounds, uint64_t task_id,
                                                 fedge_error *err);
/* The device does none of the job's work, and leaves: it is set aside, and named, until it joins
 * anew. A task of its is given up besides. A round that waits for nodes, and has not been opened,
 * by the deadline after that fails as an attempt does: whoever may be asked is asked again. Without
 * memory for that it is as others are that leave. */
void fedge_rounds_decline(fedge_rounds *rounds, uint32_t client_index, uint64_t now_ms);
/* The device would rather not be asked before [until_ms]: cohorts do without it where there are
 * enough others; UINT64_MAX: until it joins anew. Without memory for that it is as others are. */
void fedge_rounds_rest(fedge_rounds *rounds, uint32_t client_index, uint64_t until_ms);
/* What was said last; 0: nothing, or it is long over. */
uint64_t fedge_rounds_rests_until(const fedge_rounds *rounds, uint32_t client_index);
/* The deadline, and what follows pauses, are looked at here only: call it at least when
 * fedge_rounds_deadline_ms has come, and now and then while WAITING. */
void fedge_rounds_tick(fedge_rounds *rounds, uint64_t now_ms);
void fedge_rounds_opened(fedge_rounds *rounds, uint64_t now_ms);
void fedge_rounds_closed(fedge_rounds *rounds, uint64_t now_ms);
/* In place of fedge_rounds_closed, not with a buffer: what was reported for [slots], ascending, is
 * lost. The phase is open again, its deadline starts anew, and SEND of every open task follows. */
void fedge_rounds_reopen(fedge_rounds *rounds, const uint32_t *slots, uint32_t num_slots,
                         uint64_t now_ms);
/* Finish after the open phase; at once when none is open. A phase on which nobody who is connected
 * has worked for the grace above closes if enough have reported; otherwise it is left open, to be
 * restored. */
void fedge_rounds_drain(fedge_rounds *rounds);

/* Takes the next action; false when there is none. To be emptied after every event. */
bool fedge_rounds_next(fedge_rounds *rounds, fedge_rounds_action *action);

/* No round follows [round], which is the present one or, before fedge_rounds_restore, the last that
 * has closed: it is the run's last, as if the job had no more. */
void fedge_rounds_end_after(fedge_rounds *rounds, uint32_t round);

/* Where it stands. */
fedge_rounds_state fedge_rounds_get_state(const fedge_rounds *rounds);
/* FINISHED, and nothing of the run is left to do, its last evaluation included. */
bool fedge_rounds_is_complete(const fedge_rounds *rounds);
uint32_t fedge_rounds_round(const fedge_rounds *rounds); /* the present or next round */
uint32_t fedge_rounds_attempt(const fedge_rounds *rounds);
fedge_task_kind fedge_rounds_kind(const fedge_rounds *rounds);
uint64_t fedge_rounds_deadline_ms(const fedge_rounds *rounds); /* monotonic; 0 when none runs */
/* The tasks of the present phase, in slot order; valid until the next event. */
const fedge_rounds_task *fedge_rounds_cohort(const fedge_rounds *rounds, uint32_t *num_tasks);
/* How the cohort of the present phase was drawn; the journal keeps it. */
fedge_draw fedge_rounds_draw(const fedge_rounds *rounds);
/* How many reports close the present phase; the journal keeps it for fedge_rounds_restore. */
uint32_t fedge_rounds_wanted(const fedge_rounds *rounds);
uint32_t fedge_rounds_num_connected(const fedge_rounds *rounds);
/* Finds a task of the present phase, and its slot; NULL when there is none. */
const fedge_rounds_task *fedge_rounds_find(const fedge_rounds *rounds, uint64_t task_id,
                                           uint32_t *slot);
/* WAITING, or RUNNING and nobody who is connected is at work. */
bool fedge_rounds_is_stalled(const fedge_rounds *rounds);
/* Why nothing happens, and for whom it waits, for logs and health: "waiting for nodes: 3 of 8
 * connected", "round 3, training: 1 of 3 reported, 0 at work; not connected: clients 4, 7", … */
void fedge_rounds_describe(const fedge_rounds *rounds, char *text, size_t size);

#endif
