#include "aggregator/report/svg.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "edge/json/json.h"

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

/* Bytes of the character of UTF-8 at the start of text[0, size); 0: none, a control character, or
 * one that XML may not have. */
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
    fedge_status status = fedge_buffer_printf(
        out, err, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\" text-anchor=\"%s\">", x, y, style,
        anchor);
    const char *const end = text + strlen(text);
    for (const char *p = text; p < end && status == FEDGE_OK;) {
        const size_t n = character(p, (size_t)(end - p));
        status = n == 0      ? fedge_buffer_append(out, "?", 1, err)
                 : *p == '<' ? fedge_buffer_printf(out, err, "&lt;")
                 : *p == '>' ? fedge_buffer_printf(out, err, "&gt;")
                 : *p == '&' ? fedge_buffer_printf(out, err, "&amp;")
                             : fedge_buffer_append(out, p, n, err);
        p += n > 0 ? n : 1;
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
