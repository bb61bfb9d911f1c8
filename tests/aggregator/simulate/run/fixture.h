/* Points in a csv file, and a job that learns them. Tests run side by side in one folder: who
 * includes this defines POINTS_FILE before, a name of its own. */
#ifndef FEDGE_TESTS_AGGREGATOR_SIMULATE_RUN_FIXTURE_H
#define FEDGE_TESTS_AGGREGATOR_SIMULATE_RUN_FIXTURE_H

#include <stdio.h>
#include <string.h>

#include "aggregator/rounds/strategy.h"
#include "aggregator/simulate/cohort/client_data.h"
#include "edge/core/os.h"
#include "edge/core/rng.h"
#include "tests/edge/core/cmocka_all.h"

#define POINTS 240u

/* Two values and one of three labels a row; rows [wild] and after have values that no step
 * survives. */
static void write_points(const char *path, uint32_t wild)
{
    FILE *file = fopen(path, "w");
    fedge_rng rng = fedge_rng_stream(5, FEDGE_PURPOSE_TEST, 0, 0, 0);
    assert_non_null(file);
    for (uint32_t i = 0; i < POINTS; i++) {
        const uint32_t label = i % 3;
        const double scale = i >= wild ? 1e37 : 1.0;
        fprintf(file, "%.5g,%.5g,%u\n", scale * ((double)label + 0.5 * fedge_rng_normal(&rng)),
                scale * (1.0 - (double)label + 0.5 * fedge_rng_normal(&rng)), label);
    }
    fclose(file);
}

static int set_up(void **state)
{
    (void)state;
    write_points(POINTS_FILE, POINTS);
    return 0;
}

/* A job's text: softmax regression on the points, which are the test set too. */
#define CLASSIFIER(num_rounds)                                                                     \
    "{\"fedge-job\":1,\"name\":\"points\",\"seed\":4,\"model\":{\"input-shape\":[2],\"layers\":["  \
    "{\"type\":\"Linear\",\"in_features\":2,\"out_features\":3}],"                                 \
    "\"loss\":{\"type\":\"CrossEntropyLoss\"}},"                                                   \
    "\"data\":{\"name\":\"points\",\"shape\":[2],\"dtype\":\"f32\",\"labels\":3},"                 \
    "\"training\":{\"local-epochs\":1,\"batch-size\":8,\"learning-rate\":0.1},"                    \
    "\"rounds\":{\"num-server-rounds\":" #num_rounds                                               \
    ",\"min-train-nodes\":1,\"min-available-nodes\":2},"                                           \
    "\"test-set\":{\"values\":\"" POINTS_FILE "\"}}"

static inline void write_text(const char *path, const char *text)
{
    fedge_error err;
    assert_int_equal(fedge_os_write_file(path, text, strlen(text), 0644, &err), FEDGE_OK);
}

/* [rounds]: the inside of the job's "rounds" object; [more]: further members, each after a comma.
 */
static inline fedge_job *make_job(const char *rounds, const char *more)
{
    char text[2048];
    fedge_job *job = NULL;
    fedge_error err;
    int size =
        snprintf(text, sizeof(text),
                 "{\"fedge-job\":1,\"name\":\"points\",\"seed\":4,\"model\":{\"input-shape\":[2],"
                 "\"layers\":["
                 "{\"type\":\"Linear\",\"in_features\":2,\"out_features\":8},{\"type\":\"ReLU\"},"
                 "{\"type\":\"Linear\",\"in_features\":8,\"out_features\":3}],"
                 "\"loss\":{\"type\":\"CrossEntropyLoss\"}},"
                 "\"data\":{\"name\":\"points\",\"shape\":[2],\"dtype\":\"f32\",\"labels\":3},"
                 "\"training\":{\"local-epochs\":2,\"batch-size\":8,\"learning-rate\":0.1},"
                 "\"rounds\":{%s,\"min-train-nodes\":1,\"min-available-nodes\":2}%s}",
                 rounds, more);
    assert_true(size > 0 && size < (int)sizeof(text));
    if (fedge_strategy_job_parse(text, (size_t)size, "job.json", &job, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    return job;
}

/* The points, of which the share [split] is for validation, divided as [partition] says;
 * [held_out]: the share that each client holds out. */
static inline fedge_client_data *make_split_client_data(const fedge_job *job, const char *partition,
                                                        uint32_t num_clients, double held_out,
                                                        double split)
{
    fedge_error err;
    fedge_site_data data = {.name = "points",
                            .values = POINTS_FILE,
                            .validation_fraction = held_out,
                            .has_partition = true,
                            .partition = {.seed = 2}};
    fedge_client_data *client_data = NULL;
    assert_int_equal(fedge_partition_parse(partition, &data.partition, &err), FEDGE_OK);
    if (fedge_client_data_new(&job->plan, &data, split, num_clients, &client_data, &err) !=
        FEDGE_OK)
        fail_msg("%s", err.message);
    return client_data;
}

static inline fedge_client_data *make_client_data(const fedge_job *job, const char *partition,
                                                  uint32_t num_clients, double held_out)
{
    return make_split_client_data(job, partition, num_clients, held_out, 0.0);
}

#endif
