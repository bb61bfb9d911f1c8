/* The positions of an update's values: in its encoded bytes, in the accumulator's sums, and in the
 * padded coordinates of a GPU (kernels.h). */
#ifndef FEDGE_AGGREGATOR_REDUCE_CUDA_GEOMETRY_H
#define FEDGE_AGGREGATOR_REDUCE_CUDA_GEOMETRY_H

#include <stdbool.h>
#include <stdint.h>

#include "aggregator/reduce/accumulator.h"
#include "aggregator/reduce/cuda/kernels.h"

/* A tensor, in the order of the encoded bytes. */
typedef struct fedge_cuda_tensor {
    const fedge_tensor_spec *spec; /* its offset is that in the accumulator's sums */
    uint32_t first_block, num_blocks;
} fedge_cuda_tensor;

/* A codec that writes values, whose values a GPU can sum. */
typedef struct fedge_cuda_codec {
    const char *name;
    int kernel;         /* codec, such as FEDGE_CUDA_NONE */
    size_t block_bytes; /* bytes of a block's values on a plane */
    /* Returns fedge_codec_decode's error for a bad value with the bits [bits]. */
    fedge_status (*fail_value)(const fedge_tensor_spec *spec, int bound_log2, size_t index,
                               uint32_t bits, fedge_error *err);
} fedge_cuda_codec;

/* A sparsifier whose indices a GPU can read. */
typedef struct fedge_cuda_sparsifier {
    const char *name;
    fedge_cuda_index_coding coding;
} fedge_cuda_sparsifier;

/* Look up both lists by the names of a codec's stages; NULL: there are no kernels for this codec,
 * or it does not sparsify. */
const fedge_cuda_codec *fedge_cuda_codec_of(const fedge_codec *codec);
const fedge_cuda_sparsifier *fedge_cuda_sparsifier_of(const fedge_codec *codec);

/* FEDGE_INVALID_ARGUMENT names the first codec without kernels. */
FEDGE_MUST_USE fedge_status fedge_cuda_can_sum(const fedge_update_layout *layout, fedge_error *err);

/* A section, or the part of it on a GPU: consecutive blocks and tensors. */
typedef struct fedge_cuda_segment {
    const fedge_cuda_codec *codec;
    const fedge_cuda_sparsifier *sparsifier; /* NULL: all values are sent */
    fedge_codec pipeline;
    uint32_t section; /* index in the layout */
    uint32_t first_block, num_blocks;
    uint32_t first_tensor, num_tensors; /* including tensors of which it has only some blocks */
    size_t size;                        /* most bytes of the section */
    size_t plane;                       /* offset in a slot, a multiple of 256 */
    size_t num_bytes; /* bytes in a slot, a multiple of 256: a plane of values or, with a
                         sparsifier, a directory and encoded bytes */
} fedge_cuda_segment;

typedef struct fedge_cuda_geometry {
    uint32_t num_tensors, num_segments, num_blocks;
    fedge_cuda_tensor *tensors; /* (num_tensors), malloc'ed */
    fedge_cuda_block *blocks;   /* (num_blocks), malloc'ed */
    fedge_cuda_segment segments[FEDGE_ACCUMULATOR_MAX_SECTIONS];
    size_t num_elements; /* length of the sums, equal to the layout's */
} fedge_cuda_geometry;

/* [layout] has passed fedge_cuda_can_sum. */
FEDGE_MUST_USE fedge_status fedge_cuda_geometry_init(fedge_cuda_geometry *geometry,
                                                     const fedge_update_layout *layout,
                                                     fedge_error *err);
void fedge_cuda_geometry_fini(fedge_cuda_geometry *geometry); /* all zero is fine */

/* Sets [cut] to the part of segment [whole] in blocks [first_block, first_block + num_blocks), at
 * [plane]. False: there is none. */
bool fedge_cuda_cut(const fedge_cuda_geometry *geometry, const fedge_cuda_segment *whole,
                    uint32_t first_block, uint32_t num_blocks, size_t plane,
                    fedge_cuda_segment *cut);

/* The offset of section [section] in the bytes of an update, and its size. */
uint64_t fedge_cuda_section_at(const fedge_cuda_geometry *geometry, const fedge_encoded *update,
                               uint32_t section, size_t *size);

/* The offset in a section without a sparsifier at which the bytes of a block end. */
uint64_t fedge_cuda_end_of(const fedge_cuda_geometry *geometry, const fedge_cuda_segment *segment,
                           uint32_t block);

/* A range of sums within one tensor. */
typedef struct fedge_cuda_run {
    uint32_t tensor; /* index of the tensor */
    uint64_t padded; /* padded coordinate of the first sum */
    size_t count;
} fedge_cuda_run;

/* The range of at most [count] sums from [first] to the end of their tensor. */
fedge_cuda_run fedge_cuda_run_at(const fedge_cuda_geometry *geometry, size_t first, size_t count);

/* The code of any error in a segment with a sparsifier; an argument [bad] below. */
uint64_t fedge_cuda_code_of(const fedge_cuda_geometry *geometry, const fedge_cuda_segment *segment);

/* Returns fedge_codec_decode's error for the first bad value. [bad]: from fedge_cuda_stage, or a
 * code. With a sparsifier the CPU reads the update again. */
fedge_status fedge_cuda_fail_update(const fedge_cuda_geometry *geometry, uint64_t bad,
                                    const fedge_encoded *update, fedge_error *err);

/* Directories of sections with a sparsifier: the offsets of their tensors and groups. Sizes depend
 * on the values, so the host reads each update's indices, a few bytes for 32768 coordinates, and
 * makes a directory that goes to the GPU before the bytes (kernels.h). A GPU with some of the
 * coordinates gets each tensor whole of which it has any.
 *
 * cut: of a segment that has a sparsifier, by fedge_cuda_cut.
 */

/* Bytes of the directory of an update. */
size_t fedge_cuda_directory_size(const fedge_cuda_geometry *geometry,
                                 const fedge_cuda_segment *cut);

/* Most bytes of directory and tensors together; a multiple of 256. */
size_t fedge_cuda_directory_capacity(const fedge_cuda_geometry *geometry,
                                     const fedge_cuda_segment *cut);

/* Bytes of the tables that are the same for all updates. */
size_t fedge_cuda_tables_size(const fedge_cuda_geometry *geometry, const fedge_cuda_segment *cut);

/* Describes the section for the kernels, with its tables at [tables], aligned to 8 bytes, on a GPU
 * with [num_blocks] blocks of sums. */
fedge_cuda_chosen fedge_cuda_chosen_at(const fedge_cuda_geometry *geometry,
                                       const fedge_cuda_segment *cut, void *tables,
                                       uint32_t num_blocks);

/* Fills the tables (on the host) of a GPU whose sums begin with block [first_block]. */
void fedge_cuda_tables_fill(const fedge_cuda_geometry *geometry, const fedge_cuda_segment *cut,
                            void *tables, uint32_t first_block);

/* Makes the directory of a section in[0, size) at [directory], aligned to 8 bytes. The cut's
 * tensors have the bytes in[*begin, *end). False: sizes, indices or magnitudes are wrong. */
bool fedge_cuda_directory_fill(const fedge_cuda_geometry *geometry, const fedge_cuda_segment *cut,
                               const int8_t *bounds_log2, const uint8_t *in, size_t size,
                               void *directory, size_t *begin, size_t *end);

#endif
