/* Updates: encoded, checked and decoded; and each thing that can be wrong with one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/message.h"
#include "edge/core/rng.h"
#include "edge/plan/client_hooks.h"
#include "edge/plan/update.h"
#include "tests/edge/core/codec/codecs.h"
#include "tests/edge/wire/deflate_once.h"

#define COUNT 1000
static const int8_t BOUNDS[2] = {2, 2};

static fedge_plan plan;
static float delta[COUNT];
static int32_t v[COUNT];
static uint8_t scratch[4 * COUNT];
static fedge_upload upload;
static uint8_t *bytes;

static const char *key; /* that a message is about */

static void make_plan(const fedge_codec *codec, bool deflate)
{
    fedge_error err;
    const uint32_t weight[2] = {30, 30}, bias[1] = {100};
    memset(&plan, 0, sizeof(plan));
    fedge_schema_init(&plan.schema, plan.tensors, FEDGE_MAX_TENSORS);
    assert_int_equal(fedge_schema_add(&plan.schema, "0.weight", FEDGE_F32, 2, weight, &err),
                     FEDGE_OK);
    assert_int_equal(fedge_schema_add(&plan.schema, "0.bias", FEDGE_F32, 1, bias, &err), FEDGE_OK);
    plan.update = (fedge_update_spec){.codec = *codec, .deflate = deflate, .bound_log2 = 2};
    plan.external = true;
    assert_int_equal(fedge_sections_make(&plan, &key, &err), FEDGE_OK);
}

/* Mostly zeros: they deflate. */
static void make_delta(void)
{
    for (size_t i = 0; i < COUNT; i++)
        delta[i] = i % 10 == 0 ? (float)i / 1000.0f - 0.5f : 0;
}

static void encode(const fedge_codec *codec, bool deflate)
{
    fedge_error err = {0};
    make_plan(codec, deflate);
    make_delta();
    memset(&upload, 0, sizeof(upload));
    if (fedge_update_encode(&(fedge_update){.plan = &plan, .bounds_log2 = BOUNDS, .changes = delta},
                            &upload, &bytes, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
}

static fedge_status decode(fedge_error *err)
{
    memset(err, 0, sizeof(*err));
    return fedge_update_decode(&plan, BOUNDS, &upload, bytes, scratch, sizeof(scratch), v, err);
}

static void expect(fedge_status status, const char *part)
{
    fedge_error err;
    fedge_status st = decode(&err);
    if (st != status || !strstr(err.message, part)) {
        fail_msg("gave %s: %s\n  expected %s: %s", fedge_status_text(st), err.message,
                 fedge_status_text(status), part);
    }
}

/* Tensors in codecs of their own: each lies as its codec has it, one after another. */
static void layers_have_codecs_of_their_own(void **state)
{
    (void)state;
    fedge_error err;
    make_plan(&INT8, false);
    plan.update.num_layers = 2;
    plan.update.layers[0] = (fedge_layer_codec){.tensors = "vectors", .codec = NONE};
    plan.update.layers[1] = (fedge_layer_codec){.tensors = "0.w*"};
    assert_int_equal(fedge_codec_parse("topk:0.1+int4", &plan.update.layers[1].codec, &err),
                     FEDGE_OK);
    assert_true(fedge_plan_sparsifies(&plan) && fedge_plan_makes_residual(&plan));
    assert_int_equal(fedge_sections_make(&plan, &key, &err), FEDGE_OK);
    static float residual[COUNT + 1];
    memset(residual, 0, sizeof(residual));
    make_delta();
    memset(&upload, 0, sizeof(upload));
    const fedge_update made = {
        .plan = &plan, .bounds_log2 = BOUNDS, .changes = delta, .residual = residual, .round = 1};
    assert_int_equal(fedge_update_encode(&made, &upload, &bytes, &err), FEDGE_OK);
    assert_true(upload.size < 100 * sizeof(float) + 90 + 90);
    assert_memory_equal(bytes + upload.size - 100 * sizeof(float), delta + 900,
                        100 * sizeof(float)); /* the bias, as floats */
    assert_int_equal(decode(&err), FEDGE_OK);
    uint32_t travelled = 0;
    for (uint32_t i = 0; i < 900; i++) {
        const float sent = ldexpf((float)v[i], 2 - FEDGE_FIXED_VALUE_BITS);
        travelled += v[i] != 0;
        assert_true(sent + residual[i] - delta[i] < 1e-6f && delta[i] - sent - residual[i] < 1e-6f);
    }
    assert_true(travelled <= 90 && travelled > 80);
    for (uint32_t i = 900; i < COUNT; i++) {
        assert_true(ldexpf((float)v[i], 2 - FEDGE_FIXED_VALUE_BITS) == delta[i] &&
                    residual[i] == 0);
    }
    upload.sections[0].codec = plan.update.layers[1].codec; /* the section's is the job's */
    expect(FEDGE_MISMATCH, "the plan wants int8");
    free(bytes);
}

/* What is left of a residual of round [last] in [round], whose change is 0: of values that do not
 * travel, since there are larger ones. */
static float left_of_residual(uint32_t last, uint32_t round)
{
    static float residual[COUNT + 1];
    static const float nothing[COUNT];
    fedge_error err;
    for (uint32_t i = 0; i < COUNT; i++)
        residual[i] = i < 90 ? 2.0f : i < 900 ? 0.125f : 0.0f;
    residual[COUNT] = (float)last;
    const fedge_update made = {.plan = &plan,
                               .bounds_log2 = BOUNDS,
                               .changes = nothing,
                               .residual = residual,
                               .round = round};
    assert_int_equal(fedge_update_encode(&made, &upload, &bytes, &err), FEDGE_OK);
    assert_int_equal(decode(&err), FEDGE_OK);
    for (uint32_t i = 0; i < 900; i++) {
        const float sent = ldexpf((float)v[i], 2 - FEDGE_FIXED_VALUE_BITS);
        assert_true(sent == (i < 90 ? 16.0f * residual[90] : 0.0f)); /* of which is left as much */
        assert_true(residual[i] == (i < 90 ? 0.0f : residual[90]));
    }
    assert_true(residual[COUNT] == (float)round);
    free(bytes);
    return residual[90] / 0.125f;
}

static void a_residual_fades(void **state)
{
    (void)state;
    fedge_error err;
    fedge_codec codec;
    assert_int_equal(fedge_codec_parse("topk:0.1", &codec, &err), FEDGE_OK);
    make_plan(&codec, false);
    memset(&upload, 0, sizeof(upload));
    plan.update.residual_half_life = 64;
    assert_true(left_of_residual(0, 500) == 1.0f); /* of no round */
    assert_true(left_of_residual(10, 11) == 1.0f); /* of the round before */
    assert_true(left_of_residual(10, 12) == 1.0f - 0.5f / 64);
    assert_true(left_of_residual(10, 43) == 0.75f); /* on a straight line */
    assert_true(left_of_residual(10, 75) == 0.5f);
    assert_true(left_of_residual(10, 107) == 0.375f);
    assert_true(left_of_residual(10, 139) == 0.25f);
    plan.update.residual_half_life = 1;
    assert_true(left_of_residual(10, 14) == 0.125f);
    plan.update.residual_half_life = 0;
    assert_true(left_of_residual(10, 5000) == 1.0f);
    plan.update.error_feedback = FEDGE_ERROR_FEEDBACK_OFF;
    assert_true(left_of_residual(10, 11) == 0.0f);
}

static void layers_without_tensors_are_refused(void **state)
{
    (void)state;
    fedge_error err;
    make_plan(&INT8, false);
    plan.update.num_layers = 2;
    plan.update.layers[0] = (fedge_layer_codec){.tensors = "0.*", .codec = NONE};
    plan.update.layers[1] = (fedge_layer_codec){.tensors = "*.bias", .codec = INT8};
    assert_int_equal(fedge_sections_make(&plan, &key, &err), FEDGE_INVALID_ARGUMENT);
    assert_string_equal(key, "update.layers");
    assert_non_null(strstr(err.message, "no tensor that is trained is left for \"*.bias\""));
}

/* Announces [size] bytes and their checksum. */
static void announce(size_t size)
{
    upload.size = upload.sections[0].size = size;
    upload.crc32 = fedge_crc32(0, bytes, size);
}

static void what_is_encoded_decodes(void **state)
{
    (void)state;
    for (int round = 0; round < 4; round++) {
        bool deflate = round % 2 == 1;
        encode(round < 2 ? &NONE : &INT8, deflate);
        assert_int_equal(upload.num_sections, 1);
        assert_string_equal(upload.sections[0].name, "delta");
        assert_int_equal(upload.sections[0].deflate, deflate);
        assert_int_equal(upload.sections[0].raw_size, fedge_update_max_size(&plan));
        assert_int_equal(upload.size, upload.sections[0].size);
        assert_int_equal(deflate, upload.size < fedge_update_max_size(&plan));
        assert_int_equal(upload.num_metrics, 0);
        expect(FEDGE_OK, "");
        for (size_t i = 0; i < COUNT; i++)
            assert_true(fabs(ldexp(v[i], -28) - (double)delta[i]) <= (round < 2 ? 0 : 0.003));
        free(bytes);
    }
}

static void deflate_is_dropped_when_it_does_not_help(void **state)
{
    (void)state;
    fedge_error err;
    make_plan(&NONE, true);
    fedge_rng rng = fedge_rng_stream(1, FEDGE_PURPOSE_TEST, 0, 0, 0);
    for (size_t i = 0; i < COUNT; i++) {
        uint32_t bits = fedge_rng_u32(&rng) & 0xbfffffffu; /* |x| < 2 with random digits */
        memcpy(&delta[i], &bits, sizeof(bits));
    }
    memset(&upload, 0, sizeof(upload));
    assert_int_equal(
        fedge_update_encode(&(fedge_update){.plan = &plan, .bounds_log2 = BOUNDS, .changes = delta},
                            &upload, &bytes, &err),
        FEDGE_OK);
    assert_false(upload.sections[0].deflate);
    assert_int_equal(upload.size, 4 * COUNT);
    expect(FEDGE_OK, "");
    free(bytes);
}

static void clamping_is_reported(void **state)
{
    (void)state;
    fedge_error err;
    make_plan(&NONE, false);
    make_delta();
    delta[3] = 5;
    delta[4] = -1000;
    memset(&upload, 0, sizeof(upload));
    assert_int_equal(
        fedge_update_encode(&(fedge_update){.plan = &plan, .bounds_log2 = BOUNDS, .changes = delta},
                            &upload, &bytes, &err),
        FEDGE_OK);
    assert_int_equal(upload.num_metrics, 1);
    assert_string_equal(upload.metrics[0].name, "clamped");
    assert_true(upload.metrics[0].value == 2);
    expect(FEDGE_OK, "");
    assert_int_equal(v[3], 1 << 30);
    assert_int_equal(v[4], -(1 << 30));
    free(bytes);
    delta[7] = NAN;
    assert_int_equal(
        fedge_update_encode(&(fedge_update){.plan = &plan, .bounds_log2 = BOUNDS, .changes = delta},
                            &upload, &bytes, &err),
        FEDGE_NOT_FINITE);
    assert_null(bytes);
}

static void wrong_descriptions_are_refused(void **state)
{
    (void)state;
    encode(&INT8, true);
    const fedge_upload good = upload;
    upload.num_sections = 0;
    expect(FEDGE_MISMATCH, "0 sections");
    upload.num_sections = 2;
    upload.sections[1] = upload.sections[0]; /* the same section twice */
    expect(FEDGE_MISMATCH, "2 sections; the plan wants 1, first \"delta\"");
    upload = good;
    upload.sections[0].name[0] = 'D';
    expect(FEDGE_MISMATCH, "section \"Delta\"; the plan wants \"delta\"");
    upload = good;
    upload.sections[0].codec = NONE;
    expect(FEDGE_MISMATCH, "has codec none; the plan wants int8");
    upload = good;
    upload.sections[0].size = upload.size = fedge_update_max_size(&plan) + 1;
    expect(FEDGE_TOO_BIG, "the plan's limit is");
    upload = good;
    upload.sections[0].raw_size++;
    expect(FEDGE_MISMATCH, "the plan's schema makes");
    upload = good;
    upload.sections[0].deflate = false;
    expect(FEDGE_MISMATCH, "although without deflate");
    upload = good;
    upload.sections[0].size = upload.size = 0;
    expect(FEDGE_MISMATCH, "has 0 bytes");
    upload = good;
    upload.size--;
    expect(FEDGE_MISMATCH, "its sections have");
    upload = good;
    plan.update.deflate = false;
    expect(FEDGE_MISMATCH, "the plan does not allow it");
    plan.update.deflate = true;
    expect(FEDGE_OK, "");
    free(bytes);
}

/* IFCA's server sums each update with those of the same model, so it has to be told which. */
static void an_update_says_which_model_was_trained(void **state)
{
    (void)state;
    fedge_error err;
    encode(&NONE, false);
    plan.hooks = fedge_client_hooks_find("IFCA");
    plan.hooks_arguments.num_clusters = 3;
    assert_non_null(plan.hooks);
    const struct {
        const char *metric;
        double value;
        bool fits;
    } cases[] = {{"cluster", 0, true},      {"cluster", 2, true},    {"cluster", 3, false},
                 {"cluster", -1, false},    {"cluster", 0.5, false}, {"clusters", 1, false},
                 {"cluster", 1e300, false}, {"cluster", 4e9, false}};
    assert_int_equal(fedge_update_check(&plan, &upload, &err), FEDGE_MISMATCH); /* missing */
    assert_non_null(strstr(err.message, "\"cluster\", a whole number from 0 to 2"));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        upload.num_metrics = 2;
        strcpy(upload.metrics[0].name, "loss");
        strcpy(upload.metrics[1].name, cases[i].metric);
        upload.metrics[1].value = cases[i].value;
        assert_int_equal(fedge_update_check(&plan, &upload, &err),
                         cases[i].fits ? FEDGE_OK : FEDGE_MISMATCH);
    }
    plan.hooks = NULL; /* nobody asks others */
    assert_int_equal(fedge_update_check(&plan, &upload, &err), FEDGE_OK);
    free(bytes);
}

static void wrong_bytes_are_refused(void **state)
{
    (void)state;
    encode(&INT8, true);
    const fedge_upload good = upload;
    bytes[upload.size / 2] ^= 1;
    expect(FEDGE_CORRUPT, "CRC-32");
    announce((size_t)good.size); /* a checksum that agrees with broken bytes */
    expect(FEDGE_CORRUPT, "section \"delta\": ");
    bytes[upload.size / 2] ^= 1;
    announce((size_t)good.size - 5);
    expect(FEDGE_TRUNCATED, "ends early");
    free(bytes);

    encode(&INT8, true);
    size_t size = (size_t)upload.size;
    bytes = realloc(bytes, size + 1);
    bytes[size] = 0;
    announce(size + 1);
    expect(FEDGE_CORRUPT, "1 bytes behind the end");
    free(bytes);
}

static void a_bomb_stops_at_the_expected_size(void **state)
{
    (void)state;
    static uint8_t zeros[10 * COUNT];
    encode(&INT8, true);
    free(bytes);
    size_t size = 0;
    bytes = malloc(COUNT);
    assert_true(deflate_once(zeros, sizeof(zeros), bytes, COUNT, &size));
    announce(size);
    expect(FEDGE_TOO_BIG, "more than the");
    assert_true(deflate_once(zeros, 100, bytes, COUNT, &size));
    announce(size);
    expect(FEDGE_TRUNCATED, "has 100 bytes");
    free(bytes);
}

static void wrong_values_are_refused(void **state)
{
    (void)state;
    static const struct {
        float value;
        fedge_status status;
    } CASES[] = {{NAN, FEDGE_NOT_FINITE},
                 {INFINITY, FEDGE_NOT_FINITE},
                 {4.001f, FEDGE_OUT_OF_RANGE},
                 {-5.0f, FEDGE_OUT_OF_RANGE}};
    encode(&NONE, false);
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        memcpy(bytes + 4 * 950, &CASES[i].value, 4);
        announce((size_t)upload.size);
        expect(CASES[i].status, "0.bias");
    }
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_have_codecs_of_their_own),
        cmocka_unit_test(a_residual_fades),
        cmocka_unit_test(layers_without_tensors_are_refused),
        cmocka_unit_test(what_is_encoded_decodes),
        cmocka_unit_test(deflate_is_dropped_when_it_does_not_help),
        cmocka_unit_test(clamping_is_reported),
        cmocka_unit_test(wrong_descriptions_are_refused),
        cmocka_unit_test(an_update_says_which_model_was_trained),
        cmocka_unit_test(wrong_bytes_are_refused),
        cmocka_unit_test(a_bomb_stops_at_the_expected_size),
        cmocka_unit_test(wrong_values_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
