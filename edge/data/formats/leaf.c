#include "edge/data/formats/leaf.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "edge/data/formats/reader.h"
#include "edge/json/json_lex.h"

#define BUFFER_SIZE ((size_t)1 << 14)
#define MAX_LABEL 9007199254740991.0
#define NO_LETTER (-1) /* end of the text, in place of an index */

static_assert(sizeof(FEDGE_LEAF_LETTERS) - 1 == FEDGE_LEAF_NUM_LETTERS, "LEAF's table");

typedef struct scanner {
    const fedge_leaf_visitor *visitor;
    fedge_reader reader;
    fedge_json_lexer lexer;                 /* lexer of the reader's data */
    uint8_t *buffer;                        /* (BUFFER_SIZE): the lexer's chunk */
    fedge_status read_status;               /* failure to read a chunk; its message is in err */
    fedge_error *err;                       /* the error of fedge_leaf_read */
    uint64_t num_users, listed_users;       /* users of user_data; users in "users" */
    uint64_t num_samples, declared_samples; /* samples of all users; sum of "num_samples" */
    bool has_users, has_samples, has_data;
    char name[FEDGE_LEAF_MAX_NAME]; /* name of the present user, or "" */
    uint64_t num_x, num_y;          /* examples of that user so far */
} scanner;

bool fedge_leaf_matches(const uint8_t *head, size_t size)
{
    size_t at = 0;
    while (at < size && strchr(" \t\r\n", head[at]) && head[at])
        at++;
    return at < size && head[at] == '{';
}

/* --- tokens ----------------------------------------------------------------------------------- */

static bool read_chunk(fedge_json_lexer *lexer, void *user)
{
    scanner *s = user;
    s->read_status = fedge_reader_some(&s->reader, s->buffer, BUFFER_SIZE, &lexer->size, s->err);
    lexer->text = s->buffer;
    return s->read_status == FEDGE_OK;
}

static uint64_t byte_offset(const scanner *s)
{
    return s->lexer.before + s->lexer.at;
}

static fedge_status fail(const scanner *s, fedge_status status, const char *what, fedge_error *err)
{
    return fedge_fail(err, status, "%s: byte %" PRIu64 ": %s", s->reader.path, byte_offset(s),
                      what);
}

static fedge_status corrupt(scanner *s, const char *what, fedge_error *err)
{
    if (s->lexer.broken)
        return s->read_status;
    return fail(s, s->lexer.size == 0 ? FEDGE_TRUNCATED : FEDGE_CORRUPT, what, err);
}

/* Python writes NaN and Infinity, which JSON lacks. The chunk may end within the word. */
static bool is_not_finite(const fedge_json_lexer *lexer)
{
    static const char *const WORDS[] = {"NaN", "Infinity"};
    const size_t left = lexer->size - lexer->at;
    bool is = false;
    for (size_t i = 0; left > 0 && i < 2; i++) {
        const size_t length = strlen(WORDS[i]);
        is = is || memcmp(lexer->text + lexer->at, WORDS[i], left < length ? left : length) == 0;
    }
    return is;
}

/* The status for the lexer's problem. */
static fedge_status lexed(scanner *s, bool good, fedge_error *err)
{
    if (good)
        return FEDGE_OK;
    if (!s->lexer.broken && s->lexer.limit)
        return fail(s, FEDGE_TOO_BIG, s->lexer.problem, err);
    if (!s->lexer.broken && is_not_finite(&s->lexer))
        return fail(s, FEDGE_NOT_FINITE, "NaN or Infinity; clean the data", err);
    return corrupt(s, s->lexer.problem, err);
}

static fedge_status expect(scanner *s, char token, const char *what, fedge_error *err)
{
    return lexed(s, fedge_json_lex_expect(&s->lexer, token, what), err);
}

/* After '[' or '{' and after each element. *more: another one follows; otherwise the closing
 * bracket has been read. */
static fedge_status next_element(scanner *s, char close, bool first, bool *more, fedge_error *err)
{
    *more = fedge_json_lex_token(&s->lexer) != close;
    if (*more && first)
        return FEDGE_OK;
    return expect(s, *more ? ',' : close,
                  close == ']' ? "no ',' or ']' after a value" : "no ',' or '}' after a value",
                  err);
}

/* --- texts ------------------------------------------------------------------------------------ */

/* Appends a character as UTF-8. */
static size_t put_utf8(char *to, int32_t code)
{
    const size_t length = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const uint8_t FIRST[5] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = length - 1; i > 0; i--, code >>= 6)
        to[i] = (char)(0x80 | (code & 0x3F));
    to[0] = (char)(FIRST[length] | code);
    return length;
}

static fedge_status scan_name(scanner *s, char name[FEDGE_LEAF_MAX_NAME], fedge_error *err)
{
    FEDGE_TRY(expect(s, '"', "a text in quotes is missing", err));
    size_t length = 0;
    for (int32_t c; (c = fedge_json_lex_character(&s->lexer)) != FEDGE_LEX_END;) {
        FEDGE_TRY(lexed(s, c != FEDGE_LEX_BAD, err));
        if (length + 4 >= FEDGE_LEAF_MAX_NAME)
            return fail(s, FEDGE_TOO_BIG, "a name of over 250 bytes", err);
        length += put_utf8(name + length, c);
    }
    name[length] = '\0';
    return FEDGE_OK;
}

static fedge_status scan_key(scanner *s, char key[FEDGE_LEAF_MAX_NAME], fedge_error *err)
{
    FEDGE_TRY(scan_name(s, key, err));
    return expect(s, ':', "a key without a colon behind it", err);
}

/* The index of a text's next character, or NO_LETTER at its end. */
static fedge_status next_letter(scanner *s, int *index, fedge_error *err)
{
    const int32_t c = fedge_json_lex_character(&s->lexer);
    *index = NO_LETTER;
    if (c == FEDGE_LEX_END || c == FEDGE_LEX_BAD)
        return lexed(s, c == FEDGE_LEX_END, err);
    const char *letter = c < 0x80 ? strchr(FEDGE_LEAF_LETTERS, c) : NULL;
    if (!letter) {
        return fedge_fail(err, FEDGE_OUT_OF_RANGE,
                          "%s: byte %" PRIu64 ": character U+%04X is none of LEAF's %d; replace it",
                          s->reader.path, byte_offset(s), (unsigned)c, FEDGE_LEAF_NUM_LETTERS);
    }
    *index = (int)(letter - FEDGE_LEAF_LETTERS);
    return FEDGE_OK;
}

/* --- numbers ---------------------------------------------------------------------------------- */

static fedge_status scan_number(scanner *s, double *number, fedge_error *err)
{
    char text[FEDGE_JSON_MAX_NUMBER + 1];
    const int c = fedge_json_lex_token(&s->lexer);
    if (c != '-' && (c < '0' || c > '9'))
        return lexed(s, fedge_json_lex_fail_token(&s->lexer, "a number is missing"), err);
    FEDGE_TRY(lexed(s, fedge_json_lex_number(&s->lexer, text), err));
    *number = strtod(text, NULL);
    return FEDGE_OK;
}

static fedge_status skip_value(scanner *s, fedge_error *err)
{
    return lexed(s, fedge_json_skip(&s->lexer, FEDGE_LEAF_MAX_DEPTH), err);
}

/* --- a user's examples ------------------------------------------------------------------------ */

/* Destination of an x's values. */
typedef struct target {
    void *out;
    size_t count;
} target;

static fedge_status put(scanner *s, target *to, double value, fedge_error *err)
{
    const size_t n = s->visitor->example_values;
    if (to->count == n) {
        return fedge_fail(err, FEDGE_MISMATCH,
                          "%s: byte %" PRIu64 ": an x of more than the job's %zu values",
                          s->reader.path, byte_offset(s), n);
    }
    if (s->visitor->dtype == FEDGE_U8) {
        if (value < 0 || value > UINT8_MAX || value != floor(value)) {
            return fail(s, FEDGE_OUT_OF_RANGE,
                        "not an integer within 0 to 255; for others the job's data must be f32",
                        err);
        }
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
    FEDGE_TRY(expect(s, '"', "a text in quotes is missing", err));
    for (;;) {
        FEDGE_TRY(next_letter(s, &index, err));
        if (index == NO_LETTER)
            return FEDGE_OK;
        FEDGE_TRY(put(s, to, index, err));
    }
}

/* Nested lists are flattened. */
static fedge_status read_numbers(scanner *s, target *to, fedge_error *err)
{
    bool first[FEDGE_LEAF_MAX_DEPTH];
    uint32_t depth = 0;
    do {
        if (fedge_json_lex_token(&s->lexer) == '[') {
            if (depth == FEDGE_LEAF_MAX_DEPTH)
                return fail(s, FEDGE_TOO_BIG, "arrays and objects nested too deep", err);
            first[depth++] = true;
            (void)fedge_json_lex_take(&s->lexer, '[');
        } else {
            double number = 0;
            FEDGE_TRY(scan_number(s, &number, err));
            FEDGE_TRY(put(s, to, number, err));
        }
        for (bool more = false; depth > 0 && !more;) {
            FEDGE_TRY(next_element(s, ']', first[depth - 1], &more, err));
            first[depth - 1] = false;
            depth -= more ? 0 : 1;
        }
    } while (depth > 0);
    return FEDGE_OK;
}

static fedge_status read_x(scanner *s, fedge_error *err)
{
    const fedge_leaf_visitor *v = s->visitor;
    target to = {.out = NULL};
    if (v->values)
        FEDGE_TRY(v->values(v->context, &to.out, err));
    if (!to.out)
        return skip_value(s, err);
    FEDGE_TRY(fedge_json_lex_token(&s->lexer) == '"' ? read_letters(s, &to, err)
                                                     : read_numbers(s, &to, err));
    if (to.count < v->example_values) {
        return fedge_fail(err, FEDGE_MISMATCH,
                          "%s: byte %" PRIu64 ": an x of %zu values; the job's data has %zu",
                          s->reader.path, byte_offset(s), to.count, v->example_values);
    }
    return FEDGE_OK;
}

static fedge_status read_letter_label(scanner *s, double *label, fedge_error *err)
{
    int letter = NO_LETTER, after = NO_LETTER;
    FEDGE_TRY(expect(s, '"', "a text in quotes is missing", err));
    FEDGE_TRY(next_letter(s, &letter, err));
    if (letter != NO_LETTER)
        FEDGE_TRY(next_letter(s, &after, err));
    if (letter == NO_LETTER || after != NO_LETTER)
        return corrupt(s, "a text as y must have one character", err);
    *label = letter;
    return FEDGE_OK;
}

static fedge_status read_y(scanner *s, fedge_error *err)
{
    const fedge_leaf_visitor *v = s->visitor;
    if (!v->label)
        return skip_value(s, err);
    double label = 0;
    FEDGE_TRY(fedge_json_lex_token(&s->lexer) == '"' ? read_letter_label(s, &label, err)
                                                     : scan_number(s, &label, err));
    if (label != floor(label) || fabs(label) > MAX_LABEL)
        return corrupt(s, "a label must be an integer", err);
    return v->label(v->context, (int64_t)label, err);
}

/* Reads the x or y of a list of examples. */
static fedge_status read_list(scanner *s, fedge_status (*read)(scanner *, fedge_error *),
                              uint64_t *count, const char *key, fedge_error *err)
{
    if (*count > 0)
        return corrupt(s, "a key that is given twice", err);
    FEDGE_TRY(expect(s, '[', "a list is missing", err));
    for (;; ++*count) {
        bool more = false;
        FEDGE_TRY(next_element(s, ']', *count == 0, &more, err));
        if (!more)
            return FEDGE_OK;
        const fedge_status status = read(s, err);
        if (status != FEDGE_OK)
            return fedge_error_prefix(err, status, "%s %" PRIu64, key, *count);
    }
}

static fedge_status read_examples(scanner *s, fedge_error *err)
{
    if (s->visitor->user)
        FEDGE_TRY(s->visitor->user(s->visitor->context, s->name, err));
    FEDGE_TRY(expect(s, '{', "an object with x and y is missing", err));
    bool more = false;
    for (bool first = true;; first = false) {
        char key[FEDGE_LEAF_MAX_NAME];
        FEDGE_TRY(next_element(s, '}', first, &more, err));
        if (!more)
            break;
        FEDGE_TRY(scan_key(s, key, err));
        if (strcmp(key, "x") == 0)
            FEDGE_TRY(read_list(s, read_x, &s->num_x, "x", err));
        else if (strcmp(key, "y") == 0)
            FEDGE_TRY(read_list(s, read_y, &s->num_y, "y", err));
        else
            FEDGE_TRY(skip_value(s, err));
    }
    if (s->num_x == 0 && s->num_y == 0)
        return fail(s, FEDGE_TRUNCATED, "there are no examples; leave the user out", err);
    if (s->num_x != s->num_y) {
        return fedge_fail(err, FEDGE_MISMATCH, "%s: %" PRIu64 " x, but %" PRIu64 " y",
                          s->reader.path, s->num_x, s->num_y);
    }
    s->num_samples += s->num_x;
    return FEDGE_OK;
}

/* --- the document ----------------------------------------------------------------------------- */

static fedge_status read_user(scanner *s, fedge_error *err)
{
    s->num_x = s->num_y = 0;
    FEDGE_TRY(scan_key(s, s->name, err));
    if (s->name[0] == '\0')
        return corrupt(s, "a user without a name", err);
    const fedge_status status = read_examples(s, err);
    s->num_users++;
    return status ? fedge_error_prefix(err, status, "user \"%.64s\"", s->name) : FEDGE_OK;
}

static fedge_status read_listed_user(scanner *s, fedge_error *err)
{
    s->listed_users++;
    (void)fedge_json_lex_token(&s->lexer);
    return lexed(s, fedge_json_lex_string(&s->lexer), err);
}

static fedge_status read_num_samples(scanner *s, fedge_error *err)
{
    double number = 0;
    FEDGE_TRY(scan_number(s, &number, err));
    if (number < 0 || number > MAX_LABEL || number != floor(number))
        return corrupt(s, "a number of samples that is none", err);
    s->declared_samples += (uint64_t)number;
    return FEDGE_OK;
}

/* Reads the elements of a list or, with [open] '{', the members of an object. */
static fedge_status read_elements(scanner *s, char open, bool *seen,
                                  fedge_status (*read)(scanner *, fedge_error *), fedge_error *err)
{
    if (*seen)
        return corrupt(s, "a key that is given twice", err);
    *seen = true;
    fedge_status status =
        expect(s, open, open == '[' ? "a list is missing" : "an object is missing", err);
    for (bool first = true; !status; first = false) {
        bool more = false;
        status = next_element(s, open == '[' ? ']' : '}', first, &more, err);
        if (status != FEDGE_OK || !more)
            break;
        status = read(s, err);
    }
    return status;
}

static fedge_status read_member(scanner *s, fedge_error *err)
{
    char key[FEDGE_LEAF_MAX_NAME];
    FEDGE_TRY(scan_key(s, key, err));
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
    if (!s->has_data) {
        return fedge_fail(err, FEDGE_CORRUPT,
                          "%s: JSON without \"user_data\": not a data file of LEAF", path);
    }
    if (s->has_users && s->listed_users != s->num_users) {
        return fedge_fail(err, FEDGE_MISMATCH,
                          "%s: \"users\" has %" PRIu64 ", but \"user_data\" %" PRIu64, path,
                          s->listed_users, s->num_users);
    }
    if (s->has_samples && s->declared_samples != s->num_samples) {
        return fedge_fail(err, FEDGE_MISMATCH,
                          "%s: \"num_samples\" are %" PRIu64
                          " in all, but \"user_data\" has %" PRIu64,
                          path, s->declared_samples, s->num_samples);
    }
    return FEDGE_OK;
}

static fedge_status read_document(scanner *s, fedge_error *err)
{
    bool once = false;
    fedge_status status = read_elements(s, '{', &once, read_member, err);
    if (status == FEDGE_OK && (fedge_json_lex_token(&s->lexer) != FEDGE_LEX_END || s->lexer.broken))
        status = corrupt(s, "something behind the end", err);
    return status ? status : check_counts(s, err);
}

fedge_status fedge_leaf_read(const char *path, const fedge_leaf_visitor *visitor, fedge_error *err)
{
    scanner s = {.visitor = visitor, .err = err};
    s.lexer = (fedge_json_lexer){.line = 1, .more = read_chunk, .user = &s};
    FEDGE_TRY(fedge_reader_open(&s.reader, path, err));
    s.buffer = malloc(BUFFER_SIZE);
    fedge_status status = s.buffer
                              ? read_document(&s, err)
                              : fedge_fail(err, FEDGE_NO_MEMORY, "%s: no memory to read it", path);
    free(s.buffer);
    fedge_reader_close(&s.reader);
    return status;
}
