#include "edge/io/json_scan.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* The text, how far it is read, and the arrays and objects that are open there. */
typedef struct scanner {
    const char *text;
    size_t size, at;
    uint32_t line;
    uint32_t depth, max_depth;
    uint64_t objects; /* bit d: what was opened at depth d is an object, not an array */
    uint32_t values, max_values;
    uint32_t stop; /* value number whose start ends the scan */
    const char *problem;
} scanner;

_Static_assert(FEDGE_JSON_MAX_DEPTH < 64, "one bit per level");

size_t fedge_utf8_sequence(const unsigned char *text, size_t size)
{
    static const uint32_t LEAST[5] = {0, 0, 0x80, 0x800, 0x10000}; /* shorter forms are overlong */
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

static bool fail(scanner *s, const char *problem)
{
    s->problem = problem;
    return false;
}

/* The byte at the position, or −1 at the end. */
static int peek(const scanner *s)
{
    return s->at < s->size ? (unsigned char)s->text[s->at] : -1;
}

/* Something else stands where a token must: what people write there, or [problem]. */
static bool fail_token(scanner *s, const char *problem)
{
    const int c = peek(s);
    size_t at = s->at;
    while (at > 0 && strchr(" \t\n\r", s->text[at - 1]) != NULL)
        at--;
    const bool comma = at > 0 && s->text[at - 1] == ',' && (c == ',' || c == '}' || c == ']');
    return fail(s, c == '/' || c == '#' ? "JSON has no comments"
                   : comma              ? "a comma too many"
                                        : problem);
}

static bool take(scanner *s, char c)
{
    if (peek(s) != c)
        return false;
    s->at++;
    return true;
}

static void skip_space(scanner *s)
{
    for (int c = peek(s); c == ' ' || c == '\t' || c == '\n' || c == '\r'; c = peek(s)) {
        s->line += c == '\n';
        s->at++;
    }
}

/* Four hex digits, as a number; −1 when they are not. */
static long scan_hex4(scanner *s)
{
    long code = 0;
    for (int i = 0; i < 4; i++, s->at++) {
        int c = peek(s);
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return -1;
        code = code * 16 + digit;
    }
    return code;
}

static bool scan_escape(scanner *s)
{
    int c = peek(s);
    if (c < 0 || c == '\0' || strchr("\"\\/bfnrtu", c) == NULL)
        return fail(s, "an escape that JSON does not have");
    s->at++;
    if (c != 'u')
        return true;
    long code = scan_hex4(s);
    if (code < 0)
        return fail(s, "\\u without four hex digits");
    if (code == 0)
        return fail(s, "the character U+0000, which is not allowed");
    if (code >= 0xdc00 && code <= 0xdfff)
        return fail(s, "half of a surrogate pair");
    if (code >= 0xd800 && code <= 0xdbff) {
        long low = take(s, '\\') && take(s, 'u') ? scan_hex4(s) : -1;
        if (low < 0xdc00 || low > 0xdfff)
            return fail(s, "half of a surrogate pair");
    }
    return true;
}

static bool scan_string(scanner *s)
{
    if (!take(s, '"'))
        return fail_token(s, "no string in quotes");
    for (;;) {
        int c = peek(s);
        if (c < 0)
            return fail(s, "a string that does not end");
        if (c == '"') {
            s->at++;
            return true;
        }
        if (c < 0x20)
            return fail(s, "a control character in a string");
        if (c == '\\') {
            s->at++;
            if (!scan_escape(s))
                return false;
            continue;
        }
        size_t length =
            fedge_utf8_sequence((const unsigned char *)s->text + s->at, s->size - s->at);
        if (length == 0)
            return fail(s, "bytes that are not UTF-8");
        s->at += length;
    }
}

/* One digit or more. */
static bool scan_digits(scanner *s)
{
    size_t start = s->at;
    while (peek(s) >= '0' && peek(s) <= '9')
        s->at++;
    return s->at > start || fail(s, "a number without digits where they must stand");
}

static bool scan_number(scanner *s)
{
    size_t start = s->at;
    (void)take(s, '-');
    if (take(s, '0')) {
        if (peek(s) >= '0' && peek(s) <= '9')
            return fail(s, "a number that begins with 0");
    } else if (!scan_digits(s)) {
        return false;
    }
    if (take(s, '.') && !scan_digits(s))
        return false;
    if (take(s, 'e') || take(s, 'E')) {
        if (!take(s, '+'))
            (void)take(s, '-');
        if (!scan_digits(s))
            return false;
    }
    return s->at - start <= FEDGE_JSON_MAX_NUMBER || fail(s, "a number of too many digits");
}

static bool scan_word(scanner *s, const char *word)
{
    size_t length = strlen(word);
    if (s->size - s->at < length || memcmp(s->text + s->at, word, length) != 0)
        return fail_token(s, "not a JSON value");
    s->at += length;
    return true;
}

/* The key of a member and its colon. */
static bool scan_key(scanner *s)
{
    skip_space(s);
    if (!scan_string(s))
        return false;
    skip_space(s);
    return take(s, ':') || fail_token(s, "a key without a colon behind it");
}

/* Opens an array or object. *empty: it is closed again already. */
static bool scan_open(scanner *s, bool object, bool *empty)
{
    if (s->depth >= s->max_depth)
        return fail(s, "arrays and objects nested too deep");
    skip_space(s);
    *empty = take(s, object ? '}' : ']');
    if (*empty)
        return true;
    s->depth++;
    s->objects =
        object ? s->objects | (uint64_t)1 << s->depth : s->objects & ~((uint64_t)1 << s->depth);
    return !object || scan_key(s);
}

/* A scalar, or an array or object up to its first value. *complete: the value is at its end. */
static bool scan_value(scanner *s, bool *complete)
{
    skip_space(s);
    if (s->values++ == s->stop)
        return false;
    if (s->values > s->max_values)
        return fail(s, "too many values");
    *complete = true;
    int c = peek(s);
    if (c == '{' || c == '[') {
        s->at++;
        return scan_open(s, c == '{', complete);
    }
    if (c == '"')
        return scan_string(s);
    if (c == '-' || (c >= '0' && c <= '9'))
        return scan_number(s);
    return scan_word(s, c == 't' ? "true" : c == 'f' ? "false" : "null");
}

/* After a value: closes what ends here, up to the comma before the next value or the end of all. */
static bool scan_after(scanner *s)
{
    while (s->depth > 0) {
        bool object = s->objects >> s->depth & 1;
        skip_space(s);
        if (take(s, ','))
            return !object || scan_key(s);
        if (!take(s, object ? '}' : ']'))
            return fail_token(s, object ? "no ',' or '}' after a value"
                                        : "no ',' or ']' after a value");
        s->depth--;
    }
    return true;
}

static bool scan_document(scanner *s)
{
    do {
        bool complete = false;
        while (!complete) {
            if (!scan_value(s, &complete))
                return false;
        }
        if (!scan_after(s))
            return false;
    } while (s->depth > 0);
    skip_space(s);
    return s->at == s->size || fail_token(s, "something behind the end of the JSON value");
}

fedge_status fedge_json_scan(const char *text, size_t size, const fedge_json_options *options,
                             fedge_error *err)
{
    scanner s = {.text = text,
                 .size = size,
                 .line = 1,
                 .max_depth = options->max_depth,
                 .max_values = options->max_values,
                 .stop = UINT32_MAX};
    if (size >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
        return fedge_fail(err, FEDGE_CORRUPT,
                          "%s: begins with a byte order mark; save it as UTF-8 without one",
                          options->name);
    if (scan_document(&s))
        return FEDGE_OK;
    char found[32] = "the end of the text";
    int c = peek(&s);
    if (c > 0x20 && c < 0x7f)
        (void)snprintf(found, sizeof found, "'%c'", c);
    else if (c >= 0)
        (void)snprintf(found, sizeof found, "byte 0x%02x", (unsigned)c);
    return fedge_fail(err, FEDGE_CORRUPT, "%s:%u: not valid JSON: %s (at %s, byte %zu)",
                      options->name, s.line, s.problem, found, s.at);
}

uint32_t fedge_json_line(const char *text, size_t size, uint32_t index)
{
    scanner s = {.text = text,
                 .size = size,
                 .line = 1,
                 .max_depth = FEDGE_JSON_MAX_DEPTH,
                 .max_values = UINT32_MAX,
                 .stop = index};
    (void)scan_document(&s);
    return s.line;
}
