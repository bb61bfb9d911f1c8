/* The round machine's insides, shared by rounds.c (phases and events), rounds_clients.c (who is
 * there and who has had a task) and rounds_describe.c (where it stands). */
#ifndef FEDGE_AGGREGATOR_ROUNDS_ROUNDS_INTERNAL_H
#define FEDGE_AGGREGATOR_ROUNDS_ROUNDS_INTERNAL_H

#include "aggregator/rounds/rounds.h"
#include "edge/core/rng.h"

#define FEDGE_ROUNDS_NO_SLOT UINT32_MAX

/* A client that has had a task in the present phase, and the slot it was for; or one that is set
 * aside: it has given up in this attempt of the round or in one before, or declined the job. */
typedef struct participant {
    uint32_t client_index;
    uint32_t slot;  /* FEDGE_ROUNDS_NO_SLOT: no task in this attempt */
    bool connected; /* it is one of the connected clients */
    bool aside;
    bool declined; /* the job, since it joined last */
} participant;

/* A client that would rather not be asked, and until when. */
typedef struct rest {
    uint32_t client_index;
    uint64_t until_ms;
} rest;

struct fedge_rounds {
    fedge_rounds_spec spec;
    uint64_t seed;
    fedge_rng rng;                       /* of the present phase */
    const fedge_client_history *history; /* NULL: every draw is uniform */
    fedge_draw draw;                     /* of the present phase */

    fedge_rounds_state state;
    fedge_task_kind kind;
    uint32_t round, attempt;
    bool failing;  /* CLOSING with too few reports */
    bool draining; /* nothing opens any more */
    bool complete; /* FINISHED since all is done */
    bool deserted; /* draining, and nobody is at work since deserted_at_ms */
    uint64_t deserted_at_ms, grace_ms;
    uint64_t deadline_ms;
    uint64_t next_task_id;

    bool given_up;         /* somebody has given up in this phase */
    bool hopeless;         /* CLOSING before the deadline, since nobody was left */
    uint32_t num_hopeless; /* attempts of this round, in a row, that ended so */
    uint64_t open_at_ms;   /* WAITING: not before; 0: at once */
    uint64_t again_at_ms;  /* WAITING: who is set aside may be asked again; 0: nobody is */
    uint64_t fail_at_ms;   /* WAITING: the attempt fails, since clients have declined; 0: never */

    fedge_rounds_task *tasks; /* by slot */
    uint32_t num_tasks, tasks_capacity;
    uint32_t wanted, num_open, num_reported;
    uint32_t at_work;          /* with a buffer: how many connected clients have a task at a time */
    participant *participants; /* ascending by client; while WAITING those who are set aside */
    uint32_t num_participants, participants_capacity;

    uint32_t *connected; /* client indices, ascending */
    uint32_t *sampled;   /* scratch of the same capacity */
    uint32_t num_connected, connected_capacity;

    rest *resting; /* ascending by client */
    uint32_t num_resting, resting_capacity;

    fedge_rounds_action *actions; /* the queue: num_actions from first_action on */
    size_t first_action, num_actions, actions_capacity;
};

/* Makes room for [connected] clients, [tasks] slots, one more participant, and the actions of what
 * may follow. */
FEDGE_MUST_USE fedge_status fedge_rounds_reserve(fedge_rounds *rounds, uint32_t connected,
                                                 uint32_t tasks, fedge_error *err);

/* Place of the first connected client that is not below [client_index]. */
uint32_t fedge_rounds_connected_place(const fedge_rounds *rounds, uint32_t client_index);
bool fedge_rounds_is_connected(const fedge_rounds *rounds, uint32_t client_index);
void fedge_rounds_note_connected(fedge_rounds *rounds, uint32_t client_index, bool connected);

/* NULL when it has had no task and is not set aside. Valid until the next that is added. */
participant *fedge_rounds_find_participant(const fedge_rounds *rounds, uint32_t client_index);
/* Room for it is there. */
void fedge_rounds_add_participant(fedge_rounds *rounds, uint32_t client_index, uint32_t slot);
void fedge_rounds_remove_participant(fedge_rounds *rounds, participant *gone);
/* Forgets all participants but those who are set aside, and of these, when [aside] is false, all
 * but those who have declined the job. */
void fedge_rounds_keep_aside(fedge_rounds *rounds, bool aside);

/* One of the connected clients that has had no task in this phase and is not set aside, as likely
 * as its score in the draw says; each equally likely in an uniform one, which takes time
 * O(participants), for a simulation's clients may be many more. One who rests only where all who
 * are free do. */
bool fedge_rounds_pick_free(fedge_rounds *rounds, uint32_t *client_index);
/* Fills rounds->sampled with the connected clients that are neither set aside nor have had a task;
 * returns how many. */
uint32_t fedge_rounds_list_available(fedge_rounds *rounds);
/* Takes those who rest out of what was listed, where [enough] others are left; returns how many
 * are. */
uint32_t fedge_rounds_spare_resting(fedge_rounds *rounds, uint32_t listed, uint32_t enough,
                                    uint64_t now_ms);
/* It does not rest any more. */
void fedge_rounds_wake(fedge_rounds *rounds, uint32_t client_index);
uint32_t fedge_rounds_num_available(const fedge_rounds *rounds); /* the same without the list */

/* The participant's task, when it is open; NULL otherwise. */
const fedge_rounds_task *fedge_rounds_open_task(const fedge_rounds *rounds, const participant *of);

/* ---- rounds with a buffer: tasks that go on while rounds close (rounds.h) -------------------- */

/* ---- rounds with a buffer -------------------------------------------------------------------- */

/* Rounds with a buffer: tasks that go on while rounds close (rounds.h). For rounds.c alone. */

bool fedge_rounds_has_buffer(const fedge_rounds *rounds);

/* The phase is over: tasks that are open, and not too stale for [round], become the first of the
 * next, and their clients its participants; [drop] is called with the slot of each that is too
 * stale, while it is still there. */
void fedge_rounds_carry_over(fedge_rounds *rounds, uint32_t round,
                             void (*drop)(fedge_rounds *rounds, uint32_t slot));
/* While WAITING: clients of tasks that were carried over are participants, beside those that are
 * set aside, which are kept when [aside]. */
void fedge_rounds_keep_carried(fedge_rounds *rounds, bool aside);
/* While WAITING: the task of [slot] was carried over and will bring nothing; its client may be
 * asked for another when the next phase opens. */
void fedge_rounds_drop_carried(fedge_rounds *rounds, uint32_t slot);
/* Clients that are connected and have an open task. */
uint32_t fedge_rounds_num_at_work(const fedge_rounds *rounds);
/* A slot without a task, from [from] on; num_tasks when there is none. */
uint32_t fedge_rounds_empty_slot(const fedge_rounds *rounds, uint32_t from);
/* The task of [slot] has been reported: may its client be asked for another in this phase? Then it
 * is no participant any more. */
void fedge_rounds_release(fedge_rounds *rounds, uint32_t slot);
/* As the tasks of a restored phase are taken over, one by one in slot order: makes the client of
 * [slot] a participant, unless it may be asked again. False: it has two open tasks. */
bool fedge_rounds_restore_participant(fedge_rounds *rounds, uint32_t slot);

#endif
