/* An update that is accumulated by pieces against one that is encoded, decoded and added: the same
 * sums and the same size.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rounds/global_model.h"
#include "aggregator/simulate/cohort/client_update.h"
#include "edge/core/rng.h"
#include "edge/plan/client_hooks.h"
#include "edge/plan/update.h"
#include "tests/edge/core/cmocka_all.h"

#define CLIENTS 3u
#define WEIGHT 7u /* of the first client; the others have more */

/* A layer that is frozen, a tensor of several pieces that ends in part of a block, statistics. */
static fedge_job *make_job(const char *update, const char *strategy)
{
    char text[2048];
    fedge_job *job = NULL;
    fedge_error err;
    const int size = snprintf(
        text, sizeof(text),
        "{\"fedge-job\":1,\"name\":\"accumulate\",\"model\":{\"input-shape\":[1,9,9],\"layers\":["
        "{\"type\":\"Conv2d\",\"in_channels\":1,\"out_channels\":4,\"kernel_size\":3},"
        "{\"type\":\"BatchNorm2d\",\"num_features\":4},{\"type\":\"Flatten\"},"
        "{\"type\":\"Linear\",\"in_features\":196,\"out_features\":33},"
        "{\"type\":\"Linear\",\"in_features\":33,\"out_features\":5,\"train\":\"none\"}],"
        "\"loss\":{\"type\":\"CrossEntropyLoss\"}},"
        "\"data\":{\"name\":\"d\",\"shape\":[1,9,9],\"dtype\":\"f32\",\"labels\":5},"
        "\"training\":{\"learning-rate\":0.1},\"rounds\":{\"num-server-rounds\":1},"
        "\"strategy\":{\"type\":\"%s\"},\"update\":%s}",
        strategy, update);
    assert_in_range(size, 1, sizeof(text) - 1);
    if (fedge_job_parse(text, (size_t)size, "job.json", &job, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    return job;
}

/* Many small changes, runs of none, and now and then one over the bound. */
static void change(fedge_rng *rng, const float *start, float *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t kind = fedge_rng_below(rng, 100);
        const double by = i % 500 < 200 ? 0.0 : kind == 0 ? 1e9 : kind == 1 ? -5.0 : 0.01;
        values[i] = (start ? start[i] : 0.0f) + (float)(by * fedge_rng_normal(rng));
    }
}

typedef struct fixture {
    const fedge_plan *plan;
    int8_t bounds[FEDGE_MAX_TENSORS];
    float *start, *trained, *changes;
    int32_t *v, *left;
    float *residuals[2]; /* of the client whose changes are accumulated, and encoded */
    uint8_t *packed, *own, *own_packed;
    fedge_deflater *deflater;
    fedge_accumulator accumulators[2]; /* what is accumulated, what is encoded */
} fixture;

static void *room(size_t size)
{
    void *memory = malloc(size + 1);
    assert_non_null(memory);
    return memory;
}

static void set_up(fixture *self, const fedge_job *job, fedge_rng *rng)
{
    fedge_error err;
    const fedge_plan *plan = &job->plan;
    const size_t model = plan->schema.num_elements, sent = plan->sent.schema.num_elements;
    const size_t most = model > sent ? model : sent, size = fedge_update_max_size(plan);
    *self = (fixture){.plan = plan,
                      .start = room(model * sizeof(float)),
                      .trained = room(model * sizeof(float)),
                      .changes = room(most * sizeof(float)),
                      .v = room(sent * sizeof(int32_t)),
                      .left = room(sent * sizeof(int32_t)),
                      .packed = room(size),
                      .own = room(size),
                      .own_packed = room(size)};
    for (uint32_t i = 0; i < 2; i++) {
        self->residuals[i] = room(fedge_plan_num_client_state(plan) * sizeof(float));
        memset(self->residuals[i], 0, fedge_plan_num_client_state(plan) * sizeof(float));
    }
    change(rng, NULL, self->start, model);
    fedge_sections_bounds(plan, self->start, self->bounds);
    assert_int_equal(fedge_deflater_new(&self->deflater, &err), FEDGE_OK);
    for (uint32_t i = 0; i < 2; i++) {
        const fedge_update_layout layout = fedge_plan_update_layout(plan);
        const fedge_accumulator_config config = {.layout = &layout, .num_lanes = 1};
        assert_int_equal(fedge_accumulator_open("cpu", &config, &self->accumulators[i], &err),
                         FEDGE_OK);
    }
}

static void tear_down(fixture *self)
{
    void *const rooms[] = {self->start,        self->trained,     self->changes, self->v,
                           self->left,         self->packed,      self->own,     self->own_packed,
                           self->residuals[0], self->residuals[1]};
    for (size_t i = 0; i < sizeof(rooms) / sizeof(rooms[0]); i++)
        free(rooms[i]);
    fedge_deflater_free(self->deflater);
    fedge_accumulator_close(&self->accumulators[0]);
    fedge_accumulator_close(&self->accumulators[1]);
}

/* A client both ways in a round. [apart]: its changes are computed before they are made. */
static void add_client(fixture *self, fedge_rng *rng, uint32_t round, uint32_t weight, bool apart)
{
    static fedge_upload upload;
    const fedge_plan *plan = self->plan;
    const size_t model = plan->schema.num_elements, sent = plan->sent.schema.num_elements;
    const size_t size = fedge_update_max_size(plan);
    uint8_t *bytes = NULL;
    fedge_error err = {0};
    fedge_update_made made;
    change(rng, self->start, self->trained, model);
    memcpy(self->changes, self->trained, model * sizeof(float));
    fedge_sections_changes(&plan->sent, self->start, self->changes);
    const bool residual = fedge_plan_makes_residual(plan);
    if (plan->hooks) {
        const size_t before = sent - plan->sent.sections[0].schema.num_elements;
        change(rng, NULL, self->changes + before, sent - before);
    }
    upload.num_metrics = 0;
    assert_int_equal(
        fedge_update_encode(&(fedge_update){.plan = plan,
                                            .bounds_log2 = self->bounds,
                                            .changes = self->changes,
                                            .residual = residual ? self->residuals[1] : NULL,
                                            .round = round},
                            &upload, &bytes, &err),
        FEDGE_OK);
    assert_int_equal(
        fedge_update_decode(plan, self->bounds, &upload, bytes, self->packed, size, self->v, &err),
        FEDGE_OK);
    free(bytes);
    assert_int_equal(fedge_accumulator_begin(&self->accumulators[1], weight, &err), FEDGE_OK);
    assert_int_equal(
        fedge_accumulator_add_values(&self->accumulators[1], 0, self->v, 0, sent, weight, &err),
        FEDGE_OK);
    const fedge_update update = {.plan = plan,
                                 .bounds_log2 = self->bounds,
                                 .changes = apart ? self->changes : NULL,
                                 .start = self->start,
                                 .parameters = self->trained,
                                 .buffers = self->trained + plan->num_parameters,
                                 .residual = residual ? self->residuals[0] : NULL,
                                 .round = round,
                                 .deflater = plan->update.deflate ? self->deflater : NULL,
                                 .bytes = self->own,
                                 .packed = self->own_packed};
    assert_int_equal(fedge_accumulate_update(&update, &self->accumulators[0], 0, weight,
                                             apart && !residual ? self->left : NULL, &made, &err),
                     FEDGE_OK);
    assert_int_equal(made.size, upload.size);
    assert_int_equal(upload.num_metrics, 1);
    assert_true((double)made.clamped == upload.metrics[0].value);
    assert_true(made.clamped > 0);
    assert_memory_equal(self->residuals[0], self->residuals[1],
                        fedge_plan_num_client_state(plan) * sizeof(float));
    if (apart && residual)
        return;
    if (apart) {
        assert_memory_equal(self->left, self->v, sent * sizeof(int32_t));
        return;
    }
    fedge_sections_changes(&plan->sent, self->start,
                           self->trained); /* taken back: there are none */
    for (size_t i = 0; i < sent; i++)
        assert_true(self->trained[i] == 0.0f);
}

static void expect_equal_sums(fixture *self)
{
    const size_t sent = self->plan->sent.schema.num_elements;
    int64_t *sums[2];
    fedge_accumulator_totals run_summary[2];
    fedge_error err;
    for (uint32_t i = 0; i < 2; i++) {
        sums[i] = room(sent * sizeof(int64_t));
        run_summary[i] = fedge_accumulator_get_totals(&self->accumulators[i]);
        assert_int_equal(fedge_accumulator_read(&self->accumulators[i], 0, sent, sums[i], &err),
                         FEDGE_OK);
    }
    assert_memory_equal(sums[0], sums[1], sent * sizeof(int64_t));
    assert_int_equal(run_summary[0].num_updates, CLIENTS);
    assert_int_equal(run_summary[1].num_updates, CLIENTS);
    assert_int_equal(run_summary[0].total_weight, run_summary[1].total_weight);
    free(sums[0]);
    free(sums[1]);
}

static void test_sums_and_sizes_are_those_of_updates(void **state)
{
    (void)state;
    static const char *const STRATEGIES[] = {"FedAvg", "SCAFFOLD"};
    static const char *const UPDATES[] = {
        "\"up\":\"none",
        "\"up\":\"int8",
        "\"up\":\"f16",
        "\"up\":\"bf16",
        "\"up\":\"int4",
        "\"up\":\"topk:0.02",
        "\"up\":\"randk:0.1+int4",
        "\"up\":\"ternary:0.05+int8",
        "\"error-feedback\":\"off\",\"up\":\"topk:0.5+int8",
        "\"error-feedback\":\"on\",\"residual-half-life\":1,\"up\":\"int4"};
    fedge_rng rng = fedge_rng_stream(1, FEDGE_PURPOSE_TEST, 0, 0, 0);
    for (unsigned u = 0; u < 2 * sizeof(UPDATES) / sizeof(UPDATES[0]); u++) {
        char with[96];
        snprintf(with, sizeof(with), "{%s%s\"}", UPDATES[u / 2], u % 2 ? "+deflate" : "");
        const bool residual = u / 2 >= 5;
        for (size_t s = 0; s < (residual ? 1 : 2); s++) {
            /* SCAFFOLD's are always computed, as are those that leave a residual. */
            for (int apart = s == 1 || residual; apart < 2; apart++) {
                fedge_job *job = make_job(with, STRATEGIES[s]);
                fixture self;
                set_up(&self, job, &rng);
                for (uint32_t c = 0; c < CLIENTS; c++)
                    add_client(&self, &rng, 1 + c * c, WEIGHT + 1000 * c, apart);
                expect_equal_sums(&self);
                tear_down(&self);
                fedge_job_free(job);
            }
        }
    }
}

/* What is no number, and a weight that is none: nothing has been added. */
static void test_a_refused_update_adds_nothing(void **state)
{
    (void)state;
    fedge_rng rng = fedge_rng_stream(2, FEDGE_PURPOSE_TEST, 0, 0, 0);
    fedge_job *job = make_job("{\"codec\":\"int8\"}", "SCAFFOLD");
    fixture self;
    set_up(&self, job, &rng);
    for (uint32_t c = 0; c < CLIENTS; c++)
        add_client(&self, &rng, 1, WEIGHT, true);
    const size_t last = job->plan.sent.schema.num_elements - 1;
    fedge_update update = {.plan = &job->plan,
                           .bounds_log2 = self.bounds,
                           .changes = self.changes,
                           .deflater = self.deflater,
                           .bytes = self.own,
                           .packed = self.own_packed};
    fedge_update_made made;
    fedge_error err;
    assert_int_equal(
        fedge_accumulate_update(&update, &self.accumulators[0], 0, 0, self.left, &made, &err),
        FEDGE_OUT_OF_RANGE);
    self.changes[last] = NAN;
    assert_int_equal(
        fedge_accumulate_update(&update, &self.accumulators[0], 0, WEIGHT, self.left, &made, &err),
        FEDGE_NOT_FINITE);
    assert_non_null(strstr(err.message, "is NaN"));
    expect_equal_sums(&self);
    tear_down(&self);
    fedge_job_free(job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums_and_sizes_are_those_of_updates),
        cmocka_unit_test(test_a_refused_update_adds_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
