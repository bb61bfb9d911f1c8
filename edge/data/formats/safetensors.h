/* safetensors files: u64 little-endian header size, JSON header, tensors.
 *
 * Written so that safetensors.torch.load_file reads them with a state_dict's names, and so that the
 * same values give the same bytes (names in schema order, no timestamps; the header is padded with
 * spaces to a multiple of 8): the SHA-256 of the file names the model.
 */
#ifndef FEDGE_EDGE_DATA_FORMATS_SAFETENSORS_H
#define FEDGE_EDGE_DATA_FORMATS_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"
#include "edge/core/tensor.h"

#define FEDGE_SAFETENSORS_MAX_HEADER ((size_t)1 << 20) /* bytes of JSON */
#define FEDGE_SAFETENSORS_MAX_SIZE ((size_t)9 << 30)   /* FEDGE_MAX_ELEMENTS floats and a header */
#define FEDGE_SAFETENSORS_PART ((size_t)1 << 16)       /* bytes that are read or written at once */
#define FEDGE_SAFETENSORS_MAX_VALUES ((uint32_t)1 << 15) /* JSON values in it */

/* Exact bytes of the file. FEDGE_UNSUPPORTED when a tensor is not F32, FEDGE_TOO_BIG when the
 * header is over its limit. */
FEDGE_MUST_USE fedge_status fedge_safetensors_size(const fedge_schema *schema, size_t *size,
                                                   fedge_error *err);

/* Writes the file into out[0, out_size); out_size must be the exact size (else
 * FEDGE_INVALID_ARGUMENT). values: schema->num_elements. */
FEDGE_MUST_USE fedge_status fedge_safetensors_write(const fedge_schema *schema, const float *values,
                                                    uint8_t *out, size_t out_size,
                                                    fedge_error *err);

/* The same, given to [put] in order, in parts of FEDGE_SAFETENSORS_PART bytes at most. A failure of
 * [put] is returned as it is. */
typedef fedge_status (*fedge_put_fn)(void *user, const uint8_t *bytes, size_t size,
                                     fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_safetensors_put(const fedge_schema *schema, const float *values,
                                                  fedge_put_fn put, void *user, fedge_error *err);

/* Writes what comes before the values alone: out_size must be fedge_safetensors_size less their
 * bytes. */
FEDGE_MUST_USE fedge_status fedge_safetensors_write_header(const fedge_schema *schema, uint8_t *out,
                                                           size_t out_size, fedge_error *err);

/* Reads the header of a file in memory into an empty [schema] with room for its tensors, ordered by
 * data offset; *data gets the start of the data, of which nothing is read, or NULL on failure.
 * "__metadata__" is allowed and skipped. FEDGE_TRUNCATED, with both counts, when the file is
 * shorter than its header says; FEDGE_TOO_BIG for a limit; FEDGE_UNSUPPORTED for a dtype that fedge
 * does not know; FEDGE_CORRUPT for broken JSON, a name twice, offsets that overlap, leave gaps or
 * do not fit shape and dtype, and data behind the last tensor. [schema] is half filled on failure.
 */
FEDGE_MUST_USE fedge_status fedge_safetensors_read_schema(const uint8_t *in, size_t in_size,
                                                          fedge_schema *schema,
                                                          const uint8_t **data, fedge_error *err);

/* Reads exactly the tensors of [schema] (any order in the file; F32, or F16/BF16/F64 converted)
 * into values: schema->num_elements. PyTorch's "….num_batches_tracked" (a single I64) is skipped.
 * FEDGE_MISMATCH names a tensor that is missing, extra or of another shape or kind;
 * FEDGE_NOT_FINITE names one that holds NaN or an infinity (or a double beyond float): no training
 * can go on from it. Otherwise fails as fedge_safetensors_read_schema. [values] is garbage on
 * failure. */
FEDGE_MUST_USE fedge_status fedge_safetensors_read(const uint8_t *in, size_t in_size,
                                                   const fedge_schema *schema, float *values,
                                                   fedge_error *err);

/* Fills out[0, size) with the bytes of a file from [offset] on. */
typedef fedge_status (*fedge_get_fn)(void *user, uint64_t offset, uint8_t *out, size_t size,
                                     fedge_error *err);

/* The same of a file of [size] bytes that need not be in memory: [get] gives its header, then the
 * tensors in parts of FEDGE_SAFETENSORS_PART bytes at most. With [subtract] the file's values are
 * taken from those in [values]. A failure of [get] is returned as it is. */
FEDGE_MUST_USE fedge_status fedge_safetensors_get(fedge_get_fn get, void *user, uint64_t size,
                                                  const fedge_schema *schema, bool subtract,
                                                  float *values, fedge_error *err);

#endif
