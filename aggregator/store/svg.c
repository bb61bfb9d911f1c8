#include "aggregator/store/svg.h"

#include <math.h>
#include <stdbool.h>

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

/* Bytes of the character of UTF-8 that [text] begins with; 0: none, a control character, or one
 * that XML may not have. */
static size_t character(const char *text)
{
    static const struct {
        uint8_t mask, first;
        uint32_t least;
    } FORMS[] = {
        {0x80, 0x00, 0x20}, {0xE0, 0xC0, 0x80}, {0xF0, 0xE0, 0x800}, {0xF8, 0xF0, 0x10000}};
    const uint8_t *byte = (const uint8_t *)text;
    for (size_t n = 0; n < 4; n++) {
        if ((byte[0] & FORMS[n].mask) != FORMS[n].first) {
            continue;
        }
        uint32_t code = byte[0] & (uint8_t)~FORMS[n].mask;
        for (size_t i = 1; i <= n; i++) {
            if ((byte[i] & 0xC0) != 0x80) {
                return 0;
            }
            code = code << 6 | (byte[i] & 0x3F);
        }
        const bool no_character = (code >= 0xD800 && code < 0xE000) || code == 0xFFFE ||
                                  code == 0xFFFF || code > 0x10FFFF;
        return code < FORMS[n].least || no_character ? 0 : n + 1;
    }
    return 0;
}

fedge_status fedge_svg_text(fedge_buffer *out, double x, double y, const char *style,
                            const char *anchor, const char *text, fedge_error *err)
{
    fedge_status status = fedge_buffer_printf(
        out, err, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\" text-anchor=\"%s\">", x, y, style,
        anchor);
    for (const char *p = text; *p && status == FEDGE_OK;) {
        const size_t n = character(p);
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
