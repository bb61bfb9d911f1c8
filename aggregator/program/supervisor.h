/* --supervise: the aggregator in a child process that is started again when it falls.
 *
 * Starting and recovering are one path, so a child that comes after a crash or the loss of a GPU
 * goes on with the open round from the journal. Endings that a new start cannot mend (options,
 * configuration, state, disk, a GPU that is too small) are the supervisor's own.
 */
#ifndef FEDGE_AGGREGATOR_PROGRAM_SUPERVISOR_H
#define FEDGE_AGGREGATOR_PROGRAM_SUPERVISOR_H

#include <stdbool.h>
#include <stdint.h>

#include "aggregator/reduce/accumulator.h"
#include "edge/wire/protocol.h"

#define FEDGE_SUPERVISOR_QUICK_MS 10000     /* a child that lived less has failed at its start */
#define FEDGE_SUPERVISOR_MAX_QUICK 5        /* consecutive quick ends before it gives up */
#define FEDGE_SUPERVISOR_MAX_PAUSE_MS 30000 /* between starts: 1 s at first, doubled each time */

#define FEDGE_SUPERVISOR_NUMBER_TEXT 17 /* 64 bits as text, NUL included */

/* Does a child that ended so deserve another start? [signal]: what killed it, or 0; [may_pass]: it
 * was not the first, or had been at work, so that a want of a GPU's memory may pass. */
bool fedge_supervisor_restarts(int exit_code, int signal, bool may_pass);

/* The pause before the next start after [num_quick] quick ends in a row; a negative one: give up.
 */
int64_t fedge_supervisor_pause_ms(uint32_t num_quick);

/* What a child has to know of those before it. */
typedef struct fedge_supervised {
    uint32_t restarts;                         /* children before this one */
    bool draining;                             /* SIGUSR1 has come */
    char number[FEDGE_SUPERVISOR_NUMBER_TEXT]; /* random number of the supervisor */
    char run_id[FEDGE_RUN_ID_TEXT];            /* run opened by one of its processes; "": none */
    char *opened_run_id;        /* the same, shared with the supervisor; NULL: not supervised */
    fedge_lost_gpus *lost_gpus; /* shared with it and with all that come after; likewise */
} fedge_supervised;

/* A child that becomes a launcher of others (mpirun). Its code of a stop is a failure's, and here 0
 * then. HUP drains it, and another child follows with what has been changed for it meanwhile. */
typedef struct fedge_launcher {
    bool (*may_change)(
        void *user); /* called on HUP; false: the changes are invalid and nothing changes */
    void *user;
} fedge_launcher;

/* Forks. In a child it returns true and fills [self]; the child ends with the supervisor. In the
 * supervisor it returns false once the last child has ended, and *exit_code is that child's. TERM,
 * INT, HUP and USR1 are passed on to the child. Before any thread is started. [launcher]: NULL: the
 * child is the aggregator itself. */
bool fedge_supervise(const fedge_launcher *launcher, fedge_supervised *self, int *exit_code);
/* In a child: this run is open, so that what was asked for it once (another run, a restored backup)
 * has been done, and the next child goes on with it. */
void fedge_supervised_opened(fedge_supervised *self, const char run_id[FEDGE_RUN_ID_TEXT]);

#endif
