#include "aggregator/reduce/cuda/geometry.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/half.h"

static_assert(FEDGE_CUDA_BLOCK == FEDGE_CODEC_BLOCK, "a block of coordinates has one scale");

/* ---- codecs ---------------------------------------------------------------------------------- */

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

/* The codec's value, before it was scaled by the bound. */
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

/* The codecs with kernels. A codec needs no entry: without one fedge_cuda_can_sum fails,
 * `--accumulator auto` takes the CPU, which sums every codec, and `cuda` is refused with the names
 * of these lists. An entry needs a case in kernels.cu or chosen.cu. */
static const fedge_cuda_codec codecs[] = {
    {"none", FEDGE_CUDA_NONE, FEDGE_CUDA_BLOCK * sizeof(float), fail_float},
    {"int8", FEDGE_CUDA_INT8, FEDGE_CUDA_BLOCK, fail_int8},
    {"f16", FEDGE_CUDA_F16, FEDGE_CUDA_BLOCK * sizeof(float), fail_f16},
    {"bf16", FEDGE_CUDA_BF16, FEDGE_CUDA_BLOCK * sizeof(float), fail_bf16},
    {"int4", FEDGE_CUDA_INT4, FEDGE_CUDA_BLOCK, fail_int4},
};

static const fedge_cuda_sparsifier sparsifiers[] = {
    {"topk", FEDGE_CUDA_GAPS},
    {"ternary", FEDGE_CUDA_SIGNS},
    {"randk", FEDGE_CUDA_DRAWN},
};

enum {
    NUM_CODECS = sizeof(codecs) / sizeof(codecs[0]),
    NUM_SPARSIFIERS = sizeof(sparsifiers) / sizeof(sparsifiers[0])
};

const fedge_cuda_codec *fedge_cuda_codec_of(const fedge_codec *codec)
{
    for (size_t i = 0; i < NUM_CODECS; i++) {
        if (strcmp(codecs[i].name, codec->values->name) == 0)
            return &codecs[i];
    }
    return NULL;
}

const fedge_cuda_sparsifier *fedge_cuda_sparsifier_of(const fedge_codec *codec)
{
    for (size_t i = 0; i < NUM_SPARSIFIERS && codec->sparsifier; i++) {
        if (strcmp(sparsifiers[i].name, codec->sparsifier->name) == 0)
            return &sparsifiers[i];
    }
    return NULL;
}

static bool is_known(const fedge_codec *codec)
{
    return !codec->tensors && fedge_cuda_codec_of(codec) &&
           (!codec->sparsifier || fedge_cuda_sparsifier_of(codec));
}

fedge_status fedge_cuda_can_sum(const fedge_update_layout *layout, fedge_error *err)
{
    char text[FEDGE_CODEC_TEXT], known[128] = "";
    uint32_t s = 0;
    while (s < layout->num_sections && is_known(&layout->sections[s].codec))
        s++;
    if (s == layout->num_sections)
        return FEDGE_OK;
    for (size_t i = 0; i < NUM_CODECS + NUM_SPARSIFIERS; i++) {
        const size_t used = strlen(known);
        (void)snprintf(known + used, sizeof(known) - used, "%s%s", i > 0 ? ", " : "",
                       i < NUM_CODECS ? codecs[i].name : sparsifiers[i - NUM_CODECS].name);
    }
    return fedge_fail(
        err, FEDGE_INVALID_ARGUMENT,
        "GPUs cannot sum the codec %s%s yet; sum on the CPU (--accumulator cpu), or take "
        "some of %s",
        fedge_codec_text(&layout->sections[s].codec, text),
        layout->sections[s].codec.tensors ? ", with others for some layers," : "", known);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static uint32_t blocks_of(const fedge_tensor_spec *spec)
{
    return (uint32_t)((spec->count + FEDGE_CUDA_BLOCK - 1) / FEDGE_CUDA_BLOCK);
}

static fedge_status take_memory(fedge_cuda_geometry *geometry, const fedge_update_layout *layout,
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

/* Places the blocks of tensor [index] after [*block] and [*offset], which is in its section. */
static void lay(fedge_cuda_geometry *geometry, uint32_t index, const fedge_codec *codec,
                uint32_t *block, uint64_t *offset)
{
    fedge_cuda_tensor *tensor = &geometry->tensors[index];
    tensor->first_block = *block;
    tensor->num_blocks = blocks_of(tensor->spec);
    size_t left = tensor->spec->count;
    /* A tensor's last block may be short, but has a whole block of coordinates on the GPU, so
     * kernels find a coordinate's block by one division. */
    for (; left > 0; (*block)++) {
        const uint32_t count = left < FEDGE_CUDA_BLOCK ? (uint32_t)left : FEDGE_CUDA_BLOCK;
        geometry->blocks[*block] = (fedge_cuda_block){*offset, index, count};
        *offset += fedge_codec_run_size(codec, count);
        left -= count;
    }
}

fedge_status fedge_cuda_geometry_init(fedge_cuda_geometry *geometry,
                                      const fedge_update_layout *layout, fedge_error *err)
{
    *geometry = (fedge_cuda_geometry){.num_elements = layout->num_elements};
    FEDGE_TRY(take_memory(geometry, layout, err));
    uint32_t index = 0;
    uint32_t block = 0;
    for (uint32_t s = 0; s < layout->num_sections; s++) {
        const fedge_update_layout_section *section = &layout->sections[s];
        uint64_t offset = 0;
        fedge_cuda_segment *segment = &geometry->segments[geometry->num_segments++];
        *segment = (fedge_cuda_segment){.codec = fedge_cuda_codec_of(&section->codec),
                                        .sparsifier = fedge_cuda_sparsifier_of(&section->codec),
                                        .pipeline = section->codec,
                                        .section = s,
                                        .first_block = block,
                                        .first_tensor = index,
                                        .num_tensors = section->schema->num_tensors,
                                        .size = fedge_codec_size(&section->codec, section->schema)};
        for (uint32_t t = 0; t < section->schema->num_tensors; t++, index++) {
            geometry->tensors[index].spec = &section->schema->tensors[t];
            lay(geometry, index, &section->codec, &block, &offset);
        }
        segment->num_blocks = block - segment->first_block;
        /* Without a sparsifier a section has a fixed size, on which the codec and this loop must
         * agree: the GPU reads at these offsets without checking the section's length. */
        assert(segment->sparsifier || offset == segment->size);
    }
    return FEDGE_OK;
}

void fedge_cuda_geometry_fini(fedge_cuda_geometry *geometry)
{
    free(geometry->tensors);
    free(geometry->blocks);
    *geometry = (fedge_cuda_geometry){0};
}

/* Sets the tensors of a cut that have some of its blocks. */
static void cut_tensors(const fedge_cuda_geometry *geometry, fedge_cuda_segment *cut)
{
    const fedge_cuda_block *blocks = geometry->blocks;
    const uint32_t last = blocks[cut->first_block + cut->num_blocks - 1].tensor;
    cut->first_tensor = blocks[cut->first_block].tensor;
    cut->num_tensors = last + 1 - cut->first_tensor;
}

bool fedge_cuda_cut(const fedge_cuda_geometry *geometry, const fedge_cuda_segment *whole,
                    uint32_t first_block, uint32_t num_blocks, size_t plane,
                    fedge_cuda_segment *cut)
{
    const uint32_t whole_end = whole->first_block + whole->num_blocks;
    const uint32_t end =
        first_block + num_blocks < whole_end ? first_block + num_blocks : whole_end;
    const uint32_t first = whole->first_block > first_block ? whole->first_block : first_block;
    if (first >= end)
        return false;
    *cut = *whole;
    cut->first_block = first;
    cut->num_blocks = end - first;
    cut->plane = plane;
    cut_tensors(geometry, cut);
    cut->num_bytes = cut->sparsifier ? fedge_cuda_directory_capacity(geometry, cut)
                                     : cut->num_blocks * cut->codec->block_bytes;
    return true;
}

uint64_t fedge_cuda_section_at(const fedge_cuda_geometry *geometry, const fedge_encoded *update,
                               uint32_t section, size_t *size)
{
    uint64_t at = 0;
    *size = 0;
    for (uint32_t s = 0; s <= section; s++) {
        at += *size;
        *size = update->sizes ? (size_t)update->sizes[s] : geometry->segments[s].size;
    }
    return at;
}

uint64_t fedge_cuda_end_of(const fedge_cuda_geometry *geometry, const fedge_cuda_segment *segment,
                           uint32_t block)
{
    const fedge_cuda_block *of = &geometry->blocks[block];
    return of->offset + fedge_codec_run_size(&segment->pipeline, of->count);
}

fedge_cuda_run fedge_cuda_run_at(const fedge_cuda_geometry *geometry, size_t first, size_t count)
{
    uint32_t low = 0;
    uint32_t high = geometry->num_tensors;
    while (high - low > 1) { /* the last tensor that begins at or before [first] */
        const uint32_t midpoint = low + (high - low) / 2;
        if (geometry->tensors[midpoint].spec->offset <= first)
            low = midpoint;
        else
            high = midpoint;
    }
    const fedge_cuda_tensor *tensor = &geometry->tensors[low];
    const size_t within = first - tensor->spec->offset;
    assert(within < tensor->spec->count);
    const size_t left = tensor->spec->count - within;
    return (fedge_cuda_run){low, (uint64_t)tensor->first_block * FEDGE_CUDA_BLOCK + within,
                            count < left ? count : left};
}

uint64_t fedge_cuda_code_of(const fedge_cuda_geometry *geometry, const fedge_cuda_segment *segment)
{
    const uint64_t first = geometry->segments[segment->section].first_block;
    return first * FEDGE_CUDA_BLOCK << 32;
}

/* A GPU only reports that a sparse section is bad. Reading it again on the CPU gives the same
 * message as a server without a GPU. If the CPU finds no error, the GPU or its memory is faulty and
 * its results cannot be trusted. */
static fedge_status fail_chosen(const fedge_cuda_geometry *geometry,
                                const fedge_cuda_segment *segment, const fedge_encoded *update,
                                fedge_error *err)
{
    size_t left = 0;
    const uint8_t *in =
        update->bytes + fedge_cuda_section_at(geometry, update, segment->section, &left);
    for (uint32_t t = 0; t < segment->num_tensors; t++) {
        const uint32_t index = segment->first_tensor + t;
        const fedge_codec_tensor tensor = {.codec = &segment->pipeline,
                                           .spec = geometry->tensors[index].spec,
                                           .bound_log2 = update->bounds_log2[index]};
        size_t used = 0;
        FEDGE_TRY(fedge_codec_read_tensor(&tensor, in, left, &used, err));
        in += used;
        left -= used;
    }
    FEDGE_TRY(fedge_codec_check_end(left, err));
    return fedge_fail(err, FEDGE_GPU_LOST,
                      "a GPU finds wrong what the CPU finds right in an update");
}

fedge_status fedge_cuda_fail_update(const fedge_cuda_geometry *geometry, uint64_t bad,
                                    const fedge_encoded *update, fedge_error *err)
{
    /* [bad] is coordinate · 2^32 + the value's bits (kernels.h). An atomic minimum of these finds
     * the first bad value whatever the order of threads. */
    const uint64_t coordinate = bad >> 32;
    const uint32_t block = (uint32_t)(coordinate / FEDGE_CUDA_BLOCK);
    const uint32_t index = geometry->blocks[block].tensor;
    const fedge_cuda_tensor *tensor = &geometry->tensors[index];
    const uint64_t within = coordinate - (uint64_t)tensor->first_block * FEDGE_CUDA_BLOCK;
    uint32_t s = 0;
    while (block - geometry->segments[s].first_block >= geometry->segments[s].num_blocks)
        s++;
    const fedge_cuda_segment *segment = &geometry->segments[s];
    return segment->sparsifier
               ? fail_chosen(geometry, segment, update, err)
               : segment->codec->fail_value(tensor->spec, update->bounds_log2[index],
                                            (size_t)within, (uint32_t)bad, err);
}
