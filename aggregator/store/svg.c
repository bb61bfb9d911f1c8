#include "aggregator/store/svg.h"

#include <math.h>

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

fedge_status fedge_svg_text(fedge_buffer *out, double x, double y, const char *style,
                            const char *anchor, const char *text, fedge_error *err)
{
    fedge_status status = fedge_buffer_printf(
        out, err, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\" text-anchor=\"%s\">", x, y, style,
        anchor);
    for (const char *p = text; *p && status == FEDGE_OK; p++) {
        status = *p == '<'   ? fedge_buffer_printf(out, err, "&lt;")
                 : *p == '&' ? fedge_buffer_printf(out, err, "&amp;")
                             : fedge_buffer_append(out, p, 1, err);
    }
    return status == FEDGE_OK ? fedge_buffer_printf(out, err, "</text>\n") : status;
}

double fedge_svg_tick_step(double span)
{
    double rough = span / FEDGE_SVG_MAX_TICKS;
    double power = pow(10.0, floor(log10(rough)));
    double scaled = rough / power;
    return power * (scaled <= 1.0 ? 1.0 : scaled <= 2.0 ? 2.0 : scaled <= 5.0 ? 5.0 : 10.0);
}

int fedge_svg_tick_decimals(double step)
{
    return step >= 1.0 ? 0 : (int)ceil(-log10(step) - 1e-9);
}
