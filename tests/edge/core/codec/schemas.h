/* Schemas that must be the same: names, types and shapes, in their order. */
#ifndef FEDGE_TESTS_EDGE_CORE_CODEC_SCHEMAS_H
#define FEDGE_TESTS_EDGE_CORE_CODEC_SCHEMAS_H

#include <cmocka.h>

#include "edge/core/tensor.h"

static inline void assert_schemas_equal(const fedge_schema *a, const fedge_schema *b)
{
    assert_int_equal(a->num_tensors, b->num_tensors);
    for (uint32_t i = 0; i < a->num_tensors; i++) {
        const fedge_tensor_spec *x = &a->tensors[i], *y = &b->tensors[i];
        assert_string_equal(x->name, y->name);
        assert_int_equal(x->dtype, y->dtype);
        assert_int_equal(x->rank, y->rank);
        assert_memory_equal(x->shape, y->shape, x->rank * sizeof(x->shape[0]));
    }
}

#endif
