#define POINTS_FILE "population-points.csv"
#include "tests/aggregator/simulate/fixture.h"

#include <stdlib.h>

#define ROUNDS "\"num-server-rounds\":1"

/* Every example has one owner, and each client's are those that a device would load. */
static void parts_are_those_of_devices(void **state)
{
    (void)state;
    fedge_error err;
    fedge_job *job = make_job(ROUNDS, "");
    fedge_population *population = make_population(job, "dirichlet:0.7", 6, 0.25);
    fedge_partition_spec spec = {.seed = 2};
    assert_int_equal(fedge_partition_parse("dirichlet:0.7", &spec, &err), FEDGE_OK);
    uint32_t seen = 0, most = 0;
    for (uint32_t c = 0; c < 6; c++) {
        fedge_dataset *own = NULL;
        assert_int_equal(
            fedge_dataset_load_part(&job->plan.data, POINTS_FILE, "", &spec, c, 6, &own, &err),
            FEDGE_OK);
        fedge_view train = {own, NULL, fedge_dataset_size(own)}, held;
        assert_int_equal(fedge_view_split(&train, 0.25, job->plan.seed, c, &held, &err), FEDGE_OK);
        const fedge_view views[2] = {train, held},
                         ours[2] = {fedge_population_train(population, c),
                                    fedge_population_held_out(population, c)};
        for (int v = 0; v < 2; v++) {
            assert_int_equal(ours[v].count, views[v].count);
            most = ours[v].count > most ? ours[v].count : most;
            seen += ours[v].count;
            const fedge_examples a = fedge_view_examples(&ours[v]),
                                 b = fedge_view_examples(&views[v]);
            for (uint32_t i = 0; i < ours[v].count; i++) {
                float x[2], y[2];
                int32_t label, other;
                assert_int_equal(a.read(a.user, &i, 1, 0, x, &label, &err), FEDGE_OK);
                assert_int_equal(b.read(b.user, &i, 1, 0, y, &other, &err), FEDGE_OK);
                assert_memory_equal(x, y, sizeof(x));
                assert_int_equal(label, other);
            }
        }
        fedge_view_fini(&train);
        fedge_view_fini(&held);
        fedge_dataset_free(own);
    }
    assert_int_equal(seen, POINTS);
    assert_int_equal(population->most, most);
    fedge_population_free(population);
    fedge_job_free(job);
}

/* The examples for validation are nobody's, and whoever validates has them all. */
static void validation_examples_are_nobodys(void **state)
{
    (void)state;
    fedge_job *job = make_job(ROUNDS, "");
    fedge_population *population = make_split_population(job, "iid", 6, 0.0, 0.2);
    const fedge_view validation = fedge_population_validation(population);
    uint8_t seen[POINTS] = {0};
    assert_int_equal(validation.count, POINTS / 5);
    for (uint32_t i = 0; i < validation.count; i++) {
        assert_int_equal(population->owner[validation.indices[i]], FEDGE_PARTITION_VALIDATION);
        seen[validation.indices[i]]++;
    }
    for (uint32_t c = 0; c < 6; c++) {
        const fedge_view own = fedge_population_train(population, c);
        for (uint32_t i = 0; i < own.count; i++) {
            seen[own.indices[i]]++;
        }
    }
    for (uint32_t i = 0; i < POINTS; i++) {
        assert_int_equal(seen[i], 1);
    }
    fedge_population_free(population);
    fedge_job_free(job);
}

static void impossible_ones_are_refused(void **state)
{
    (void)state;
    fedge_error err;
    fedge_job *job = make_job(ROUNDS, "");
    fedge_population *population = NULL;
    fedge_site_data data = {.values = POINTS_FILE, .partition = {.scheme = FEDGE_PARTITION_IID}};
    assert_int_equal(fedge_population_new(&job->plan, &data, 0.0, 0, &population, &err),
                     FEDGE_OUT_OF_RANGE);
    assert_int_equal(fedge_population_new(&job->plan, &data, 0.0, POINTS + 1, &population, &err),
                     FEDGE_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "240"));
    data.validation_fraction = 1.0;
    assert_int_equal(fedge_population_new(&job->plan, &data, 0.0, 4, &population, &err),
                     FEDGE_INVALID_ARGUMENT);
    assert_null(population);
    fedge_job_free(job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_those_of_devices),
        cmocka_unit_test(validation_examples_are_nobodys),
        cmocka_unit_test(impossible_ones_are_refused),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
