#include "aggregator/report/curve.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "aggregator/store/round_log.h"

/* ---- one run --------------------------------------------------------------------------------- */

/* A curve that is being read. */
typedef struct reading {
    fedge_curve *to;
    uint32_t capacity;
} reading;

static void set_values(fedge_curve *self, fedge_curve_row *to, fedge_curve_set set, double loss,
                       double accuracy)
{
    to->loss[set] = (fedge_curve_value){loss, loss, loss};
    to->accuracy[set] = (fedge_curve_value){accuracy, accuracy, accuracy};
    self->has[set] = self->has[set] || isfinite(accuracy) || isfinite(loss);
    self->has_accuracy = self->has_accuracy || isfinite(accuracy);
    self->has_loss = self->has_loss || isfinite(loss);
}

static fedge_status add_row(void *user, const fedge_round_summary *summary, fedge_error *err)
{
    reading *at = user;
    fedge_curve *self = at->to;
    if (self->count == FEDGE_CURVE_MAX_ROUNDS)
        return FEDGE_OK;
    if (self->count == at->capacity) {
        const uint32_t more = at->capacity * 2 + 64;
        fedge_curve_row *rows = realloc(self->rows, more * sizeof(*rows));
        if (!rows)
            return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to draw %u rounds", more);
        self->rows = rows;
        at->capacity = more;
    }
    assert(self->rows);
    const fedge_curve_row *before = self->count > 0 ? &self->rows[self->count - 1] : NULL;
    fedge_curve_row *to = &self->rows[self->count++];
    *to = (fedge_curve_row){.round = summary->round,
                            .time = summary->virtual_phase.time,
                            .up = (before ? before->up : 0.0) + (double)summary->bytes_up,
                            .down = (before ? before->down : 0.0) + (double)summary->bytes_down,
                            .evaluation = summary->kind == FEDGE_TASK_EVALUATE};
    self->has_time = summary->virtual_phase.present;
    for (int set = 0; set < FEDGE_CURVE_SETS; set++)
        set_values(self, to, (fedge_curve_set)set, NAN, NAN);
    if (to->evaluation) {
        set_values(self, to, FEDGE_CURVE_CLIENTS, summary->loss, summary->accuracy);
        return FEDGE_OK;
    }
    set_values(self, to, FEDGE_CURVE_TEST, summary->loss, summary->accuracy);
    set_values(self, to, FEDGE_CURVE_TRAINING, summary->train_loss, summary->train_accuracy);
    if (summary->validation.present) {
        set_values(self, to, FEDGE_CURVE_VALIDATION, summary->validation.loss,
                   summary->validation.accuracy);
    }
    return FEDGE_OK;
}

static fedge_status read_one(const char *path, fedge_curve *curve, fedge_error *err)
{
    reading at = {.to = curve};
    *curve = (fedge_curve){.num_runs = 1};
    const fedge_status status = fedge_round_lines_read(path, add_row, &at, err);
    if (status != FEDGE_OK)
        fedge_curve_fini(curve);
    return status;
}

/* ---- several --------------------------------------------------------------------------------- */

/* [mean] is a sum until all runs are in it. */
/* A value that one run lacks has no mean: the curve is cut there for all. */
static void add_value(fedge_curve_value *to, const fedge_curve_value *other)
{
    const double sum = to->mean + other->mean;
    *to = isfinite(sum)
              ? (fedge_curve_value){sum, fmin(to->low, other->low), fmax(to->high, other->high)}
              : (fedge_curve_value){NAN, NAN, NAN};
}

static void add_phase(fedge_curve_row *to, const fedge_curve_row *other)
{
    to->time += other->time;
    to->up += other->up;
    to->down += other->down;
    for (int set = 0; set < FEDGE_CURVE_SETS; set++) {
        add_value(&to->loss[set], &other->loss[set]);
        add_value(&to->accuracy[set], &other->accuracy[set]);
    }
}

/* Which of two phases is the earlier: below 0 for [a], over 0 for [b]. */
static int compare_phases(const fedge_curve_row *a, const fedge_curve_row *b)
{
    return a->round < b->round   ? -1
           : a->round > b->round ? 1
                                 : (int)a->evaluation - (int)b->evaluation;
}

/* Adds a run to the sums, and takes the phases out that it has not. */
static void add_run(fedge_curve *to, const fedge_curve *other)
{
    uint32_t kept = 0;
    for (uint32_t i = 0, k = 0; i < to->count && k < other->count;) {
        const int order = compare_phases(&to->rows[i], &other->rows[k]);
        if (order == 0) {
            to->rows[kept] = to->rows[i];
            add_phase(&to->rows[kept++], &other->rows[k]);
        }
        i += order <= 0;
        k += order >= 0;
    }
    to->count = kept;
    to->num_runs++;
    to->has_time = to->has_time && other->has_time;
    to->has_accuracy = to->has_accuracy && other->has_accuracy;
    to->has_loss = to->has_loss && other->has_loss;
    for (int set = 0; set < FEDGE_CURVE_SETS; set++)
        to->has[set] = to->has[set] && other->has[set];
}

static void divide(fedge_curve *curve)
{
    const double share = 1.0 / curve->num_runs;
    for (uint32_t i = 0; i < curve->count; i++) {
        fedge_curve_row *row = &curve->rows[i];
        row->time *= share;
        row->up *= share;
        row->down *= share;
        for (int set = 0; set < FEDGE_CURVE_SETS; set++) {
            row->loss[set].mean *= share;
            row->accuracy[set].mean *= share;
        }
    }
}

fedge_status fedge_curve_read(const char *const *jsonl_paths, uint32_t num_runs, fedge_curve *curve,
                              fedge_error *err)
{
    assert(num_runs > 0);
    fedge_status status = read_one(jsonl_paths[0], curve, err);
    for (uint32_t i = 1; i < num_runs && status == FEDGE_OK; i++) {
        fedge_curve other;
        status = read_one(jsonl_paths[i], &other, err);
        if (status == FEDGE_OK)
            add_run(curve, &other);
        fedge_curve_fini(&other);
    }
    if (status != FEDGE_OK) {
        fedge_curve_fini(curve);
        return status;
    }
    if (num_runs > 1)
        divide(curve);
    return FEDGE_OK;
}

void fedge_curve_fini(fedge_curve *curve)
{
    free(curve->rows);
    *curve = (fedge_curve){.rows = NULL};
}

fedge_curve_set fedge_curve_best_set(const fedge_curve *curve)
{
    int set = FEDGE_CURVE_TEST;
    while (set + 1 < FEDGE_CURVE_SETS && !curve->has[set])
        set++;
    return (fedge_curve_set)set;
}
