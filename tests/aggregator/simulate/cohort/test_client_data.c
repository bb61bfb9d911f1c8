#define POINTS_FILE "client-data-points.csv"
#include "tests/aggregator/simulate/run/fixture.h"

#include <stdlib.h>

#define ROUNDS "\"num-server-rounds\":1"

/* Every example has one owner, and each client's are those that a device would load. */
static void parts_are_those_of_devices(void **state)
{
    (void)state;
    fedge_error err;
    fedge_job *job = make_job(ROUNDS, "");
    fedge_client_data *client_data = make_client_data(job, "dirichlet:0.7", 6, 0.25);
    fedge_partition_spec spec = {.seed = 2};
    assert_int_equal(fedge_partition_parse("dirichlet:0.7", &spec, &err), FEDGE_OK);
    uint32_t seen = 0, max_examples = 0;
    for (uint32_t c = 0; c < 6; c++) {
        fedge_dataset *own = NULL;
        assert_int_equal(
            fedge_dataset_load_part(&job->plan.data, POINTS_FILE, "", &spec, c, 6, &own, &err),
            FEDGE_OK);
        fedge_view train = {own, NULL, fedge_dataset_size(own)}, held;
        assert_int_equal(fedge_view_split(&train, 0.25, job->plan.seed, c, &held, &err), FEDGE_OK);
        const fedge_view views[2] = {train, held},
                         ours[2] = {fedge_client_data_train(client_data, c),
                                    fedge_client_data_held_out(client_data, c)};
        for (int v = 0; v < 2; v++) {
            assert_int_equal(ours[v].count, views[v].count);
            max_examples = ours[v].count > max_examples ? ours[v].count : max_examples;
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
    assert_int_equal(client_data->max_examples, max_examples);
    fedge_client_data_free(client_data);
    fedge_job_free(job);
}

/* The examples for validation are nobody's, and whoever validates has them all. */
static void validation_examples_are_nobodys(void **state)
{
    (void)state;
    fedge_job *job = make_job(ROUNDS, "");
    fedge_client_data *client_data = make_split_client_data(job, "iid", 6, 0.0, 0.2);
    const fedge_view validation = fedge_client_data_validation(client_data);
    uint8_t seen[POINTS] = {0};
    assert_int_equal(validation.count, POINTS / 5);
    for (uint32_t i = 0; i < validation.count; i++) {
        assert_int_equal(client_data->owner[validation.indices[i]], FEDGE_PARTITION_VALIDATION);
        seen[validation.indices[i]]++;
    }
    for (uint32_t c = 0; c < 6; c++) {
        const fedge_view own = fedge_client_data_train(client_data, c);
        for (uint32_t i = 0; i < own.count; i++)
            seen[own.indices[i]]++;
    }
    for (uint32_t i = 0; i < POINTS; i++)
        assert_int_equal(seen[i], 1);
    fedge_client_data_free(client_data);
    fedge_job_free(job);
}

static void impossible_ones_are_refused(void **state)
{
    (void)state;
    fedge_error err;
    fedge_job *job = make_job(ROUNDS, "");
    fedge_client_data *client_data = NULL;
    fedge_site_data data = {.values = POINTS_FILE, .partition = {.scheme = FEDGE_PARTITION_IID}};
    assert_int_equal(fedge_client_data_new(&job->plan, &data, 0.0, 0, &client_data, &err),
                     FEDGE_OUT_OF_RANGE);
    assert_int_equal(fedge_client_data_new(&job->plan, &data, 0.0, POINTS + 1, &client_data, &err),
                     FEDGE_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "240"));
    data.validation_fraction = 1.0;
    assert_int_equal(fedge_client_data_new(&job->plan, &data, 0.0, 4, &client_data, &err),
                     FEDGE_INVALID_ARGUMENT);
    assert_null(client_data);
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
