/* Creating and freeing a silo, and evaluation. */
#include "edge/train/cuda/silo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/train/cuda/cohort_internal.h"

/* ---- parts ----------------------------------------------------------------------------------- */

/* The division of a batch depends on the batch and the job, not on the number of GPUs, so that any
 * number of GPUs gives the same bits. GPUs beyond the number of parts are not used. */
static fedge_cohort_split split_of(const fedge_silo_config *config, uint32_t num_gpus,
                                   uint32_t *num_parts)
{
    const uint32_t batch = config->cohort.options->max_batch;
    const uint32_t eighth = (batch + FEDGE_SILO_PARTS - 1) / FEDGE_SILO_PARTS;
    const uint32_t part = fedge_cohort_batch_coupled(config->cohort.model) ? batch
                          : config->part == 0 || config->part > batch      ? eighth
                                                                           : config->part;
    *num_parts = (batch + part - 1) / part;
    const uint32_t most = num_gpus < *num_parts ? num_gpus : *num_parts;
    const uint32_t gpus = most > 0 ? most : 1;
    return (fedge_cohort_split){.num_gpus = gpus,
                                .part = part,
                                .num_parts = (*num_parts + gpus - 1) / gpus,
                                .states_bf16 = config->states_bf16};
}

static fedge_cohort_config cohort_of(const fedge_silo_config *config, fedge_cohort_split split)
{
    fedge_cohort_config cohort = config->cohort;
    cohort.most_slots = split.num_parts;
    cohort.num_chunks = 0;
    cohort.split = split;
    return cohort;
}

/* The cohort that needs least memory: one slot, optimizer states on the host, no examples. */
static fedge_cohort_config minimal_of(const fedge_silo_config *config, fedge_cohort_split split)
{
    split.states_on_host = true;
    fedge_cohort_config cohort = cohort_of(config, split);
    cohort.most_slots = 1;
    memset(cohort.sets, 0, sizeof(cohort.sets));
    return cohort;
}

fedge_status fedge_silo_bytes(const fedge_silo_config *config, uint32_t num_gpus, uint64_t *all,
                              uint64_t *least, fedge_error *err)
{
    uint32_t num_parts = 0;
    uint64_t *const to[] = {all, least};
    const fedge_cohort_split split = split_of(config, num_gpus, &num_parts);
    *all = *least = 0;
    for (int i = 0; i < 2; i++) {
        fedge_cohort_memory memory;
        fedge_cohort_config cohort = minimal_of(config, split);
        if (i == 0) {
            cohort.most_slots = split.num_parts;
            cohort.split.states_on_host = false;
        }
        FEDGE_TRY(fedge_cohort_bytes(&cohort, &memory, err));
        *to[i] = memory.slots + memory.shared;
    }
    return FEDGE_OK;
}

/* ---- life ------------------------------------------------------------------------------------ */

static fedge_status open_gpu(fedge_silo *self, uint32_t index, fedge_error *err)
{
    fedge_cohort_config cohort = cohort_of(&self->config, self->split);
    fedge_silo_gpu *gpu = &self->gpus[index];
    cohort.gpu = (int)self->config.gpus[index];
    /* Parts in order, distributed as evenly as possible. */
    gpu->first_part = self->num_parts * index / self->split.num_gpus;
    gpu->num_parts = self->num_parts * (index + 1) / self->split.num_gpus - gpu->first_part;
    FEDGE_TRY(fedge_cohort_new(&cohort, &gpu->cohort, err));
    return fedge_cohort_allocate(gpu->cohort, &gpu->tallies, gpu->num_parts * sizeof(*gpu->tallies),
                                 true, err);
}

static void close_gpus(fedge_silo *self)
{
    for (uint32_t i = 0; i < self->split.num_gpus; i++) {
        fedge_cohort_free(self->gpus[i].cohort);
        (void)cudaFreeHost(self->gpus[i].tallies);
        self->gpus[i] = (fedge_silo_gpu){0};
    }
}

static fedge_status open_gpus(fedge_silo *self, fedge_error *err)
{
    fedge_status status = FEDGE_OK;
    for (uint32_t i = 0; i < self->split.num_gpus && status == FEDGE_OK; i++)
        status = open_gpu(self, i, err);
    if (status == FEDGE_NO_MEMORY && !self->split.states_on_host &&
        fedge_optimizer_states(self->config.cohort.options) > 0) {
        /* Opens all GPUs anew with the optimizer's states in the host's memory, which is slower. A
         * second failure is final. */
        close_gpus(self);
        self->split.states_on_host = true;
        status = open_gpus(self, err);
    }
    return status;
}

static fedge_status connect_gpus(fedge_silo *self, fedge_error *err)
{
    int numbers[FEDGE_COHORT_MAX_GPUS];
    if (self->split.num_gpus < 2)
        return FEDGE_OK;
    FEDGE_TRY(fedge_nccl_load(&self->nccl, err));
    for (uint32_t i = 0; i < self->split.num_gpus; i++)
        numbers[i] = (int)self->config.gpus[i];
    (void)snprintf(self->names, sizeof(self->names), "one of %u GPUs",
                   (unsigned)self->split.num_gpus);
    FEDGE_TRY(fedge_gpu_watch_init(&self->watch, self->config.stuck, NULL, err));
    fedge_gpu_call call = {FEDGE_GPU_NCCL, self->names, "starting NCCL", 0, NULL, 0};
    fedge_gpu_watch_begin(&self->watch, &call);
    const fedge_nccl_result result =
        self->nccl.comm_init_all(self->comms, (int)self->split.num_gpus, numbers);
    fedge_gpu_watch_end(&self->watch, &call);
    self->num_comms = self->split.num_gpus;
    /* After a failure some communicators lack peers and can only be aborted. */
    self->lost = self->lost || result != FEDGE_NCCL_SUCCESS;
    return fedge_silo_nccl(self, result, "starting NCCL", err);
}

/* Lists all GPUs if the caller wants all. Fails for a GPU that does not exist, even if the batch
 * has no part for it. */
static fedge_status choose_gpus(fedge_silo_config *config, fedge_error *err)
{
    uint32_t there = 0;
    FEDGE_TRY(fedge_cohort_count_gpus(&there, err));
    there = there < FEDGE_COHORT_MAX_GPUS ? there : FEDGE_COHORT_MAX_GPUS;
    for (uint32_t i = 0; i < there && config->num_gpus == 0; i++)
        config->gpus[i] = i;
    config->num_gpus = config->num_gpus == 0 ? there : config->num_gpus;
    for (uint32_t i = 0; i < config->num_gpus; i++) {
        if (config->gpus[i] >= there) {
            return fedge_fail(err, FEDGE_NOT_FOUND, "GPU %u is not there: there are 0 to %u",
                              (unsigned)config->gpus[i], (unsigned)there - 1);
        }
    }
    return FEDGE_OK;
}

fedge_status fedge_silo_check_gpus(const fedge_silo_config *config, fedge_error *err)
{
    fedge_silo_config wanted = *config;
    uint32_t num_parts = 0;
    fedge_nccl nccl;
    FEDGE_TRY(fedge_cohort_check(&config->cohort, err));
    FEDGE_TRY(choose_gpus(&wanted, err));
    const fedge_cohort_split split = split_of(&wanted, wanted.num_gpus, &num_parts);
    fedge_cohort_config cohort = minimal_of(&wanted, split);
    for (uint32_t i = 0; i < split.num_gpus; i++) {
        cohort.gpu = (int)wanted.gpus[i];
        FEDGE_TRY(fedge_cohort_check_gpu(&cohort, err));
    }
    if (split.num_gpus > 1) {
        FEDGE_TRY(fedge_nccl_load(&nccl, err));
        fedge_nccl_unload(&nccl);
    }
    return FEDGE_OK;
}

static fedge_status open_silo(fedge_silo *self, fedge_error *err)
{
    const uint32_t batch = self->config.cohort.options->max_batch;
    FEDGE_TRY(fedge_cohort_check(&self->config.cohort, err));
    FEDGE_TRY(choose_gpus(&self->config, err));
    self->split = split_of(&self->config, self->config.num_gpus, &self->num_parts);
    self->indices = calloc(batch, sizeof(*self->indices));
    self->moves = calloc(batch, sizeof(*self->moves));
    if (!self->indices || !self->moves)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a batch's examples");
    FEDGE_TRY(open_gpus(self, err));
    return connect_gpus(self, err);
}

fedge_status fedge_silo_new(const fedge_silo_config *config, fedge_silo **silo, fedge_error *err)
{
    fedge_silo *fresh = calloc(1, sizeof(*fresh));
    *silo = NULL;
    if (!fresh)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a silo");
    fresh->config = *config;
    const fedge_status status = open_silo(fresh, err);
    if (status == FEDGE_OK)
        *silo = fresh;
    else
        fedge_silo_free(fresh);
    return status;
}

void fedge_silo_free(fedge_silo *silo)
{
    if (!silo)
        return;
    fedge_gpu_call closing = {FEDGE_GPU_NCCL, silo->names, "closing NCCL", 0, NULL, 0};
    fedge_gpu_watch_begin(&silo->watch, &closing);
    /* comm_destroy waits for queued work, which a lost GPU never finishes. */
    for (uint32_t i = 0; i < silo->num_comms; i++) {
        if (silo->comms[i])
            (void)(silo->lost ? silo->nccl.comm_abort : silo->nccl.comm_destroy)(silo->comms[i]);
    }
    fedge_gpu_watch_end(&silo->watch, &closing);
    fedge_gpu_watch_fini(&silo->watch);
    /* The communicators used the cohorts' streams and buffers. */
    close_gpus(silo);
    fedge_nccl_unload(&silo->nccl);
    free(silo->order.order);
    free(silo->indices);
    free(silo->moves);
    free(silo);
}

fedge_silo_facts fedge_silo_facts_of(const fedge_silo *silo)
{
    fedge_silo_facts facts = {.num_gpus = silo->split.num_gpus,
                              .part = silo->split.part,
                              .num_parts = silo->num_parts,
                              .at_once = UINT32_MAX,
                              .states_on_host = silo->split.states_on_host,
                              .states_bf16 = silo->split.states_bf16};
    fedge_error unwanted;
    for (uint32_t i = 0; i < silo->split.num_gpus; i++) {
        const uint32_t slots = fedge_cohort_slots(silo->gpus[i].cohort);
        facts.at_once = slots < facts.at_once ? slots : facts.at_once;
    }
    fedge_cohort_config cohort = cohort_of(&silo->config, silo->split);
    cohort.most_slots = facts.at_once;
    if (fedge_cohort_bytes(&cohort, &facts.memory, &unwanted) != FEDGE_OK)
        facts.memory = (fedge_cohort_memory){0};
    return facts;
}

/* ---- evaluation ------------------------------------------------------------------------------ */

/* Parts of the examples, whose results are added in order. */
typedef struct evaluation {
    fedge_cohort_task parts[FEDGE_SILO_PARTS];
    uint32_t next;
    fedge_cancel_fn cancel;
    void *cancel_user;
} evaluation;

static fedge_cohort_task *next_part(void *user)
{
    evaluation *self = user;
    while (self->next < FEDGE_SILO_PARTS && self->parts[self->next].num_examples == 0)
        self->next++;
    return self->next < FEDGE_SILO_PARTS ? &self->parts[self->next++] : NULL;
}

static void part_done(void *user, fedge_cohort_task *task, float *values)
{
    (void)user;
    (void)task;
    (void)values;
}

static bool evaluation_cancelled(void *user)
{
    evaluation *self = user;
    return self->cancel && self->cancel(self->cancel_user);
}

fedge_status fedge_silo_evaluate(fedge_silo *silo, const fedge_cohort_task *task,
                                 const float *values, fedge_cancel_fn cancel, void *cancel_user,
                                 fedge_trainer_result *result, fedge_error *err)
{
    /* The first GPU evaluates a fixed number of parts. Their sums are added in order, so the loss
     * has the same bits for any number of GPUs. */
    evaluation self = {.cancel = cancel, .cancel_user = cancel_user};
    const uint32_t each = (task->num_examples + FEDGE_SILO_PARTS - 1) / FEDGE_SILO_PARTS;
    for (uint32_t i = 0; i < FEDGE_SILO_PARTS; i++) {
        const uint32_t first = i * each < task->num_examples ? i * each : task->num_examples;
        const uint32_t left = task->num_examples - first;
        self.parts[i] = (fedge_cohort_task){.set = task->set,
                                            .examples = task->examples + first,
                                            .num_examples = left < each ? left : each};
    }
    const fedge_cohort_member model = {.start = values};
    const fedge_cohort_work work = {.members = &model,
                                    .num_members = 1,
                                    .next = next_part,
                                    .done = part_done,
                                    .cancel = evaluation_cancelled,
                                    .user = &self};
    *result = (fedge_trainer_result){.num_examples = task->num_examples};
    fedge_status status = fedge_cohort_run(silo->gpus[0].cohort, &work, err);
    silo->lost |= status == FEDGE_GPU_LOST;
    for (uint32_t i = 0; i < FEDGE_SILO_PARTS && status == FEDGE_OK; i++) {
        const fedge_cohort_task *part = &self.parts[i];
        status = part->status;
        if (status != FEDGE_OK)
            *err = part->error;
        result->num_seen += part->result.num_seen;
        result->loss_sum += part->result.loss_sum;
        result->correct += part->result.correct;
    }
    return status;
}
