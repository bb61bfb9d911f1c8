#include "aggregator/store/chart.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "aggregator/store/svg.h"

#define MAX_DOTTED 60u   /* points of a line that have dots */
#define CUT_MEDIANS 20.0 /* values over so many medians are cut off */
#define MAX_TICKS 64     /* at an axis; steps leave far fewer */
#define MAX_LABEL 96

/* Values from [low] to [high], written divided by [scale]. */
typedef struct axis {
    double low, high, scale, step; /* step: of ticks, in written units */
    const char *unit;              /* "": none */
    bool cut;                      /* there are values above */
} axis;

/* ---- axes ------------------------------------------------------------------------------------ */

static void choose_unit(axis *to, fedge_chart_unit unit)
{
    static const struct {
        fedge_chart_unit of;
        double from, scale;
        const char *name;
    } UNITS[] = {{FEDGE_CHART_BYTES, 0, 1, "B"},
                 {FEDGE_CHART_BYTES, 1e3, 1e3, "kB"},
                 {FEDGE_CHART_BYTES, 1e6, 1e6, "MB"},
                 {FEDGE_CHART_BYTES, 1e9, 1e9, "GB"},
                 {FEDGE_CHART_BYTES, 1e12, 1e12, "TB"},
                 {FEDGE_CHART_BYTES, 1e15, 1e15, "PB"},
                 {FEDGE_CHART_SECONDS, 0, 1, "s"},
                 {FEDGE_CHART_SECONDS, 180, 60, "min"},
                 {FEDGE_CHART_SECONDS, 3 * 3600, 3600, "h"},
                 {FEDGE_CHART_SECONDS, 3 * 86400, 86400, "d"},
                 {FEDGE_CHART_SHARE, 0, 0.01, "%"}};
    to->scale = 1.0;
    to->unit = "";
    for (size_t u = 0; u < sizeof(UNITS) / sizeof(UNITS[0]); u++) {
        if (UNITS[u].of == unit && to->high >= UNITS[u].from) {
            to->scale = UNITS[u].scale;
            to->unit = UNITS[u].name;
        }
    }
}

static axis fit_x(const fedge_chart *chart)
{
    axis x = {.high = 0.0};
    for (uint32_t i = 0; i < chart->num_lines; i++) {
        const fedge_chart_line *line = &chart->lines[i];
        x.high = line->count > 0 ? fmax(x.high, line->points[line->count - 1].x) : x.high;
    }
    x.high = x.high > 0.0 ? x.high : 1.0;
    choose_unit(&x, chart->x_unit);
    x.step = fedge_svg_tick_step(x.high / x.scale);
    x.step = chart->x_unit == FEDGE_CHART_COUNT ? fmax(1.0, x.step) : x.step;
    return x;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The finite values of a line in their order, in [room]; returns how many. */
static size_t sort_values(const fedge_chart_line *line, double *room)
{
    size_t count = 0;
    for (uint32_t k = 0; k < line->count; k++) {
        if (isfinite(line->points[k].y)) {
            room[count++] = line->points[k].y;
        }
    }
    qsort(room, count, sizeof(*room), by_value);
    return count;
}

/* The range of all values, and the least of the lines' medians over 0; false without any. */
static bool find_range(const fedge_chart *chart, double *room, double *low, double *high,
                       double *median)
{
    *low = *median = INFINITY;
    *high = -INFINITY;
    for (uint32_t i = 0; i < chart->num_lines; i++) {
        const size_t count = sort_values(&chart->lines[i], room);
        if (count > 0) {
            const double middle = room[count / 2];
            *low = fmin(*low, room[0]);
            *high = fmax(*high, room[count - 1]);
            *median = middle > 0.0 ? fmin(*median, middle) : *median;
        }
    }
    return *low <= *high;
}

static fedge_status fit_y(const fedge_chart *chart, axis *y, fedge_error *err)
{
    uint32_t longest = 1;
    double low, high, median;
    for (uint32_t i = 0; i < chart->num_lines; i++) {
        longest = chart->lines[i].count > longest ? chart->lines[i].count : longest;
    }
    double *room = malloc(longest * sizeof(*room));
    if (!room) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to draw curves");
    }
    if (!find_range(chart, room, &low, &high, &median)) {
        low = 0.0;
        high = 1.0;
    }
    free(room);
    *y = (axis){.low = chart->from_zero ? 0.0 : low, .high = high};
    if (chart->y_unit == FEDGE_CHART_NUMBER && y->high > CUT_MEDIANS * median) {
        y->high = CUT_MEDIANS * median;
        y->cut = true;
    }
    choose_unit(y, chart->y_unit);
    low = y->low / y->scale;
    high = y->high / y->scale;
    y->step = fedge_svg_tick_step(fmax(high - low, 1e-6 + 1e-3 * fabs(high)));
    y->low = floor(low / y->step) * y->step * y->scale;
    y->high = ceil(high / y->step) * y->step * y->scale;
    if (!(y->high > y->low)) {
        y->high = y->low + y->step * y->scale;
    }
    return FEDGE_OK;
}

static double pixel_x(const fedge_chart *in, const axis *x, double value)
{
    return in->left + (value - x->low) / (x->high - x->low) * in->width;
}

static double pixel_y(const fedge_chart *in, const axis *y, double value)
{
    return in->top + in->height * (1.0 - (value - y->low) / (y->high - y->low));
}

static fedge_status draw_label(fedge_buffer *out, double x, double y, const char *anchor,
                               const char *label, const axis *of, fedge_error *err)
{
    char text[MAX_LABEL];
    (void)snprintf(text, sizeof(text), "%s%s%s%s%s", label, of->unit[0] ? " (" : "", of->unit,
                   of->unit[0] ? ")" : "", of->cut ? ", cut off above" : "");
    return fedge_svg_text(out, x, y, "label", anchor, text, err);
}

static fedge_status draw_axes(fedge_buffer *out, const fedge_chart *in, const axis *x,
                              const axis *y, fedge_error *err)
{
    const double bottom = in->top + in->height;
    fedge_status status =
        draw_label(out, in->left - 40.0, in->top - 12.0, "start", in->y_label, y, err);
    if (status == FEDGE_OK) {
        status = draw_label(out, in->left + in->width / 2.0, bottom + 34.0, "middle", in->x_label,
                            x, err);
    }
    const double first = round(y->low / y->scale / y->step);
    for (int i = 0; i < MAX_TICKS && status == FEDGE_OK; i++) {
        const double tick = (first + i) * y->step, at = pixel_y(in, y, tick * y->scale);
        if (at < in->top - 0.5) {
            break;
        }
        status = fedge_buffer_printf(
            out, err,
            "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"grid\"/>"
            "<text x=\"%.1f\" y=\"%.1f\" class=\"tick\" text-anchor=\"end\">%.*f</text>\n",
            in->left, at, in->left + in->width, at, in->left - 8.0, at + 4.0,
            fedge_svg_tick_decimals(y->step), tick);
    }
    for (int i = 0; i < MAX_TICKS && status == FEDGE_OK; i++) {
        const double tick = i * x->step, at = pixel_x(in, x, tick * x->scale);
        if (at > in->left + in->width + 0.5) {
            break;
        }
        status = fedge_buffer_printf(
            out, err,
            "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#888\"/>"
            "<text x=\"%.1f\" y=\"%.1f\" class=\"tick\" text-anchor=\"middle\">%.*f</text>\n",
            at, bottom, at, bottom + 4.0, at, bottom + 17.0, fedge_svg_tick_decimals(x->step),
            tick);
    }
    return status;
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* A path as it is written. */
typedef struct pen {
    fedge_buffer *out;
    const fedge_chart *in;
    const axis *x, *y;
    bool down;
} pen;

static fedge_status draw_to(pen *at, const fedge_chart_point *point, fedge_error *err)
{
    const bool there = isfinite(point->y);
    fedge_status status = FEDGE_OK;
    if (there) {
        const double y = pixel_y(at->in, at->y, point->y);
        status = fedge_buffer_printf(at->out, err, "%c%.1f %.1f ", at->down ? 'L' : 'M',
                                     pixel_x(at->in, at->x, point->x),
                                     fmax(y, at->in->top - 4.0 * at->in->height));
    }
    at->down = there;
    return status;
}

/* The points [from, to), which share a column of pixels, in at most four of them. */
static fedge_status draw_column(pen *at, const fedge_chart_point *points, uint32_t from,
                                uint32_t to, fedge_error *err)
{
    uint32_t low = from, high = from;
    fedge_status status = FEDGE_OK;
    for (uint32_t k = from; k < to; k++) {
        if (!isfinite(points[k].y)) { /* so rare that what is around it may stand in full */
            for (; from < to && status == FEDGE_OK; from++) {
                status = draw_to(at, &points[from], err);
            }
            return status;
        }
        low = points[k].y < points[low].y ? k : low;
        high = points[k].y > points[high].y ? k : high;
    }
    const uint32_t chosen[] = {from, low < high ? low : high, low < high ? high : low, to - 1};
    for (int i = 0; i < 4 && status == FEDGE_OK; i++) {
        if (i == 0 || chosen[i] != chosen[i - 1]) {
            status = draw_to(at, &points[chosen[i]], err);
        }
    }
    return status;
}

static fedge_status draw_dots(pen *at, const fedge_chart_line *line, fedge_error *err)
{
    const double radius = line->thickness * (line->dashed ? 0.75 : 1.25);
    fedge_status status = FEDGE_OK;
    for (uint32_t k = 0; k < line->count && status == FEDGE_OK; k++) {
        const fedge_chart_point *point = &line->points[k];
        const bool alone =
            (k == 0 || !isfinite(point[-1].y)) && (k + 1 == line->count || !isfinite(point[1].y));
        if (isfinite(point->y) && point->y <= at->y->high && (alone || line->count <= MAX_DOTTED)) {
            status = fedge_buffer_printf(
                at->out, err, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" fill=\"%s\"/>\n",
                pixel_x(at->in, at->x, point->x), pixel_y(at->in, at->y, point->y), radius,
                line->colour);
        }
    }
    return status;
}

static fedge_status draw_line(pen *at, const fedge_chart_line *line, fedge_error *err)
{
    const bool thin = line->count > 4.0 * at->in->width;
    fedge_status status = fedge_buffer_printf(
        at->out, err,
        "<path fill=\"none\" stroke=\"%s\" stroke-width=\"%.1f\"%s%s stroke-linejoin=\"round\" "
        "d=\"",
        line->colour, line->thickness, line->faint ? " stroke-opacity=\"0.5\"" : "",
        line->dashed ? " stroke-dasharray=\"9 7\"" : "");
    at->down = false;
    for (uint32_t from = 0, to; from < line->count && status == FEDGE_OK; from = to) {
        const double column = floor(pixel_x(at->in, at->x, line->points[from].x));
        to = from + 1;
        while (thin && to < line->count &&
               floor(pixel_x(at->in, at->x, line->points[to].x)) <= column) {
            to++;
        }
        status = draw_column(at, line->points, from, to, err);
    }
    if (status == FEDGE_OK) {
        status = fedge_buffer_printf(at->out, err, "\"/>\n");
    }
    return status == FEDGE_OK ? draw_dots(at, line, err) : status;
}

fedge_status fedge_chart_draw(fedge_buffer *out, const fedge_chart *chart, fedge_error *err)
{
    axis y = {.low = 0.0};
    const axis x = fit_x(chart);
    pen at = {.out = out, .in = chart, .x = &x, .y = &y};
    fedge_status status = fit_y(chart, &y, err);
    if (status == FEDGE_OK) {
        status = draw_axes(out, chart, &x, &y, err);
    }
    if (status == FEDGE_OK) { /* what is cut off stays inside */
        status = fedge_buffer_printf(
            out, err,
            "<svg x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" viewBox=\"%.1f %.1f %.1f "
            "%.1f\">\n",
            chart->left - 5.0, chart->top - 5.0, chart->width + 10.0, chart->height + 10.0,
            chart->left - 5.0, chart->top - 5.0, chart->width + 10.0, chart->height + 10.0);
    }
    for (uint32_t i = chart->num_lines; i-- > 0 && status == FEDGE_OK;) {
        status = draw_line(&at, &chart->lines[i], err);
    }
    return status == FEDGE_OK ? fedge_buffer_printf(out, err, "</svg>\n") : status;
}
