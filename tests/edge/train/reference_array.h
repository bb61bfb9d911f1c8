/* Arrays of the reference in double precision, and its layers that are in a file of their own. */
#ifndef FEDGE_TESTS_EDGE_TRAIN_REFERENCE_ARRAY_H
#define FEDGE_TESTS_EDGE_TRAIN_REFERENCE_ARRAY_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/edge/train/support.h"

/* Values of a batch: (n, c, h, w). Sequences and features leave h and w, or c, h and w to 1. */
typedef struct array {
    size_t rank, n, c, h, w; /* rank without the batch */
    double *v;
} array;

static inline array array_new(size_t rank, size_t n, size_t c, size_t h, size_t w)
{
    const array made = {rank, n, c, h, w, calloc(n * c * h * w, sizeof(double))};
    assert_non_null(made.v);
    return made;
}

static inline size_t count(const array *a)
{
    return a->n * a->c * a->h * a->w;
}

static inline double at(const array *a, size_t n, size_t c, size_t y, size_t x)
{
    return a->v[((n * a->c + c) * a->h + y) * a->w + x];
}

static inline uint32_t or_one(uint32_t n)
{
    return n == 0 ? 1 : n;
}

/* The layers that small builds leave out; false for others. in: inputs[0], a sequence of a
 * one-dimensional layer as an image of height 1. *values moves on behind the parameters. */
bool reference_more_layer(const fedge_layer_spec *layer, const array *in, const array *inputs,
                          uint32_t num_inputs, const double **values, array *out);

#endif
