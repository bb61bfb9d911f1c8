#include "aggregator/reduce/cuda/geometry.h"

#include <assert.h>

#include "edge/core/bytes.h"
#include "edge/core/codec/chosen.h"

static_assert(FEDGE_CUDA_GROUP == FEDGE_CODEC_GROUP, "groups are read alone");
static_assert(sizeof(fedge_cuda_tensor_entry) == 16 && sizeof(fedge_cuda_group_entry) == 16,
              "a directory has entries of one size");
static_assert(FEDGE_FIXED_VALUE_BITS == 30, "a magnitude is an int32");

enum { ENTRY_BYTES = 16 };

/* ---- sizes ----------------------------------------------------------------------------------- */

static fedge_cuda_index_coding coding_of(const fedge_cuda_segment *cut,
                                         const fedge_tensor_spec *spec)
{
    return fedge_codec_sparsifies(&cut->pipeline, spec) ? cut->sparsifier->coding : FEDGE_CUDA_ALL;
}

static bool has_gaps(fedge_cuda_index_coding coding)
{
    return coding == FEDGE_CUDA_GAPS || coding == FEDGE_CUDA_SIGNS;
}

static uint32_t groups_of(size_t count)
{
    return (uint32_t)((count + FEDGE_CUDA_GROUP - 1) / FEDGE_CUDA_GROUP);
}

/* The number of its values that are sent. */
static size_t chosen_of(const fedge_cuda_segment *cut, const fedge_tensor_spec *spec)
{
    return coding_of(cut, spec) == FEDGE_CUDA_ALL ? spec->count
                                                  : fedge_codec_chosen(&cut->pipeline, spec->count);
}

/* The numbers of tensors, blocks of values and groups of a cut. */
typedef struct counts {
    uint32_t tensors, blocks, groups;
} counts;

static counts count(const fedge_cuda_geometry *geometry, const fedge_cuda_segment *cut)
{
    counts all = {.tensors = cut->num_tensors};
    for (uint32_t t = 0; t < cut->num_tensors; t++) {
        const fedge_tensor_spec *spec = geometry->tensors[cut->first_tensor + t].spec;
        const fedge_cuda_index_coding coding = coding_of(cut, spec);
        const size_t values = coding == FEDGE_CUDA_SIGNS ? 0 : chosen_of(cut, spec);
        all.blocks += (uint32_t)((values + FEDGE_CUDA_BLOCK - 1) / FEDGE_CUDA_BLOCK);
        all.groups += has_gaps(coding) ? groups_of(spec->count) : 0;
    }
    return all;
}

size_t fedge_cuda_directory_size(const fedge_cuda_geometry *geometry, const fedge_cuda_segment *cut)
{
    const counts all = count(geometry, cut);
    return ((size_t)all.tensors + all.groups) * ENTRY_BYTES;
}

/* The most bytes of a valid tensor. */
static size_t largest_of(const fedge_cuda_segment *cut, const fedge_tensor_spec *spec)
{
    return coding_of(cut, spec) == FEDGE_CUDA_ALL
               ? fedge_codec_run_size(&cut->pipeline, spec->count)
               : cut->pipeline.sparsifier->largest(&cut->pipeline, spec->count);
}

size_t fedge_cuda_directory_capacity(const fedge_cuda_geometry *geometry,
                                     const fedge_cuda_segment *cut)
{
    size_t room = fedge_cuda_directory_size(geometry, cut);
    for (uint32_t t = 0; t < cut->num_tensors; t++)
        room += largest_of(cut, geometry->tensors[cut->first_tensor + t].spec);
    return (room + 255) / 256 * 256;
}

size_t fedge_cuda_tables_size(const fedge_cuda_geometry *geometry, const fedge_cuda_segment *cut)
{
    const counts all = count(geometry, cut);
    return all.tensors * sizeof(fedge_cuda_chosen_tensor) +
           ((size_t)all.blocks + all.groups) * sizeof(fedge_cuda_part);
}

/* ---- tables ---------------------------------------------------------------------------------- */

fedge_cuda_chosen fedge_cuda_chosen_at(const fedge_cuda_geometry *geometry,
                                       const fedge_cuda_segment *cut, void *tables,
                                       uint32_t num_blocks)
{
    const counts all = count(geometry, cut);
    const fedge_cuda_chosen_tensor *tensors = tables;
    const fedge_cuda_part *blocks = (const void *)(tensors + all.tensors);
    return (fedge_cuda_chosen){.codec = cut->codec->kernel,
                               .num_tensors = all.tensors,
                               .num_blocks = all.blocks,
                               .num_groups = all.groups,
                               .tensors = tensors,
                               .blocks = blocks,
                               .groups = blocks + all.blocks,
                               .num_sums = (uint64_t)num_blocks * FEDGE_CUDA_BLOCK};
}

static uint64_t head_of(fedge_cuda_index_coding coding, size_t num_coordinates)
{
    if (has_gaps(coding))
        return (uint64_t)groups_of(num_coordinates) * FEDGE_CUDA_INDEX_BYTES;
    return coding == FEDGE_CUDA_DRAWN ? FEDGE_CUDA_KEY_BYTES : 0;
}

void fedge_cuda_tables_fill(const fedge_cuda_geometry *geometry, const fedge_cuda_segment *cut,
                            void *tables, uint32_t first_block)
{
    const counts all = count(geometry, cut);
    fedge_cuda_chosen_tensor *tensor = tables;
    fedge_cuda_part *block = (void *)(tensor + all.tensors);
    fedge_cuda_part *group = block + all.blocks;
    for (uint32_t t = 0; t < cut->num_tensors; t++) {
        const fedge_cuda_tensor *of = &geometry->tensors[cut->first_tensor + t];
        const fedge_cuda_index_coding coding = coding_of(cut, of->spec);
        const size_t chosen = chosen_of(cut, of->spec);
        *tensor++ = (fedge_cuda_chosen_tensor){
            .base = ((int64_t)of->first_block - (int64_t)first_block) * FEDGE_CUDA_BLOCK,
            .head = head_of(coding, of->spec->count),
            .count = (uint32_t)of->spec->count,
            .chosen = (uint32_t)chosen,
            .rice = fedge_rice_bits(of->spec->count, chosen),
            .coding = coding};
        for (size_t i = 0; i < chosen && coding != FEDGE_CUDA_SIGNS; i += FEDGE_CUDA_BLOCK)
            *block++ = (fedge_cuda_part){t, (uint32_t)i};
        for (size_t i = 0; i < of->spec->count && has_gaps(coding); i += FEDGE_CUDA_GROUP)
            *group++ = (fedge_cuda_part){t, (uint32_t)i};
    }
}

/* ---- of an update ---------------------------------------------------------------------------- */

/* Bytes in[at, at + left) of a section, from a tensor's beginning. */
typedef struct source {
    const uint8_t *in;
    size_t left, at;
} source;

/* Reads the tensor's index and fills the groups' entries unless they are NULL. *used: all bytes of
 * the tensor. */
static bool read_index(const fedge_cuda_segment *cut, const fedge_tensor_spec *spec, bool signs,
                       source from, fedge_cuda_group_entry *groups, size_t *used)
{
    const size_t chosen = fedge_codec_chosen(&cut->pipeline, spec->count);
    const uint32_t num_groups = groups_of(spec->count);
    const size_t head = (size_t)num_groups * FEDGE_CUDA_INDEX_BYTES;
    const size_t before =
        head + (signs ? FEDGE_CUDA_MAGNITUDE_BYTES : fedge_codec_run_size(&cut->pipeline, chosen));
    size_t first = 0;
    *used = before;
    for (uint32_t g = 0; g < num_groups && before <= from.left; g++) {
        const uint8_t *index = from.in + (size_t)g * FEDGE_CUDA_INDEX_BYTES;
        const fedge_cuda_group_entry group = {.gaps = from.at + *used,
                                              .first = (uint32_t)first,
                                              .count = fedge_get_u16(index),
                                              .size = fedge_get_u16(index + 2)};
        if (groups)
            groups[g] = group;
        first += group.count;
        *used += group.size;
    }
    return *used <= from.left && first == chosen &&
           (!signs || fedge_get_u32(from.in + head) <= (uint32_t)1 << FEDGE_FIXED_VALUE_BITS);
}

/* Reads the size of a tensor, and fills its entry unless that is NULL. */
static bool read_tensor(const fedge_cuda_segment *cut, const fedge_tensor_spec *spec, source from,
                        fedge_cuda_tensor_entry *entry, fedge_cuda_group_entry *groups,
                        size_t *used)
{
    const fedge_cuda_index_coding coding = coding_of(cut, spec);
    const size_t head = (size_t)head_of(coding, spec->count);
    if (entry)
        entry->offset = from.at;
    if (!has_gaps(coding)) {
        *used = head + fedge_codec_run_size(&cut->pipeline, chosen_of(cut, spec));
        return *used <= from.left;
    }
    const bool signs = coding == FEDGE_CUDA_SIGNS;
    const bool good = read_index(cut, spec, signs, from, groups, used);
    if (entry && good && signs)
        entry->magnitude = (int32_t)fedge_get_u32(from.in + head);
    return good;
}

bool fedge_cuda_directory_fill(const fedge_cuda_geometry *geometry, const fedge_cuda_segment *cut,
                               const int8_t *bounds_log2, const uint8_t *in, size_t size,
                               void *directory, size_t *begin, size_t *end)
{
    const fedge_cuda_segment *whole = &geometry->segments[cut->section];
    fedge_cuda_tensor_entry *entries = directory;
    fedge_cuda_group_entry *groups = (void *)(entries + cut->num_tensors);
    size_t done = 0;
    for (uint32_t t = 0; t < whole->num_tensors; t++) {
        const uint32_t index = whole->first_tensor + t;
        const fedge_tensor_spec *spec = geometry->tensors[index].spec;
        const bool wanted =
            index >= cut->first_tensor && index - cut->first_tensor < cut->num_tensors;
        size_t used = 0;
        *begin = index == cut->first_tensor ? done : *begin;
        if (wanted)
            *entries = (fedge_cuda_tensor_entry){.bound_log2 = bounds_log2[index]};
        if (!read_tensor(cut, spec, (source){in + done, size - done, wanted ? done - *begin : 0},
                         wanted ? entries++ : NULL, wanted ? groups : NULL, &used) ||
            used >
                largest_of(cut, spec)) { /* this GPU does not need it, and has no memory for it */
            return false;
        }
        groups += wanted && has_gaps(coding_of(cut, spec)) ? groups_of(spec->count) : 0;
        done += used;
        *end = wanted ? done : *end;
    }
    return done == size;
}
