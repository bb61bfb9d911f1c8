/* --supervise: runs the aggregator in a child process and restarts it after a failure. Starting and
 * recovering are one path, so a child that follows a crash or the loss of a GPU resumes the open
 * round from the journal. The supervisor ends with failures that a restart cannot fix (options,
 * configuration, state, disk, a GPU that is too small). */
#ifndef FEDGE_AGGREGATOR_PROGRAM_SUPERVISOR_H
#define FEDGE_AGGREGATOR_PROGRAM_SUPERVISOR_H

#include <stdbool.h>
#include <stdint.h>

#include "aggregator/reduce/accumulator.h"
#include "edge/wire/protocol.h"

#define FEDGE_SUPERVISOR_QUICK_MS 10000 /* a child that ended earlier failed at its start */
#define FEDGE_SUPERVISOR_MAX_QUICK 5    /* consecutive failures at the start before it gives up */
#define FEDGE_SUPERVISOR_MAX_PAUSE_MS                                                              \
    30000 /* maximum pause between starts: 1 s at first, doubled each time */

#define FEDGE_SUPERVISOR_NUMBER_TEXT 17 /* 64 bits as text, NUL included */

/* Whether to restart after this end of a child. [signal]: the one that killed it, or 0; [may_pass]:
 * it was not the first or had done work, so a lack of GPU memory may be temporary. */
bool fedge_supervisor_restarts(int exit_code, int signal, bool may_pass);

/* Pause before the next start after [num_quick] consecutive failures at the start; negative: give
 * up. */
int64_t fedge_supervisor_pause_ms(uint32_t num_quick);

/* State passed from earlier children. */
typedef struct fedge_supervised {
    uint32_t restarts;                         /* children before this one */
    bool draining;                             /* SIGUSR1 was received */
    char number[FEDGE_SUPERVISOR_NUMBER_TEXT]; /* random number of the supervisor */
    char run_id[FEDGE_RUN_ID_TEXT];            /* run opened by one of its processes; "": none */
    char *opened_run_id; /* run_id in memory shared with the supervisor; NULL: not supervised */
    fedge_lost_gpus *lost_gpus; /* shared with the supervisor and later children */
} fedge_supervised;

/* A child that becomes a launcher of others (mpirun). mpirun's exit code of a requested stop is a
 * failure's; the supervisor's is 0 then. HUP drains it, and another child follows with the changed
 * configuration. */
typedef struct fedge_launcher {
    bool (*may_change)(
        void *user); /* called on HUP; false: the changes are invalid, so nothing happens */
    void *user;
} fedge_launcher;

/* Forks. In a child it returns true and sets [self]; the child ends with the supervisor. In the
 * supervisor it returns false after the last child's end, whose exit code is *exit_code. Forwards
 * TERM, INT, HUP and USR1 to the child. Call before any thread starts. [launcher]: NULL if the
 * child is the aggregator. */
bool fedge_supervise(const fedge_launcher *launcher, fedge_supervised *self, int *exit_code);
/* In a child: stores that this run is open. Requests for its start (another run, a restored backup)
 * are done then, and the next child resumes it. */
void fedge_supervised_opened(fedge_supervised *self, const char run_id[FEDGE_RUN_ID_TEXT]);

#endif
