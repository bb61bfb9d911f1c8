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

/* Instead of a byte: the text ends; of a character: the string does. */
#define FEDGE_LEX_END (-1)
#define FEDGE_LEX_BAD (-2) /* instead of a character */

/* Zeroed but for text, size and line, or more and line, before the first call. */
typedef struct fedge_json_lexer {
    const unsigned char *text; /* (size): all of it, or the present piece */
    size_t size, at;
    uint64_t before; /* bytes of the pieces before this one */
    uint32_t line;   /* line number, from 1 */
    bool comma;      /* the last token was one */
    const char *problem;
    bool limit;  /* the problem is a limit, not the grammar */
    bool broken; /* the next piece could not be read */
    /* Sets text and size to the next piece, 0 behind the last. NULL: there is no other. */
    bool (*more)(struct fedge_json_lexer *lexer, void *user);
    void *user;
} fedge_json_lexer;

/* Sets the problem; returns false. */
bool fedge_json_lex_fail(fedge_json_lexer *lexer, const char *problem);

/* The same for a missing token. A comment or a comma too many in its place becomes the problem. */
bool fedge_json_lex_fail_token(fedge_json_lexer *lexer, const char *problem);

/* The next byte, or FEDGE_LEX_END; _token passes white space first. Neither passes the byte. */
int fedge_json_lex_peek(fedge_json_lexer *lexer);
int fedge_json_lex_token(fedge_json_lexer *lexer);

/* Passes the next byte if it is [c]. */
bool fedge_json_lex_take(fedge_json_lexer *lexer, char c);

/* Passes white space and [c]; without it fails with [problem]. */
bool fedge_json_lex_expect(fedge_json_lexer *lexer, char c, const char *problem);

/* The next character of a string whose '"' is passed: a code point from 1 to 0x10FFFF,
 * FEDGE_LEX_END behind the last, or FEDGE_LEX_BAD. */
int32_t fedge_json_lex_character(fedge_json_lexer *lexer);

/* Passes a string with its quotes; a number, whose text goes to [text]; the word [word]. */
bool fedge_json_lex_string(fedge_json_lexer *lexer);
bool fedge_json_lex_number(fedge_json_lexer *lexer, char text[FEDGE_JSON_MAX_NUMBER + 1]);
bool fedge_json_lex_word(fedge_json_lexer *lexer, const char *word);

/* Checks that text[0, size) is one JSON value within the limits; FEDGE_CORRUPT with the line. */
FEDGE_MUST_USE fedge_status fedge_json_scan(const char *text, size_t size,
                                            const fedge_json_options *options, fedge_error *err);

/* Passes one value of any kind, of at most [max_depth] arrays and objects in each other. */
bool fedge_json_skip(fedge_json_lexer *lexer, uint32_t max_depth);

/* The line, from 1, of value number [index] (from 0, in the order in which values begin) of a text
 * that fedge_json_scan has accepted. */
uint32_t fedge_json_line(const char *text, size_t size, uint32_t index);

#endif
