#include "aggregator/store/plot.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/store/chart.h"
#include "aggregator/store/round_lines.h"
#include "aggregator/store/svg.h"
#include "edge/core/bytes.h"
#include "edge/core/os.h"

/* The page, in pixels. */
#define MARGIN 24.0
#define TITLE 26.0
#define LEGEND_LINE 20.0
#define LEGEND_MARK 30.0
#define LETTER 6.4 /* of the legend, about */
#define PANEL_HEIGHT 170.0
#define PANEL_GAP 18.0
#define TWO_WIDTH 400.0   /* of a panel, of two side by side */
#define THREE_WIDTH 310.0 /* of three */
#define MAX_LINES FEDGE_PLOT_MAX_RUNS

/* What accuracy and loss are measured on, in the order of preference. */
enum { TEST, VALIDATION, CLIENTS, TRAINING, NUM_SETS };

static const struct {
    const char *name, *colour;
    double thickness;
    bool faint;
} SETS[NUM_SETS] = {{"test set", "#1f5fa8", 2.0, false},
                    {"validation", "#2b8a3e", 2.0, false},
                    {"clients' own data", "#c2571a", 1.4, true}, /* a few clients': they jump */
                    {"while training", "#868e96", 1.4, false}};

static const struct {
    const char *name, *colour;
} DIRECTIONS[2] = {{"bytes up", "#862e9c"}, {"bytes down", "#0b7285"}};

static const char *const RUN_COLOURS[FEDGE_PLOT_MAX_RUNS] = {
    "#1f5fa8", "#c2571a", "#2b8a3e", "#862e9c", "#c92a2a",
    "#0b7285", "#e67700", "#5c5f66", "#d6336c", "#66a80f"};

/* A phase; NaN: not known. */
typedef struct row {
    double round, time, up, down; /* bytes: all so far */
    double loss[NUM_SETS], accuracy[NUM_SETS];
} row;

typedef struct run {
    row *rows;
    uint32_t count, capacity;
    bool has[NUM_SETS]; /* evaluations on it */
    bool has_time, has_accuracy, has_loss;
} run;

/* ---- reading --------------------------------------------------------------------------------- */

static void set_values(run *self, row *to, int set, double loss, double accuracy)
{
    to->loss[set] = loss;
    to->accuracy[set] = accuracy;
    self->has[set] = self->has[set] || isfinite(accuracy) || isfinite(loss);
    self->has_accuracy = self->has_accuracy || isfinite(accuracy);
    self->has_loss = self->has_loss || isfinite(loss);
}

static fedge_status add_row(void *user, const fedge_round_summary *summary, fedge_error *err)
{
    run *self = user;
    if (self->count == FEDGE_PLOT_MAX_ROUNDS) {
        return FEDGE_OK;
    }
    if (self->count == self->capacity) {
        const uint32_t more = self->capacity * 2 + 64;
        row *rows = realloc(self->rows, more * sizeof(*rows));
        if (!rows) {
            return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to draw %u rounds", more);
        }
        self->rows = rows;
        self->capacity = more;
    }
    assert(self->rows);
    const row *before = self->count > 0 ? &self->rows[self->count - 1] : NULL;
    row *to = &self->rows[self->count++];
    *to = (row){.round = summary->round,
                .time = summary->virtual_phase.time,
                .up = (before ? before->up : 0.0) + (double)summary->bytes_up,
                .down = (before ? before->down : 0.0) + (double)summary->bytes_down};
    self->has_time = summary->virtual_phase.present;
    for (int set = 0; set < NUM_SETS; set++) {
        to->loss[set] = to->accuracy[set] = NAN;
    }
    if (summary->kind == FEDGE_TASK_EVALUATE) {
        set_values(self, to, CLIENTS, summary->loss, summary->accuracy);
        return FEDGE_OK;
    }
    set_values(self, to, TEST, summary->loss, summary->accuracy);
    set_values(self, to, TRAINING, summary->train_loss, summary->train_accuracy);
    if (summary->validation.present) {
        set_values(self, to, VALIDATION, summary->validation.loss, summary->validation.accuracy);
    }
    return FEDGE_OK;
}

/* ---- what stands in a panel ------------------------------------------------------------------ */

typedef enum x_kind { BY_ROUND, BY_TIME, BY_BYTES } x_kind;
typedef enum y_kind { ACCURACY, LOSS, BYTES } y_kind;

static const struct {
    const char *label;
    fedge_chart_unit unit;
} X_AXES[] = {[BY_ROUND] = {"round", FEDGE_CHART_COUNT},
              [BY_TIME] = {"simulated time", FEDGE_CHART_SECONDS},
              [BY_BYTES] = {"bytes sent, up and down", FEDGE_CHART_BYTES}},
  Y_AXES[] = {[ACCURACY] = {"accuracy", FEDGE_CHART_SHARE},
              [LOSS] = {"loss", FEDGE_CHART_NUMBER},
              [BYTES] = {"bytes sent", FEDGE_CHART_BYTES}};

/* A line of a panel: values of a set, or bytes in a direction. */
typedef struct source {
    const run *of;
    int which; /* set or direction */
    const char *name, *colour;
    double thickness;
    bool faint, dashed;
} source;

static double x_of(const row *at, x_kind x)
{
    return x == BY_ROUND ? at->round : x == BY_TIME ? at->time : at->up + at->down;
}

/* Rows without an evaluation are left out, so that the line goes on. *points is malloc'ed. */
static fedge_status list_points(const source *from, x_kind x, y_kind y, fedge_chart_point **points,
                                uint32_t *count, fedge_error *err)
{
    *points = malloc(((size_t)from->of->count + 1) * sizeof(**points));
    *count = 0;
    if (!*points) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to draw %u rounds", from->of->count);
    }
    for (uint32_t k = 0; k < from->of->count; k++) {
        const row *at = &from->of->rows[k];
        const double loss = at->loss[from->which], accuracy = at->accuracy[from->which];
        if (y == BYTES) {
            (*points)[(*count)++] =
                (fedge_chart_point){x_of(at, x), from->which == 0 ? at->up : at->down};
        } else if (isfinite(loss) || isfinite(accuracy)) {
            (*points)[(*count)++] =
                (fedge_chart_point){x_of(at, x), y == ACCURACY ? accuracy : loss};
        }
    }
    return FEDGE_OK;
}

/* Where [place] is. */
static fedge_status draw_panel(fedge_buffer *out, const fedge_chart *place, const source *sources,
                               uint32_t num_sources, x_kind x, y_kind y, fedge_error *err)
{
    fedge_chart chart = *place;
    fedge_chart_line lines[MAX_LINES];
    fedge_chart_point *points[MAX_LINES] = {NULL};
    fedge_status status = FEDGE_OK;
    for (uint32_t i = 0; i < num_sources && status == FEDGE_OK; i++) {
        lines[i] = (fedge_chart_line){.colour = sources[i].colour,
                                      .thickness = sources[i].thickness,
                                      .faint = sources[i].faint,
                                      .dashed = sources[i].dashed};
        status = list_points(&sources[i], x, y, &points[i], &lines[i].count, err);
        lines[i].points = points[i];
    }
    chart.x_label = X_AXES[x].label;
    chart.x_unit = X_AXES[x].unit;
    chart.y_label = Y_AXES[y].label;
    chart.y_unit = Y_AXES[y].unit;
    chart.from_zero = y == BYTES;
    chart.lines = lines;
    chart.num_lines = num_sources;
    if (status == FEDGE_OK) {
        status = fedge_chart_draw(out, &chart, err);
    }
    for (uint32_t i = 0; i < num_sources; i++) {
        free(points[i]);
    }
    return status;
}

/* ---- the page -------------------------------------------------------------------------------- */

typedef struct page {
    const char *title;
    const source *sources; /* of accuracy and loss */
    uint32_t num_sources;
    const source *directions; /* of bytes; NULL: no row of them */
    y_kind rows[3];
    uint32_t num_rows;
    x_kind columns[3];
    uint32_t num_columns;
    double panel_width, width;
} page;

/* Where the name behind the one at *x, *y begins. */
static void next_name(const page *of, const char *name, double *x, double *y)
{
    const double width = LEGEND_MARK + LETTER * (double)strlen(name);
    if (*x > MARGIN && *x + width > of->width - MARGIN) {
        *x = MARGIN;
        *y += LEGEND_LINE;
    }
}

static fedge_status draw_name(fedge_buffer *out, const source *of, double x, double y,
                              fedge_error *err)
{
    fedge_status status = fedge_buffer_printf(out, err,
                                              "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" "
                                              "y2=\"%.1f\" stroke=\"%s\" stroke-width=\"4\"%s/>",
                                              x, y - 4.0, x + 14.0, y - 4.0, of->colour,
                                              of->dashed ? " stroke-dasharray=\"5 4\"" : "");
    return status == FEDGE_OK ? fedge_svg_text(out, x + 19.0, y, "tick", "start", of->name, err)
                              : status;
}

/* Names from left to right, in as many lines as they need; [out] NULL: nothing is drawn. *bottom:
 * of the last line. */
static fedge_status draw_legend(fedge_buffer *out, const page *of, double *bottom, fedge_error *err)
{
    double x = MARGIN, y = MARGIN + TITLE + 12.0;
    fedge_status status = FEDGE_OK;
    const uint32_t count = of->num_sources + (of->directions ? 2 : 0);
    for (uint32_t i = 0; i < count && status == FEDGE_OK; i++) {
        const source *at =
            i < of->num_sources ? &of->sources[i] : &of->directions[i - of->num_sources];
        next_name(of, at->name, &x, &y);
        status = out ? draw_name(out, at, x, y, err) : FEDGE_OK;
        x += LEGEND_MARK + LETTER * (double)strlen(at->name);
    }
    *bottom = y;
    return status;
}

static fedge_status draw_page(fedge_buffer *out, page *of, fedge_error *err)
{
    const double pitch_x = FEDGE_CHART_LEFT + of->panel_width + PANEL_GAP;
    const double pitch_y = FEDGE_CHART_ABOVE + PANEL_HEIGHT + FEDGE_CHART_BELOW + PANEL_GAP;
    double legend = 0.0;
    of->width = MARGIN + pitch_x * of->num_columns + MARGIN - PANEL_GAP;
    fedge_status status = draw_legend(NULL, of, &legend, err);
    const double top = legend + 18.0;
    if (status == FEDGE_OK) {
        status = fedge_svg_begin(out, of->width, top + pitch_y * of->num_rows, err);
    }
    if (status == FEDGE_OK) {
        status = fedge_svg_text(out, MARGIN, MARGIN + 10.0, "title", "start", of->title, err);
    }
    if (status == FEDGE_OK) {
        status = draw_legend(out, of, &legend, err);
    }
    for (uint32_t i = 0; i < of->num_rows * of->num_columns && status == FEDGE_OK; i++) {
        const uint32_t r = i / of->num_columns, c = i % of->num_columns;
        const y_kind y = of->rows[r];
        const fedge_chart place = {.left = MARGIN + pitch_x * c + FEDGE_CHART_LEFT,
                                   .top = top + pitch_y * r + FEDGE_CHART_ABOVE,
                                   .width = of->panel_width,
                                   .height = PANEL_HEIGHT};
        if (y == BYTES && of->columns[c] == BY_BYTES) {
            continue; /* bytes over bytes */
        }
        status = y == BYTES ? draw_panel(out, &place, of->directions, 2, of->columns[c], y, err)
                            : draw_panel(out, &place, of->sources, of->num_sources, of->columns[c],
                                         y, err);
    }
    return status == FEDGE_OK ? fedge_buffer_printf(out, err, "</svg>\n") : status;
}

/* Losses of real numbers come without an accuracy: no empty row for it. */
static void choose_rows(page *of)
{
    bool has_accuracy = false, has_loss = false;
    for (uint32_t i = 0; i < of->num_sources; i++) {
        has_accuracy = has_accuracy || of->sources[i].of->has_accuracy;
        has_loss = has_loss || of->sources[i].of->has_loss;
    }
    of->num_rows = 0;
    if (has_accuracy || !has_loss) {
        of->rows[of->num_rows++] = ACCURACY;
    }
    of->rows[of->num_rows++] = LOSS;
    if (of->directions) {
        of->rows[of->num_rows++] = BYTES;
    }
}

static fedge_status write_page(page *of, const char *svg_path, fedge_error *err)
{
    fedge_buffer out;
    fedge_buffer_init(&out, FEDGE_SVG_MAX_SIZE);
    choose_rows(of);
    fedge_status status = draw_page(&out, of, err);
    if (status == FEDGE_OK) {
        status = fedge_os_write_file(svg_path, out.data, out.size, 0644, err);
    }
    fedge_buffer_fini(&out);
    return status;
}

fedge_status fedge_plot_rounds(const char *jsonl_path, const char *svg_path, const char *title,
                               fedge_error *err)
{
    run self = {0};
    source sets[NUM_SETS], directions[2];
    page of = {.title = title,
               .sources = sets,
               .directions = directions,
               .num_columns = 2,
               .panel_width = TWO_WIDTH};
    fedge_status status = fedge_round_lines_read(jsonl_path, add_row, &self, err);
    for (int set = 0; set < NUM_SETS; set++) {
        if (self.has[set]) {
            sets[of.num_sources++] = (source){.of = &self,
                                              .which = set,
                                              .name = SETS[set].name,
                                              .colour = SETS[set].colour,
                                              .thickness = SETS[set].thickness,
                                              .faint = SETS[set].faint};
        }
    }
    for (int d = 0; d < 2; d++) {
        directions[d] = (source){.of = &self,
                                 .which = d,
                                 .name = DIRECTIONS[d].name,
                                 .colour = DIRECTIONS[d].colour,
                                 .thickness = 2.0,
                                 .dashed = d == 0}; /* they may be as many */
    }
    of.columns[0] = BY_ROUND;
    of.columns[1] = self.has_time ? BY_TIME : BY_BYTES;
    if (status == FEDGE_OK) {
        status = write_page(&of, svg_path, err);
    }
    free(self.rows);
    return status;
}

static int best_set(const run *of)
{
    int set = TEST;
    while (set + 1 < NUM_SETS && !of->has[set]) {
        set++;
    }
    return set;
}

fedge_status fedge_plot_runs(const char *const *jsonl_paths, const char *const *names,
                             uint32_t num_runs, const char *svg_path, const char *title,
                             fedge_error *err)
{
    run runs[FEDGE_PLOT_MAX_RUNS] = {{0}};
    source sources[FEDGE_PLOT_MAX_RUNS];
    page of = {.title = title,
               .sources = sources,
               .num_sources = num_runs,
               .columns = {BY_ROUND, BY_BYTES, BY_TIME}};
    bool timed = true;
    if (num_runs == 0 || num_runs > FEDGE_PLOT_MAX_RUNS) {
        return fedge_fail(err, FEDGE_OUT_OF_RANGE,
                          "%u runs in a picture: 1 to %d; draw fewer at a time", num_runs,
                          FEDGE_PLOT_MAX_RUNS);
    }
    fedge_status status = FEDGE_OK;
    for (uint32_t i = 0; i < num_runs && status == FEDGE_OK; i++) {
        status = fedge_round_lines_read(jsonl_paths[i], add_row, &runs[i], err);
        sources[i] = (source){.of = &runs[i],
                              .which = best_set(&runs[i]),
                              .name = names[i],
                              .colour = RUN_COLOURS[i],
                              .thickness = 2.0};
        timed = timed && runs[i].has_time;
    }
    of.num_columns = timed ? 3 : 2;
    of.panel_width = timed ? THREE_WIDTH : TWO_WIDTH;
    if (status == FEDGE_OK) {
        status = write_page(&of, svg_path, err);
    }
    for (uint32_t i = 0; i < num_runs; i++) {
        free(runs[i].rows);
    }
    return status;
}
