#include "edge/data/formats/array_file.h"

#include <string.h>

#include "edge/train/kernels/half.h"

static uint64_t load_bits(const fedge_array_info *info, const uint8_t *in)
{
    const size_t size = fedge_dtype_size(info->dtype);
    uint64_t bits = 0;
    for (size_t i = 0; i < size; i++)
        bits = bits << 8 | in[info->big_endian ? i : size - 1 - i];
    return bits;
}

int64_t fedge_array_integer(const fedge_array_info *info, const uint8_t *in)
{
    const uint64_t bits = load_bits(info, in);
    if (info->dtype == FEDGE_I32)
        return (int32_t)(uint32_t)bits;
    return (int64_t)bits;
}

float fedge_array_float(const fedge_array_info *info, const uint8_t *in)
{
    const uint64_t bits = load_bits(info, in);
    if (info->dtype == FEDGE_F64) {
        double x;
        memcpy(&x, &bits, sizeof(x));
        return (float)x;
    }
    if (FEDGE_WITH_MORE_DATA && info->dtype == FEDGE_F16)
        return fedge_f16_to_float((uint16_t)bits);
    const uint32_t low = (uint32_t)(info->dtype == FEDGE_BF16 ? bits << 16 : bits);
    float x;
    memcpy(&x, &low, sizeof(x));
    return x;
}
