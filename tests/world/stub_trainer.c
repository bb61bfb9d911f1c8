#include "tests/world/stub_trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/rng.h"
#include "edge/plan/client_hooks.h"
#include "edge/plan/personal.h"
#include "edge/plan/plan.h"
#include "edge/site/site.h"
#include "tests/world/scheduler.h"

enum {
    STREAM = 0x5700, /* streams of tasks; the client is added */
    HABITS = 0x5600, /* streams of clients */
    MS = 1000000,    /* nanoseconds */
    VALUE_SIZE = 40
};
static const char KEY[] = "stub-value";

/* ---- draws ----------------------------------------------------------------------------------- */

static bool chance(fedge_rng *rng, uint32_t in_1000)
{
    return fedge_rng_below(rng, 1000) < in_1000;
}

static uint32_t between(fedge_rng *rng, uint32_t least, uint32_t most)
{
    return least + fedge_rng_below(rng, most - least + 1);
}

void stub_trainer_init(stub_trainer *trainer, uint64_t seed, uint32_t client)
{
    fedge_rng world = fedge_rng_stream(seed, FEDGE_PURPOSE_TEST, 0, 0, HABITS - 1);
    fedge_rng own = fedge_rng_stream(seed, FEDGE_PURPOSE_TEST, 0, 0, (uint16_t)(HABITS + client));
    *trainer = (stub_trainer){.seed = seed, .client = client};
    trainer->num_examples = between(&own, 1, 50);
    trainer->chances = (stub_trainer_chances){.clamps = 50, .zeros = 150, .ignores_cancel = 200};
    if (chance(&world, 300))
        trainer->chances.stores = 500;
    if (chance(&world, 500))
        return;
    trainer->chances.fails = between(&own, 0, 100);
    trainer->chances.is_late = between(&own, 0, 60);
    trainer->chances.is_not_finite = between(&own, 0, 20);
}

void stub_trainer_calm(stub_trainer *trainer)
{
    trainer->chances.fails = trainer->chances.is_late = trainer->chances.is_not_finite = 0;
}

static fedge_rng stream_of(const stub_trainer *trainer, const fedge_client_task *task)
{
    return fedge_rng_stream(trainer->seed, FEDGE_PURPOSE_TEST, (uint32_t)(task->task_id >> 32),
                            (uint32_t)task->task_id, (uint16_t)(STREAM + trainer->client));
}

/* ---- time ------------------------------------------------------------------------------------ */

static uint64_t draw_ns(const stub_trainer *trainer, const fedge_client_task *task, fedge_rng *rng)
{
    const uint32_t kind = fedge_rng_below(rng, 100);
    const uint32_t most_ms = kind < 65 ? 200 : kind < 93 ? 1000 : 3000;
    const uint32_t ms = between(rng, 10, most_ms);
    const bool is_late = chance(rng, trainer->chances.is_late);
    /* A hostile server may set deadlines of years. */
    const uint64_t round_ms = task->deadline_ms < 60000 ? task->deadline_ms : 60000;
    return (is_late ? round_ms + ms : ms) * (uint64_t)MS;
}

static fedge_status fail(fedge_rng *rng, fedge_error *err)
{
    static const fedge_status STATUSES[] = {
        FEDGE_UNSUPPORTED, FEDGE_NOT_FOUND, FEDGE_NO_SPACE,   FEDGE_NO_MEMORY, FEDGE_IO,
        FEDGE_CORRUPT,     FEDGE_INTERNAL,  FEDGE_NOT_FINITE, FEDGE_DENIED,    FEDGE_TIMEOUT};
    const uint32_t num = sizeof(STATUSES) / sizeof(STATUSES[0]);
    return fedge_fail(err, STATUSES[fedge_rng_below(rng, num)], "the stub trainer fails here");
}

/* Lets the task's time pass. FEDGE_CANCELLED: it was cancelled meanwhile; another error: it fails.
 */
static fedge_status work(stub_trainer *trainer, fedge_client *client, const fedge_client_task *task,
                         fedge_rng *rng, fedge_error *err)
{
    const uint64_t end_ns = world_now_ns() + draw_ns(trainer, task, rng);
    const bool ignores = chance(rng, trainer->chances.ignores_cancel);
    while (world_now_ns() < end_ns && (ignores || !fedge_client_cancelled(client)))
        (void)world_wait(trainer, end_ns - world_now_ns());
    if (!ignores && fedge_client_cancelled(client)) {
        trainer->num_cancelled++;
        return fedge_fail(err, FEDGE_CANCELLED, "cancelled");
    }
    if (!chance(rng, trainer->chances.fails))
        return FEDGE_OK;
    trainer->num_failed++;
    return fail(rng, err);
}

static void on_cancel(void *user, fedge_client *client)
{
    (void)client;
    world_wake_all(user);
}

/* ---- the stored value ------------------------------------------------------------------------ */

static void make_value(const stub_trainer *trainer, uint32_t number, uint8_t value[VALUE_SIZE])
{
    memcpy(value, &number, sizeof(number));
    for (size_t i = sizeof(number); i < VALUE_SIZE; i++)
        value[i] = (uint8_t)(number * 7 + trainer->client * 31 + i);
}

static fedge_status check_value(const stub_trainer *trainer, fedge_client *client, fedge_error *err)
{
    void *data = NULL;
    size_t size = 0;
    const fedge_status status = fedge_client_get(client, KEY, &data, &size, err);
    if (status == FEDGE_NOT_FOUND || status == FEDGE_CORRUPT) {
        if (trainer->confirmed > 0 && !trainer->may_lose) {
            world_fail("client %u lost its value %u: %s", trainer->client, trainer->confirmed,
                       err->message);
        }
        return FEDGE_OK;
    }
    FEDGE_TRY(status);
    uint8_t expected[VALUE_SIZE];
    uint32_t number = 0;
    if (size == VALUE_SIZE)
        memcpy(&number, data, sizeof(number));
    make_value(trainer, number, expected);
    const bool is_known = number >= 1 && number <= trainer->tried;
    if (size != VALUE_SIZE || !is_known || memcmp(data, expected, size) != 0) {
        world_fail("client %u stored value %u of %zu bytes, which it never had", trainer->client,
                   number, size);
    } else if (number < trainer->confirmed && !trainer->may_lose) {
        world_fail("client %u stored value %u, and has an older one, %u", trainer->client,
                   trainer->confirmed, number);
    }
    free(data);
    return FEDGE_OK;
}

static fedge_status replace_value(stub_trainer *trainer, fedge_client *client, fedge_error *err)
{
    uint8_t value[VALUE_SIZE];
    FEDGE_TRY(check_value(trainer, client, err));
    const uint32_t number = ++trainer->tried;
    make_value(trainer, number, value);
    FEDGE_TRY(fedge_client_put(client, KEY, value, sizeof(value), err));
    trainer->confirmed = number;
    return FEDGE_OK;
}

/* ---- training -------------------------------------------------------------------------------- */

/* Parameters of a task's change of the model. */
typedef struct changes {
    uint32_t key;
    float scale;
    uint32_t zeros;  /* of 256 values: unchanged */
    uint32_t clamps; /* of 256 values: changes over the bound */
} changes;

static changes draw_changes(const stub_trainer *trainer, const fedge_client_task *task,
                            fedge_rng *rng)
{
    static const float SCALES[] = {0x1p-10f, 0x1p-10f, 0x1p-13f, 0x1p-18f};
    changes made = {.key = (trainer->client + 1) * 2654435761u + task->round * 40503u +
                           (uint32_t)trainer->seed * 2246822519u};
    made.scale = SCALES[fedge_rng_below(rng, 4)];
    if (chance(rng, trainer->chances.zeros))
        made.zeros = between(rng, 1, 5) == 1 ? 256 : between(rng, 1, 255);
    if (chance(rng, trainer->chances.clamps))
        made.clamps = between(rng, 1, 60);
    return made;
}

static float change(const changes *by, size_t i)
{
    uint32_t mixed = (by->key ^ (uint32_t)i) * 0x9e3779b1u;
    mixed = (mixed ^ mixed >> 15) * 0x85ebca77u;
    mixed ^= mixed >> 13;
    if (mixed >> 24 < by->zeros)
        return 0.0f;
    const float value = (float)((int32_t)(mixed & 0x7ff) - 1024) * by->scale;
    return (mixed >> 16 & 0xff) < by->clamps ? value * 0x1p30f : value;
}

static void move(const fedge_plan *plan, const changes *by, float *values)
{
    for (size_t i = 0; i < plan->num_parameters; i++)
        values[i] += change(by, i);
    /* Statistics change separately, as variances are never below 0. */
    for (size_t i = plan->num_parameters; i < plan->schema.num_elements; i++)
        values[i] = fabsf(values[i] + change(by, i));
}

static fedge_status move_and_tell(const stub_trainer *trainer, const fedge_client_task *task,
                                  const changes *by, float *values, fedge_error *err)
{
    const fedge_plan *plan = task->plan->full;
    const size_t bytes = plan->schema.num_elements * sizeof(*values);
    float *before = malloc(bytes);
    if (!before)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a model");
    memcpy(before, values, bytes);
    move(plan, by, values);
    if (trainer->trained)
        trainer->trained(trainer->client, task->task_id, before, values);
    free(before);
    return FEDGE_OK;
}

/* Changes the client's personal model, too. */
static void move_personal(const fedge_plan *plan, const changes *by, const float *values,
                          float *personal)
{
    const size_t count = plan->personal.num_values;
    if (fedge_plan_replaces(plan))
        return;
    if (personal[count] == 0.0f)
        fedge_personal_take(plan, values, personal);
    for (size_t i = 0; i < count; i++)
        personal[i] += 0.5f * change(by, i);
}

static fedge_status fill_report(const stub_trainer *trainer, const fedge_plan *plan, bool trains,
                                fedge_rng *rng, fedge_client_report *report, fedge_error *err)
{
    report->num_examples = trainer->num_examples;
    report->num_steps = between(rng, 1, 20);
    FEDGE_TRY(fedge_client_metric(report, "loss", between(rng, 1, 400) * 0.01, err));
    FEDGE_TRY(fedge_client_metric(report, "accuracy", between(rng, 0, 100) * 0.01, err));
    if (trains && fedge_plan_measures(plan))
        FEDGE_TRY(fedge_client_metric(report, FEDGE_START_LOSS, between(rng, 1, 400) * 0.01, err));
    if (chance(rng, 100))
        FEDGE_TRY(fedge_client_metric(report, "of-its-own", between(rng, 0, 9), err));
    return FEDGE_OK;
}

/* The index of the model that fits; 0 unless there are several. */
static uint32_t choose(const fedge_plan *plan, const fedge_client_task *task, fedge_rng *rng)
{
    return task->others ? fedge_rng_below(rng, 1 + fedge_plan_num_broadcast(plan)) : 0;
}

static fedge_status on_train(void *user, fedge_client *client, const fedge_client_task *task,
                             float *values, fedge_client_report *report, fedge_error *err)
{
    stub_trainer *trainer = user;
    const fedge_plan *plan = task->plan->full;
    fedge_rng rng = stream_of(trainer, task);
    if (chance(&rng, trainer->chances.stores))
        FEDGE_TRY(replace_value(trainer, client, err));
    FEDGE_TRY(work(trainer, client, task, &rng, err));
    report->chosen = choose(plan, task, &rng);
    if (report->chosen > 0) {
        const size_t count = plan->schema.num_elements;
        memcpy(values, task->others + (report->chosen - 1) * count, count * sizeof(float));
    }
    const changes made = draw_changes(trainer, task, &rng);
    if (task->personal)
        move_personal(plan, &made, values, task->personal);
    FEDGE_TRY(move_and_tell(trainer, task, &made, values, err));
    if (chance(&rng, trainer->chances.is_not_finite))
        values[fedge_rng_below(&rng, (uint32_t)plan->num_parameters)] = NAN;
    trainer->num_trained++;
    return fill_report(trainer, plan, true, &rng, report, err);
}

static fedge_status on_evaluate(void *user, fedge_client *client, const fedge_client_task *task,
                                const float *values, fedge_client_report *report, fedge_error *err)
{
    (void)values;
    stub_trainer *trainer = user;
    fedge_rng rng = stream_of(trainer, task);
    FEDGE_TRY(work(trainer, client, task, &rng, err));
    report->chosen = choose(task->plan->full, task, &rng);
    trainer->num_evaluated++;
    return fill_report(trainer, task->plan->full, false, &rng, report, err);
}

/* As fedge's own trainer. */
static fedge_status on_plan(void *user, fedge_client *client, const fedge_client_plan *plan,
                            fedge_error *err)
{
    (void)client;
    const stub_trainer *trainer = user;
    const fedge_site_data *data;
    return trainer->site && plan->full->has_data
               ? fedge_site_find_data(trainer->site, plan->full, &data, err)
               : FEDGE_OK;
}

fedge_client_callbacks stub_trainer_callbacks(stub_trainer *trainer)
{
    return (fedge_client_callbacks){.struct_size = sizeof(fedge_client_callbacks),
                                    .user = trainer,
                                    .plan = on_plan,
                                    .train = on_train,
                                    .evaluate = on_evaluate,
                                    .cancel = on_cancel,
                                    .heeds_plan = true};
}
