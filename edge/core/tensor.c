#include "edge/core/tensor.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "edge/core/half.h"
#include "edge/core/os.h"

size_t fedge_dtype_size(fedge_dtype dtype)
{
    static const uint8_t sizes[FEDGE_DTYPE_COUNT] = {
        [FEDGE_F32] = 4, [FEDGE_F16] = 2, [FEDGE_BF16] = 2, [FEDGE_F64] = 8, [FEDGE_I8] = 1,
        [FEDGE_U8] = 1,  [FEDGE_I16] = 2, [FEDGE_I32] = 4,  [FEDGE_I64] = 8,
    };
    return (unsigned)dtype < FEDGE_DTYPE_COUNT ? sizes[dtype] : 0;
}

const char *fedge_dtype_name(fedge_dtype dtype)
{
    static const char *const names[FEDGE_DTYPE_COUNT] = {
        [FEDGE_F32] = "F32", [FEDGE_F16] = "F16", [FEDGE_BF16] = "BF16",
        [FEDGE_F64] = "F64", [FEDGE_I8] = "I8",   [FEDGE_U8] = "U8",
        [FEDGE_I16] = "I16", [FEDGE_I32] = "I32", [FEDGE_I64] = "I64",
    };
    return (unsigned)dtype < FEDGE_DTYPE_COUNT ? names[dtype] : NULL;
}

uint16_t fedge_half_of(fedge_dtype dtype, float x)
{
    const bool is_bf16 = dtype == FEDGE_BF16;
    const uint16_t bits = is_bf16 ? fedge_bf16_from_float(x) : fedge_f16_from_float(x);
    /* One less than infinity is the largest number. */
    const bool overflowed = (bits & 0x7fffu) == (is_bf16 ? 0x7f80u : 0x7c00u) && isfinite(x);
    return overflowed ? (uint16_t)(bits - 1) : bits;
}

float fedge_half_value(fedge_dtype dtype, uint16_t bits)
{
    return dtype == FEDGE_BF16 ? fedge_bf16_to_float(bits) : fedge_f16_to_float(bits);
}

void fedge_schema_init(fedge_schema *schema, fedge_tensor_spec *storage, uint32_t capacity)
{
    *schema = (fedge_schema){.tensors = storage, .capacity = capacity};
}

/* Checks that need no arithmetic. */
static fedge_status check_spec(const fedge_schema *schema, const char *name, fedge_dtype dtype,
                               uint32_t rank, fedge_error *err)
{
    if (!name || name[0] == '\0') {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "tensor %u has no name",
                          (unsigned)schema->num_tensors);
    }
    if (strlen(name) >= FEDGE_MAX_TENSOR_NAME) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "tensor name \"%.40s...\" has %zu bytes; at most %d are allowed", name,
                          strlen(name), FEDGE_MAX_TENSOR_NAME - 1);
    }
    if ((unsigned)dtype >= FEDGE_DTYPE_COUNT) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "tensor \"%s\" has an unknown type (%d)",
                          name, (int)dtype);
    }
    if (rank > FEDGE_MAX_RANK) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "tensor \"%s\" has %u dimensions; at most %d are allowed", name,
                          (unsigned)rank, FEDGE_MAX_RANK);
    }
    if (fedge_schema_find(schema, name))
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "tensor name \"%s\" is used twice", name);
    if (schema->num_tensors >= FEDGE_MAX_TENSORS || schema->num_tensors >= schema->capacity) {
        return fedge_fail(err, FEDGE_TOO_BIG, "no room for tensor \"%s\": at most %u are allowed",
                          name,
                          (unsigned)(schema->capacity < FEDGE_MAX_TENSORS ? schema->capacity
                                                                          : FEDGE_MAX_TENSORS));
    }
    return FEDGE_OK;
}

fedge_status fedge_schema_add(fedge_schema *schema, const char *name, fedge_dtype dtype,
                              uint32_t rank, const uint32_t *shape, fedge_error *err)
{
    FEDGE_TRY(check_spec(schema, name, dtype, rank, err));

    uint64_t count = 1; /* ≤ 2^31 after each step, so the next product fits 64 bits */
    for (uint32_t i = 0; i < rank; i++) {
        if (shape[i] == 0) {
            return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                              "tensor \"%s\": dimension %u is 0; it must be at least 1", name,
                              (unsigned)i);
        }
        count *= shape[i];
        if (count > FEDGE_MAX_ELEMENTS)
            break;
    }
    const uint64_t floats = FEDGE_HAS_TYPES && dtype == FEDGE_I64 ? 2 * count : count;
    if (floats > FEDGE_MAX_ELEMENTS - schema->num_elements) {
        char text[FEDGE_SHAPE_TEXT_SIZE];
        return fedge_fail(
            err, FEDGE_TOO_BIG, "tensor \"%s\" %s on top of %zu elements is over the limit of %zu",
            name, fedge_shape_text(rank, shape, text), schema->num_elements, FEDGE_MAX_ELEMENTS);
    }

    fedge_tensor_spec *spec = &schema->tensors[schema->num_tensors];
    *spec = (fedge_tensor_spec){
        .dtype = dtype, .rank = rank, .count = (size_t)count, .offset = schema->num_elements};
    memcpy(spec->name, name, strlen(name) + 1);
    if (rank > 0)
        memcpy(spec->shape, shape, rank * sizeof(shape[0]));
    schema->num_tensors++;
    schema->num_elements += (size_t)floats;
    return FEDGE_OK;
}

const fedge_tensor_spec *fedge_schema_find(const fedge_schema *schema, const char *name)
{
    for (uint32_t i = 0; i < schema->num_tensors; i++) {
        if (strcmp(schema->tensors[i].name, name) == 0)
            return &schema->tensors[i];
    }
    return NULL;
}

char *fedge_shape_text(uint32_t rank, const uint32_t *shape, char text[FEDGE_SHAPE_TEXT_SIZE])
{
    size_t used = 0;
    text[used++] = '[';
    for (uint32_t i = 0; i < rank && i < FEDGE_MAX_RANK; i++) {
        int length = fedge_os_format(text + used, FEDGE_SHAPE_TEXT_SIZE - used, "%s%lu",
                                     i == 0 ? "" : ", ", (unsigned long)shape[i]);
        used += (size_t)length;
    }
    fedge_os_format(text + used, FEDGE_SHAPE_TEXT_SIZE - used, "%s]",
                    rank > FEDGE_MAX_RANK ? "..." : "");
    return text;
}
