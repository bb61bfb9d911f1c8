#include "aggregator/report/partition_plot.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/report/svg.h"
#include "edge/core/bytes.h"
#include "edge/core/os.h"

/* The page, in pixels. */
#define LEFT 70.0
#define RIGHT 24.0
#define TITLE_BASE 24.0
#define FACTS_BASE 44.0
#define LEGEND_TOP 58.0
#define LEGEND_ROW 18.0
#define LEGEND_ITEM 24.0 /* width of a legend entry without its text */
#define LEGEND_CHAR 7.0  /* width per character of the text */
#define LEGEND_TITLE 38.0
#define PANEL_WIDTH 640.0 /* about this wide: columns are whole pixels wide */
#define FRACTIONS_HEIGHT 260.0
#define SIZES_HEIGHT 110.0
#define PANEL_GAP 44.0
#define BOTTOM 48.0

#define MAX_SEPARATE 60u /* most clients drawn with gaps between columns and with their numbers */
#define MAX_COLUMN 64.0
#define GAP 0.14 /* gap as a fraction of the pitch of separate columns */
#define MAX_CLIENT_TICKS 20u
#define MAX_TEXT 160

/* Petroff 2021 (Accessible Color Sequences for Data Visualization): ten colours that can be told
 * apart with every kind of colour vision. */
static const char *const colours[] = {"#3f90da", "#ffa90e", "#bd1f01", "#94a4a2", "#832db6",
                                      "#a96b59", "#e76300", "#b9ac70", "#717581", "#92dadd"};
#define NUM_COLOURS (sizeof(colours) / sizeof(colours[0]))

typedef struct column {
    uint32_t client, size;
    uint32_t main_band;  /* most frequent band */
    uint32_t main_count; /* number of its examples */
    uint32_t *counts;    /* (num_bands) */
} column;

typedef struct chart {
    const fedge_partition_data *data;
    uint32_t num_parts, num_columns;
    uint32_t num_bands, labels_per_band; /* 0: no labels */
    uint32_t *sizes;                     /* (num_parts): examples of each */
    uint32_t *counts;                    /* (num_columns, num_bands): memory of column.counts */
    column *columns;                     /* (num_columns), from left to right */
    double pitch, bar, width;            /* distance of columns, their width, width of panels */
} chart;

/* ---- counting -------------------------------------------------------------------------------- */

static void chart_fini(chart *c)
{
    free(c->sizes);
    free(c->counts);
    free(c->columns);
}

/* The client of the column at [index]; clients are chosen at even intervals. */
static uint32_t client_of(const chart *c, uint32_t index)
{
    return (uint32_t)((uint64_t)index * c->num_parts / c->num_columns);
}

static int by_main_band(const void *a, const void *b)
{
    const column *x = a, *y = b;
    if (x->main_band != y->main_band)
        return x->main_band < y->main_band ? -1 : 1;
    uint64_t left = (uint64_t)x->main_count * y->size, right = (uint64_t)y->main_count * x->size;
    if (left != right)
        return left > right ? -1 : 1;
    return x->client < y->client ? -1 : x->client > y->client;
}

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* Counts the labels of the drawn clients. [column_of]: (num_parts), UINT32_MAX: not drawn. */
static void count_bands(chart *c, const uint32_t *owner, const uint32_t *column_of)
{
    for (uint32_t i = 0; i < c->data->num_examples && c->num_bands > 0; i++) {
        uint32_t at = owner[i] < c->num_parts ? column_of[owner[i]] : UINT32_MAX;
        if (at != UINT32_MAX)
            c->columns[at].counts[(uint32_t)c->data->labels[i] / c->labels_per_band]++;
    }
    for (uint32_t j = 0; j < c->num_columns; j++) {
        column *to = &c->columns[j];
        for (uint32_t band = 0; band < c->num_bands; band++) {
            if (to->counts[band] > to->main_count) {
                to->main_band = band;
                to->main_count = to->counts[band];
            }
        }
    }
}

static fedge_status count(chart *c, const uint32_t *owner, fedge_error *err)
{
    size_t cells = (size_t)c->num_columns * (c->num_bands > 0 ? c->num_bands : 1);
    uint32_t *column_of = malloc(c->num_parts * sizeof(*column_of));
    c->sizes = calloc(c->num_parts, sizeof(*c->sizes));
    c->counts = calloc(cells, sizeof(*c->counts));
    c->columns = calloc(c->num_columns, sizeof(*c->columns));
    if (!column_of || !c->sizes || !c->counts || !c->columns) {
        free(column_of);
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to draw %" PRIu32 " clients",
                          c->num_parts);
    }
    for (uint32_t i = 0; i < c->data->num_examples; i++) {
        if (owner[i] < c->num_parts)
            c->sizes[owner[i]]++;
    }
    memset(column_of, 0xFF, c->num_parts * sizeof(*column_of));
    for (uint32_t j = 0; j < c->num_columns; j++) {
        uint32_t client = client_of(c, j);
        column_of[client] = j;
        c->columns[j].client = client;
        c->columns[j].size = c->sizes[client];
        c->columns[j].counts = c->counts + (size_t)j * c->num_bands;
    }
    count_bands(c, owner, column_of);
    free(column_of);
    if (c->num_columns > MAX_SEPARATE)
        qsort(c->columns, c->num_columns, sizeof(*c->columns), by_main_band);
    return FEDGE_OK;
}

/* ---- drawing --------------------------------------------------------------------------------- */

/* "#rrggbb" of a hue in degrees, with saturation and lightness in [0, 1]: SVG 1.1 has no hsl(). */
static void hsl_text(double hue, double saturation, double lightness, char out[32])
{
    static const double first[] = {0.0, 8.0, 4.0}; /* red, green, blue, in twelfths of a circle */
    const double spread = saturation * fmin(lightness, 1.0 - lightness);
    long parts[3];
    for (size_t i = 0; i < 3; i++) {
        const double k = fmod(first[i] + hue / 30.0, 12.0);
        const double at = fmax(-1.0, fmin(fmin(k - 3.0, 9.0 - k), 1.0));
        parts[i] = lround(255.0 * (lightness - spread * at));
    }
    (void)snprintf(out, 32, "#%02lx%02lx%02lx", (unsigned long)parts[0], (unsigned long)parts[1],
                   (unsigned long)parts[2]);
}

/* Up to ten colours are easy to tell apart; more bands get a colour wheel, alternately light and
 * dark. */
static void colour_of(const chart *c, uint32_t band, char out[32])
{
    if (c->num_bands <= NUM_COLOURS) {
        (void)snprintf(out, 32, "%s", colours[band]);
    } else {
        const uint32_t hue = band * 360 / c->num_bands;
        hsl_text(hue, 0.6, band % 2 ? 0.68 : 0.44, out);
    }
}

/* "60,000" */
static void number_text(uint64_t value, char out[32])
{
    char digits[24];
    int length = snprintf(digits, sizeof(digits), "%" PRIu64, value);
    char *to = out;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            *to++ = ',';
        *to++ = digits[i];
    }
    *to = '\0';
}

/* Writes how many examples all clients have, drawn or not. Sorts the sizes. */
static fedge_status draw_facts(fedge_buffer *out, chart *c, fedge_error *err)
{
    char text[MAX_TEXT], clients[32], examples[32], least[32], median[32], most[32];
    uint64_t used = 0;
    for (uint32_t j = 0; j < c->num_parts; j++)
        used += c->sizes[j];
    qsort(c->sizes, c->num_parts, sizeof(*c->sizes), by_value);
    number_text(c->num_parts, clients);
    number_text(used, examples);
    number_text(c->sizes[0], least);
    number_text(c->sizes[c->num_parts / 2], median);
    number_text(c->sizes[c->num_parts - 1], most);
    if (strcmp(least, most) == 0) {
        (void)snprintf(text, sizeof(text), "%s clients, %s examples; each has %s", clients,
                       examples, least);
    } else {
        (void)snprintf(text, sizeof(text),
                       "%s clients, %s examples; a client has %s to %s of them, %s in the median",
                       clients, examples, least, most, median);
    }
    return fedge_svg_text(out, LEFT, FACTS_BASE, "label", "start", text, err);
}

/* Sets *bottom to the legend's lower edge. */
static fedge_status draw_legend(fedge_buffer *out, const chart *c, double *bottom, fedge_error *err)
{
    double x = LEFT + LEGEND_TITLE, y = LEGEND_TOP;
    *bottom = y;
    if (c->num_bands == 0)
        return FEDGE_OK;
    FEDGE_TRY(fedge_svg_text(out, LEFT, y + 10.0, "tick", "start", "label", err));
    for (uint32_t band = 0; band < c->num_bands; band++) {
        char text[32], colour[32];
        uint32_t first = band * c->labels_per_band, last = first + c->labels_per_band - 1;
        last = last < c->data->num_labels ? last : c->data->num_labels - 1;
        int length = first == last
                         ? snprintf(text, sizeof(text), "%" PRIu32, first)
                         : snprintf(text, sizeof(text), "%" PRIu32 "–%" PRIu32, first, last) - 2;
        double width = LEGEND_ITEM + LEGEND_CHAR * length;
        if (x + width > LEFT + fmax(c->width, PANEL_WIDTH)) {
            x = LEFT + LEGEND_TITLE;
            y += LEGEND_ROW;
        }
        colour_of(c, band, colour);
        FEDGE_TRY(fedge_buffer_printf(
            out, err, "<rect x=\"%.1f\" y=\"%.1f\" width=\"12\" height=\"12\" fill=\"%s\"/>\n", x,
            y, colour));
        FEDGE_TRY(fedge_svg_text(out, x + 16.0, y + 10.0, "tick", "start", text, err));
        x += width;
    }
    *bottom = y + LEGEND_ROW;
    return FEDGE_OK;
}

/* A horizontal line with its value at the left. */
static fedge_status draw_tick(fedge_buffer *out, const chart *c, double y, const char *text,
                              fedge_error *err)
{
    FEDGE_TRY(fedge_buffer_printf(
        out, err, "<line x1=\"%g\" y1=\"%.1f\" x2=\"%g\" y2=\"%.1f\" class=\"grid\"/>\n", LEFT, y,
        LEFT + c->width, y));
    return fedge_svg_text(out, LEFT - 8.0, y + 4.0, "tick", "end", text, err);
}

/* One subpath: column [index] from y to y + height. */
static fedge_status draw_bar(fedge_buffer *out, const chart *c, uint32_t index, double y,
                             double height, fedge_error *err)
{
    double x = LEFT + index * c->pitch + (c->pitch - c->bar) / 2.0;
    return fedge_buffer_printf(out, err, "M%.6g %.2fh%.6gv%.2fh-%.6gz", x, y, c->bar, height,
                               c->bar);
}

/* The fraction of the bands stacked below [band] in a column. Where clients are sorted by their
 * main band, the stack starts with that one. */
static double fraction_below(const chart *c, const column *at, uint32_t band)
{
    uint32_t first = c->num_columns > MAX_SEPARATE ? at->main_band : 0;
    uint64_t below = 0;
    for (uint32_t b = first; b != band; b = (b + 1) % c->num_bands)
        below += at->counts[b];
    return (double)below / at->size;
}

/* One path for each band, over all columns. */
static fedge_status draw_fractions(fedge_buffer *out, const chart *c, double top, fedge_error *err)
{
    FEDGE_TRY(fedge_svg_text(out, LEFT, top - 10.0, "label", "start",
                             "share of each label in a client's examples", err));
    for (int tick = 0; tick <= 4; tick++) {
        char text[16];
        (void)snprintf(text, sizeof(text), "%d %%", tick * 25);
        FEDGE_TRY(draw_tick(out, c, top + FRACTIONS_HEIGHT * (1.0 - tick / 4.0), text, err));
    }
    for (uint32_t band = 0; band < c->num_bands; band++) {
        char colour[32];
        colour_of(c, band, colour);
        FEDGE_TRY(fedge_buffer_printf(
            out, err, "<path fill=\"%s\" shape-rendering=\"crispEdges\" d=\"", colour));
        for (uint32_t j = 0; j < c->num_columns; j++) {
            const column *at = &c->columns[j];
            if (at->counts[band] > 0) {
                double fraction = (double)at->counts[band] / at->size;
                double above = 1.0 - fraction_below(c, at, band) - fraction;
                FEDGE_TRY(draw_bar(out, c, j, top + FRACTIONS_HEIGHT * above,
                                   FRACTIONS_HEIGHT * fraction, err));
            }
        }
        FEDGE_TRY(fedge_buffer_printf(out, err, "\"/>\n"));
    }
    return FEDGE_OK;
}

static fedge_status draw_sizes(fedge_buffer *out, const chart *c, double top, fedge_error *err)
{
    double most = 1.0;
    for (uint32_t j = 0; j < c->num_columns; j++)
        most = fmax(most, c->columns[j].size);
    /* The panel is low: half as many ticks. */
    double step = fmax(1.0, fedge_svg_tick_step(2.0 * most)), high = ceil(most / step) * step;
    FEDGE_TRY(fedge_svg_text(out, LEFT, top - 10.0, "label", "start", "examples of a client", err));
    for (uint32_t i = 0; i <= (uint32_t)lround(high / step); i++) {
        const double tick = i * step;
        char text[32];
        number_text((uint64_t)tick, text);
        FEDGE_TRY(draw_tick(out, c, top + SIZES_HEIGHT * (1.0 - tick / high), text, err));
    }
    FEDGE_TRY(fedge_buffer_printf(out, err,
                                  "<path fill=\"#5c6670\" shape-rendering=\"crispEdges\" d=\""));
    for (uint32_t j = 0; j < c->num_columns; j++) {
        double height = SIZES_HEIGHT * c->columns[j].size / high;
        FEDGE_TRY(draw_bar(out, c, j, top + SIZES_HEIGHT - height, height, err));
    }
    return fedge_buffer_printf(out, err, "\"/>\n");
}

/* Writes the clients' numbers, or how they are sorted. [base]: lower edge of the panels. */
static fedge_status draw_clients(fedge_buffer *out, const chart *c, double base, fedge_error *err)
{
    char text[MAX_TEXT] = "client", all[32];
    const char *sorted = c->num_bands > 0 ? "sorted by their most frequent label" : "in order";
    number_text(c->num_parts, all);
    if (c->num_columns < c->num_parts) {
        (void)snprintf(text, sizeof(text), "%" PRIu32 " of %s clients, evenly chosen, %s",
                       c->num_columns, all, sorted);
    } else if (c->num_columns > MAX_SEPARATE) {
        (void)snprintf(text, sizeof(text), "clients, %s", sorted);
    }
    uint32_t every = (c->num_columns + MAX_CLIENT_TICKS - 1) / MAX_CLIENT_TICKS;
    for (uint32_t j = 0; j < c->num_columns && c->num_columns <= MAX_SEPARATE; j += every) {
        char number[16];
        (void)snprintf(number, sizeof(number), "%" PRIu32, c->columns[j].client);
        FEDGE_TRY(fedge_svg_text(out, LEFT + (j + 0.5) * c->pitch, base + 16.0, "tick", "middle",
                                 number, err));
    }
    return fedge_svg_text(out, LEFT + c->width / 2.0, base + 36.0, "label", "middle", text, err);
}

/* The height of the page depends on the legend, so everything below the head is drawn first. */
static fedge_status draw(fedge_buffer *out, chart *c, const char *title, fedge_error *err)
{
    fedge_buffer body;
    double top = 0.0;
    fedge_buffer_init(&body, FEDGE_SVG_MAX_SIZE);
    fedge_status status;
    FEDGE_TRY_OR(fedge_svg_text(&body, LEFT, TITLE_BASE, "title", "start", title, err), end);
    FEDGE_TRY_OR(draw_facts(&body, c, err), end);
    FEDGE_TRY_OR(draw_legend(&body, c, &top, err), end);
    top += 28.0;
    if (c->num_bands > 0) {
        FEDGE_TRY_OR(draw_fractions(&body, c, top, err), end);
        top += FRACTIONS_HEIGHT + PANEL_GAP;
    }
    FEDGE_TRY_OR(draw_sizes(&body, c, top, err), end);
    FEDGE_TRY_OR(draw_clients(&body, c, top + SIZES_HEIGHT, err), end);
    FEDGE_TRY_OR(fedge_svg_begin(out, LEFT + fmax(c->width, PANEL_WIDTH) + RIGHT,
                                 top + SIZES_HEIGHT + BOTTOM, err),
                 end);
    FEDGE_TRY_OR(fedge_buffer_append(out, body.data, body.size, err), end);
    status = fedge_buffer_printf(out, err, "</svg>\n");
end:
    fedge_buffer_fini(&body);
    return status;
}

/* Columns without gaps are whole pixels wide, so that none is blurred. */
static void lay_out(chart *c)
{
    double n = c->num_columns;
    if (c->num_columns <= MAX_SEPARATE) {
        c->pitch = fmin(PANEL_WIDTH / n, MAX_COLUMN);
        c->bar = c->pitch * (1.0 - GAP);
    } else {
        c->pitch = c->bar = ceil(PANEL_WIDTH / n);
    }
    c->width = c->pitch * n;
}

fedge_status fedge_partition_plot(const char *svg_path, const char *title,
                                  const fedge_partition_data *data, const uint32_t *owner,
                                  uint32_t num_parts, fedge_error *err)
{
    chart c = {.data = data, .num_parts = num_parts};
    if (num_parts == 0) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "%s: there are no clients to draw",
                          svg_path);
    }
    c.num_columns =
        num_parts < FEDGE_PARTITION_PLOT_MAX_CLIENTS ? num_parts : FEDGE_PARTITION_PLOT_MAX_CLIENTS;
    if (data->labels && data->num_labels > 0) {
        c.labels_per_band = (data->num_labels - 1) / FEDGE_PARTITION_PLOT_MAX_BANDS + 1;
        c.num_bands = (data->num_labels - 1) / c.labels_per_band + 1;
    }
    lay_out(&c);
    fedge_buffer out;
    fedge_buffer_init(&out, FEDGE_SVG_MAX_SIZE);
    fedge_status status;
    FEDGE_TRY_OR(count(&c, owner, err), end);
    FEDGE_TRY_OR(draw(&out, &c, title, err), end);
    status = fedge_os_write_file(svg_path, out.data, out.size, 0644, err);
end:
    fedge_buffer_fini(&out);
    chart_fini(&c);
    return status;
}
