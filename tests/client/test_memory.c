/* What --plan prints and max-ram is compared with is what the client takes: every block that the
 * worker, the built-in trainer and the codec allocate is counted, at its highest, over a plan and
 * two rounds. Records of fixed size are not in the figure, so pairs of plans are compared, of one
 * kind and different sizes: their peaks differ by exactly what their totals do. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/builtin_trainer.h"
#include "client/client_state.h"
#include "client/worker.h"
#include "edge/core/os.h"
#include "edge/data/formats/safetensors.h"
#include "edge/site/client_memory.h"
#include "secure/crypto/sha256.h"
#include "secure/identity/identity.h"

#define DIR "client-memory-test"
#define RUN "00112233445566778899aabbccddeeff"
#define FEATURES 24
#define EXAMPLES 40
#define FIXED                                                                                      \
    ((size_t)2560 * 1024) /* of the plan's record with FEDGE_MAX_TENSORS, a file's header and the  \
                             worker's own */

/* ---- counting ---- */

#define MAX_BLOCKS 4096

static struct {
    pthread_mutex_t mutex;
    struct {
        void *at;
        size_t size;
    } blocks[MAX_BLOCKS];
    size_t num_blocks, live, peak;
} counter = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void forget(void *at)
{
    pthread_mutex_lock(&counter.mutex);
    for (size_t i = 0; at && i < counter.num_blocks; i++) {
        if (counter.blocks[i].at == at) {
            counter.live -= counter.blocks[i].size;
            counter.blocks[i] = counter.blocks[--counter.num_blocks];
            break;
        }
    }
    pthread_mutex_unlock(&counter.mutex);
}

static void *note(void *at, size_t size)
{
    pthread_mutex_lock(&counter.mutex);
    if (at && counter.num_blocks < MAX_BLOCKS) {
        counter.blocks[counter.num_blocks].at = at;
        counter.blocks[counter.num_blocks++].size = size;
        counter.live += size;
        counter.peak = counter.live > counter.peak ? counter.live : counter.peak;
    }
    pthread_mutex_unlock(&counter.mutex);
    return at;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *at, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void __real_free(void *at);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *at, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
void __wrap_free(void *at);
bool __wrap_fedge_client_cancelled(fedge_client *client);

void *__wrap_malloc(size_t size)
{
    return note(__real_malloc(size), size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return note(__real_calloc(count, size), count * size);
}

void *__wrap_realloc(void *at, size_t size)
{
    forget(at);
    return note(__real_realloc(at, size), size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return note(__real_aligned_alloc(alignment, size), size);
}

void __wrap_free(void *at)
{
    forget(at);
    __real_free(at);
}

/* There is no client around the worker. */
bool __wrap_fedge_client_cancelled(fedge_client *client)
{
    (void)client;
    return false;
}

/* ---- a worker's life ---- */

typedef struct rig {
    fedge_job *job;
    fedge_site *site;
    fedge_store *store;
    fedge_builtin *trainer;
    fedge_worker *worker;
    sem_t done;
    fedge_worker_result result;
} rig;

static void on_done(void *user)
{
    (void)sem_post(&((rig *)user)->done);
}

static void do_assignment(rig *r, const fedge_assignment *assignment)
{
    fedge_worker_start(r->worker, assignment);
    while (!fedge_worker_take(r->worker, &r->result))
        (void)sem_wait(&r->done);
    if (r->result.status != FEDGE_OK)
        fail_msg("%s", r->result.error.message);
}

/* The bytes as a blob of the store; they are freed. */
static void put_blob(rig *r, uint8_t *bytes, size_t size, char hash[FEDGE_HASH_TEXT])
{
    fedge_sha256_text(bytes, size, hash);
    assert_int_equal(fedge_store_blob_append(r->store, hash, 0, bytes, size, size, NULL), FEDGE_OK);
    free(bytes);
}

static void put_plan(rig *r, fedge_assignment *given)
{
    char *text = NULL;
    size_t size = 0;
    assert_int_equal(fedge_plan_write(&r->job->plan, &text, &size, NULL), FEDGE_OK);
    given->kind = FEDGE_ASSIGNMENT_PLAN;
    given->plan_size = size;
    memcpy(given->run_id, RUN, sizeof(RUN));
    put_blob(r, (uint8_t *)text, size, given->plan_hash);
}

/* A model of the initial values, and with SCAFFOLD a control file of them behind it. */
static void put_task(rig *r, fedge_assignment *given)
{
    const fedge_plan *plan = &r->job->plan;
    const fedge_schema *control = &plan->sent.sections[0].schema;
    size_t size = 0, control_size = 0;
    float *values = calloc(plan->schema.num_elements, sizeof(*values));
    fedge_model_init_values(&plan->model, 1, values);
    assert_int_equal(fedge_safetensors_size(&plan->schema, &size, NULL), FEDGE_OK);
    if (fedge_plan_broadcasts(plan))
        assert_int_equal(fedge_safetensors_size(control, &control_size, NULL), FEDGE_OK);
    uint8_t *file = malloc(size + control_size);
    assert_int_equal(fedge_safetensors_write(&plan->schema, values, file, size, NULL), FEDGE_OK);
    if (fedge_plan_broadcasts(plan)) {
        assert_int_equal(fedge_safetensors_write(control, values, file + size, control_size, NULL),
                         FEDGE_OK);
    }
    free(values);
    given->kind = FEDGE_ASSIGNMENT_TASK;
    given->task = (fedge_task){.kind = FEDGE_TASK_TRAIN,
                               .model_size = size + control_size,
                               .control_size = control_size,
                               .learning_rate = 0.01};
    put_blob(r, file, size + control_size, given->task.model);
}

/* Highest sum of what was allocated from the plan to the end of the second round. */
static size_t measure(rig *r)
{
    static fedge_assignment plan, task;
    const size_t before = counter.live;
    put_plan(r, &plan);
    put_task(r, &task);
    assert_int_equal(counter.live, before);
    counter.peak = before;
    do_assignment(r, &plan);
    for (uint64_t round = 1; round <= 2; round++) {
        memcpy(task.run_id, RUN, sizeof(RUN));
        task.task.round = (uint32_t)round;
        task.task.task_id = round;
        task.task.has_last_accepted = true;
        task.task.last_accepted = round - 1;
        do_assignment(r, &task);
    }
    return counter.peak - before;
}

/* A file of examples, and a client file that names it. */
static void write_data(rig *r)
{
    static const char SITE[] = "{\"data\": {\"d\": {\"values\": \"" DIR "/values.csv\"}}}";
    static char text[EXAMPLES * (FEATURES + 1) * 4];
    size_t at = 0;
    for (int i = 0; i < EXAMPLES; i++) {
        for (int k = 0; k < FEATURES; k++)
            at += (size_t)snprintf(text + at, sizeof(text) - at, "%d,", (i * 7 + k * 3) % 10);
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%d\n", i % 2);
    }
    assert_int_equal(fedge_os_make_dirs(DIR, NULL), FEDGE_OK);
    assert_int_equal(fedge_os_write_file(DIR "/values.csv", text, at, 0600, NULL), FEDGE_OK);
    assert_int_equal(fedge_site_parse(SITE, sizeof(SITE) - 1, "site.json", &r->site, NULL),
                     FEDGE_OK);
}

/* A plan's peak, and its total by the function. [with]: keys of the job after its model. */
static size_t peak_of(unsigned hidden, unsigned batch, const char *with, uint64_t *total)
{
    static rig r;
    static char text[2048];
    fedge_client_memory memory;
    fedge_error err = {0};
    r = (rig){0};
    (void)sem_init(&r.done, 0, 0);
    assert_int_equal(fedge_os_remove_tree(DIR, NULL), FEDGE_OK);
    write_data(&r);
    const int size = snprintf(
        text, sizeof(text),
        "{\"fedge-job\": 1, \"name\": \"m\", \"model\": {\"input-shape\": [%d], \"layers\": ["
        "{\"type\": \"Linear\", \"in_features\": %d, \"out_features\": %u}, {\"type\": \"Tanh\"},"
        "{\"type\": \"Linear\", \"in_features\": %u, \"out_features\": 2}]},"
        "\"data\": {\"name\": \"d\", \"shape\": [%d], \"dtype\": \"f32\", \"labels\": 2},"
        "\"rounds\": {\"num-server-rounds\": 3}, \"training\": {\"learning-rate\": 0.5, "
        "\"batch-size\": %u%s}}",
        FEATURES, FEATURES, hidden, hidden, FEATURES, batch, with);
    if (fedge_job_parse(text, (size_t)size, "job.json", &r.job, &err) != FEDGE_OK ||
        fedge_client_memory_of(&r.job->plan, &memory, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    fedge_client_callbacks callbacks;
    const fedge_builtin_config trains = {.site = r.site};
    assert_int_equal(fedge_store_open(DIR "/state", 0, &r.store, &err), FEDGE_OK);
    assert_int_equal(fedge_builtin_new(&trains, &r.trainer, &callbacks, &err), FEDGE_OK);
    const fedge_worker_config works = {
        .callbacks = callbacks, .site = r.site, .store = r.store, .done = on_done, .user = &r};
    assert_int_equal(fedge_worker_new(&works, &r.worker, &err), FEDGE_OK);
    const size_t peak = measure(&r);
    fedge_worker_free(r.worker);
    fedge_builtin_free(r.trainer);
    fedge_store_close(r.store);
    fedge_site_free(r.site);
    fedge_job_free(r.job);
    (void)sem_destroy(&r.done);
    assert_int_equal(fedge_os_remove_tree(DIR, NULL), FEDGE_OK);
    uint64_t sum = 0;
    for (int i = 0; i < FEDGE_MEMORY_PARTS; i++)
        sum += memory.rows[i].bytes;
    assert_int_equal(sum, memory.total);
    *total = memory.total;
    return peak;
}

static void the_total_is_what_is_taken(void **state)
{
    (void)state;
    static const char *const KINDS[] = {
        /* the largest transfer is the update */
        "",
        ", \"optimizer\": {\"type\": \"Adam\"}, \"clip-norm\": 1.0, \"evaluation\": \"int8\"",
        /* an update and what deflate makes of it; without deflate the update alone */
        ", \"proximal-mu\": 0.1}, \"update\": {\"codec\": \"none\"",
        ", \"optimizer\": {\"type\": \"SGD\", \"momentum\": 0.9}}, \"update\": {\"codec\": "
        "\"none\", \"deflate\": false",
        /* SCAFFOLD: what is told with the client's own variate; an update being taken apart again
         */
        "}, \"strategy\": {\"type\": \"SCAFFOLD\", \"num-clients\": 2}, \"update\": {\"codec\": "
        "\"int8\", \"deflate\": false",
        "}, \"strategy\": {\"type\": \"SCAFFOLD\", \"num-clients\": 2}, \"update\": {\"codec\": "
        "\"none\", \"deflate\": false",
    };
    for (size_t i = 0; i < sizeof(KINDS) / sizeof(KINDS[0]); i++) {
        uint64_t small, large;
        const size_t little = peak_of(10000, 8, KINDS[i], &small);
        const size_t much = peak_of(23000, 32, KINDS[i], &large);
        print_message("%zu: %zu of %llu, %zu of %llu\n", i, little, (unsigned long long)small, much,
                      (unsigned long long)large);
        assert_in_range(little, small, small + FIXED);
        /* Texts have a few more digits. */
        assert_in_range(much - little, large - small, large - small + 16);
    }
}

/* A failed test jumps past what removes DIR: it lies in a folder of its own, wherever the test is
 * started. */
static char folder[] = "/tmp/client-memory.XXXXXX";

static int enter_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? chdir(folder) : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return chdir("/") == 0 && fedge_os_remove_tree(folder, NULL) == FEDGE_OK ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_total_is_what_is_taken)};
    return cmocka_run_group_tests(tests, enter_folder, remove_folder);
}
