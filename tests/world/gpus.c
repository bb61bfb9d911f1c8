#include "tests/world/gpus.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/program/supervisor.h"
#include "aggregator/run/exit_codes.h"
#include "tests/world/observer.h"
#include "tests/world/scheduler.h"

/* Time after which a call that does not return is given up. It is shorter than that of the real
 * watch, so that worlds end early. */
#define HANG_NS ((uint64_t)3000000000)
#define QUICK_NS ((uint64_t)FEDGE_SUPERVISOR_QUICK_MS * 1000000)

static struct {
    uint32_t num;
    uint64_t broken, full;   /* a bit for each GPU */
    uint64_t calls, fail_at; /* fail_at ≠ 0: the call at which a GPU fails */
    world_gpu_failure how;
    uint64_t list;
    bool were_lost;
    /* What the supervisor remembers. */
    fedge_lost_gpus lost;
    uint32_t restarts, num_quick;
} machine;

/* An open accumulator. */
typedef struct gpu_sums {
    fedge_accumulator_config config;
    void *cpu; /* the accumulator "cpu", which does the work */
    uint32_t num_gpus, gpus[FEDGE_ACCUMULATOR_MAX_GPUS];
    size_t num_elements;
    bool lost;
    uint32_t lost_gpu; /* index of the lost GPU, if [lost] */
} gpu_sums;

static const fedge_accumulator_ops *const CPU = &fedge_accumulator_cpu;

/* ---- the world's side ------------------------------------------------------------------------ */

void world_gpus_begin(uint32_t num)
{
    memset(&machine, 0, sizeof(machine));
    machine.num = num;
}

void world_gpus_fail(uint64_t call, world_gpu_failure how)
{
    if (how == WORLD_GPU_IS_FULL) {
        machine.full |= UINT64_C(1) << call % machine.num;
    } else {
        machine.fail_at = machine.calls + call;
        machine.how = how;
    }
}

void world_gpus_mend(void)
{
    machine.broken = machine.full = machine.fail_at = 0;
    if ((machine.list & ((UINT64_C(1) << machine.num) - 1)) == 0)
        machine.list = 0;
}

void world_gpus_set_list(uint64_t list)
{
    machine.list = list;
}

void world_gpus_configure(fedge_accumulator_config *sums)
{
    sums->num_gpus = 0;
    for (uint32_t i = 0; i < FEDGE_ACCUMULATOR_MAX_GPUS; i++) {
        if (machine.list >> i & 1)
            sums->gpus[sums->num_gpus++] = i;
    }
    sums->skip_missing = machine.restarts > 0;
    sums->lost = &machine.lost;
}

void world_gpus_forget(void)
{
    memset(&machine.lost, 0, sizeof(machine.lost));
    machine.restarts = machine.num_quick = 0;
    machine.were_lost = false;
}

void world_gpus_ended(int exit_code, bool killed, uint64_t lived_ns)
{
    const bool quick = lived_ns < QUICK_NS;
    machine.were_lost = false;
    machine.num_quick = quick ? machine.num_quick + 1 : 0;
    if (fedge_supervisor_restarts(exit_code, killed, machine.restarts > 0 || !quick) &&
        fedge_supervisor_pause_ms(machine.num_quick) >= 0)
        machine.restarts++;
    else
        world_gpus_forget();
}

bool world_gpus_allow(int exit_code)
{
    return !machine.were_lost || exit_code == FEDGE_EXIT_OK || exit_code == FEDGE_EXIT_GPU;
}

/* ---- the accumulator ------------------------------------------------------------------------- */

static fedge_status fail_lost(gpu_sums *self, uint32_t gpu, const char *what, fedge_error *err)
{
    self->lost = machine.were_lost = true;
    self->lost_gpu = gpu;
    if (self->config.lost)
        (void)atomic_fetch_or(&self->config.lost->numbers, UINT64_C(1) << gpu);
    return fedge_fail(err, FEDGE_GPU_LOST, "GPU %u %s", (unsigned)gpu, what);
}

/* A call to one of the GPUs. An error: it has failed now or before. */
static fedge_status use(gpu_sums *self, fedge_error *err)
{
    const uint32_t gpu = self->gpus[machine.calls % self->num_gpus];
    machine.calls++;
    world_yield();
    if (machine.fail_at > 0 && machine.calls >= machine.fail_at) {
        machine.fail_at = 0;
        machine.broken |= UINT64_C(1) << gpu;
        if (machine.how == WORLD_GPU_HANGS && self->config.stuck) {
            fedge_error why;
            (void)fail_lost(self, gpu, "does not answer", &why);
            world_sleep(HANG_NS);
            self->config.stuck(&why);
        }
    }
    if (self->lost)
        return fail_lost(self, self->lost_gpu, "was lost before", err);
    for (uint32_t i = 0; i < self->num_gpus; i++) {
        if (machine.broken >> self->gpus[i] & 1)
            return fail_lost(self, self->gpus[i], "fails", err);
    }
    return FEDGE_OK;
}

static void leave_out(const fedge_accumulator_config *config, uint32_t gpu, const char *why)
{
    if (config->log) {
        FEDGE_LOG(config->log, FEDGE_LOG_WARN, "gpu-left-out", fedge_log_int("gpu", gpu),
                  fedge_log_str("why", why));
    }
}

/* Chooses GPUs as aggregator/reduce/cuda/open.c does. */
static fedge_status take_gpu(gpu_sums *self, uint32_t gpu, fedge_error *err)
{
    const fedge_accumulator_config *config = &self->config;
    const bool may_miss = config->skip_missing || config->num_gpus == 0;
    const char *why = machine.broken >> gpu & 1 ? "it fails" : "it has no memory";
    if (gpu >= machine.num) {
        if (!config->skip_missing)
            return fedge_fail(err, FEDGE_NOT_FOUND, "GPU %u is not there", (unsigned)gpu);
        leave_out(config, gpu, "it is not there");
    } else if (config->lost && atomic_load(&config->lost->numbers) >> gpu & 1) {
        leave_out(config, gpu, "it was lost before");
    } else if (((machine.broken | machine.full) >> gpu & 1) == 0) {
        self->gpus[self->num_gpus++] = gpu;
    } else if (may_miss) {
        leave_out(config, gpu, why);
    } else if (machine.broken >> gpu & 1) {
        return fail_lost(self, gpu, "fails", err);
    } else {
        return fedge_fail(err, FEDGE_NO_MEMORY, "GPU %u: %s", (unsigned)gpu, why);
    }
    return FEDGE_OK;
}

static fedge_status choose(gpu_sums *self, fedge_error *err)
{
    const fedge_accumulator_config *config = &self->config;
    if (machine.num == 0)
        return fedge_fail(err, FEDGE_NOT_FOUND, "there is no GPU");
    if (config->lost && atomic_exchange(&config->lost->there, machine.num) != machine.num)
        atomic_store(&config->lost->numbers, 0);
    const uint32_t wanted = config->num_gpus > 0 ? config->num_gpus : machine.num;
    for (uint32_t i = 0; i < wanted; i++)
        FEDGE_TRY(take_gpu(self, config->num_gpus > 0 ? config->gpus[i] : i, err));
    return self->num_gpus > 0 ? FEDGE_OK
                              : fedge_fail(err, FEDGE_NOT_FOUND, "none of the GPUs can be used");
}

static void gpu_close(void *state)
{
    gpu_sums *self = state;
    if (self)
        CPU->close(self->cpu);
    free(self);
}

static fedge_status gpu_open(const fedge_accumulator_config *config, void **state, fedge_error *err)
{
    *state = NULL;
    gpu_sums *self = calloc(1, sizeof(*self));
    if (!self)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for an accumulator");
    self->config = *config;
    self->num_elements = config->layout->num_elements;
    fedge_status status = choose(self, err);
    if (status == FEDGE_OK)
        status = CPU->open(config, &self->cpu, err);
    if (status != FEDGE_OK) {
        gpu_close(self);
        return status;
    }
    *state = self;
    return FEDGE_OK;
}

static fedge_status gpu_validate(void *state, fedge_encoded *update, fedge_error *err)
{
    gpu_sums *self = state;
    FEDGE_TRY(use(self, err));
    return CPU->validate(self->cpu, update, err);
}

/* A GPU may fail before or after the addition. */
static fedge_status gpu_add(void *state, fedge_encoded *const *updates, uint32_t count,
                            uint64_t *ticket, fedge_error *err)
{
    gpu_sums *self = state;
    FEDGE_TRY(use(self, err));
    FEDGE_TRY(CPU->add(self->cpu, updates, count, ticket, err));
    return use(self, err);
}

static fedge_status gpu_wait(void *state, uint64_t ticket, fedge_error *err)
{
    gpu_sums *self = state;
    FEDGE_TRY(use(self, err));
    return CPU->wait(self->cpu, ticket, err);
}

static void gpu_drop(void *state, fedge_encoded *update)
{
    CPU->drop(((gpu_sums *)state)->cpu, update);
}

static fedge_status gpu_begin(void *state, uint32_t weight, fedge_error *err)
{
    gpu_sums *self = state;
    FEDGE_TRY(use(self, err));
    return CPU->begin(self->cpu, weight, err);
}

static fedge_status gpu_add_values(void *state, uint32_t lane, const int32_t *v, size_t first,
                                   size_t count, uint32_t weight, fedge_error *err)
{
    gpu_sums *self = state;
    FEDGE_TRY(use(self, err));
    return CPU->add_values(self->cpu, lane, v, first, count, weight, err);
}

static void gpu_totals(const void *state, fedge_accumulator_totals *totals)
{
    CPU->totals(((const gpu_sums *)state)->cpu, totals);
}

static fedge_status gpu_read(void *state, size_t first, size_t count, int64_t *sums,
                             fedge_error *err)
{
    gpu_sums *self = state;
    const fedge_status status = use(self, err);
    if (status == FEDGE_OK)
        return CPU->read(self->cpu, first, count, sums, err);
    memset(sums, 0x55, count * sizeof(*sums));
    return status;
}

static fedge_status gpu_step(void *state, const fedge_step_part *parts, uint32_t num_parts,
                             fedge_error *err)
{
    gpu_sums *self = state;
    FEDGE_TRY(use(self, err));
    FEDGE_TRY(CPU->step(self->cpu, parts, num_parts, err));
    const fedge_status status = use(self, err);
    for (uint32_t i = 0; i < num_parts && status != FEDGE_OK; i++)
        memset(parts[i].values, 0x55, parts[i].count / 2 * sizeof(*parts[i].values));
    return status;
}

static fedge_status gpu_reset(void *state, fedge_error *err)
{
    gpu_sums *self = state;
    FEDGE_TRY(use(self, err));
    return CPU->reset(self->cpu, err);
}

static void gpu_describe(const void *state, char *text, size_t size)
{
    const gpu_sums *self = state;
    size_t used = 0;
    for (uint32_t i = 0; i < self->num_gpus && used < size; i++) {
        used += (size_t)snprintf(text + used, size - used, "%sGPU %u: sums of %zu values",
                                 i > 0 ? "\n" : "", (unsigned)self->gpus[i], self->num_elements);
    }
}

static uint32_t gpu_stats(const void *state, fedge_gpu_stats *stats, uint32_t capacity)
{
    const gpu_sums *self = state;
    for (uint32_t i = 0; i < self->num_gpus && i < capacity; i++)
        stats[i] = (fedge_gpu_stats){.gpu = self->gpus[i]};
    return self->num_gpus;
}

static const fedge_accumulator_ops GPU = {
    .name = "gpu",
    .open = gpu_open,
    .close = gpu_close,
    .validate = gpu_validate,
    .add = gpu_add,
    .wait = gpu_wait,
    .drop = gpu_drop,
    .begin = gpu_begin,
    .add_values = gpu_add_values,
    .totals = gpu_totals,
    .read = gpu_read,
    .step = gpu_step,
    .reset = gpu_reset,
    .describe = gpu_describe,
    .stats = gpu_stats,
};

/* The accumulator kinds of this program, in place of those in accumulator_kinds.c. */
const fedge_accumulator_ops *const fedge_accumulator_kinds[] = {&GPU, &fedge_accumulator_cpu, NULL};
