/* Tensor schemas: names, shapes and the place of each tensor in one contiguous block.
 *
 * A model's parameters, an update's delta and the aggregator's sums all share one layout: the
 * tensors one after another in schema order, without padding, so element i of a tensor is at
 * values[spec.offset + i] in each of them. Names and layouts are those of a PyTorch state_dict
 * (Linear [out, in], Conv2d [out, in / groups, kh, kw], row-major).
 */
#ifndef FEDGE_EDGE_CORE_TENSOR_H
#define FEDGE_EDGE_CORE_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"

#define FEDGE_MAX_RANK 8
#define FEDGE_MAX_TENSOR_NAME 96 /* bytes with the terminating NUL */
#define FEDGE_MAX_TENSORS 1024   /* tensors of one schema */
/* In one schema: 8 GiB of float; so many that 8 bytes each still count in a size_t of 32 bits. */
#define FEDGE_MAX_ELEMENTS ((size_t)1 << (sizeof(size_t) > 4 ? 31 : 28))

typedef enum fedge_dtype {
    FEDGE_F32,
    FEDGE_F16,
    FEDGE_BF16,
    FEDGE_F64,
    FEDGE_I8,
    FEDGE_U8,
    FEDGE_I16,
    FEDGE_I32,
    FEDGE_I64,
    FEDGE_DTYPE_COUNT
} fedge_dtype;

/* Bytes of one element. */
size_t fedge_dtype_size(fedge_dtype dtype);

/* "F32", "BF16", …: the names of the safetensors format. NULL for an unknown one. */
const char *fedge_dtype_name(fedge_dtype dtype);

/* One tensor of a schema. Plain data. */
typedef struct fedge_tensor_spec {
    char name[FEDGE_MAX_TENSOR_NAME]; /* e.g. "0.weight"; unique within a schema */
    fedge_dtype dtype;                /* parameters are FEDGE_F32 */
    uint32_t rank;                    /* 0 (scalar) to FEDGE_MAX_RANK */
    uint32_t shape[FEDGE_MAX_RANK];   /* every dimension ≥ 1 */
    size_t count;                     /* product of the shape, in elements */
    size_t offset;                    /* offset of the first element in the block, in elements */
} fedge_tensor_spec;

/* An ordered list of tensors. The array belongs to whoever called fedge_schema_init. */
typedef struct fedge_schema {
    fedge_tensor_spec *tensors;
    uint32_t num_tensors;
    uint32_t capacity;   /* tensors the array has room for */
    size_t num_elements; /* sum of the counts */
} fedge_schema;

/* An empty schema over the caller's array of [capacity] specs, which must outlive it. */
void fedge_schema_init(fedge_schema *schema, fedge_tensor_spec *storage, uint32_t capacity);

/* Appends a tensor and computes its count and offset.
 * FEDGE_INVALID_ARGUMENT: empty, too long or repeated name, rank over FEDGE_MAX_RANK, a zero
 * dimension. FEDGE_TOO_BIG: no room in the array, or the sum of elements over FEDGE_MAX_ELEMENTS
 * (checked without overflow). The schema is unchanged on failure. */
FEDGE_MUST_USE fedge_status fedge_schema_add(fedge_schema *schema, const char *name,
                                             fedge_dtype dtype, uint32_t rank,
                                             const uint32_t *shape, fedge_error *err);

/* The tensor named [name], or NULL. */
const fedge_tensor_spec *fedge_schema_find(const fedge_schema *schema, const char *name);

/* Writes "[16, 3, 3, 3]" to [text]; returns [text]. The size fits FEDGE_MAX_RANK numbers of ten
 * digits; dimensions beyond FEDGE_MAX_RANK are shown as "...". */
#define FEDGE_SHAPE_TEXT_SIZE 104
char *fedge_shape_text(uint32_t rank, const uint32_t *shape, char text[FEDGE_SHAPE_TEXT_SIZE]);

#endif
