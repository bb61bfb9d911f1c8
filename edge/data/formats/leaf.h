/* LEAF's data files (Caldas et al. 2018, arXiv 1812.01097; github.com/TalwalkarLab/leaf): JSON,
 *
 *   {"users": ["a", …], "num_samples": [2, …], "hierarchies": […],
 *    "user_data": {"a": {"x": [[0.5, 1], …], "y": [3, …]}, …}}
 *
 * user_data is required; "users" and "num_samples" are checked against it, other keys are ignored.
 * An x is a list of numbers, nested or not, or a text; a y is an integer or a text of one
 * character. A character's number is its index in FEDGE_LEAF_LETTERS, as in LEAF for Shakespeare.
 * The file is read as a stream, so memory does not grow with it. Internal to edge/data. A build
 * without FEDGE_MORE_DATA (CMake) refuses such files (data_file.c).
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
#define FEDGE_LEAF_MAX_NAME 256 /* bytes of a user's name, with NUL */
#define FEDGE_LEAF_MAX_DEPTH 32 /* nested lists and objects */
#define FEDGE_LEAF_USER "user"  /* the column's name in natural: */

/* Callbacks for the contents of a file, in its order. Each returns FEDGE_OK to continue. */
typedef struct fedge_leaf_visitor {
    void *context;
    /* Begins a user's examples. May be NULL. */
    fedge_status (*user)(void *context, const char *name, fedge_error *err);
    /* The next y. NULL: y are only counted. */
    fedge_status (*label)(void *context, int64_t label, fedge_error *err);
    /* The next x: *out is where its values go, or NULL to skip it. NULL: x are only counted. */
    fedge_status (*values)(void *context, void **out, fedge_error *err);
    fedge_dtype dtype;     /* type of the values: FEDGE_U8 (integers from 0 to 255) or FEDGE_F32 */
    size_t example_values; /* values of each x */
} fedge_leaf_visitor;

/* Whether a file with these first bytes may be JSON. */
bool fedge_leaf_matches(const uint8_t *head, size_t size);

/* Reads the file at [path], plain or gzip. FEDGE_CORRUPT, with the byte: invalid JSON or not LEAF;
 * FEDGE_MISMATCH: the size of an x, unequal numbers of x and y, or a wrong "users" or
 * "num_samples"; FEDGE_TRUNCATED: a user without examples, or an early end; FEDGE_OUT_OF_RANGE: an
 * unknown character, or a bad element; FEDGE_NOT_FINITE; FEDGE_TOO_BIG: a limit above; and the
 * visitor's failures. Messages have path, user and position. Labels are integers of 53 bits; the
 * visitor checks their range. */
FEDGE_MUST_USE fedge_status fedge_leaf_read(const char *path, const fedge_leaf_visitor *visitor,
                                            fedge_error *err);

#endif
