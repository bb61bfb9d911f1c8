#include "edge/data/formats/csv.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/message.h"
#include "edge/json/json.h"
#include "edge/plan/plan.h"

#define COMMAS "; commas separate fields, not "
#if FEDGE_WITH_TARGETS
#define FEDGE_CSV_LABEL "an integer label; to learn numbers give the job data.targets"
#else
#define FEDGE_CSV_LABEL "an integer label"
#endif
#define INNER_COMMA '\n' /* replaces a comma that was in quotes; no line contains it otherwise */

fedge_status fedge_csv_open(fedge_csv *csv, const char *path, uint64_t columns, fedge_error *err)
{
    *csv = (fedge_csv){.columns = columns};
    FEDGE_TRY(fedge_reader_open(&csv->reader, path, err));
    csv->max_line = FEDGE_CSV_MAX_LINE;
    if (columns > 0 &&
        columns < (FEDGE_CSV_MAX_LINE - FEDGE_CSV_LINE_BASE) / FEDGE_CSV_LINE_PER_FIELD)
        csv->max_line = FEDGE_CSV_LINE_BASE + (size_t)columns * FEDGE_CSV_LINE_PER_FIELD;
    /* No line is longer than the file. */
    const uint64_t most = csv->reader.size * FEDGE_READER_MAX_RATIO;
    if (most > 0 && most < csv->max_line)
        csv->max_line = (size_t)most;
    csv->line = malloc(csv->max_line + 2);
    if (!csv->line) {
        fedge_csv_close(csv);
        return fedge_fail(err, FEDGE_NO_MEMORY, "%s: no memory for a line of %zu bytes", path,
                          csv->max_line);
    }
    return FEDGE_OK;
}

void fedge_csv_close(fedge_csv *csv)
{
    fedge_reader_close(&csv->reader);
    free(csv->line);
    free(csv->last);
    free(csv->other);
    csv->line = csv->other = NULL;
    csv->last = NULL;
}

static const char *skip_spaces(const char *at)
{
    while (*at == ' ' || *at == '\t')
        at++;
    return at;
}

/* Whether the line begins with a number; otherwise it is a header. "nan" and "inf" are numbers, but
 * invalid ones. */
static bool begins_with_number(const char *line)
{
    char *stop;
    line = skip_spaces(line);
    (void)strtod(line, &stop);
    const char *after = skip_spaces(stop);
    return stop != line && *line != INNER_COMMA && (*after == ',' || *after == '\0');
}

static uint64_t count_fields(const char *line)
{
    uint64_t fields = 1;
    for (const char *at = strchr(line, ','); at; at = strchr(at + 1, ','))
        fields++;
    return fields;
}

/* Removes quotes from the line's fields as in RFC 4180: in quotes, two quotes mean one, and commas
 * do not separate. */
static fedge_status unquote(fedge_csv *csv, fedge_error *err)
{
    char *to = csv->line;
    const char *at = csv->line;
    for (uint64_t column = 1;; column++) {
        const char *begin = skip_spaces(at);
        if (*begin == '"') {
            for (at = begin + 1; *at && (*at != '"' || at[1] == '"'); at++) {
                at += *at == '"';
                *to++ = *at == ',' ? INNER_COMMA : *at;
            }
            const bool closed = *at == '"';
            at = skip_spaces(at + closed);
            if (!closed || (*at && *at != ',')) {
                return fedge_fail(err, FEDGE_CORRUPT,
                                  "%s:%" PRIu64 ": column %" PRIu64
                                  ": what begins with a quote must "
                                  "end with one, on the same line; within, write two for one",
                                  csv->reader.path, csv->number, column);
            }
        } else {
            const size_t length = strcspn(at, ",");
            memmove(to, at, length);
            to += length;
            at += length;
        }
        *to++ = *at;
        if (!*at++)
            return FEDGE_OK;
    }
}

/* Reads the next line that is not empty. */
static fedge_status next_line(fedge_csv *csv, bool *end, fedge_error *err)
{
    for (;;) {
        size_t length = 0;
        const fedge_status status =
            fedge_reader_line(&csv->reader, csv->line, csv->max_line + 2, &length, end, err);
        if (status != FEDGE_OK)
            return fedge_error_prefix(err, status, "line %" PRIu64, csv->number + 1);
        if (*end)
            return FEDGE_OK;
        csv->number++;
        /* A byte order mark must not make the first row a header. */
        if (csv->number == 1 && strncmp(csv->line, "\xEF\xBB\xBF", 3) == 0)
            memmove(csv->line, csv->line + 3, length - 2);
        if (length > 0)
            return strchr(csv->line, '"') ? unquote(csv, err) : FEDGE_OK;
    }
}

/* Adds a header's name to csv->names, without quotes and spaces. */
static void add_names(fedge_csv *csv, const char *text)
{
    for (; *text; text++) {
        if (!strchr("\" \t", *text))
            csv->names = fedge_crc32(csv->names, text, 1);
    }
}

fedge_status fedge_csv_header(fedge_csv *csv, fedge_error *err)
{
    bool end = false;
    FEDGE_TRY(next_line(csv, &end, err));
    if (end)
        return fedge_fail(err, FEDGE_TRUNCATED, "%s: there is no line in it", csv->reader.path);
    if (begins_with_number(csv->line)) {
        return fedge_fail(err, FEDGE_CORRUPT,
                          "%s:%" PRIu64 ": a number, where a header must name the columns",
                          csv->reader.path, csv->number);
    }
    return FEDGE_OK;
}

static void plain_commas(char *text)
{
    while ((text = strchr(text, INNER_COMMA)))
        *text = ',';
}

/* Moves to the next field. */
static char *next_field(char *at)
{
    char *comma = strchr(at, ',');
    return comma ? comma + 1 : at + strlen(at);
}

/* Trims spaces at both ends; returns the new start. */
static char *trim(char *text)
{
    char *begin = text;
    while (*begin == ' ' || *begin == '\t')
        begin++;
    for (size_t n = strlen(begin); n > 0 && (begin[n - 1] == ' ' || begin[n - 1] == '\t'); n--)
        begin[n - 1] = '\0';
    return begin;
}

/* The header's names up to [end], each NUL-terminated. */
static fedge_status fail_unnamed(fedge_csv *csv, const char *name, const char *nearest,
                                 const char *end, fedge_error *err)
{
    const int length = nearest ? (int)strlen(nearest) : 0;
    for (char *c = csv->line; c < end; c++)
        *c = *c ? *c : ',';
    return fedge_fail(err, FEDGE_NOT_FOUND,
                      "%s:%" PRIu64
                      ": the header names no column \"%.64s\"%s%.*s%s; name one of %s",
                      csv->reader.path, csv->number, name, nearest ? "; did you mean \"" : "",
                      length, nearest ? nearest : "", nearest ? "\"?" : "", csv->line);
}

fedge_status fedge_csv_set_aside(fedge_csv *csv, const char *name, fedge_error *err)
{
    if (csv->num_last == 0)
        FEDGE_TRY(fedge_csv_header(csv, err)); /* else it has been read */
    const uint64_t fields = count_fields(csv->line);
    const char **names = malloc((size_t)fields * sizeof(*names));
    if (!names) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "%s: no memory for %" PRIu64 " columns",
                          csv->reader.path, fields);
    }
    csv->aside = 0;
    char *at = csv->line;
    for (uint64_t i = 0; i < fields; i++) {
        char *after = next_field(at);
        if (i + 1 < fields)
            after[-1] = '\0';
        plain_commas(at);
        names[i] = trim(at);
        if (csv->aside == 0 && strcmp(names[i], name) == 0) {
            csv->aside = i + 1;
        } else {
            add_names(csv, csv->names ? "," : "");
            add_names(csv, names[i]);
        }
        at = after;
    }
    const char *nearest = csv->aside ? NULL : fedge_json_nearest(name, names, (size_t)fields);
    free(names);
    if (csv->aside == 0)
        return fail_unnamed(csv, name, nearest, at, err);
    if (csv->columns == 0)
        csv->columns = fields - 1;
    return FEDGE_OK;
}

fedge_status fedge_csv_open_aside(fedge_csv *csv, const char *path, uint64_t columns,
                                  const char *aside, fedge_error *err)
{
    FEDGE_TRY(fedge_csv_open(csv, path, columns, err));
    const fedge_status status = aside ? fedge_csv_set_aside(csv, aside, err) : FEDGE_OK;
    if (status != FEDGE_OK)
        fedge_csv_close(csv);
    return status;
}

/* Removes the column that is set aside from the row. */
static fedge_status cut_aside(fedge_csv *csv, fedge_error *err)
{
    char *field = csv->line;
    for (uint64_t i = 1; i < csv->aside; i++)
        field = next_field(field);
    const size_t length = strcspn(field, ",");
    if (length >= sizeof(csv->text)) {
        return fedge_fail(
            err, FEDGE_TOO_BIG, "%s:%" PRIu64 ": column %" PRIu64 " has %zu bytes; the limit is %d",
            csv->reader.path, csv->number, csv->aside, length, FEDGE_CSV_MAX_TEXT - 1);
    }
    memcpy(csv->text, field, length);
    csv->text[length] = '\0';
    plain_commas(csv->text);
    const char *begin = trim(csv->text);
    memmove(csv->text, begin, strlen(begin) + 1);
    if (csv->aside <= csv->columns) { /* removes the comma after it, too */
        memmove(field, field + length + 1, strlen(field + length + 1) + 1);
    } else {
        field -= field > csv->line;
        *field = '\0';
    }
    return FEDGE_OK;
}

/* ---- columns that are read last ---- */

static bool is_last(const fedge_csv *csv, uint64_t column)
{
    for (uint32_t i = 0; i < csv->num_last; i++) {
        if (csv->last[i] == column)
            return true;
    }
    return false;
}

/* The file's column that is read as [column], both from 1. */
static uint64_t column_in_file(const fedge_csv *csv, uint64_t column)
{
    const uint64_t others = csv->columns + (csv->aside ? 1 : 0) - csv->num_last;
    if (column > others)
        return column - others <= csv->num_last ? csv->last[column - others - 1] : column;
    uint64_t at = 0;
    for (uint64_t left = column; left > 0; left -= !is_last(csv, at))
        at++;
    return at;
}

static char *copy_field(char *to, const char *field)
{
    const size_t length = strcspn(field, ",");
    memcpy(to, field, length);
    to[length] = ',';
    return to + length + 1;
}

/* Moves them in the present line; a line with too few fields stays as it is. */
static void move_last(fedge_csv *csv)
{
    char *to = csv->other, *at = csv->line;
    const uint64_t fields = count_fields(csv->line);
    for (uint32_t i = 0; i < csv->num_last; i++) {
        if (csv->last[i] > fields)
            return;
    }
    for (uint64_t column = 1; column <= fields; column++) {
        if (!is_last(csv, column))
            to = copy_field(to, at);
        at = next_field(at);
    }
    for (uint32_t i = 0; i < csv->num_last; i++) {
        at = csv->line;
        for (uint32_t column = 1; column < csv->last[i]; column++)
            at = next_field(at);
        to = copy_field(to, at);
    }
    to[-1] = '\0';
    char *line = csv->line;
    csv->line = csv->other;
    csv->other = line;
}

/* The header's column [name], from 1; 0: there is none. */
static uint32_t find_column(const char *line, const char *name, size_t length)
{
    uint32_t column = 1;
    for (const char *at = line; at; column++) {
        const char *begin = skip_spaces(at), *comma = strchr(begin, ',');
        size_t size = comma ? (size_t)(comma - begin) : strlen(begin);
        while (size > 0 && (begin[size - 1] == ' ' || begin[size - 1] == '\t'))
            size--;
        size_t same = 0;
        while (same < size && same < length &&
               name[same] == (begin[same] == INNER_COMMA ? ',' : begin[same]))
            same++;
        if (same == size && same == length)
            return column;
        at = comma ? comma + 1 : NULL;
    }
    return 0;
}

fedge_status fedge_csv_put_last(fedge_csv *csv, const char *names, fedge_error *err)
{
    FEDGE_TRY(fedge_csv_header(csv, err));
    uint32_t count = 1;
    for (const char *at = names; *at; at++)
        count += *at == '\n';
    csv->last = calloc(count, sizeof(*csv->last));
    csv->other = malloc(csv->max_line + 2);
    if (!csv->last || !csv->other) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "%s: no memory for %" PRIu32 " columns",
                          csv->reader.path, count);
    }
    for (; csv->num_last < count; names += strcspn(names, "\n") + 1) {
        const size_t length = strcspn(names, "\n");
        const uint32_t column = find_column(csv->line, names, length);
        if (column == 0) {
            plain_commas(csv->line);
            return fedge_fail(err, FEDGE_NOT_FOUND,
                              "%s:%" PRIu64
                              ": the header names no column \"%.*s\", which is a target of the "
                              "job; it names %.512s",
                              csv->reader.path, csv->number, (int)length, names, csv->line);
        }
        if (is_last(csv, column)) {
            return fedge_fail(err, FEDGE_DUPLICATE, "the job's targets name column \"%.*s\" twice",
                              (int)length, names);
        }
        csv->last[csv->num_last++] = column;
    }
    move_last(csv);
    add_names(csv, csv->line);
    return FEDGE_OK;
}

/* Guesses a separator other than a comma in at[0, length), as a hint for the message; "" if there
 * is none. */
static const char *hint_of_separator(const char *at, size_t length)
{
    const char *const end = at + length;
    if (memchr(at, ';', length))
        return COMMAS "semicolons";
    const char *const first = skip_spaces(at);
    const char *const tab = first < end ? memchr(first, '\t', (size_t)(end - first)) : NULL;
    if (tab && skip_spaces(tab) < end)
        return COMMAS "tabs";
    char *gap, *after; /* two numbers in one field */
    (void)strtod(first, &gap);
    const char *const second = skip_spaces(gap);
    (void)strtod(second, &after);
    return gap > first && second > gap && after > second && after <= end ? COMMAS "spaces" : "";
}

static fedge_status fail_count(const fedge_csv *csv, uint64_t fields, uint64_t wanted,
                               fedge_error *err)
{
    const char *why = hint_of_separator(csv->line, strlen(csv->line));
    if (why[0] == '\0' && csv->names != 0 && !csv->aside && wanted > 1 && fields == wanted + 1) {
        why = "; one that says whose an example is goes with natural:COLUMN, or in fedge-simulate "
              "--owner COLUMN";
    }
    char parts[64] = "";
    if (csv->labelled) {
        (void)snprintf(parts, sizeof(parts), ": %" PRIu64 " value%s and the label",
                       csv->columns - 1, csv->columns == 2 ? "" : "s");
    } else if (FEDGE_WITH_TARGETS && csv->num_targets > 0 && csv->columns > csv->num_targets) {
        (void)snprintf(parts, sizeof(parts), ": %" PRIu64 " values and %" PRIu32 " targets",
                       csv->columns - csv->num_targets, csv->num_targets);
    }
    return fedge_fail(err, FEDGE_CORRUPT,
                      "%s:%" PRIu64 ": %" PRIu64 " comma-separated fields, but there should be "
                      "%" PRIu64 "%s%s",
                      csv->reader.path, csv->number, fields, wanted, parts, why);
}

fedge_status fedge_csv_next(fedge_csv *csv, bool *end, fedge_error *err)
{
    fedge_status status = next_line(csv, end, err);
    /* After fedge_csv_set_aside has read the header, every line is a row. */
    if (status == FEDGE_OK && !*end && csv->number == 1 && !begins_with_number(csv->line)) {
        add_names(csv, csv->line);
        status = next_line(csv, end, err);
    }
    if (status != FEDGE_OK || *end)
        return status;
    const uint64_t fields = count_fields(csv->line);
    if (FEDGE_WITH_TARGETS && csv->num_last > 0)
        move_last(csv);
    if (csv->columns == 0 && csv->aside == 0)
        csv->columns = fields;
    const uint64_t wanted = csv->columns + (csv->aside ? 1 : 0);
    if (fields != wanted)
        return fail_count(csv, fields, wanted, err);
    return csv->aside ? cut_aside(csv, err) : FEDGE_OK;
}

static fedge_status bad_field(const fedge_csv *csv, uint64_t column, fedge_status status,
                              const char *at, const char *wanted, fedge_error *err)
{
    char field[41];
    const size_t length = strcspn(at, ",");
    (void)snprintf(field, sizeof(field), "%.*s", length < 40 ? (int)length : 40, at);
    plain_commas(field);
    column += csv->aside && column >= csv->aside ? 1 : 0; /* column number in the file */
    column = FEDGE_WITH_TARGETS && csv->num_last > 0 ? column_in_file(csv, column) : column;
    return fedge_fail(err, status, "%s:%" PRIu64 ": column %" PRIu64 ": \"%s\" is not %s%s",
                      csv->reader.path, csv->number, column, field, wanted,
                      hint_of_separator(at, length));
}

/* Parses a decimal integer that fills the field, saturating; NULL if it is none. */
static const char *scan_integer(const char *at, int64_t *value)
{
    at = skip_spaces(at);
    const bool negative = *at == '-';
    if (*at == '-' || *at == '+')
        at++;
    if (*at < '0' || *at > '9')
        return NULL;
    int64_t n = 0;
    for (; *at >= '0' && *at <= '9'; at++) {
        if (n < INT64_MAX / 10)
            n = n * 10 + (*at - '0');
        else
            n = INT64_MAX;
    }
    at = skip_spaces(at);
    *value = negative ? -n : n;
    return *at == ',' || *at == '\0' ? at : NULL;
}

static fedge_status scan_u8_fields(const fedge_csv *csv, uint64_t count, uint8_t *out,
                                   fedge_error *err)
{
    const char *at = csv->line;
    for (uint64_t i = 0; i < count; i++) {
        int64_t n = 0;
        const char *after = scan_integer(at, &n);
        if (!after)
            return bad_field(csv, i + 1, FEDGE_CORRUPT, at, "an integer", err);
        if (n < 0 || n > UINT8_MAX)
            return bad_field(csv, i + 1, FEDGE_OUT_OF_RANGE, at, "within 0 to 255", err);
        out[i] = (uint8_t)n;
        at = after + 1;
    }
    return FEDGE_OK;
}

/* Fields [first, first + count), from 0. */
static fedge_status scan_f32_fields(const fedge_csv *csv, uint64_t first, uint64_t count,
                                    float *out, fedge_error *err)
{
    const char *at = csv->line;
    for (uint64_t i = 0; i < first; i++)
        at = strchr(at, ',') + 1; /* fedge_csv_next has counted them */
    for (uint64_t i = 0; i < count; i++) {
        char *stop;
        at = skip_spaces(at);
        out[i] = strtof(at, &stop);
        const char *after = skip_spaces(stop);
        if (stop == at || *at == INNER_COMMA || (*after != ',' && *after != '\0'))
            return bad_field(csv, first + i + 1, FEDGE_CORRUPT, at, "a number", err);
        if (!isfinite(out[i]))
            return bad_field(csv, first + i + 1, FEDGE_NOT_FINITE, at, "a finite number", err);
        at = after + 1;
    }
    return FEDGE_OK;
}

fedge_status fedge_csv_values(const fedge_csv *csv, fedge_dtype dtype, uint64_t count, void *out,
                              fedge_error *err)
{
    if (count > csv->columns) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "%s: asked for more fields than a row has",
                          csv->reader.path);
    }
    return dtype == FEDGE_U8 ? scan_u8_fields(csv, count, out, err)
                             : scan_f32_fields(csv, 0, count, out, err);
}

fedge_status fedge_csv_last_floats(const fedge_csv *csv, uint32_t count, float *out,
                                   fedge_error *err)
{
    return scan_f32_fields(csv, csv->columns - count, count, out, err);
}

fedge_status fedge_csv_integers(const fedge_csv *csv, int64_t *out, fedge_error *err)
{
    const char *at = csv->line;
    for (uint64_t i = 0; i < csv->columns; i++) {
        const char *after = scan_integer(at, &out[i]);
        if (!after)
            return bad_field(csv, i + 1, FEDGE_CORRUPT, at, "an integer", err);
        at = after + 1;
    }
    return FEDGE_OK;
}

fedge_status fedge_csv_label(const fedge_csv *csv, int64_t *label, fedge_error *err)
{
    const char *comma = strrchr(csv->line, ',');
    const char *at = comma ? comma + 1 : csv->line;
    if (!scan_integer(at, label))
        return bad_field(csv, csv->columns, FEDGE_CORRUPT, at, FEDGE_CSV_LABEL, err);
    return FEDGE_OK;
}
