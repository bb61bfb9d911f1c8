#include "aggregator/simulate/cohort/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rounds/downlink.h"
#include "aggregator/rounds/sampler.h"
#include "aggregator/rounds/strategy.h"
#include "aggregator/rounds/tiles.h"
#include "aggregator/simulate/cohort/client_states.h"
#include "edge/core/os.h"
#include "edge/data/formats/safetensors.h"
#include "edge/plan/client_hooks.h"

#define MB 1000000u
#define MAX_PARTS 5
#define CACHE_LINE 64u
#define MACHINE_CLIENT 16u              /* bytes of a client: in the round machine, and to join */
#define MACHINE_TASK 128u               /* bytes of a task: there, and in the virtual clock */
#define THREAD_BYTES ((uint64_t)192000) /* stack and allocator of one thread */

/* ---- counting -------------------------------------------------------------------------------- */

uint64_t fedge_memory_left(void)
{
    const uint64_t usable = fedge_os_usable_bytes(NULL), present = fedge_os_resident_bytes();
    return usable == 0 ? UINT64_MAX : usable > present ? usable - present : 1;
}

void *fedge_memory_allocate(size_t size, uint64_t *total)
{
    const size_t alignment = size < FEDGE_LARGE_PAGE ? CACHE_LINE : FEDGE_LARGE_PAGE;
    *total += size;
    return aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

/* The collected updates, and the tiles through which a step reads them. */
static uint64_t robust_bytes(const fedge_memory_demand *demand)
{
    const fedge_job *job = demand->job;
    const uint32_t asked =
        fedge_cohort_size_of(&job->rounds, FEDGE_TASK_TRAIN, demand->num_clients).asked;
    const uint64_t updates =
        (uint64_t)asked * job->plan.sent.sections[0].schema.num_elements * sizeof(int32_t);
    const uint64_t max_bytes = demand->robust_memory / 2;
    const uint64_t step = fedge_tiles_bytes(asked, demand->num_threads);
    return (updates < max_bytes ? updates : max_bytes) + (step < max_bytes ? step : max_bytes);
}

/* The global model's values, its file (of every round, for its hash, or of the last) and the
 * strategy's state. A checkpoint takes the state and one client's state a second time. */
static fedge_status count_model(fedge_memory *memory, const fedge_memory_demand *demand,
                                fedge_error *err)
{
    const fedge_plan *plan = &demand->job->plan;
    const fedge_section *delta = &plan->sent.sections[0];
    const uint64_t trained = (uint64_t)delta->schema.num_elements * sizeof(float);
    const fedge_strategy_ops *strategy = NULL;
    size_t file = 0, broadcast = 0;
    FEDGE_TRY(fedge_safetensors_size(&plan->schema, &file, err));
    FEDGE_TRY(fedge_strategy_of(demand->job, &strategy, err));
    if (fedge_plan_broadcasts(plan))
        FEDGE_TRY(fedge_safetensors_size(&delta->schema, &broadcast, err));
    broadcast *= fedge_plan_num_broadcast(plan);
    memory->model = (uint64_t)plan->schema.num_elements * sizeof(float) + file + broadcast;
    memory->model += fedge_section_is_whole(plan, delta) ? 0 : trained;
    memory->model += demand->job->keep_best.present && !demand->no_hashes
                         ? (uint64_t)plan->schema.num_elements * sizeof(float)
                         : 0;
    if (strategy->collects)
        memory->model += robust_bytes(demand);
    const uint64_t state = (uint64_t)delta->schema.num_elements *
                               fedge_strategy_state_per_value(strategy, demand->job) +
                           fedge_downlink_state_size(plan);
    memory->model += fedge_downlink_memory(plan);
    memory->model += demand->no_hashes ? state : 2 * state;
    memory->model += fedge_plan_has_client_state(plan) && !demand->no_hashes
                         ? (uint64_t)fedge_plan_num_client_state(plan) * sizeof(float)
                         : 0;
    memory->model +=
        demand->is_distributed ? (uint64_t)plan->sent.schema.num_elements * sizeof(int64_t) : 0;
    return FEDGE_OK;
}

static void count_clients(fedge_memory *memory, const fedge_memory_demand *demand)
{
    const fedge_job *job = demand->job;
    const uint64_t clients = demand->num_clients;
    const fedge_cohort_size train =
        fedge_cohort_size_of(&job->rounds, FEDGE_TASK_TRAIN, (uint32_t)clients);
    const fedge_cohort_size evaluate =
        fedge_cohort_size_of(&job->rounds, FEDGE_TASK_EVALUATE, (uint32_t)clients);
    const bool evaluated = job->rounds.fraction_evaluate > 0 && evaluate.asked > train.asked;
    memory->tasks = clients * MACHINE_CLIENT + (evaluated ? evaluate.asked : train.asked) *
                                                   (demand->task_bytes + MACHINE_TASK);
    if (fedge_plan_has_client_state(&job->plan)) {
        memory->states =
            fedge_client_states_size((uint32_t)clients, train.asked, job->rounds.num_server_rounds,
                                     fedge_plan_num_client_state(&job->plan), demand->state_memory);
    }
}

fedge_status fedge_memory_count(fedge_memory *memory, const fedge_memory_demand *demand,
                                fedge_error *err)
{
    *memory =
        (fedge_memory){.present = fedge_os_resident_bytes(), .num_threads = demand->num_threads};
    memory->threads = (demand->thread_bytes + THREAD_BYTES) * demand->num_threads;
    count_clients(memory, demand);
    return count_model(memory, demand, err);
}

static uint64_t sum(uint64_t a, uint64_t b)
{
    return b > UINT64_MAX - a ? UINT64_MAX : a + b;
}

/* Half of what is left, since cached pages of the file take memory too. */
uint64_t fedge_memory_state_budget(const fedge_memory *memory, uint64_t usable)
{
    const uint64_t others =
        sum(sum(memory->present, memory->model), sum(memory->threads, memory->tasks));
    const uint64_t left = usable > others ? usable - others : 0;
    if (usable == 0 || memory->states <= left)
        return 0;
    return left > 1 ? left / 2 : 1;
}

/* ---- checking -------------------------------------------------------------------------------- */

typedef struct part {
    uint64_t bytes;
    const char *name;   /* follows "12 MB " */
    const char *advice; /* follows "use " */
} part;

static int by_bytes(const void *a, const void *b)
{
    const part *x = a, *y = b;
    return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

static uint64_t rounded(uint64_t bytes)
{
    return bytes / MB + (bytes % MB >= MB / 2);
}

/* Appends to a text in [size] bytes, cut at their end. */
static void append(char *text, size_t size, const char *more)
{
    const size_t used = strlen(text);
    (void)snprintf(text + used, size - used, "%s", more);
}

fedge_status fedge_memory_check(const fedge_memory *memory, uint64_t usable, fedge_error *err)
{
    char threads[64], needs[240] = "", advice[200] = "";
    (void)snprintf(threads, sizeof(threads), "for %" PRIu32 " threads of %" PRIu64 " MB each",
                   memory->num_threads, rounded(memory->threads / memory->num_threads));
    part parts[MAX_PARTS] = {
        {memory->present, "that the program and its data have", "fewer or smaller examples"},
        {memory->model, "for the global model", "a smaller model"},
        {memory->threads, threads, "fewer --threads, a smaller batch-size or a smaller model"},
        {memory->states, "for clients' states and an open round's copies",
         "--client-state-memory BYTES, beyond which it lies in a file, fewer clients or rounds, a "
         "smaller cohort or another strategy"},
        {memory->tasks, "for a round's tasks", "fewer clients a round"}};
    uint64_t all = 0;
    for (uint32_t i = 0; i < MAX_PARTS; i++)
        all = sum(all, parts[i].bytes);
    if (usable == 0 || all <= usable)
        return FEDGE_OK;
    qsort(parts, MAX_PARTS, sizeof(parts[0]), by_bytes);
    for (uint32_t i = 0; i < MAX_PARTS && parts[i].bytes >= MB / 2; i++) {
        char need[128];
        (void)snprintf(need, sizeof(need), "%s%" PRIu64 " MB %s", i > 0 ? ", " : "",
                       rounded(parts[i].bytes), parts[i].name);
        append(needs, sizeof(needs), need);
        if (i == 0 || parts[i].bytes >= all / 4) { /* changing less would not help */
            append(advice, sizeof(advice), i > 0 ? "; " : "");
            append(advice, sizeof(advice), parts[i].advice);
        }
    }
    return fedge_fail(err, FEDGE_TOO_BIG,
                      "%" PRIu64 " MB are needed: %s; and there are %" PRIu64
                      " MB for this program: use %s",
                      all / MB + 1, needs, usable / MB, advice);
}
