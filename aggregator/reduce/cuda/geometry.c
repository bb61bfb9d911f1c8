#include "aggregator/reduce/cuda/geometry.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/half.h"

static_assert(FEDGE_CUDA_BLOCK == FEDGE_CODEC_BLOCK, "a block of coordinates has one scale");

/* ---- codecs -----------------------------------------------------------------------------------
 */

static fedge_status fail_float(const fedge_tensor_spec *spec, int bound_log2, size_t index,
                               uint32_t bits, fedge_error *err)
{
    float value = 0.0f;
    memcpy(&value, &bits, sizeof(value));
    return fedge_fail(err, isfinite(value) ? FEDGE_OUT_OF_RANGE : FEDGE_NOT_FINITE,
                      "value %zu of tensor \"%s\" is %g; |x| <= %g is demanded", index, spec->name,
                      (double)value, ldexp(1.0, bound_log2));
}

static fedge_status fail_int8(const fedge_tensor_spec *spec, int bound_log2, size_t index,
                              uint32_t bits, fedge_error *err)
{
    (void)bound_log2, (void)bits;
    return fedge_fail(err, FEDGE_CORRUPT,
                      "value %zu of tensor \"%s\" is -128; int8 uses -127 to 127", index,
                      spec->name);
}

/* As the codec has it, before it was scaled by its bound. */
static fedge_status fail_f16(const fedge_tensor_spec *spec, int bound_log2, size_t index,
                             uint32_t bits, fedge_error *err)
{
    const float value = ldexpf(fedge_f16_to_float((uint16_t)bits), bound_log2 - 15);
    return fail_float(spec, bound_log2, index, fedge_float_bits(value), err);
}

static fedge_status fail_bf16(const fedge_tensor_spec *spec, int bound_log2, size_t index,
                              uint32_t bits, fedge_error *err)
{
    return fail_float(spec, bound_log2, index, bits << 16, err);
}

static fedge_status fail_int4(const fedge_tensor_spec *spec, int bound_log2, size_t index,
                              uint32_t bits, fedge_error *err)
{
    (void)bound_log2, (void)bits;
    return index == spec->count
               ? fedge_fail(err, FEDGE_CORRUPT,
                            "tensor \"%s\": the bits behind the last value are not 0", spec->name)
               : fedge_fail(err, FEDGE_CORRUPT,
                            "value %zu of tensor \"%s\" is -8; int4 uses -7 to 7", index,
                            spec->name);
}

static const fedge_cuda_codec codecs[] = {
    {"none", FEDGE_CUDA_NONE, FEDGE_CUDA_BLOCK * sizeof(float), fail_float},
    {"int8", FEDGE_CUDA_INT8, FEDGE_CUDA_BLOCK, fail_int8},
    {"f16", FEDGE_CUDA_F16, FEDGE_CUDA_BLOCK * sizeof(float), fail_f16},
    {"bf16", FEDGE_CUDA_BF16, FEDGE_CUDA_BLOCK * sizeof(float), fail_bf16},
    {"int4", FEDGE_CUDA_INT4, FEDGE_CUDA_BLOCK, fail_int4},
};

const fedge_cuda_codec *fedge_cuda_codec_of(const fedge_codec *codec)
{
    char text[FEDGE_CODEC_TEXT];
    fedge_codec_text(codec, text);
    for (size_t i = 0; i < sizeof(codecs) / sizeof(codecs[0]); i++) {
        if (strcmp(codecs[i].name, text) == 0)
            return &codecs[i];
    }
    return NULL;
}

fedge_status fedge_cuda_can_sum(const fedge_layout *layout, fedge_error *err)
{
    char text[FEDGE_CODEC_TEXT], known[128] = "";
    uint32_t s = 0;
    while (s < layout->num_sections && fedge_cuda_codec_of(&layout->sections[s].codec))
        s++;
    if (s == layout->num_sections)
        return FEDGE_OK;
    for (size_t i = 0; i < sizeof(codecs) / sizeof(codecs[0]); i++) {
        const size_t used = strlen(known);
        (void)snprintf(known + used, sizeof(known) - used, "%s%s", i > 0 ? ", " : "",
                       codecs[i].name);
    }
    return fedge_fail(
        err, FEDGE_INVALID_ARGUMENT,
        "GPUs cannot sum the codec %s yet; sum on the CPU (--accumulator cpu), or take "
        "one of %s",
        fedge_codec_text(&layout->sections[s].codec, text), known);
}

/* ---- blocks -----------------------------------------------------------------------------------
 */

static uint32_t blocks_of(const fedge_tensor_spec *spec)
{
    return (uint32_t)((spec->count + FEDGE_CUDA_BLOCK - 1) / FEDGE_CUDA_BLOCK);
}

static fedge_status take_memory(fedge_cuda_geometry *geometry, const fedge_layout *layout,
                                fedge_error *err)
{
    for (uint32_t s = 0; s < layout->num_sections; s++) {
        const fedge_schema *schema = layout->sections[s].schema;
        geometry->num_tensors += schema->num_tensors;
        for (uint32_t t = 0; t < schema->num_tensors; t++)
            geometry->num_blocks += blocks_of(&schema->tensors[t]);
    }
    if (geometry->num_blocks == 0)
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "an accumulator for updates of no values");
    geometry->tensors = calloc(geometry->num_tensors, sizeof(*geometry->tensors));
    geometry->blocks = calloc(geometry->num_blocks, sizeof(*geometry->blocks));
    if (!geometry->tensors || !geometry->blocks) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the places of %zu values",
                          layout->num_elements);
    }
    return FEDGE_OK;
}

/* Lays the blocks of tensor [index] behind [*block] and [*offset]. */
static void lay(fedge_cuda_geometry *geometry, uint32_t index, const fedge_codec *codec,
                uint32_t *block, uint64_t *offset)
{
    fedge_cuda_tensor *tensor = &geometry->tensors[index];
    tensor->first_block = *block;
    tensor->num_blocks = blocks_of(tensor->spec);
    size_t left = tensor->spec->count;
    for (; left > 0; (*block)++) {
        const uint32_t count = left < FEDGE_CUDA_BLOCK ? (uint32_t)left : FEDGE_CUDA_BLOCK;
        geometry->blocks[*block] = (fedge_cuda_block){*offset, index, count};
        *offset += fedge_codec_run_size(codec, count);
        left -= count;
    }
}

fedge_status fedge_cuda_geometry_init(fedge_cuda_geometry *geometry, const fedge_layout *layout,
                                      fedge_error *err)
{
    *geometry = (fedge_cuda_geometry){.num_elements = layout->num_elements, .size = layout->size};
    const fedge_status status = take_memory(geometry, layout, err);
    if (status != FEDGE_OK)
        return status;
    uint32_t index = 0;
    uint32_t block = 0;
    uint64_t offset = 0;
    size_t plane = 0;
    for (uint32_t s = 0; s < layout->num_sections; s++) {
        const fedge_layout_section *section = &layout->sections[s];
        const uint32_t first = block;
        for (uint32_t t = 0; t < section->schema->num_tensors; t++, index++) {
            geometry->tensors[index].spec = &section->schema->tensors[t];
            lay(geometry, index, &section->codec, &block, &offset);
        }
        const fedge_cuda_codec *codec = fedge_cuda_codec_of(&section->codec);
        geometry->segments[s] = (fedge_cuda_segment){codec, first, block - first, plane};
        plane += (block - first) * codec->block_bytes;
    }
    geometry->num_segments = layout->num_sections;
    assert(offset == layout->size);
    return FEDGE_OK;
}

void fedge_cuda_geometry_fini(fedge_cuda_geometry *geometry)
{
    free(geometry->tensors);
    free(geometry->blocks);
    *geometry = (fedge_cuda_geometry){0};
}

uint64_t fedge_cuda_offset_of(const fedge_cuda_geometry *geometry, uint32_t block)
{
    return block < geometry->num_blocks ? geometry->blocks[block].offset : geometry->size;
}

fedge_cuda_run fedge_cuda_run_at(const fedge_cuda_geometry *geometry, size_t first, size_t count)
{
    uint32_t low = 0;
    uint32_t high = geometry->num_tensors;
    while (high - low > 1) { /* the last tensor that begins at or before [first] */
        const uint32_t middle = low + (high - low) / 2;
        if (geometry->tensors[middle].spec->offset <= first)
            low = middle;
        else
            high = middle;
    }
    const fedge_cuda_tensor *tensor = &geometry->tensors[low];
    const size_t within = first - tensor->spec->offset;
    assert(within < tensor->spec->count);
    const size_t left = tensor->spec->count - within;
    return (fedge_cuda_run){low, (uint64_t)tensor->first_block * FEDGE_CUDA_BLOCK + within,
                            count < left ? count : left};
}

fedge_status fedge_cuda_fail_value(const fedge_cuda_geometry *geometry, uint64_t bad,
                                   const int8_t *bounds_log2, fedge_error *err)
{
    const uint64_t coordinate = bad >> 32;
    const uint32_t bits = (uint32_t)bad;
    const uint32_t index = geometry->blocks[coordinate / FEDGE_CUDA_BLOCK].tensor;
    const fedge_cuda_tensor *tensor = &geometry->tensors[index];
    const uint64_t within = coordinate - (uint64_t)tensor->first_block * FEDGE_CUDA_BLOCK;
    uint32_t s = 0;
    while (tensor->first_block - geometry->segments[s].first_block >=
           geometry->segments[s].num_blocks)
        s++;
    return geometry->segments[s].codec->fail_value(tensor->spec, bounds_log2[index], (size_t)within,
                                                   bits, err);
}
