#include "edge/core/codec/chosen.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "edge/core/bytes.h"
#include "edge/core/half.h"

#ifdef __SSE2__
#include <immintrin.h>
#endif

#define MAX_RICE 13 /* so that the size of a group's gaps fits 16 bits */
#define INDEX_BYTES 4
#define MAGNITUDE_BYTES 4

/* ---- bits ------------------------------------------------------------------------------------ */

void fedge_bits_put(fedge_bits_out *bits, uint32_t value, unsigned count)
{
    bits->held |= (uint64_t)value << bits->count;
    bits->count += count;
    while (bits->count >= 8) {
        if (bits->out)
            bits->out[bits->size] = (uint8_t)bits->held;
        bits->size++;
        bits->held >>= 8;
        bits->count -= 8;
    }
}

void fedge_bits_put_gap(fedge_bits_out *bits, uint32_t gap, unsigned rice)
{
    uint32_t ones = gap >> rice;
    /* 31 at a time: shifting a 32-bit number by 32 is undefined. */
    for (; ones >= 31; ones -= 31)
        fedge_bits_put(bits, UINT32_MAX >> 1, 31);
    fedge_bits_put(bits, ((uint32_t)1 << ones) - 1, ones + 1);
    fedge_bits_put(bits, gap & (((uint32_t)1 << rice) - 1), rice);
}

void fedge_bits_end(fedge_bits_out *bits)
{
    if (bits->count > 0)
        fedge_bits_put(bits, 0, 8 - bits->count);
}

static void refill(fedge_bits_in *bits)
{
    assert(bits->in || bits->size == 0);
    while (bits->count <= 56 && bits->at < bits->size) {
        bits->held |= (uint64_t)bits->in[bits->at++] << bits->count;
        bits->count += 8;
    }
}

bool fedge_bits_get(fedge_bits_in *bits, unsigned count, uint32_t *value)
{
    refill(bits);
    if (bits->count < count)
        return false;
    *value = (uint32_t)(bits->held & (((uint64_t)1 << count) - 1));
    bits->held >>= count;
    bits->count -= count;
    return true;
}

/* Counts the ones before a zero, which is consumed; false if the bits end. Stops counting after
 * [most]. */
static bool get_ones(fedge_bits_in *bits, uint64_t most, uint64_t *ones)
{
    *ones = 0;
    /* The bound prevents a malicious update from making the server count megabytes of ones for a
     * gap. */
    while (*ones <= most) {
        refill(bits);
        if (bits->count == 0)
            return false;
        unsigned run = 0;
        while (run < bits->count && (bits->held >> run & 1) != 0)
            run++;
        const bool ends = run < bits->count;
        *ones += run;
        run += ends;
        bits->held = run < 64 ? bits->held >> run : 0;
        bits->count -= run;
        if (ends)
            return true;
    }
    return true;
}

bool fedge_bits_get_gap(fedge_bits_in *bits, unsigned rice, uint32_t most, uint32_t *gap)
{
    uint64_t ones = 0;
    uint32_t low = 0;
    if (!get_ones(bits, most >> rice, &ones) || !fedge_bits_get(bits, rice, &low))
        return false;
    *gap = (uint32_t)((ones << rice) + low);
    return (ones << rice) + low <= most;
}

unsigned fedge_rice_bits(size_t n, size_t k)
{
    const uint64_t mean = (uint64_t)n * 45426 / ((uint64_t)k << 16); /* ln 2 = 45426 / 65536 */
    unsigned rice = 0;
    /* Gaps of random indices are geometrically distributed. Their best Rice parameter is about
     * log2(ln 2 · mean gap), rounded down, in integers, so that all machines write the same bytes.
     */
    while (rice < MAX_RICE && mean >> (rice + 1) > 0)
        rice++;
    return rice;
}

/* ---- the largest ----------------------------------------------------------------------------- */

#define DIGITS 3
#define AT_ONCE 32 /* values compared together */
#define MAX_BUCKETS 2048

static uint32_t magnitude_of(float x)
{
    return fedge_float_bits(x) & 0x7fffffffu;
}

static uint32_t lowest(uint32_t bits)
{
    return (uint32_t)__builtin_ctz(bits);
}

/* A bitmask of the [n] ≤ 32 values at x whose magnitude is in [least, most], both below 2^31.
 * Magnitudes of floats order as their bits. */
static uint32_t within(const float *x, size_t n, uint32_t least, uint32_t most)
{
    uint32_t mask = 0;
#ifdef __SSE2__
    const __m128i above = _mm_set1_epi32((int32_t)most), below = _mm_set1_epi32((int32_t)least);
    const __m128i magnitude_bits = _mm_set1_epi32(INT32_MAX);
    if (n == AT_ONCE) {
        for (size_t i = 0; i < AT_ONCE; i += 4) {
            const __m128i bits =
                _mm_and_si128(_mm_loadu_si128((const __m128i *)(x + i)), magnitude_bits);
            const __m128i out =
                _mm_or_si128(_mm_cmplt_epi32(bits, below), _mm_cmpgt_epi32(bits, above));
            mask |= (uint32_t)_mm_movemask_ps(_mm_castsi128_ps(out)) << i;
        }
        return ~mask;
    }
#else
    /* Usually there is none, and compilers vectorise this loop. One unsigned comparison checks both
     * ends: values below least wrap around. */
    for (size_t i = 0; i < n; i++)
        mask |= (uint32_t)(magnitude_of(x[i]) - least <= most - least);
    if (mask == 0)
        return 0;
#endif
    mask = 0;
    for (size_t i = 0; i < n; i++)
        mask |= (uint32_t)(magnitude_of(x[i]) - least <= most - least) << i;
    return mask;
}

/* Histogram of the digit at [shift] over values whose magnitude is in [least, most]. */
static void count_digits(const float *x, size_t n, uint32_t least, uint32_t most, unsigned shift,
                         uint32_t buckets, uint32_t *counts)
{
    for (size_t at = 0; at < n; at += AT_ONCE) {
        uint32_t mask = within(x + at, n - at < AT_ONCE ? n - at : AT_ONCE, least, most);
        for (; mask != 0; mask &= mask - 1)
            counts[magnitude_of(x[at + lowest(mask)]) >> shift & (buckets - 1)]++;
    }
}

/* Radix selection by digits of 11, 10 and 10 bits, the highest first: each step counts digits among
 * values that share the digits found so far. */
fedge_largest fedge_largest_of(const float *x, size_t n, size_t k)
{
    static const unsigned SHIFTS[DIGITS] = {20, 10, 0}, WIDTHS[DIGITS] = {11, 10, 10};
    uint32_t counts[MAX_BUCKETS], least = 0;
    size_t wanted = k;
    for (int d = 0; d < DIGITS; d++) {
        const uint32_t buckets = (uint32_t)1 << WIDTHS[d], above = SHIFTS[d] + WIDTHS[d];
        const uint32_t most = least | (((uint32_t)1 << above) - 1);
        memset(counts, 0, buckets * sizeof(counts[0]));
        if (d > 0)
            count_digits(x, n, least, most, SHIFTS[d], buckets, counts);
        for (size_t i = 0; i < n && d == 0; i++)
            counts[magnitude_of(x[i]) >> SHIFTS[0]]++;
        uint32_t bucket = buckets - 1;
        for (; counts[bucket] < wanted; bucket--)
            wanted -= counts[bucket];
        least |= bucket << SHIFTS[d];
    }
    return (fedge_largest){.x = x, .n = n, .least = least, .equals = wanted};
}

uint32_t fedge_largest_next(fedge_largest *largest)
{
    for (;;) {
        while (largest->pending == 0) {
            const size_t at = largest->seen, left = largest->n - at;
            assert(left > 0);
            largest->seen += left < AT_ONCE ? left : AT_ONCE;
            largest->pending =
                within(largest->x + at, largest->seen - at, largest->least, INT32_MAX);
        }
        const uint32_t index =
            (uint32_t)((largest->seen - 1) / AT_ONCE * AT_ONCE) + lowest(largest->pending);
        largest->pending &= largest->pending - 1;
        /* Of equal magnitudes the first are taken: exactly k values, in index order, on every
         * machine. */
        if (magnitude_of(largest->x[index]) > largest->least)
            return index;
        if (largest->equals > 0) {
            largest->equals--;
            return index;
        }
    }
}

/* ---- chosen values, block by block ----------------------------------------------------------- */

/* v (n): the block's decoded values. */
static void write_block(fedge_chosen_out *chosen, int32_t *v)
{
    const fedge_codec_tensor *tensor = chosen->tensor;
    const fedge_codec_ops *values = tensor->codec->values;
    fedge_codec_stats none = {0};
    if (chosen->signs) {
        for (size_t i = 0; i < chosen->n; i++)
            v[i] = signbit(chosen->block[i]) ? -chosen->magnitude : chosen->magnitude;
        return;
    }
    values->encode(tensor->bound_log2, chosen->block, chosen->n, v, chosen->out, &none);
    chosen->out = chosen->out ? chosen->out + values->size(chosen->n) : NULL;
}

static fedge_status end_block(fedge_chosen_out *chosen, fedge_error *err)
{
    const fedge_codec_tensor *tensor = chosen->tensor;
    const float unit = ldexpf(1.0f, tensor->bound_log2 - FEDGE_FIXED_VALUE_BITS);
    const size_t n = chosen->n;
    int32_t v[FEDGE_CODEC_BLOCK];
    write_block(chosen, v);
    /* The residual in x is relative to the decoded value, so the codec's rounding error is fed
     * back, too. */
    for (size_t i = 0; i < n; i++)
        chosen->x[chosen->indices[i]] -= (float)v[i] * unit;
    chosen->n = 0;
    return tensor->give ? tensor->give(tensor->user, 0, chosen->indices, n, v, err) : FEDGE_OK;
}

fedge_status fedge_chosen_put(fedge_chosen_out *chosen, uint32_t index, fedge_error *err)
{
    chosen->indices[chosen->n] = index;
    chosen->block[chosen->n++] = chosen->x[index];
    return chosen->n == FEDGE_CODEC_BLOCK ? end_block(chosen, err) : FEDGE_OK;
}

fedge_status fedge_chosen_end(fedge_chosen_out *chosen, fedge_error *err)
{
    return chosen->n > 0 ? end_block(chosen, err) : FEDGE_OK;
}

/* v (FEDGE_CODEC_BLOCK): their block; *skip: its values before them. */
static fedge_status decode_block(const fedge_chosen_in *chosen, int32_t *v, size_t *skip,
                                 fedge_error *err)
{
    const fedge_codec_tensor *tensor = chosen->tensor;
    *skip = 0;
    if (!chosen->values) {
        for (size_t i = 0; i < chosen->n; i++)
            v[i] = chosen->negative[i] ? -chosen->magnitude : chosen->magnitude;
        return FEDGE_OK;
    }
    const size_t begin = chosen->first - chosen->first % FEDGE_CODEC_BLOCK;
    const size_t left = chosen->k - begin;
    *skip = chosen->first - begin;
    return fedge_codec_reader_of(tensor->codec->values)
        ->decode(tensor->spec, tensor->bound_log2, begin,
                 left < FEDGE_CODEC_BLOCK ? left : FEDGE_CODEC_BLOCK,
                 chosen->values + fedge_codec_run_size(tensor->codec, begin), v, err);
}

fedge_status fedge_chosen_give(fedge_chosen_in *chosen, fedge_error *err)
{
    const fedge_codec_tensor *tensor = chosen->tensor;
    int32_t v[FEDGE_CODEC_BLOCK];
    size_t skip = 0, begin = 0, end = chosen->n;
    fedge_status status = decode_block(chosen, v, &skip, err);
    while (begin < end && chosen->indices[begin] < tensor->from)
        begin++;
    while (tensor->to > 0 && end > begin && chosen->indices[end - 1] >= tensor->to)
        end--;
    if (status == FEDGE_OK && tensor->give && end > begin) {
        status = tensor->give(tensor->user, 0, chosen->indices + begin, end - begin,
                              v + skip + begin, err);
    }
    chosen->first += chosen->n;
    chosen->n = 0;
    return status;
}

fedge_status fedge_chosen_fail_end(const fedge_tensor_spec *spec, fedge_error *err)
{
    return fedge_fail(err, FEDGE_TRUNCATED, "the section ends within tensor \"%s\"", spec->name);
}

/* ---- tensors --------------------------------------------------------------------------------- */

static size_t groups_of(size_t count)
{
    return (count + FEDGE_CODEC_GROUP - 1) / FEDGE_CODEC_GROUP;
}

static size_t values_size(const fedge_codec *codec, size_t k, bool signs)
{
    return signs ? MAGNITUDE_BYTES : codec->values->size(k);
}

size_t fedge_groups_largest(const fedge_codec *codec, size_t count)
{
    const bool signs = codec->sparsifier->signs;
    const size_t k = fedge_codec_chosen(codec, count), groups = groups_of(count);
    const unsigned rice = fedge_rice_bits(count, k);
    const uint64_t bits = (uint64_t)k * (1 + rice + signs) + ((uint64_t)(count - k) >> rice);
    return groups * (INDEX_BYTES + 1) + values_size(codec, k, signs) + (size_t)(bits / 8);
}

/* The mean of the largest magnitudes, in fixed point. */
static int32_t mean_magnitude(const fedge_codec_tensor *tensor, fedge_largest largest, size_t k)
{
    uint64_t sum = 0, unused = 0;
    assert(k > 0);
    for (size_t i = 0; i < k; i++) {
        int32_t v;
        fedge_fixed_quantise(&largest.x[fedge_largest_next(&largest)], 1, tensor->bound_log2, &v,
                             &unused, &unused);
        sum += (uint64_t)(v < 0 ? -v : v);
    }
    return (int32_t)((sum + k / 2) / k);
}

fedge_status fedge_groups_sparsify(const fedge_codec_tensor *tensor, float *x, uint8_t *out,
                                   size_t *size, fedge_error *err)
{
    const bool signs = tensor->codec->sparsifier->signs;
    const size_t n = tensor->spec->count, k = fedge_codec_chosen(tensor->codec, n);
    const size_t groups = groups_of(n), head = groups * INDEX_BYTES;
    const size_t before = head + values_size(tensor->codec, k, signs);
    const unsigned rice = fedge_rice_bits(n, k);
    fedge_largest largest = fedge_largest_of(x, n, k);
    fedge_chosen_out to = {.tensor = tensor,
                           .x = x,
                           .out = out ? out + head : NULL,
                           .signs = signs,
                           .magnitude = signs ? mean_magnitude(tensor, largest, k) : 0};
    fedge_bits_out gaps = {.out = out ? out + before : NULL};
    uint32_t index = fedge_largest_next(&largest);
    if (signs && out)
        fedge_put_u32(out + head, (uint32_t)to.magnitude);
    for (size_t g = 0, done = 0; g < groups; g++) {
        const size_t end = (g + 1) * FEDGE_CODEC_GROUP, first = done, begin = gaps.size;
        for (size_t next = end - FEDGE_CODEC_GROUP; done < k && index < end;) {
            fedge_bits_put_gap(&gaps, (uint32_t)(index - next), rice);
            fedge_bits_put(&gaps, signs && signbit(x[index]), signs);
            next = (size_t)index + 1;
            FEDGE_TRY(fedge_chosen_put(&to, index, err));
            index = ++done < k ? fedge_largest_next(&largest) : 0;
        }
        fedge_bits_end(&gaps);
        if (out) {
            fedge_put_u16(out + g * INDEX_BYTES, (uint16_t)(done - first));
            fedge_put_u16(out + g * INDEX_BYTES + 2, (uint16_t)(gaps.size - begin));
        }
    }
    *size = before + gaps.size;
    return fedge_chosen_end(&to, err);
}

/* Decodes one group, whose values begin at [begin] and whose bits are [bits]. */
static fedge_status read_group(fedge_chosen_in *chosen, size_t begin, size_t count,
                               fedge_bits_in bits, unsigned rice, fedge_error *err)
{
    const fedge_tensor_spec *spec = chosen->tensor->spec;
    const size_t left = spec->count - begin;
    const uint32_t end = (uint32_t)(left < FEDGE_CODEC_GROUP ? left : FEDGE_CODEC_GROUP);
    uint32_t next = 0, gap = 0, sign = 0;
    for (size_t i = 0; i < count; i++) {
        if (next >= end || !fedge_bits_get_gap(&bits, rice, end - next - 1, &gap) ||
            (!chosen->values && !fedge_bits_get(&bits, 1, &sign))) {
            return fedge_fail(err, FEDGE_CORRUPT,
                              "tensor \"%s\": the indices of its group %zu are not those of %zu "
                              "values",
                              spec->name, begin / FEDGE_CODEC_GROUP, count);
        }
        chosen->negative[chosen->n] = sign != 0;
        chosen->indices[chosen->n++] = (uint32_t)(begin + next + gap);
        next += gap + 1;
        if ((chosen->first + chosen->n) % FEDGE_CODEC_BLOCK == 0)
            FEDGE_TRY(fedge_chosen_give(chosen, err));
    }
    if (bits.at < bits.size || bits.count >= 8 || bits.held != 0) {
        return fedge_fail(err, FEDGE_CORRUPT,
                          "tensor \"%s\": there is more after the indices of its group %zu",
                          spec->name, begin / FEDGE_CODEC_GROUP);
    }
    return FEDGE_OK;
}

/* Reads the number of selected values and the size of their gaps. */
static size_t count_index(const uint8_t *index, size_t groups, uint64_t *bytes)
{
    size_t chosen = 0;
    *bytes = 0;
    for (size_t g = 0; g < groups; g++, index += INDEX_BYTES) {
        chosen += fedge_get_u16(index);
        *bytes += fedge_get_u16(index + 2);
    }
    return chosen;
}

static fedge_status check_head(const fedge_codec_tensor *tensor, fedge_chosen_in *chosen,
                               const uint8_t *in, size_t size, size_t before, size_t *used,
                               fedge_error *err)
{
    const fedge_tensor_spec *spec = tensor->spec;
    const size_t groups = groups_of(spec->count), head = groups * INDEX_BYTES;
    uint64_t bytes = 0;
    *used = 0;
    if (size < before)
        return fedge_chosen_fail_end(spec, err);
    const size_t said = count_index(in, groups, &bytes);
    if (said != chosen->k) {
        return fedge_fail(err, FEDGE_CORRUPT,
                          "tensor \"%s\": its index has %zu values, and %zu are chosen", spec->name,
                          said, chosen->k);
    }
    if (bytes > size - before)
        return fedge_chosen_fail_end(spec, err);
    *used = before + (size_t)bytes;
    if (chosen->values)
        return FEDGE_OK;
    const uint32_t magnitude = fedge_get_u32(in + head);
    if (magnitude > (uint32_t)1 << FEDGE_FIXED_VALUE_BITS) {
        return fedge_fail(err, FEDGE_OUT_OF_RANGE,
                          "the magnitude of tensor \"%s\" is over its bound", spec->name);
    }
    chosen->magnitude = (int32_t)magnitude;
    return FEDGE_OK;
}

fedge_status fedge_groups_read(const fedge_codec_tensor *tensor, const uint8_t *in, size_t size,
                               size_t *used, fedge_error *err)
{
    const bool signs = tensor->codec->sparsifier->signs;
    const size_t n = tensor->spec->count, k = fedge_codec_chosen(tensor->codec, n);
    const size_t groups = groups_of(n), head = groups * INDEX_BYTES;
    const size_t before = head + values_size(tensor->codec, k, signs);
    const unsigned rice = fedge_rice_bits(n, k);
    fedge_chosen_in chosen = {.tensor = tensor, .values = signs ? NULL : in + head, .k = k};
    FEDGE_TRY(check_head(tensor, &chosen, in, size, before, used, err));
    const uint8_t *gaps = in + before;
    for (size_t g = 0; g < groups; g++) {
        const size_t begin = g * FEDGE_CODEC_GROUP, count = fedge_get_u16(in + g * INDEX_BYTES);
        const size_t bytes = fedge_get_u16(in + g * INDEX_BYTES + 2);
        const bool wanted =
            begin + FEDGE_CODEC_GROUP > tensor->from && (tensor->to == 0 || begin < tensor->to);
        if (wanted) {
            FEDGE_TRY(read_group(&chosen, begin, count, (fedge_bits_in){.in = gaps, .size = bytes},
                                 rice, err));
        } else if (chosen.n > 0) {
            FEDGE_TRY(fedge_chosen_give(&chosen, err));
        }
        chosen.first += wanted ? 0 : count;
        gaps += bytes;
    }
    return chosen.n > 0 ? fedge_chosen_give(&chosen, err) : FEDGE_OK;
}
