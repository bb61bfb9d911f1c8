/* Where the tensors and groups of a section begin whose codec chooses which values travel: their
 * sizes depend on the values, so the host reads each update's indices, a few bytes for 32768
 * coordinates, and makes a directory that goes to the GPU before the bytes (chosen.h). A GPU that
 * has some of the coordinates gets those tensors whole of which it has any.
 *
 * cut: of a segment that has a chooser, by fedge_cuda_cut.
 */
#ifndef FEDGE_AGGREGATOR_REDUCE_CUDA_DIRECTORY_H
#define FEDGE_AGGREGATOR_REDUCE_CUDA_DIRECTORY_H

#include "aggregator/reduce/cuda/geometry.h"

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
