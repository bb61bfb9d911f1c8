#include "aggregator/report/chart.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "aggregator/report/svg.h"

#define MAX_DOTTED 60u /* points of a line that have dots */
#define MAX_TICKS 64   /* at an axis; steps leave far fewer */
#define MAX_LABEL 96
#define MAX_TICK_LABEL 32
#define FINE_DECADES 3.0 /* up to this many powers of ten have ticks between them */
#define MAX_DECADE_TICKS 8
#define SHORT_DECADES 3 /* 0.001 and 1000 are written in full, others with an exponent */

/* Values from [low] to [high], written divided by [scale]. */
typedef struct axis {
    double low, high, scale;
    double step;      /* of ticks, in written units; of a logarithmic axis in powers of ten */
    const char *unit; /* "": none */
    bool logarithmic; /* then low > 0 */
    bool cut;         /* there are values below */
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

/* What the values of all lines are, with their bands. */
typedef struct extent {
    double low, high;
    double positive; /* the least over 0 */
    double whole;    /* the least of lines that are whole; without any that is positive */
} extent;

static void extend(extent *to, double value, bool whole)
{
    to->low = fmin(to->low, value);
    to->high = fmax(to->high, value);
    to->positive = value > 0.0 ? fmin(to->positive, value) : to->positive;
    to->whole = whole ? fmin(to->whole, value) : to->whole;
}

/* From 0 to 1 without any value. */
static extent find_extent(const fedge_chart *chart)
{
    extent of = {INFINITY, -INFINITY, INFINITY, INFINITY};
    for (uint32_t i = 0; i < chart->num_lines; i++) {
        const fedge_chart_line *line = &chart->lines[i];
        for (uint32_t k = 0; k < line->count; k++) {
            if (isfinite(line->points[k].y)) {
                extend(&of, line->points[k].y, line->whole);
                extend(&of, line->band ? line->band[k].low : line->points[k].y, line->whole);
                extend(&of, line->band ? line->band[k].high : line->points[k].y, line->whole);
            }
        }
    }
    of.whole = isfinite(of.whole) ? of.whole : of.positive;
    return of.low <= of.high ? of : (extent){0.0, 1.0, 1.0, 0.0};
}

/* The largest of 1, 2 and 5 times powers of ten that is at most [value]; [up]: the smallest that is
 * at least that. */
static double round_value(double value, bool up)
{
    static const double STEPS[] = {1.0, 2.0, 5.0, 10.0};
    const double power = pow(10.0, floor(log10(value)));
    double found = power;
    for (int i = 0; i < 4; i++) {
        const double step = power * STEPS[i];
        if (up ? step >= value * (1.0 - 1e-9) : step <= value * (1.0 + 1e-9)) {
            found = step;
            if (up)
                break;
        }
    }
    return found;
}

static axis fit_logarithmic(const extent *of)
{
    const double least = of->high * pow(10.0, -FEDGE_CHART_MAX_DECADES);
    const double low = fmin(fmax(of->positive, least), of->whole);
    axis y = {
        .low = round_value(low, false), .high = round_value(of->high, true), .logarithmic = true};
    y.cut = of->low < y.low * (1.0 - 1e-9);
    const double decades = log10(y.high / y.low);
    y.step = decades <= FINE_DECADES ? 0.0 : ceil(decades / MAX_DECADE_TICKS);
    return y;
}

static axis fit_y(const fedge_chart *chart)
{
    const extent of = find_extent(chart);
    axis y = {.low = chart->from_zero ? 0.0 : of.low, .high = of.high};
    if (chart->y_unit == FEDGE_CHART_NUMBER && !chart->from_zero && of.low >= 0.0 &&
        of.whole > 0.0 && of.high > FEDGE_CHART_LOG_RATIO * of.whole) {
        y = fit_logarithmic(&of);
        choose_unit(&y, chart->y_unit);
        return y;
    }
    choose_unit(&y, chart->y_unit);
    const double low = y.low / y.scale, high = y.high / y.scale;
    y.step = fedge_svg_tick_step(fmax(high - low, 1e-6 + 1e-3 * fabs(high)));
    y.low = floor(low / y.step) * y.step * y.scale;
    y.high = ceil(high / y.step) * y.step * y.scale;
    if (!(y.high > y.low))
        y.high = y.low + y.step * y.scale;
    return y;
}

static double pixel_x(const fedge_chart *in, const axis *x, double value)
{
    return in->left + (value - x->low) / (x->high - x->low) * in->width;
}

static double pixel_y(const fedge_chart *in, const axis *y, double value)
{
    const double share = y->logarithmic ? log(value / y->low) / log(y->high / y->low)
                                        : (value - y->low) / (y->high - y->low);
    return in->top + in->height * (1.0 - fmax(share, 0.0));
}

static fedge_status draw_label(fedge_buffer *out, double x, double y, const char *anchor,
                               const char *label, const axis *of, fedge_error *err)
{
    char text[MAX_LABEL];
    (void)snprintf(text, sizeof(text), "%s%s%s%s%s%s", label, of->unit[0] ? " (" : "", of->unit,
                   of->unit[0] ? ")" : "", of->logarithmic ? ", logarithmic" : "",
                   of->cut ? ", cut off below" : "");
    return fedge_svg_text(out, x, y, "label", anchor, text, err);
}

static fedge_status draw_y_tick(fedge_buffer *out, const fedge_chart *in, double at,
                                const char *text, fedge_error *err)
{
    return fedge_buffer_printf(
        out, err,
        "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"grid\"/>"
        "<text x=\"%.1f\" y=\"%.1f\" class=\"tick\" text-anchor=\"end\">%s</text>\n",
        in->left, at, in->left + in->width, at, in->left - 8.0, at + 4.0, text);
}

/* At powers of ten, or where there are few at 2 and 5 times them too. */
static fedge_status draw_decades(fedge_buffer *out, const fedge_chart *in, const axis *y,
                                 fedge_error *err)
{
    static const int FACTORS[] = {1, 2, 5};
    const int step = y->step > 0.0 ? (int)y->step : 1;
    const int first = (int)floor(log10(y->low) + 1e-9);
    fedge_status status = FEDGE_OK;
    for (int i = 0; i < MAX_TICKS && status == FEDGE_OK; i++) {
        const int power = first + i / 3, factor = FACTORS[i % 3];
        const double tick = factor * pow(10.0, power);
        char text[MAX_TICK_LABEL];
        if (tick > y->high * (1.0 + 1e-9))
            break;
        if (tick < y->low * (1.0 - 1e-9) || (step > 1 && (factor > 1 || power % step != 0)))
            continue;
        if (y->step > 0.0 && factor > 1)
            text[0] = '\0'; /* a line between the powers of ten */
        else if (abs(power) > SHORT_DECADES)
            (void)snprintf(text, sizeof(text), "%de%d", factor, power);
        else
            (void)snprintf(text, sizeof(text), "%g", tick);
        status = draw_y_tick(out, in, pixel_y(in, y, tick), text, err);
    }
    return status;
}

static fedge_status draw_y_ticks(fedge_buffer *out, const fedge_chart *in, const axis *y,
                                 fedge_error *err)
{
    const double first = round(y->low / y->scale / y->step);
    fedge_status status = FEDGE_OK;
    for (int i = 0; i < MAX_TICKS && status == FEDGE_OK; i++) {
        const double tick = (first + i) * y->step, at = pixel_y(in, y, tick * y->scale);
        char text[MAX_TICK_LABEL];
        if (at < in->top - 0.5)
            break;
        (void)snprintf(text, sizeof(text), "%.*f", fedge_svg_tick_decimals(y->step), tick);
        status = draw_y_tick(out, in, at, text, err);
    }
    return status;
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
    if (status == FEDGE_OK)
        status = y->logarithmic ? draw_decades(out, in, y, err) : draw_y_ticks(out, in, y, err);
    for (int i = 0; i < MAX_TICKS && status == FEDGE_OK; i++) {
        const double tick = i * x->step, at = pixel_x(in, x, tick * x->scale);
        if (at > in->left + in->width + 0.5)
            break;
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
        status =
            fedge_buffer_printf(at->out, err, "%c%.1f %.1f ", at->down ? 'L' : 'M',
                                pixel_x(at->in, at->x, point->x), pixel_y(at->in, at->y, point->y));
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
            for (; from < to && status == FEDGE_OK; from++)
                status = draw_to(at, &points[from], err);
            return status;
        }
        low = points[k].y < points[low].y ? k : low;
        high = points[k].y > points[high].y ? k : high;
    }
    const uint32_t chosen[] = {from, low < high ? low : high, low < high ? high : low, to - 1};
    for (int i = 0; i < 4 && status == FEDGE_OK; i++) {
        if (i == 0 || chosen[i] != chosen[i - 1])
            status = draw_to(at, &points[chosen[i]], err);
    }
    return status;
}

static fedge_status draw_dots(pen *at, const fedge_chart_line *line, fedge_error *err)
{
    const double radius = line->thickness * (line->dash ? 0.75 : 1.25);
    fedge_status status = FEDGE_OK;
    for (uint32_t k = 0; k < line->count && status == FEDGE_OK; k++) {
        const fedge_chart_point *point = &line->points[k];
        const bool alone =
            (k == 0 || !isfinite(point[-1].y)) && (k + 1 == line->count || !isfinite(point[1].y));
        if (isfinite(point->y) && (alone || line->count <= MAX_DOTTED)) {
            status = fedge_buffer_printf(
                at->out, err, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" fill=\"%s\"/>\n",
                pixel_x(at->in, at->x, point->x), pixel_y(at->in, at->y, point->y), radius,
                line->colour);
        }
    }
    return status;
}

static double column_of(const pen *at, const fedge_chart_point *point)
{
    return floor(pixel_x(at->in, at->x, point->x));
}

static bool is_thin(const pen *at, const fedge_chart_line *line)
{
    return line->count > 4.0 * at->in->width;
}

/* Where the points end that share a column of pixels with the one at [from]; of a line that is not
 * thinned each has its own. */
static uint32_t column_end(const pen *at, const fedge_chart_line *line, uint32_t from)
{
    const double column = column_of(at, &line->points[from]);
    uint32_t to = from + 1;
    while (is_thin(at, line) && to < line->count && column_of(at, &line->points[to]) <= column)
        to++;
    return to;
}

/* Where those begin that share one with the point before [to]. */
static uint32_t column_begin(const pen *at, const fedge_chart_line *line, uint32_t to)
{
    const double column = column_of(at, &line->points[to - 1]);
    uint32_t from = to - 1;
    while (is_thin(at, line) && from > 0 && column_of(at, &line->points[from - 1]) >= column)
        from--;
    return from;
}

/* A corner of the band: the highest value of the points [from, to), or the lowest. */
static fedge_status draw_corner(const pen *at, const fedge_chart_line *line, uint32_t from,
                                uint32_t to, bool highest, char letter, fedge_error *err)
{
    double value = highest ? line->band[from].high : line->band[from].low;
    for (uint32_t k = from + 1; k < to; k++)
        value = highest ? fmax(value, line->band[k].high) : fmin(value, line->band[k].low);
    return fedge_buffer_printf(at->out, err, "%c%.1f %.1f ", letter,
                               pixel_x(at->in, at->x, line->points[from].x),
                               pixel_y(at->in, at->y, value));
}

/* Around the points [from, to), all finite: along the top, and back along the bottom. */
static fedge_status draw_piece(const pen *at, const fedge_chart_line *line, uint32_t from,
                               uint32_t to, fedge_error *err)
{
    fedge_status status = FEDGE_OK;
    for (uint32_t k = from, end; k < to && status == FEDGE_OK; k = end) {
        end = column_end(at, line, k);
        end = end < to ? end : to;
        status = draw_corner(at, line, k, end, true, k == from ? 'M' : 'L', err);
    }
    for (uint32_t k = to, begin; k > from && status == FEDGE_OK; k = begin) {
        begin = column_begin(at, line, k);
        begin = begin > from ? begin : from;
        status = draw_corner(at, line, begin, k, false, 'L', err);
    }
    return status == FEDGE_OK ? fedge_buffer_printf(at->out, err, "Z ") : status;
}

static fedge_status draw_band(const pen *at, const fedge_chart_line *line, fedge_error *err)
{
    fedge_status status = fedge_buffer_printf(
        at->out, err, "<path fill=\"%s\" fill-opacity=\"0.18\" d=\"", line->colour);
    for (uint32_t from = 0, to; from < line->count && status == FEDGE_OK; from = to) {
        for (to = from; to < line->count && isfinite(line->points[to].y);)
            to++;
        status = to > from ? draw_piece(at, line, from, to, err) : FEDGE_OK;
        to += to == from;
    }
    return status == FEDGE_OK ? fedge_buffer_printf(at->out, err, "\"/>\n") : status;
}

static fedge_status draw_line(pen *at, const fedge_chart_line *line, fedge_error *err)
{
    const char *dash = line->dash ? line->dash : "";
    fedge_status status = fedge_buffer_printf(
        at->out, err,
        "<path fill=\"none\" stroke=\"%s\" stroke-width=\"%.1f\"%s%s%s%s "
        "stroke-linejoin=\"round\" d=\"",
        line->colour, line->thickness, line->faint ? " stroke-opacity=\"0.5\"" : "",
        dash[0] ? " stroke-dasharray=\"" : "", dash, dash[0] ? "\"" : "");
    at->down = false;
    for (uint32_t from = 0, to; from < line->count && status == FEDGE_OK; from = to) {
        to = column_end(at, line, from);
        status = draw_column(at, line->points, from, to, err);
    }
    if (status == FEDGE_OK)
        status = fedge_buffer_printf(at->out, err, "\"/>\n");
    return status == FEDGE_OK ? draw_dots(at, line, err) : status;
}

fedge_status fedge_chart_draw(fedge_buffer *out, const fedge_chart *chart, fedge_error *err)
{
    const axis x = fit_x(chart), y = fit_y(chart);
    pen at = {.out = out, .in = chart, .x = &x, .y = &y};
    fedge_status status = draw_axes(out, chart, &x, &y, err);
    for (uint32_t i = chart->num_lines; i-- > 0 && status == FEDGE_OK;)
        status = chart->lines[i].band ? draw_band(&at, &chart->lines[i], err) : FEDGE_OK;
    for (uint32_t i = chart->num_lines; i-- > 0 && status == FEDGE_OK;)
        status = draw_line(&at, &chart->lines[i], err);
    return status;
}
