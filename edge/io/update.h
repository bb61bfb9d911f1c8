/* Updates: sections of a model's change (edge/io/sections.h), encoded for the wire and back.
 *
 * values (float) → codec (edge/core/codec.h) → [deflate] → the bytes of an upload, and the way back
 * to fixed-point integers, validated in full before anything is summed.
 */
#ifndef FEDGE_EDGE_IO_UPDATE_H
#define FEDGE_EDGE_IO_UPDATE_H

#include <stddef.h>
#include <stdint.h>

#include "edge/core/codec.h"
#include "edge/core/status.h"
#include "edge/io/plan.h"
#include "edge/io/protocol.h"

/* Upper bound of an upload's bytes under this plan (deflate is dropped when it does not help, so
 * the raw size is the bound). */
size_t fedge_update_max_size(const fedge_plan *plan);

/* Encodes [values] (plan->sent.schema.num_elements floats) as the plan's sections of [upload]:
 * fills size, crc32, num_sections and sections; appends the metric "clamped" when something was
 * cut. [bounds_log2]: one per tensor that is sent. *bytes is malloc'ed, upload->size long. */
FEDGE_MUST_USE fedge_status fedge_update_encode(const fedge_plan *plan, const int8_t *bounds_log2,
                                                const float *values, fedge_upload *upload,
                                                uint8_t **bytes, fedge_error *err);

/* The same into [bytes], taking no memory. bytes and scratch: [size] ≥ fedge_update_max_size
 * each; scratch may be NULL without deflate. */
FEDGE_MUST_USE fedge_status fedge_update_encode_into(const fedge_plan *plan,
                                                     const int8_t *bounds_log2, const float *values,
                                                     fedge_upload *upload, uint8_t *bytes,
                                                     uint8_t *scratch, size_t size,
                                                     fedge_error *err);

/* Checks what can be checked before a byte arrives: the sections are those that the plan wants,
 * each with its codec, sizes within their bounds and adding up. FEDGE_MISMATCH, FEDGE_TOO_BIG. */
FEDGE_MUST_USE fedge_status fedge_update_check(const fedge_plan *plan, const fedge_upload *upload,
                                               fedge_error *err);

/* Checks the upload against the plan and its checksum and inflates it: raw (raw_size ≥
 * fedge_update_max_size) gets the sections one after another as fedge_codec_encode made them.
 * FEDGE_CORRUPT (checksum, deflate stream), FEDGE_TOO_BIG (inflate stops at the expected size + 1),
 * FEDGE_TRUNCATED, FEDGE_MISMATCH. */
FEDGE_MUST_USE fedge_status fedge_update_unpack(const fedge_plan *plan, const fedge_upload *upload,
                                                const uint8_t *bytes, uint8_t *raw, size_t raw_size,
                                                fedge_error *err);

/* FEDGE_CORRUPT, and says that an upload of [size] bytes has another checksum than announced. */
FEDGE_MUST_USE fedge_status fedge_update_fail_crc32(uint64_t size, uint32_t crc, uint32_t announced,
                                                    fedge_error *err);

/* Unpacks, decodes and validates all of it. v: plan->sent.schema.num_elements; [scratch]:
 * fedge_update_max_size. Fails as fedge_update_unpack and fedge_codec_decode do; [v] is garbage
 * then.
 */
FEDGE_MUST_USE fedge_status fedge_update_decode(const fedge_plan *plan, const int8_t *bounds_log2,
                                                const fedge_upload *upload, const uint8_t *bytes,
                                                uint8_t *scratch, size_t scratch_size, int32_t *v,
                                                fedge_error *err);

#endif
