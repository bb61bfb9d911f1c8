/* Rounds of small jobs whose clients are trained on GPUs: near those of the CPU, the same bits
 * whatever the number of GPUs and of clients at once, and an end with a message when there is not
 * enough memory or a GPU is lost. */
#include "tests/edge/core/cmocka_all.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rounds/strategy.h"
#include "aggregator/simulate/run/simulation.h"
#include "edge/core/rng.h"
#include "tests/cuda/emulator/emulator.h"
#include "tests/cuda/trainer_models.h"
#include "tests/edge/core/long.h"

#define PICTURES "trainer-cuda-pictures.csv"
/* Of parameters after two rounds, beside the largest. */
#define BOUND 1e-4

enum { PICTURE_COUNT = 120, PIXELS = 16, CLIENTS = 9, ROUNDS = 2 };

typedef struct run {
    fedge_job *job;
    fedge_client_data *client_data;
    fedge_simulation *simulation;
    fedge_status status;
    fedge_error err;
    uint32_t asked, stop_asked;
    char told[2048];
} run;

static const char *augmentation = ""; /* further members of the data */
static int seed = 4;
static double rate = 0.1;
static fedge_sim_shared *shared; /* with the simulations beside; NULL: none */

static int set_up(void **state)
{
    (void)state;
    FILE *file = fopen(PICTURES, "w");
    fedge_rng rng = fedge_rng_stream(5, FEDGE_PURPOSE_TEST, 9, 0, 0);
    assert_non_null(file);
    for (uint32_t i = 0; i < PICTURE_COUNT; i++) {
        for (uint32_t p = 0; p < PIXELS; p++)
            fprintf(file, "%.4g,", fedge_rng_normal(&rng) + (p % 3 == i % 3 ? 1.0 : 0.0));
        fprintf(file, "%u\n", i % 3);
    }
    fclose(file);
    return 0;
}

static void make_job(run *self, const char *layers, const char *optimizer, const char *more)
{
    char text[2048];
    const int size = snprintf(
        text, sizeof(text),
        "{\"fedge-job\":1,\"name\":\"pictures\",\"seed\":%d,\"model\":{\"input-shape\":[1,4,4],"
        "\"layers\":[%s],\"loss\":{\"type\":\"CrossEntropyLoss\"}},"
        "\"data\":{\"name\":\"pictures\",\"shape\":[1,4,4],\"dtype\":\"f32\",\"labels\":3%s},"
        "\"training\":{\"local-epochs\":1,\"batch-size\":6,\"learning-rate\":%g%s},"
        "\"rounds\":{\"num-server-rounds\":%d,\"fraction-train\":0.6,\"min-train-nodes\":1,"
        "\"min-available-nodes\":2,\"fraction-evaluate\":0.5}%s}",
        seed, layers, augmentation, rate, optimizer, ROUNDS, more);
    assert_true(size > 0 && size < (int)sizeof(text));
    if (fedge_strategy_job_parse(text, (size_t)size, "job.json", &self->job, &self->err) !=
        FEDGE_OK)
        fail_msg("%s", self->err.message);
    fedge_site_data data = {.name = "pictures",
                            .values = PICTURES,
                            .validation_fraction = 0.2,
                            .has_partition = true,
                            .partition = {.seed = 2}};
    assert_int_equal(fedge_partition_parse("dirichlet:0.8", &data.partition, &self->err), FEDGE_OK);
    if (fedge_client_data_new(&self->job->plan, &data, 0.1, CLIENTS, &self->client_data,
                              &self->err) != FEDGE_OK)
        fail_msg("%s", self->err.message);
}

static void write_told(void *user, const char *line, size_t size)
{
    run *self = user;
    const size_t used = strlen(self->told);
    assert_true(used + size < sizeof(self->told));
    memcpy(self->told + used, line, size);
}

static bool is_over(void *user)
{
    run *self = user;
    return self->stop_asked > 0 && ++self->asked >= self->stop_asked;
}

static const char *accumulator;       /* what sums; NULL: what trains, where it can */
static const fedge_dataset *test_set; /* of the server; NULL: none */
static bool stays;                    /* the last run's changes stayed on the GPUs, as it says */

/* On GPUs [0, num_gpus) with backend "cuda" or "auto". */
static void begin(run *self, const char *backend, uint32_t num_gpus)
{
    const fedge_log log = {.level = FEDGE_LOG_INFO, .write = write_told, .user = self};
    const fedge_simulation_config config = {
        .job = self->job,
        .client_data = self->client_data,
        .test_set = test_set,
        .backend = backend,
        .accumulator = accumulator,
        .shared = shared,
        .log = &log,
        .num_threads = 2,
        .sums = {.num_gpus = num_gpus, .gpus = {0, 1, 2, 3, 4, 5, 6, 7}},
        .evaluate_every = 1,
        .cancel = is_over,
        .user = self};
    self->told[0] = '\0';
    self->status = fedge_simulation_new(&config, &self->simulation, &self->err);
}

static void end(run *self)
{
    fedge_simulation_free(self->simulation);
    fedge_client_data_free(self->client_data);
    fedge_job_free(self->job);
    *self = (run){0};
}

static struct {
    size_t trains, shared, sums;
} planned; /* what the last run's plan said of GPU 0, in bytes */

/* The plan has what is taken on each GPU, and all of it. */
static void check_planned(const run *self, uint32_t num_gpus)
{
    char text[8192], name[32];
    fedge_simulation_plan(self->simulation, text, sizeof(text));
    for (uint32_t g = num_gpus; g-- > 0;) {
        size_t left = 0, total = 0;
        assert_int_equal(cudaSetDevice((int)g), cudaSuccess);
        assert_int_equal(cudaMemGetInfo(&left, &total), cudaSuccess);
        (void)snprintf(name, sizeof(name), "GPU %u: ", g);
        assert_int_equal(sscanf(strstr(strstr(text, name), "; "),
                                "; %zu bytes: %*u each, %zu shared", &planned.trains,
                                &planned.shared),
                         2);
        (void)snprintf(name, sizeof(name), "GPU %u, by ", g);
        const char *sums = strstr(text, name);
        planned.sums = sums ? strtoul(strchr(sums, ':') + 1, NULL, 10) : 0;
        assert_int_equal(planned.trains + planned.sums, total - left);
    }
}

/* The whole run on GPUs; its values go to [values]. Returns how many clients GPU 0 has at once. */
static unsigned run_all(const char *layers, const char *optimizer, const char *more,
                        const char *backend, const emulator_config *gpus, float *values)
{
    run self = {0};
    emulator_start(gpus);
    make_job(&self, layers, optimizer, more);
    const uint32_t num_planned = strcmp(backend, "cuda") == 0 ? gpus->num_gpus : 0;
    begin(&self, backend, gpus->num_gpus);
    if (self.status == FEDGE_OK) {
        check_planned(&self, num_planned); /* beforehand */
        self.status = fedge_simulation_run(self.simulation, &self.err);
    }
    if (self.status != FEDGE_OK)
        fail_msg("%s", self.err.message);
    check_planned(&self, num_planned);
    memcpy(values, fedge_simulation_model(self.simulation)->values,
           self.job->plan.schema.num_elements * sizeof(float));
    stays = strstr(self.told, "updates=\"stay on the GPU\"") != NULL;
    const char *at_once = strstr(self.told, "clients-at-once=");
    const unsigned count = at_once ? (unsigned)strtoul(at_once + 16, NULL, 10) : 0;
    end(&self);
    if (emulator_fault())
        fail_msg("%s", emulator_fault());
    assert_int_equal(emulator_leaks(), 0);
    return count;
}

static const struct {
    const char *layers, *optimizer, *more;
    size_t num_values;
} JOBS[] = {
    {MLP, "", "", 163},
    {CNN, ",\"optimizer\":{\"type\":\"SGD\",\"momentum\":0.9,\"nesterov\":true}",
     ",\"update\":{\"codec\":\"int8\",\"deflate\":true}", 91},
    {MLP, ",\"clip-norm\":0.5", ",\"strategy\":{\"type\":\"FedProx\",\"proximal-mu\":0.1}", 163},
    {CNN, "", ",\"strategy\":{\"type\":\"SCAFFOLD\",\"num-clients\":9}", 91},
    {FROZEN, "", "", 163},
    {NORMED(""), "", "", 81},
    {ADAPTED, "", "", 187},
};
enum { JOB_COUNT = sizeof(JOBS) / sizeof(JOBS[0]) };

static void rounds_are_near_the_cpus(void **state)
{
    (void)state;
    for (int j = 0; j < JOB_COUNT; j++) {
        float cpu[200], gpu[200], largest = 0.0f;
        const emulator_config one = {.num_gpus = 1, .order = EMULATOR_RANDOM};
        augmentation = j == 3 ? AUGMENTATION : "";
        (void)run_all(JOBS[j].layers, JOBS[j].optimizer, JOBS[j].more, "cpu", &one, cpu);
        (void)run_all(JOBS[j].layers, JOBS[j].optimizer, JOBS[j].more, "cuda", &one, gpu);
        for (size_t i = 0; i < JOBS[j].num_values; i++)
            largest = fmaxf(largest, fabsf(cpu[i]));
        /* An int8 update may be rounded to the next step. */
        const double bound = strstr(JOBS[j].more, "int8") ? 0.02 : BOUND;
        augmentation = "";
        for (size_t i = 0; i < JOBS[j].num_values; i++) {
            if (!(fabs((double)cpu[i] - (double)gpu[i]) <= bound * (double)largest)) {
                fail_msg("job %d, value %zu: %.9g, and the CPU has %.9g", j, i, (double)gpu[i],
                         (double)cpu[i]);
            }
        }
    }
}

static void neither_gpus_nor_waves_show(void **state)
{
    (void)state;
    for (int j = 1; j < JOB_COUNT; j += 2) {
        float first[200], again[200];
        const emulator_config one = {.num_gpus = 1};
        const unsigned all =
            run_all(JOBS[j].layers, JOBS[j].optimizer, JOBS[j].more, "cuda", &one, first);
        assert_int_equal(all, 16);
        for (uint32_t gpus = 1; gpus <= 8; gpus += gpus == 3 ? 5 : 1) {
            if (j > 1 && gpus != 3 && !fedge_test_is_long())
                continue;
            const uint32_t grown = gpus < 3 ? gpus : 3;
            const emulator_config small = {.num_gpus = gpus,
                                           .memory_bytes = (size_t)(24 + 4 * grown) << 10,
                                           .order = (emulator_order)(gpus % 3),
                                           .seed = gpus};
            const unsigned at_once =
                run_all(JOBS[j].layers, JOBS[j].optimizer, JOBS[j].more, "cuda", &small, again);
            assert_in_range(at_once, 1, 5); /* of 6 in a round */
            assert_memory_equal(first, again, JOBS[j].num_values * sizeof(float));
        }
    }
}

/* Likewise with memory for a quarter of sixteen clients at once; five are asked. */
static void stay_in_waves(const char *layers, const char *update, const float *host, size_t size)
{
    float gpu[200];
    emulator_config small = {.num_gpus = 1}; /* a tenth is left free */
    assert_int_equal(run_all(layers, "", update, "cuda", &small, gpu), 16);
    const size_t wanted = planned.shared + (planned.trains - planned.shared) / 4;
    small.memory_bytes = planned.sums + wanted * 10 / 9 + 16;
    assert_in_range(run_all(layers, "", update, "cuda", &small, gpu), 1, 4);
    assert_true(stays);
    assert_memory_equal(host, gpu, size);
}

/* Changes that are summed where they are trained, in every codec that GPUs know, and joined by
 * NCCL: the sums are those of changes that come to the host, bit for bit. */
static void changes_stay_on_the_gpu(void **state)
{
    (void)state;
    static const char *const UPDATES[] = {
        ",\"update\":{\"codec\":\"none\",\"deflate\":false}",
        ",\"update\":{\"codec\":\"int8\",\"deflate\":false}",
        ",\"update\":{\"codec\":\"int8\",\"deflate\":false,\"bound-log2\":-6}"};
    static const char *const LAYERS[] = {FROZEN, CNN, MLP, NORMED("")};
    static const size_t VALUES[] = {163, 91, 163, 81};
    enum { TRAINED = ROUNDS * 5, STEP_READS = 1 };
    for (uint32_t u = 0; u < 4; u++) {
        const char *const layers = LAYERS[u], *const update = UPDATES[u % 3];
        float host[200], gpu[200];
        const size_t size = VALUES[u] * sizeof(float);
        const emulator_config one = {.num_gpus = 1, .fail_at = "read"}; /* which is counted */
        accumulator = "cpu";
        (void)run_all(layers, "", update, "cuda", &one, host);
        assert_false(stays);
        const uint64_t reads = emulator_counted();
        for (uint32_t gpus = 1; gpus <= (u == 0 ? 8 : 3); gpus += gpus == 3 ? 5 : 1) {
            if (u > 0 && gpus != 2 && !fedge_test_is_long())
                continue;
            const emulator_config machine = {
                .num_gpus = gpus, .order = EMULATOR_RANDOM, .seed = u, .fail_at = "read"};
            accumulator = gpus % 2 ? NULL : "cuda";
            (void)run_all(layers, "", update, "cuda", &machine, gpu);
            accumulator = NULL;
            assert_true(stays);
            /* Of each client what it came to, and not its model. */
            if (u == 0 && gpus == 1)
                assert_int_equal(emulator_counted(), reads - TRAINED + ROUNDS * STEP_READS);
            assert_true((emulator_collectives() >= ROUNDS) == (gpus > 1));
            assert_memory_equal(host, gpu, size);
        }
        stay_in_waves(layers, update, host, size);
    }
}

enum { EVALUATED = 4 };

/* A client's examples and those that it holds out, those set apart for validation, and the server's
 * test set, which is another data set. */
static void choose_evaluated(const run *self, const fedge_dataset *test, uint32_t *places,
                             int32_t (*classes)[PICTURE_COUNT],
                             fedge_evaluation_set sets[EVALUATED])
{
    const uint32_t count = fedge_dataset_size(test);
    const fedge_view views[EVALUATED] = {fedge_client_data_train(self->client_data, 0),
                                         fedge_client_data_held_out(self->client_data, 0),
                                         fedge_client_data_validation(self->client_data),
                                         {test, places, count}};
    for (uint32_t i = 0; i < count; i++)
        places[i] = count - 1 - i;
    for (uint32_t i = 0; i < EVALUATED; i++) {
        sets[i] = (fedge_evaluation_set){.view = views[i], .predicted = classes[i]};
        assert_true(views[i].count > 0);
    }
}

/* The same classes as on the CPU, and losses. */
static void evaluation_is_the_cpus(void **state)
{
    (void)state;
    static int32_t classes[2][EVALUATED][PICTURE_COUNT];
    fedge_evaluation_set sets[2][EVALUATED];
    run other = {0};
    make_job(&other, CNN, "", "");
    test_set = other.client_data->dataset;
    for (int on_gpu = 0; on_gpu < 2; on_gpu++) {
        run self = {0};
        uint32_t places[PICTURE_COUNT];
        emulator_start(&(emulator_config){.num_gpus = 2});
        make_job(&self, CNN, "", "");
        begin(&self, on_gpu ? "cuda" : "cpu", 2);
        assert_int_equal(self.status, FEDGE_OK);
        choose_evaluated(&self, test_set, places, classes[on_gpu], sets[on_gpu]);
        assert_int_equal(
            fedge_simulation_evaluate(self.simulation, sets[on_gpu], EVALUATED, false, &self.err),
            FEDGE_OK);
        end(&self);
    }
    test_set = NULL;
    end(&other);
    for (uint32_t i = 0; i < EVALUATED; i++) {
        const double loss = sets[0][i].loss;
        assert_memory_equal(classes[0][i], classes[1][i], sets[0][i].view.count * sizeof(int32_t));
        assert_true(loss > 0.0 && fabs(loss - sets[1][i].loss) <= 1e-6 * loss);
    }
}

static void what_gpus_lack_is_named(void **state)
{
    (void)state;
    run self = {0};
    emulator_start(&(emulator_config){.num_gpus = 1});
    make_job(&self, NORMED(",\"track_running_stats\":false"), "", "");
    begin(&self, "cuda", 0);
    assert_int_equal(self.status, FEDGE_UNSUPPORTED);
    assert_string_equal(self.err.message,
                        "layer 1 (BatchNorm2d \"1\"): evaluation by the batch's statistics "
                        "(track_running_stats false): GPUs do not train with it yet: take --engine "
                        "cpu");
    begin(&self, "auto", 0);
    assert_int_equal(self.status, FEDGE_OK);
    assert_string_equal(fedge_simulation_backend(self.simulation), "cpu");
    assert_non_null(strstr(self.told, "trainer-engine kind=cpu because="));
    assert_non_null(strstr(self.told, "layer 1 (BatchNorm2d "));
    end(&self);
}

static void a_precision_that_the_chip_lacks_is_told_beforehand(void **state)
{
    (void)state;
    run self = {0};
    emulator_start(&(emulator_config){.num_gpus = 2, .old_chip = true});
    make_job(&self, MLP, ",\"precision\":\"bf16\"", "");
    begin(&self, "cuda", 2);
    assert_int_equal(self.status, FEDGE_UNSUPPORTED);
    assert_string_equal(self.err.message, "GPU 0 has compute capability 7.5, and precision bf16 "
                                          "wants 8.0: set the job's precision to fp32");
    begin(&self, "auto", 2);
    assert_int_equal(self.status, FEDGE_OK);
    assert_string_equal(fedge_simulation_backend(self.simulation), "cpu");
    assert_non_null(strstr(self.told, "kind=cpu because=\"GPU 0 has compute capability 7.5, "));
    end(&self);
    make_job(&self, MLP, "", "");
    begin(&self, "auto", 2);
    assert_int_equal(self.status, FEDGE_OK);
    assert_string_equal(fedge_simulation_backend(self.simulation), "cuda");
    end(&self);
}

static void a_gpu_that_cannot_be_taken_is_passed_over(void **state)
{
    (void)state;
    static const struct {
        emulator_config machine;
        fedge_status status;
        const char *words;
    } CASES[] = {
        {{.no_driver = true}, FEDGE_NOT_FOUND, "NVIDIA driver: install one, or take --engine cpu"},
        {{.num_gpus = 1, .memory_bytes = 9 << 10}, FEDGE_NO_MEMORY, "GPU 0 has 0 MiB free, and "},
        {{.num_gpus = 1, .fail_at = "memory", .fail_call = 1, .fail_error = 2},
         FEDGE_NO_MEMORY,
         "GPU 0 has no memory left"},
        {{.num_gpus = 1, .fail_at = "choosing", .fail_call = 1, .fail_error = 46},
         FEDGE_NOT_FOUND,
         "GPU 0 is closed to this process"},
        {{.num_gpus = 1, .no_code = true}, FEDGE_NOT_FOUND, "GPU 0 has compute capability 9.0"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        run self = {0};
        emulator_start(&CASES[i].machine);
        make_job(&self, MLP, "", "");
        begin(&self, "cuda", 1);
        assert_int_equal(self.status, CASES[i].status);
        assert_non_null(strstr(self.err.message, CASES[i].words));
        assert_non_null(strstr(self.err.message, "--engine cpu"));
        emulator_start(&CASES[i].machine);
        begin(&self, "auto", 1);
        assert_int_equal(self.status, FEDGE_OK);
        assert_string_equal(fedge_simulation_backend(self.simulation), "cpu");
        assert_non_null(strstr(self.told, "trainer-engine kind=cpu because="));
        assert_non_null(strstr(self.told, CASES[i].words));
        end(&self);
    }
    run self = {0};
    make_job(&self, MLP, "", "");
    begin(&self, "cuda", 2);
    assert_int_equal(self.status, FEDGE_NOT_FOUND);
    assert_string_equal(self.err.message, "GPU 1 is not there: there are 0 to 0");
    end(&self);
}

static void count_lines(const char *text, const char *with, uint32_t wanted)
{
    uint32_t count = 0;
    for (const char *at = strstr(text, with); at; at = strstr(at + 1, with))
        count++;
    if (count != wanted)
        fail_msg("\"%s\" %u times, and not %u, in \"%s\"", with, count, wanted, text);
}

/* With "auto", and the CPU's bits: also where the sums, which lie on the GPU, are what takes the
 * memory that one client would need. */
static void where_no_client_fits_the_cpu_trains(void **state)
{
    (void)state;
    float cpu[200];
    const emulator_config none = {.num_gpus = 0};
    (void)run_all(MLP, "", "", "cpu", &none, cpu);
    for (int sums_too = 0; sums_too < 2; sums_too++) {
        run self = {0};
        size_t kib = 9;
        for (bool on_cpu = true; on_cpu; kib += 4) {
            emulator_start(&(emulator_config){.num_gpus = 1, .memory_bytes = kib << 10});
            make_job(&self, MLP, "", "");
            accumulator = sums_too ? "cuda" : NULL;
            begin(&self, "auto", 1);
            accumulator = NULL;
            if (sums_too && self.status != FEDGE_OK) { /* the sums alone are too large */
                assert_non_null(strstr(self.err.message, "accumulator cuda: GPU 0 has 0 MiB"));
                end(&self);
                continue;
            }
            if (self.status != FEDGE_OK)
                fail_msg("%zu KiB: %s", kib, self.err.message);
            on_cpu = strcmp(fedge_simulation_backend(self.simulation), "cpu") == 0;
            if (on_cpu) {
                count_lines(self.told, "trainer-engine ", 1);
                count_lines(self.told, "kind=cpu because=\"GPU 0 has 0 MiB free, and ", 1);
                assert_int_equal(fedge_simulation_run(self.simulation, &self.err), FEDGE_OK);
                assert_memory_equal(fedge_simulation_model(self.simulation)->values, cpu,
                                    163 * sizeof(float));
            }
            end(&self);
            assert_int_equal(emulator_leaks(), 0);
        }
        assert_in_range(kib, 17, 4096);
    }
}

/* What --plan says is what a run logs and takes. */
static void the_plan_has_waves_and_memory(void **state)
{
    (void)state;
    for (uint32_t gpus = 1; gpus <= 2; gpus++) {
        run self = {0};
        char text[8192], line[200];
        emulator_start(
            &(emulator_config){.num_gpus = gpus, .memory_bytes = (size_t)(24 + 4 * gpus) << 10});
        make_job(&self, MLP, "", "");
        begin(&self, "cuda", gpus);
        assert_int_equal(self.status, FEDGE_OK);
        fedge_simulation_plan(self.simulation, text, sizeof(text));
        const char *logged = strstr(self.told, "clients-at-once=");
        assert_non_null(logged);
        const unsigned at_once = (unsigned)strtoul(logged + 16, NULL, 10);
        const unsigned asked = (5 + gpus - 1) / gpus;
        assert_in_range(at_once, 1, 5);
        (void)snprintf(line, sizeof(line), "GPU 0: %u clients at once, %u waves for %u a round; ",
                       at_once, (asked + at_once - 1) / at_once, asked);
        if (!strstr(text, line))
            fail_msg("\"%s\" does not say \"%s\"", text, line);
        assert_non_null(strstr(text, "updates come to the host"));
        assert_non_null(strstr(text, "sums\nCPU: "));
        assert_true((strstr(text, "\nGPU 1: ") != NULL) == (gpus == 2));
        end(&self);
    }
}

/* ---- runs of a sweep --------------------------------------------------------------------------
 */

enum { BESIDE = 4 }; /* the last has a precision of its own, so it is not trained with the others */

static void *run_beside(void *user)
{
    run *self = user;
    self->status = fedge_simulation_run(self->simulation, &self->err);
    return NULL;
}

static void choose(uint32_t member)
{
    seed = 4 + (int)member % 2;
    rate = 0.05 * (1 + member / 2);
}

static void make_beside(run *self, uint32_t member, const char *more)
{
    choose(member);
    make_job(self, MLP, member == BESIDE - 1 ? ",\"precision\":\"bf16\"" : "", more);
}

/* All are there before the first begins; what they share lives as long as they do. */
static void train_beside(run *runs, uint32_t count)
{
    pthread_t threads[BESIDE];
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_beside, &runs[i]), 0);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
}

static void take_values(const run *self, float values[200])
{
    memcpy(values, fedge_simulation_model(self->simulation)->values,
           self->job->plan.schema.num_elements * sizeof(float));
}

/* Seeds and learning rates side by side: each run has the bits that it has alone, and what is alike
 * takes its steps in the same launches. */
static void runs_of_a_sweep_are_trained_together(void **state)
{
    (void)state;
    static const char *const MORE[] = {",\"update\":{\"codec\":\"int8\",\"deflate\":false}",
                                       ",\"strategy\":{\"type\":\"FedProx\",\"proximal-mu\":0.1}",
                                       ",\"strategy\":{\"type\":\"SCAFFOLD\",\"num-clients\":9}"};
    for (uint32_t m = 0; m < 3; m += fedge_test_is_long() ? 1 : 2) {
        static run runs[BESIDE];
        static float alone[BESIDE][200], beside[BESIDE][200];
        const emulator_config machine = {.num_gpus = 1 + m % 2,
                                         .order = EMULATOR_RANDOM,
                                         .fail_at = "step_all"}; /* which is counted */
        fedge_sim_shared theirs;
        uint64_t steps = 0;
        accumulator = m == 0 ? "cuda" : NULL;
        for (uint32_t i = 0; i < BESIDE; i++) {
            choose(i);
            emulator_start(&machine);
            make_beside(&runs[i], i, MORE[m]);
            begin(&runs[i], "cuda", machine.num_gpus);
            assert_int_equal(runs[i].status, FEDGE_OK);
            (void)run_beside(&runs[i]);
            assert_int_equal(runs[i].status, FEDGE_OK);
            take_values(&runs[i], alone[i]);
            end(&runs[i]);
            steps += emulator_counted();
        }
        emulator_start(&machine);
        fedge_sim_shared_init(&theirs, BESIDE);
        shared = &theirs;
        for (uint32_t i = 0; i < BESIDE; i++) {
            make_beside(&runs[i], i, MORE[m]);
            begin(&runs[i], "cuda", machine.num_gpus);
            assert_int_equal(runs[i].status, FEDGE_OK);
        }
        train_beside(runs, BESIDE);
        for (uint32_t i = 0; i < BESIDE; i++) {
            if (runs[i].status != FEDGE_OK)
                fail_msg("run %u: %s", i, runs[i].err.message);
            take_values(&runs[i], beside[i]);
            end(&runs[i]);
        }
        fedge_sim_shared_fini(&theirs);
        shared = NULL;
        accumulator = NULL;
        if (emulator_fault())
            fail_msg("%s", emulator_fault());
        assert_int_equal(emulator_leaks(), 0);
        for (uint32_t i = 0; i < BESIDE; i++)
            assert_memory_equal(alone[i], beside[i], 163 * sizeof(float));
        assert_memory_not_equal(alone[0], alone[1], 163 * sizeof(float));
        assert_memory_not_equal(alone[0], alone[2], 163 * sizeof(float));
        /* One and the fourth alone have half of them, but for what is not of one length. */
        if (emulator_counted() >= steps * 3 / 4) {
            fail_msg("%u steps together, and %u one after another", (unsigned)emulator_counted(),
                     (unsigned)steps);
        }
    }
    seed = 4;
    rate = 0.1;
}

enum { SHARING = 3, REFUSED = 701 }; /* an error that does not come again */

/* Of the first two all clients train in each round, of the last one of them. Returns how often a
 * step was queued. */
static uint64_t share_a_gpu(uint64_t fail_call, uint32_t rounds, fedge_status status[SHARING])
{
    static run runs[SHARING];
    fedge_sim_shared theirs;
    emulator_start(&(emulator_config){.num_gpus = 1,
                                      .memory_bytes = 48 << 10,
                                      .fail_at = "step_all",
                                      .fail_call = fail_call,
                                      .fail_error = REFUSED,
                                      .unprotected = true});
    fedge_sim_shared_init(&theirs, SHARING);
    shared = &theirs;
    for (uint32_t i = 0; i < SHARING; i++) {
        make_beside(&runs[i], i, "");
        runs[i].job->rounds.num_server_rounds = rounds;
        runs[i].job->rounds.fraction_train = i + 1 < SHARING ? 1.0 : 1.0 / CLIENTS;
        begin(&runs[i], "cuda", 1);
        assert_int_equal(runs[i].status, FEDGE_OK);
    }
    train_beside(runs, SHARING);
    for (uint32_t i = 0; i < SHARING; i++) {
        status[i] = runs[i].status;
        end(&runs[i]);
    }
    fedge_sim_shared_fini(&theirs);
    shared = NULL;
    seed = 4;
    rate = 0.1;
    if (emulator_fault())
        fail_msg("%s", emulator_fault());
    assert_int_equal(emulator_leaks(), 0);
    return emulator_counted();
}

/* Also to one whose clients of the round were done before: it goes on to its next round, where the
 * cohort must neither train nor know the tasks of the others, which are freed by then. */
static void a_gpu_is_lost_to_all_that_share_it(void **state)
{
    (void)state;
    fedge_status status[SHARING];
    const uint64_t steps = share_a_gpu(0, 1, status);
    assert_true(steps > 2 * SHARING);
    for (uint64_t call = 1; call <= steps; call++) {
        (void)share_a_gpu(call, ROUNDS, status);
        for (uint32_t i = 0; i < SHARING; i++) {
            if (status[i] != FEDGE_GPU_LOST)
                fail_msg("step %u, run %u: status %d", (unsigned)call, (unsigned)i, status[i]);
        }
    }
}

/* The whole of a small run, evaluation on clients and all; how it ended. */
static uint64_t calls_of_run; /* without those that free */

/* Where models come back, and where changes are summed on two GPUs and joined by NCCL. */
static const struct {
    uint32_t num_gpus;
    const char *more, *accumulator;
} FAILING[] = {{1, "", NULL}, {2, ",\"update\":{\"codec\":\"int8\",\"deflate\":false}", "cuda"}};

static fedge_status try_run(const emulator_config *machine, uint32_t how, char message[512])
{
    run self = {0};
    assert_true(emulator_start(machine));
    make_job(&self, MLP, "", FAILING[how].more);
    accumulator = FAILING[how].accumulator;
    begin(&self, "cuda", machine->num_gpus);
    accumulator = NULL;
    if (self.status == FEDGE_OK)
        self.status = fedge_simulation_run(self.simulation, &self.err);
    const fedge_status status = self.status;
    calls_of_run = emulator_calls();
    (void)snprintf(message, 512, "%s", status == FEDGE_OK ? "" : self.err.message);
    end(&self);
    if (emulator_fault())
        fail_msg("%s", emulator_fault());
    assert_int_equal(emulator_leaks(), 0);
    return status;
}

/* No allocation fails unnoticed, and the message says what to do. */
static void fail_allocations(uint32_t how)
{
    static const int OUT_OF_MEMORY = 2;
    uint32_t failed = 0;
    for (uint64_t i = 1; i == failed + 1; i++) {
        char message[512];
        const emulator_config machine = {.num_gpus = 2,
                                         .fail_at = "allocation",
                                         .fail_call = i,
                                         .fail_error = OUT_OF_MEMORY,
                                         .unprotected = true};
        const fedge_status status = try_run(&machine, how, message);
        failed += emulator_failed();
        const bool of_sums =
            status == FEDGE_GPU_MEMORY && strncmp(message, "accumulator cuda: GPU ", 22) == 0;
        if (status != (emulator_failed() ? FEDGE_NO_MEMORY : FEDGE_OK) && !of_sums)
            fail_msg("allocation %u: status %d: %s", (unsigned)i, (int)status, message);
        if (emulator_failed() && !strstr(message, of_sums ? "--accumulator cpu" : "--engine cpu"))
            fail_msg("allocation %u: \"%s\" does not say what to do", (unsigned)i, message);
    }
    assert_true(failed > 40); /* of two GPUs: their blocks, and what is pinned for each */
}

static void out_of_memory_at_every_allocation(void **state)
{
    (void)state;
    for (uint32_t how = 0; how < 2; how++)
        fail_allocations(how);
}

/* Lost while it is opened, gets examples, trains, evaluates, joins sums or gives results back: the
 * run ends, and says how to go on. */
static void lose_gpus(uint32_t how)
{
    char message[512];
    emulator_config machine = {.num_gpus = FAILING[how].num_gpus, .unprotected = true};
    assert_int_equal(try_run(&machine, how, message), FEDGE_OK);
    const uint64_t calls = calls_of_run;
    uint32_t lost = 0, unnoticed = 0;
    for (uint64_t i = 1; i < calls; i += 9) {
        machine.fail_call = i;
        const fedge_status status = try_run(&machine, how, message);
        if (status == FEDGE_NOT_FOUND && strstr(message, "is found"))
            continue; /* it was asked for the number of GPUs, or for NCCL's version */
        /* Calls differ by a few from run to run. The last of each GPU chooses it again for work
         * that does not come, often long before the other GPU's last. */
        if (status == FEDGE_OK) {
            unnoticed += emulator_failed();
            continue;
        }
        if (status != FEDGE_GPU_LOST || !strstr(message, " is lost while ") ||
            (how == 0 && !strstr(message, "start again with --resume"))) {
            fail_msg("call %u of %u: status %d: %s", (unsigned)i, (unsigned)calls, (int)status,
                     message);
        }
        lost++;
    }
    assert_true(lost > 20 && unnoticed <= 2 * machine.num_gpus);
}

static void a_gpu_is_lost_in_every_phase(void **state)
{
    (void)state;
    for (uint32_t how = 0; how < 2; how++)
        lose_gpus(how);
}

static void a_run_can_be_interrupted(void **state)
{
    (void)state;
    run self = {.stop_asked = 4};
    emulator_start(&(emulator_config){.num_gpus = 1, .memory_bytes = 32 << 10});
    make_job(&self, MLP, "", "");
    begin(&self, "cuda", 1);
    assert_int_equal(self.status, FEDGE_OK);
    assert_int_equal(fedge_simulation_run(self.simulation, &self.err), FEDGE_CANCELLED);
    end(&self);
    assert_int_equal(emulator_leaks(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounds_are_near_the_cpus),
        cmocka_unit_test(neither_gpus_nor_waves_show),
        cmocka_unit_test(changes_stay_on_the_gpu),
        cmocka_unit_test(evaluation_is_the_cpus),
        cmocka_unit_test(what_gpus_lack_is_named),
        cmocka_unit_test(a_precision_that_the_chip_lacks_is_told_beforehand),
        cmocka_unit_test(a_gpu_that_cannot_be_taken_is_passed_over),
        cmocka_unit_test(where_no_client_fits_the_cpu_trains),
        cmocka_unit_test(the_plan_has_waves_and_memory),
        cmocka_unit_test(runs_of_a_sweep_are_trained_together),
        cmocka_unit_test(a_gpu_is_lost_to_all_that_share_it),
        cmocka_unit_test(out_of_memory_at_every_allocation),
        cmocka_unit_test(a_gpu_is_lost_in_every_phase),
        cmocka_unit_test(a_run_can_be_interrupted),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
