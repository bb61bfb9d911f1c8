/* The lexer of JSON: brackets, strings and numbers of a text that is in memory or read in chunks.
 * RFC 8259, but for U+0000, which no string may have, and a limit on numbers' length. Internal to
 * edge/json.
 *
 * On invalid text, functions return false or FEDGE_LEX_BAD; [problem] has the reason, and the lexer
 * stays at the error.
 */
#ifndef FEDGE_EDGE_JSON_JSON_LEX_H
#define FEDGE_EDGE_JSON_JSON_LEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"
#include "edge/json/json.h"

/* The end of the text, in place of a byte; the end of the string, in place of a character. */
#define FEDGE_LEX_END (-1)
#define FEDGE_LEX_BAD (-2) /* in place of a character */

/* Before the first call all 0, except text, size and line, or more and line. */
typedef struct fedge_json_lexer {
    const unsigned char *text; /* (size): the whole text, or the present piece */
    size_t size, at;
    uint64_t before; /* total size of earlier pieces */
    uint32_t line;   /* line number, from 1 */
    bool comma;      /* whether the last token was one */
    const char *problem;
    bool limit;  /* the problem is a limit, not the grammar */
    bool broken; /* the next piece could not be read */
    /* Sets text and size to the next piece, size 0 after the last. NULL: there is only one. */
    bool (*more)(struct fedge_json_lexer *lexer, void *user);
    void *user;
} fedge_json_lexer;

/* Sets the problem; returns false. */
bool fedge_json_lex_fail(fedge_json_lexer *lexer, const char *problem);

/* Sets the problem of a missing token: a comment or an extra comma, if that is in its place. */
bool fedge_json_lex_fail_token(fedge_json_lexer *lexer, const char *problem);

/* The next byte, or FEDGE_LEX_END; _token skips white space first. Neither consumes the byte. */
int fedge_json_lex_peek(fedge_json_lexer *lexer);
int fedge_json_lex_token(fedge_json_lexer *lexer);

/* Consumes the next byte if it is [c]. */
bool fedge_json_lex_take(fedge_json_lexer *lexer, char c);

/* Skips white space and consumes [c]; otherwise fails with [problem]. */
bool fedge_json_lex_expect(fedge_json_lexer *lexer, char c, const char *problem);

/* The next character of a string whose '"' was consumed: a code point from 1 to 0x10FFFF,
 * FEDGE_LEX_END after the last, or FEDGE_LEX_BAD. */
int32_t fedge_json_lex_character(fedge_json_lexer *lexer);

/* Consumes a string with its quotes; a number, whose text goes to [text]; the word [word]. */
bool fedge_json_lex_string(fedge_json_lexer *lexer);
bool fedge_json_lex_number(fedge_json_lexer *lexer, char text[FEDGE_JSON_MAX_NUMBER + 1]);
bool fedge_json_lex_word(fedge_json_lexer *lexer, const char *word);

/* Checks that text[0, size) is one JSON value within the limits; FEDGE_CORRUPT with the line. */
FEDGE_MUST_USE fedge_status fedge_json_scan(const char *text, size_t size,
                                            const fedge_json_options *options, fedge_error *err);

/* Consumes one value of any kind with at most [max_depth] nested arrays and objects. */
bool fedge_json_skip(fedge_json_lexer *lexer, uint32_t max_depth);

/* The line, from 1, of value [index] of a text that fedge_json_scan has accepted. Values are
 * counted from 0 in the order of their starts. */
uint32_t fedge_json_line(const char *text, size_t size, uint32_t index);

#endif
