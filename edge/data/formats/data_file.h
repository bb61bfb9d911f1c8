/* One file of a data set: its format, and the offset of its labels or values. Internal to
 * edge/data. */
#ifndef FEDGE_EDGE_DATA_FORMATS_DATA_FILE_H
#define FEDGE_EDGE_DATA_FORMATS_DATA_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"
#include "edge/core/tensor.h"
#include "edge/data/formats/reader.h"
#include "edge/plan/plan.h"

/* ---- arrays ---------------------------------------------------------------------------------- */

/* Headers of files with one array of numbers: idx and npy.
 *
 * After the header the reader is at the first element; elements follow in row-major order, the
 * first dimension being the example. idx and npy leave before, after and open_end 0.
 */

#ifndef FEDGE_WITH_MORE_DATA
#define FEDGE_WITH_MORE_DATA 1 /* 0: built without LEAF and safetensors data */
#endif

#define FEDGE_ARRAY_MAX_RANK 8
#define FEDGE_ARRAY_MAGIC_SIZE 6                 /* bytes that identify npy */
#define FEDGE_NPY_MAX_HEADER ((uint32_t)1 << 16) /* bytes of the dictionary */

typedef struct fedge_array_info {
    fedge_dtype dtype; /* U8, I32, I64, F32, F64, F16 or BF16 */
    bool big_endian;
    uint32_t rank;                       /* ≥ 1 */
    uint64_t dims[FEDGE_ARRAY_MAX_RANK]; /* dimensions in the file, unchecked */
    uint32_t before, after; /* bytes before and after the elements of each example, to be skipped */
    bool open_end;          /* other data may follow the last element */
} fedge_array_info;

/* The element at [in]: U8, I32 or I64 by the first, F32, F64, F16 or BF16 by the second. */
int64_t fedge_array_integer(const fedge_array_info *info, const uint8_t *in);
float fedge_array_float(const fedge_array_info *info, const uint8_t *in);

/* Whether a file with these first bytes has the format. */
bool fedge_idx_matches(const uint8_t *magic, size_t size);
bool fedge_npy_matches(const uint8_t *magic, size_t size);

/* idx (http://yann.lecun.com/exdb/mnist, "the IDX file format"): two zero bytes, a type (0x08
 * unsigned byte, 0x0D float), the rank, then dimensions and elements, big-endian. FEDGE_CORRUPT,
 * FEDGE_UNSUPPORTED, FEDGE_TRUNCATED. */
FEDGE_MUST_USE fedge_status fedge_idx_read_header(fedge_reader *reader, fedge_array_info *info,
                                                  fedge_error *err);

/* npy (numpy.lib.format, versions 1.0 to 3.0): elements '|u1', '<i4', '<i8', '<f4' or '<f8' in C
 * order. FEDGE_CORRUPT, FEDGE_UNSUPPORTED (with how to save the array instead), FEDGE_TOO_BIG,
 * FEDGE_TRUNCATED. */
FEDGE_MUST_USE fedge_status fedge_npy_read_header(fedge_reader *reader, fedge_array_info *info,
                                                  fedge_error *err);

/* ---- CIFAR ----------------------------------------------------------------------------------- */

/* Binary files of CIFAR-10 and CIFAR-100 (https://www.cs.toronto.edu/~kriz/cifar.html). A record is
 * a label byte (CIFAR-100: a coarse and a fine one) and 3 · 32 · 32 bytes of pixels: red, green and
 * blue planes in row-major order. Data with 20 labels use CIFAR-100's coarse ones, data with 100
 * the fine ones. */

#define FEDGE_CIFAR_PIXELS 3072u
#define FEDGE_CIFAR_HEAD_SIZE 36 /* bytes of an idx header of 8 dimensions */

/* Whether a file that begins with [head] is CIFAR: then *size is its decoded size, else 0. There is
 * no magic number. It must begin with a byte below 32, which no text does. Its size must be a
 * multiple of a record, or the job's data be u8 of shape [3, 32, 32] or [3072]. It must not be an
 * idx file whose header matches its size. The reader stays at the beginning. */
FEDGE_MUST_USE fedge_status fedge_cifar_matches(const fedge_data_spec *spec, fedge_reader *reader,
                                                const uint8_t *head, size_t head_size,
                                                uint64_t *size, fedge_error *err);

/* Describes the labels or pixels in a file of [size] bytes as an array. The reader stays at the
 * beginning. FEDGE_TRUNCATED: the last record is incomplete. */
FEDGE_MUST_USE fedge_status fedge_cifar_layout(const fedge_data_spec *spec, const char *path,
                                               uint64_t size, bool labels, fedge_array_info *info,
                                               fedge_error *err);

/* ---- safetensors ----------------------------------------------------------------------------- */

/* safetensors files as data: a tensor of values and one of labels, in one file or two. In one file
 * they are named "values" and "labels", or there are two tensors, and the labels' one has one
 * dimension and integers. A file with only values or labels has that name, or a single tensor.
 * Values: F32, F64, F16 or BF16 for f32 data, U8 for u8 data; labels: U8, I32 or I64. */

#define FEDGE_TENSOR_DATA_MAX 16       /* tensors in a file */
#define FEDGE_TENSOR_DATA_HEAD_SIZE 10 /* bytes that identify safetensors */

/* Whether a file with these first bytes is safetensors. */
bool fedge_tensor_data_matches(const uint8_t *head, size_t size);

/* Reads the header and moves to the first element of the labels, or else of the values. [both]: the
 * file has both. FEDGE_MISMATCH: the tensor is ambiguous; otherwise fails as
 * fedge_safetensors_read_schema. */
FEDGE_MUST_USE fedge_status fedge_tensor_data_open(fedge_reader *reader, bool labels, bool both,
                                                   fedge_array_info *info, fedge_error *err);

/* ---- one file -------------------------------------------------------------------------------- */

typedef enum fedge_data_format {
    FEDGE_DATA_ARRAY, /* idx, npy, CIFAR or safetensors: open, at the first element */
    FEDGE_DATA_CSV,   /* closed; use fedge_csv_open */
    FEDGE_DATA_LEAF   /* closed; use fedge_leaf_read */
} fedge_data_format;

/* What to read from a file. */
typedef enum fedge_data_role {
    FEDGE_DATA_VALUES,             /* values of a file without labels */
    FEDGE_DATA_LABELS,             /* labels of a file without values */
    FEDGE_DATA_VALUES_WITH_LABELS, /* values of a file that also has labels */
    FEDGE_DATA_INLINE_LABELS       /* labels of a file that also has values */
} fedge_data_role;

typedef struct fedge_data_file {
    fedge_data_format format;
    fedge_reader reader;
    fedge_array_info info; /* set for FEDGE_DATA_ARRAY */
} fedge_data_file;

/* Detects the format by the contents. [path] must outlive the file. FEDGE_INVALID_ARGUMENT: labels
 * are missing, or present but unused; other failures concern the header. On failure the file is
 * closed. */
FEDGE_MUST_USE fedge_status fedge_data_file_open(fedge_data_file *file, const fedge_data_spec *spec,
                                                 const char *path, fedge_data_role role,
                                                 fedge_error *err);
void fedge_data_file_close(fedge_data_file *file); /* a closed one is allowed */

#endif
