/* Decodes and encodes updates as docs/reference/protocol.md describes them, one value after the
 * other. */
#ifndef FEDGE_TESTS_WORLD_PLAIN_CODEC_H
#define FEDGE_TESTS_WORLD_PLAIN_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/plan/plan.h"

#define PLAIN_MAX_VALUES 33792 /* values of an update; larger models are not modelled */

/* An update as its UPLOAD announced it, and its bytes. */
typedef struct plain_bytes {
    uint32_t num_sections;
    fedge_section_info sections[FEDGE_SECTION_KINDS];
    const uint8_t *bytes;
    size_t size;
} plain_bytes;

bool plain_codec_models(const fedge_plan *plan);

/* v (plan->sent.schema.num_elements): the decoded values. bounds_log2: one for each sent tensor.
 * Returns NULL, or what is wrong with the update. */
const char *plain_decode(const fedge_plan *plan, const int8_t *bounds_log2,
                         const plain_bytes *update, int32_t *v);

/* Encodes x (n) of a tensor of [rank] dimensions within ±2^bound_log2. v (n): as they are decoded;
 * 0 where not sent. key: of the round and tensor, for randk. */
void plain_encode(const fedge_codec *codec, uint32_t rank, int bound_log2, uint64_t key,
                  const float *x, size_t n, int32_t *v);
/* The key of a tensor, by its index in its section. */
uint64_t plain_key(const fedge_plan *plan, uint32_t round, uint32_t tensor);

#endif
