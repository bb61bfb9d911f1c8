/* LEAF's data files (Caldas et al. 2018, arXiv 1812.01097; github.com/TalwalkarLab/leaf): JSON,
 *
 *   {"users": ["a", …], "num_samples": [2, …], "hierarchies": […],
 *    "user_data": {"a": {"x": [[0.5, 1], …], "y": [3, …]}, …}}
 *
 * of which user_data is needed and read, and what "users" and "num_samples" say of it is checked;
 * other keys are passed over. An x is a list of numbers, nested or not, or a text; a y is an
 * integer or a text of one character. Characters are numbered by their place in FEDGE_LEAF_LETTERS,
 * as LEAF does for Shakespeare. The file is read as a stream: memory does not grow with it.
 * Internal to edge/data. A build without FEDGE_MORE_DATA (CMake) refuses such files (data_file.c).
 */
#ifndef FEDGE_EDGE_DATA_FORMATS_LEAF_H
#define FEDGE_EDGE_DATA_FORMATS_LEAF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"
#include "edge/core/tensor.h"

#define FEDGE_LEAF_LETTERS                                                                         \
    "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
#define FEDGE_LEAF_NUM_LETTERS 80
#define FEDGE_LEAF_MAX_NAME 256 /* bytes of a user's name, with its NUL */
#define FEDGE_LEAF_MAX_DEPTH 32 /* of lists and objects in each other */
#define FEDGE_LEAF_USER "user"  /* what natural: calls the owner */

/* Callbacks for the contents of a file, in its order. Each returns FEDGE_OK to go on. */
typedef struct fedge_leaf_visitor {
    void *context;
    /* A user's examples follow. NULL: not wanted. */
    fedge_status (*user)(void *context, const char *name, fedge_error *err);
    /* The next y. NULL: only counted. */
    fedge_status (*label)(void *context, int64_t label, fedge_error *err);
    /* The next x: *out gets where its values are to go, NULL for nowhere. NULL: only counted. */
    fedge_status (*values)(void *context, void **out, fedge_error *err);
    fedge_dtype dtype;     /* of those values: FEDGE_U8 (integers from 0 to 255) or FEDGE_F32 */
    size_t example_values; /* of each x */
} fedge_leaf_visitor;

/* Does a file that begins with these bytes claim to be JSON? */
bool fedge_leaf_matches(const uint8_t *head, size_t size);

/* Reads the file at [path], plain or gzip. FEDGE_CORRUPT with the byte for what is not JSON or not
 * LEAF's; FEDGE_MISMATCH for an x of another size, a user with more or fewer y than x, and what
 * "users" or "num_samples" count otherwise; FEDGE_TRUNCATED for a user without examples, and a file
 * that ends early; FEDGE_OUT_OF_RANGE for a character or an element that is none; FEDGE_NOT_FINITE;
 * FEDGE_TOO_BIG for the limits above; what the visitor returns. Messages have path, user and the
 * place. Labels are integers of 53 bits: whether there are such labels is for the visitor to say.
 */
FEDGE_MUST_USE fedge_status fedge_leaf_read(const char *path, const fedge_leaf_visitor *visitor,
                                            fedge_error *err);

#endif
