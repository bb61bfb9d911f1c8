/* Where an update's values lie: among its encoded bytes, among the sums that others see, and among
 * the padded coordinates of a GPU (kernels.h).
 */
#ifndef FEDGE_AGGREGATOR_REDUCE_CUDA_GEOMETRY_H
#define FEDGE_AGGREGATOR_REDUCE_CUDA_GEOMETRY_H

#include <stdbool.h>
#include <stdint.h>

#include "aggregator/reduce/accumulator.h"
#include "aggregator/reduce/cuda/kernels.h"

/* A tensor, in the order in which they travel. */
typedef struct fedge_cuda_tensor {
    const fedge_tensor_spec *spec; /* offset: of its sums, as others see them */
    uint32_t first_block, num_blocks;
} fedge_cuda_tensor;

/* A codec that writes values, whose values a GPU can sum. */
typedef struct fedge_cuda_codec {
    const char *name;
    int kernel;         /* FEDGE_CUDA_NONE, … */
    size_t block_bytes; /* of a block's values on a plane */
    /* The error of a bad value, whose bits [bits] are, as fedge_codec_decode has it. */
    fedge_status (*fail_value)(const fedge_tensor_spec *spec, int bound_log2, size_t index,
                               uint32_t bits, fedge_error *err);
} fedge_cuda_codec;

/* A codec that chooses which values travel, whose places a GPU can read. */
typedef struct fedge_cuda_sparsifier {
    const char *name;
    fedge_cuda_places places;
} fedge_cuda_sparsifier;

/* The two lists, by the names of a codec's stages; NULL: there are no kernels for this one, or it
 * does not choose. */
const fedge_cuda_codec *fedge_cuda_codec_of(const fedge_codec *codec);
const fedge_cuda_sparsifier *fedge_cuda_sparsifier_of(const fedge_codec *codec);

/* FEDGE_INVALID_ARGUMENT names the first codec without kernels. */
FEDGE_MUST_USE fedge_status fedge_cuda_can_sum(const fedge_layout *layout, fedge_error *err);

/* A section, or what a GPU has of it: blocks and tensors behind each other. */
typedef struct fedge_cuda_segment {
    const fedge_cuda_codec *codec;
    const fedge_cuda_sparsifier *sparsifier; /* NULL: all values travel */
    fedge_codec pipeline;
    uint32_t section; /* of the layout */
    uint32_t first_block, num_blocks;
    uint32_t first_tensor, num_tensors; /* also those of which it has some blocks */
    size_t size;                        /* most bytes of the section */
    size_t plane;     /* bytes of a slot before what it has there: a multiple of 256 */
    size_t num_bytes; /* of that, a multiple of 256: values on a plane, or, of a codec that chooses,
                         a directory and bytes */
} fedge_cuda_segment;

typedef struct fedge_cuda_geometry {
    uint32_t num_tensors, num_segments, num_blocks;
    fedge_cuda_tensor *tensors; /* (num_tensors), malloc'ed */
    fedge_cuda_block *blocks;   /* (num_blocks), malloc'ed */
    fedge_cuda_segment segments[FEDGE_ACCUMULATOR_MAX_SECTIONS];
    size_t num_elements; /* as in the layout */
} fedge_cuda_geometry;

/* [layout]: one of which fedge_cuda_can_sum says so. */
FEDGE_MUST_USE fedge_status fedge_cuda_geometry_init(fedge_cuda_geometry *geometry,
                                                     const fedge_layout *layout, fedge_error *err);
void fedge_cuda_geometry_fini(fedge_cuda_geometry *geometry); /* all zero is fine */

/* What of segment [whole] of the geometry lies in [first_block, first_block + num_blocks); false:
 * nothing. [plane] is set. */
bool fedge_cuda_cut(const fedge_cuda_geometry *geometry, const fedge_cuda_segment *whole,
                    uint32_t first_block, uint32_t num_blocks, size_t plane,
                    fedge_cuda_segment *cut);

/* Where section [section] begins among the bytes of an update, and its size. */
uint64_t fedge_cuda_section_at(const fedge_cuda_geometry *geometry, const fedge_encoded *update,
                               uint32_t section, size_t *size);

/* Where the bytes of a block end in its section, of a codec that does not choose. */
uint64_t fedge_cuda_end_of(const fedge_cuda_geometry *geometry, const fedge_cuda_segment *segment,
                           uint32_t block);

/* A run of sums within one tensor. */
typedef struct fedge_cuda_run {
    uint32_t tensor; /* number of it */
    uint64_t padded; /* coordinate of its first */
    size_t count;
} fedge_cuda_run;

/* The sums from [first] on, up to the end of their tensor or [count] of them. */
fedge_cuda_run fedge_cuda_run_at(const fedge_cuda_geometry *geometry, size_t first, size_t count);

/* The code of anything that is wrong with a segment whose codec chooses; [bad] below. */
uint64_t fedge_cuda_code_of(const fedge_cuda_geometry *geometry, const fedge_cuda_segment *segment);

/* The error of what is wrong first, as fedge_codec_decode has it. [bad]: as fedge_cuda_stage
 * reports it, or a code. Of a codec that chooses the update is read again, by the CPU. */
fedge_status fedge_cuda_fail_update(const fedge_cuda_geometry *geometry, uint64_t bad,
                                    const fedge_encoded *update, fedge_error *err);

/* Where the tensors and groups of a section begin whose codec chooses which values travel: their
 * sizes depend on the values, so the host reads each update's indices, a few bytes for 32768
 * coordinates, and makes a directory that goes to the GPU before the bytes (kernels.h). A GPU that
 * has some of the coordinates gets those tensors whole of which it has any.
 *
 * cut: of a segment that has a sparsifier, by fedge_cuda_cut.
 */

/* Bytes of the directory of an update. */
size_t fedge_cuda_directory_size(const fedge_cuda_geometry *geometry,
                                 const fedge_cuda_segment *cut);

/* Most bytes of directory and tensors together; a multiple of 256. */
size_t fedge_cuda_directory_room(const fedge_cuda_geometry *geometry,
                                 const fedge_cuda_segment *cut);

/* Bytes of the tables that are the same for all updates. */
size_t fedge_cuda_tables_size(const fedge_cuda_geometry *geometry, const fedge_cuda_segment *cut);

/* The section, with its tables at [tables], aligned to 8 bytes, of a GPU with [num_blocks] blocks
 * of sums. */
fedge_cuda_chosen fedge_cuda_chosen_at(const fedge_cuda_geometry *geometry,
                                       const fedge_cuda_segment *cut, void *tables,
                                       uint32_t num_blocks);

/* Fills the tables (on the host) of a GPU whose sums begin with block [first_block]. */
void fedge_cuda_tables_fill(const fedge_cuda_geometry *geometry, const fedge_cuda_segment *cut,
                            void *tables, uint32_t first_block);

/* Makes the directory of a section in[0, size) at [directory], aligned to 8 bytes. *begin, *end: of
 * the bytes that the cut's tensors have. False: its sizes, indices or magnitudes are wrong. */
bool fedge_cuda_directory_fill(const fedge_cuda_geometry *geometry, const fedge_cuda_segment *cut,
                               const int8_t *bounds_log2, const uint8_t *in, size_t size,
                               void *directory, size_t *begin, size_t *end);

#endif
