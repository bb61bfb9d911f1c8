#include "aggregator/simulate/sweep/sweep.h"

#include <stdatomic.h>
#include <stdlib.h>

#define POINTS_FILE "sweep-points.csv"
#include "aggregator/simulate/sweep/sweep_internal.h"
#include "edge/core/os.h"
#include "tests/aggregator/command_line.h"
#include "tests/aggregator/simulate/run/fixture.h"

#define ALONE "sweep-alone"
#define BESIDE "sweep-beside"
#define JOB CLASSIFIER(30)
#define OPTIONS "--job job.json --data sweep-client.json --partition iid --quiet "
/* Rounds of 1 and 3 clients, of 1 of 10 and of 4 of 40. */
#define GRID OPTIONS "--sweep fraction=0.1,0.3 clients=10,40 seeds=3 "

static int set_up_files(void **state)
{
    write_text("sweep-client.json", "{\"data\":{\"points\":{\"values\":\"" POINTS_FILE "\"}}}");
    return set_up(state);
}

/* Ctrl-C when it was asked for so often; 0: never. */
typedef struct interruption {
    atomic_uint asked;
    uint32_t at;
} interruption;

static bool is_interrupted(void *user)
{
    interruption *self = user;
    return atomic_fetch_add(&self->asked, 1) + 1 >= self->at && self->at > 0;
}

static fedge_status sweep_it(const char *words, uint32_t interrupt_at, uint32_t *num_done,
                             fedge_error *err)
{
    int argc = 0;
    char **argv = command_line("fedge-simulate", words, &argc);
    fedge_simulate_options options;
    fedge_sweep *sweep = NULL;
    interruption user = {.at = interrupt_at};
    atomic_init(&user.asked, 0);
    assert_int_equal(fedge_simulate_options_parse(argc, argv, &options, err), FEDGE_OK);
    if (fedge_sweep_new(&options, NULL, JOB, strlen(JOB), &sweep, err) != FEDGE_OK)
        fail_msg("%s", err->message);
    const fedge_status status = fedge_sweep_run(sweep, is_interrupted, &user, err);
    *num_done = fedge_sweep_num_done(sweep);
    assert_int_equal(fedge_sweep_num_unable(sweep), 0);
    fedge_sweep_free(sweep);
    return status;
}

/* Of summary.json in the folder [name] of [within]; "": there is none. */
static void read_summary(const char *within, const char *name, char **text)
{
    char path[FEDGE_OS_MAX_PATH];
    size_t size = 0;
    (void)snprintf(path, sizeof(path), "%s/%s/summary.json", within, name);
    if (fedge_os_read_file(path, 1 << 20, (uint8_t **)text, &size, NULL) != FEDGE_OK)
        *text = calloc(1, 1);
}

static fedge_status check_model(void *user, const char *name, fedge_error *err)
{
    char *alone = NULL, *beside = NULL;
    uint32_t *count = user;
    (void)err;
    read_summary(ALONE, name, &alone);
    read_summary(BESIDE, name, &beside);
    const char *model = strstr(alone, "\"model_sha256\":\""),
               *other = strstr(beside, "\"model_sha256\":\"");
    assert_true(model && other && strncmp(model, other, 80) == 0);
    assert_non_null(strstr(beside, "\"ending\":\"complete\""));
    free(alone);
    free(beside);
    (*count)++;
    return FEDGE_OK;
}

static void check_models(void)
{
    uint32_t count = 0;
    fedge_error err;
    assert_int_equal(fedge_os_list_dir(ALONE, check_model, &count, &err), FEDGE_OK);
    assert_int_equal(count, 12);
}

static fedge_status count_interrupted(void *user, const char *name, fedge_error *err)
{
    char *text = NULL;
    (void)err;
    read_summary(BESIDE, name, &text);
    *(uint32_t *)user += strstr(text, "\"ending\":\"interrupted\"") != NULL;
    free(text);
    return FEDGE_OK;
}

/* Beside others or alone, interrupted and gone on with or not: the same models. */
static void runs_beside_others_are_the_same(void **state)
{
    (void)state;
    uint32_t done = 0;
    fedge_error err;
    assert_int_equal(fedge_os_remove_tree(ALONE, NULL), FEDGE_OK);
    assert_int_equal(fedge_os_remove_tree(BESIDE, NULL), FEDGE_OK);
    assert_int_equal(sweep_it(GRID "--threads 1 --out " ALONE, 0, &done, &err), FEDGE_OK);
    assert_int_equal(done, 12);
    assert_int_equal(sweep_it(GRID "--threads 6 --out " BESIDE, 0, &done, &err), FEDGE_OK);
    assert_int_equal(done, 12);
    check_models();
    /* Not asked any more once it has said so, but by all that are under way. */
    assert_int_equal(fedge_os_remove_tree(BESIDE, NULL), FEDGE_OK);
    assert_int_equal(sweep_it(GRID "--threads 6 --out " BESIDE, 40, &done, &err), FEDGE_CANCELLED);
    assert_true(done < 12);
    assert_non_null(strstr(err.message, "interrupted "));
    uint32_t interrupted = 0;
    assert_int_equal(fedge_os_list_dir(BESIDE, count_interrupted, &interrupted, &err), FEDGE_OK);
    assert_true(interrupted > 0 && interrupted <= 6);
    assert_int_equal(sweep_it(GRID "--threads 6 --resume --out " BESIDE, 0, &done, &err), FEDGE_OK);
    check_models();
    assert_int_equal(fedge_os_remove_tree(ALONE, NULL), FEDGE_OK);
    assert_int_equal(fedge_os_remove_tree(BESIDE, NULL), FEDGE_OK);
}

/* Threads that would have no client are another run's. */
static void a_run_gets_its_share_of_threads(void **state)
{
    (void)state;
    static const struct {
        uint32_t threads, cohort, most, share;
    } cases[] = {{2, 1, 2, 1},  {2, 1, 1, 2},  {2, 2, 9, 2},   {2, 100, 9, 2}, {1, 1, 9, 1},
                 {8, 1, 90, 1}, {8, 3, 90, 4}, {16, 5, 90, 5}, {16, 1, 5, 3},  {64, 0, 90, 64}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(fedge_sweep_threads(cases[i].threads, cases[i].cohort, cases[i].most),
                         cases[i].share);
    }
}

static void runs_are_shared_where_ranks_would_have_none(void **state)
{
    (void)state;
    static const struct {
        uint32_t runs, ranks, shared;
    } cases[] = {{4, 1, 0}, {4, 2, 0}, {4, 4, 0}, {1, 4, 1}, {3, 4, 3},  {4, 3, 1},
                 {5, 4, 1}, {6, 4, 2}, {7, 4, 0}, {9, 8, 1}, {13, 8, 0}, {12, 8, 4}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(fedge_sweep_num_shared(cases[i].runs, cases[i].ranks), cases[i].shared);
}

static void no_more_begin_than_memory_holds(void **state)
{
    (void)state;
    assert_true(fedge_sweep_has_memory(0, 50, 0, 100));
    assert_true(fedge_sweep_has_memory(0, 50, 1000, 100)); /* it will say so itself */
    assert_false(fedge_sweep_has_memory(1, 50, 0, 100));   /* what it needs is not known yet */
    assert_true(fedge_sweep_has_memory(1, 50, 25, 100));
    assert_false(fedge_sweep_has_memory(2, 50, 25, 100));
    assert_false(fedge_sweep_has_memory(1, 100, 25, 100));
    assert_true(fedge_sweep_has_memory(7, 50, 25, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_beside_others_are_the_same),
        cmocka_unit_test(a_run_gets_its_share_of_threads),
        cmocka_unit_test(runs_are_shared_where_ranks_would_have_none),
        cmocka_unit_test(no_more_begin_than_memory_holds),
    };
    return cmocka_run_group_tests(tests, set_up_files, NULL);
}
