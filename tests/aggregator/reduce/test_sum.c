/* Every kernel against the plain one and the codec's decoder, bit for bit: all counts of updates,
 * lengths around the vectors', weights and scales up to the largest, updates that are not aligned.
 */
#include "tests/edge/core/cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/reduce/sum.h"
#include "edge/core/bytes.h"
#include "edge/core/codec/codec.h"
#include "edge/core/fixed.h"
#include "edge/core/os.h"
#include "edge/core/rng.h"
#include "tests/edge/core/codec/codecs.h"

enum { MOST = 1100, BYTES = MOST * 4 + 64, BOUND_LOG2 = 3 };

static uint8_t rooms[FEDGE_SUM_MAX_UPDATES][BYTES + 1];
static fedge_summand updates[FEDGE_SUM_MAX_UPDATES];
static int64_t expected[MOST], sums[MOST];
static const size_t lengths[] = {1, 7, 8, 15, 16, 17, 31, 255, 256, 257, 272, 511, 512, 1000, MOST};

static void draw_weights(fedge_rng *rng, uint32_t largest)
{
    for (uint32_t u = 0; u < FEDGE_SUM_MAX_UPDATES; u++) {
        updates[u].bytes = rooms[u] + u % 2; /* odd addresses too */
        updates[u].weight =
            fedge_rng_below(rng, 4) == 0 ? largest : 1 + fedge_rng_below(rng, largest);
    }
}

static void draw_floats(fedge_rng *rng)
{
    const float bound = ldexpf(1.0f, BOUND_LOG2);
    for (uint32_t u = 0; u < FEDGE_SUM_MAX_UPDATES; u++) {
        for (size_t i = 0; i < MOST; i++) {
            const uint32_t kind = fedge_rng_below(rng, 8);
            const float half = (float)((int)fedge_rng_below(rng, 100) - 50) + 0.5f;
            const float x = kind == 0   ? bound
                            : kind == 1 ? -bound
                            : kind == 2 ? 0x1p-149f
                            : kind == 3 ? ldexpf(half, BOUND_LOG2 - FEDGE_FIXED_VALUE_BITS)
                                        : (float)(fedge_rng_normal(rng) * 0.4);
            fedge_put_f32(rooms[u] + u % 2 + i * sizeof(float), x);
        }
    }
}

static void draw_int8(fedge_rng *rng, uint32_t largest_scale)
{
    for (uint32_t u = 0; u < FEDGE_SUM_MAX_UPDATES; u++) {
        uint8_t *out = rooms[u] + u % 2;
        for (size_t at = 0; at < MOST; at += FEDGE_CODEC_BLOCK, out += FEDGE_CODEC_BLOCK + 2) {
            const bool most = fedge_rng_below(rng, 4) == 0;
            fedge_put_u16(
                out, (uint16_t)(most ? largest_scale : fedge_rng_below(rng, largest_scale + 1)));
            for (size_t i = 0; i < FEDGE_CODEC_BLOCK; i++) {
                const int q = most ? 127 : (int)fedge_rng_below(rng, 255) - 127;
                out[2 + i] = (uint8_t)(int8_t)(i % 3 ? q : -q);
            }
        }
    }
}

/* What the decoder and plain arithmetic make of the updates, on top of what there was. */
static void expect(const fedge_codec *codec, uint32_t count, size_t n)
{
    int32_t v[MOST];
    fedge_tensor_spec tensor = {.name = "t", .count = n};
    for (size_t i = 0; i < n; i++)
        expected[i] = sums[i] = (int64_t)i * 1000003 - 500000;
    for (uint32_t u = 0; u < count; u++) {
        assert_int_equal(
            fedge_codec_decode_run(codec, &tensor, BOUND_LOG2, 0, n, updates[u].bytes, v, NULL),
            FEDGE_OK);
        for (size_t i = 0; i < n; i++)
            expected[i] += (int64_t)updates[u].weight * v[i];
    }
}

static void assert_sums(size_t n)
{
    assert_memory_equal(sums, expected, n * sizeof(*sums));
    for (size_t i = 0; i < n; i++) { /* for the next kernel */
        sums[i] = (int64_t)i * 1000003 - 500000;
    }
}

static bool runs_here(const fedge_sum_kernels *kernels)
{
    return (fedge_os_cpu_features() & kernels->needs) == kernels->needs;
}

static void floats_are_summed_exactly(void **state)
{
    (void)state;
    fedge_rng rng = fedge_rng_stream(11, FEDGE_PURPOSE_TEST, 0, 0, 0);
    draw_floats(&rng);
    for (uint32_t count = 1; count <= FEDGE_SUM_MAX_UPDATES; count++) {
        draw_weights(&rng, count % 2 ? INT32_MAX / 16 : 1 << 20);
        for (size_t k = 0; k < sizeof(lengths) / sizeof(lengths[0]); k++) {
            const size_t n = lengths[k];
            expect(&NONE, count, n);
            fedge_sum_floats_scalar(sums, updates, count, 0, n, BOUND_LOG2);
            assert_sums(n);
            fedge_sum_floats(sums, updates, count, n, BOUND_LOG2);
            assert_sums(n);
            const fedge_sum_kernels *kernels;
            for (size_t at = 0; (kernels = fedge_sum_kernels_at(at)); at++) {
                if (runs_here(kernels)) {
                    const size_t done = kernels->floats(sums, updates, count, n, BOUND_LOG2);
                    assert_true(n < 16 || done > 0);
                    fedge_sum_floats_scalar(sums, updates, count, done, n, BOUND_LOG2);
                    assert_sums(n);
                }
            }
        }
    }
}

/* Weights that are no positive int32 take the plain way. */
static void weights_may_have_32_bits(void **state)
{
    (void)state;
    fedge_rng rng = fedge_rng_stream(12, FEDGE_PURPOSE_TEST, 0, 0, 0);
    draw_floats(&rng);
    draw_weights(&rng, 100);
    updates[0].weight = UINT32_MAX;
    expect(&NONE, 2, MOST);
    fedge_sum_floats(sums, updates, 2, MOST, BOUND_LOG2);
    assert_sums(MOST);
    draw_int8(&rng, UINT16_MAX);
    expect(&INT8, 2, MOST);
    fedge_sum_int8(sums, updates, 2, MOST, BOUND_LOG2);
    assert_sums(MOST);
}

/* Runs the blocks of all updates through one kernel by way of the front door. */
static void int8_are_summed_exactly(void **state)
{
    (void)state;
    fedge_rng rng = fedge_rng_stream(13, FEDGE_PURPOSE_TEST, 0, 0, 0);
    const uint32_t scales[] = {0, 1, 300, UINT16_MAX};
    const uint32_t weights[] = {1, 700, 1 << 20, INT32_MAX};
    for (uint32_t count = 1; count <= FEDGE_SUM_MAX_UPDATES; count++) {
        draw_int8(&rng, scales[count % 4]);
        draw_weights(&rng, weights[count / 4 % 4] / (count > 8 ? 16 : 1) + 1);
        for (size_t k = 0; k < sizeof(lengths) / sizeof(lengths[0]); k++) {
            const size_t n = lengths[k];
            expect(&INT8, count, n);
            fedge_sum_int8_scalar(sums, updates, count, n);
            assert_sums(n);
            fedge_sum_int8(sums, updates, count, n, BOUND_LOG2);
            assert_sums(n);
        }
    }
}

/* The kernels that this machine would not choose, on one block with factors of up to [bits] bits.
 */
static void blocks_of(fedge_rng *rng, uint32_t count, int bits, size_t n)
{
    const uint64_t most = ((uint64_t)1 << bits) - 1;
    fedge_sum_block block = {.count = count};
    int64_t plain[FEDGE_CODEC_BLOCK], fast[FEDGE_CODEC_BLOCK];
    for (size_t i = 0; i < n; i++)
        plain[i] = (int64_t)i * 1000003 - 500000;
    for (uint32_t u = 0; u < count; u++) {
        block.q[u] = (const int8_t *)rooms[u] + u % 2 + 2;
        block.factors[u] = u == 1 ? most : fedge_rng_u64(rng) & most;
        block.bits |= block.factors[u];
    }
    const fedge_sum_kernels *kernels;
    for (size_t at = 0; (kernels = fedge_sum_kernels_at(at)); at++) {
        if (!runs_here(kernels))
            continue;
        memcpy(fast, plain, sizeof(fast));
        const size_t done = kernels->block(fast, &block, n);
        assert_true(done <= n && n - done < 16);
        for (uint32_t u = 0; u < count; u++) { /* modulo 2^64, as vectors add */
            for (size_t i = 0; i < n; i++) {
                const uint64_t add = (uint64_t)block.q[u][i] * block.factors[u] << 7;
                fast[i] = (int64_t)((uint64_t)fast[i] - (i < done ? add : 0));
            }
        }
        assert_memory_equal(fast, plain, n * sizeof(*fast));
    }
}

static void blocks_are_summed_by_each_kernel(void **state)
{
    (void)state;
    fedge_rng rng = fedge_rng_stream(14, FEDGE_PURPOSE_TEST, 0, 0, 0);
    const int bits[] = {1, 8, 15, 16, 17, 24, 25, 30, 31, 32, 33, 45, 48};
    const size_t sizes[] = {16, 48, 63, 64, 65, 127, 128, 200, FEDGE_CODEC_BLOCK};
    draw_int8(&rng, UINT16_MAX);
    for (uint32_t count = 4; count <= FEDGE_SUM_MAX_UPDATES; count += 4) {
        for (size_t b = 0; b < sizeof(bits) / sizeof(bits[0]); b++) {
            for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++)
                blocks_of(&rng, count, bits[b], sizes[k]);
        }
    }
}

/* The first of the table that the features allow; none without them. */
static void the_fastest_kernel_is_chosen(void **state)
{
    (void)state;
    const fedge_sum_kernels *kernels;
    assert_null(fedge_sum_kernels_choose(0));
    for (size_t at = 0; (kernels = fedge_sum_kernels_at(at)); at++) {
        assert_ptr_equal(fedge_sum_kernels_choose(kernels->needs), kernels);
        assert_int_not_equal(kernels->needs, 0);
    }
    assert_ptr_equal(fedge_sum_kernels_choose(~0u), fedge_sum_kernels_at(0));
#if defined(__x86_64__)
    assert_string_equal(fedge_sum_kernels_choose(FEDGE_CPU_AVX2)->name, "avx2");
#elif defined(__ARM_NEON)
    assert_string_equal(fedge_sum_kernels_choose(fedge_os_cpu_features())->name, "neon");
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(floats_are_summed_exactly),
        cmocka_unit_test(weights_may_have_32_bits),
        cmocka_unit_test(int8_are_summed_exactly),
        cmocka_unit_test(blocks_are_summed_by_each_kernel),
        cmocka_unit_test(the_fastest_kernel_is_chosen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
