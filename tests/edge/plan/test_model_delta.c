/* Model deltas: both sides have the same bits, nothing is lost, and any bytes are refused or fit.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/bytes.h"
#include "edge/core/rng.h"
#include "edge/plan/update.h"
#include "tests/edge/core/cmocka_all.h"
#include "tests/edge/core/codec/codecs.h"

#define ROUNDS 5

static const char *const DOWN[] = {"int8",          "none",      "int4",
                                   "topk:0.1+int8", "randk:0.2", "ternary:0.05"};
#define NUM_DOWN (sizeof(DOWN) / sizeof(DOWN[0]))

static fedge_plan *plan;
static float *model, *wanted, *after, *residual, *client;
static uint8_t *chain;
static size_t chain_size;

/* External: halves among what is frozen. */
static char halves[] =
    "{\"fedge-plan\":1,\"must\":[\"external\"],\"name\":\"h\",\"seed\":3,\"model\":{\"type\":"
    "\"external\",\"tensors\":[{\"name\":\"c\",\"shape\":[3],\"dtype\":\"I64\"},"
    "{\"name\":\"h\",\"shape\":[40,50],\"dtype\":\"F16\"},{\"name\":\"f\",\"shape\":[9],"
    "\"frozen\":true},{\"name\":\"w\",\"shape\":[300]},{\"name\":\"b\",\"shape\":[700],"
    "\"dtype\":\"BF16\"}]},\"training\":{\"learning-rate\":0.1},\"update\":{}}";

/* A matrix, statistics and a layer that is frozen; or the text in [state]. */
static int set_up(void **state)
{
    static const char TEXT[] =
        "{\"fedge-plan\":1,\"name\":\"d\",\"seed\":3,\"model\":{\"input-shape\":[1,9,9],\"layers\":"
        "["
        "{\"type\":\"Conv2d\",\"in_channels\":1,\"out_channels\":4,\"kernel_size\":3},"
        "{\"type\":\"BatchNorm2d\",\"num_features\":4},{\"type\":\"Flatten\"},"
        "{\"type\":\"Linear\",\"in_features\":196,\"out_features\":33},"
        "{\"type\":\"Linear\",\"in_features\":33,\"out_features\":5,\"train\":\"none\"}],"
        "\"loss\":{\"type\":\"CrossEntropyLoss\"}},"
        "\"data\":{\"name\":\"d\",\"shape\":[1,9,9],\"dtype\":\"f32\",\"labels\":5},"
        "\"training\":{\"learning-rate\":0.1},\"update\":{}}";
    fedge_error err;
    const char *text = *state ? *state : TEXT;
    chain = NULL;
    if (fedge_plan_parse(text, strlen(text), &plan, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    const size_t n = plan->schema.num_elements;
    float **rooms[] = {&model, &wanted, &after, &residual, &client};
    for (size_t i = 0; i < sizeof(rooms) / sizeof(rooms[0]); i++)
        assert_non_null(*rooms[i] = calloc(n, sizeof(float)));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(model);
    free(wanted);
    free(after);
    free(residual);
    free(client);
    free(chain);
    fedge_plan_free(plan);
    return 0;
}

static int set_up_halves(void **state)
{
    *state = halves;
    return set_up(state);
}

/* So many rounds from a drawn model, whose steps are the chain. */
static void run(size_t down, bool deflate)
{
    const size_t n = plan->schema.num_elements;
    fedge_rng rng = fedge_rng_stream(down, FEDGE_PURPOSE_TEST, 0, 0, 0);
    fedge_error err;
    plan->update.down = codec_named(DOWN[down]);
    plan->update.down_deflate = deflate;
    free(chain);
    chain = NULL;
    chain_size = 0;
    memset(residual, 0, n * sizeof(float));
    for (size_t i = 0; i < n; i++)
        model[i] = (float)fedge_rng_normal(&rng);
    fedge_sections_round(plan, model, NULL);
    memcpy(client, model, n * sizeof(float));
    memcpy(wanted, model, n * sizeof(float));
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        uint8_t *bytes = NULL;
        size_t size = 0;
        for (uint32_t t = 0; t < plan->sent.schema.num_tensors; t++) {
            for (size_t k = 0; k < plan->sent.schema.tensors[t].count; k++)
                wanted[plan->sent.model_offsets[t] + k] += 0.01f * (float)fedge_rng_normal(&rng);
        }
        /* The strategy's step moves the model, not what is wanted of it. */
        for (size_t i = 0; i < n; i++)
            after[i] = model[i];
        for (uint32_t t = 0; t < plan->sent.schema.num_tensors; t++) {
            const size_t place = plan->sent.model_offsets[t];
            for (size_t k = 0; k < plan->sent.schema.tensors[t].count; k++) {
                after[place + k] =
                    t < plan->sent.sections[0].schema.num_tensors
                        ? wanted[place + k] - residual[plan->sent.schema.tensors[t].offset + k]
                        : wanted[place + k];
            }
        }
        if (fedge_model_delta_make(plan, round, model, residual, after, &bytes, &size, &err) !=
            FEDGE_OK)
            fail_msg("%s", err.message);
        memcpy(model, after, n * sizeof(float));
        assert_non_null(chain = realloc(chain, chain_size + size));
        memcpy(chain + chain_size, bytes, size);
        chain_size += size;
        free(bytes);
    }
}

static void both_sides_have_the_same_bits(void **state)
{
    (void)state;
    for (size_t down = 0; down < 2 * NUM_DOWN; down++) {
        fedge_error err;
        run(down / 2, down % 2 == 1);
        if (fedge_model_delta_apply(plan, chain, chain_size, client, &err) != FEDGE_OK)
            fail_msg("%s: %s", DOWN[down / 2], err.message);
        assert_memory_equal(client, model, plan->schema.num_elements * sizeof(float));
        fedge_sections_round(plan, client, NULL); /* files have all of it */
        assert_memory_equal(client, model, plan->schema.num_elements * sizeof(float));
    }
}

static void what_is_dropped_is_the_residual(void **state)
{
    (void)state;
    const fedge_section *delta = &plan->sent.sections[0];
    for (size_t down = 0; down < NUM_DOWN; down++) {
        run(down, false);
        for (uint32_t t = 0; t < delta->schema.num_tensors; t++) {
            for (size_t k = 0; k < delta->schema.tensors[t].count; k++) {
                const size_t place = plan->sent.model_offsets[t] + k;
                const float rest = residual[delta->schema.tensors[t].offset + k];
                assert_true(fabsf(model[place] + rest - wanted[place]) < 1e-5f);
            }
        }
    }
}

/* At b = 2 a delta has room for 4 a value, in some codecs for less. */
static void a_change_over_the_bound_goes_on_in_the_next_steps(void **state)
{
    (void)state;
    static const size_t WHOLE[] = {0, 1, 2}; /* of DOWN: what has all values of a matrix */
    const size_t place = plan->sent.model_offsets[0];
    for (size_t i = 0; i < sizeof(WHOLE) / sizeof(WHOLE[0]); i++) {
        run(WHOLE[i], false);
        memset(residual, 0, plan->schema.num_elements * sizeof(float));
        const float before = model[place];
        for (int step = 0; step < 6; step++) {
            uint8_t *bytes;
            size_t size;
            fedge_error err;
            memcpy(after, model, plan->schema.num_elements * sizeof(float));
            after[place] += step == 0 ? 10.0f : 0.0f;
            if (fedge_model_delta_make(plan, ROUNDS + 1, model, residual, after, &bytes, &size,
                                       &err) != FEDGE_OK)
                fail_msg("%s", err.message);
            assert_true(fabsf(after[place] - model[place]) <= 4.0f);
            assert_true(fabsf(after[place] + residual[0] - (before + 10.0f)) < 1e-5f);
            memcpy(model, after, plan->schema.num_elements * sizeof(float));
            free(bytes);
        }
        assert_true(fabsf(model[place] - (before + 10.0f)) < 0.01f);
    }
}

static void any_bytes_are_refused_or_fit(void **state)
{
    (void)state;
    fedge_rng rng = fedge_rng_stream(9, FEDGE_PURPOSE_TEST, 0, 0, 0);
    for (size_t down = 0; down < 2 * NUM_DOWN; down++) {
        run(down / 2, down % 2 == 1);
        for (int trial = 0; trial < 60; trial++) {
            const size_t size =
                trial % 2 == 0 ? fedge_rng_below(&rng, (uint32_t)chain_size) : chain_size;
            uint8_t *copy = malloc(size + (size == 0));
            fedge_error err;
            memcpy(copy, chain, size);
            for (int k = 0; trial % 2 == 1 && k <= trial % 5; k++) {
                copy[fedge_rng_below(&rng, trial < 30 ? 40 : (uint32_t)size)] =
                    (uint8_t)fedge_rng_u32(&rng);
            }
            memset(client, 0, plan->schema.num_elements * sizeof(float));
            const fedge_status status = fedge_model_delta_apply(plan, copy, size, client, &err);
            for (size_t i = 0; status == FEDGE_OK && i < plan->schema.num_elements; i++)
                assert_true(isfinite(client[i]));
            free(copy);
        }
    }
}

static void sizes_that_lie_are_refused(void **state)
{
    (void)state;
    fedge_error err;
    run(0, true);
    fedge_put_u64(chain, UINT64_MAX);
    assert_int_equal(fedge_model_delta_apply(plan, chain, chain_size, client, &err), FEDGE_TOO_BIG);
    assert_non_null(strstr(err.message, "a section of 18446744073709551615 bytes"));
    fedge_put_u64(chain + 8, UINT64_MAX - 16);
    assert_int_equal(fedge_model_delta_apply(plan, chain, chain_size, client, &err),
                     FEDGE_TRUNCATED);
    assert_int_equal(fedge_model_delta_apply(plan, chain, 15, client, &err), FEDGE_TRUNCATED);
    assert_int_equal(fedge_model_delta_apply(plan, chain, 0, client, &err), FEDGE_OK);
}

/* Each of them is small on the way and costs the work of a whole model. */
static void a_chain_has_an_end(void **state)
{
    (void)state;
    fedge_error err;
    run(0, false);
    const size_t step = chain_size / ROUNDS, steps = FEDGE_MODEL_DELTA_MAX_STEPS;
    uint8_t *longer = malloc((steps + 1) * step);
    for (size_t i = 0; i <= steps; i++)
        memcpy(longer + i * step, chain, step);
    assert_int_equal(fedge_model_delta_apply(plan, longer, steps * step, client, &err), FEDGE_OK);
    assert_int_equal(fedge_model_delta_apply(plan, longer, (steps + 1) * step, client, &err),
                     FEDGE_TOO_BIG);
    assert_string_equal(err.message, "a model's delta has over 32 steps");
    free(longer);
}

static void a_change_that_is_not_finite_leaves_no_bytes(void **state)
{
    (void)state;
    static const float BAD[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++) {
        run(0, false);
        uint8_t *bytes = chain;
        size_t size;
        fedge_error err;
        after[plan->sent.model_offsets[0]] = BAD[i];
        assert_int_equal(
            fedge_model_delta_make(plan, ROUNDS + 1, model, residual, after, &bytes, &size, &err),
            FEDGE_NOT_FINITE);
        assert_null(bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_sides_have_the_same_bits),
        cmocka_unit_test(what_is_dropped_is_the_residual),
        cmocka_unit_test(a_change_over_the_bound_goes_on_in_the_next_steps),
        cmocka_unit_test(any_bytes_are_refused_or_fit),
        cmocka_unit_test(sizes_that_lie_are_refused),
        cmocka_unit_test(a_chain_has_an_end),
        cmocka_unit_test(a_change_that_is_not_finite_leaves_no_bytes),
    };
    const struct CMUnitTest of_halves[] = {
        cmocka_unit_test(both_sides_have_the_same_bits),
        cmocka_unit_test(what_is_dropped_is_the_residual),
    };
    const int failed = cmocka_run_group_tests(tests, set_up, tear_down);
    return failed + cmocka_run_group_tests(of_halves, set_up_halves, tear_down);
}
