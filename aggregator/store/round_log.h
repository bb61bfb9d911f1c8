/* rounds.jsonl: one JSON object per line for each finished phase, for users and plots.
 *
 * A line begins {"round":N,"phase":"train" or "evaluate", and ends with its checksum
 * (edge/json/json.h), which lines of older releases lack. Phases are in order. Append the line of a
 * training phase before saving its checkpoint: the next start cuts all lines behind the last
 * checkpoint, and closing the round again rewrites them, so none is missing or doubled.
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
    uint32_t last_round;       /* round of the last line; 0 when there is none */
    fedge_task_kind last_kind; /* kind of the last line */
    bool lazy; /* appending does not sync; the caller syncs [file] when it needs to */
} fedge_round_log;

/* Opens or creates the file. Cuts a torn last line and all lines of rounds after [last_closed]. The
 * others are durable when this returns. FEDGE_CORRUPT, with the line's number: a line is not as
 * described above. */
FEDGE_MUST_USE fedge_status fedge_round_log_open(fedge_round_log *log, const char *path,
                                                 uint32_t last_closed, fedge_error *err);

#define FEDGE_ROUND_LOG_DAMAGED ".damaged"

/* Repairs a file that fedge_round_log_open has refused as corrupt: copies it to PATH.damaged and
 * removes all lines that are damaged or out of order. */
FEDGE_MUST_USE fedge_status fedge_round_log_mend(const char *path, fedge_error *err);

/* Appends {"round":N,"phase":"…",FIELDS} and syncs, unless lazy. [fields]: the inside of a JSON
 * object without braces, on one line, e.g. "\"accuracy\":0.91,\"clients\":8". FEDGE_DUPLICATE: the
 * file already has this phase or a later one (expected after a crash). FEDGE_TOO_BIG.
 * FEDGE_CORRUPT: [fields] is not JSON. A failed write leaves no part of the line. */
FEDGE_MUST_USE fedge_status fedge_round_log_append(fedge_round_log *log, uint32_t round,
                                                   fedge_task_kind kind, const char *fields,
                                                   fedge_error *err);
void fedge_round_log_close(fedge_round_log *log);

/* ---- reading back ---------------------------------------------------------------------------- */

/* Passes each line of the file at [path], as fedge_round_summary_write wrote it, to [on_line] in
 * order; its failure ends the reading. A summary has the fields that totals and curves need: round,
 * kind, clients, examples, bytes, seconds, losses and accuracies, model, virtual time, validation,
 * and the buffered updates (valid until [on_line] returns). FEDGE_CORRUPT with the number of a line
 * that is not a JSON object, FEDGE_NO_MEMORY, and the errors of reading a file of at most
 * FEDGE_ROUND_LOG_MAX_SIZE bytes. */
typedef fedge_status (*fedge_round_line_visit)(void *user, const fedge_round_summary *summary,
                                               fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_round_lines_read(const char *path, fedge_round_line_visit on_line,
                                                   void *user, fedge_error *err);

#endif
