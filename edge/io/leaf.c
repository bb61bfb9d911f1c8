#include "edge/io/leaf.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "edge/io/reader.h"

#define BUFFER_SIZE ((size_t)1 << 14)
#define MAX_NUMBER 64 /* bytes of a number, with its NUL */
#define MAX_LABEL 9007199254740991.0
#define END (-1)       /* in place of a byte: the file ends */
#define NO_LETTER (-1) /* in place of an index: the text ends */
#define ESCAPED 0x10000

_Static_assert(sizeof FEDGE_LEAF_LETTERS - 1 == FEDGE_LEAF_NUM_LETTERS, "LEAF's table");

typedef struct scanner {
    const fedge_leaf_visitor *visitor;
    fedge_reader reader;
    uint8_t *buffer;                    /* (BUFFER_SIZE) */
    size_t at, size;                    /* of what is in the buffer */
    uint64_t before;                    /* bytes that are through it */
    uint64_t num_users, listed_users;   /* in user_data; in "users" */
    uint64_t num_samples, told_samples; /* of all users; the sum of "num_samples" */
    bool has_users, has_samples, has_data;
    char name[FEDGE_LEAF_MAX_NAME]; /* of the present user; "" for none */
    uint64_t num_x, num_y;          /* of that user, so far */
} scanner;

bool fedge_leaf_matches(const uint8_t *head, size_t size)
{
    size_t at = 0;
    while (at < size && strchr(" \t\r\n", head[at]) && head[at])
        at++;
    return at < size && head[at] == '{';
}

/* --- bytes ------------------------------------------------------------------------------------ */

static fedge_status fail(const scanner *s, fedge_status status, const char *what, fedge_error *err)
{
    return fedge_fail(err, status, "%s: byte %" PRIu64 ": %s", s->reader.path, s->before + s->at,
                      what);
}

static fedge_status corrupt(const scanner *s, const char *what, fedge_error *err)
{
    return fail(s, s->size == 0 ? FEDGE_TRUNCATED : FEDGE_CORRUPT, what, err);
}

/* The next byte, which stays, or END. */
static fedge_status peek(scanner *s, int *byte, fedge_error *err)
{
    if (s->at == s->size) {
        s->before += s->size;
        s->at = s->size = 0;
        const fedge_status status =
            fedge_reader_some(&s->reader, s->buffer, BUFFER_SIZE, &s->size, err);
        if (status)
            return status;
    }
    *byte = s->size == 0 ? END : s->buffer[s->at];
    return FEDGE_OK;
}

/* The next one that is no white space. */
static fedge_status peek_token(scanner *s, int *byte, fedge_error *err)
{
    for (;;) {
        const fedge_status status = peek(s, byte, err);
        if (status || (*byte != ' ' && *byte != '\n' && *byte != '\r' && *byte != '\t'))
            return status;
        s->at++;
    }
}

static fedge_status expect(scanner *s, char token, const char *what, fedge_error *err)
{
    int byte = END;
    const fedge_status status = peek_token(s, &byte, err);
    if (status)
        return status;
    if (byte != token)
        return corrupt(s, what, err);
    s->at++;
    return FEDGE_OK;
}

/* After '[' or '{' and after each element. *more: another one follows; else the end is passed. */
static fedge_status next_element(scanner *s, char close, bool first, bool *more, fedge_error *err)
{
    int byte = END;
    const fedge_status status = peek_token(s, &byte, err);
    if (status)
        return status;
    *more = byte != close;
    if (!*more || !first) {
        if (*more && byte != ',')
            return corrupt(
                s, close == ']' ? "no ',' or ']' after an element" : "no ',' or '}' after a member",
                err);
        s->at++;
    }
    return FEDGE_OK;
}

/* --- texts ------------------------------------------------------------------------------------ */

/* Four hex digits. */
static fedge_status scan_hex(scanner *s, int *code, fedge_error *err)
{
    *code = 0;
    for (int i = 0; i < 4; i++) {
        int c = END;
        const fedge_status status = peek(s, &c, err);
        if (status)
            return status;
        const char *digits = "0123456789abcdef0123456789ABCDEF";
        const char *digit = c > 0 ? strchr(digits, c) : NULL;
        if (!digit)
            return corrupt(s, "\\u without four hex digits", err);
        *code = *code * 16 + (int)((digit - digits) % 16);
        s->at++;
    }
    return FEDGE_OK;
}

/* The next unit of a text whose '"' is passed: a byte as it is, or what an escape stands for, END
 * behind the last. Bytes of UTF-8 come one by one; escapes above U+007F with ESCAPED added. */
static fedge_status next_unit(scanner *s, int *unit, fedge_error *err)
{
    static const char ESCAPES[] = "\"\\/bfnrt", MEANT[] = "\"\\/\b\f\n\r\t";
    fedge_status status = peek(s, unit, err);
    if (status)
        return status;
    if (*unit == END || *unit < ' ')
        return corrupt(s, "a text that does not end, or has a control character", err);
    s->at++;
    if (*unit == '"')
        *unit = END;
    if (*unit != '\\')
        return FEDGE_OK;
    status = peek(s, unit, err);
    if (status)
        return status;
    const char *escape = *unit > 0 ? strchr(ESCAPES, *unit) : NULL;
    if (!escape && *unit != 'u')
        return corrupt(s, "an escape that JSON does not have", err);
    s->at++;
    if (escape) {
        *unit = (unsigned char)MEANT[escape - ESCAPES];
        return FEDGE_OK;
    }
    status = scan_hex(s, unit, err);
    *unit += *unit > 0x7F ? ESCAPED : 0;
    return status;
}

/* Escapes above U+007F become UTF-8, halves of pairs each on its own. */
static fedge_status scan_name(scanner *s, char name[FEDGE_LEAF_MAX_NAME], fedge_error *err)
{
    fedge_status status = expect(s, '"', "a text in quotes is missing", err);
    size_t length = 0;
    for (int unit = 0; !status;) {
        status = next_unit(s, &unit, err);
        if (status || unit == END)
            break;
        if (unit == 0)
            return corrupt(s, "U+0000 in a name", err);
        if (length + 3 >= FEDGE_LEAF_MAX_NAME)
            return fail(s, FEDGE_TOO_BIG, "a name of over 250 bytes", err);
        if (unit >= ESCAPED) {
            name[length++] = (char)(unit - ESCAPED < 0x800 ? 0xC0 | (unit - ESCAPED) >> 6
                                                           : 0xE0 | (unit - ESCAPED) >> 12);
            if (unit - ESCAPED >= 0x800)
                name[length++] = (char)(0x80 | (unit >> 6 & 0x3F));
            unit = 0x80 | (unit & 0x3F);
        }
        name[length++] = (char)unit;
    }
    name[length] = '\0';
    return status;
}

/* The index of the next character of a text, NO_LETTER behind the last. */
static fedge_status next_letter(scanner *s, int *index, fedge_error *err)
{
    int unit = 0;
    const fedge_status status = next_unit(s, &unit, err);
    *index = NO_LETTER;
    if (status || unit == END)
        return status;
    const char *letter = unit > 0 && unit < 0x80 ? strchr(FEDGE_LEAF_LETTERS, unit) : NULL;
    if (!letter)
        return fedge_fail(err, FEDGE_OUT_OF_RANGE,
                          "%s: byte %" PRIu64 ": character U+%04X is none of LEAF's %d; replace it",
                          s->reader.path, s->before + s->at, (unsigned)unit & (ESCAPED - 1),
                          FEDGE_LEAF_NUM_LETTERS);
    *index = (int)(letter - FEDGE_LEAF_LETTERS);
    return FEDGE_OK;
}

/* --- numbers ---------------------------------------------------------------------------------- */

static fedge_status scan_number(scanner *s, double *number, fedge_error *err)
{
    char text[MAX_NUMBER];
    size_t length = 0;
    int byte = END;
    fedge_status status = peek_token(s, &byte, err);
    if (!status && (byte == 'N' || byte == 'I'))
        return fail(s, FEDGE_NOT_FINITE, "NaN or Infinity; clean the data", err);
    while (!status && byte != END && byte != 0 && strchr("+-.0123456789Ee", byte)) {
        if (length + 1 == sizeof text)
            return fail(s, FEDGE_TOO_BIG, "a number of over 63 bytes", err);
        text[length++] = (char)byte;
        s->at++;
        status = peek(s, &byte, err);
    }
    if (status)
        return status;
    text[length] = '\0';
    char *stop = text;
    *number = length > 0 && text[0] != '+' && text[0] != '.' ? strtod(text, &stop) : 0;
    return stop > text && *stop == '\0' ? FEDGE_OK : corrupt(s, "a number is missing", err);
}

/* --- what is passed over ---------------------------------------------------------------------- */

static fedge_status skip_text(scanner *s, fedge_error *err)
{
    int unit = 0;
    fedge_status status = expect(s, '"', "a text in quotes is missing", err);
    while (!status && unit != END)
        status = next_unit(s, &unit, err);
    return status;
}

/* A value of any kind, up to the ',', ']' or '}' behind it. Only brackets and texts are checked. */
static fedge_status skip_value(scanner *s, fedge_error *err)
{
    char open[FEDGE_LEAF_MAX_DEPTH]; /* what closes each */
    uint32_t depth = 0;
    for (bool any = false;; any = true) {
        int byte = END;
        fedge_status status = peek_token(s, &byte, err);
        if (status)
            return status;
        if (depth == 0 && (byte == ',' || byte == ']' || byte == '}'))
            return any ? FEDGE_OK : corrupt(s, "a value is missing", err);
        if (byte == '"') {
            status = skip_text(s, err);
            if (status)
                return status;
            continue;
        }
        if (byte == END)
            return corrupt(s, "the file ends within a value", err);
        if (byte == '[' || byte == '{') {
            if (depth == FEDGE_LEAF_MAX_DEPTH)
                return fail(s, FEDGE_TOO_BIG, "more than 32 lists and objects in each other", err);
            open[depth++] = byte == '[' ? ']' : '}';
        } else if ((byte == ']' || byte == '}') && byte != open[--depth]) {
            return corrupt(s, "another bracket than was opened", err);
        }
        s->at++;
    }
}

/* --- a user's examples ------------------------------------------------------------------------ */

/* Where the values of an x go. */
typedef struct target {
    void *out;
    size_t count;
} target;

static fedge_status put(scanner *s, target *to, double value, fedge_error *err)
{
    const size_t n = s->visitor->example_values;
    if (to->count == n)
        return fedge_fail(err, FEDGE_MISMATCH,
                          "%s: byte %" PRIu64 ": an x of more than the job's %zu values",
                          s->reader.path, s->before + s->at, n);
    if (s->visitor->dtype == FEDGE_U8) {
        if (value < 0 || value > UINT8_MAX || value != floor(value))
            return fail(s, FEDGE_OUT_OF_RANGE,
                        "not an integer within 0 to 255; for others the job's data must be f32",
                        err);
        ((uint8_t *)to->out)[to->count++] = (uint8_t)value;
        return FEDGE_OK;
    }
    const float x = (float)value;
    if (!isfinite(x))
        return fail(s, FEDGE_NOT_FINITE, "not a finite float; clean the data", err);
    ((float *)to->out)[to->count++] = x;
    return FEDGE_OK;
}

static fedge_status read_letters(scanner *s, target *to, fedge_error *err)
{
    int index = 0;
    fedge_status status = expect(s, '"', "a text in quotes is missing", err);
    while (!status) {
        status = next_letter(s, &index, err);
        if (status || index == NO_LETTER)
            break;
        status = put(s, to, index, err);
    }
    return status;
}

/* Lists in lists are one. */
static fedge_status read_numbers(scanner *s, target *to, fedge_error *err)
{
    bool first[FEDGE_LEAF_MAX_DEPTH];
    uint32_t depth = 0;
    do {
        int byte = END;
        fedge_status status = peek_token(s, &byte, err);
        if (!status && byte == '[') {
            if (depth == FEDGE_LEAF_MAX_DEPTH)
                return fail(s, FEDGE_TOO_BIG, "more than 32 lists in each other", err);
            first[depth++] = true;
            s->at++;
        } else if (!status) {
            double number = 0;
            status = scan_number(s, &number, err);
            if (!status)
                status = put(s, to, number, err);
        }
        for (bool more = false; !status && depth > 0 && !more;) {
            status = next_element(s, ']', first[depth - 1], &more, err);
            first[depth - 1] = false;
            depth -= more ? 0 : 1;
        }
        if (status)
            return status;
    } while (depth > 0);
    return FEDGE_OK;
}

static fedge_status read_x(scanner *s, fedge_error *err)
{
    const fedge_leaf_visitor *v = s->visitor;
    target to = {.out = NULL};
    fedge_status status = v->values ? v->values(v->context, &to.out, err) : FEDGE_OK;
    if (status || !to.out)
        return status ? status : skip_value(s, err);
    int byte = END;
    status = peek_token(s, &byte, err);
    if (!status)
        status = byte == '"' ? read_letters(s, &to, err) : read_numbers(s, &to, err);
    if (!status && to.count < v->example_values)
        status = fedge_fail(err, FEDGE_MISMATCH,
                            "%s: byte %" PRIu64 ": an x of %zu values; the job's data has %zu",
                            s->reader.path, s->before + s->at, to.count, v->example_values);
    return status;
}

static fedge_status read_letter_label(scanner *s, double *label, fedge_error *err)
{
    int letter = NO_LETTER, behind = NO_LETTER;
    s->at++;
    fedge_status status = next_letter(s, &letter, err);
    if (!status && letter != NO_LETTER)
        status = next_letter(s, &behind, err);
    if (!status && (letter == NO_LETTER || behind != NO_LETTER))
        status = corrupt(s, "a text as y must have one character", err);
    *label = letter;
    return status;
}

static fedge_status read_y(scanner *s, fedge_error *err)
{
    const fedge_leaf_visitor *v = s->visitor;
    if (!v->label)
        return skip_value(s, err);
    int byte = END;
    double label = 0;
    fedge_status status = peek_token(s, &byte, err);
    if (!status)
        status = byte == '"' ? read_letter_label(s, &label, err) : scan_number(s, &label, err);
    if (!status && (label != floor(label) || fabs(label) > MAX_LABEL))
        status = corrupt(s, "a label that is no integer", err);
    return status ? status : v->label(v->context, (int64_t)label, err);
}

/* A list of examples' halves. */
static fedge_status read_list(scanner *s, fedge_status (*read)(scanner *, fedge_error *),
                              uint64_t *count, const char *key, fedge_error *err)
{
    if (*count > 0)
        return corrupt(s, "a key that stands twice", err);
    fedge_status status = expect(s, '[', "a list is missing", err);
    bool more = false;
    while (!status) {
        status = next_element(s, ']', *count == 0, &more, err);
        if (status || !more)
            break;
        status = read(s, err);
        if (status)
            status = fedge_error_prefix(err, status, "%s %" PRIu64, key, *count);
        ++*count;
    }
    return status;
}

static fedge_status read_examples(scanner *s, fedge_error *err)
{
    fedge_status status = expect(s, '{', "an object with x and y is missing", err);
    bool more = false;
    for (bool first = true; !status; first = false) {
        char key[FEDGE_LEAF_MAX_NAME];
        status = next_element(s, '}', first, &more, err);
        if (status || !more)
            break;
        status = scan_name(s, key, err);
        if (!status)
            status = expect(s, ':', "a key without a colon", err);
        if (!status && strcmp(key, "x") == 0)
            status = read_list(s, read_x, &s->num_x, "x", err);
        else if (!status && strcmp(key, "y") == 0)
            status = read_list(s, read_y, &s->num_y, "y", err);
        else if (!status)
            status = skip_value(s, err);
    }
    if (status)
        return status;
    if (s->num_x == 0 && s->num_y == 0)
        return fail(s, FEDGE_TRUNCATED, "there are no examples; leave the user out", err);
    if (s->num_x != s->num_y)
        return fedge_fail(err, FEDGE_MISMATCH, "%s: %" PRIu64 " x, but %" PRIu64 " y",
                          s->reader.path, s->num_x, s->num_y);
    s->num_samples += s->num_x;
    return FEDGE_OK;
}

/* --- the document ----------------------------------------------------------------------------- */

static fedge_status read_user(scanner *s, fedge_error *err)
{
    const fedge_leaf_visitor *v = s->visitor;
    s->num_x = s->num_y = 0;
    fedge_status status = scan_name(s, s->name, err);
    if (status)
        return status;
    if (s->name[0] == '\0')
        return corrupt(s, "a user without a name", err);
    status = expect(s, ':', "a key without a colon", err);
    if (!status && v->user)
        status = v->user(v->context, s->name, err);
    if (!status)
        status = read_examples(s, err);
    s->num_users++;
    return status ? fedge_error_prefix(err, status, "user \"%.64s\"", s->name) : FEDGE_OK;
}

static fedge_status read_listed_user(scanner *s, fedge_error *err)
{
    s->listed_users++;
    return skip_text(s, err);
}

static fedge_status read_num_samples(scanner *s, fedge_error *err)
{
    double number = 0;
    const fedge_status status = scan_number(s, &number, err);
    if (status)
        return status;
    if (number < 0 || number > MAX_LABEL || number != floor(number))
        return corrupt(s, "a number of samples that is none", err);
    s->told_samples += (uint64_t)number;
    return FEDGE_OK;
}

/* The elements of a list or, [open] '{', the members of an object. */
static fedge_status read_elements(scanner *s, char open, bool *seen,
                                  fedge_status (*read)(scanner *, fedge_error *), fedge_error *err)
{
    if (*seen)
        return corrupt(s, "a key that stands twice", err);
    *seen = true;
    fedge_status status =
        expect(s, open, open == '[' ? "a list is missing" : "an object is missing", err);
    for (bool first = true; !status; first = false) {
        bool more = false;
        status = next_element(s, open == '[' ? ']' : '}', first, &more, err);
        if (status || !more)
            break;
        status = read(s, err);
    }
    return status;
}

static fedge_status read_member(scanner *s, fedge_error *err)
{
    char key[FEDGE_LEAF_MAX_NAME];
    fedge_status status = scan_name(s, key, err);
    if (!status)
        status = expect(s, ':', "a key without a colon", err);
    if (status)
        return status;
    if (strcmp(key, "user_data") == 0)
        return read_elements(s, '{', &s->has_data, read_user, err);
    if (strcmp(key, "users") == 0)
        return read_elements(s, '[', &s->has_users, read_listed_user, err);
    if (strcmp(key, "num_samples") == 0)
        return read_elements(s, '[', &s->has_samples, read_num_samples, err);
    return skip_value(s, err);
}

static fedge_status check_counts(const scanner *s, fedge_error *err)
{
    const char *path = s->reader.path;
    if (!s->has_data)
        return fedge_fail(err, FEDGE_CORRUPT,
                          "%s: JSON without \"user_data\": not a data file of LEAF", path);
    if (s->has_users && s->listed_users != s->num_users)
        return fedge_fail(err, FEDGE_MISMATCH,
                          "%s: \"users\" has %" PRIu64 ", but \"user_data\" %" PRIu64, path,
                          s->listed_users, s->num_users);
    if (s->has_samples && s->told_samples != s->num_samples)
        return fedge_fail(err, FEDGE_MISMATCH,
                          "%s: \"num_samples\" are %" PRIu64
                          " in all, but \"user_data\" has %" PRIu64,
                          path, s->told_samples, s->num_samples);
    return FEDGE_OK;
}

static fedge_status read_document(scanner *s, fedge_error *err)
{
    bool once = false;
    int byte = END;
    fedge_status status = read_elements(s, '{', &once, read_member, err);
    if (!status)
        status = peek_token(s, &byte, err);
    if (!status && byte != END)
        return corrupt(s, "something behind the end", err);
    return status ? status : check_counts(s, err);
}

fedge_status fedge_leaf_read(const char *path, const fedge_leaf_visitor *visitor, fedge_error *err)
{
    scanner s = {.visitor = visitor};
    fedge_status status = fedge_reader_open(&s.reader, path, err);
    if (status)
        return status;
    s.buffer = malloc(BUFFER_SIZE);
    status = s.buffer ? read_document(&s, err)
                      : fedge_fail(err, FEDGE_NO_MEMORY, "%s: no memory to read it", path);
    free(s.buffer);
    fedge_reader_close(&s.reader);
    return status;
}
