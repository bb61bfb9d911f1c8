#include "aggregator/reduce/cuda/accumulator_cuda.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "aggregator/reduce/cuda/team.h"
#include "edge/core/fixed.h"

static_assert(FEDGE_ACCUMULATOR_MAX_BATCH == FEDGE_CUDA_MAX_BATCH, "a batch is one launch");

/* A group of GPUs has the sums of all coordinates once: one GPU, or all GPUs by coordinates. An
 * update arrives by one lane of each of its GPUs and is stored in the same slot of each. */
typedef struct group {
    uint32_t first, count;                       /* range of the group's GPUs in the team */
    uint32_t lanes[FEDGE_CUDA_LANES], num_lanes; /* free lanes */
    uint32_t *slots, num_slots;                  /* free slots, without the reserved one */
} group;

/* The staged copy of an update on a group's GPUs. */
typedef struct copy {
    uint32_t group, slot;
} copy;

typedef struct cuda_accumulator {
    fedge_cuda_geometry geometry;
    fedge_cuda_team team;
    fedge_cuda_tiles tiles;
    uint32_t num_groups, slots_each; /* excludes the reserved slot, whose number is slots_each */
    group groups[FEDGE_ACCUMULATOR_MAX_GPUS];
    copy *copies; /* (num_groups, slots_each): constants that [staged] points to */
    copy only_checked;
    pthread_mutex_t lock; /* guards everything below, the groups' lists and work on sums */
    pthread_cond_t freed; /* a lane or the reserved slot was freed */
    bool has_lock, has_cond;
    bool reserved_in_use;
    uint32_t next_group;
    uint64_t ticket;
    fedge_accumulator_totals totals;
    fedge_error lost; /* FEDGE_GPU_LOST: every further call returns it */
    const fedge_log *log;
    bool logged_no_memory;
} cuda_accumulator;

/* ---- errors ---------------------------------------------------------------------------------- */

static fedge_status check_lost(const cuda_accumulator *self, fedge_error *err)
{
    if (self->lost.status == FEDGE_OK)
        return FEDGE_OK;
    return fedge_fail(err, self->lost.status, "%s", self->lost.message);
}

/* Records that a GPU is lost, from the error [why] of a call that returned [status]. */
static fedge_status note(cuda_accumulator *self, fedge_status status, const fedge_error *why,
                         fedge_error *err)
{
    if (status == FEDGE_GPU_LOST && self->lost.status == FEDGE_OK) {
        self->lost = *why;
        /* Threads that wait for a lane or the reserved slot would wait forever. */
        (void)pthread_cond_broadcast(&self->freed);
    }
    return status == FEDGE_OK ? status : fedge_fail(err, status, "%s", why->message);
}

/* ---- life ------------------------------------------------------------------------------------ */

static void cuda_close(void *state)
{
    cuda_accumulator *self = state;
    if (!self)
        return;
    fedge_cuda_tiles_fini(&self->tiles);
    fedge_cuda_team_close(&self->team);
    for (uint32_t g = 0; g < self->num_groups; g++)
        free(self->groups[g].slots);
    free(self->copies);
    fedge_cuda_geometry_fini(&self->geometry);
    if (self->has_cond)
        (void)pthread_cond_destroy(&self->freed);
    if (self->has_lock)
        (void)pthread_mutex_destroy(&self->lock);
    free(self);
}

static fedge_status make_groups(cuda_accumulator *self, fedge_error *err)
{
    const uint32_t each = self->slots_each;
    self->copies = calloc((size_t)self->num_groups * each + 1, sizeof(*self->copies));
    for (uint32_t g = 0; g < self->num_groups && self->copies; g++) {
        group *made = &self->groups[g];
        made->count = self->team.num_gpus / self->num_groups;
        made->first = g * made->count;
        /* One extra, as calloc(0) may return NULL. */
        made->slots = calloc((size_t)each + 1, sizeof(*made->slots));
        if (!made->slots)
            break;
        for (uint32_t i = 0; i < each; i++) {
            made->slots[made->num_slots++] = i;
            self->copies[(size_t)g * each + i] = (copy){g, i};
        }
        for (uint32_t i = 0; i < FEDGE_CUDA_LANES; i++)
            made->lanes[made->num_lanes++] = i;
    }
    /* The loop ends at the first group without memory; the last one checked decides. */
    if (!self->copies || !self->groups[self->num_groups - 1].slots)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for an accumulator");
    return FEDGE_OK;
}

static fedge_status open_all(cuda_accumulator *self, const fedge_accumulator_config *config,
                             fedge_error *err)
{
    fedge_cuda_choice choice = {0};
    self->log = config->log;
    self->tiles = (fedge_cuda_tiles){.team = &self->team, .log = config->log};
    self->has_lock = pthread_mutex_init(&self->lock, NULL) == 0;
    self->has_cond = pthread_cond_init(&self->freed, NULL) == 0;
    if (!self->has_lock || !self->has_cond)
        return fedge_fail(err, FEDGE_NO_MEMORY, "cannot make a lock for the sums");
    FEDGE_TRY(fedge_cuda_geometry_init(&self->geometry, config->layout, err));
    FEDGE_TRY(fedge_cuda_open_team(&self->team, &self->geometry, config, &choice, err));
    self->num_groups = choice.shard == FEDGE_SHARD_CLIENTS ? self->team.num_gpus : 1;
    /* The reserved slot is not counted. */
    self->slots_each = choice.num_slots - 1;
    return make_groups(self, err);
}

static fedge_status cuda_open(const fedge_accumulator_config *config, void **state,
                              fedge_error *err)
{
    *state = NULL;
    cuda_accumulator *self = calloc(1, sizeof(*self));
    if (!self)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for an accumulator");
    const fedge_status status = open_all(self, config, err);
    if (status != FEDGE_OK) {
        cuda_close(self);
        return status;
    }
    *state = self;
    return FEDGE_OK;
}

/* ---- updates come in ------------------------------------------------------------------------- */

/* Takes the group with the most free slots; equal ones take turns. */
static uint32_t choose_group(cuda_accumulator *self)
{
    uint32_t best = self->next_group++ % self->num_groups;
    for (uint32_t i = 1; i < self->num_groups; i++) {
        const uint32_t g = (best + i) % self->num_groups;
        best = self->groups[g].num_slots > self->groups[best].num_slots ? g : best;
    }
    return best;
}

/* Waits for a free lane of the group. The lock is held. */
static fedge_status take_lane(cuda_accumulator *self, group *chosen, uint32_t *lane,
                              fedge_error *err)
{
    while (chosen->num_lanes == 0 && self->lost.status == FEDGE_OK)
        (void)pthread_cond_wait(&self->freed, &self->lock);
    FEDGE_TRY(check_lost(self, err));
    *lane = chosen->lanes[--chosen->num_lanes];
    return FEDGE_OK;
}

static void give_lane(cuda_accumulator *self, group *chosen, uint32_t lane)
{
    chosen->lanes[chosen->num_lanes++] = lane;
    (void)pthread_cond_broadcast(&self->freed);
}

/* Copies an update to the GPUs of a group and checks it; with [slot] NULL only checks. Runs without
 * the lock, since copying takes long. */
static fedge_status stage(cuda_accumulator *self, const group *chosen, uint32_t lane,
                          const uint32_t *slot, const fedge_encoded *update, fedge_error *err)
{
    fedge_status status = FEDGE_OK;
    uint64_t bad = FEDGE_CUDA_NOT_BAD;
    uint32_t begun = 0;
    /* All GPUs begin before any is waited for, so they check in parallel. */
    for (; begun < chosen->count && status == FEDGE_OK; begun++) {
        status =
            fedge_cuda_gpu_stage(&self->team.gpus[chosen->first + begun], lane, slot, update, err);
    }
    /* Wait after a failure, too: nothing may be pending when lane and slot are free again. */
    for (uint32_t i = 0; i < begun; i++) {
        uint64_t result = FEDGE_CUDA_NOT_BAD;
        const fedge_status waited =
            fedge_cuda_gpu_result(&self->team.gpus[chosen->first + i], lane, slot, &result,
                                  status == FEDGE_OK ? err : NULL);
        status = status == FEDGE_OK ? waited : status;
        /* The first bad value of all GPUs, so the message does not depend on how they divide the
         * work. */
        bad = result < bad ? result : bad;
    }
    if (status == FEDGE_OK && bad != FEDGE_CUDA_NOT_BAD)
        status = fedge_cuda_fail_update(&self->geometry, bad, update, err);
    return status;
}

static fedge_status cuda_validate(void *state, fedge_encoded *update, fedge_error *err)
{
    cuda_accumulator *self = state;
    fedge_error why = {0};
    uint32_t lane = 0;
    pthread_mutex_lock(&self->lock);
    const uint32_t g = choose_group(self);
    group *chosen = &self->groups[g];
    fedge_status status = take_lane(self, chosen, &lane, err);
    if (status != FEDGE_OK) {
        pthread_mutex_unlock(&self->lock);
        return status;
    }
    /* Without a free slot the update is only checked, and read again when it is added. Waiting here
     * could deadlock: this worker may hold the slots itself, in a batch that it adds later. */
    const bool keeps = chosen->num_slots > 0;
    const uint32_t slot = keeps ? chosen->slots[--chosen->num_slots] : 0;
    pthread_mutex_unlock(&self->lock);

    status = stage(self, chosen, lane, keeps ? &slot : NULL, update, &why);

    pthread_mutex_lock(&self->lock);
    give_lane(self, chosen, lane);
    if (keeps && status != FEDGE_OK)
        chosen->slots[chosen->num_slots++] = slot;
    status = note(self, status, &why, err);
    pthread_mutex_unlock(&self->lock);
    if (status == FEDGE_OK) {
        update->staged =
            keeps ? &self->copies[(size_t)g * self->slots_each + slot] : &self->only_checked;
        update->copied = keeps;
    }
    return status;
}

/* Takes the staged copy from the update and frees its slot. The lock is held. */
static const copy *release(cuda_accumulator *self, fedge_encoded *update)
{
    const copy *staged = update->staged;
    assert(staged); /* it has been validated */
    update->staged = NULL;
    if (staged != &self->only_checked) {
        /* The GPU may still be adding it: staging another update in this slot waits for that on the
         * GPU. */
        group *of = &self->groups[staged->group];
        of->slots[of->num_slots++] = staged->slot;
    }
    return staged;
}

static void cuda_drop(void *state, fedge_encoded *update)
{
    cuda_accumulator *self = state;
    pthread_mutex_lock(&self->lock);
    (void)release(self, update);
    pthread_mutex_unlock(&self->lock);
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* As in accumulator_cpu.c, this limit prevents overflow of partial sums, on any GPU and when they
 * are reduced. The lock is held. */
static fedge_status reserve(cuda_accumulator *self, uint64_t weight, uint32_t count,
                            fedge_error *err)
{
    const uint64_t total = self->totals.total_weight;
    if (weight > FEDGE_FIXED_MAX_TOTAL_WEIGHT || total > FEDGE_FIXED_MAX_TOTAL_WEIGHT - weight) {
        return fedge_fail(err, FEDGE_OUT_OF_RANGE,
                          "weight %" PRIu64 " on top of %" PRIu64 " is over the %" PRIu64
                          " that the sums are safe for; lower the largest weight or cohort",
                          weight, total, FEDGE_FIXED_MAX_TOTAL_WEIGHT);
    }
    self->totals.total_weight += weight;
    self->totals.num_updates += count;
    return FEDGE_OK;
}

static fedge_status reserve_all(cuda_accumulator *self, fedge_encoded *const *updates,
                                uint32_t count, fedge_error *err)
{
    uint64_t weight = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (updates[i]->weight == 0)
            return fedge_fail(err, FEDGE_OUT_OF_RANGE, "an update's weight must be at least 1");
        weight += updates[i]->weight;
    }
    return reserve(self, weight, count, err);
}

/* Adds slots of a group. The lock is held. */
static fedge_status launch(cuda_accumulator *self, const group *of, const uint32_t *slots,
                           const uint32_t *weights, uint32_t count, fedge_error *err)
{
    for (uint32_t i = 0; i < of->count && count > 0; i++)
        FEDGE_TRY(fedge_cuda_gpu_add(&self->team.gpus[of->first + i], slots, weights, count, err));
    return FEDGE_OK;
}

/* Reads updates that were only checked again, one after another, into the reserved slot. The lock
 * is released meanwhile. */
static fedge_status add_again(cuda_accumulator *self, fedge_encoded *update, fedge_error *err)
{
    assert(self->num_groups > 0);
    group *chosen = &self->groups[self->next_group++ % self->num_groups];
    /* One slot is reserved, so that updates without a copy can always be added, however full the
     * GPU is. */
    const uint32_t reserved = self->slots_each;
    uint32_t lane = 0;
    while (self->reserved_in_use && self->lost.status == FEDGE_OK)
        (void)pthread_cond_wait(&self->freed, &self->lock);
    fedge_status status = FEDGE_OK;
    FEDGE_TRY(check_lost(self, err));
    self->reserved_in_use = true;
    FEDGE_TRY_OR(take_lane(self, chosen, &lane, err), give_back);
    pthread_mutex_unlock(&self->lock);
    status = stage(self, chosen, lane, &reserved, update, err);
    pthread_mutex_lock(&self->lock);
    give_lane(self, chosen, lane);
    FEDGE_TRY_OR(status, give_back);
    status = launch(self, chosen, &reserved, &update->weight, 1, err);
give_back:
    self->reserved_in_use = false;
    (void)pthread_cond_broadcast(&self->freed);
    return status;
}

/* Adds those of the updates that group [g] has staged. The lock is held. */
static fedge_status add_copies(cuda_accumulator *self, fedge_encoded *const *updates,
                               uint32_t count, uint32_t g, fedge_error *err)
{
    uint32_t slots[FEDGE_CUDA_MAX_BATCH];
    uint32_t weights[FEDGE_CUDA_MAX_BATCH];
    uint32_t num_staged = 0;
    for (uint32_t i = 0; i < count; i++) {
        const copy *staged = updates[i]->staged;
        if (staged && staged != &self->only_checked && staged->group == g) {
            slots[num_staged] = staged->slot;
            weights[num_staged++] = updates[i]->weight;
        }
    }
    return launch(self, &self->groups[g], slots, weights, num_staged, err);
}

static fedge_status add_all(cuda_accumulator *self, fedge_encoded *const *updates, uint32_t count,
                            fedge_error *err)
{
    fedge_status status = FEDGE_OK;
    /* One launch for each group: the sums of a coordinate are loaded once for the whole batch. */
    for (uint32_t g = 0; g < self->num_groups && status == FEDGE_OK; g++)
        status = add_copies(self, updates, count, g, err);
    for (uint32_t i = 0; i < count; i++) {
        /* Every slot is released, even when the sums are lost. */
        if (release(self, updates[i]) == &self->only_checked && status == FEDGE_OK)
            status = add_again(self, updates[i], err);
    }
    return status;
}

static fedge_status mark(cuda_accumulator *self, uint64_t *ticket, fedge_error *err)
{
    /* Under the lock, so that a later ticket's event is recorded later. */
    *ticket = ++self->ticket;
    for (uint32_t i = 0; i < self->team.num_gpus; i++)
        FEDGE_TRY(fedge_cuda_gpu_mark(&self->team.gpus[i], *ticket, err));
    return FEDGE_OK;
}

/* Reserves the weights of the updates, queues their sums and records the ticket. The lock is held.
 */
static fedge_status add_batch(cuda_accumulator *self, fedge_encoded *const *updates, uint32_t count,
                              uint64_t *ticket, fedge_error *err)
{
    FEDGE_TRY(check_lost(self, err));
    FEDGE_TRY(reserve_all(self, updates, count, err));
    FEDGE_TRY(add_all(self, updates, count, err));
    return mark(self, ticket, err);
}

static fedge_status cuda_add(void *state, fedge_encoded *const *updates, uint32_t count,
                             uint64_t *ticket, fedge_error *err)
{
    cuda_accumulator *self = state;
    fedge_error why = {0};
    assert(count <= FEDGE_ACCUMULATOR_MAX_BATCH);
    pthread_mutex_lock(&self->lock);
    fedge_status status = add_batch(self, updates, count, ticket, &why);
    status = note(self, status, &why, err);
    pthread_mutex_unlock(&self->lock);
    return status;
}

static fedge_status cuda_wait(void *state, uint64_t ticket, fedge_error *err)
{
    cuda_accumulator *self = state;
    fedge_error why = {0};
    pthread_mutex_lock(&self->lock);
    fedge_status status = check_lost(self, &why);
    pthread_mutex_unlock(&self->lock);
    /* The lock is not held: other threads may add meanwhile. */
    for (uint32_t i = 0; i < self->team.num_gpus && status == FEDGE_OK; i++)
        status = fedge_cuda_gpu_wait(&self->team.gpus[i], ticket, &why);
    pthread_mutex_lock(&self->lock);
    status = note(self, status, &why, err);
    pthread_mutex_unlock(&self->lock);
    return status;
}

static fedge_status cuda_begin(void *state, uint32_t weight, fedge_error *err)
{
    cuda_accumulator *self = state;
    pthread_mutex_lock(&self->lock);
    fedge_status status = FEDGE_OK;
    FEDGE_TRY_OR(check_lost(self, err), unlock);
    status = weight == 0
                 ? fedge_fail(err, FEDGE_OUT_OF_RANGE, "an update's weight must be at least 1")
                 : reserve(self, weight, 1, err);
unlock:
    pthread_mutex_unlock(&self->lock);
    return status;
}

/* Adds consecutive values on the GPUs of a group that have them. */
static fedge_status add_run(cuda_accumulator *self, const group *of, const int32_t *v,
                            fedge_cuda_run run, uint32_t weight, fedge_error *err)
{
    fedge_status status = FEDGE_OK;
    for (uint32_t i = 0; i < of->count && run.count > 0 && status == FEDGE_OK; i++) {
        fedge_cuda_gpu *gpu = &self->team.gpus[of->first + i];
        const uint64_t end = ((uint64_t)gpu->first_block + gpu->num_blocks) * FEDGE_CUDA_BLOCK;
        if (run.padded < end) {
            const size_t left = (size_t)(end - run.padded);
            const size_t part = run.count < left ? run.count : left;
            status = fedge_cuda_gpu_add_values(gpu, v, run.padded, part, weight, err);
            v += part;
            run.padded += part;
            run.count -= part;
        }
    }
    return status;
}

static fedge_status cuda_add_values(void *state, uint32_t lane, const int32_t *v, size_t first,
                                    size_t count, uint32_t weight, fedge_error *err)
{
    cuda_accumulator *self = state;
    fedge_error why = {0};
    (void)lane;
    /* All threads that add values use the same buffers. */
    pthread_mutex_lock(&self->lock);
    /* Any group will do: the step reduces them. */
    const group *of = &self->groups[self->next_group++ % self->num_groups];
    fedge_status status = check_lost(self, &why);
    while (count > 0 && status == FEDGE_OK) {
        const fedge_cuda_run run = fedge_cuda_run_at(&self->geometry, first, count);
        status = add_run(self, of, v, run, weight, &why);
        v += run.count;
        first += run.count;
        count -= run.count;
    }
    status = note(self, status, &why, err);
    pthread_mutex_unlock(&self->lock);
    return status;
}

/* By clients each GPU has sums of all coordinates, which the step reduces. */
static fedge_status cuda_device_pointer(void *state, uint32_t gpu, size_t first, int64_t **sums,
                                        fedge_error *err)
{
    cuda_accumulator *self = state;
    fedge_error why = {0};
    pthread_mutex_lock(&self->lock);
    fedge_status status = check_lost(self, &why);
    uint32_t at = 0;
    while (at < self->team.num_gpus && (uint32_t)self->team.gpus[at].ordinal != gpu)
        at++;
    if (status == FEDGE_OK &&
        (at == self->team.num_gpus || self->num_groups != self->team.num_gpus))
        status = fedge_fail(&why, FEDGE_UNSUPPORTED, "the sums are not on GPU %u", (unsigned)gpu);
    if (status == FEDGE_OK) {
        const fedge_cuda_run run = fedge_cuda_run_at(&self->geometry, first, 1);
        status = fedge_cuda_gpu_sums_pointer(&self->team.gpus[at], run.padded, sums, &why);
    }
    status = note(self, status, &why, err);
    pthread_mutex_unlock(&self->lock);
    return status;
}

/* ---- a round's end --------------------------------------------------------------------------- */

static void cuda_totals(const void *state, fedge_accumulator_totals *totals)
{
    *totals = ((const cuda_accumulator *)state)->totals;
}

static fedge_status cuda_read(void *state, size_t first, size_t count, int64_t *sums,
                              fedge_error *err)
{
    cuda_accumulator *self = state;
    fedge_error why = {0};
    /* No lock: at the end of a round no other call runs. */
    fedge_status status = check_lost(self, &why);
    for (size_t i = 0; i < count; i++)
        sums[i] = 0;
    while (count > 0 && status == FEDGE_OK) {
        const fedge_cuda_run run = fedge_cuda_run_at(&self->geometry, first, count);
        for (uint32_t i = 0; i < self->team.num_gpus && status == FEDGE_OK; i++)
            status = fedge_cuda_gpu_read(&self->team.gpus[i], run.padded, run.count, sums, &why);
        sums += run.count;
        first += run.count;
        count -= run.count;
    }
    return note(self, status, &why, err);
}

/* Log it once: it holds for every step. */
static void log_no_memory(cuda_accumulator *self, const fedge_error *why)
{
    if (self->log && !self->logged_no_memory) {
        FEDGE_LOG(self->log, FEDGE_LOG_WARN, "optimizer-on-cpu", fedge_log_str("why", why->message),
                  fedge_log_str("advice", "end what else uses the GPU, or take more GPUs by "
                                          "coordinates"));
    }
    self->logged_no_memory = true;
}

static fedge_status cuda_step(void *state, const fedge_step_part *parts, uint32_t num_parts,
                              fedge_error *err)
{
    cuda_accumulator *self = state;
    fedge_error why = {0};
    assert(self->totals.total_weight > 0);
    fedge_status status = check_lost(self, &why);
    bool fits = true;
    /* If open could not allocate the moments, the first step tries again. */
    for (uint32_t i = 0; num_parts > 0 && parts[0].optimizer && i < self->team.num_gpus; i++) {
        if (status == FEDGE_OK && fits) {
            status = fedge_cuda_gpu_take_moments(&self->team.gpus[i],
                                                 parts[0].optimizer->num_moments, &fits, &why);
        }
    }
    /* Nothing is lost: the host takes the step instead. */
    if (status == FEDGE_OK && !fits) {
        log_no_memory(self, &why);
        return fedge_fail(err, FEDGE_UNSUPPORTED, "%s", why.message);
    }
    FEDGE_TRY_OR(status, noted);
    status = fedge_cuda_team_step(&self->team, parts, num_parts, self->totals.total_weight, &why);
noted:
    return note(self, status, &why, err);
}

static fedge_status cuda_reset(void *state, fedge_error *err)
{
    cuda_accumulator *self = state;
    fedge_error why = {0};
    fedge_status status = check_lost(self, &why);
    self->totals = (fedge_accumulator_totals){0};
    for (uint32_t i = 0; i < self->team.num_gpus && status == FEDGE_OK; i++)
        status = fedge_cuda_gpu_reset(&self->team.gpus[i], &why);
    return note(self, status, &why, err);
}

static const fedge_tile_ops *cuda_tiles(void *state, void **hardware, uint32_t *num_devices)
{
    cuda_accumulator *self = state;
    *hardware = &self->tiles;
    *num_devices = self->team.num_gpus;
    return &fedge_tile_cuda;
}

static fedge_cuda_gpu_plan plan_of(const cuda_accumulator *self, const fedge_cuda_gpu *gpu)
{
    fedge_cuda_gpu_plan plan = {
        .ordinal = gpu->ordinal,
        .by_clients = self->num_groups == self->team.num_gpus,
        .num_slots = gpu->num_slots,
        .bytes = fedge_cuda_gpu_bytes(&self->geometry, gpu->first_block, gpu->num_blocks,
                                      self->team.joins ? self->team.num_gpus : 1, 0)};
    plan.bytes.moments = atomic_load(&gpu->moment_bytes); /* real size, not the planned one */
    return plan;
}

static void cuda_describe(const void *state, char *text, size_t size)
{
    const cuda_accumulator *self = state;
    size_t used = 0;
    for (uint32_t i = 0; i < self->team.num_gpus && used + 2 < size; i++) {
        const fedge_cuda_gpu_plan plan = plan_of(self, &self->team.gpus[i]);
        if (i > 0)
            text[used++] = '\n';
        used += fedge_cuda_gpu_plan_describe(&plan, text + used, size - used);
    }
}

static fedge_status cuda_forecast(const fedge_accumulator_config *config, char *text, size_t size,
                                  fedge_error *err)
{
    fedge_cuda_geometry geometry;
    fedge_status status;
    FEDGE_TRY_OR(fedge_cuda_geometry_init(&geometry, config->layout, err), fini);
    status = fedge_cuda_forecast_team(&geometry, config, text, size, err);
fini:
    fedge_cuda_geometry_fini(&geometry);
    return status;
}

static void fill_times(fedge_gpu_stats *stats, const fedge_cuda_times *times)
{
    stats->seconds_copy = (double)times->ns[FEDGE_CUDA_COPY] * 1e-9;
    stats->seconds_decode = (double)times->ns[FEDGE_CUDA_DECODE] * 1e-9;
    stats->seconds_reduce = (double)times->ns[FEDGE_CUDA_REDUCE] * 1e-9;
    stats->seconds_step = (double)times->ns[FEDGE_CUDA_STEP] * 1e-9;
}

static uint32_t cuda_stats(const void *state, fedge_gpu_stats *stats, uint32_t capacity)
{
    const cuda_accumulator *self = state;
    for (uint32_t i = 0; i < self->team.num_gpus && i < capacity; i++) {
        const fedge_cuda_gpu_plan plan = plan_of(self, &self->team.gpus[i]);
        stats[i] = (fedge_gpu_stats){.gpu = (uint32_t)plan.ordinal};
        stats[i].memory_bytes =
            fedge_cuda_gpu_plan_bytes(&plan) + atomic_load(&self->team.gpus[i].tile_bytes);
        stats[i].decoded_bytes = self->team.gpus[i].decoded_bytes;
        fill_times(&stats[i], &self->team.gpus[i].times);
    }
    return self->team.num_gpus;
}

fedge_cuda_team *fedge_accumulator_cuda_team(void *state)
{
    return &((cuda_accumulator *)state)->team;
}

const fedge_accumulator_ops fedge_accumulator_cuda = {
    .name = "cuda",
    .optimizes = true,
    .can_sum = fedge_cuda_can_sum,
    .open = cuda_open,
    .close = cuda_close,
    .validate = cuda_validate,
    .add = cuda_add,
    .wait = cuda_wait,
    .drop = cuda_drop,
    .begin = cuda_begin,
    .add_values = cuda_add_values,
    .device_pointer = cuda_device_pointer,
    .totals = cuda_totals,
    .read = cuda_read,
    .step = cuda_step,
    .reset = cuda_reset,
    .scatter = &fedge_scatter_nccl,
    .tiles = cuda_tiles,
    .describe = cuda_describe,
    .forecast = cuda_forecast,
    .stats = cuda_stats,
};
