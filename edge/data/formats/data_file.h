/* One file of a data set: its format, and the position of its labels or values.
 *
 * Internal to edge/data.
 */
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

/* Headers of files that hold one array of numbers: idx and npy.
 *
 * Internal to edge/data. After a header is read the reader stands at the first element; the
 * elements follow in row-major order, the first dimension being the example. idx and npy leave
 * before, after and open_end 0.
 */

#ifndef FEDGE_WITH_MORE_DATA
#define FEDGE_WITH_MORE_DATA 1 /* 0: a build without LEAF's and safetensors data */
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

/* ---- CIFAR ----------------------------------------------------------------------------------- */

/* CIFAR-10's and CIFAR-100's binary files (https://www.cs.toronto.edu/~kriz/cifar.html).
 *
 * Records of a label byte, for CIFAR-100 a coarse and a fine one, and 3 · 32 · 32 bytes of pixels:
 * red, green and blue, each row by row. The job says which label of CIFAR-100 is meant: its data
 * has 20 labels for the coarse ones or 100 for the fine ones. Internal to edge/data.
 */

#define FEDGE_CIFAR_PIXELS 3072u
#define FEDGE_CIFAR_HEAD_SIZE 36 /* bytes that an idx header of 8 dimensions may have */

/* Is a file that begins with [head] to be read so? Then *size gets its decoded bytes, else 0. Such
 * files have no magic number. They are known by a first byte below 32, where no text begins, and a
 * size that is a whole number of records or data of the job that is u8 and [3, 32, 32] or [3072];
 * and by not being idx: there the header must not explain the size. The reader is at the beginning
 * and stays there. */
FEDGE_MUST_USE fedge_status fedge_cifar_matches(const fedge_data_spec *spec, fedge_reader *reader,
                                                const uint8_t *head, size_t head_size,
                                                uint64_t *size, fedge_error *err);

/* Says where the labels, or else the pixels, are in a file of [size] bytes, as of an array. Leaves
 * the reader where it is, at the beginning. FEDGE_TRUNCATED when the last record is not whole. */
FEDGE_MUST_USE fedge_status fedge_cifar_layout(const fedge_data_spec *spec, const char *path,
                                               uint64_t size, bool labels, fedge_array_info *info,
                                               fedge_error *err);

/* ---- safetensors ----------------------------------------------------------------------------- */

/* safetensors files as data: a tensor of values and one of labels, in one file or in two.
 *
 * In a file of both the tensors are "values" and "labels"; or there are just two, and the one that
 * has one dimension and integers is that of the labels. In a file of one of them that name, or the
 * only tensor. Values: F32, F64, F16 or BF16 for f32 data, U8 for u8; labels: U8, I32 or I64.
 * Internal to edge/data.
 */

#define FEDGE_TENSOR_DATA_MAX 16       /* tensors in a file */
#define FEDGE_TENSOR_DATA_HEAD_SIZE 10 /* bytes that tell such a file from others */

/* Does a file that begins with these bytes claim to be safetensors? */
bool fedge_tensor_data_matches(const uint8_t *head, size_t size);

/* Reads the header and goes to the first element of the labels, or else of the values. [both]: the
 * file has both. FEDGE_MISMATCH when it cannot be told which tensor is meant; what
 * fedge_safetensors_read_schema gives for the header. */
FEDGE_MUST_USE fedge_status fedge_tensor_data_open(fedge_reader *reader, bool labels, bool both,
                                                   fedge_array_info *info, fedge_error *err);

/* ---- one file -------------------------------------------------------------------------------- */

typedef enum fedge_data_format {
    FEDGE_DATA_ARRAY, /* idx, npy, CIFAR, safetensors: opened, at the first element */
    FEDGE_DATA_CSV,   /* closed again: fedge_csv_open reads it */
    FEDGE_DATA_LEAF   /* closed again: fedge_leaf_read reads it */
} fedge_data_format;

/* The part of a file that is read. */
typedef enum fedge_data_role {
    FEDGE_DATA_VALUES,             /* values; the labels are in another file */
    FEDGE_DATA_LABELS,             /* labels; the values are in another file */
    FEDGE_DATA_VALUES_WITH_LABELS, /* the values of a file that has labels too */
    FEDGE_DATA_INLINE_LABELS       /* and those labels */
} fedge_data_role;

typedef struct fedge_data_file {
    fedge_data_format format;
    fedge_reader reader;
    fedge_array_info info; /* FEDGE_DATA_ARRAY */
} fedge_data_file;

/* Finds out the format by the contents. [path] must outlive the file. FEDGE_INVALID_ARGUMENT when
 * there are no labels in it, or labels that the data set does not use; else the fault of its
 * header. On failure the file is closed. */
FEDGE_MUST_USE fedge_status fedge_data_file_open(fedge_data_file *file, const fedge_data_spec *spec,
                                                 const char *path, fedge_data_role role,
                                                 fedge_error *err);
void fedge_data_file_close(fedge_data_file *file); /* one that is closed is fine */

#endif
