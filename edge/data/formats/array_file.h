/* Headers of files that hold one array of numbers: idx and npy.
 *
 * Internal to edge/data. After a header is read the reader stands at the first element; the
 * elements follow in row-major order, the first dimension being the example. idx and npy leave
 * before, after and open_end 0.
 */
#ifndef FEDGE_EDGE_DATA_FORMATS_ARRAY_FILE_H
#define FEDGE_EDGE_DATA_FORMATS_ARRAY_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"
#include "edge/core/tensor.h"
#include "edge/data/formats/reader.h"

#ifndef FEDGE_WITH_MORE_DATA
#define FEDGE_WITH_MORE_DATA                                                                       \
    1 /* 0: a build without edge/data/formats/leaf.h and edge/data/formats/tensor_data.h */
#endif

#define FEDGE_ARRAY_MAX_RANK 8
#define FEDGE_ARRAY_MAGIC_SIZE 6                 /* bytes by which npy is known */
#define FEDGE_NPY_MAX_HEADER ((uint32_t)1 << 16) /* bytes of the dictionary */

typedef struct fedge_array_info {
    fedge_dtype dtype; /* U8, I32, I64, F32, F64, F16 or BF16 */
    bool big_endian;
    uint32_t rank;                       /* ≥ 1 */
    uint64_t dims[FEDGE_ARRAY_MAX_RANK]; /* as in the file: not checked against anything */
    uint32_t before, after; /* bytes around the elements of each example that belong to others */
    bool open_end;          /* others may follow the last element, too */
} fedge_array_info;

/* The element at [in], as the file has it: of U8, I32 or I64; of F32, F64, F16
 * or BF16. */
int64_t fedge_array_integer(const fedge_array_info *info, const uint8_t *in);
float fedge_array_float(const fedge_array_info *info, const uint8_t *in);

/* Does a file that begins with these bytes claim to be of the format? */
bool fedge_idx_matches(const uint8_t *magic, size_t size);
bool fedge_npy_matches(const uint8_t *magic, size_t size);

/* idx (http://yann.lecun.com/exdb/mnist, "the IDX file format"): two zero bytes, a type (0x08
 * unsigned byte, 0x0D float), the rank, then the dimensions and the elements, big-endian.
 * FEDGE_CORRUPT, FEDGE_UNSUPPORTED, FEDGE_TRUNCATED. */
FEDGE_MUST_USE fedge_status fedge_idx_read_header(fedge_reader *reader, fedge_array_info *info,
                                                  fedge_error *err);

/* npy (numpy.lib.format, versions 1.0 to 3.0): elements '|u1', '<i4', '<i8', '<f4' or '<f8' in C
 * order. FEDGE_CORRUPT, FEDGE_UNSUPPORTED (the message says how to save the array), FEDGE_TOO_BIG,
 * FEDGE_TRUNCATED. */
FEDGE_MUST_USE fedge_status fedge_npy_read_header(fedge_reader *reader, fedge_array_info *info,
                                                  fedge_error *err);

#endif
