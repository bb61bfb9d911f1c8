#include "tests/world/plain_codec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define GROUP 32768

/* ---- bytes ----------------------------------------------------------------------------------- */

typedef struct reader {
    const uint8_t *at;
    size_t left;
    const char *wrong; /* NULL: nothing yet */
} reader;

/* The next [size] bytes, and zeros after the end. */
static const uint8_t *take(reader *in, size_t size)
{
    static const uint8_t nothing[2 * PLAIN_MAX_VALUES * sizeof(float)];
    if (size > in->left || size > sizeof(nothing)) {
        in->wrong = "the section is too short";
        in->left = 0;
        return nothing;
    }
    const uint8_t *taken = in->at;
    in->at += size;
    in->left -= size;
    return taken;
}

static uint64_t little(const uint8_t *at, size_t size)
{
    uint64_t value = 0;
    for (size_t i = size; i > 0; i--)
        value = value << 8 | at[i - 1];
    return value;
}

/* ---- codecs of values ------------------------------------------------------------------------ */

/* round(x · 2^fraction_bits), ties to even; the product is exact in a double. */
static int32_t fixed(reader *in, double x, double bound, int fraction_bits)
{
    if (!(fabs(x) <= bound)) {
        in->wrong = "a value is outside its bound";
        return 0;
    }
    return (int32_t)lrint(ldexp(x, fraction_bits));
}

static double float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return (double)x;
}

static double half_of(uint32_t bits)
{
    const int exponent = (int)(bits >> 10 & 0x1f), fraction = (int)(bits & 0x3ff);
    const double size = exponent == 31  ? HUGE_VAL
                        : exponent == 0 ? ldexp(fraction, -24)
                                        : ldexp(1024 + fraction, exponent - 25);
    return bits & 0x8000 ? -size : size;
}

static void read_floats(reader *in, const char *codec, int bound_log2, size_t count, int32_t *v)
{
    const double bound = ldexp(1.0, bound_log2);
    for (size_t i = 0; i < count && !in->wrong; i++) {
        if (strcmp(codec, "none") == 0) {
            v[i] = fixed(in, float_of((uint32_t)little(take(in, 4), 4)), bound, 30 - bound_log2);
        } else if (strcmp(codec, "bf16") == 0) {
            v[i] =
                fixed(in, float_of((uint32_t)little(take(in, 2), 2) << 16), bound, 30 - bound_log2);
        } else {
            v[i] = fixed(in, half_of((uint32_t)little(take(in, 2), 2)), 32768.0, 15);
        }
    }
}

static void read_blocks(reader *in, unsigned bits, size_t count, int32_t *v)
{
    const int32_t shift = bits == 8 ? 7 : 11, lowest = bits == 8 ? -128 : -8;
    for (size_t first = 0; first < count && !in->wrong; first += 256) {
        const size_t n = count - first < 256 ? count - first : 256;
        const int32_t scale = (int32_t)little(take(in, 2), 2);
        const uint8_t *q = take(in, bits == 8 ? n : (n + 1) / 2);
        for (size_t i = 0; i < n; i++) {
            const int32_t code = bits == 8 ? q[i] : q[i / 2] >> (i % 2 * 4) & 0xf;
            const int32_t value = code >= -lowest ? code + 2 * lowest : code;
            if (value == lowest)
                in->wrong = "a value that no encoder writes";
            v[first + i] = value * scale * (1 << shift);
        }
        if (bits == 4 && n % 2 == 1 && q[n / 2] >> 4 != 0)
            in->wrong = "bits behind the last value";
    }
}

static void read_values(reader *in, const char *codec, int bound_log2, size_t count, int32_t *v)
{
    if (strcmp(codec, "int8") == 0)
        read_blocks(in, 8, count, v);
    else if (strcmp(codec, "int4") == 0)
        read_blocks(in, 4, count, v);
    else
        read_floats(in, codec, bound_log2, count, v);
}

/* ---- codecs that choose ---------------------------------------------------------------------- */

/* Word [i] of Philox4x32-10. */
static uint32_t philox(uint64_t key, const uint32_t counter[4], uint64_t i)
{
    uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]};
    uint32_t k[2] = {(uint32_t)key, (uint32_t)(key >> 32)};
    for (int turn = 0; turn < 10; turn++) {
        const uint64_t a = (uint64_t)0xd2511f53u * c[0], b = (uint64_t)0xcd9e8d57u * c[2];
        const uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k[0], (uint32_t)b,
                                  (uint32_t)(a >> 32) ^ c[3] ^ k[1], (uint32_t)a};
        memcpy(c, next, sizeof(c));
        k[0] += 0x9e3779b9u;
        k[1] += 0xbb67ae85u;
    }
    return c[i % 4];
}

/* The [i]-th of the k indices that randk draws. */
static size_t drawn_index(uint64_t key, uint64_t i, uint64_t n, uint64_t k)
{
    const uint32_t counter[4] = {(uint32_t)(i / 4), 14u << 16, 0, 0};
    const uint64_t begin = i * n / k, end = (i + 1) * n / k;
    return (size_t)(begin + ((uint64_t)philox(key, counter, i) * (end - begin) >> 32));
}

static void read_randk(reader *in, const char *codec, int bound_log2, size_t n, size_t k,
                       int32_t *v)
{
    static int32_t chosen[PLAIN_MAX_VALUES];
    const uint64_t key = little(take(in, 8), 8);
    read_values(in, codec, bound_log2, k, chosen);
    for (size_t i = 0; i < k; i++)
        v[drawn_index(key, i, n, k)] = chosen[i];
}

/* The next bit of [bytes]; the lowest bit of each byte comes first. */
static uint32_t next_bit(reader *in, const uint8_t *bytes, size_t size, size_t *at)
{
    if (*at >= 8 * size) {
        in->wrong = "the gaps end too soon";
        return 0;
    }
    const uint32_t bit = (uint32_t)bytes[*at / 8] >> (*at % 8) & 1u;
    ++*at;
    return bit;
}

/* Reads the gaps of a tensor, which is one group as it has no more values than the oracle
 * recomputes. chosen: (k); NULL: the sign of ±[magnitude] follows each gap. */
static void read_gaps(reader *in, size_t size, size_t n, size_t k, const int32_t *chosen,
                      int32_t magnitude, int32_t *v)
{
    const uint8_t *bytes = take(in, size);
    const uint64_t most = (uint64_t)n * 45426 / ((uint64_t)k * 65536);
    unsigned rice = 0;
    size_t at = 0, next = 0;
    while (rice < 13 && (uint64_t)1 << (rice + 1) <= most)
        rice++;
    for (size_t i = 0; i < k && !in->wrong; i++) {
        size_t gap = 0;
        while (next_bit(in, bytes, size, &at) && next + gap <= n)
            gap += (size_t)1 << rice;
        for (unsigned bit = 0; bit < rice; bit++)
            gap += (size_t)next_bit(in, bytes, size, &at) << bit;
        next += gap;
        const bool negative = !chosen && next_bit(in, bytes, size, &at);
        if (next >= n) {
            in->wrong = "an index is outside its group";
            return;
        }
        v[next++] = chosen ? chosen[i] : negative ? -magnitude : magnitude;
    }
    if (8 * size - at >= 8)
        in->wrong = "bytes behind the last gap";
    while (!in->wrong && at < 8 * size) {
        if (next_bit(in, bytes, size, &at))
            in->wrong = "bits behind the last gap";
    }
}

static void read_largest(reader *in, const fedge_codec *codec, int bound_log2, size_t n, size_t k,
                         int32_t *v)
{
    static int32_t chosen[PLAIN_MAX_VALUES];
    const bool signs = strcmp(codec->sparsifier->name, "ternary") == 0;
    const uint8_t *index = take(in, 4);
    uint64_t magnitude = 0;
    if (little(index, 2) != k)
        in->wrong = "another number of values is chosen";
    if (signs)
        magnitude = little(take(in, 4), 4);
    else
        read_values(in, codec->values->name, bound_log2, k, chosen);
    if (magnitude > (uint64_t)1 << 30)
        in->wrong = "the magnitude is outside its bound";
    if (!in->wrong)
        read_gaps(in, little(index + 2, 2), n, k, signs ? NULL : chosen, (int32_t)magnitude, v);
}

/* ---- sections -------------------------------------------------------------------------------- */

static const fedge_codec *codec_of(const fedge_section *section, uint32_t tensor)
{
    return section->codec.tensors ? section->codec.tensors[tensor] : &section->codec;
}

static void read_tensor(reader *in, const fedge_codec *codec, const fedge_tensor_spec *spec,
                        int bound_log2, int32_t *v)
{
    const size_t n = spec->count;
    if (!codec->sparsifier || spec->rank < 2) {
        read_values(in, codec->values ? codec->values->name : "none", bound_log2, n, v);
        return;
    }
    const size_t k = (size_t)((n * codec->fraction + 999999) / 1000000);
    memset(v, 0, n * sizeof(*v));
    if (strcmp(codec->sparsifier->name, "randk") == 0)
        read_randk(in, codec->values->name, bound_log2, n, k, v);
    else
        read_largest(in, codec, bound_log2, n, k, v);
}

static voidpf keep(voidpf user, uInt items, uInt size)
{
    static uint8_t memory[1 << 16];
    size_t *used = user, wanted = ((size_t)items * size + 15) / 16 * 16;
    *used += wanted;
    return *used <= sizeof(memory) ? memory + *used - wanted : NULL;
}

static void drop(voidpf user, voidpf address)
{
    (void)user, (void)address;
}

static const char *inflate_section(reader *in, const fedge_section_info *info, uint8_t *raw,
                                   size_t raw_size)
{
    size_t used = 0;
    z_stream stream = {.zalloc = keep, .zfree = drop, .opaque = &used};
    if (info->raw_size > raw_size || inflateInit(&stream) != Z_OK)
        return "the section is too long";
    stream.next_in = (Bytef *)(uintptr_t)in->at;
    stream.avail_in = (uInt)in->left;
    stream.next_out = raw;
    stream.avail_out = (uInt)raw_size;
    const int result = inflate(&stream, Z_FINISH);
    const bool whole =
        result == Z_STREAM_END && stream.avail_in == 0 && stream.total_out == info->raw_size;
    (void)inflateEnd(&stream);
    in->at = raw;
    in->left = info->raw_size;
    return whole ? NULL : "the deflate stream is wrong";
}

static const char *decode_section(const fedge_section *section, const fedge_section_info *info,
                                  bool deflates, const int8_t *bounds_log2, const uint8_t *bytes,
                                  int32_t *v)
{
    static uint8_t raw[2 * PLAIN_MAX_VALUES * sizeof(float)];
    reader in = {.at = bytes, .left = (size_t)info->size};
    if (strcmp(info->name, section->name) != 0)
        return "the section has another name";
    if (info->codec.values != section->codec.values ||
        info->codec.sparsifier != section->codec.sparsifier ||
        info->codec.fraction != section->codec.fraction)
        return "the section has another codec";
    if (info->deflate && !deflates)
        return "the section is deflated";
    if (info->deflate)
        in.wrong = inflate_section(&in, info, raw, sizeof(raw));
    else if (info->raw_size != info->size)
        in.wrong = "the section has two sizes";
    for (uint32_t t = 0; t < section->schema.num_tensors && !in.wrong; t++) {
        const fedge_tensor_spec *spec = &section->schema.tensors[t];
        read_tensor(&in, codec_of(section, t), spec, bounds_log2[section->first + t],
                    v + spec->offset);
    }
    return in.wrong ? in.wrong : in.left > 0 ? "the section is too long" : NULL;
}

const char *plain_decode(const fedge_plan *plan, const int8_t *bounds_log2,
                         const plain_bytes *update, int32_t *v)
{
    size_t at = 0;
    const char *wrong = NULL;
    if (update->num_sections != plan->sent.num_sections)
        return "another number of sections";
    for (uint32_t i = 0; i < update->num_sections && !wrong; i++) {
        const fedge_section_info *info = &update->sections[i];
        if (info->size > update->size - at)
            return "the sections are longer than the update";
        wrong = decode_section(&plan->sent.sections[i], info, plan->update.deflate, bounds_log2,
                               update->bytes + at, v);
        at += (size_t)info->size;
    }
    return !wrong && at < update->size ? "the update is longer than its sections" : wrong;
}

/* ---- encoding -------------------------------------------------------------------------------- */

/* [x] rounded to [bits] of precision, ties to even. [least]: the smallest exponent with full
 * precision. */
static double rounded(double x, int bits, int least)
{
    int exponent = 0;
    (void)frexp(x, &exponent); /* |x| is in [2^(exponent − 1), 2^exponent) */
    exponent = exponent - 1 > least ? exponent - 1 : least;
    return ldexp(rint(ldexp(x, bits - 1 - exponent)), exponent - bits + 1);
}

static void encode_block(unsigned bits, size_t n, int32_t *v)
{
    const int32_t most = bits == 8 ? 127 : 7, unit = bits == 8 ? 1 << 7 : 1 << 11;
    int64_t largest = 0;
    for (size_t i = 0; i < n; i++)
        largest = labs((long)v[i]) > largest ? labs((long)v[i]) : largest;
    const int64_t each = (int64_t)most * unit, wanted = (largest + each - 1) / each;
    const int32_t step = (int32_t)(wanted < 65535 ? wanted : 65535) * unit;
    for (size_t i = 0; i < n && step > 0; i++) {
        const double q = rint((double)v[i] / (double)step);
        v[i] = (int32_t)(q > most ? most : q < -most ? -most : q) * step;
    }
}

static void encode_values(const char *codec, int bound_log2, const float *x, size_t n, int32_t *v)
{
    for (size_t i = 0; i < n; i++) {
        const double value = (double)x[i];
        v[i] =
            (int32_t)lrint(strcmp(codec, "f16") == 0
                               ? ldexp(rounded(ldexp(value, 15 - bound_log2), 11, -14), 15)
                               : ldexp(strcmp(codec, "bf16") == 0 ? rounded(value, 8, -126) : value,
                                       30 - bound_log2));
    }
    for (size_t i = 0; i < n && strncmp(codec, "int", 3) == 0; i += 256)
        encode_block(codec[3] == '8' ? 8 : 4, n - i < 256 ? n - i : 256, v + i);
}

static const float *sorted_by;

/* Sorts by size, the largest first; of equal values the one with the lower index. */
static int by_size(const void *a, const void *b)
{
    const size_t i = *(const size_t *)a, j = *(const size_t *)b;
    const float x = fabsf(sorted_by[i]), y = fabsf(sorted_by[j]);
    return x != y ? (x < y) - (x > y) : (i > j) - (i < j);
}

static int by_index(const void *a, const void *b)
{
    const size_t i = *(const size_t *)a, j = *(const size_t *)b;
    return (i > j) - (i < j);
}

/* The indices of the k largest, ascending. indices: (n) */
static void find_largest(const float *x, size_t n, size_t k, size_t *indices)
{
    for (size_t i = 0; i < n; i++)
        indices[i] = i;
    sorted_by = x;
    qsort(indices, n, sizeof(*indices), by_size);
    qsort(indices, k, sizeof(*indices), by_index);
}

static void encode_chosen(const fedge_codec *codec, int bound_log2, uint64_t key, const float *x,
                          size_t n, int32_t *v)
{
    static size_t indices[PLAIN_MAX_VALUES];
    static float chosen[PLAIN_MAX_VALUES];
    static int32_t sent[PLAIN_MAX_VALUES];
    const size_t k = (size_t)((n * codec->fraction + 999999) / 1000000);
    uint64_t sum = 0;
    memset(v, 0, n * sizeof(*v));
    if (strcmp(codec->sparsifier->name, "randk") != 0)
        find_largest(x, n, k, indices);
    for (size_t i = 0; i < k; i++) {
        if (strcmp(codec->sparsifier->name, "randk") == 0)
            indices[i] = drawn_index(key, i, n, k);
        chosen[i] = x[indices[i]];
    }
    const bool signs = strcmp(codec->sparsifier->name, "ternary") == 0;
    encode_values(signs ? "none" : codec->values->name, bound_log2, chosen, k, sent);
    for (size_t i = 0; i < k; i++)
        sum += (uint64_t)labs((long)sent[i]);
    const int32_t mean = (int32_t)((sum + k / 2) / k);
    for (size_t i = 0; i < k; i++)
        v[indices[i]] = !signs ? sent[i] : signbit(chosen[i]) ? -mean : mean;
}

void plain_encode(const fedge_codec *codec, uint32_t rank, int bound_log2, uint64_t key,
                  const float *x, size_t n, int32_t *v)
{
    if (codec->sparsifier && rank >= 2)
        encode_chosen(codec, bound_log2, key, x, n, v);
    else
        encode_values(codec->values->name, bound_log2, x, n, v);
}

uint64_t plain_key(const fedge_plan *plan, uint32_t round, uint32_t tensor)
{
    const uint32_t counter[4] = {0, 14u << 16, round, tensor};
    return philox(plan->seed, counter, 0) | (uint64_t)philox(plan->seed, counter, 1) << 32;
}

/* ---------------------------------------------------------------------------------------------- */

bool plain_codec_models(const fedge_plan *plan)
{
    static const char KNOWN[] = " none f16 bf16 int8 int4 topk randk ternary ";
    for (uint32_t i = 0; i < plan->sent.num_sections; i++) {
        const fedge_section *section = &plan->sent.sections[i];
        for (uint32_t t = 0; t < section->schema.num_tensors; t++) {
            const fedge_codec *codec = codec_of(section, t);
            if ((codec->values && !strstr(KNOWN, codec->values->name)) ||
                (codec->sparsifier && !strstr(KNOWN, codec->sparsifier->name)))
                return false;
        }
    }
    return plan->sent.schema.num_elements <= PLAIN_MAX_VALUES &&
           plan->schema.num_elements <= PLAIN_MAX_VALUES;
}
