/* Tiles of updates on GPUs: what is made of them has the CPU's bits, whatever the shapes, the
 * number of GPUs and threads and the order of their work; and where memory is short or a GPU is
 * lost, the call says so and leaves nothing behind. */
#include "tests/edge/core/cmocka_all.h"

#include <stdlib.h>
#include <string.h>

#include "aggregator/reduce/cuda/accumulator_cuda.h"
#include "aggregator/reduce/tile.h"
#include "edge/core/rng.h"
#include "tests/cuda/emulator/emulator.h"
#include "tests/edge/core/codec/codecs.h"

enum { MAX_ROWS = 70, MAX_COUNT = 8192, THREADS = 3 };

static fedge_rng rng;
static int32_t values[MAX_ROWS][MAX_COUNT];
static uint32_t far[MAX_ROWS * MAX_ROWS], chosen[MAX_ROWS], weights[MAX_ROWS];
static int64_t sums[2][MAX_COUNT];
static fedge_tile_sum products[2][MAX_ROWS * (MAX_ROWS + 1) / 2];

/* A tensor of few values, for something to open an accumulator with. */
static fedge_tensor_spec tensor = {.name = "w", .count = 700, .rank = 1, .shape = {700}};
static fedge_schema schema = {&tensor, 1, 1, 700};

static fedge_status open_gpus(uint32_t num_gpus, fedge_accumulator *accumulator, fedge_error *err)
{
    fedge_update_layout layout = {.num_sections = 1, .num_elements = 700};
    layout.sections[0] = (fedge_update_layout_section){.codec = NONE, .schema = &schema};
    layout.size = fedge_codec_size(&layout.sections[0].codec, &schema);
    const fedge_accumulator_config config = {.layout = &layout,
                                             .num_lanes = 1,
                                             .num_gpus = num_gpus,
                                             .gpus = {0, 1, 2},
                                             .shard = FEDGE_SHARD_COORDINATES};
    *accumulator = (fedge_accumulator){.ops = &fedge_accumulator_cuda};
    return accumulator->ops->open(&config, &accumulator->state, err);
}

static void close_gpus(fedge_accumulator *accumulator)
{
    accumulator->ops->close(accumulator->state);
    if (emulator_fault())
        fail_msg("%s", emulator_fault());
    assert_int_equal(emulator_leaks(), 0);
}

/* A tile, and what is to be made of it. */
typedef struct work {
    uint32_t num, num_far, num_mixed;
    size_t count;
    int shift;
    fedge_tile_products products;
    fedge_tile_choice choice;
} work;

/* Many values are the same, some as large as there are. */
static int32_t draw_value(uint32_t kind)
{
    const int32_t any = (int32_t)fedge_rng_below(&rng, (2u << 30) + 1) - (1 << 30);
    return kind == 0   ? any
           : kind == 1 ? (int32_t)fedge_rng_below(&rng, 5) - 2
                       : (any < 0 ? -(1 << 30) : 1 << 30);
}

static work draw(uint32_t num, size_t count)
{
    work drawn = {.num = num,
                  .count = count,
                  .num_far = fedge_rng_below(&rng, 2) * fedge_rng_below(&rng, num / 2 + 1),
                  .num_mixed = num - fedge_rng_below(&rng, 2),
                  .shift = 6 + (int)fedge_rng_below(&rng, 25),
                  .products = (fedge_tile_products)fedge_rng_below(&rng, 3)};
    const uint32_t kind = fedge_rng_below(&rng, 3);
    for (uint32_t i = 0; i < num; i++) {
        for (size_t k = 0; k < count; k++)
            values[i][k] = draw_value(kind);
        for (uint32_t j = 0; j < drawn.num_far; j++)
            far[i * drawn.num_far + j] = (i + 1 + 3 * j) % drawn.num_mixed;
    }
    fedge_tile_choice *choice = &drawn.choice;
    choice->reduction = (fedge_row_reduction)fedge_rng_below(&rng, 4);
    const bool some = fedge_rng_below(&rng, 2) == 0;
    for (uint32_t i = 0; i < num; i++) {
        if (!some || i == 0 || fedge_rng_below(&rng, 3) > 0)
            chosen[choice->num++] = i;
    }
    choice->rows = some ? chosen : NULL;
    choice->weights = weights;
    choice->cut = fedge_rng_below(&rng, (choice->num - 1) / 2 + 1);
    for (uint32_t i = 0; i < choice->num; i++)
        weights[i] = 1 + fedge_rng_below(&rng, 1u << 25);
    return drawn;
}

static fedge_status fill(const fedge_tile_ops *ops, void *state, uint32_t thread, const work *of,
                         fedge_error *err)
{
    int32_t **rows = ops->rows(state, thread, of->num, of->count);
    for (uint32_t i = 0; i < of->num; i++)
        memcpy(rows[i], values[i], of->count * sizeof(int32_t));
    return ops->load(state, thread, of->num, of->count, err);
}

/* All that a round does, to sums[to] and products[to]. */
static fedge_status run(const fedge_accumulator *accumulator, const work *of, int to,
                        fedge_error *err)
{
    void *place = NULL, *state = NULL;
    uint32_t num_places = 0;
    const fedge_tile_ops *ops = fedge_accumulator_tiles(accumulator, &place, &num_places);
    const fedge_tile_config config = {
        .num = of->num, .num_threads = THREADS, .size = MAX_COUNT, .mixes = of->num_far > 0};
    const int64_t *found = NULL;
    fedge_status status = ops->open(place, &config, &state, err);
    for (uint32_t round = 0; round < 2 && status == FEDGE_OK; round++) {
        for (uint32_t thread = 0; thread < THREADS && status == FEDGE_OK; thread++) {
            status = fill(ops, state, thread, of, err);
            if (status == FEDGE_OK)
                status = ops->dots(state, thread, of->num, of->count, of->shift, of->products, err);
        }
        if (status == FEDGE_OK) { /* the second replaces the first */
            status = ops->take_dots(state, of->num, products[to], err);
        }
        if (status == FEDGE_OK && round == 0 && of->num_far > 0)
            status = ops->mix(state, far, of->num_far, of->num_mixed, err);
    }
    for (uint32_t thread = 0; thread < THREADS && status == FEDGE_OK; thread++) {
        status = fill(ops, state, thread, of, err);
        if (status == FEDGE_OK)
            status = ops->reduce(state, thread, of->count, &of->choice, &found, err);
        if (status == FEDGE_OK)
            memcpy(sums[to], found, of->count * sizeof(*found));
    }
    ops->close(state);
    return status;
}

static void compare(const fedge_accumulator *gpus, const work *of)
{
    fedge_error err = {0};
    assert_int_equal(run(NULL, of, 0, &err), FEDGE_OK);
    if (run(gpus, of, 1, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    if (memcmp(sums[0], sums[1], of->count * sizeof(**sums)) != 0) {
        fail_msg("reduction %d of %u rows of %u, cut %u: the sums differ", of->choice.reduction,
                 (unsigned)of->choice.num, (unsigned)of->num, (unsigned)of->choice.cut);
    }
    for (size_t p = 0; p < fedge_tile_pairs(of->num); p++) {
        const fedge_tile_sum *a = &products[0][p], *b = &products[1][p];
        assert_true(a->high + (a->low >> 32) == b->high + (b->low >> 32));
        assert_true((a->low & 0xffffffff) == (b->low & 0xffffffff));
    }
}

static void tiles_have_the_bits_of_the_cpu(void **state)
{
    (void)state;
    fedge_error err = {0};
#ifdef RACES
    static const uint32_t NUMS[] = {3, 17, 64, 66};
    enum { LARGEST = 90, LONG_ROWS = 300, SEEDS = 2 };
#else
    static const uint32_t NUMS[] = {3, 4, 5, 8, 9, 16, 17, 31, 32, 33, 50, 63, 64, 65, 66, 70};
    enum { LARGEST = 400, LONG_ROWS = MAX_COUNT, SEEDS = 4 };
#endif
    enum { NUM = sizeof(NUMS) / sizeof(*NUMS) };
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        fedge_accumulator gpus;
        const uint32_t num_gpus = 1 + (uint32_t)(seed % 3);
        rng = fedge_rng_stream(seed, FEDGE_PURPOSE_TEST, 20, 0, 0);
        if (!emulator_start(&(emulator_config){
                .num_gpus = num_gpus, .seed = seed, .order = (emulator_order)(seed % 3)}))
            continue;
        assert_int_equal(open_gpus(num_gpus, &gpus, &err), FEDGE_OK);
        for (uint32_t i = 0; i < NUM; i++) {
            const uint32_t num = NUMS[(i + seed * 5) % NUM];
            const work of = draw(num, 1 + fedge_rng_below(&rng, LARGEST));
            compare(&gpus, &of);
        }
        /* One that products take in several parts. */
        work of = draw(5, seed == 0 ? LONG_ROWS : 1);
        of.products = FEDGE_PRODUCTS_ALL;
        compare(&gpus, &of);
        close_gpus(&gpus);
    }
}

#ifndef RACES

/* Every reduction for every number of rows, of one coordinate and of a block and one more. */
static void every_middle_of_every_number(void **state)
{
    (void)state;
    fedge_error err = {0};
    fedge_accumulator gpus;
    rng = fedge_rng_stream(5, FEDGE_PURPOSE_TEST, 21, 0, 0);
    if (!emulator_start(&(emulator_config){.num_gpus = 1, .unprotected = true}))
        skip();
    assert_int_equal(open_gpus(1, &gpus, &err), FEDGE_OK);
    for (uint32_t num = 3; num <= MAX_ROWS; num++) {
        for (int middle = FEDGE_ROW_MEAN; middle <= FEDGE_ROW_NEAREST; middle++) {
            work of = draw(num, num % 7 == 0 ? 257 : 1 + num % 3);
            of.choice.reduction = (fedge_row_reduction)middle;
            of.products = num % 2 == 0 ? FEDGE_PRODUCTS_NORMS : FEDGE_PRODUCTS_LAST;
            compare(&gpus, &of);
        }
    }
    close_gpus(&gpus);
}

/* The n-th call of one kind fails, for every n. */
static void fail_each(const char *at, int error, fedge_status expected)
{
    rng = fedge_rng_stream(9, FEDGE_PURPOSE_TEST, 22, 0, 0);
    work of = draw(9, 500);
    of.num_far = 2;
    of.num_mixed = 9;
    for (uint32_t i = 0; i < 18; i++)
        far[i] = (i + 1) % 9;
    uint32_t num_failed = 0;
    for (uint64_t call = 1;; call++) {
        fedge_accumulator gpus;
        fedge_error err = {0};
        if (!emulator_start(&(emulator_config){.num_gpus = 2,
                                               .unprotected = true,
                                               .fail_call = call,
                                               .fail_at = at,
                                               .fail_error = error}))
            skip();
        const fedge_status opened = open_gpus(2, &gpus, &err);
        const bool early = opened != FEDGE_OK;
        fedge_status status = early ? opened : run(&gpus, &of, 1, &err);
        const bool failed = emulator_failed();
        if (failed && !early) {
            num_failed++;
            assert_int_equal(status, expected);
            assert_non_null(strstr(err.message, "GPU "));
            /* When memory was short the next round may have it; a GPU that is lost stays so. */
            if (expected == FEDGE_NO_MEMORY)
                assert_int_equal(run(&gpus, &of, 1, &err), FEDGE_OK);
        } else if (!early) {
            assert_int_equal(status, FEDGE_OK);
        }
        if (!early)
            gpus.ops->close(gpus.state);
        if (expected == FEDGE_NO_MEMORY)
            assert_int_equal(emulator_leaks(), 0);
        if (!failed)
            break;
    }
    assert_true(num_failed > 3);
}

static void short_memory_is_told(void **state)
{
    (void)state;
    fail_each("allocation", 2 /* cudaErrorMemoryAllocation */, FEDGE_NO_MEMORY);
}

static void a_lost_gpu_is_told(void **state)
{
    (void)state;
    fail_each("allocation", 0, FEDGE_GPU_LOST);
    fail_each("copy", 0, FEDGE_GPU_LOST);
    fail_each("read", 0, FEDGE_GPU_LOST);
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiles_have_the_bits_of_the_cpu),
#ifndef RACES
        cmocka_unit_test(every_middle_of_every_number),
        cmocka_unit_test(short_memory_is_told),
        cmocka_unit_test(a_lost_gpu_is_told),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
