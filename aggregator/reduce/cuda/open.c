#include "aggregator/reduce/cuda/team.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/reduce/cuda/kernels.h"
#include "edge/train/cuda/gpu.h"

/* The GPUs to use, before any of them is opened. */
typedef struct selection {
    const fedge_cuda_geometry *geometry;
    int ordinals[FEDGE_ACCUMULATOR_MAX_GPUS];
    size_t free_bytes[FEDGE_ACCUMULATOR_MAX_GPUS];
    uint32_t num_gpus;
    uint32_t most_slots;
    unsigned num_moments;               /* number of an optimizer's moments */
    char why[FEDGE_ERROR_MESSAGE_SIZE]; /* text for the log: the GPUs divide the work by clients */
} selection;

/* After a loss, or when all were requested, the other GPUs suffice. */
static void leave_out(int ordinal, const fedge_accumulator_config *config, const char *why)
{
    if (config->log) {
        FEDGE_LOG(config->log, FEDGE_LOG_WARN, "gpu-left-out", fedge_log_int("gpu", ordinal),
                  fedge_log_str("why", why));
    }
}

static fedge_status take_gpu(selection *self, int ordinal, int num_present,
                             const fedge_accumulator_config *config, fedge_error *err)
{
    if (ordinal < 0 || ordinal >= num_present) {
        fedge_status status =
            fedge_fail(err, FEDGE_NOT_FOUND, "GPU %d is not there: there are 0 to %d", ordinal,
                       num_present - 1);
        if (!config->skip_missing)
            return status;
        leave_out(ordinal, config, "it is not there");
        return FEDGE_OK;
    }
    for (uint32_t i = 0; i < self->num_gpus; i++) {
        if (self->ordinals[i] == ordinal)
            return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "GPU %d is named twice", ordinal);
    }
    if (config->lost && atomic_load(&config->lost->numbers) >> ordinal & 1) {
        leave_out(ordinal, config, "it was lost before");
        return FEDGE_OK;
    }
    self->ordinals[self->num_gpus++] = ordinal;
    return FEDGE_OK;
}

static fedge_status choose_gpus(selection *self, fedge_gpu_watch *watch,
                                const fedge_accumulator_config *config, fedge_error *err)
{
    int num_present = 0;
    fedge_gpu_call call = {FEDGE_GPU_CUDA_OPEN, "a GPU", "counting them", 0, NULL, 0};
    fedge_gpu_watch_begin(watch, &call);
    const cudaError_t error = cudaGetDeviceCount(&num_present);
    fedge_gpu_watch_end(watch, &call);
    if (error != cudaSuccess || num_present <= 0)
        return fedge_gpu_none(error, "or sum on the CPU", err);
    num_present =
        num_present < FEDGE_ACCUMULATOR_MAX_GPUS ? num_present : FEDGE_ACCUMULATOR_MAX_GPUS;
    if (config->lost &&
        atomic_exchange(&config->lost->there, (uint32_t)num_present) != (uint32_t)num_present)
        atomic_store(&config->lost->numbers, 0);
    const uint32_t wanted = config->num_gpus ? config->num_gpus : (uint32_t)num_present;
    fedge_status status = FEDGE_OK;
    for (uint32_t i = 0; i < wanted && status == FEDGE_OK; i++) {
        status = take_gpu(self, config->num_gpus ? (int)config->gpus[i] : (int)i, num_present,
                          config, err);
    }
    return status;
}

static fedge_status ask_one(int ordinal, fedge_gpu_watch *watch, size_t *free_bytes,
                            fedge_error *err)
{
    fedge_cuda_gpu gpu = {.ordinal = ordinal};
    size_t total = 0;
    (void)snprintf(gpu.name, sizeof(gpu.name), "GPU %d", ordinal);
    fedge_gpu_call call = fedge_cuda_call(&gpu, "asking what it has");
    call.library = FEDGE_GPU_CUDA_OPEN;
    fedge_gpu_watch_begin(watch, &call);
    cudaError_t error = fedge_gpu_choose(ordinal);
    if (error == cudaSuccess)
        error = cudaMemGetInfo(free_bytes, &total);
    if (error == cudaSuccess)
        error = fedge_cuda_has_code();
    fedge_gpu_watch_end(watch, &call);
    FEDGE_TRY(fedge_gpu_refused(
        ordinal, error, "take others with --gpus, or sum on the CPU (--accumulator cpu)", err));
    return fedge_cuda_check(&gpu, error, "asking what it has", err);
}

/* GPUs requested by number must all work; of "all" those that work are used. */
static fedge_status ask_memory(selection *self, fedge_gpu_watch *watch,
                               const fedge_accumulator_config *config, fedge_error *err)
{
    uint32_t usable = 0;
    fedge_error first = {.message = "each was lost before, or is not there"};
    for (uint32_t i = 0; i < self->num_gpus; i++) {
        const int ordinal = self->ordinals[i];
        fedge_error why;
        /* This also makes the GPU's context, so an unusable GPU fails here. */
        fedge_status status = ask_one(ordinal, watch, &self->free_bytes[usable], &why);
        if (status == FEDGE_OK) {
            self->ordinals[usable++] = ordinal;
            continue;
        }
        if (!config->skip_missing && config->num_gpus > 0)
            return fedge_fail(err, status, "%s", why.message);
        leave_out(ordinal, config, why.message);
        if (first.status == FEDGE_OK)
            first = why;
    }
    self->num_gpus = usable;
    const fedge_status none = first.status == FEDGE_NO_MEMORY ? FEDGE_NO_MEMORY : FEDGE_NOT_FOUND;
    return usable > 0
               ? FEDGE_OK
               : fedge_fail(err, none,
                            "none of the GPUs can be used (%s); see what nvidia-smi says, or "
                            "sum on the CPU",
                            first.message);
}

/* The blocks of GPU [index]: all by clients, else an equal part. */
static uint32_t blocks_of(const selection *self, fedge_shard shard, uint32_t index, uint32_t *first)
{
    const uint64_t all = self->geometry->num_blocks;
    if (shard == FEDGE_SHARD_CLIENTS) {
        *first = 0;
        return (uint32_t)all;
    }
    *first = (uint32_t)(all * index / self->num_gpus);
    return (uint32_t)(all * (index + 1) / self->num_gpus) - *first;
}

/* The number of slots that fit on every GPU. FEDGE_NO_MEMORY: fewer than needed. */
static fedge_status count_slots(const selection *self, fedge_shard shard, uint32_t *num_slots,
                                fedge_error *err)
{
    const bool joins = shard == FEDGE_SHARD_CLIENTS && self->num_gpus > 1;
    *num_slots = self->most_slots;
    for (uint32_t i = 0; i < self->num_gpus; i++) {
        uint32_t first = 0;
        const uint32_t blocks = blocks_of(self, shard, i, &first);
        const fedge_cuda_bytes bytes = fedge_cuda_gpu_bytes(
            self->geometry, first, blocks, joins ? self->num_gpus : 1, self->num_moments);
        const size_t needed = fedge_cuda_gpu_plan_bytes(
            &(fedge_cuda_gpu_plan){.num_slots = FEDGE_CUDA_MIN_SLOTS, .bytes = bytes});
        /* A tenth is left for the driver and NCCL. */
        const size_t room = self->free_bytes[i] / 10 * 9;
        /* By coordinates only slots take more memory than this. */
        if (needed > (joins ? room : self->free_bytes[i])) {
            return fedge_fail(
                err, FEDGE_NO_MEMORY,
                "GPU %d has %zu MiB free and needs %zu MiB for sums, values%s and updates%s; "
                "take more GPUs with --shard coordinates, or sum on the CPU (--accumulator cpu)",
                self->ordinals[i], self->free_bytes[i] >> 20, needed >> 20,
                self->num_moments ? ", what the optimizer keeps" : "",
                joins ? ", and a tenth for NCCL" : "");
        }
        const size_t fit = room > needed ? FEDGE_CUDA_MIN_SLOTS + (room - needed) / bytes.slot : 0;
        const uint32_t here = fit > FEDGE_CUDA_MIN_SLOTS
                                  ? (uint32_t)(fit < self->most_slots ? fit : self->most_slots)
                                  : FEDGE_CUDA_MIN_SLOTS;
        /* An update is in the same slot of every GPU of its group. */
        *num_slots = here < *num_slots ? here : *num_slots;
    }
    return FEDGE_OK;
}

static void say_why(selection *self, const char *what, const char *detail)
{
    (void)snprintf(self->why, sizeof(self->why), "%s%.200s", what, detail);
}

static fedge_status choose_coordinates(selection *self, fedge_cuda_choice *choice, fedge_error *err)
{
    choice->shard = FEDGE_SHARD_COORDINATES;
    /* A block is not divided. */
    self->num_gpus =
        self->num_gpus < self->geometry->num_blocks ? self->num_gpus : self->geometry->num_blocks;
    return count_slots(self, choice->shard, &choice->num_slots, err);
}

/* Sets shard and slots, and loads NCCL when it is needed. */
static fedge_status choose_shard(selection *self, fedge_cuda_team *team, fedge_shard wanted,
                                 fedge_cuda_choice *choice, fedge_error *err)
{
    choice->shard = FEDGE_SHARD_CLIENTS;
    say_why(self, "there is one", "");
    if (self->num_gpus == 1)
        return count_slots(self, choice->shard, &choice->num_slots, err);
    say_why(self, "as asked for", "");
    if (wanted != FEDGE_SHARD_COORDINATES) {
        const char *const obstacles[] = {"the sums do not fit on each: ", "NCCL cannot be had: "};
        fedge_error cause;
        fedge_status status = count_slots(self, choice->shard, &choice->num_slots, &cause);
        const bool fits = status == FEDGE_OK;
        /* Loaded only when it would be used. */
        if (fits)
            status = fedge_nccl_load(&team->nccl, &cause);
        if (status == FEDGE_OK && wanted == FEDGE_SHARD_AUTO)
            say_why(self, "the sums fit on each", "");
        if (status == FEDGE_OK)
            return status;
        if (wanted == FEDGE_SHARD_CLIENTS)
            return fedge_fail(err, status, "%s", cause.message);
        say_why(self, obstacles[fits], cause.message);
    }
    return choose_coordinates(self, choice, err);
}

/* "3,0" */
static void list_numbers(const selection *self, char *text, size_t size)
{
    size_t used = 0;
    for (uint32_t i = 0; i < self->num_gpus && used + 4 < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%d", i ? "," : "", self->ordinals[i]);
}

static void tell(const selection *self, const fedge_cuda_choice *choice,
                 const fedge_cuda_team *team, const fedge_log *log)
{
    char numbers[FEDGE_ACCUMULATOR_MAX_GPUS * 4] = "";
    list_numbers(self, numbers, sizeof(numbers));
    FEDGE_LOG(
        log, FEDGE_LOG_INFO, "accumulator", fedge_log_str("kind", "cuda"),
        fedge_log_str("gpus", numbers),
        fedge_log_str("shard", choice->shard == FEDGE_SHARD_CLIENTS ? "clients" : "coordinates"),
        fedge_log_str("because", self->why), fedge_log_int("nccl", team->nccl.version),
        fedge_log_int("updates-held", choice->num_slots - 1));
}

static fedge_status start_watch(fedge_gpu_watch *watch, const fedge_accumulator_config *config,
                                fedge_error *err)
{
    return fedge_gpu_watch_init(watch, config->stuck, config->lost ? &config->lost->numbers : NULL,
                                err);
}

/* Decides everything before memory is allocated. A GPU may hang from the first call on. */
static fedge_status choose(selection *self, fedge_cuda_team *team,
                           const fedge_accumulator_config *config, fedge_cuda_choice *choice,
                           fedge_error *err)
{
    fedge_gpu_watch *watch = &team->watch;
    FEDGE_TRY(start_watch(watch, config, err));
    FEDGE_TRY(choose_gpus(self, watch, config, err));
    self->num_moments = config->num_moments;
    self->most_slots = config->in_place ? FEDGE_CUDA_MIN_SLOTS : FEDGE_CUDA_MAX_SLOTS;
    FEDGE_TRY(ask_memory(self, watch, config, err));
    fedge_status status = choose_shard(self, team, config->shard, choice, err);
    /* Without memory for the moments the GPU still sums. The first step tries again to allocate
     * them, and the host steps if that fails, too. */
    if (status == FEDGE_NO_MEMORY && self->num_moments > 0) {
        self->num_moments = 0;
        status = choose_shard(self, team, config->shard, choice, err);
    }
    team->joins = choice->shard == FEDGE_SHARD_CLIENTS && self->num_gpus > 1;
    return status;
}

size_t fedge_cuda_gpu_plan_bytes(const fedge_cuda_gpu_plan *plan)
{
    const fedge_cuda_bytes *bytes = &plan->bytes;
    return bytes->sums + bytes->values + bytes->moments + plan->num_slots * bytes->slot +
           bytes->others;
}

size_t fedge_cuda_gpu_plan_describe(const fedge_cuda_gpu_plan *plan, char *text, size_t size)
{
    const fedge_cuda_bytes *bytes = &plan->bytes;
    char moments[64] = "";
    if (bytes->moments > 0)
        (void)snprintf(moments, sizeof(moments), ", %zu that the optimizer keeps", bytes->moments);
    const int length = snprintf(text, size,
                                "GPU %d, by %s: %zu bytes, %zu of sums, %zu of values%s, %zu of %u "
                                "updates of %zu, %zu of buffers and tables",
                                plan->ordinal, plan->by_clients ? "clients" : "coordinates",
                                fedge_cuda_gpu_plan_bytes(plan), bytes->sums, bytes->values,
                                moments, plan->num_slots * bytes->slot, (unsigned)plan->num_slots,
                                bytes->slot, bytes->others);
    return length < 0 ? 0 : (size_t)length < size ? (size_t)length : size - 1;
}

fedge_status fedge_cuda_forecast_team(const fedge_cuda_geometry *geometry,
                                      const fedge_accumulator_config *config, char *text,
                                      size_t size, fedge_error *err)
{
    fedge_cuda_team team = {0};
    selection self = {.geometry = geometry};
    fedge_cuda_choice choice = {0};
    size_t used = 0;
    const fedge_status status = choose(&self, &team, config, &choice, err);
    for (uint32_t i = 0; i < self.num_gpus && status == FEDGE_OK && used + 2 < size; i++) {
        uint32_t first = 0;
        const uint32_t blocks = blocks_of(&self, choice.shard, i, &first);
        const fedge_cuda_gpu_plan plan = {
            .ordinal = self.ordinals[i],
            .by_clients = choice.shard == FEDGE_SHARD_CLIENTS,
            .num_slots = choice.num_slots,
            .bytes = fedge_cuda_gpu_bytes(geometry, first, blocks, team.joins ? self.num_gpus : 1,
                                          self.num_moments)};
        if (i > 0)
            text[used++] = '\n';
        used += fedge_cuda_gpu_plan_describe(&plan, text + used, size - used);
    }
    fedge_cuda_team_close(&team);
    return status;
}

/* Allocates according to the choice. *starts: NCCL starts or is not needed. */
static fedge_status open_gpus(const selection *self, fedge_cuda_team *team,
                              const fedge_cuda_choice *choice, bool *starts, fedge_error *err)
{
    const uint32_t num_tensors = self->geometry->num_tensors;
    bool fits = true;
    *starts = true;
    fedge_cuda_comms *comms = &team->comms;
    comms->nccl = &team->nccl;
    comms->watch = &team->watch;
    const int used = snprintf(comms->names, sizeof(comms->names), "one of GPUs ");
    list_numbers(self, comms->names + used, sizeof(comms->names) - (size_t)used);
    team->cached = calloc(num_tensors, sizeof(*team->cached));
    if (!team->cached)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for an accumulator");
    for (uint32_t i = 0; i < self->num_gpus; i++) {
        uint32_t first = 0;
        const uint32_t blocks = blocks_of(self, choice->shard, i, &first);
        /* Counted before it is open, so that one that fails halfway is closed like the others. */
        fedge_cuda_gpu *gpu = &team->gpus[team->num_gpus++];
        const fedge_cuda_gpu_config config = {.geometry = self->geometry,
                                              .ordinal = self->ordinals[i],
                                              .first_block = first,
                                              .num_blocks = blocks,
                                              .num_slots = choice->num_slots,
                                              .sharers = team->joins ? self->num_gpus : 1,
                                              .watch = &team->watch};
        FEDGE_TRY(fedge_cuda_gpu_open(gpu, &config, err));
        /* Another process may have taken the memory by now; the host then steps, and the log says
         * so. */
        if (fits)
            FEDGE_TRY(fedge_cuda_gpu_take_moments(gpu, self->num_moments, &fits, err));
    }
    if (!team->joins)
        return FEDGE_OK;
    const fedge_status status = fedge_cuda_team_join(team, err);
    *starts = status == FEDGE_OK;
    return status;
}

/* NCCL needs memory of the GPUs and the host and a path between GPUs; only starting it shows
 * whether it works. */
static fedge_status open_without_nccl(selection *self, fedge_cuda_team *team,
                                      const fedge_accumulator_config *config,
                                      fedge_cuda_choice *choice, const fedge_error *cause,
                                      fedge_error *err)
{
    bool starts = true;
    if (config->shard != FEDGE_SHARD_AUTO) {
        return fedge_fail(err, cause->status, "%s; --shard coordinates needs no NCCL",
                          cause->message);
    }
    say_why(self, "NCCL cannot be started: ", cause->message);
    fedge_cuda_team_close(team);
    *team = (fedge_cuda_team){0};
    FEDGE_TRY(start_watch(&team->watch, config, err));
    FEDGE_TRY(choose_coordinates(self, choice, err));
    return open_gpus(self, team, choice, &starts, err);
}

fedge_status fedge_cuda_open_team(fedge_cuda_team *team, const fedge_cuda_geometry *geometry,
                                  const fedge_accumulator_config *config, fedge_cuda_choice *choice,
                                  fedge_error *err)
{
    selection self = {.geometry = geometry};
    bool starts = true;
    fedge_error cause = {0};
    FEDGE_TRY(choose(&self, team, config, choice, err));
    fedge_status status = open_gpus(&self, team, choice, &starts, &cause);
    if (!starts)
        status = open_without_nccl(&self, team, config, choice, &cause, err);
    else if (status != FEDGE_OK)
        return fedge_fail(err, status, "%s", cause.message);
    if (status == FEDGE_OK)
        tell(&self, choice, team, config->log);
    return status;
}
