/* What the client makes, with memory that runs out at each allocation in turn. */
#include "tests/edge/core/no_memory.h"

#include <stdio.h>
#include <string.h>

#include "client/builtin_trainer.h"
#include "client/client_state.h"
#include "client/session.h"
#include "client/store.h"
#include "edge/core/os.h"
#include "edge/plan/plan.h"
#include "edge/plan/update.h"
#include "edge/site/site.h"
#include "edge/wire/deflate.h"
#include "secure/crypto/sha256.h"
#include "secure/identity/identity.h"

#define DIR "no-memory-test"
#define RUN "00112233445566778899aabbccddeeff"

static const char JOB[] =
    "{\"fedge-job\": 1, \"name\": \"s\", \"model\": {\"input-shape\": [2], \"layers\": ["
    "{\"type\": \"Linear\", \"in_features\": 2, \"out_features\": 2}]},"
    "\"data\": {\"name\": \"d\", \"shape\": [2], \"dtype\": \"f32\", \"labels\": 2},"
    "\"training\": {\"learning-rate\": 0.5}, \"rounds\": {\"num-server-rounds\": 3},"
    "\"strategy\": {\"type\": \"SCAFFOLD\"}}";
static const char SITE[] = "{\"data\": {\"d\": {\"values\": \"values.csv\"}}}";

/* What the makers below work on. */
static struct {
    fedge_store *store;
    fedge_job *job; /* SCAFFOLD: clients keep something */
    fedge_hooks_state hooks;
    fedge_site *site;
    char *plan;
    size_t plan_size;
    char hash[FEDGE_HASH_TEXT];
} rig;

static int set_up(void **state)
{
    (void)state;
    fedge_error err;
    fedge_store_state known = {.incarnation = 2};
    int failed = fedge_os_remove_tree(DIR, NULL) ||
                 fedge_job_parse(JOB, sizeof(JOB) - 1, "job.json", &rig.job, &err) ||
                 fedge_hooks_state_init(&rig.hooks, &rig.job->plan, &err) ||
                 fedge_plan_write(&rig.job->plan, &rig.plan, &rig.plan_size, &err) ||
                 fedge_site_parse(SITE, sizeof(SITE) - 1, "site.json", &rig.site, &err) ||
                 fedge_store_open(DIR, 0, &rig.store, &err) ||
                 fedge_store_write_state(rig.store, &known, &err) ||
                 fedge_store_put(rig.store, RUN, "residual", "abcdefgh", 8, &err);
    fedge_sha256_text("blob", 4, rig.hash);
    failed = failed ||
             fedge_store_blob_append(rig.store, rig.hash, 0, (const uint8_t *)"blob", 4, 4, &err);
    return failed;
}

static int tear_down(void **state)
{
    (void)state;
    fedge_store_close(rig.store);
    fedge_site_free(rig.site);
    free(rig.plan);
    fedge_hooks_state_fini(&rig.hooks);
    fedge_job_free(rig.job);
    return fedge_os_remove_tree(DIR, NULL) != FEDGE_OK;
}

/* A maker of [type] by [call], which fills [out], and what frees it, NULL too. */
#define MAKER(name, type, call, free_function)                                                     \
    static fedge_status make_##name(void **made, fedge_error *err)                                 \
    {                                                                                              \
        type *out = *made;                                                                         \
        const fedge_status status = call;                                                          \
        *made = out;                                                                               \
        return status;                                                                             \
    }                                                                                              \
    static void free_##name(void *made)                                                            \
    {                                                                                              \
        free_function(made);                                                                       \
    }                                                                                              \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        each_allocation_may_fail(make_##name, free_##name);                                        \
        free_##name(NULL);                                                                         \
    }

static fedge_status new_trainer(fedge_builtin **trainer, fedge_error *err)
{
    static fedge_client_callbacks callbacks;
    const fedge_builtin_config config = {.site = rig.site};
    return fedge_builtin_new(&config, trainer, &callbacks, err);
}

static fedge_status new_session(fedge_session **session, fedge_error *err)
{
    static const fedge_hello hello;
    const fedge_session_config config = {.hello = &hello};
    return fedge_session_new(&config, session, err);
}

static fedge_status encode_update(uint8_t **bytes, fedge_error *err)
{
    static const int8_t bounds[FEDGE_MAX_TENSORS];
    static const float changes[16];
    const fedge_update update = {.plan = &rig.job->plan, .bounds_log2 = bounds, .changes = changes};
    fedge_upload upload = {.task_id = 1};
    return fedge_client_state_encode(&rig.hooks, &update, &upload, bytes, err);
}

static size_t value_size;

MAKER(a_job, fedge_job, fedge_job_parse(JOB, sizeof(JOB) - 1, "job.json", &out, err),
      fedge_job_free)
MAKER(a_plan, fedge_plan, fedge_plan_parse(rig.plan, rig.plan_size, &out, err), fedge_plan_free)
MAKER(a_site, fedge_site, fedge_site_parse(SITE, sizeof(SITE) - 1, "site.json", &out, err),
      fedge_site_free)
MAKER(a_deflater, fedge_deflater, fedge_deflater_new(&out, err), fedge_deflater_free)
MAKER(a_store, fedge_store, fedge_store_open(DIR "/other", 0, &out, err), fedge_store_close)
MAKER(a_store_in_memory, fedge_store, fedge_store_open(NULL, 0, &out, err), fedge_store_close)
MAKER(a_blob, uint8_t, fedge_store_blob_load(rig.store, rig.hash, 4, &out, err), free)
MAKER(a_value, uint8_t, fedge_store_get(rig.store, RUN, "residual", &out, &value_size, err), free)
MAKER(an_update, uint8_t, encode_update(&out, err), free)
MAKER(a_session, fedge_session, new_session(&out, err), fedge_session_free)
MAKER(a_trainer, fedge_builtin, new_trainer(&out, err), fedge_builtin_free)

/* One that has a state already, which opening reads. */
static void a_store_with_a_state(void **state)
{
    uint8_t *text;
    size_t size;
    assert_int_equal(fedge_os_make_dirs(DIR "/other", NULL), FEDGE_OK);
    assert_int_equal(fedge_os_read_file(DIR "/state.json", 1000, &text, &size, NULL), FEDGE_OK);
    assert_int_equal(fedge_os_write_file(DIR "/other/state.json", text, size, 0600, NULL),
                     FEDGE_OK);
    free(text);
    a_store(state);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_job),
        TEST(a_plan),
        TEST(a_site),
        TEST(a_deflater),
        TEST(a_store),
        TEST(a_store_with_a_state),
        TEST(a_store_in_memory),
        TEST(a_blob),
        TEST(a_value),
        TEST(an_update),
        TEST(a_session),
        TEST(a_trainer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
