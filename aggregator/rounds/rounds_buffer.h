/* Rounds with a buffer: tasks that go on while rounds close (rounds.h). For rounds.c alone. */
#ifndef FEDGE_AGGREGATOR_ROUNDS_ROUNDS_BUFFER_H
#define FEDGE_AGGREGATOR_ROUNDS_ROUNDS_BUFFER_H

#include "aggregator/rounds/rounds_internal.h"

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
