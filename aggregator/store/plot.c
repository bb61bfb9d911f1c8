#include "aggregator/store/plot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/store/json_file.h"
#include "aggregator/store/round_log.h"
#include "aggregator/store/svg.h"
#include "edge/core/bytes.h"
#include "edge/core/os.h"
#include "edge/io/json.h"

/* The page, in pixels. */
#define WIDTH 720.0
#define HEIGHT 560.0
#define LEFT 70.0
#define RIGHT 24.0
#define TOP 48.0
#define PANEL_HEIGHT 200.0
#define PANEL_GAP 48.0
#define LIST_LINE 18.0

typedef struct point {
    double round, loss, accuracy; /* NaN: not known */
} point;

typedef struct curve {
    point *points;
    uint32_t count;
} curve;

/* One of the two stacked diagrams. */
typedef struct panel {
    const char *label;
    size_t value; /* offset in point */
    double top;   /* of the panel, in pixels */
    double max_round, low, high;
} panel;

/* What is drawn. */
typedef struct picture {
    const char *title;
    const curve *curves;
    const char *const *names; /* of the curves */
    uint32_t num_curves;
    bool listed; /* names stand below, one a line, and not beside the title */
} picture;

static const char *const colours[FEDGE_PLOT_MAX_RUNS] = {"#1f5fa8", "#c2571a", "#2b8a3e", "#862e9c",
                                                         "#c92a2a", "#0b7285", "#e67700", "#5c5f66",
                                                         "#d6336c", "#66a80f"};

/* ---- reading --------------------------------------------------------------------------------- */

/* Adds the line to curves[0] (train phases) or curves[1] (evaluations). */
static fedge_status read_line(const char *line, size_t size, curve curves[2], fedge_error *err)
{
    fedge_json json;
    const fedge_json_options options = {.name = "rounds.jsonl",
                                        .status = FEDGE_CORRUPT,
                                        .max_size = FEDGE_ROUND_LOG_MAX_LINE,
                                        .max_depth = FEDGE_JSON_MAX_DEPTH,
                                        .max_values = 1024};
    fedge_status status = fedge_json_open(&json, line, size, &options, err);
    if (status != FEDGE_OK) {
        return status;
    }
    const cJSON *phase = fedge_json_get(json.root, "phase");
    bool evaluation = cJSON_IsString(phase) && strcmp(phase->valuestring, "evaluate") == 0;
    curve *to = &curves[evaluation];
    if (to->count < FEDGE_PLOT_MAX_ROUNDS) {
        to->points[to->count++] = (point){.round = fedge_json_number(json.root, "round"),
                                          .loss = fedge_json_number(json.root, "loss"),
                                          .accuracy = fedge_json_number(json.root, "accuracy")};
    }
    fedge_json_close(&json);
    return FEDGE_OK;
}

static fedge_status read_curves(const char *path, curve curves[2], fedge_error *err)
{
    uint8_t *text = NULL;
    size_t size = 0;
    fedge_status status = fedge_os_read_file(path, FEDGE_ROUND_LOG_MAX_SIZE, &text, &size, err);
    if (status != FEDGE_OK) {
        return status;
    }
    uint32_t lines = 1;
    for (size_t i = 0; i < size; i++) {
        lines += text[i] == '\n' && lines < FEDGE_PLOT_MAX_ROUNDS;
    }
    for (int i = 0; i < 2 && status == FEDGE_OK; i++) {
        curves[i].points = calloc(lines, sizeof(point));
        if (!curves[i].points) {
            status = fedge_fail(err, FEDGE_NO_MEMORY, "no memory to draw %u rounds", lines);
        }
    }
    size_t start = 0;
    while (status == FEDGE_OK && start < size) {
        const uint8_t *end = memchr(text + start, '\n', size - start);
        size_t length = end ? (size_t)(end - text) - start : size - start;
        if (length > 0) {
            status = read_line((const char *)text + start, length, curves, err);
        }
        start += length + 1;
    }
    free(text);
    return status;
}

/* ---- drawing --------------------------------------------------------------------------------- */

static double value_of(const point *at, const panel *in)
{
    double value;
    memcpy(&value, (const char *)at + in->value, sizeof(value));
    return value;
}

static double pixel_x(const panel *in, double round)
{
    double span = in->max_round > 1.0 ? in->max_round - 1.0 : 1.0;
    return LEFT + (round - 1.0) / span * (WIDTH - LEFT - RIGHT);
}

static double pixel_y(const panel *in, double value)
{
    return in->top + PANEL_HEIGHT * (1.0 - (value - in->low) / (in->high - in->low));
}

/* Sets the panel's range so that all values are inside, ending at ticks. */
static void fit(panel *to, const curve *curves, uint32_t num_curves)
{
    double low = INFINITY, high = -INFINITY;
    to->max_round = 1.0;
    for (uint32_t i = 0; i < num_curves; i++) {
        for (uint32_t k = 0; k < curves[i].count; k++) {
            double value = value_of(&curves[i].points[k], to);
            to->max_round = fmax(to->max_round, curves[i].points[k].round);
            if (isfinite(value)) {
                low = fmin(low, value);
                high = fmax(high, value);
            }
        }
    }
    if (!(low <= high)) {
        low = 0.0;
        high = 1.0;
    }
    double step = fedge_svg_tick_step(fmax(high - low, 1e-6 + 1e-3 * fabs(high)));
    to->low = floor(low / step) * step;
    to->high = ceil(high / step) * step;
    if (to->high <= to->low) {
        to->high = to->low + step;
    }
}

static fedge_status draw_axes(fedge_buffer *out, const panel *in, fedge_error *err)
{
    double step = fedge_svg_tick_step(in->high - in->low);
    int decimals = fedge_svg_tick_decimals(step);
    fedge_status status =
        fedge_buffer_printf(out, err, "<text x=\"%g\" y=\"%g\" class=\"label\">%s</text>\n", LEFT,
                            in->top - 10.0, in->label);
    for (double tick = in->low; tick <= in->high + step / 2 && status == FEDGE_OK; tick += step) {
        double y = pixel_y(in, tick);
        status = fedge_buffer_printf(
            out, err,
            "<line x1=\"%g\" y1=\"%.1f\" x2=\"%g\" y2=\"%.1f\" class=\"grid\"/>"
            "<text x=\"%g\" y=\"%.1f\" class=\"tick\" text-anchor=\"end\">%.*f</text>\n",
            LEFT, y, WIDTH - RIGHT, y, LEFT - 8.0, y + 4.0, decimals, tick);
    }
    double step_x = fmax(1.0, fedge_svg_tick_step(fmax(in->max_round - 1.0, 1.0)));
    for (double round = 1.0; round <= in->max_round && status == FEDGE_OK;
         round = round == 1.0 && step_x > 1.0 ? step_x : round + step_x) {
        status = fedge_buffer_printf(
            out, err,
            "<text x=\"%.1f\" y=\"%g\" class=\"tick\" text-anchor=\"middle\">%.0f</text>\n",
            pixel_x(in, round), in->top + PANEL_HEIGHT + 18.0, round);
    }
    return status;
}

static fedge_status draw_curve(fedge_buffer *out, const panel *in, const curve *line,
                               const char *colour, fedge_error *err)
{
    fedge_status status = fedge_buffer_printf(
        out, err, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"2\" d=\"", colour);
    bool down = false;
    for (uint32_t k = 0; k < line->count && status == FEDGE_OK; k++) {
        double value = value_of(&line->points[k], in);
        if (isfinite(value)) {
            status = fedge_buffer_printf(out, err, "%c%.1f %.1f ", down ? 'L' : 'M',
                                         pixel_x(in, line->points[k].round), pixel_y(in, value));
        }
        down = isfinite(value);
    }
    if (status == FEDGE_OK) {
        status = fedge_buffer_printf(out, err, "\"/>\n");
    }
    for (uint32_t k = 0; k < line->count && line->count <= 60 && status == FEDGE_OK; k++) {
        double value = value_of(&line->points[k], in);
        if (isfinite(value)) {
            status = fedge_buffer_printf(
                out, err, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n",
                pixel_x(in, line->points[k].round), pixel_y(in, value), colour);
        }
    }
    return status;
}

static fedge_status draw_name(fedge_buffer *out, const picture *of, uint32_t i, double x, double y,
                              fedge_error *err)
{
    fedge_status status = fedge_buffer_printf(
        out, err, "<rect x=\"%g\" y=\"%g\" width=\"12\" height=\"12\" fill=\"%s\"/>", x, y - 10.0,
        colours[i]);
    return status == FEDGE_OK ? fedge_svg_text(out, x + 18.0, y, "tick", "start", of->names[i], err)
                              : status;
}

static fedge_status draw_legend(fedge_buffer *out, const picture *of, fedge_error *err)
{
    fedge_status status = FEDGE_OK;
    double x = WIDTH - RIGHT - 130.0;
    for (uint32_t i = of->num_curves; i-- > 0 && status == FEDGE_OK;) {
        if (of->listed) {
            status = draw_name(out, of, i, LEFT, HEIGHT + LIST_LINE * (i + 0.5), err);
        } else if (of->curves[i].count > 0 && of->curves[1].count > 0) {
            status = draw_name(out, of, i, x, 24.0, err);
            x -= 110.0;
        }
    }
    return status;
}

static fedge_status draw(fedge_buffer *out, const picture *of, fedge_error *err)
{
    panel panels[2] = {{.label = "accuracy", .value = offsetof(point, accuracy), .top = TOP + 14.0},
                       {.label = "loss",
                        .value = offsetof(point, loss),
                        .top = TOP + 14.0 + PANEL_HEIGHT + PANEL_GAP}};
    const double below = of->listed ? LIST_LINE * (of->num_curves + 0.5) : 0.0;
    fedge_status status = fedge_svg_begin(out, WIDTH, HEIGHT + below, err);
    if (status == FEDGE_OK) {
        status = fedge_svg_text(out, LEFT, 24.0, "title", "start", of->title, err);
    }
    if (status == FEDGE_OK) {
        status = draw_legend(out, of, err);
    }
    for (int p = 0; p < 2 && status == FEDGE_OK; p++) {
        fit(&panels[p], of->curves, of->num_curves);
        status = draw_axes(out, &panels[p], err);
        for (uint32_t i = 0; i < of->num_curves && status == FEDGE_OK; i++) {
            status = draw_curve(out, &panels[p], &of->curves[i], colours[i], err);
        }
    }
    if (status == FEDGE_OK) {
        status = fedge_buffer_printf(
            out, err,
            "<text x=\"%g\" y=\"%g\" class=\"label\" text-anchor=\"middle\">round</text>\n</svg>\n",
            (LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 12.0);
    }
    return status;
}

static fedge_status write_picture(const picture *of, const char *svg_path, fedge_error *err)
{
    fedge_buffer out;
    fedge_buffer_init(&out, FEDGE_SVG_MAX_SIZE);
    fedge_status status = draw(&out, of, err);
    if (status == FEDGE_OK) {
        status = fedge_os_write_file(svg_path, out.data, out.size, 0644, err);
    }
    fedge_buffer_fini(&out);
    return status;
}

fedge_status fedge_plot_rounds(const char *jsonl_path, const char *svg_path, const char *title,
                               fedge_error *err)
{
    static const char *const names[] = {"test set", "clients' own data"};
    curve curves[2] = {{0}};
    const picture of = {.title = title, .curves = curves, .names = names, .num_curves = 2};
    fedge_status status = read_curves(jsonl_path, curves, err);
    if (status == FEDGE_OK) {
        status = write_picture(&of, svg_path, err);
    }
    free(curves[0].points);
    free(curves[1].points);
    return status;
}

fedge_status fedge_plot_runs(const char *const *jsonl_paths, const char *const *names,
                             uint32_t num_runs, const char *svg_path, const char *title,
                             fedge_error *err)
{
    curve tested[FEDGE_PLOT_MAX_RUNS] = {{0}};
    const picture of = {
        .title = title, .curves = tested, .names = names, .num_curves = num_runs, .listed = true};
    if (num_runs == 0 || num_runs > FEDGE_PLOT_MAX_RUNS) {
        return fedge_fail(err, FEDGE_OUT_OF_RANGE, "%u runs in a picture: 1 to %d", num_runs,
                          FEDGE_PLOT_MAX_RUNS);
    }
    fedge_status status = FEDGE_OK;
    for (uint32_t i = 0; i < num_runs && status == FEDGE_OK; i++) {
        curve both[2] = {{0}};
        status = read_curves(jsonl_paths[i], both, err);
        tested[i] = both[0];
        free(both[1].points);
    }
    if (status == FEDGE_OK) {
        status = write_picture(&of, svg_path, err);
    }
    for (uint32_t i = 0; i < num_runs; i++) {
        free(tested[i].points);
    }
    return status;
}
