/* rounds.jsonl: one JSON object per line for each phase that has ended, for people and plots.
 *
 * A line begins {"round":N,"phase":"train" or "evaluate", ends with its checksum (edge/json/json.h;
 * lines of older releases have none), and the phases come in order. Append a
 * training phase's line before its checkpoint: what a crash leaves behind the last checkpoint is
 * cut at the next start and written again when the round closes again, so nothing is missing and
 * nothing is there twice.
 */
#ifndef FEDGE_AGGREGATOR_STORE_ROUND_LOG_H
#define FEDGE_AGGREGATOR_STORE_ROUND_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "aggregator/rounds/round_summary.h"
#include "edge/core/os.h"
#include "edge/core/status.h"
#include "edge/wire/protocol.h"

#define FEDGE_ROUND_LOG_MAX_LINE ((size_t)64 * 1024)
#define FEDGE_ROUND_LOG_MAX_SIZE ((size_t)1 << 30) /* bytes of the file */

/* An open log. One thread at a time. */
typedef struct fedge_round_log {
    fedge_os_file file;
    uint64_t size;             /* bytes of whole lines */
    uint32_t last_round;       /* of the last line; 0 when there is none */
    fedge_task_kind last_kind; /* of the last line */
    bool lazy; /* lines are not synced one by one: the caller syncs [file] when it needs to */
} fedge_round_log;

/* Opens or creates the file; cuts a torn last line and every line of a round over [last_closed].
 * FEDGE_CORRUPT with the line's number when a line is not what this header says. */
FEDGE_MUST_USE fedge_status fedge_round_log_open(fedge_round_log *log, const char *path,
                                                 uint32_t last_closed, fedge_error *err);

#define FEDGE_ROUND_LOG_DAMAGED ".damaged"

/* Puts a file that opening calls corrupt aside, as PATH.damaged, and leaves the lines that are as
 * they should be in its place: it can be opened then. */
FEDGE_MUST_USE fedge_status fedge_round_log_mend(const char *path, fedge_error *err);

/* Appends {"round":N,"phase":"…",FIELDS} and syncs, unless lazy. [fields]: the inside of a JSON
 * object without braces, on one line, e.g. "\"accuracy\":0.91,\"clients\":8". FEDGE_DUPLICATE when
 * this phase or a later one is in the file already (which is fine after a crash); FEDGE_TOO_BIG;
 * FEDGE_CORRUPT when [fields] is not JSON. Of a line that could not be written nothing is left. */
FEDGE_MUST_USE fedge_status fedge_round_log_append(fedge_round_log *log, uint32_t round,
                                                   fedge_task_kind kind, const char *fields,
                                                   fedge_error *err);
void fedge_round_log_close(fedge_round_log *log);

/* ---- reading back ---------------------------------------------------------------------------- */

/* rounds.jsonl read back: the lines that fedge_round_summary_write made. */

/* Gives each line of the file at [path] to [on_line], in order; a failure of it ends the reading.
 * Of a summary all is known that totals and curves need: round, kind, clients, examples, bytes,
 * seconds, losses and accuracies, model, virtual time, validation, and what is told of updates
 * (until [on_line] returns). FEDGE_CORRUPT with the number of a line that is no JSON object,
 * FEDGE_NO_MEMORY, and what reading a file of at most FEDGE_ROUND_LOG_MAX_SIZE gives. */
FEDGE_MUST_USE fedge_status fedge_round_lines_read(
    const char *path,
    fedge_status (*on_line)(void *user, const fedge_round_summary *summary, fedge_error *err),
    void *user, fedge_error *err);

#endif
