/* k = ⌈fraction · n⌉ values of a tensor at random indices, the same for all clients of a round:
 *
 *     u64 key, then the k values in the codec of values
 *
 * Index i is one of ⌊i · n / k⌋ … ⌊(i + 1) · n / k⌋ − 1, so indices ascend, and each can be
 * computed alone: ⌊i · n / k⌋ + ⌊u · s / 2^32⌋, for s such indices and word u = i of the stream
 * (key, FEDGE_PURPOSE_CHOICE, 0, 0, 0). The key is drawn for each round and tensor.
 *
 * Konečný, McMahan, Yu, Richtárik, Suresh, Bacon, "Federated learning: strategies for improving
 * communication efficiency", 2016 (random masks).
 */
#include "edge/core/bytes.h"
#include "edge/core/codec/chosen.h"
#include "edge/core/rng.h"

#define KEY_BYTES 8

/* Generates indices in ascending order. */
typedef struct draws {
    fedge_rng rng;
    uint64_t n, k, i; /* i of the next index */
} draws;

static draws draws_from(const fedge_codec_tensor *tensor, uint64_t key, size_t first)
{
    draws drawn = {.rng = fedge_rng_stream(key, FEDGE_PURPOSE_CHOICE, 0, 0, 0),
                   .n = tensor->spec->count,
                   .k = fedge_codec_chosen(tensor->codec, tensor->spec->count),
                   .i = first - first % 4};
    drawn.rng.counter[0] = (uint32_t)(first / 4);
    for (; drawn.i < first; drawn.i++)
        (void)fedge_rng_u32(&drawn.rng);
    return drawn;
}

static uint32_t next_index(draws *drawn)
{
    const uint64_t begin = drawn->i * drawn->n / drawn->k;
    const uint64_t end = (drawn->i + 1) * drawn->n / drawn->k;
    drawn->i++;
    return (uint32_t)(begin + ((uint64_t)fedge_rng_u32(&drawn->rng) * (end - begin) >> 32));
}

static size_t randk_largest(const fedge_codec *codec, size_t count)
{
    return KEY_BYTES + codec->values->size(fedge_codec_chosen(codec, count));
}

static fedge_status randk_sparsify(const fedge_codec_tensor *tensor, float *x, uint8_t *out,
                                   size_t *size, fedge_error *err)
{
    draws drawn = draws_from(tensor, tensor->key, 0);
    fedge_chosen_out chosen = {.tensor = tensor, .x = x, .out = out ? out + KEY_BYTES : NULL};
    if (out)
        fedge_put_u64(out, tensor->key);
    while (drawn.i < drawn.k)
        FEDGE_TRY(fedge_chosen_put(&chosen, next_index(&drawn), err));
    *size = randk_largest(tensor->codec, tensor->spec->count);
    return fedge_chosen_end(&chosen, err);
}

static fedge_status randk_read(const fedge_codec_tensor *tensor, const uint8_t *in, size_t size,
                               size_t *used, fedge_error *err)
{
    const uint64_t n = tensor->spec->count;
    *used = randk_largest(tensor->codec, tensor->spec->count);
    if (size < *used) {
        *used = 0;
        return fedge_chosen_fail_end(tensor->spec, err);
    }
    const uint64_t k = fedge_codec_chosen(tensor->codec, tensor->spec->count);
    const size_t first = (size_t)(tensor->from * k / n);
    draws drawn = draws_from(tensor, fedge_get_u64(in), first);
    fedge_chosen_in chosen = {
        .tensor = tensor, .values = in + KEY_BYTES, .k = (size_t)k, .first = first};
    while (drawn.i < k && (tensor->to == 0 || drawn.i * n / k < tensor->to)) {
        chosen.indices[chosen.n++] = next_index(&drawn);
        if (drawn.i % FEDGE_CODEC_BLOCK == 0)
            FEDGE_TRY(fedge_chosen_give(&chosen, err));
    }
    return chosen.n > 0 ? fedge_chosen_give(&chosen, err) : FEDGE_OK;
}

const fedge_codec_ops fedge_codec_randk = {
    .name = "randk",
    .sparsifies = true,
    .largest = randk_largest,
    .sparsify = randk_sparsify,
};

const fedge_codec_reader fedge_codec_randk_reader = {.read = randk_read};
