/* The way down: which deltas there are, that they lead to the server's bits, and what a restart
 * keeps of them. */
#include "tests/edge/core/cmocka_all.h"

#include <stdlib.h>
#include <string.h>

#include "aggregator/rounds/downlink.h"
#include "edge/core/rng.h"
#include "tests/edge/core/codec/codecs.h"

#define ROUNDS 40
#define VALUES (40 * 50 + 50)
#define MODEL_SIZE (VALUES * sizeof(float))

static fedge_error err;
static fedge_plan *plan;
static float models[ROUNDS + 1][VALUES]; /* by the rounds that they are after */

static int set_up(void **state)
{
    static const char TEXT[] =
        "{\"fedge-plan\":1,\"name\":\"d\",\"seed\":3,\"model\":{\"input-shape\":[40],\"layers\":["
        "{\"type\":\"Linear\",\"in_features\":40,\"out_features\":50}],"
        "\"loss\":{\"type\":\"CrossEntropyLoss\"}},"
        "\"data\":{\"name\":\"d\",\"shape\":[40],\"dtype\":\"f32\",\"labels\":50},"
        "\"training\":{\"learning-rate\":0.1},\"update\":{}}";
    (void)state;
    if (fedge_plan_parse(TEXT, sizeof(TEXT) - 1, &plan, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    assert_int_equal(plan->schema.num_elements, VALUES);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fedge_plan_free(plan);
    return 0;
}

/* The strategy's step of a round is drawn; models[round] is what comes of it. */
static void step(fedge_downlink *downlink, uint32_t round)
{
    fedge_rng rng = fedge_rng_stream(1, FEDGE_PURPOSE_TEST, round, 0, 0);
    float *values = models[round];
    memcpy(values, models[round - 1], sizeof(models[0]));
    fedge_downlink_begin(downlink, values);
    for (size_t i = 0; i < VALUES; i++)
        values[i] += 0.01f * (float)fedge_rng_normal(&rng);
    assert_int_equal(fedge_downlink_end(downlink, round, values, &err), FEDGE_OK);
}

static void begin(fedge_downlink *downlink, const char *codec)
{
    plan->update.down = codec_named(codec);
    memset(models[0], 0, sizeof(models[0]));
    assert_int_equal(fedge_downlink_init(downlink, plan, &err), FEDGE_OK);
    assert_int_equal(fedge_downlink_size(downlink, 1), 0);
}

/* The delta from the model of [age] rounds before [round]: smaller than a model, and its bits. */
static void leads(const fedge_downlink *downlink, uint32_t age, uint32_t round)
{
    static float values[VALUES];
    uint8_t *bytes;
    const uint64_t size = fedge_downlink_size(downlink, age);
    assert_in_range(size, 1, MODEL_SIZE - 1);
    assert_int_equal(fedge_downlink_delta(downlink, age, &bytes, &err), FEDGE_OK);
    memcpy(values, models[round - age], sizeof(values));
    assert_int_equal(fedge_model_delta_apply(plan, bytes, size, values, &err), FEDGE_OK);
    assert_memory_equal(values, models[round], sizeof(values));
    free(bytes);
}

/* [most]: of the ages that there is a delta for, in the end. */
static void offers(const char *codec, uint32_t most)
{
    fedge_downlink downlink;
    begin(&downlink, codec);
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        step(&downlink, round);
        const uint32_t ages = round < most ? round : most;
        for (uint32_t age = 1; age <= ages; age++)
            leads(&downlink, age, round);
        for (uint32_t age = ages + 1; age <= ROUNDS; age++)
            assert_int_equal(fedge_downlink_size(&downlink, age), 0);
    }
    fedge_downlink_fini(&downlink);
}

static void a_delta_is_smaller_than_a_model_or_none(void **state)
{
    (void)state;
    offers("none", 0); /* a step has as many bytes as the model, and its sizes */
    offers("int8", 3);
    offers("int4", 7);
    offers("topk:0.01+int8", FEDGE_DOWNLINK_STEPS);
}

/* What the codec dropped goes on; deltas do not, for nobody would know what they begin with. */
static void a_restart_keeps_the_residual_alone(void **state)
{
    (void)state;
    static float expected[VALUES];
    fedge_downlink downlink, again;
    fedge_buffer kept;
    fedge_buffer_init(&kept, 1 << 20);
    begin(&downlink, "topk:0.01+int8");
    for (uint32_t round = 1; round <= 3; round++)
        step(&downlink, round);
    assert_int_equal(fedge_downlink_save(&downlink, &kept, &err), FEDGE_OK);
    assert_int_equal(kept.size, fedge_downlink_state_size(plan));
    step(&downlink, 4);
    memcpy(expected, models[4], sizeof(expected));
    assert_int_equal(fedge_downlink_init(&again, plan, &err), FEDGE_OK);
    fedge_downlink_load(&again, kept.data);
    step(&again, 4);
    assert_memory_equal(models[4], expected, sizeof(expected));
    leads(&again, 1, 4);
    assert_int_equal(fedge_downlink_size(&again, 2), 0);
    fedge_downlink_load(&downlink, kept.data);
    assert_int_equal(fedge_downlink_size(&downlink, 1), 0);
    fedge_downlink_fini(&again);
    fedge_downlink_fini(&downlink);
    fedge_buffer_fini(&kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_delta_is_smaller_than_a_model_or_none),
                                       cmocka_unit_test(a_restart_keeps_the_residual_alone)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
