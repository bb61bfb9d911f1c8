/* Tensor schemas: name, shape and offset of each tensor in one contiguous block.
 *
 * A model's parameters, an update's delta and the aggregator's sums share a layout: tensors in
 * schema order without padding, so element i of a tensor is values[spec.offset + i] in each of
 * them. Names and layouts are those of a PyTorch state_dict (Linear [out, in], Conv2d [out, in /
 * groups, kh, kw], row-major).
 *
 * The block is of floats. A tensor of FEDGE_F16 or FEDGE_BF16 has a float for each element, of a
 * value that the dtype has; one of FEDGE_I64 has two, whose bytes are the integer's.
 */
#ifndef FEDGE_EDGE_CORE_TENSOR_H
#define FEDGE_EDGE_CORE_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"

#define FEDGE_MAX_RANK 8
#define FEDGE_MAX_TENSOR_NAME 96 /* bytes with NUL */
#ifndef FEDGE_SMALL
#define FEDGE_MAX_TENSORS 4096 /* tensors of one schema */
#else
#define FEDGE_MAX_TENSORS 1024 /* FEDGE_MAX_LAYERS need no more */
#endif
/* In one schema: 8 GiB of floats; 8 bytes for each still fit a 32-bit size_t. */
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

/* "F32", "BF16", …, as in safetensors; NULL if unknown. */
const char *fedge_dtype_name(fedge_dtype dtype);

/* FEDGE_F16 and FEDGE_BF16. */
static inline bool fedge_dtype_is_half(fedge_dtype dtype)
{
    return dtype == FEDGE_F16 || dtype == FEDGE_BF16;
}

/* Whether models may have other types than FEDGE_F32: small builds are for fedge's own trainer. */
#ifndef FEDGE_SMALL
#define FEDGE_HAS_TYPES true
#else
#define FEDGE_HAS_TYPES false
#endif

/* Rounds x to a half's 16 bits, to nearest even; a finite x stays finite. And back, exactly. */
uint16_t fedge_half_of(fedge_dtype dtype, float x);
float fedge_half_value(fedge_dtype dtype, uint16_t bits);

/* One tensor of a schema. Plain data. */
typedef struct fedge_tensor_spec {
    char name[FEDGE_MAX_TENSOR_NAME]; /* e.g. "0.weight"; unique within a schema */
    fedge_dtype dtype;                /* built-in models are FEDGE_F32 */
    uint32_t rank;                    /* 0 (scalar) to FEDGE_MAX_RANK */
    uint32_t shape[FEDGE_MAX_RANK];   /* each ≥ 1 */
    size_t count;                     /* product of the shape, in elements */
    size_t offset;                    /* offset of the first element in the block, in floats */
    bool frozen;                      /* goes to clients with the model, never back */
} fedge_tensor_spec;

/* An ordered list of tensors. The caller of fedge_schema_init owns the array. */
typedef struct fedge_schema {
    fedge_tensor_spec *tensors;
    uint32_t num_tensors;
    uint32_t capacity;   /* tensors that the array can store */
    size_t num_elements; /* floats of the block: the sum of the counts, FEDGE_I64 twice */
} fedge_schema;

/* Initializes an empty schema over the caller's array of [capacity] specs, which must outlive it.
 */
void fedge_schema_init(fedge_schema *schema, fedge_tensor_spec *storage, uint32_t capacity);

/* Appends a tensor and computes its count and offset. FEDGE_INVALID_ARGUMENT: an empty, overlong or
 * duplicate name, a rank over FEDGE_MAX_RANK, or a zero dimension. FEDGE_TOO_BIG: the array is
 * full, or the elements exceed FEDGE_MAX_ELEMENTS (without overflow). The schema is unchanged on
 * failure. */
FEDGE_MUST_USE fedge_status fedge_schema_add(fedge_schema *schema, const char *name,
                                             fedge_dtype dtype, uint32_t rank,
                                             const uint32_t *shape, fedge_error *err);

/* Floats of the tensor in a block. */
static inline size_t fedge_tensor_floats(const fedge_tensor_spec *tensor)
{
    return tensor->dtype == FEDGE_I64 ? 2 * tensor->count : tensor->count;
}

/* The tensor named [name], or NULL. */
const fedge_tensor_spec *fedge_schema_find(const fedge_schema *schema, const char *name);

/* Writes "[16, 3, 3, 3]" to [text]; returns [text]. The size fits FEDGE_MAX_RANK numbers of ten
 * digits; further dimensions become "...". */
#define FEDGE_SHAPE_TEXT_SIZE 104
char *fedge_shape_text(uint32_t rank, const uint32_t *shape, char text[FEDGE_SHAPE_TEXT_SIZE]);

#endif
