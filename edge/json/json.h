/* Strict JSON: RFC 8259 text to C structs and back, by tables of fields.
 *
 * An array of fedge_json_field describes a struct's JSON form once: each key, the value's offset in
 * the struct, its range and its default. Reading, checks for unknown keys, writing and the tests of
 * docs/job.schema.json use that array.
 *
 * cJSON makes the tree. Since cJSON is lenient, a scan of the text first checks the grammar, the
 * encoding (valid UTF-8, no U+0000), size, nesting and number of values; afterwards no object may
 * have a key twice. Integers are exact: at most 2^53 − 1. Errors have a position: "job.json:12:
 * rounds.num-server-rounds: 0 is not in [1, 1000000]".
 */
#ifndef FEDGE_EDGE_JSON_JSON_H
#define FEDGE_EDGE_JSON_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cjson/cJSON.h>

#include "edge/core/status.h"

#define FEDGE_JSON_MAX_INTEGER (((uint64_t)1 << 53) - 1)
#define FEDGE_JSON_MAX_DEPTH 32  /* limit of every text; fedge_json_options may lower it */
#define FEDGE_JSON_WIRE_DEPTH 8  /* limit of message metadata */
#define FEDGE_JSON_MAX_NUMBER 63 /* characters of a number: cJSON's buffer */
#define FEDGE_JSON_MAX_PATH 192  /* bytes of a key path in a message */

/* Options of reading. */
typedef struct fedge_json_options {
    const char *name;    /* name of the file or message in errors; outlives the fedge_json */
    bool lines;          /* [name] is a file: errors have the line */
    bool strict;         /* unknown keys are errors; otherwise they are ignored */
    fedge_status status; /* status of errors in the content; malformed text is FEDGE_CORRUPT */
    size_t max_size;     /* bytes */
    uint32_t max_depth;  /* ≤ FEDGE_JSON_MAX_DEPTH; the outermost object is depth 1 */
    uint32_t max_values; /* total of numbers, strings, arrays, …, which bounds the tree's memory */
} fedge_json_options;

/* A parsed text. */
typedef struct fedge_json {
    fedge_json_options options;
    const char *text; /* the caller's; in use until fedge_json_close */
    size_t size;
    cJSON *root; /* an object */
} fedge_json;

/* Parses [text]; close *json only after success. FEDGE_TOO_BIG: the size; FEDGE_CORRUPT: it is not
 * one JSON object within the limits; FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_json_open(fedge_json *json, const char *text, size_t size,
                                            const fedge_json_options *options, fedge_error *err);
void fedge_json_close(fedge_json *json);

/* The type of a field, in the struct and in JSON. */
typedef enum fedge_json_kind {
    FEDGE_JSON_BOOL,    /* bool: true or false */
    FEDGE_JSON_U32,     /* uint32_t */
    FEDGE_JSON_U64,     /* uint64_t, ≤ FEDGE_JSON_MAX_INTEGER */
    FEDGE_JSON_I32,     /* int */
    FEDGE_JSON_I8,      /* int8_t */
    FEDGE_JSON_F32,     /* float, finite */
    FEDGE_JSON_F64,     /* double, finite */
    FEDGE_JSON_SECONDS, /* uint64_t of milliseconds: a number of seconds */
    FEDGE_JSON_PAIR,    /* uint32_t[2]: one integer for both, or [first, second] */
    FEDGE_JSON_TEXT,    /* char[size]: text of [min, size) bytes without control characters */
    FEDGE_JSON_LINES,   /* char[size]: TEXT of up to [max] bytes, or a list of them, one per line */
    FEDGE_JSON_HEX,     /* char[size]: exactly size − 1 lower-case hex digits */
    FEDGE_JSON_ENUM,    /* an enum: one of the texts of name_of for 0 … num_names − 1 */
    FEDGE_JSON_ENUMS,   /* unsigned, bit i for enum value i: a list of such texts */
    FEDGE_JSON_NAME,    /* char[size], or nothing where size is 0: one of [choices] */
    FEDGE_JSON_OBJECT,  /* a struct (with offset 0, the same one): [fields] */
    FEDGE_JSON_CUSTOM, /* [read] and [write] of the value at [offset]; offset 0: of the whole struct
                        */
    FEDGE_JSON_IGNORED /* allowed and ignored */
} fedge_json_kind;

#define FEDGE_JSON_REQUIRED 0x1   /* otherwise [fallback] when absent */
#define FEDGE_JSON_PRESENCE 0x2   /* the bool at [extra] is whether the key is present */
#define FEDGE_JSON_LIST 0x4       /* an array of [kind]: see FEDGE_JSON_ARRAY */
#define FEDGE_JSON_SAME_COUNT 0x8 /* a list as long as the previous field, sharing its count */
#define FEDGE_JSON_LENIENT 0x10   /* ENUM: an unknown name reads as [fallback] */
#define FEDGE_JSON_SPARSE 0x20    /* numbers, BOOL, ENUM: not written if equal to [fallback] */
#define FEDGE_JSON_HEAP 0x40      /* LIST: see FEDGE_JSON_HEAP_ARRAY */

typedef struct fedge_json_field fedge_json_field;

typedef fedge_status (*fedge_json_read_fn)(const fedge_json *json, const cJSON *node, void *value,
                                           fedge_error *err);
/* Adds the value of [key] to [object], or nothing when the value is empty. */
typedef fedge_status (*fedge_json_write_fn)(const void *value, const char *key, cJSON *object,
                                            fedge_error *err);

/* One key of an object. An array of them ends with FEDGE_JSON_END. It is packed, since small
 * programs have hundreds. */
struct fedge_json_field {
    const char *key;
    const char *aliases; /* other accepted spellings, separated by spaces; or NULL */
    fedge_json_kind kind;
    uint16_t flags;                /* FEDGE_JSON_REQUIRED, … */
    uint16_t num_names;            /* ENUM, ENUMS */
    uint32_t offset;               /* offset of the value in the struct */
    uint32_t size;                 /* bytes of the value, or of one element of a list */
    uint32_t extra;                /* PRESENCE: offset of a bool. LIST: of a uint32_t, the count */
    uint16_t min_count, max_count; /* LIST */
    double min,
        max; /* inclusive range of numbers; both 0: every value of the type. TEXT: least bytes */
    double fallback; /* value when absent; ENUM: its number; NAME: always the first choice */
    union {          /* selected by kind */
        const char *(*name_of)(unsigned value); /* ENUM, ENUMS */
        const char *const *choices;             /* NAME: ends with NULL */
        fedge_json_read_fn read;                /* CUSTOM */
    };
    const fedge_json_field *fields; /* OBJECT */
    fedge_json_write_fn write;      /* CUSTOM; of a struct that is only read: NULL */
};

#define FEDGE_JSON_END                                                                             \
    {                                                                                              \
        .key = NULL                                                                                \
    }

/* A field's offset: FEDGE_JSON_AT(struct, member); FEDGE_JSON_ARRAY(struct, member, count member).
 */
#define FEDGE_JSON_AT(type, member)                                                                \
    .offset = offsetof(type, member), .size = sizeof(((type *)NULL)->member)
#define FEDGE_JSON_ARRAY(type, member, count)                                                      \
    .offset = offsetof(type, member), .size = sizeof(((type *)NULL)->member[0]),                   \
    .extra = offsetof(type, count),                                                                \
    .max_count = (uint16_t)(sizeof(((type *)NULL)->member) / sizeof(((type *)NULL)->member[0]))

/* A malloc'ed list of up to [most] numbers: the member is a pointer, NULL if empty. Flags:
 * FEDGE_JSON_LIST | FEDGE_JSON_HEAP. The caller frees it, also after a failure, so the struct must
 * be all 0 before reading. */
#define FEDGE_JSON_HEAP_ARRAY(type, member, count, most)                                           \
    .offset = offsetof(type, member), .size = sizeof(((type *)NULL)->member[0]),                   \
    .extra = offsetof(type, count), .max_count = (most)

/* Reads [object] (of json's tree) into the struct at [record] and sets every field, absent keys to
 * their defaults. On failure the struct is partly read. */
FEDGE_MUST_USE fedge_status fedge_json_read(const fedge_json *json, const cJSON *object,
                                            const fedge_json_field *fields, void *record,
                                            fedge_error *err);

/* Sets only the defaults, as if every key were absent. */
void fedge_json_defaults(const fedge_json_field *fields, void *record);

/* The field whose key or alias is [key], or NULL. [fields] may be NULL. */
const fedge_json_field *fedge_json_field_of(const fedge_json_field *fields, const char *key);

/* The member [key] of [object], or NULL. */
const cJSON *fedge_json_get(const cJSON *object, const char *key);

/* Copies a text to out[0, size) by the rules of FEDGE_JSON_TEXT. */
FEDGE_MUST_USE fedge_status fedge_json_text(const fedge_json *json, const cJSON *node,
                                            size_t min_size, char *out, size_t size,
                                            fedge_error *err);

/* Fails with options.status and "name:line: path: message" for [node], or for [key] in it if that
 * is not NULL. */
fedge_status fedge_json_fail(const fedge_json *json, const cJSON *node, const char *key,
                             fedge_error *err, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Fails for a key path from the root, such as "rounds.max-cohort"; the line is that of its
 * innermost existing part. */
fedge_status fedge_json_fail_at(const fedge_json *json, const char *path, fedge_error *err,
                                const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Fails with ""text" is not known here; did you mean …? valid: …". It lists [names] (count of them,
 * NULL entries skipped) if they are few or none is near. */
fedge_status fedge_json_fail_name(const fedge_json *json, const cJSON *node, const char *text,
                                  const char *const *names, size_t count, fedge_error *err);

/* Adds the struct at [record] to [object] by its table. Omits empty optional texts and lists, pairs
 * equal to their default, and absent optional values. Floats have the fewest digits that read back
 * exactly. Control characters and bytes that are not UTF-8 become '?'. */
FEDGE_MUST_USE fedge_status fedge_json_write(const fedge_json_field *fields, const void *record,
                                             cJSON *object, fedge_error *err);

/* Writes the struct as compact text, deterministically; *text is malloc'ed and NUL-terminated. */
FEDGE_MUST_USE fedge_status fedge_json_print(const fedge_json_field *fields, const void *record,
                                             char **text, size_t *size, fedge_error *err);

/* The tree as compact text, with the bytes of cJSON_PrintUnformatted; malloc'ed. NULL: no memory.
 */
char *fedge_json_print_tree(const cJSON *root);

/* The entry of [names] (count of them, NULL entries skipped) nearest to [text], or NULL: the
 * optimal string alignment distance is at most a third of the length. */
const char *fedge_json_nearest(const char *text, const char *const *names, size_t count);

/* Length of the valid UTF-8 sequence at the start of text[0, size), or 0. */
size_t fedge_utf8_sequence(const unsigned char *text, size_t size);

/* ---- seals ----------------------------------------------------------------------------------- */

/* A checksum at the end of a JSON object: its last member, of all bytes before it.
 *
 *     {"format":1,"number":3}     becomes     {"format":1,"number":3,"crc32":"5f0a9c1e"}
 *
 * Other readers see one extra member. For files that fedge reads back and trusts;
 * what older releases wrote has none and is taken as it is.
 */

#define FEDGE_SEAL_SIZE ((size_t)20) /* bytes: ,"crc32":"xxxxxxxx"} */

/* Writes the seal, which replaces the last byte, a "}", of a non-empty object[0, size). */
void fedge_seal_make(const char *object, size_t size, char seal[FEDGE_SEAL_SIZE + 1]);

/* Checks the seal; [text] may have a newline after the object. FEDGE_CORRUPT: the seal does not
 * match, or is damaged: with two of its bytes damaged it is still recognised. */
FEDGE_MUST_USE fedge_status fedge_seal_check(const char *text, size_t size, const char *name,
                                             fedge_error *err);

#endif
