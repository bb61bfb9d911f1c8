#include "edge/json/json_lex.h"

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

size_t fedge_utf8_sequence(const unsigned char *text, size_t size)
{
    static const uint32_t LEAST[5] = {0, 0, 0x80, 0x800,
                                      0x10000}; /* shorter encodings are overlong */
    if (size == 0)
        return 0;
    unsigned first = text[0];
    if (first < 0x80)
        return 1;
    size_t length = first >> 5 == 0x6 ? 2 : first >> 4 == 0xe ? 3 : first >> 3 == 0x1e ? 4 : 0;
    if (length == 0 || length > size)
        return 0;
    uint32_t code = first & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if (text[i] >> 6 != 0x2)
            return 0;
        code = code << 6 | (text[i] & 0x3fu);
    }
    bool surrogate = code >= 0xd800 && code <= 0xdfff;
    return code >= LEAST[length] && code <= 0x10ffff && !surrogate ? length : 0;
}

bool fedge_json_lex_fail(fedge_json_lexer *lexer, const char *problem)
{
    lexer->problem = problem;
    return false;
}

static int32_t bad(fedge_json_lexer *lexer, const char *problem)
{
    lexer->problem = problem;
    return FEDGE_LEX_BAD;
}

bool fedge_json_lex_fail_token(fedge_json_lexer *lexer, const char *problem)
{
    const int c = fedge_json_lex_peek(lexer);
    const bool comma = lexer->comma && (c == ',' || c == '}' || c == ']');
    return fedge_json_lex_fail(lexer, c == '/' || c == '#' ? "JSON has no comments"
                                      : comma              ? "a comma too many"
                                                           : problem);
}

int fedge_json_lex_peek(fedge_json_lexer *lexer)
{
    if (lexer->at == lexer->size && lexer->more && !lexer->broken) {
        lexer->before += lexer->size;
        lexer->at = lexer->size = 0;
        lexer->broken = !lexer->more(lexer, lexer->user);
        if (lexer->broken)
            lexer->size = 0;
    }
    return lexer->at < lexer->size ? lexer->text[lexer->at] : FEDGE_LEX_END;
}

int fedge_json_lex_token(fedge_json_lexer *lexer)
{
    for (;;) {
        const int c = fedge_json_lex_peek(lexer);
        if (c != ' ' && c != '\t' && c != '\n' && c != '\r')
            return c;
        lexer->line += c == '\n';
        lexer->at++;
    }
}

bool fedge_json_lex_take(fedge_json_lexer *lexer, char c)
{
    if (fedge_json_lex_peek(lexer) != c)
        return false;
    lexer->at++;
    lexer->comma = c == ',';
    return true;
}

bool fedge_json_lex_expect(fedge_json_lexer *lexer, char c, const char *problem)
{
    (void)fedge_json_lex_token(lexer);
    return fedge_json_lex_take(lexer, c) || fedge_json_lex_fail_token(lexer, problem);
}

/* --- strings --------------------------------------------------------------------------------- */

/* Four hex digits as a number, or −1. */
static int32_t lex_hex4(fedge_json_lexer *lexer)
{
    int32_t code = 0;
    for (int i = 0; i < 4; i++, lexer->at++) {
        const int c = fedge_json_lex_peek(lexer);
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0)
            return -1;
        code = code * 16 + digit;
    }
    return code;
}

/* Parses the digits of "\u". */
static int32_t lex_unicode_escape(fedge_json_lexer *lexer)
{
    const int32_t code = lex_hex4(lexer);
    if (code < 0)
        return bad(lexer, "\\u without four hex digits");
    if (code == 0)
        return bad(lexer, "the character U+0000, which is not allowed");
    if (code < 0xd800 || code > 0xdfff)
        return code;
    int32_t low = -1;
    if (code <= 0xdbff && fedge_json_lex_take(lexer, '\\') && fedge_json_lex_take(lexer, 'u'))
        low = lex_hex4(lexer);
    if (low < 0xdc00 || low > 0xdfff)
        return bad(lexer, "half of a surrogate pair");
    return 0x10000 + (code - 0xd800) * 0x400 + (low - 0xdc00);
}

/* Parses an escape after its backslash. */
static int32_t lex_escape(fedge_json_lexer *lexer)
{
    static const char ESCAPES[] = "\"\\/bfnrt", MEANT[] = "\"\\/\b\f\n\r\t";
    const int c = fedge_json_lex_peek(lexer);
    const char *escape = c > 0 ? strchr(ESCAPES, c) : NULL;
    if (!escape && c != 'u')
        return bad(lexer, "an escape that JSON does not have");
    lexer->at++;
    return escape ? MEANT[escape - ESCAPES] : lex_unicode_escape(lexer);
}

/* A character of several bytes, which may span two pieces. */
static int32_t lex_utf8(fedge_json_lexer *lexer, unsigned char first)
{
    unsigned char bytes[4] = {first};
    const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    const size_t begin = lexer->at;
    size_t held = 1;
    lexer->at++;
    for (; held < length; held++, lexer->at++) {
        const int c = fedge_json_lex_peek(lexer);
        if (c < 0x80 || c > 0xbf)
            break;
        bytes[held] = (unsigned char)c;
    }
    if (held < length || fedge_utf8_sequence(bytes, length) != length) {
        lexer->at = lexer->at > begin ? begin : lexer->at; /* unless the next piece was loaded */
        return bad(lexer, "bytes that are not UTF-8");
    }
    int32_t code = first & (0x7f >> length);
    for (size_t i = 1; i < length; i++)
        code = code << 6 | (bytes[i] & 0x3f);
    return code;
}

int32_t fedge_json_lex_character(fedge_json_lexer *lexer)
{
    const int c = fedge_json_lex_peek(lexer);
    if (c == FEDGE_LEX_END)
        return bad(lexer, "a string that does not end");
    if (c < 0x20)
        return bad(lexer, "a control character in a string");
    if (c >= 0x80)
        return lex_utf8(lexer, (unsigned char)c);
    lexer->at++;
    return c == '"' ? FEDGE_LEX_END : c == '\\' ? lex_escape(lexer) : c;
}

/* Most bytes of a string stand for themselves. Skips those of the present piece. */
static void skip_plain(fedge_json_lexer *lexer)
{
    const unsigned char *text = lexer->text;
    size_t at = lexer->at;
    while (at < lexer->size && text[at] >= 0x20 && text[at] < 0x80 && text[at] != '"' &&
           text[at] != '\\')
        at++;
    lexer->at = at;
}

bool fedge_json_lex_string(fedge_json_lexer *lexer)
{
    if (!fedge_json_lex_take(lexer, '"'))
        return fedge_json_lex_fail_token(lexer, "no string in quotes");
    int32_t c = 0;
    while (c >= 0) {
        skip_plain(lexer);
        c = fedge_json_lex_character(lexer);
    }
    return c == FEDGE_LEX_END;
}

/* --- numbers and words ----------------------------------------------------------------------- */

/* The text of a number, up to one byte more than allowed. */
typedef struct digits {
    char *text;
    size_t length;
} digits;

static void take_digit(fedge_json_lexer *lexer, int c, digits *to)
{
    if (to->length < FEDGE_JSON_MAX_NUMBER)
        to->text[to->length] = (char)c;
    to->length++;
    lexer->at++;
}

static bool lex_one_of(fedge_json_lexer *lexer, const char *bytes, digits *to)
{
    const int c = fedge_json_lex_peek(lexer);
    if (c <= 0 || !strchr(bytes, c))
        return false;
    take_digit(lexer, c, to);
    return true;
}

static bool lex_digit(fedge_json_lexer *lexer, digits *to)
{
    const int c = fedge_json_lex_peek(lexer);
    if (c < '0' || c > '9')
        return false;
    take_digit(lexer, c, to);
    return true;
}

/* Consumes one or more digits. */
static bool lex_digits(fedge_json_lexer *lexer, digits *to)
{
    const size_t start = to->length;
    while (to->length <= FEDGE_JSON_MAX_NUMBER && lex_digit(lexer, to))
        ;
    return to->length > start || fedge_json_lex_fail(lexer, "a number lacks digits");
}

bool fedge_json_lex_number(fedge_json_lexer *lexer, char text[FEDGE_JSON_MAX_NUMBER + 1])
{
    digits to = {.text = text};
    lexer->comma = false;
    (void)lex_one_of(lexer, "-", &to);
    if (lex_one_of(lexer, "0", &to)) {
        if (lex_digit(lexer, &to))
            return fedge_json_lex_fail(lexer, "a number that begins with 0");
    } else if (!lex_digits(lexer, &to)) {
        return false;
    }
    if (lex_one_of(lexer, ".", &to) && !lex_digits(lexer, &to))
        return false;
    if (lex_one_of(lexer, "eE", &to)) {
        (void)lex_one_of(lexer, "+-", &to);
        if (!lex_digits(lexer, &to))
            return false;
    }
    lexer->limit = to.length > FEDGE_JSON_MAX_NUMBER;
    if (lexer->limit)
        return fedge_json_lex_fail(lexer, "a number of too many digits");
    text[to.length] = '\0';
    return true;
}

bool fedge_json_lex_word(fedge_json_lexer *lexer, const char *word)
{
    size_t taken = 0;
    while (word[taken] && fedge_json_lex_take(lexer, word[taken]))
        taken++;
    if (word[taken] == '\0')
        return true;
    lexer->at -= lexer->at >= taken ? taken : lexer->at; /* unless the next piece was loaded */
    return fedge_json_lex_fail_token(lexer, "not a JSON value");
}

/* ---- whole values ---------------------------------------------------------------------------- */

/* State while a value is read: its open arrays and objects. */
typedef struct walk {
    fedge_json_lexer *lexer;
    uint32_t depth, max_depth;
    uint64_t objects; /* bit d: an object, not an array, is open at depth d */
    uint32_t values, max_values;
    uint32_t stop; /* the walk ends at the start of this value */
} walk;

static_assert(FEDGE_JSON_MAX_DEPTH < 64, "one bit per level");

static bool fail_limit(walk *w, const char *problem)
{
    w->lexer->limit = true;
    return fedge_json_lex_fail(w->lexer, problem);
}

/* Consumes a member's key and colon. */
static bool walk_key(walk *w)
{
    (void)fedge_json_lex_token(w->lexer);
    return fedge_json_lex_string(w->lexer) &&
           fedge_json_lex_expect(w->lexer, ':', "a key without a colon behind it");
}

/* Opens an array or object. *empty: it was closed at once. */
static bool walk_open(walk *w, bool object, bool *empty)
{
    if (w->depth >= w->max_depth)
        return fail_limit(w, "arrays and objects nested too deep");
    (void)fedge_json_lex_token(w->lexer);
    *empty = fedge_json_lex_take(w->lexer, object ? '}' : ']');
    if (*empty)
        return true;
    w->depth++;
    w->objects =
        object ? w->objects | (uint64_t)1 << w->depth : w->objects & ~((uint64_t)1 << w->depth);
    return !object || walk_key(w);
}

/* Consumes a scalar, or an array or object up to its first value. *complete: the value has ended.
 */
static bool walk_value(walk *w, bool *complete)
{
    char number[FEDGE_JSON_MAX_NUMBER + 1];
    const int c = fedge_json_lex_token(w->lexer);
    if (w->values++ == w->stop)
        return false;
    if (w->values > w->max_values)
        return fail_limit(w, "too many values");
    *complete = true;
    if (c == '{' || c == '[')
        return fedge_json_lex_take(w->lexer, (char)c) && walk_open(w, c == '{', complete);
    if (c == '"')
        return fedge_json_lex_string(w->lexer);
    if (c == '-' || (c >= '0' && c <= '9'))
        return fedge_json_lex_number(w->lexer, number);
    return fedge_json_lex_word(w->lexer, c == 't' ? "true" : c == 'f' ? "false" : "null");
}

/* After a value: closes arrays and objects that end here, and consumes the comma before the next
 * value. */
static bool walk_after(walk *w)
{
    while (w->depth > 0) {
        const bool object = w->objects >> w->depth & 1;
        (void)fedge_json_lex_token(w->lexer);
        if (fedge_json_lex_take(w->lexer, ','))
            return !object || walk_key(w);
        if (!fedge_json_lex_expect(w->lexer, object ? '}' : ']',
                                   object ? "no ',' or '}' after a value"
                                          : "no ',' or ']' after a value"))
            return false;
        w->depth--;
    }
    return true;
}

static bool walk_whole(walk *w)
{
    do {
        bool complete = false;
        while (!complete) {
            if (!walk_value(w, &complete))
                return false;
        }
        if (!walk_after(w))
            return false;
    } while (w->depth > 0);
    return true;
}

bool fedge_json_skip(fedge_json_lexer *lexer, uint32_t max_depth)
{
    walk w = {.lexer = lexer, .max_depth = max_depth, .max_values = UINT32_MAX, .stop = UINT32_MAX};
    return walk_whole(&w);
}

fedge_status fedge_json_scan(const char *text, size_t size, const fedge_json_options *options,
                             fedge_error *err)
{
    fedge_json_lexer lexer = {.text = (const unsigned char *)text, .size = size, .line = 1};
    walk w = {.lexer = &lexer,
              .max_depth = options->max_depth,
              .max_values = options->max_values,
              .stop = UINT32_MAX};
    if (size >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        return fedge_fail(err, FEDGE_CORRUPT,
                          "%s: begins with a byte order mark; save it as UTF-8 without one",
                          options->name);
    }
    if (walk_whole(&w) &&
        (fedge_json_lex_token(&lexer) == FEDGE_LEX_END ||
         fedge_json_lex_fail_token(&lexer, "something behind the end of the JSON value")))
        return FEDGE_OK;
    char found[32] = "the end of the text";
    const int c = fedge_json_lex_peek(&lexer);
    if (c > 0x20 && c < 0x7f)
        (void)snprintf(found, sizeof(found), "'%c'", c);
    else if (c >= 0)
        (void)snprintf(found, sizeof(found), "byte 0x%02x", (unsigned)c);
    return fedge_fail(err, FEDGE_CORRUPT, "%s:%u: not valid JSON: %s (at %s, byte %zu)",
                      options->name, lexer.line, lexer.problem, found, lexer.at);
}

uint32_t fedge_json_line(const char *text, size_t size, uint32_t index)
{
    fedge_json_lexer lexer = {.text = (const unsigned char *)text, .size = size, .line = 1};
    walk w = {.lexer = &lexer,
              .max_depth = FEDGE_JSON_MAX_DEPTH,
              .max_values = UINT32_MAX,
              .stop = index};
    (void)walk_whole(&w);
    return lexer.line;
}
