/* safetensors files as data: a tensor of values and one of labels, in one file or in two.
 *
 * In a file of both the tensors are "values" and "labels"; or there are just two, and the one that
 * has one dimension and integers is that of the labels. In a file of one of them that name, or the
 * only tensor. Values: F32, F64, F16 or BF16 for f32 data, U8 for u8; labels: U8, I32 or I64.
 * Internal to edge/data.
 */
#ifndef FEDGE_EDGE_DATA_FORMATS_TENSOR_DATA_H
#define FEDGE_EDGE_DATA_FORMATS_TENSOR_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/data/formats/array_file.h"

#define FEDGE_TENSOR_DATA_MAX 16       /* tensors in a file */
#define FEDGE_TENSOR_DATA_HEAD_SIZE 10 /* bytes that tell such a file from others */

/* Does a file that begins with these bytes claim to be safetensors? */
bool fedge_tensor_data_matches(const uint8_t *head, size_t size);

/* Reads the header and goes to the first element of the labels, or else of the values. [both]: the
 * file has both. FEDGE_MISMATCH when it cannot be told which tensor is meant; what
 * fedge_safetensors_read_schema gives for the header. */
FEDGE_MUST_USE fedge_status fedge_tensor_data_open(fedge_reader *reader, bool labels, bool both,
                                                   fedge_array_info *info, fedge_error *err);

#endif
