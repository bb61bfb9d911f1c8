#include "aggregator/report/plot.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/report/svg.h"
#include "aggregator/store/round_log.h"
#include "edge/core/bytes.h"
#include "edge/core/os.h"

#define MAX_ROUNDS 100000u /* most phases; later ones are left out */

/* The page, in pixels. */
#define MARGIN 24.0
#define TITLE 26.0
#define LEGEND_ITEM 50.0 /* width of a legend entry without its text */
#define LEGEND_SAMPLE 26.0
#define LEGEND_CHAR 6.4 /* approximate width per character of the text */
#define PANEL_WIDTH 400.0
#define PANEL_HEIGHT 170.0
#define PANEL_GAP 18.0

/* Okabe and Ito 2008 (Color Universal Design): colours that can be told apart with every kind of
 * colour vision. */
#define BLACK "#000000"
#define SKY_BLUE "#56b4e9"
#define GREEN "#009e73"
#define BLUE "#0072b2"
#define VERMILLION "#d55e00"
#define PURPLE "#cc79a7"

/* The lines of a run. Those of accuracy and loss come first, in order of preference. */
typedef enum line_kind {
    ON_TEST_SET,
    ON_VALIDATION,
    ON_CLIENTS,
    WHILE_TRAINING,
    NUM_SETS,
    BYTES_UP = NUM_SETS,
    BYTES_DOWN,
    NUM_LINES
} line_kind;

static const struct {
    const char *name, *colour, *dash;
    double thickness;
    bool faint;
} LINES[NUM_LINES] = {[ON_TEST_SET] = {"test set", BLUE, NULL, 2.0, false},
                      [ON_VALIDATION] = {"validation", GREEN, NULL, 2.0, false},
                      /* Faint, since it jumps: few clients evaluate. Without a line above it, it
                       * has the style of the test set. */
                      [ON_CLIENTS] = {"clients' own data", PURPLE, NULL, 1.4, true},
                      [WHILE_TRAINING] = {"while training", VERMILLION, NULL, 1.4, false},
                      /* Both may be equal, so the upper one is dashed. */
                      [BYTES_UP] = {"bytes up", BLACK, "9 7", 2.0, false},
                      [BYTES_DOWN] = {"bytes down", SKY_BLUE, NULL, 2.0, false}};

/* ---- reading a run --------------------------------------------------------------------------- */

/* A phase. */
typedef struct row {
    double round, time, up, down; /* simulated time or NaN; total bytes so far */
    double loss[NUM_SETS], accuracy[NUM_SETS], error[NUM_SETS]; /* NaN: unknown */
} row;

typedef struct curve {
    row *rows; /* malloc'ed */
    uint32_t count, capacity;
    bool has[NUM_SETS]; /* the line has values */
    bool has_time, has_accuracy, has_loss, has_error;
} curve;

static void set_values(curve *self, row *to, line_kind set, double loss, double accuracy)
{
    to->loss[set] = loss;
    to->accuracy[set] = accuracy;
    self->has[set] = self->has[set] || isfinite(accuracy) || isfinite(loss);
    self->has_accuracy = self->has_accuracy || isfinite(accuracy);
    self->has_loss = self->has_loss || isfinite(loss);
}

static void set_error(curve *self, row *to, line_kind set, const fedge_metric_values *metrics)
{
    to->error[set] = fedge_metrics_error(metrics, FEDGE_ERROR_MAE);
    self->has_error = self->has_error || isfinite(to->error[set]);
}

static fedge_status add_row(void *user, const fedge_round_summary *summary, fedge_error *err)
{
    curve *self = user;
    if (self->count == MAX_ROUNDS)
        return FEDGE_OK;
    if (self->count == self->capacity) {
        const uint32_t more = self->capacity * 2 + 64;
        row *rows = realloc(self->rows, more * sizeof(*rows));
        if (!rows)
            return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to draw %u rounds", more);
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
        set_values(self, to, (line_kind)set, NAN, NAN);
        to->error[set] = NAN;
    }
    if (summary->kind == FEDGE_TASK_EVALUATE) {
        set_values(self, to, ON_CLIENTS, summary->loss, summary->accuracy);
        set_error(self, to, ON_CLIENTS, &summary->metrics);
        return FEDGE_OK;
    }
    set_values(self, to, ON_TEST_SET, summary->loss, summary->accuracy);
    set_error(self, to, ON_TEST_SET, &summary->metrics);
    set_error(self, to, ON_VALIDATION, &summary->validation.metrics);
    set_values(self, to, WHILE_TRAINING, summary->train_loss, summary->train_accuracy);
    if (summary->validation.present)
        set_values(self, to, ON_VALIDATION, summary->validation.loss, summary->validation.accuracy);
    return FEDGE_OK;
}

/* ---- panels ---------------------------------------------------------------------------------- */

typedef enum x_kind { BY_ROUND, BY_TIME, BY_BYTES } x_kind;
typedef enum y_kind { ACCURACY, LOSS, ERROR, BYTES } y_kind;

static const struct {
    const char *label;
    fedge_chart_unit unit;
} X_AXES[] = {[BY_ROUND] = {"round", FEDGE_CHART_COUNT},
              [BY_TIME] = {"simulated time", FEDGE_CHART_SECONDS},
              [BY_BYTES] = {"bytes sent, up and down", FEDGE_CHART_BYTES}},
  Y_AXES[] = {[ACCURACY] = {"accuracy", FEDGE_CHART_PERCENT},
              [LOSS] = {"loss", FEDGE_CHART_NUMBER},
              [ERROR] = {"mean absolute error", FEDGE_CHART_NUMBER},
              [BYTES] = {"bytes sent", FEDGE_CHART_BYTES}};

static double x_of(const row *at, x_kind x)
{
    return x == BY_ROUND ? at->round : x == BY_TIME ? at->time : at->up + at->down;
}

/* Fills points, of->count at most, and returns their number. */
static uint32_t list_points(const curve *of, line_kind line, x_kind x, y_kind y,
                            fedge_chart_point *points)
{
    uint32_t count = 0;
    for (uint32_t k = 0; k < of->count; k++) {
        const row *at = &of->rows[k];
        const bool goes_on = k + 1 < of->count && !(of->rows[k + 1].round > at->round);
        double value = line == BYTES_UP ? at->up : at->down;
        if (y == BYTES && x == BY_ROUND && goes_on)
            continue; /* a round and its evaluation are one point; two would draw a step */
        if (y != BYTES) {
            value = y == ACCURACY ? at->accuracy[line]
                    : y == ERROR  ? at->error[line]
                                  : at->loss[line];
            if (!isfinite(at->loss[line]) && !isfinite(at->accuracy[line]))
                continue; /* the line skips phases without an evaluation */
        }
        points[count++] = (fedge_chart_point){x_of(at, x), value};
    }
    return count;
}

static bool is_drawn(const curve *of, line_kind line)
{
    return line >= NUM_SETS || of->has[line];
}

/* The kind that determines the style of a line. */
static line_kind style_of(const curve *of, line_kind line)
{
    const bool first = !of->has[ON_TEST_SET] && !of->has[ON_VALIDATION];
    return line == ON_CLIENTS && first ? ON_TEST_SET : line;
}

static fedge_status draw_panel(fedge_buffer *out, const curve *of, fedge_chart chart, x_kind x,
                               y_kind y, fedge_error *err)
{
    const line_kind first = y == BYTES ? BYTES_UP : ON_TEST_SET,
                    end = y == BYTES ? NUM_LINES : NUM_SETS;
    fedge_chart_line lines[NUM_LINES];
    fedge_chart_point *points = malloc((NUM_LINES * (size_t)of->count + 1) * sizeof(*points));
    if (!points)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to draw %u rounds", of->count);
    for (line_kind line = first; line < end; line++) {
        const line_kind style = style_of(of, line);
        fedge_chart_point *line_points = points + line * (size_t)of->count;
        if (is_drawn(of, line)) {
            lines[chart.num_lines++] =
                (fedge_chart_line){.points = line_points,
                                   .count = list_points(of, line, x, y, line_points),
                                   .colour = LINES[style].colour,
                                   .dash = LINES[style].dash,
                                   .thickness = LINES[style].thickness,
                                   .faint = LINES[style].faint};
        }
    }
    chart.x_label = X_AXES[x].label;
    chart.x_unit = X_AXES[x].unit;
    chart.y_label = Y_AXES[y].label;
    chart.y_unit = Y_AXES[y].unit;
    chart.from_zero = y == BYTES;
    chart.lines = lines;
    const fedge_status status = fedge_chart_draw(out, &chart, err);
    free(points);
    return status;
}

/* ---- the page -------------------------------------------------------------------------------- */

static fedge_status draw_legend(fedge_buffer *out, const curve *of, double y, fedge_error *err)
{
    double x = MARGIN;
    for (line_kind line = ON_TEST_SET; line < NUM_LINES; line++) {
        const char *dash = LINES[line].dash ? LINES[line].dash : "";
        if (!is_drawn(of, line))
            continue;
        FEDGE_TRY(fedge_buffer_printf(
            out, err,
            "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" "
            "stroke-width=\"3\"%s%s%s/>",
            x, y - 4.0, x + LEGEND_SAMPLE, y - 4.0, LINES[style_of(of, line)].colour,
            dash[0] ? " stroke-dasharray=\"" : "", dash, dash[0] ? "\"" : ""));
        FEDGE_TRY(fedge_svg_text(out, x + LEGEND_SAMPLE + 6.0, y, "tick", "start", LINES[line].name,
                                 err));
        x += LEGEND_ITEM + LEGEND_CHAR * (double)strlen(LINES[line].name);
    }
    return FEDGE_OK;
}

static fedge_status draw_page(fedge_buffer *out, const curve *of, const char *title,
                              fedge_error *err)
{
    const double pitch_x = FEDGE_CHART_LEFT + PANEL_WIDTH + PANEL_GAP;
    const double pitch_y = FEDGE_CHART_ABOVE + PANEL_HEIGHT + FEDGE_CHART_BELOW + PANEL_GAP;
    const double legend = MARGIN + TITLE + 12.0, top = legend + 18.0;
    const x_kind columns[2] = {BY_ROUND, of->has_time ? BY_TIME : BY_BYTES};
    y_kind rows[4];
    int num_rows = 0;
    /* Regression has losses but no accuracy. */
    if (of->has_accuracy || !of->has_loss)
        rows[num_rows++] = ACCURACY;
    rows[num_rows++] = LOSS;
    if (of->has_error)
        rows[num_rows++] = ERROR;
    rows[num_rows++] = BYTES;
    FEDGE_TRY(fedge_svg_begin(out, MARGIN + pitch_x * 2 + MARGIN - PANEL_GAP,
                              top + pitch_y * num_rows, err));
    FEDGE_TRY(fedge_svg_text(out, MARGIN, MARGIN + 10.0, "title", "start", title, err));
    FEDGE_TRY(draw_legend(out, of, legend, err));
    for (int i = 0; i < num_rows * 2; i++) {
        const int at_row = i / 2, column = i % 2;
        const fedge_chart panel = {.left = MARGIN + pitch_x * column + FEDGE_CHART_LEFT,
                                   .top = top + pitch_y * at_row + FEDGE_CHART_ABOVE,
                                   .width = PANEL_WIDTH,
                                   .height = PANEL_HEIGHT};
        if (rows[at_row] != BYTES || columns[column] != BY_BYTES)
            FEDGE_TRY(draw_panel(out, of, panel, columns[column], rows[at_row], err));
    }
    return fedge_buffer_printf(out, err, "</svg>\n");
}

fedge_status fedge_plot_rounds(const char *jsonl_path, const char *svg_path, const char *title,
                               fedge_error *err)
{
    curve run = {.rows = NULL};
    fedge_buffer out;
    fedge_buffer_init(&out, FEDGE_SVG_MAX_SIZE);
    fedge_status status;
    FEDGE_TRY_OR(fedge_round_lines_read(jsonl_path, add_row, &run, err), end);
    FEDGE_TRY_OR(draw_page(&out, &run, title, err), end);
    status = fedge_os_write_file(svg_path, out.data, out.size, 0644, err);
end:
    fedge_buffer_fini(&out);
    free(run.rows);
    return status;
}
