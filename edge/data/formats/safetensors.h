/* safetensors files: u64 little-endian header size, JSON header, tensors.
 * safetensors.torch.load_file loads them with a state_dict's names. Equal values give equal bytes
 * (names in schema order, no timestamps, header padded with spaces to a multiple of 8), so the
 * file's SHA-256 identifies a model. */
#ifndef FEDGE_EDGE_DATA_FORMATS_SAFETENSORS_H
#define FEDGE_EDGE_DATA_FORMATS_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"
#include "edge/core/tensor.h"

#define FEDGE_SAFETENSORS_MAX_HEADER ((size_t)1 << 20) /* bytes of JSON */
#define FEDGE_SAFETENSORS_MAX_SIZE ((size_t)9 << 30)   /* FEDGE_MAX_ELEMENTS floats and a header */
#define FEDGE_SAFETENSORS_PART ((size_t)1 << 16)       /* bytes read or written at once */
#define FEDGE_SAFETENSORS_MAX_VALUES ((uint32_t)1 << 16) /* JSON values in the header */

/* Exact size of the file. FEDGE_UNSUPPORTED: a tensor is not F32, F16, BF16 or I64; FEDGE_TOO_BIG:
 * the header's limit. */
FEDGE_MUST_USE fedge_status fedge_safetensors_size(const fedge_schema *schema, size_t *size,
                                                   fedge_error *err);

/* Bytes of the tensors' data. */
size_t fedge_safetensors_data_size(const fedge_schema *schema);

/* The tensor that a file has after [last], or the first one; NULL after the last one. Those of
 * larger elements come first, so that every tensor is aligned; otherwise files have the schema's
 * order. */
const fedge_tensor_spec *fedge_safetensors_next(const fedge_schema *schema,
                                                const fedge_tensor_spec *last);

/* Writes the file to out[0, out_size); FEDGE_INVALID_ARGUMENT unless out_size is the exact size.
 * values: (schema->num_elements) */
FEDGE_MUST_USE fedge_status fedge_safetensors_write(const fedge_schema *schema, const float *values,
                                                    uint8_t *out, size_t out_size,
                                                    fedge_error *err);

/* Writes the file through [put], in order, in parts of at most FEDGE_SAFETENSORS_PART bytes.
 * Returns a failure of [put] unchanged. */
typedef fedge_status (*fedge_put_fn)(void *user, const uint8_t *bytes, size_t size,
                                     fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_safetensors_put(const fedge_schema *schema, const float *values,
                                                  fedge_put_fn put, void *user, fedge_error *err);

/* Writes only what precedes the values; out_size must be fedge_safetensors_size less their bytes.
 */
FEDGE_MUST_USE fedge_status fedge_safetensors_write_header(const fedge_schema *schema, uint8_t *out,
                                                           size_t out_size, fedge_error *err);

/* Reads a header in memory into an empty [schema] with capacity for its tensors, ordered by data
 * offset. *data is the start of the data, which is not read, or NULL on failure. "__metadata__" is
 * ignored. FEDGE_TRUNCATED, with both counts: the file is shorter than its header says;
 * FEDGE_TOO_BIG: a limit; FEDGE_UNSUPPORTED: an unknown dtype; FEDGE_CORRUPT: invalid JSON, a
 * duplicate name, offsets that overlap, leave gaps or do not match shape and dtype, or data after
 * the last tensor. [schema] is incomplete on failure. */
FEDGE_MUST_USE fedge_status fedge_safetensors_read_schema(const uint8_t *in, size_t in_size,
                                                          fedge_schema *schema,
                                                          const uint8_t **data, fedge_error *err);

/* Reads exactly the tensors of [schema], in any order (floats are converted from F32, F16, BF16 or
 * F64, and rounded to the schema's dtype), into values: (schema->num_elements). PyTorch's
 * "….num_batches_tracked" (a single I64) is skipped where the schema lacks it.
 * FEDGE_MISMATCH names a tensor that is missing, extra or has another shape or dtype;
 * FEDGE_NOT_FINITE names one with a NaN, an infinity or a double beyond float. Otherwise fails as
 * fedge_safetensors_read_schema. [values] is undefined on failure. */
FEDGE_MUST_USE fedge_status fedge_safetensors_read(const uint8_t *in, size_t in_size,
                                                   const fedge_schema *schema, float *values,
                                                   fedge_error *err);

/* Reads out[0, size) from [offset] of a file. */
typedef fedge_status (*fedge_get_fn)(void *user, uint64_t offset, uint8_t *out, size_t size,
                                     fedge_error *err);

/* Reads a file of [size] bytes through [get]: its header, then the tensors in parts of at most
 * FEDGE_SAFETENSORS_PART bytes. With [subtract], subtracts the file's floats from [values]. Returns
 * a failure of [get] unchanged. */
FEDGE_MUST_USE fedge_status fedge_safetensors_get(fedge_get_fn get, void *user, uint64_t size,
                                                  const fedge_schema *schema, bool subtract,
                                                  float *values, fedge_error *err);

#endif
