/* What the diagrams of a run have in common: pages of SVG 1.1 in pixels, without scripts or fonts.
 */
#ifndef FEDGE_AGGREGATOR_REPORT_SVG_H
#define FEDGE_AGGREGATOR_REPORT_SVG_H

#include "edge/core/bytes.h"
#include "edge/core/status.h"

#define FEDGE_SVG_MAX_SIZE ((size_t)16 << 20) /* bytes of a page */
#define FEDGE_SVG_MAX_TICKS 6                 /* on an axis, about */

/* A white page with the classes title, label (of an axis), tick and grid. Ends with "</svg>\n". */
FEDGE_MUST_USE fedge_status fedge_svg_begin(fedge_buffer *out, double width, double height,
                                            fedge_error *err);

/* [text] with its baseline at y, escaped. [anchor]: "start", "middle" or "end" is at x. */
FEDGE_MUST_USE fedge_status fedge_svg_text(fedge_buffer *out, double x, double y, const char *style,
                                           const char *anchor, const char *text, fedge_error *err);

/* 1, 2 or 5 times a power of ten, so that at most FEDGE_SVG_MAX_TICKS steps cover [span] > 0. */
double fedge_svg_tick_step(double span);

/* Decimals that tell ticks of this step apart. */
int fedge_svg_tick_decimals(double step);

#endif
