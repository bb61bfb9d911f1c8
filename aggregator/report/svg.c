#include "aggregator/report/svg.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "edge/json/json.h"

#define MAX_DOTTED 60u /* most points of a line that has dots */
#define MAX_TICKS 64   /* most ticks of an axis; usual steps need far fewer */
#define MAX_LABEL 96
#define MAX_TICK_LABEL 32

/* ---- pages ----------------------------------------------------------------------------------- */

fedge_status fedge_svg_begin(fedge_buffer *out, double width, double height, fedge_error *err)
{
    return fedge_buffer_printf(
        out, err,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" "
        "viewBox=\"0 0 %g %g\" font-family=\"sans-serif\">\n"
        "<style>.title{font-size:16px;font-weight:bold}.label{font-size:13px}"
        ".tick{font-size:11px;fill:#444}.grid{stroke:#ddd}</style>\n"
        "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
        width, height, width, height);
}

/* Bytes of the UTF-8 character at the start of text[0, size); 0: invalid, a control character, or
 * not allowed in XML. */
static size_t character(const char *text, size_t size)
{
    const unsigned char *byte = (const unsigned char *)text;
    const size_t n = fedge_utf8_sequence(byte, size);
    const bool last_two = n == 3 && byte[0] == 0xEF && byte[1] == 0xBF && byte[2] >= 0xBE;
    return byte[0] < 0x20 || last_two ? 0 : n; /* U+FFFE and U+FFFF are no characters */
}

fedge_status fedge_svg_text(fedge_buffer *out, double x, double y, const char *style,
                            const char *anchor, const char *text, fedge_error *err)
{
    FEDGE_TRY(fedge_buffer_printf(out, err,
                                  "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\" text-anchor=\"%s\">", x,
                                  y, style, anchor));
    const char *const end = text + strlen(text);
    for (const char *p = text; p < end;) {
        const size_t n = character(p, (size_t)(end - p));
        FEDGE_TRY(n == 0      ? fedge_buffer_append(out, "?", 1, err)
                  : *p == '<' ? fedge_buffer_printf(out, err, "&lt;")
                  : *p == '>' ? fedge_buffer_printf(out, err, "&gt;")
                  : *p == '&' ? fedge_buffer_printf(out, err, "&amp;")
                              : fedge_buffer_append(out, p, n, err));
        p += n > 0 ? n : 1;
    }
    return fedge_buffer_printf(out, err, "</text>\n");
}

double fedge_svg_tick_step(double range)
{
    double rough = range / FEDGE_SVG_MAX_TICKS;
    double power = pow(10.0, floor(log10(rough)));
    double scaled = rough / power;
    return power * (scaled <= 1.0 ? 1.0 : scaled <= 2.0 ? 2.0 : scaled <= 5.0 ? 5.0 : 10.0);
}

/* ---- axes ------------------------------------------------------------------------------------ */

/* The values from [low] to [high]; labels show them divided by [scale]. */
typedef struct axis {
    double low, high, scale;
    double step;      /* distance of ticks, in units of the labels */
    const char *unit; /* "": none */
} axis;

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
                 {FEDGE_CHART_PERCENT, 0, 0.01, "%"}};
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

static axis fit_y(const fedge_chart *chart)
{
    axis y = {.low = INFINITY, .high = -INFINITY};
    for (uint32_t i = 0; i < chart->num_lines; i++) {
        const fedge_chart_line *line = &chart->lines[i];
        for (uint32_t k = 0; k < line->count; k++) {
            if (isfinite(line->points[k].y)) {
                y.low = fmin(y.low, line->points[k].y);
                y.high = fmax(y.high, line->points[k].y);
            }
        }
    }
    if (!(y.low <= y.high)) { /* there are no values */
        y.low = 0.0;
        y.high = 1.0;
    }
    y.low = chart->from_zero ? 0.0 : y.low;
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
    return in->top + in->height * (1.0 - (value - y->low) / (y->high - y->low));
}

static fedge_status draw_label(fedge_buffer *out, double x, double y, const char *anchor,
                               const char *label, const axis *of, fedge_error *err)
{
    char text[MAX_LABEL];
    (void)snprintf(text, sizeof(text), of->unit[0] ? "%s (%s)" : "%s", label, of->unit);
    return fedge_svg_text(out, x, y, "label", anchor, text, err);
}

/* Returns the value of the tick [number] steps from 0 and writes its label, with enough decimals to
 * distinguish ticks of this step. Very large values have an exponent. */
static double tick_at(const axis *of, double number, char text[MAX_TICK_LABEL])
{
    const double tick = number * of->step;
    const int decimals = of->step >= 1.0 ? 0 : (int)ceil(-log10(of->step) - 1e-9);
    (void)snprintf(text, MAX_TICK_LABEL, of->high / of->scale >= 1e7 ? "%.*g" : "%.*f",
                   of->high / of->scale >= 1e7 ? 3 : decimals, tick);
    return tick * of->scale;
}

static fedge_status draw_y_ticks(fedge_buffer *out, const fedge_chart *in, const axis *y,
                                 fedge_error *err)
{
    const double first = round(y->low / y->scale / y->step);
    for (int i = 0; i < MAX_TICKS; i++) {
        char text[MAX_TICK_LABEL];
        const double at = pixel_y(in, y, tick_at(y, first + i, text));
        if (at < in->top - 0.5)
            break;
        FEDGE_TRY(fedge_buffer_printf(
            out, err,
            "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"grid\"/>"
            "<text x=\"%.1f\" y=\"%.1f\" class=\"tick\" text-anchor=\"end\">%s</text>\n",
            in->left, at, in->left + in->width, at, in->left - 8.0, at + 4.0, text));
    }
    return FEDGE_OK;
}

static fedge_status draw_x_ticks(fedge_buffer *out, const fedge_chart *in, const axis *x,
                                 fedge_error *err)
{
    const double bottom = in->top + in->height;
    for (int i = 0; i < MAX_TICKS; i++) {
        char text[MAX_TICK_LABEL];
        const double at = pixel_x(in, x, tick_at(x, i, text));
        if (at > in->left + in->width + 0.5)
            break;
        FEDGE_TRY(fedge_buffer_printf(
            out, err,
            "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#888\"/>"
            "<text x=\"%.1f\" y=\"%.1f\" class=\"tick\" text-anchor=\"middle\">%s</text>\n",
            at, bottom, at, bottom + 4.0, at, bottom + 17.0, text));
    }
    return FEDGE_OK;
}

static fedge_status draw_axes(fedge_buffer *out, const fedge_chart *in, const axis *x,
                              const axis *y, fedge_error *err)
{
    const double bottom = in->top + in->height;
    FEDGE_TRY(draw_label(out, in->left - 40.0, in->top - 12.0, "start", in->y_label, y, err));
    FEDGE_TRY(
        draw_label(out, in->left + in->width / 2.0, bottom + 34.0, "middle", in->x_label, x, err));
    FEDGE_TRY(draw_y_ticks(out, in, y, err));
    return draw_x_ticks(out, in, x, err);
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* A path that is being written. */
typedef struct pen {
    fedge_buffer *out;
    const fedge_chart *in;
    const axis *x, *y;
    bool down;
} pen;

static fedge_status draw_to(pen *at, const fedge_chart_point *point, fedge_error *err)
{
    const char command = at->down ? 'L' : 'M';
    at->down = isfinite(point->y);
    return at->down ? fedge_buffer_printf(at->out, err, "%c%.1f %.1f ", command,
                                          pixel_x(at->in, at->x, point->x),
                                          pixel_y(at->in, at->y, point->y))
                    : FEDGE_OK;
}

/* Draws at most four of the points [from, to), which lie in the same column of pixels. */
static fedge_status draw_column(pen *at, const fedge_chart_point *points, uint32_t from,
                                uint32_t to, fedge_error *err)
{
    uint32_t low = from, high = from;
    for (uint32_t k = from; k < to; k++) {
        if (!isfinite(points[k].y)) { /* gaps are rare, so all points next to one are drawn */
            for (; from < to; from++)
                FEDGE_TRY(draw_to(at, &points[from], err));
            return FEDGE_OK;
        }
        low = points[k].y < points[low].y ? k : low;
        high = points[k].y > points[high].y ? k : high;
    }
    const uint32_t chosen[] = {from, low < high ? low : high, low < high ? high : low, to - 1};
    for (int i = 0; i < 4; i++) {
        if (i == 0 || chosen[i] != chosen[i - 1])
            FEDGE_TRY(draw_to(at, &points[chosen[i]], err));
    }
    return FEDGE_OK;
}

static fedge_status draw_dots(pen *at, const fedge_chart_line *line, fedge_error *err)
{
    const double radius = line->thickness * (line->dash ? 0.75 : 1.25);
    for (uint32_t k = 0; k < line->count; k++) {
        const fedge_chart_point *point = &line->points[k];
        const bool alone =
            (k == 0 || !isfinite(point[-1].y)) && (k + 1 == line->count || !isfinite(point[1].y));
        if (isfinite(point->y) && (alone || line->count <= MAX_DOTTED)) {
            FEDGE_TRY(fedge_buffer_printf(
                at->out, err, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" fill=\"%s\"/>\n",
                pixel_x(at->in, at->x, point->x), pixel_y(at->in, at->y, point->y), radius,
                line->colour));
        }
    }
    return FEDGE_OK;
}

/* The end of the points in the same column of pixels as the one at [from]. In a line that is not
 * thinned each point counts as a column of its own. */
static uint32_t column_end(const pen *at, const fedge_chart_line *line, uint32_t from)
{
    const double column = floor(pixel_x(at->in, at->x, line->points[from].x));
    uint32_t to = from + 1;
    if (line->count <= 4.0 * at->in->width)
        return to;
    while (to < line->count && floor(pixel_x(at->in, at->x, line->points[to].x)) <= column)
        to++;
    return to;
}

static fedge_status draw_line(pen *at, const fedge_chart_line *line, fedge_error *err)
{
    const char *dash = line->dash ? line->dash : "";
    FEDGE_TRY(fedge_buffer_printf(
        at->out, err,
        "<path fill=\"none\" stroke=\"%s\" stroke-width=\"%.1f\"%s%s%s%s "
        "stroke-linejoin=\"round\" d=\"",
        line->colour, line->thickness, line->faint ? " stroke-opacity=\"0.5\"" : "",
        dash[0] ? " stroke-dasharray=\"" : "", dash, dash[0] ? "\"" : ""));
    at->down = false;
    for (uint32_t from = 0, to; from < line->count; from = to) {
        to = column_end(at, line, from);
        FEDGE_TRY(draw_column(at, line->points, from, to, err));
    }
    FEDGE_TRY(fedge_buffer_printf(at->out, err, "\"/>\n"));
    return draw_dots(at, line, err);
}

fedge_status fedge_chart_draw(fedge_buffer *out, const fedge_chart *chart, fedge_error *err)
{
    const axis x = fit_x(chart), y = fit_y(chart);
    pen at = {.out = out, .in = chart, .x = &x, .y = &y};
    FEDGE_TRY(draw_axes(out, chart, &x, &y, err));
    for (uint32_t i = chart->num_lines; i-- > 0;)
        FEDGE_TRY(draw_line(&at, &chart->lines[i], err));
    return FEDGE_OK;
}
