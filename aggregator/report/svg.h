/* Pages of SVG 1.1 in pixels, without scripts or fonts, and line charts on them. */
#ifndef FEDGE_AGGREGATOR_REPORT_SVG_H
#define FEDGE_AGGREGATOR_REPORT_SVG_H

#include <stdbool.h>
#include <stdint.h>

#include "edge/core/bytes.h"
#include "edge/core/status.h"

#define FEDGE_SVG_MAX_SIZE ((size_t)16 << 20) /* most bytes of a page */
#define FEDGE_SVG_MAX_TICKS 6                 /* approximate number of ticks on an axis */

/* Begins a white page with the classes title, label (of an axis), tick and grid. The caller ends it
 * with "</svg>\n". */
FEDGE_MUST_USE fedge_status fedge_svg_begin(fedge_buffer *out, double width, double height,
                                            fedge_error *err);

/* Draws [text], escaped, with its baseline at y and its [anchor] ("start", "middle" or "end") at x.
 */
FEDGE_MUST_USE fedge_status fedge_svg_text(fedge_buffer *out, double x, double y, const char *style,
                                           const char *anchor, const char *text, fedge_error *err);

/* The smallest of 1, 2 and 5 times a power of ten of which at most FEDGE_SVG_MAX_TICKS steps cover
 * [range] > 0. */
double fedge_svg_tick_step(double range);

/* ---- charts ---------------------------------------------------------------------------------- */

/* How an axis writes its numbers. */
typedef enum fedge_chart_unit {
    FEDGE_CHART_NUMBER,  /* the number as it is */
    FEDGE_CHART_COUNT,   /* whole numbers */
    FEDGE_CHART_PERCENT, /* 1 is 100 % */
    FEDGE_CHART_BYTES,   /* B, kB, MB, … (powers of 1000): the largest unit with at least 1 */
    FEDGE_CHART_SECONDS  /* s, min, h or d: the largest unit with at least 3 */
} fedge_chart_unit;

/* x never decreases along a line. A y that is not finite is a gap. */
typedef struct fedge_chart_point {
    double x, y;
} fedge_chart_point;

typedef struct fedge_chart_line {
    const fedge_chart_point *points;
    uint32_t count;
    const char *colour;
    const char *dash; /* stroke-dasharray; its gaps show the lines below. NULL: a solid line */
    double thickness; /* pixels */
    bool faint;       /* half transparent */
} fedge_chart_line;

/* The rectangle between the axes, in pixels of the page; labels and ticks are outside. */
typedef struct fedge_chart {
    double left, top, width, height;
    const char *x_label, *y_label; /* text without the unit */
    fedge_chart_unit x_unit, y_unit;
    const fedge_chart_line *lines;
    uint32_t num_lines;
    bool from_zero; /* the y axis starts at 0; the x axis always does */
} fedge_chart;

/* Pixels that labels and ticks take beyond the rectangle. */
#define FEDGE_CHART_ABOVE 26.0
#define FEDGE_CHART_BELOW 40.0
#define FEDGE_CHART_LEFT 62.0

/* Draws the chart with the first line on top. The y axis ends at ticks around all values. A line of
 * more than four points a pixel is thinned: each column of pixels keeps its first, lowest, highest
 * and last point, or all if one is a gap. Lines of up to 60 points, and single points between gaps,
 * have dots. FEDGE_TOO_BIG, FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_chart_draw(fedge_buffer *out, const fedge_chart *chart,
                                             fedge_error *err);

#endif
