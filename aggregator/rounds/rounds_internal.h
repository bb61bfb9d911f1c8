/* The round machine's internals, shared by rounds.c (phases and events), rounds_clients.c
 * (connected clients, participants, buffers) and rounds_describe.c (texts for logs). */
#ifndef FEDGE_AGGREGATOR_ROUNDS_ROUNDS_INTERNAL_H
#define FEDGE_AGGREGATOR_ROUNDS_ROUNDS_INTERNAL_H

#include "aggregator/rounds/rounds.h"
#include "edge/core/rng.h"

#define FEDGE_ROUNDS_NO_SLOT UINT32_MAX

/* A client that has had a task in the present phase, or that is set aside because it gave up in an
 * attempt of this round or declined the job. */
typedef struct participant {
    uint32_t client_index;
    uint32_t slot;  /* FEDGE_ROUNDS_NO_SLOT: no task in this attempt */
    bool connected; /* true while the client is connected */
    bool aside;
    bool declined; /* the client has declined the job since it last joined */
} participant;

/* A client that asked for no work before a time. */
typedef struct deferral {
    uint32_t client_index;
    uint64_t not_before_ms;
} deferral;

struct fedge_rounds {
    fedge_rounds_spec spec;
    uint64_t seed;
    fedge_rng rng;                       /* random stream of the present phase */
    const fedge_client_history *history; /* NULL: every draw is uniform */
    fedge_draw draw;                     /* draw of the present phase */

    fedge_rounds_state state;
    fedge_task_kind kind;
    uint32_t round, attempt;
    bool failing;  /* CLOSING with too few reports */
    bool draining; /* no phase opens any more */
    bool complete; /* FINISHED with the whole run done */
    bool deserted; /* draining, and no client has been at work since deserted_at_ms */
    uint64_t deserted_at_ms, grace_ms;
    uint64_t deadline_ms;
    uint64_t next_task_id;

    bool given_up;         /* a client has given up in this phase */
    bool hopeless;         /* CLOSING before the deadline, since no client was left */
    uint32_t num_hopeless; /* consecutive attempts of this round that ended hopeless */
    uint64_t open_at_ms;   /* WAITING: opens no earlier; 0: at once */
    uint64_t retry_at_ms;  /* WAITING: asks clients set aside again; 0: there are none */
    uint64_t fail_at_ms;   /* WAITING: the attempt fails, since clients have declined; 0: never */

    fedge_rounds_task *tasks; /* indexed by slot */
    uint32_t num_tasks, tasks_capacity;
    uint32_t wanted, num_open, num_reported;
    uint32_t at_work; /* number of connected clients to give tasks to at a time, with a buffer */
    participant *participants; /* ascending by client; only those set aside while WAITING */
    uint32_t num_participants, participants_capacity;

    uint32_t *connected; /* client indices, ascending */
    uint32_t *sampled;   /* scratch as large as [connected] */
    uint32_t num_connected, connected_capacity;

    deferral *deferrals; /* ascending by client */
    uint32_t num_deferrals, deferrals_capacity;

    fedge_rounds_action *actions; /* queue: num_actions from index first_action on */
    size_t first_action, num_actions, actions_capacity;
};

/* Reserves memory for [connected] clients, [tasks] slots, one more participant, and the actions
 * that may follow. */
FEDGE_MUST_USE fedge_status fedge_rounds_reserve(fedge_rounds *rounds, uint32_t connected,
                                                 uint32_t tasks, fedge_error *err);

/* Position of the first connected client that is not below [client_index]. */
uint32_t fedge_rounds_connected_position(const fedge_rounds *rounds, uint32_t client_index);
bool fedge_rounds_is_connected(const fedge_rounds *rounds, uint32_t client_index);
void fedge_rounds_note_connected(fedge_rounds *rounds, uint32_t client_index, bool connected);

/* The client's participant; NULL when it has had no task and is not set aside. Valid until one is
 * added. */
participant *fedge_rounds_find_participant(const fedge_rounds *rounds, uint32_t client_index);
/* The caller has reserved memory for it. */
void fedge_rounds_add_participant(fedge_rounds *rounds, uint32_t client_index, uint32_t slot);
void fedge_rounds_remove_participant(fedge_rounds *rounds, participant *left);
/* Forgets all participants except those that declined the job and, with [aside], all others set
 * aside. */
void fedge_rounds_keep_aside(fedge_rounds *rounds, bool aside);

/* Picks a connected client that has had no task in this phase and is not set aside, with the
 * probability of its score in the draw. A uniform draw takes O(participants), since a simulation
 * may have many more clients. A deferred client is picked only when all free ones are deferred. */
bool fedge_rounds_pick_free(fedge_rounds *rounds, uint32_t *client_index);
/* Fills rounds->sampled with the connected clients that are not set aside and have had no task;
 * returns their number. */
uint32_t fedge_rounds_list_available(fedge_rounds *rounds);
/* Removes deferred clients from the list when [enough] others are left; returns the length. */
uint32_t fedge_rounds_omit_deferred(fedge_rounds *rounds, uint32_t listed, uint32_t enough,
                                    uint64_t now_ms);
/* Forgets the client's deferral. */
void fedge_rounds_undefer(fedge_rounds *rounds, uint32_t client_index);
/* The length of fedge_rounds_list_available's list, without making it. */
uint32_t fedge_rounds_num_available(const fedge_rounds *rounds);

/* The participant's task, when it is open; NULL otherwise. */
const fedge_rounds_task *fedge_rounds_open_task(const fedge_rounds *rounds, const participant *of);

/* ---- rounds with a buffer: tasks that carry over when rounds close (rounds.h) ---------------- */

bool fedge_rounds_has_buffer(const fedge_rounds *rounds);

/* Ends the phase: open tasks that are not too stale for [round] become the first of the next phase,
 * and their clients its participants. Calls [drop] with the slot of each task that is too stale
 * before that task is removed. */
void fedge_rounds_carry_over(fedge_rounds *rounds, uint32_t round,
                             void (*drop)(fedge_rounds *rounds, uint32_t slot));
/* While WAITING: makes the clients of carried tasks participants. Forgets other participants as
 * fedge_rounds_keep_aside does. */
void fedge_rounds_keep_carried(fedge_rounds *rounds, bool aside);
/* While WAITING: drops the carried task of [slot], which will bring no result. Its client may get
 * another task when the next phase opens. */
void fedge_rounds_drop_carried(fedge_rounds *rounds, uint32_t slot);
/* Connected clients that have an open task. */
uint32_t fedge_rounds_num_at_work(const fedge_rounds *rounds);
/* The first slot without a task, from [from] on; num_tasks when there is none. */
uint32_t fedge_rounds_empty_slot(const fedge_rounds *rounds, uint32_t from);
/* Call it once the task of [slot] is reported. Removes the client from the participants when it may
 * get another task in this phase. */
void fedge_rounds_release(fedge_rounds *rounds, uint32_t slot);
/* Called for each task of a restored phase in slot order. Makes the client of [slot] a participant
 * unless it may get another task. False: the client has two open tasks. */
bool fedge_rounds_restore_participant(fedge_rounds *rounds, uint32_t slot);

#endif
