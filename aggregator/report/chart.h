/* One diagram of lines with its axes, as part of a page (svg.h). */
#ifndef FEDGE_AGGREGATOR_REPORT_CHART_H
#define FEDGE_AGGREGATOR_REPORT_CHART_H

#include <stdbool.h>
#include <stdint.h>

#include "edge/core/bytes.h"
#include "edge/core/status.h"

/* How numbers stand at an axis. */
typedef enum fedge_chart_unit {
    FEDGE_CHART_NUMBER, /* as they are */
    FEDGE_CHART_COUNT,  /* whole */
    FEDGE_CHART_SHARE,  /* in percent */
    FEDGE_CHART_BYTES,  /* B, kB, MB, … of 1000 each: the largest that leaves 1 */
    FEDGE_CHART_SECONDS /* s, min, h or d, likewise, but from 3 of them on */
} fedge_chart_unit;

/* x does not go down along a line. A y that is not finite is a gap. */
typedef struct fedge_chart_point {
    double x, y;
} fedge_chart_point;

/* Around a point's y: low ≤ y ≤ high where y is finite. */
typedef struct fedge_chart_range {
    double low, high;
} fedge_chart_range;

typedef struct fedge_chart_line {
    const fedge_chart_point *points;
    const fedge_chart_range *band; /* (count), drawn below all lines; NULL: none */
    uint32_t count;
    const char *colour;
    const char *dash; /* stroke-dasharray: what is below is seen in its gaps; NULL: a whole line */
    double thickness; /* in pixels */
    bool faint;       /* lets what is drawn below it be seen */
    bool whole;       /* no value of it is ever below the axis */
} fedge_chart_line;

/* In pixels of the page: the rectangle between the axes; labels and ticks stand around it. */
typedef struct fedge_chart {
    double left, top, width, height;
    const char *x_label, *y_label; /* the unit is added */
    fedge_chart_unit x_unit, y_unit;
    const fedge_chart_line *lines;
    uint32_t num_lines;
    bool from_zero; /* the y axis; the x axis always is */
} fedge_chart;

/* Room that a chart takes beyond its rectangle. */
#define FEDGE_CHART_ABOVE 26.0
#define FEDGE_CHART_BELOW 40.0
#define FEDGE_CHART_LEFT 62.0

/* The y axis of plain numbers is logarithmic, and its label says so, where the highest value is
 * over so many times the least of the lines that are whole (without any: of all): a linear one
 * would press them on its bottom. Other lines may lie there, so that a rise of the whole ones is
 * seen. */
#define FEDGE_CHART_LOG_RATIO 30.0
/* It goes down over so many powers of ten at most, or to the least value of the lines that are
 * whole: what is lower lies on the bottom, and the label says so. */
#define FEDGE_CHART_MAX_DECADES 6

/* Draws it, the first line above the others. The y axis shows all values: it ends at ticks around
 * them, and is linear where one is negative, or one of a whole line is 0. Of a line with more than
 * four points a pixel each column of pixels has its first, lowest, highest and last; next to a gap
 * all. Lines of up to 60 points, and points alone between gaps, have dots. FEDGE_TOO_BIG,
 * FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_chart_draw(fedge_buffer *out, const fedge_chart *chart,
                                             fedge_error *err);

#endif
