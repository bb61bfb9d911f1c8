/* Encodes the sections of an update (edge/plan/sections.h) for the wire, and decodes them:
 *
 *     values (float) → codec (edge/core/codec/codec.h) → [deflate] → bytes of an upload
 *
 * and back to fixed-point integers, all validated before any is summed. Clients and the simulator,
 * which sums what it encodes, use the same encoder.
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

/* Upper bound of an upload's bytes under this plan; deflating never exceeds it. */
size_t fedge_update_max_size(const fedge_plan *plan);

/* ---- encoding -------------------------------------------------------------------------------- */

/* Input of an encoding. Plain data; it owns none of its pointers. */
typedef struct fedge_update {
    const fedge_plan *plan;
    const int8_t *bounds_log2; /* bounds of the sent tensors */
    /* [changes] (plan->sent.schema.num_elements) are encoded. If NULL, model − start is: [start]
     * has plan->schema.num_elements values, [parameters] and [buffers] are separate blocks, and
     * their sent values are reset to [start]. Not with SCAFFOLD. */
    const float *changes;
    const float *start;
    float *parameters, *buffers;
    /* If fedge_plan_makes_residual, else NULL: for each value of the delta, what was not sent
     * before. It is added to the delta, then becomes what was not sent now. One more value is its
     * round. All 0 before a client's first round; all finite. */
    float *residual;
    uint32_t round;
    /* Optional: takes the decoded values v (n), in order. v[i] belongs to index first + i, or first
     * + indices[i] if [indices] is not NULL. Its failure ends the encoding. */
    fedge_status (*give)(void *user, size_t first, const uint32_t *indices, size_t n,
                         const int32_t *v, fedge_error *err);
    void *user;
    /* Output of fedge_update_max_size bytes; may be NULL if the plan does not deflate. Deflating
     * needs [packed] of the same size, and [deflater]. */
    uint8_t *bytes, *packed;
    fedge_deflater *deflater;
} fedge_update;

/* The result of encoding. */
typedef struct fedge_update_made {
    uint64_t size;    /* bytes of all sections */
    uint64_t clamped; /* values clipped to their bound */
    uint32_t num_sections;
    fedge_section_info sections[FEDGE_SECTION_KINDS];
} fedge_update_made;

/* Encodes in one pass over chunks that fit the L1 cache; allocates nothing. FEDGE_NOT_FINITE names
 * the tensor of a change that is NaN or infinite; earlier values have been passed to [give] by
 * then. */
FEDGE_MUST_USE fedge_status fedge_update_run(const fedge_update *update, fedge_update_made *made,
                                             fedge_error *err);

/* Encodes changes for an upload. Fills size, crc32, num_sections and sections, and appends the
 * metric "clamped" if a value was clipped. [update] has plan, bounds, changes, residual, round and
 * give. *bytes is malloc'ed, upload->size long, or NULL on failure. */
FEDGE_MUST_USE fedge_status fedge_update_encode(const fedge_update *update, fedge_upload *upload,
                                                uint8_t **bytes, fedge_error *err);

/* ---- decoding -------------------------------------------------------------------------------- */

/* Checks an upload's announcement before any byte arrives: its sections are the plan's, with the
 * same codecs and consistent sizes within their limits. FEDGE_MISMATCH, FEDGE_TOO_BIG. */
FEDGE_MUST_USE fedge_status fedge_update_check(const fedge_plan *plan, const fedge_upload *upload,
                                               fedge_error *err);

/* Checks the upload against the plan and its checksum, and inflates it: [raw] (raw_size ≥
 * fedge_update_max_size) gets the sections as fedge_codec_encode_chunks wrote them. FEDGE_CORRUPT
 * (checksum or deflate stream), FEDGE_TOO_BIG (inflating stops one byte after the expected size),
 * FEDGE_TRUNCATED, FEDGE_MISMATCH. */
FEDGE_MUST_USE fedge_status fedge_update_unpack(const fedge_plan *plan, const fedge_upload *upload,
                                                const uint8_t *bytes, uint8_t *raw, size_t raw_size,
                                                fedge_error *err);

/* Does the same for an upload that is read in chunks, in order. */
FEDGE_MUST_USE fedge_status fedge_update_unpack_read(const fedge_plan *plan,
                                                     const fedge_upload *upload, fedge_read_fn read,
                                                     void *user, uint8_t *raw, size_t raw_size,
                                                     fedge_error *err);

/* Fails with FEDGE_CORRUPT for a wrong checksum of an upload of [size] bytes. */
FEDGE_MUST_USE fedge_status fedge_update_fail_crc32(uint64_t size, uint32_t crc, uint32_t announced,
                                                    fedge_error *err);

/* Unpacks, decodes and validates an upload. v: (plan->sent.schema.num_elements); [scratch]:
 * fedge_update_max_size bytes. Fails as fedge_update_unpack and fedge_codec_decode do; [v] is
 * undefined then. */
FEDGE_MUST_USE fedge_status fedge_update_decode(const fedge_plan *plan, const int8_t *bounds_log2,
                                                const fedge_upload *upload, const uint8_t *bytes,
                                                uint8_t *scratch, size_t scratch_size, int32_t *v,
                                                fedge_error *err);

/* ---- model deltas ------------------------------------------------------------------------------
 */

/* Model deltas: a new model, sent as its difference from an older one that clients have.
 *
 *     server   w = model + residual + the strategy's step
 *              delta = encode(w − model) in the codec of "down"
 *              model += decode(delta), as on clients
 *              residual = w − model
 *     client   model += decode(delta)
 *
 * After each step both round tensors of F16 and BF16 (fedge_sections_round).
 *
 * Server and clients have the same bits, and the residual carries what the codec dropped or clipped
 * into the next steps. A file is a chain of 1 … FEDGE_MODEL_DELTA_MAX_STEPS steps, each from one
 * round's model to the next one's, little-endian:
 *
 *     u64 bytes of the section, u64 bytes that follow of it: fewer if they are deflated
 *     the section: changes of the trained values in the codec of "down", with the plan's bound
 *     f32 the new values of the statistics that updates have
 */

#define FEDGE_MODEL_DELTA_MAX_STEPS 32 /* deltas of a chain: each costs a pass over the model */

/* Makes the step of a round. before: the clients' model; after: the new model, which becomes what
 * clients will decode; each (plan->schema.num_elements). residual: of the trained values
 * (plan->sent.sections[0]). *bytes is malloc'ed, or NULL on failure. FEDGE_NO_MEMORY;
 * FEDGE_NOT_FINITE: a change is NaN or infinite. */
FEDGE_MUST_USE fedge_status fedge_model_delta_make(const fedge_plan *plan, uint32_t round,
                                                   const float *before, float *residual,
                                                   float *after, uint8_t **bytes, size_t *size,
                                                   fedge_error *err);

/* Applies a chain to [values], the chain's base model. Safe for any bytes: they are refused, or
 * finite values stay finite. [values] is undefined after a failure. FEDGE_TRUNCATED, FEDGE_TOO_BIG,
 * FEDGE_CORRUPT, FEDGE_NO_MEMORY and failures of decoding. */
FEDGE_MUST_USE fedge_status fedge_model_delta_apply(const fedge_plan *plan, const uint8_t *bytes,
                                                    size_t size, float *values, fedge_error *err);

#endif
