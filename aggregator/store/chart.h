/* One diagram of lines with its axes, as part of a page (svg.h). */
#ifndef FEDGE_AGGREGATOR_STORE_CHART_H
#define FEDGE_AGGREGATOR_STORE_CHART_H

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

typedef struct fedge_chart_line {
    const fedge_chart_point *points;
    uint32_t count;
    const char *colour;
    double thickness; /* in pixels */
    bool faint;       /* lets what is drawn below it be seen */
    bool dashed;      /* likewise, also where it is the same line */
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

/* Draws it, the first line above the others. The y axis ends at ticks around all values; of plain
 * numbers those over twenty times the least of the lines' medians are cut off, and the label says
 * so. Of a line with more than four points a pixel each column of pixels has its first,
 * lowest, highest and last; next to a gap all. Lines of up to 60 points, and points alone between
 * gaps, have dots. FEDGE_NO_MEMORY, FEDGE_TOO_BIG. */
FEDGE_MUST_USE fedge_status fedge_chart_draw(fedge_buffer *out, const fedge_chart *chart,
                                             fedge_error *err);

#endif
