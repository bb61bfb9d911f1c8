#include "aggregator/reduce/cuda/open.h"

#include <stdio.h>
#include <string.h>

/* The GPUs to take, before any of them is opened. */
typedef struct plan {
    const fedge_cuda_geometry *geometry;
    int ordinals[FEDGE_ACCUMULATOR_MAX_GPUS];
    size_t free_bytes[FEDGE_ACCUMULATOR_MAX_GPUS];
    uint32_t num_gpus;
} plan;

static fedge_status fail_hardware(cudaError_t error, fedge_error *err)
{
    if (error == cudaErrorInsufficientDriver) {
        return fedge_fail(err, FEDGE_NOT_FOUND,
                          "no NVIDIA driver for this CUDA (%s); install one, or sum on the CPU",
                          cudaGetErrorString(error));
    }
    return fedge_fail(err, FEDGE_NOT_FOUND,
                      "no GPU is found (%s); see what nvidia-smi says, or sum on the CPU",
                      cudaGetErrorString(error));
}

static fedge_status choose_gpus(plan *self, const fedge_accumulator_config *config,
                                fedge_error *err)
{
    int there = 0;
    const cudaError_t error = cudaGetDeviceCount(&there);
    if (error != cudaSuccess || there <= 0) {
        return fail_hardware(error != cudaSuccess ? error : cudaErrorNoDevice, err);
    }
    there = there < FEDGE_ACCUMULATOR_MAX_GPUS ? there : FEDGE_ACCUMULATOR_MAX_GPUS;
    self->num_gpus = config->num_gpus ? config->num_gpus : (uint32_t)there;
    for (uint32_t i = 0; i < self->num_gpus; i++) {
        self->ordinals[i] = config->num_gpus ? (int)config->gpus[i] : (int)i;
        if (self->ordinals[i] < 0 || self->ordinals[i] >= there) {
            return fedge_fail(err, FEDGE_NOT_FOUND, "GPU %d is not there: there are 0 to %d",
                              self->ordinals[i], there - 1);
        }
        for (uint32_t j = 0; j < i; j++) {
            if (self->ordinals[i] == self->ordinals[j]) {
                return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "GPU %d is named twice",
                                  self->ordinals[i]);
            }
        }
    }
    return FEDGE_OK;
}

static fedge_status ask_memory(plan *self, fedge_error *err)
{
    for (uint32_t i = 0; i < self->num_gpus; i++) {
        const fedge_cuda_gpu gpu = {.ordinal = self->ordinals[i]};
        size_t total = 0;
        fedge_status status = fedge_cuda_gpu_use(&gpu, err);
        if (status == FEDGE_OK) {
            status = fedge_cuda_check(&gpu, cudaMemGetInfo(&self->free_bytes[i], &total),
                                      "asking for its memory", err);
        }
        if (status != FEDGE_OK) {
            return status;
        }
    }
    return FEDGE_OK;
}

/* Blocks of GPU [index]: all by clients, else an equal part. */
static uint32_t blocks_of(const plan *self, fedge_shard shard, uint32_t index, uint32_t *first)
{
    const uint64_t all = self->geometry->num_blocks;
    if (shard == FEDGE_SHARD_CLIENTS) {
        *first = 0;
        return (uint32_t)all;
    }
    *first = (uint32_t)(all * index / self->num_gpus);
    return (uint32_t)(all * (index + 1) / self->num_gpus) - *first;
}

/* How many slots fit on every GPU. FEDGE_NO_MEMORY: fewer than are needed. */
static fedge_status count_slots(const plan *self, fedge_shard shard, uint32_t *num_slots,
                                fedge_error *err)
{
    const bool joins = shard == FEDGE_SHARD_CLIENTS && self->num_gpus > 1;
    *num_slots = FEDGE_CUDA_MAX_SLOTS;
    for (uint32_t i = 0; i < self->num_gpus; i++) {
        uint32_t first = 0;
        const uint32_t blocks = blocks_of(self, shard, i, &first);
        size_t slot = 0;
        const size_t fixed = fedge_cuda_gpu_bytes(self->geometry, first, blocks, joins, &slot);
        const size_t needed = fixed + FEDGE_CUDA_MIN_SLOTS * slot;
        if (needed > self->free_bytes[i]) {
            return fedge_fail(err, FEDGE_NO_MEMORY,
                              "GPU %d has %zu MiB free and needs %zu MiB for sums and updates; "
                              "take more GPUs by coordinates, or sum on the CPU",
                              self->ordinals[i], self->free_bytes[i] >> 20, needed >> 20);
        }
        /* A tenth is left for what the driver and NCCL take. */
        const size_t room = self->free_bytes[i] / 10 * 9;
        const size_t fit = room > needed ? FEDGE_CUDA_MIN_SLOTS + (room - needed) / slot : 0;
        const uint32_t here =
            fit > FEDGE_CUDA_MIN_SLOTS
                ? (uint32_t)(fit < FEDGE_CUDA_MAX_SLOTS ? fit : FEDGE_CUDA_MAX_SLOTS)
                : FEDGE_CUDA_MIN_SLOTS;
        *num_slots = here < *num_slots ? here : *num_slots;
    }
    return FEDGE_OK;
}

/* Sets shard and slots, and loads NCCL where it is needed. [why]: static text for the log. */
static fedge_status choose_shard(plan *self, fedge_cuda_team *team, fedge_shard wanted,
                                 fedge_cuda_choice *choice, const char **why, fedge_error *err)
{
    choice->shard = FEDGE_SHARD_CLIENTS;
    *why = "there is one";
    if (self->num_gpus == 1) {
        return count_slots(self, choice->shard, &choice->num_slots, err);
    }
    *why = "as asked for";
    if (wanted != FEDGE_SHARD_COORDINATES) {
        const char *const obstacles[] = {"the sums do not fit on each", "NCCL cannot be had"};
        fedge_status status = count_slots(self, choice->shard, &choice->num_slots, err);
        const bool fits = status == FEDGE_OK;
        if (fits) {
            status = fedge_nccl_load(&team->nccl, err);
        }
        if (status == FEDGE_OK || wanted == FEDGE_SHARD_CLIENTS) {
            *why = wanted == FEDGE_SHARD_CLIENTS ? *why : "the sums fit on each";
            return status;
        }
        *why = obstacles[fits];
    }
    choice->shard = FEDGE_SHARD_COORDINATES;
    self->num_gpus =
        self->num_gpus < self->geometry->num_blocks ? self->num_gpus : self->geometry->num_blocks;
    return count_slots(self, choice->shard, &choice->num_slots, err);
}

static void tell(const plan *self, const fedge_cuda_choice *choice, const fedge_cuda_team *team,
                 const char *why, const fedge_log *log)
{
    char gpus[FEDGE_ACCUMULATOR_MAX_GPUS * 4] = "";
    size_t used = 0;
    size_t slot = 0;
    uint32_t first = 0;
    const uint32_t blocks = blocks_of(self, choice->shard, 0, &first);
    const size_t fixed = fedge_cuda_gpu_bytes(self->geometry, first, blocks, team->joins, &slot);
    for (uint32_t i = 0; i < self->num_gpus && used < sizeof(gpus) - 4; i++) {
        used += (size_t)snprintf(gpus + used, sizeof(gpus) - used, "%s%d", i ? "," : "",
                                 self->ordinals[i]);
    }
    FEDGE_LOG(
        log, FEDGE_LOG_INFO, "accumulator", fedge_log_str("kind", "cuda"),
        fedge_log_str("gpus", gpus),
        fedge_log_str("shard", choice->shard == FEDGE_SHARD_CLIENTS ? "clients" : "coordinates"),
        fedge_log_str("because", why), fedge_log_int("nccl", team->nccl.version),
        fedge_log_int("updates_held", choice->num_slots - 1),
        fedge_log_int("bytes_on_first", (int64_t)(fixed + choice->num_slots * slot)));
}

fedge_status fedge_cuda_open_team(fedge_cuda_team *team, const fedge_cuda_geometry *geometry,
                                  const fedge_accumulator_config *config, fedge_cuda_choice *choice,
                                  fedge_error *err)
{
    plan self = {.geometry = geometry};
    const char *why = "";
    fedge_status status = choose_gpus(&self, config, err);
    if (status == FEDGE_OK) {
        status = ask_memory(&self, err);
    }
    if (status == FEDGE_OK) {
        status = choose_shard(&self, team, config->shard, choice, &why, err);
    }
    team->joins = choice->shard == FEDGE_SHARD_CLIENTS && self.num_gpus > 1;
    for (uint32_t i = 0; i < self.num_gpus && status == FEDGE_OK; i++) {
        uint32_t first = 0;
        const uint32_t blocks = blocks_of(&self, choice->shard, i, &first);
        team->num_gpus++;
        status = fedge_cuda_gpu_open(&team->gpus[i], geometry, self.ordinals[i], first, blocks,
                                     choice->num_slots, team->joins, err);
    }
    if (status == FEDGE_OK && team->joins) {
        status = fedge_cuda_team_join(team, err);
    }
    if (status == FEDGE_OK) {
        tell(&self, choice, team, why, config->log);
    }
    return status;
}
