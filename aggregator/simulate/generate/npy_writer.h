/* One npy file (numpy.lib.format 1.0), written from its first example to its last. */
#ifndef FEDGE_AGGREGATOR_SIMULATE_GENERATE_NPY_WRITER_H
#define FEDGE_AGGREGATOR_SIMULATE_GENERATE_NPY_WRITER_H

#include <stddef.h>
#include <stdint.h>

#include "edge/core/bytes.h"
#include "edge/core/os.h"
#include "edge/core/status.h"
#include "edge/core/tensor.h"

#define FEDGE_NPY_MAX_RANK 4

typedef struct fedge_npy_writer {
    fedge_os_file file;
    fedge_dtype dtype;
    fedge_buffer rows; /* bytes that are not written yet */
    uint64_t offset;   /* the file's offset of [rows] */
} fedge_npy_writer;

/* Creates [path], which must not exist, and reserves space for all of [shape] (rank numbers, at
 * most FEDGE_NPY_MAX_RANK): FEDGE_NO_SPACE. dtype: U8, F32 or I32. */
FEDGE_MUST_USE fedge_status fedge_npy_writer_init(fedge_npy_writer *writer, const char *path,
                                                  fedge_dtype dtype, uint32_t rank,
                                                  const uint32_t *shape, fedge_error *err);

/* Appends [count] values of the dtype. */
FEDGE_MUST_USE fedge_status fedge_npy_writer_append(fedge_npy_writer *writer, const void *values,
                                                    size_t count, fedge_error *err);

/* Writes the remaining rows and syncs the file. */
FEDGE_MUST_USE fedge_status fedge_npy_writer_finish(fedge_npy_writer *writer, fedge_error *err);
void fedge_npy_writer_fini(fedge_npy_writer *writer); /* Call it also after a failed init. */

#endif
