#include "tests/edge/core/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/reduce/cuda/accumulator_cuda.h"
#include "edge/core/codec/chosen.h"
#include "edge/core/fixed.h"
#include "tests/cuda/emulator/emulator.h"
#include "tests/cuda/rounds.h"
#include "tests/edge/core/codec/codecs.h"

const fedge_accumulator_ops *const ops = &fedge_accumulator_cuda;
fedge_rng rng;
fedge_tensor_spec specs[MAX_TENSORS];
fedge_schema schemas[SECTIONS];
static fedge_schema whole;
fedge_update_layout layout;
int8_t bounds[MAX_TENSORS];
int num_updates = UPDATES;
bool extreme;
uint8_t *bytes[UPDATES];
uint64_t sizes[UPDATES][SECTIONS];
uint32_t weights[UPDATES];
int32_t fixed[MAX_VALUES];
int64_t expected[MAX_VALUES], sums[MAX_VALUES];
uint64_t expected_weight;
fedge_lost_gpus lost_gpus;
static float values[MAX_VALUES], moved[MAX_VALUES];
static fedge_step_part parts[MAX_TENSORS];
static bool stepped; /* the last step succeeded */

/* ---- what is summed ---------------------------------------------------------------------------
 */

/* delta in [codec], statistics as floats, a control section like the delta. */
static void make_layout(const fedge_codec *codec, uint32_t largest)
{
    fedge_schema_init(&whole, specs, MAX_TENSORS);
    layout = (fedge_update_layout){.num_sections = SECTIONS};
    for (uint32_t s = 0; s < SECTIONS; s++) {
        const uint32_t first = whole.num_tensors;
        for (uint32_t t = 0; t < MAX_TENSORS / SECTIONS; t++) {
            char name[16];
            const bool chooses = codec->sparsifier != NULL;
            uint32_t count =
                t == 1 ? 1 + fedge_rng_below(&rng, 10) : 1 + fedge_rng_below(&rng, largest);
            count += chooses && s == 0 && t == 0 ? FEDGE_CODEC_GROUP : 0;
            const uint32_t shape[] = {count, 1};
            (void)snprintf(name, sizeof(name), "s%u.t%u", s, t);
            bounds[whole.num_tensors] = (int8_t)((int)fedge_rng_below(&rng, 12) - 6);
            assert_int_equal(
                fedge_schema_add(&whole, name, FEDGE_F32, chooses && t != 2 ? 2 : 1, shape, NULL),
                FEDGE_OK);
        }
        schemas[s] = (fedge_schema){.tensors = &specs[first],
                                    .num_tensors = whole.num_tensors - first,
                                    .num_elements = whole.num_elements - specs[first].offset};
        layout.sections[s] = (fedge_update_layout_section){s == 1 ? NONE : *codec, &schemas[s]};
        layout.size += fedge_codec_size(&layout.sections[s].codec, &schemas[s]);
    }
    layout.num_elements = whole.num_elements;
}

/* Section [s] of an update: random floats, encoded; [v]: what it decodes to. */
static size_t make_section(uint32_t s, uint8_t *out, int32_t *v)
{
    static float x[MAX_VALUES], residual[MAX_VALUES];
    const fedge_codec *codec = &layout.sections[s].codec;
    size_t size = fedge_codec_size(codec, &schemas[s]);
    fedge_tensor_spec own[MAX_TENSORS];
    fedge_schema alone = {own, schemas[s].num_tensors, MAX_TENSORS, schemas[s].num_elements};
    const uint32_t first = (uint32_t)(schemas[s].tensors - specs);
    for (uint32_t t = 0; t < alone.num_tensors; t++) {
        own[t] = schemas[s].tensors[t];
        own[t].offset -= schemas[s].tensors[0].offset;
        for (size_t i = 0; i < own[t].count; i++) {
            x[own[t].offset + i] = ldexpf((float)((double)fedge_rng_u32(&rng) / 2147483648.0 - 1.0),
                                          bounds[first + t] - (int)fedge_rng_below(&rng, 3));
            if (extreme)
                x[own[t].offset + i] = ldexpf(i % 3 ? 1.0f : -1.0f, bounds[first + t]);
        }
    }
    memset(residual, 0, sizeof(residual));
    assert_int_equal(codec_encode(codec, &alone, bounds + first, x,
                                  codec->sparsifier ? residual : NULL, out, size, &size, NULL,
                                  NULL),
                     FEDGE_OK);
    assert_int_equal(fedge_codec_decode(codec, &alone, bounds + first, out, size, v, NULL),
                     FEDGE_OK);
    return size;
}

static void make_updates(void)
{
    memset(expected, 0, sizeof(expected));
    expected_weight = 0;
    for (int u = 0; u < num_updates; u++) {
        size_t at = 0;
        bytes[u] = malloc(layout.size);
        assert_non_null(bytes[u]);
        for (uint32_t s = 0; s < SECTIONS; s++) {
            sizes[u][s] = make_section(s, bytes[u] + at, fixed + schemas[s].tensors[0].offset);
            at += sizes[u][s];
        }
        assert_in_range(at, 1, layout.size);
        weights[u] = 1 + fedge_rng_below(&rng, FEDGE_FIXED_DEFAULT_MAX_WEIGHT);
        if (extreme)
            weights[u] = (uint32_t)(FEDGE_FIXED_MAX_TOTAL_WEIGHT / (uint64_t)num_updates);
        fedge_fixed_accumulate_scalar(expected, fixed, layout.num_elements, weights[u]);
        expected_weight += weights[u];
    }
}

void free_updates(void)
{
    for (int u = 0; u < num_updates; u++) {
        free(bytes[u]);
        bytes[u] = NULL;
    }
}

/* Two tensors stay as they are, as parts that are frozen do, and some are as the last step left
 * them. The order is not that of the sums. */
static uint32_t make_parts(void)
{
    uint32_t count = 0;
    for (uint32_t t = whole.num_tensors; t-- > 0;) {
        const bool unchanged = fedge_rng_below(&rng, 2) == 0 && stepped;
        if (t != 2 && t != 5) {
            parts[count++] = (fedge_step_part){
                specs[t].offset,         specs[t].count, bounds[t], t % 2 ? 1.0 : 0.37,
                moved + specs[t].offset, unchanged,      NULL,      {NULL}};
        }
        for (size_t i = specs[t].offset; i < specs[t].offset + specs[t].count && !unchanged; i++)
            moved[i] = values[i] = (float)fedge_rng_below(&rng, 2000) * 1e-3f - 1.0f;
    }
    for (uint32_t p = 0; p < count; p++) {
        fedge_fixed_step_scalar(values + parts[p].first, expected + parts[p].first, parts[p].count,
                                expected_weight, parts[p].bound_log2, parts[p].rate);
    }
    return count;
}

static fedge_status read_bytes(void *user, uint64_t offset, uint8_t *to, size_t size,
                               fedge_error *err)
{
    (void)err;
    memcpy(to, (const uint8_t *)user + offset, size);
    return FEDGE_OK;
}

fedge_encoded encoded(int u)
{
    fedge_encoded update = {.bytes = bytes[u], .bounds_log2 = bounds, .weight = weights[u]};
    if (layout.sections[0].codec.sparsifier) {
        update.sizes = sizes[u];
    } else if (u % 3 == 0) {
        update.bytes = NULL;
        update.read = read_bytes;
        update.user = bytes[u];
    }
    return update;
}

/* ---- a round ----------------------------------------------------------------------------------
 */

static fedge_status validate_all(void *state, fedge_encoded *all, fedge_error *err)
{
    fedge_status status = FEDGE_OK;
    for (int u = 0; u < num_updates && status == FEDGE_OK; u++)
        status = ops->validate(state, &all[u], err);
    return status;
}

/* Adds all but the last, which goes in as fixed point, in pieces. */
static fedge_status add_all(void *state, fedge_encoded *all, fedge_error *err)
{
    fedge_status status = FEDGE_OK;
    uint64_t ticket = 0;
    for (int u = 0; u < num_updates - 1 && status == FEDGE_OK;) {
        fedge_encoded *batch[FEDGE_ACCUMULATOR_MAX_BATCH];
        uint32_t count = 0;
        const uint32_t wanted = 1 + fedge_rng_below(&rng, FEDGE_ACCUMULATOR_MAX_BATCH);
        while (count < wanted && u < num_updates - 1)
            batch[count++] = &all[u++];
        status = ops->add(state, batch, count, &ticket, err);
    }
    if (status == FEDGE_OK) {
        ops->drop(state, &all[num_updates - 1]);
        status = ops->begin(state, weights[num_updates - 1], err);
    }
    for (size_t i = 0; i < layout.num_elements && status == FEDGE_OK;) {
        size_t count = 1 + fedge_rng_below(&rng, 5000);
        count = count < layout.num_elements - i ? count : layout.num_elements - i;
        status = ops->add_values(state, 0, fixed + i, i, count, weights[num_updates - 1], err);
        i += count;
    }
    return status == FEDGE_OK ? ops->wait(state, ticket, err) : status;
}

/* A round, as far as it gets. What is validated is given back when it fails. */
fedge_status run_round(void *state, fedge_error *err)
{
    fedge_encoded all[UPDATES] = {0};
    fedge_accumulator_totals totals;
    const uint32_t num_parts = make_parts();
    for (int u = 0; u < num_updates; u++)
        all[u] = encoded(u);
    fedge_status status = validate_all(state, all, err);
    if (status == FEDGE_OK)
        status = add_all(state, all, err);
    for (int u = 0; u < num_updates; u++) {
        if (all[u].staged)
            ops->drop(state, &all[u]);
    }
    if (status == FEDGE_OK) {
        ops->totals(state, &totals);
        assert_int_equal(totals.num_updates, num_updates);
        assert_true(totals.total_weight == expected_weight);
        status = ops->read(state, 0, layout.num_elements, sums, err);
    }
    if (status == FEDGE_OK) {
        assert_memory_equal(sums, expected, layout.num_elements * sizeof(*sums));
        const size_t first = fedge_rng_below(&rng, (uint32_t)layout.num_elements);
        status = ops->read(state, first, layout.num_elements - first, sums, err);
        assert_true(status != FEDGE_OK || sums[0] == expected[first]);
    }
    stepped = false;
    if (status == FEDGE_OK)
        status = ops->step(state, parts, num_parts, err);
    stepped = status == FEDGE_OK;
    if (status == FEDGE_OK)
        assert_memory_equal(moved, values, layout.num_elements * sizeof(*moved));
    return status == FEDGE_OK ? ops->reset(state, err) : status;
}

fedge_status run_rounds(uint32_t gpus, fedge_shard shard, int rounds, fedge_error *err)
{
    void *state = NULL;
    const fedge_accumulator_config config = {.layout = &layout,
                                             .num_lanes = 1,
                                             .num_gpus = gpus,
                                             .gpus = {0, 1, 2, 3, 4, 5, 6, 7},
                                             .lost = &lost_gpus,
                                             .shard = shard};
    atomic_store(&lost_gpus.numbers, 0);
    fedge_status status = ops->open(&config, &state, err);
    for (int r = 0; r < rounds && status == FEDGE_OK; r++)
        status = run_round(state, err);
    ops->close(state);
    if (emulator_fault())
        fail_msg("%s", emulator_fault());
    assert_int_equal(emulator_leaks(), 0);
    return status;
}

void seed_all(uint64_t seed, const fedge_codec *codec, uint32_t largest)
{
    rng = fedge_rng_stream(seed, FEDGE_PURPOSE_TEST, 2, 0, 0);
    stepped = false;
    make_layout(codec, largest);
    make_updates();
}

const uint32_t GPUS[] = {1, 2, 3, 8};

void check_same_bits(uint32_t gpus, fedge_shard shard, uint64_t seed)
{
    fedge_error err = {0};
    const emulator_config machine = {.num_gpus = gpus,
                                     .seed = seed,
                                     .order = (emulator_order)(seed % 3),
                                     .joins = gpus > 1 && shard == FEDGE_SHARD_CLIENTS};
    if (!emulator_start(&machine))
        return;
    if (run_rounds(gpus, shard, seed == 1 ? 4 : 1, &err) != FEDGE_OK)
        fail_msg("%u GPUs, shard %d: %s", gpus, (int)shard, err.message);
}

void check_all_machines(int num_machines, uint64_t seed)
{
    uint32_t there = emulator_real_gpus();
    for (int g = 0; g < num_machines; g++) {
        check_same_bits(GPUS[g], FEDGE_SHARD_CLIENTS, seed);
        check_same_bits(GPUS[g], FEDGE_SHARD_COORDINATES, seed);
        there = there == GPUS[g] ? 0 : there;
    }
    if (there > 0) {
        check_same_bits(there, FEDGE_SHARD_CLIENTS, seed);
        check_same_bits(there, FEDGE_SHARD_COORDINATES, seed);
    }
}
