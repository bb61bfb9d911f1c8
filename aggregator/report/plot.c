#include "aggregator/report/plot.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/report/chart.h"
#include "aggregator/report/curve.h"
#include "aggregator/report/svg.h"
#include "edge/core/bytes.h"
#include "edge/core/os.h"

/* The page, in pixels. */
#define MARGIN 24.0
#define TITLE 26.0
#define LEGEND_LINE 20.0
#define LEGEND_MARK 50.0 /* a sample of the line, and the space behind its name */
#define LEGEND_SAMPLE 26.0
#define LETTER 6.4 /* of the legend, about */
#define PANEL_HEIGHT 170.0
#define PANEL_GAP 18.0
#define TWO_WIDTH 400.0   /* of a panel, of two side by side */
#define THREE_WIDTH 310.0 /* of three */
#define MAX_LINES FEDGE_PLOT_MAX_CURVES
#define MAX_NAME 512 /* of a curve */

#define MEANS                                                                                      \
    "lines: means of runs that differ in their seeds; bands: from the lowest to the highest"

/* Okabe and Ito 2008 (Color Universal Design): for every kind of colour vision another. Their
 * yellow is too light for lines on white. */
#define BLACK "#000000"
#define ORANGE "#e69f00"
#define SKY_BLUE "#56b4e9"
#define GREEN "#009e73"
#define BLUE "#0072b2"
#define VERMILLION "#d55e00"
#define PURPLE "#cc79a7"

static const struct {
    const char *name, *colour;
    double thickness;
    bool faint;
} SETS[FEDGE_CURVE_SETS] = {
    [FEDGE_CURVE_TEST] = {"test set", BLUE, 2.0, false},
    [FEDGE_CURVE_VALIDATION] = {"validation", GREEN, 2.0, false},
    /* A few's: they jump. Where nothing comes before it, it is drawn as a test set would be. */
    [FEDGE_CURVE_CLIENTS] = {"clients' own data", PURPLE, 1.4, true},
    [FEDGE_CURVE_TRAINING] = {"while training", VERMILLION, 1.4, false}};

/* They may be as many: the one above has gaps. */
static const struct {
    const char *name, *colour, *dash;
} DIRECTIONS[2] = {{"bytes up", BLACK, "9 7"}, {"bytes down", SKY_BLUE, NULL}};

/* The first are those that differ most. */
static const char *const COLOURS[] = {BLUE, VERMILLION, GREEN, BLACK, PURPLE, SKY_BLUE, ORANGE};
#define NUM_COLOURS (sizeof(COLOURS) / sizeof(COLOURS[0]))
static const char *const DASHES[] = {NULL, "7 4"};
static_assert(FEDGE_PLOT_MAX_CURVES <= NUM_COLOURS * sizeof(DASHES) / sizeof(DASHES[0]),
              "each curve has its colour and dash");

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
    const fedge_curve *of;
    int which; /* set or direction */
    const char *name, *colour, *dash;
    double thickness;
    bool faint;
    bool whole; /* of its loss all is shown */
} source;

static double x_of(const fedge_curve_row *at, x_kind x)
{
    return x == BY_ROUND ? at->round : x == BY_TIME ? at->time : at->up + at->down;
}

/* The points of a line, and its band if it has one; malloc'ed. */
typedef struct point_list {
    fedge_chart_point *points;
    fedge_chart_range *band;
    uint32_t count;
} point_list;

static void free_points(point_list *list)
{
    free(list->points);
    free(list->band);
}

/* Rows without an evaluation are left out, so that the line goes on. */
static fedge_status list_points(const source *from, x_kind x, y_kind y, point_list *to,
                                fedge_error *err)
{
    const fedge_curve *of = from->of;
    const bool banded = of->num_runs > 1 && y != BYTES;
    const size_t room = (size_t)of->count + 1;
    to->points = malloc(room * sizeof(*to->points));
    to->band = banded ? malloc(room * sizeof(*to->band)) : NULL;
    if (!to->points || (banded && !to->band))
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to draw %u rounds", of->count);
    for (uint32_t k = 0; k < of->count; k++) {
        const fedge_curve_row *at = &of->rows[k];
        const bool goes_on = k + 1 < of->count && !(of->rows[k + 1].round > at->round);
        if (y == BYTES && x == BY_ROUND && goes_on)
            continue; /* with its evaluation it is one round: two points would be a step */
        if (y == BYTES) {
            to->points[to->count++] =
                (fedge_chart_point){x_of(at, x), from->which == 0 ? at->up : at->down};
            continue;
        }
        const fedge_curve_value loss = at->loss[from->which], accuracy = at->accuracy[from->which];
        const fedge_curve_value value = y == ACCURACY ? accuracy : loss;
        if (isfinite(loss.mean) || isfinite(accuracy.mean)) {
            if (to->band)
                to->band[to->count] = (fedge_chart_range){value.low, value.high};
            to->points[to->count++] = (fedge_chart_point){x_of(at, x), value.mean};
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
    point_list lists[MAX_LINES] = {{NULL}};
    fedge_status status = FEDGE_OK;
    for (uint32_t i = 0; i < num_sources && status == FEDGE_OK; i++) {
        status = list_points(&sources[i], x, y, &lists[i], err);
        lines[i] = (fedge_chart_line){.points = lists[i].points,
                                      .band = lists[i].band,
                                      .count = lists[i].count,
                                      .colour = sources[i].colour,
                                      .dash = sources[i].dash,
                                      .thickness = sources[i].thickness,
                                      .faint = sources[i].faint,
                                      .whole = sources[i].whole};
    }
    chart.x_label = X_AXES[x].label;
    chart.x_unit = X_AXES[x].unit;
    chart.y_label = Y_AXES[y].label;
    chart.y_unit = Y_AXES[y].unit;
    chart.from_zero = y == BYTES;
    chart.lines = lines;
    chart.num_lines = num_sources;
    if (status == FEDGE_OK)
        status = fedge_chart_draw(out, &chart, err);
    for (uint32_t i = 0; i < num_sources; i++)
        free_points(&lists[i]);
    return status;
}

/* ---- the page -------------------------------------------------------------------------------- */

typedef struct page {
    const char *title;
    const source *sources; /* of accuracy and loss */
    uint32_t num_sources;
    const source *directions; /* of bytes; NULL: no row of them */
    bool has_means;           /* which the legend explains */
    y_kind rows[3];
    uint32_t num_rows;
    x_kind columns[3];
    uint32_t num_columns;
    double panel_width, width;
} page;

/* As it stands in the legend. */
static const char *name_of(const source *of, char text[MAX_NAME])
{
    (void)snprintf(text, MAX_NAME, of->of->num_runs > 1 ? "%s (mean of %u)" : "%s", of->name,
                   of->of->num_runs);
    return text;
}

static double width_of(const char *name)
{
    return LEGEND_MARK + LETTER * (double)strlen(name);
}

static uint32_t num_names(const page *of)
{
    return of->num_sources + (of->directions ? 2 : 0);
}

static const source *named(const page *of, uint32_t i)
{
    return i < of->num_sources ? &of->sources[i] : &of->directions[i - of->num_sources];
}

static fedge_status draw_name(fedge_buffer *out, const source *of, const char *name, double x,
                              double y, fedge_error *err)
{
    const char *dash = of->dash ? of->dash : "";
    FEDGE_TRY(
        fedge_buffer_printf(out, err,
                            "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" "
                            "stroke-width=\"3\"%s%s%s/>",
                            x, y - 4.0, x + LEGEND_SAMPLE, y - 4.0, of->colour,
                            dash[0] ? " stroke-dasharray=\"" : "", dash, dash[0] ? "\"" : ""));
    return fedge_svg_text(out, x + LEGEND_SAMPLE + 6.0, y, "tick", "start", name, err);
}

/* Names from left to right, in as many lines as they need; [out] NULL: nothing is drawn. *bottom:
 * of the last line. */
static fedge_status draw_legend(fedge_buffer *out, const page *of, double *bottom, fedge_error *err)
{
    double x = MARGIN, y = MARGIN + TITLE + 12.0;
    fedge_status status = FEDGE_OK;
    for (uint32_t i = 0; i < num_names(of) && status == FEDGE_OK; i++) {
        char text[MAX_NAME];
        const char *name = name_of(named(of, i), text);
        if (x > MARGIN && x + width_of(name) > of->width - MARGIN) {
            x = MARGIN;
            y += LEGEND_LINE;
        }
        status = out ? draw_name(out, named(of, i), name, x, y, err) : FEDGE_OK;
        x += width_of(name);
    }
    if (of->has_means) {
        y += LEGEND_LINE;
        status = out && status == FEDGE_OK
                     ? fedge_svg_text(out, MARGIN, y, "tick", "start", MEANS, err)
                     : status;
    }
    *bottom = y;
    return status;
}

/* The panels' width, or that of a name which is longer. */
static double page_width(const page *of, double pitch)
{
    double width = MARGIN + pitch * of->num_columns + MARGIN - PANEL_GAP;
    for (uint32_t i = 0; i < num_names(of); i++) {
        char text[MAX_NAME];
        width = fmax(width, MARGIN + width_of(name_of(named(of, i), text)) + MARGIN);
    }
    return width;
}

static fedge_status draw_page(fedge_buffer *out, page *of, fedge_error *err)
{
    const double pitch_x = FEDGE_CHART_LEFT + of->panel_width + PANEL_GAP;
    const double pitch_y = FEDGE_CHART_ABOVE + PANEL_HEIGHT + FEDGE_CHART_BELOW + PANEL_GAP;
    double legend = 0.0;
    of->width = page_width(of, pitch_x);
    fedge_status status = draw_legend(NULL, of, &legend, err);
    const double top = legend + 18.0;
    if (status == FEDGE_OK)
        status = fedge_svg_begin(out, of->width, top + pitch_y * of->num_rows, err);
    if (status == FEDGE_OK)
        status = fedge_svg_text(out, MARGIN, MARGIN + 10.0, "title", "start", of->title, err);
    if (status == FEDGE_OK)
        status = draw_legend(out, of, &legend, err);
    for (uint32_t i = 0; i < of->num_rows * of->num_columns && status == FEDGE_OK; i++) {
        const uint32_t r = i / of->num_columns, c = i % of->num_columns;
        const y_kind y = of->rows[r];
        const fedge_chart place = {.left = MARGIN + pitch_x * c + FEDGE_CHART_LEFT,
                                   .top = top + pitch_y * r + FEDGE_CHART_ABOVE,
                                   .width = of->panel_width,
                                   .height = PANEL_HEIGHT};
        if (y == BYTES && of->columns[c] == BY_BYTES)
            continue; /* bytes over bytes */
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
    if (has_accuracy || !has_loss)
        of->rows[of->num_rows++] = ACCURACY;
    of->rows[of->num_rows++] = LOSS;
    if (of->directions)
        of->rows[of->num_rows++] = BYTES;
}

static fedge_status write_page(page *of, const char *svg_path, fedge_error *err)
{
    fedge_buffer out;
    fedge_buffer_init(&out, FEDGE_SVG_MAX_SIZE);
    choose_rows(of);
    fedge_status status = draw_page(&out, of, err);
    if (status == FEDGE_OK)
        status = fedge_os_write_file(svg_path, out.data, out.size, 0644, err);
    fedge_buffer_fini(&out);
    return status;
}

fedge_status fedge_plot_rounds(const char *jsonl_path, const char *svg_path, const char *title,
                               fedge_error *err)
{
    fedge_curve curve = {.rows = NULL};
    source sets[FEDGE_CURVE_SETS], directions[2];
    page of = {.title = title,
               .sources = sets,
               .directions = directions,
               .num_columns = 2,
               .panel_width = TWO_WIDTH};
    fedge_status status = fedge_curve_read(&jsonl_path, 1, &curve, err);
    const int best = (int)fedge_curve_best_set(&curve);
    for (int set = 0; set < FEDGE_CURVE_SETS; set++) {
        if (curve.has[set]) {
            const bool leads = set == best && set == FEDGE_CURVE_CLIENTS;
            const int like = leads ? FEDGE_CURVE_TEST : set;
            sets[of.num_sources++] =
                (source){.of = &curve,
                         .which = set,
                         .name = SETS[set].name,
                         .colour = SETS[like].colour,
                         .thickness = SETS[like].thickness,
                         .faint = SETS[like].faint,
                         .whole = like == FEDGE_CURVE_TEST || like == FEDGE_CURVE_VALIDATION};
        }
    }
    for (int d = 0; d < 2; d++) {
        directions[d] = (source){.of = &curve,
                                 .which = d,
                                 .name = DIRECTIONS[d].name,
                                 .colour = DIRECTIONS[d].colour,
                                 .dash = DIRECTIONS[d].dash,
                                 .thickness = 2.0};
    }
    of.columns[0] = BY_ROUND;
    of.columns[1] = curve.has_time ? BY_TIME : BY_BYTES;
    if (status == FEDGE_OK)
        status = write_page(&of, svg_path, err);
    fedge_curve_fini(&curve);
    return status;
}

fedge_status fedge_plot_curves(const fedge_plot_curve *curves, uint32_t num_curves,
                               const char *svg_path, const char *title, fedge_error *err)
{
    fedge_curve read[FEDGE_PLOT_MAX_CURVES] = {{NULL}};
    source sources[FEDGE_PLOT_MAX_CURVES];
    page of = {.title = title,
               .sources = sources,
               .num_sources = num_curves,
               .columns = {BY_ROUND, BY_BYTES, BY_TIME}};
    bool timed = true;
    if (num_curves == 0 || num_curves > FEDGE_PLOT_MAX_CURVES) {
        return fedge_fail(err, FEDGE_OUT_OF_RANGE,
                          "%u curves in a picture: 1 to %d; draw fewer at a time", num_curves,
                          FEDGE_PLOT_MAX_CURVES);
    }
    fedge_status status = FEDGE_OK;
    for (uint32_t i = 0; i < num_curves && status == FEDGE_OK; i++) {
        status = fedge_curve_read(curves[i].jsonl_paths, curves[i].num_runs, &read[i], err);
        sources[i] = (source){.of = &read[i],
                              .which = (int)fedge_curve_best_set(&read[i]),
                              .name = curves[i].name,
                              .colour = COLOURS[i % NUM_COLOURS],
                              .dash = DASHES[i / NUM_COLOURS],
                              .thickness = 2.0,
                              .whole = true};
        timed = timed && read[i].has_time;
        of.has_means = of.has_means || read[i].num_runs > 1;
    }
    of.num_columns = timed ? 3 : 2;
    of.panel_width = timed ? THREE_WIDTH : TWO_WIDTH;
    if (status == FEDGE_OK)
        status = write_page(&of, svg_path, err);
    for (uint32_t i = 0; i < num_curves; i++)
        fedge_curve_fini(&read[i]);
    return status;
}
