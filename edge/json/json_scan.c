#include "edge/json/json_scan.h"

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* A value on the way through it: the arrays and objects that are open. */
typedef struct walk {
    fedge_json_lexer *lexer;
    uint32_t depth, max_depth;
    uint64_t objects; /* bit d: what was opened at depth d is an object, not an array */
    uint32_t values, max_values;
    uint32_t stop; /* value number whose start ends the walk */
} walk;

static_assert(FEDGE_JSON_MAX_DEPTH < 64, "one bit per level");

static bool fail_limit(walk *w, const char *problem)
{
    w->lexer->limit = true;
    return fedge_json_lex_fail(w->lexer, problem);
}

/* The key of a member and its colon. */
static bool walk_key(walk *w)
{
    (void)fedge_json_lex_token(w->lexer);
    return fedge_json_lex_string(w->lexer) &&
           fedge_json_lex_expect(w->lexer, ':', "a key without a colon behind it");
}

/* Opens an array or object. *empty: it is closed again already. */
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

/* A scalar, or an array or object up to its first value. *complete: the value is at its end. */
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

/* After a value: closes what ends here, up to the comma before the next value or the end of all. */
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
