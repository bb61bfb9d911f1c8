/* Compares the plain decoder and steps with the product's on random jobs: they accept the same
 * bytes, decode the same values, and make bit-identical models. */
#include "tests/edge/core/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rounds/global_model.h"
#include "edge/core/os.h"
#include "edge/plan/client_hooks.h"
#include "edge/plan/update.h"
#include "tests/world/job_draw.h"
#include "tests/world/plain_codec.h"
#include "tests/world/plain_step.h"
#include "tests/world/root_training.h"

/* A path as long as WORLD_JOB_EXAMPLES. */
#define EXAMPLES "plain-examples.csv"

enum { NUM_JOBS = 1500, NUM_ROUNDS = 4, MOST = 8 };

static fedge_rng draw;
static fedge_error err;

#define MUST_BE_OK(call)                                                                           \
    do {                                                                                           \
        if ((call) != FEDGE_OK)                                                                    \
            fail_msg("%s: %s", #call, err.message);                                                \
    } while (0)

static float root[PLAIN_MAX_VALUES]; /* the change by the server's last training */
static size_t num_root;

void world_root_trained(uint32_t round, const float *before, const float *after)
{
    assert_in_range(round, 1, NUM_ROUNDS);
    for (size_t i = 0; i < num_root; i++)
        root[i] = after[i] - before[i];
}

/* ---- updates --------------------------------------------------------------------------------- */

/* An update with the values decoded by both. */
typedef struct made {
    int8_t bounds[FEDGE_MAX_TENSORS];
    int32_t v[PLAIN_MAX_VALUES];
    fedge_update_facts facts;
} made;

static float random_value(float size)
{
    return ((float)fedge_rng_u32(&draw) / 2147483648.0f - 1.0f) * size;
}

/* Changes some bytes of a result, which both decode again. */
static void damage(const fedge_plan *plan, const int8_t *bounds, fedge_upload *upload,
                   uint8_t *bytes)
{
    static int32_t theirs[PLAIN_MAX_VALUES], ours[PLAIN_MAX_VALUES];
    static uint8_t scratch[1 << 17];
    for (uint32_t i = 0; i <= fedge_rng_below(&draw, 3) && upload->size > 0; i++) {
        uint8_t *at = &bytes[fedge_rng_below(&draw, (uint32_t)upload->size)];
        *at = fedge_rng_below(&draw, 2) ? (uint8_t)fedge_rng_u32(&draw) : *at ^ 0x80;
    }
    upload->crc32 = fedge_crc32(0, bytes, (size_t)upload->size);
    plain_bytes read = {
        .num_sections = upload->num_sections, .bytes = bytes, .size = (size_t)upload->size};
    memcpy(read.sections, upload->sections, upload->num_sections * sizeof(read.sections[0]));
    const fedge_status status =
        fedge_update_decode(plan, bounds, upload, bytes, scratch, sizeof(scratch), theirs, &err);
    const char *wrong = plain_decode(plan, bounds, &read, ours);
    if ((status == FEDGE_OK) != !wrong)
        fail_msg("%s, and %s", status == FEDGE_OK ? "valid" : err.message, wrong ? wrong : "valid");
    if (status == FEDGE_OK)
        assert_memory_equal(theirs, ours, plan->sent.schema.num_elements * sizeof(*ours));
}

static void make(const fedge_plan *plan, const float *model, made *out)
{
    static float changes[PLAIN_MAX_VALUES], residual[PLAIN_MAX_VALUES + 1];
    static int32_t theirs[PLAIN_MAX_VALUES];
    static uint8_t scratch[1 << 17];
    static fedge_upload upload;
    uint8_t *bytes = NULL;
    fedge_sections_bounds(plan, model, out->bounds);
    const float size = fedge_rng_below(&draw, 4) ? 0.1f : 6.0f;
    for (size_t i = 0; i < plan->sent.schema.num_elements; i++)
        changes[i] = fedge_rng_below(&draw, 8) ? random_value(size) : 0.0f;
    memset(residual, 0, sizeof(residual));
    memset(&upload, 0, sizeof(upload));
    upload.metrics[upload.num_metrics++] =
        (fedge_metric){.name = FEDGE_CLUSTER, .value = out->facts.cluster};
    MUST_BE_OK(fedge_update_encode(
        &(fedge_update){.plan = plan,
                        .bounds_log2 = out->bounds,
                        .changes = changes,
                        .round = out->facts.round,
                        .residual = fedge_plan_makes_residual(plan) ? residual : NULL},
        &upload, &bytes, &err));
    plain_bytes read = {
        .num_sections = upload.num_sections, .bytes = bytes, .size = (size_t)upload.size};
    memcpy(read.sections, upload.sections, upload.num_sections * sizeof(read.sections[0]));
    MUST_BE_OK(fedge_update_decode(plan, out->bounds, &upload, bytes, scratch, sizeof(scratch),
                                   theirs, &err));
    const char *wrong = plain_decode(plan, out->bounds, &read, out->v);
    if (wrong)
        fail_msg("%s", wrong);
    assert_memory_equal(theirs, out->v, plan->sent.schema.num_elements * sizeof(*theirs));
    for (int i = 0; i < 4; i++)
        damage(plan, out->bounds, &upload, bytes);
    free(bytes);
}

/* ---- rounds ---------------------------------------------------------------------------------- */

typedef struct both {
    const fedge_job *job;
    fedge_global_model theirs;
    plain_model ours[NUM_ROUNDS + 1];
    uint32_t num_clients;
    plain_history history[WORLD_JOB_MAX_CLIENTS];
} both;

static plain_model new_model(const fedge_plan *plan)
{
    plain_model model = {.values = calloc(plan->schema.num_elements, sizeof(float))};
    model.residual = calloc(plan->sent.sections[0].schema.num_elements, sizeof(float));
    for (int k = 0; k < 2; k++)
        model.moments[k] = calloc(plan->sent.sections[0].schema.num_elements, sizeof(float));
    return model;
}

/* A client's report on its update, which is partly missing or nonsense. */
static fedge_update_facts draw_facts(const both *of, uint32_t round, uint32_t client)
{
    const uint32_t most =
        of->job->rounds.max_staleness < round - 1 ? of->job->rounds.max_staleness : round - 1;
    return (fedge_update_facts){
        .round = round,
        .client = client,
        .num_examples = fedge_rng_below(&draw, 10) ? 1 + fedge_rng_below(&draw, 40) : 1u << 30,
        .start_loss = fedge_rng_below(&draw, 5) ? (double)random_value(2.0f) + 2.0 : 0.0,
        .squared_norm = fedge_rng_below(&draw, 5) ? (double)random_value(4.0f) + 3.0 : -1.0,
        .loss = (double)fedge_rng_below(&draw, 3),
        .ratio = fedge_update_ratio(&of->theirs, round, client),
        .staleness = of->job->rounds.buffer_size > 0 ? fedge_rng_below(&draw, most + 1) : 0,
        .cluster = fedge_plan_is_clustered(&of->job->plan)
                       ? fedge_rng_below(&draw, of->job->plan.hooks_arguments.num_clusters)
                       : 0,
        .cohort = of->theirs.strategy->by_cohort ? of->num_clients : 0};
}

static void add(both *of, const made *update)
{
    fedge_global_model *model = &of->theirs;
    const size_t count = of->job->plan.sent.schema.num_elements;
    const uint32_t weight = fedge_update_weight(model, &update->facts);
    uint32_t place = 0;
    MUST_BE_OK(fedge_accumulator_begin(&model->accumulator, weight, &err));
    MUST_BE_OK(
        fedge_accumulator_add_values(&model->accumulator, 0, update->v, 0, count, weight, &err));
    if (model->strategy->collects) {
        MUST_BE_OK(fedge_stored_updates_reserve(&model->stored, 1, &place, &err));
        MUST_BE_OK(fedge_stored_updates_put(&model->stored, place, update->v, &err));
    }
}

static void step_theirs(both *of, uint32_t round, const made *updates, uint32_t num)
{
    static const uint32_t IN_ORDER[MOST] = {0, 1, 2, 3, 4, 5, 6, 7};
    fedge_global_model *model = &of->theirs;
    fedge_update_facts facts[MOST];
    fedge_updates single;
    for (uint32_t i = 0; i < num; i++) {
        facts[i] = updates[i].facts;
        add(of, &updates[i]);
    }
    if (model->strategy->collects)
        MUST_BE_OK(fedge_stored_updates_list(&model->stored, IN_ORDER, num, &single, &err));
    MUST_BE_OK(fedge_global_model_step(model, round, updates[0].bounds, facts,
                                       model->strategy->collects ? &single : NULL, &err));
    MUST_BE_OK(fedge_global_model_reset(model, &err));
}

static double ratio_of(const both *of, uint32_t round, uint32_t client)
{
    const fedge_draw *drawn = &of->theirs.draw;
    const plain_draw with = {.total = drawn->total,
                             .count = drawn->count,
                             .unknown = drawn->unknown,
                             .floor = drawn->floor,
                             .asked = drawn->asked,
                             .available = drawn->available};
    return of->job->rounds.sampler.inverse_probability
               ? plain_ratio(of->job, &with, &of->history[client], round)
               : 0.0;
}

/* All clients are asked, as if some of them had not been drawn. */
static void draw_clients(both *of, uint32_t round)
{
    uint32_t clients[WORLD_JOB_MAX_CLIENTS];
    const fedge_sampler_spec *spec = &of->job->rounds.sampler;
    for (uint32_t i = 0; i < of->num_clients; i++)
        clients[i] = i;
    if (fedge_sampler_uses_history(spec)) {
        of->theirs.draw = fedge_draw_cohort(spec, &of->theirs.clients, round, &draw, clients,
                                            of->num_clients, 1 + of->num_clients / 2);
    }
}

static void note_clients(both *of, uint32_t round, const made *updates, uint32_t num)
{
    for (uint32_t i = 0; i < num; i++) {
        const fedge_update_facts *facts = &updates[i].facts;
        plain_history *of_client = &of->history[facts->client];
        *of_client = (plain_history){.examples = facts->num_examples,
                                     .loss = facts->loss,
                                     .last_round = round,
                                     .reported = of_client->reported + 1,
                                     .missed = of_client->missed};
        if (i == round % num && fedge_sampler_uses_history(&of->job->rounds.sampler)) {
            MUST_BE_OK(fedge_global_model_miss(&of->theirs, facts->client, &err));
            of_client->missed++;
        }
    }
}

static bool step_ours(both *of, uint32_t round, const made *updates, uint32_t num)
{
    static plain_round with;
    const size_t bytes = of->job->plan.schema.num_elements * sizeof(float);
    with = (plain_round){.job = of->job,
                         .round = round,
                         .cohort = of->num_clients,
                         .num_updates = num,
                         .root = root,
                         .in_slots = true};
    for (uint32_t i = 0; i < num; i++) {
        const fedge_update_facts *facts = &updates[i].facts;
        with.updates[i] = (plain_update){.v = updates[i].v,
                                         .bounds_log2 = updates[i].bounds,
                                         .said = {.num_examples = facts->num_examples,
                                                  .start_loss = facts->start_loss,
                                                  .squared_norm = facts->squared_norm,
                                                  .cluster = facts->cluster},
                                         .ratio = ratio_of(of, round, facts->client),
                                         .base = of->ours[round - 1 - facts->staleness].values,
                                         .staleness = facts->staleness};
    }
    for (; with.variant < plain_step_variants(&with); with.variant++) {
        if (plain_step(&with, &of->ours[round - 1], &of->ours[round]) &&
            plain_step_is(of->job, of->ours[round - 1].values, of->ours[round].values,
                          of->theirs.values)) {
            memcpy(of->ours[round].values, of->theirs.values, bytes);
            return true;
        }
    }
    return false;
}

static void run_rounds(both *of, const char *text)
{
    static made updates[MOST];
    for (uint32_t round = 1; round <= NUM_ROUNDS; round++) {
        const uint32_t num = of->num_clients;
        draw_clients(of, round);
        for (uint32_t i = 0; i < num; i++) {
            updates[i].facts = draw_facts(of, round, i);
            make(&of->job->plan, of->theirs.values, &updates[i]);
        }
        step_theirs(of, round, updates, num);
        if (!step_ours(of, round, updates, num))
            fail_msg("round %u is another\n%s", round, text);
        note_clients(of, round, updates, num);
    }
}

static void run_job(const fedge_job *job, const world_job *drawn)
{
    const fedge_accumulator_config config = {.num_lanes = 1};
    both of = {.job = job, .num_clients = drawn->num_clients};
    num_root = plain_needs_root(job) ? job->plan.num_parameters : 0;
    MUST_BE_OK(fedge_global_model_init(&of.theirs, job, "cpu", &config, &err));
    MUST_BE_OK(fedge_global_model_begin(&of.theirs, &err));
    for (uint32_t r = 0; r <= NUM_ROUNDS; r++)
        of.ours[r] = new_model(&job->plan);
    memcpy(of.ours[0].values, of.theirs.values, job->plan.schema.num_elements * sizeof(float));
    plain_step_begin(job, &of.ours[0]);
    run_rounds(&of, drawn->text);
    fedge_global_model_fini(&of.theirs);
    for (uint32_t r = 0; r <= NUM_ROUNDS; r++) {
        free(of.ours[r].values);
        free(of.ours[r].residual);
        free(of.ours[r].moments[0]);
        free(of.ours[r].moments[1]);
    }
}

/* ---- jobs ------------------------------------------------------------------------------------ */

/* Writes the examples of a job, which reads them here instead of on a server's disk. */
static void write_examples(world_job *drawn)
{
    static char csv[WORLD_JOB_EXAMPLES_TEXT];
    char *path = strstr(drawn->text, WORLD_JOB_EXAMPLES);
    for (; path; path = strstr(path, WORLD_JOB_EXAMPLES))
        memcpy(path, EXAMPLES, strlen(EXAMPLES));
    if (drawn->needs_examples)
        MUST_BE_OK(fedge_os_write_file(EXAMPLES, csv, world_job_examples(drawn, csv), 0600, &err));
}

static void models_are_the_same(void **state)
{
    (void)state;
    uint32_t num_modelled = 0;
    for (uint64_t seed = 0; seed < NUM_JOBS; seed++) {
        world_job drawn;
        fedge_job *job = NULL;
        draw = fedge_rng_stream(seed, FEDGE_PURPOSE_TEST, 0, 0, 0);
        world_job_draw(&draw, &drawn);
        write_examples(&drawn);
        MUST_BE_OK(
            fedge_strategy_job_parse(drawn.text, strlen(drawn.text), "job.json", &job, &err));
        if (plain_codec_models(&job->plan) && plain_step_models(job)) {
            run_job(job, &drawn);
            num_modelled++;
        } else if (getenv("FEDGE_TELL")) {
            print_message("%s down %s%s\n", drawn.strategy, drawn.down,
                          job->rounds.sampler.inverse_probability ? " inverse" : "");
        }
        fedge_job_free(job);
    }
    (void)remove(EXAMPLES);
    print_message("%u of %u jobs\n", num_modelled, NUM_JOBS);
    assert_true(num_modelled > NUM_JOBS * 3 / 4);
}

/* ---- by hand --------------------------------------------------------------------------------- */

/* Two steps of 1 with momentum 1/2: 1, then 1 + 1/2. With a proximal term of 1/4 the second one
 * starts at a gradient of 3/4. */
static void paths_are_as_computed_by_hand(void **state)
{
    (void)state;
    static const struct {
        float momentum, mu;
        bool nesterov;
        uint64_t steps;
        double path;
    } BY_HAND[] = {
        {0.0f, 0.0f, false, 7, 7.0},        {0.5f, 0.0f, false, 2, 2.5}, /* 1 + 1.5 */
        {0.5f, 0.0f, false, 3, 4.25},                                    /* + 1.75 */
        {0.5f, 0.0f, true, 2, 3.25},        /* (1 + 0.5) + (1 + 0.75) */
        {0.0f, 0.25f, false, 3, 2.3125},    /* 1 + 0.75 + 0.5625 */
        {0.5f, 0.25f, false, 2, 2.25},      /* 1 + (0.75 + 0.5) */
        {0.5f, 0.25f, true, 2, 2.6875},     /* 1.5 + (0.625 + 0.5625) */
        {0.0f, 0.25f, false, 1000000, 4.0}, /* 1 / 0.25 */
        {0.0f, 0.0f, false, 0, 1.0},
    };
    for (size_t i = 0; i < sizeof(BY_HAND) / sizeof(BY_HAND[0]); i++) {
        static fedge_job job;
        memset(&job, 0, sizeof(job));
        job.plan.training.learning_rate = 1.0f;
        job.plan.training.optimizer.momentum = BY_HAND[i].momentum;
        job.plan.training.optimizer.proximal_mu = BY_HAND[i].mu;
        job.plan.training.optimizer.nesterov = BY_HAND[i].nesterov;
        const double path = plain_nova_path(&job, 1, BY_HAND[i].steps);
        if (fabs(path - BY_HAND[i].path) > 1e-12)
            fail_msg("row %zu: %.17g, and by hand %.17g", i, path, BY_HAND[i].path);
    }
}

/* Two of four clients are drawn, of the scores 1, 2, 3 and 6: a client is drawn with the
 * probabilities 1/6, 1/3, 1/2 and 1, where the mean is 1/2. */
static void inverse_probabilities_are_as_computed_by_hand(void **state)
{
    (void)state;
    static fedge_job job;
    const plain_draw drawn = {
        .total = 12, .count = 2, .unknown = 2, .floor = 1, .asked = 2, .available = 4};
    static const double BY_HAND[][2] = {{1, 3.0}, {2, 1.5}, {3, 1.0}, {6, 0.5}, {0, 1.5}};
    memset(&job, 0, sizeof(job));
    job.rounds.sampler.type = FEDGE_SAMPLER_examples;
    job.rounds.max_weight = 100;
    for (size_t i = 0; i < sizeof(BY_HAND) / sizeof(BY_HAND[0]); i++) {
        const plain_history of = {.examples = (uint64_t)BY_HAND[i][0]};
        const plain_update update = {.ratio = plain_ratio(&job, &drawn, &of, 1)};
        assert_true(update.ratio == BY_HAND[i][1]);
        assert_int_equal(plain_inverse_weight(&job, &update, 1, false), (int)(16 * BY_HAND[i][1]));
        assert_int_equal(plain_inverse_weight(&job, &update, 1, true), 100);
    }
    job.rounds.sampler.type = FEDGE_SAMPLER_available; /* (3 + 1) / (3 + 2 + 2) · 2^20 */
    const plain_history seen = {.reported = 3, .missed = 2};
    const plain_draw all = {
        .total = 2 * 599186, .count = 1, .floor = 1, .asked = 1, .available = 2};
    assert_true(plain_ratio(&job, &all, &seen, 1) == 1.0);
    job.rounds.sampler.type = FEDGE_SAMPLER_utility; /* 8 · 10 · 2 · (1 + √(0.1 ln 4 / 2)) */
    const plain_history trained = {.examples = 10, .loss = 2.0, .last_round = 2};
    const plain_draw best = {.total = 404, .count = 1, .floor = 1, .asked = 1, .available = 2};
    assert_true(plain_ratio(&job, &best, &trained, 5) == 1.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_are_the_same),
        cmocka_unit_test(paths_are_as_computed_by_hand),
        cmocka_unit_test(inverse_probabilities_are_as_computed_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
