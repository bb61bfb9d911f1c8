/* A plain decoder and encoder of updates, which follows docs/reference/protocol.md one value after
 * the other. */
#ifndef FEDGE_TESTS_WORLD_PLAIN_CODEC_H
#define FEDGE_TESTS_WORLD_PLAIN_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/plan/plan.h"

#define PLAIN_MAX_VALUES 33792 /* most values of an update that the oracle recomputes */

/* An update as its UPLOAD announced it, and its bytes. */
typedef struct plain_bytes {
    uint32_t num_sections;
    fedge_section_info sections[FEDGE_SECTION_KINDS];
    const uint8_t *bytes;
    size_t size;
} plain_bytes;

bool plain_codec_models(const fedge_plan *plan);

/* Decodes an update into v (plan->sent.schema.num_elements). bounds_log2 has one bound for each
 * sent tensor. Returns what is wrong with the update; NULL: nothing. */
const char *plain_decode(const fedge_plan *plan, const int8_t *bounds_log2,
                         const plain_bytes *update, int32_t *v);

/* Encodes the values x (n) of a tensor of [rank] dimensions within ±2^bound_log2. v (n) gets the
 * values as they are decoded, and 0 for values that are not sent. [key]: key of the round and
 * tensor for randk. */
void plain_encode(const fedge_codec *codec, uint32_t rank, int bound_log2, uint64_t key,
                  const float *x, size_t n, int32_t *v);
/* The key of a tensor by its index in its section. */
uint64_t plain_key(const fedge_plan *plan, uint32_t round, uint32_t tensor);

#endif
