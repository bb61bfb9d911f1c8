/* Updates: sections of a model's change (edge/plan/sections.h), encoded for the wire and back.
 *
 * values (float) → codec (edge/core/codec/codec.h) → [deflate] → the bytes of an upload, and the
 * way back to fixed-point integers, validated in full before anything is summed. There is one
 * encoder, for clients and for the simulator, which sums what it encodes.
 */
#ifndef FEDGE_EDGE_PLAN_UPDATE_H
#define FEDGE_EDGE_PLAN_UPDATE_H

#include <stddef.h>
#include <stdint.h>

#include "edge/core/codec/codec.h"
#include "edge/core/status.h"
#include "edge/plan/plan.h"
#include "edge/wire/deflate.h"
#include "edge/wire/protocol.h"

/* Upper bound of an upload's bytes under this plan, inflated or not (deflate is dropped when it
 * does not help). */
size_t fedge_update_max_size(const fedge_plan *plan);

/* ---- encoding -------------------------------------------------------------------------------- */

/* An update to be encoded. Plain data; owns none of its pointers. */
typedef struct fedge_update {
    const fedge_plan *plan;
    const int8_t *bounds_log2; /* of the tensors that travel */
    /* What travels: [changes] (plan->sent.schema.num_elements), or when that is NULL the difference
     * of a model's values (plan->schema.num_elements) from [start]. Without SCAFFOLD; its
     * parameters and its buffers may lie apart, and what travels of them is taken back to [start].
     */
    const float *changes;
    const float *start;
    float *parameters, *buffers;
    /* Where the plan makes a residual (fedge_plan_makes_residual): for each of the delta's values
     * what has not travelled before, which is added to it, then what has not travelled now, all
     * finite; and behind them the round of it. Before a client's first round all 0. Else NULL. */
    float *residual;
    uint32_t round;
    /* v (n): values as they will be decoded, in order: those from [first] on of all that can travel
     * or, with places (n), value first + places[i]. NULL: not wanted. A failure is passed on. */
    fedge_status (*give)(void *user, size_t first, const uint32_t *indices, size_t n,
                         const int32_t *v, fedge_error *err);
    void *user;
    /* The upload's bytes, fedge_update_max_size of room; NULL: not wanted, for a plan that does not
     * deflate. With deflate: [packed], as much room again, and [deflater]. */
    uint8_t *bytes, *packed;
    fedge_deflater *deflater;
} fedge_update;

/* The result of encoding. */
typedef struct fedge_update_made {
    uint64_t size;    /* of the upload's sections */
    uint64_t clamped; /* values cut to their bound */
    uint32_t num_sections;
    fedge_section_info sections[FEDGE_SECTION_KINDS];
} fedge_update_made;

/* Encodes in one pass, chunk by chunk in the first-level cache, and allocates nothing.
 * FEDGE_NOT_FINITE for a change that is no number, with its tensor; [give] may have been called
 * then for what is before it. */
FEDGE_MUST_USE fedge_status fedge_update_run(const fedge_update *update, fedge_update_made *made,
                                             fedge_error *err);

/* Encodes changes for an upload: fills size, crc32, num_sections and sections; appends the metric
 * "clamped" when something was cut. [update]: plan, bounds, changes, residual, round and give.
 * *bytes is malloc'ed, upload->size long, or NULL on failure. */
FEDGE_MUST_USE fedge_status fedge_update_encode(const fedge_update *update, fedge_upload *upload,
                                                uint8_t **bytes, fedge_error *err);

/* ---- decoding -------------------------------------------------------------------------------- */

/* Checks what can be checked before a byte arrives: the sections are those that the plan wants,
 * each with its codec, sizes within their bounds and adding up. FEDGE_MISMATCH, FEDGE_TOO_BIG. */
FEDGE_MUST_USE fedge_status fedge_update_check(const fedge_plan *plan, const fedge_upload *upload,
                                               fedge_error *err);

/* Checks the upload against the plan and its checksum and inflates it: raw (raw_size ≥
 * fedge_update_max_size) gets the sections one after another as fedge_codec_encode_chunks made
 * them, each of its raw_size. FEDGE_CORRUPT (checksum, deflate stream), FEDGE_TOO_BIG (inflate
 * stops at the expected size + 1), FEDGE_TRUNCATED, FEDGE_MISMATCH. */
FEDGE_MUST_USE fedge_status fedge_update_unpack(const fedge_plan *plan, const fedge_upload *upload,
                                                const uint8_t *bytes, uint8_t *raw, size_t raw_size,
                                                fedge_error *err);

/* The same for an upload whose bytes are read chunk by chunk, in order. */
FEDGE_MUST_USE fedge_status fedge_update_unpack_read(const fedge_plan *plan,
                                                     const fedge_upload *upload, fedge_read_fn read,
                                                     void *user, uint8_t *raw, size_t raw_size,
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

/* ---- model deltas ------------------------------------------------------------------------------
 */

/* Model deltas: a new model for clients that have an older one, sent as the difference.
 *
 *     server   w = the model + its residual + the strategy's step;
 *              what the codec of "down" makes of w − model is the delta;
 *              the model moves by what clients will decode;
 *              the remainder of w is the next residual
 *     client   model += delta
 *
 * so both have the same bits, and nothing is lost of what the codec dropped, or cut at the plan's
 * bound: a larger change goes on in the next steps. A file is a chain of steps, 1 …
 * FEDGE_MODEL_DELTA_MAX_STEPS, each from one round's model to the next one's, little-endian:
 *
 *     u64 raw bytes of the section, u64 bytes that follow of it: fewer when they are deflated
 *     the section: the trained values' changes in the codec of "down", with the plan's bound
 *     f32 the new statistics, those that travel in updates
 */

#define FEDGE_MODEL_DELTA_MAX_STEPS 32 /* of a chain: each costs the work of a whole model */

/* The step of a round. before: the model that clients have; after: the one that they should have,
 * which becomes the one that they will have; each plan->schema.num_elements. residual: of the
 * trained values (plan->sent.sections[0]), which have been taken out of it. *bytes is malloc'ed, or
 * NULL on failure. FEDGE_NO_MEMORY; FEDGE_NOT_FINITE for a change that is infinite or no number. */
FEDGE_MUST_USE fedge_status fedge_model_delta_make(const fedge_plan *plan, uint32_t round,
                                                   const float *before, float *residual,
                                                   float *after, uint8_t **bytes, size_t *size,
                                                   fedge_error *err);

/* Takes [values], the model that the chain begins with, to the one that it ends with. Any bytes are
 * refused or change finite values into finite ones; after a failure the values are undefined.
 * FEDGE_TRUNCATED, FEDGE_TOO_BIG, FEDGE_CORRUPT, FEDGE_NO_MEMORY, and what decoding gives. */
FEDGE_MUST_USE fedge_status fedge_model_delta_apply(const fedge_plan *plan, const uint8_t *bytes,
                                                    size_t size, float *values, fedge_error *err);

#endif
