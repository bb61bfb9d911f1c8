/* Creating and freeing a cohort: number of slots, memory, upload of examples. */
#include "edge/train/cuda/cohort.h"

#include <stdlib.h>
#include <string.h>

#include "edge/train/cuda/cohort_internal.h"
#include "edge/train/cuda/gpu.h"

#define UPLOAD ((size_t)1 << 20) /* bytes per copy of examples */

/* The option by which a simulation continues. A silo's client only starts again. */
static const char *with_resume(const fedge_cohort *cohort)
{
    return cohort->config.split.num_parts > 0 ? "" : " with --resume";
}

/* Not a lost GPU: other processes or the driver use its memory. A new start allocates less. */
static fedge_status fail_memory(const fedge_cohort *cohort, const char *doing, fedge_error *err)
{
    size_t left = 0, total = 0;
    (void)cudaMemGetInfo(&left, &total);
    return fedge_fail(err, FEDGE_NO_MEMORY,
                      "GPU %d has no memory left while %s: %zu of its %zu MiB are free; start "
                      "again%s to train less at once, end what else uses it, use a smaller "
                      "batch-size or model, or --engine cpu",
                      cohort->config.gpu, doing, left >> 20, total >> 20, with_resume(cohort));
}

fedge_status fedge_cohort_cuda(const fedge_cohort *cohort, cudaError_t error, const char *doing,
                               fedge_error *err)
{
    if (error == cudaSuccess)
        return FEDGE_OK;
    if (error == cudaErrorMemoryAllocation)
        return fail_memory(cohort, doing, err);
    return fedge_fail(err, FEDGE_GPU_LOST,
                      "GPU %d is lost while %s: %s; start again%s, with the GPUs that there are",
                      cohort->config.gpu, doing, cudaGetErrorString(error), with_resume(cohort));
}

fedge_status fedge_cohort_count_gpus(uint32_t *count, fedge_error *err)
{
    int there = 0;
    const cudaError_t error = cudaGetDeviceCount(&there);
    *count = error == cudaSuccess && there > 0 ? (uint32_t)there : 0;
    return *count > 0 ? FEDGE_OK : fedge_gpu_none(error, "or take --engine cpu", err);
}

fedge_status fedge_cohort_bytes(const fedge_cohort_config *config, fedge_cohort_memory *memory,
                                fedge_error *err)
{
    fedge_cohort *counted = calloc(1, sizeof(*counted)); /* a plan is large for a stack */
    if (!counted)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to plan a cohort");
    const fedge_status status = fedge_cohort_plan_make(&counted->plan, config, err);
    *memory = (fedge_cohort_memory){0};
    if (status == FEDGE_OK) {
        fedge_cohort_plan *plan = &counted->plan;
        /* NULL: only the sizes are wanted. */
        memory->slot = fedge_cohort_lay_out_slots(plan, &counted->arrays, NULL, 1, 1);
        memory->slots = fedge_cohort_lay_out_slots(plan, &counted->arrays, NULL, config->most_slots,
                                                   fedge_cohort_run_of(plan, config->most_slots));
        memory->shared = fedge_cohort_lay_out_shared(plan, config, &counted->arrays, NULL);
        memory->host =
            fedge_cohort_host_bytes(plan, config->most_slots) +
            (size_t)fedge_cohort_members(config) * config->num_chunks * sizeof(fedge_cohort_chunk);
    }
    free(counted);
    return status;
}

/* ---- memory ---------------------------------------------------------------------------------- */

fedge_status fedge_cohort_allocate(const fedge_cohort *cohort, void *pointer, size_t size,
                                   bool pinned, fedge_error *err)
{
    void *memory = NULL;
    const cudaError_t error =
        pinned ? cudaHostAlloc(&memory, size, cudaHostAllocPortable) : cudaMalloc(&memory, size);
    if (error == cudaErrorMemoryAllocation) {
        return fedge_fail(err, FEDGE_NO_MEMORY,
                          "GPU %d: no memory for %zu bytes%s: use a smaller batch-size or model, "
                          "or --engine cpu",
                          cohort->config.gpu, size, pinned ? " of pinned memory of the host" : "");
    }
    memcpy(pointer, &memory, sizeof(memory));
    return fedge_cohort_cuda(cohort, error, "taking memory", err);
}

static size_t bytes_of(fedge_cohort *self, uint32_t slots)
{
    return fedge_cohort_lay_out_slots(&self->plan, &self->arrays, NULL, slots,
                                      fedge_cohort_run_of(&self->plan, slots));
}

/* Finds the number of slots that fit, by bisection. */
static fedge_status choose_slots(fedge_cohort *self, fedge_error *err)
{
    size_t there = 0, total = 0;
    const size_t shared =
        fedge_cohort_lay_out_shared(&self->plan, &self->config, &self->arrays, NULL);
    FEDGE_TRY(
        fedge_cohort_cuda(self, cudaMemGetInfo(&there, &total), "asking for its memory", err));
    const size_t capacity = there / 10 * 9; /* a tenth is left for the driver */
    uint32_t least = 0, most = self->config.most_slots;
    most = most < FEDGE_COHORT_MAX_SLOTS ? most : FEDGE_COHORT_MAX_SLOTS;
    while (least < most && shared < capacity) {
        const uint32_t midpoint = least + (most - least + 1) / 2;
        if (bytes_of(self, midpoint) <= capacity - shared)
            least = midpoint;
        else
            most = midpoint - 1;
    }
    self->num_slots = least;
    if (least == 0) {
        return fedge_fail(err, FEDGE_NO_MEMORY,
                          "GPU %d has %zu MiB free, and %zu MiB are needed: %zu for the examples "
                          "and the model, %zu for one client in training: use a smaller "
                          "batch-size or model, or --engine cpu",
                          self->config.gpu, there >> 20, (shared + bytes_of(self, 1)) >> 20,
                          shared >> 20, bytes_of(self, 1) >> 20);
    }
    self->run = fedge_cohort_run_of(&self->plan, least);
    return FEDGE_OK;
}

static fedge_status make_event(const fedge_cohort *self, cudaEvent_t *event, fedge_error *err)
{
    const unsigned flags = cudaEventDisableTiming | cudaEventBlockingSync;
    return fedge_cohort_cuda(self, cudaEventCreateWithFlags(event, flags), "making an event", err);
}

static fedge_status make_upload(fedge_cohort *self, fedge_cohort_upload *upload, fedge_error *err)
{
    const size_t steps = (size_t)self->run * self->num_slots, examples = steps * self->plan.batch;
    const size_t moves = self->plan.augments ? examples * sizeof(*upload->moves) : 0;
    FEDGE_TRY(fedge_cohort_allocate(self, &upload->slot_steps, steps * sizeof(*upload->slot_steps),
                                    true, err));
    FEDGE_TRY(fedge_cohort_allocate(self, &upload->indices, examples * sizeof(*upload->indices),
                                    true, err));
    if (moves > 0)
        FEDGE_TRY(fedge_cohort_allocate(self, &upload->moves, moves, true, err));
    return make_event(self, &upload->done, err);
}

static fedge_status make_ending(fedge_cohort *self, fedge_cohort_ending *ending, fedge_error *err)
{
    /* A silo copies one model back, in its first ending. */
    const bool brings = self->plan.split.num_parts == 0 || ending == self->endings;
    const size_t model = self->plan.num_state * sizeof(float);
    if (brings)
        FEDGE_TRY(fedge_cohort_allocate(self, &ending->values, model, true, err));
    FEDGE_TRY(fedge_cohort_allocate(self, &ending->tally, sizeof(*ending->tally), true, err));
    return make_event(self, &ending->done, err);
}

static fedge_status make_host(fedge_cohort *self, fedge_error *err)
{
    const size_t model = self->plan.num_state * sizeof(float);
    for (uint32_t i = 0; i < 2; i++) {
        FEDGE_TRY(make_upload(self, &self->upload[i], err));
        FEDGE_TRY(fedge_cohort_allocate(self, &self->staging[i], model, true, err));
        FEDGE_TRY(make_event(self, &self->staged[i], err));
    }
    for (uint32_t i = 0; i < FEDGE_COHORT_RING; i++)
        FEDGE_TRY(make_ending(self, &self->endings[i], err));
    for (uint32_t i = 0; i < self->plan.num_states && self->plan.split.states_on_host; i++) {
        const size_t size =
            fedge_cohort_num_state_values(&self->plan) * fedge_cohort_state_size(&self->plan);
        FEDGE_TRY(fedge_cohort_allocate(self, &self->host_states[i], size, true, err));
        self->arrays.states[i] = self->host_states[i];
    }
    const size_t chunks = (size_t)fedge_cohort_members(&self->config) * self->config.num_chunks;
    if (chunks > 0) {
        FEDGE_TRY(
            fedge_cohort_allocate(self, &self->chunks, chunks * sizeof(*self->chunks), true, err));
    }
    const size_t predicted = (size_t)self->run * self->num_slots * self->plan.batch;
    return fedge_cohort_allocate(self, &self->predicted, predicted * sizeof(int32_t), true, err);
}

/* ---- examples -------------------------------------------------------------------------------- */

/* Copies to the GPU through a pinned buffer, and waits. */
static fedge_status upload(fedge_cohort *self, const void *to, const void *from, size_t size,
                           char *pinned, fedge_error *err)
{
    cudaError_t error = cudaSuccess;
    for (size_t at = 0; at < size && error == cudaSuccess;) {
        const size_t part = size - at < UPLOAD ? size - at : UPLOAD;
        char *address;
        memcpy(&address, &to, sizeof(address));
        memcpy(pinned, (const char *)from + at, part);
        error = cudaMemcpyAsync(address + at, pinned, part, cudaMemcpyHostToDevice, self->stream);
        /* The next part needs the buffer. Waiting costs little once in a cohort's life. */
        if (error == cudaSuccess)
            error = cudaStreamSynchronize(self->stream);
        at += part;
    }
    return fedge_cohort_cuda(self, error, "bringing the examples to it", err);
}

static fedge_status upload_all(fedge_cohort *self, char *pinned, fedge_error *err)
{
    const fedge_cohort_config *config = &self->config;
    const size_t channels = config->num_channels * sizeof(float);
    const size_t example = self->plan.input * (config->dtype == FEDGE_U8 ? 1 : sizeof(float));
    FEDGE_TRY(upload(self, self->arrays.mean, config->mean, channels, pinned, err));
    FEDGE_TRY(upload(self, self->arrays.std, config->std, channels, pinned, err));
    for (uint32_t i = 0; i < FEDGE_COHORT_SETS; i++) {
        const fedge_cohort_examples *set = &config->sets[i];
        const fedge_cohort_set *to = &self->arrays.sets[i];
        const size_t labels = set->count * sizeof(int32_t);
        FEDGE_TRY(upload(self, to->values, set->values, set->count * example, pinned, err));
        FEDGE_TRY(upload(self, to->labels, set->labels, labels, pinned, err));
    }
    return FEDGE_OK;
}

/* The kernels read the output that a label names, so labels must be below the number of outputs. A
 * single output of a regression takes any label as its target. */
static fedge_status check_labels(const fedge_cohort *self, fedge_error *err)
{
    const bool logits = self->plan.loss == FEDGE_COHORT_BCE_WITH_LOGITS;
    const bool any =
        self->plan.classes == 1 && !logits && self->plan.loss != FEDGE_COHORT_CROSS_ENTROPY;
    const uint32_t most = self->plan.classes == 1 && logits ? 2 : self->plan.classes;
    for (uint32_t s = 0; s < FEDGE_COHORT_SETS; s++) {
        const fedge_cohort_examples *set = &self->config.sets[s];
        for (uint32_t i = 0; i < set->count; i++) {
            if (!any && (uint32_t)set->labels[i] >= most) {
                return fedge_fail(
                    err, FEDGE_OUT_OF_RANGE,
                    "example %u has label %d, and the model's outputs are for 0 to %u", i,
                    (int)set->labels[i], most - 1);
            }
        }
    }
    return FEDGE_OK;
}

static float value_of(const fedge_cohort_config *config, const fedge_cohort_examples *set,
                      size_t at, size_t channel)
{
    const uint8_t *bytes = set->values;
    const float *floats = set->values;
    const float v = config->dtype == FEDGE_U8 ? (float)bytes[at] : floats[at];
    const size_t c = config->num_channels > 1 ? channel : 0;
    const float x = v / config->divide_by;
    return config->num_channels > 0 ? (x - config->mean[c]) / config->std[c] : x;
}

/* The kernels read the row that an index names, so indices must be below the number of rows. */
static fedge_status check_indices(const fedge_cohort *self, uint32_t rows, fedge_error *err)
{
    const size_t count = self->plan.input;
    const uint32_t channels = self->config.num_channels > 1 ? self->config.num_channels : 1;
    for (uint32_t s = 0; s < FEDGE_COHORT_SETS; s++) {
        const fedge_cohort_examples *set = &self->config.sets[s];
        for (size_t i = 0; i < set->count * count; i++) {
            const float x = value_of(&self->config, set, i, i % count / (count / channels));
            if (!(x >= 0.0f && x < (float)rows) || (float)(uint32_t)x != x) {
                return fedge_fail(err, FEDGE_OUT_OF_RANGE,
                                  "index %g at place %zu of example %zu is not a whole number in 0 "
                                  "to %u",
                                  (double)x, i % count, i / count, (unsigned)rows - 1);
            }
        }
    }
    return FEDGE_OK;
}

static fedge_status check_examples(const fedge_cohort *self, fedge_error *err)
{
    FEDGE_TRY(check_labels(self, err));
    for (uint32_t i = 0; i < self->plan.num_layers; i++) {
        const fedge_layer_spec *layer = &self->plan.layers[i].spec;
        if (layer->type == FEDGE_LAYER_EMBEDDING)
            FEDGE_TRY(check_indices(self, layer->u.embedding.num_embeddings, err));
    }
    return FEDGE_OK;
}

/* ---- life ------------------------------------------------------------------------------------ */

/* tf32 and bf16 came with compute capability 8.0. */
static fedge_status check_precision(const fedge_cohort *self, fedge_error *err)
{
    int major = 0, minor = 0;
    if (fedge_cohort_dropped_bits(&self->plan) == 0)
        return FEDGE_OK;
    cudaError_t error =
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, self->config.gpu);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, self->config.gpu);
    return error == cudaSuccess && major < 8
               ? fedge_fail(err, FEDGE_UNSUPPORTED,
                            "GPU %d has compute capability %d.%d, and precision %s wants 8.0: set "
                            "the job's precision to fp32",
                            self->config.gpu, major, minor,
                            fedge_precision_name(self->config.options->precision))
               : fedge_cohort_cuda(self, error, "asking what it can do", err);
}

/* Creates the GPU's context. Fails for a GPU that cannot be used. */
static fedge_status take_gpu(const fedge_cohort *self, fedge_error *err)
{
    size_t there = 0, total = 0;
    cudaError_t error = fedge_gpu_choose(self->config.gpu);
    if (error == cudaSuccess)
        error = cudaMemGetInfo(&there, &total);
    if (error == cudaSuccess)
        error = fedge_cohort_has_code();
    FEDGE_TRY(fedge_gpu_refused(self->config.gpu, error, "take another, or --engine cpu", err));
    return fedge_cohort_cuda(self, error, "choosing it", err);
}

/* Chooses the GPU and the number of slots. */
static fedge_status choose_gpu_and_slots(fedge_cohort *self, fedge_error *err)
{
    FEDGE_TRY(take_gpu(self, err));
    FEDGE_TRY(check_precision(self, err));
    return choose_slots(self, err);
}

/* What a failure leaves, fedge_cohort_free frees. */
static fedge_status open_on_gpu(fedge_cohort *self, fedge_error *err)
{
    char *pinned = NULL;
    FEDGE_TRY(choose_gpu_and_slots(self, err));
    /* The cohort does not wait for other work on CUDA's default stream. */
    FEDGE_TRY(fedge_cohort_cuda(self,
                                cudaStreamCreateWithFlags(&self->stream, cudaStreamNonBlocking),
                                "making a stream", err));
    const size_t shared =
        fedge_cohort_lay_out_shared(&self->plan, &self->config, &self->arrays, NULL);
    FEDGE_TRY(fedge_cohort_allocate(self, &self->shared_block, shared, false, err));
    FEDGE_TRY(fedge_cohort_allocate(self, &self->slot_block, bytes_of(self, self->num_slots), false,
                                    err));
    (void)fedge_cohort_lay_out_shared(&self->plan, &self->config, &self->arrays,
                                      self->shared_block);
    (void)fedge_cohort_lay_out_slots(&self->plan, &self->arrays, self->slot_block, self->num_slots,
                                     self->run);
    FEDGE_TRY(make_host(self, err));
    FEDGE_TRY(fedge_cohort_allocate(self, &pinned, UPLOAD, true, err));
    const fedge_status status = upload_all(self, pinned, err);
    (void)cudaFreeHost(pinned);
    return status;
}

/* Makes a cohort that has a plan and nothing on the GPU. */
static fedge_status make_planned(const fedge_cohort_config *config, fedge_cohort **cohort,
                                 fedge_error *err)
{
    uint32_t there = 0;
    *cohort = NULL;
    FEDGE_TRY(fedge_cohort_count_gpus(&there, err));
    if (config->gpu < 0 || (uint32_t)config->gpu >= there) {
        return fedge_fail(err, FEDGE_NOT_FOUND, "GPU %d is not there: there are 0 to %u",
                          config->gpu, there - 1);
    }
    fedge_cohort *fresh = calloc(1, sizeof(*fresh));
    if (!fresh)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a cohort");
    fresh->config = *config;
    const fedge_status status = fedge_cohort_plan_make(&fresh->plan, config, err);
    if (status == FEDGE_OK)
        *cohort = fresh;
    else
        free(fresh);
    return status;
}

fedge_status fedge_cohort_check_gpu(const fedge_cohort_config *config, fedge_error *err)
{
    fedge_cohort *planned = NULL;
    FEDGE_TRY(make_planned(config, &planned, err));
    const fedge_status status = choose_gpu_and_slots(planned, err);
    free(planned);
    return status;
}

fedge_status fedge_cohort_new(const fedge_cohort_config *config, fedge_cohort **cohort,
                              fedge_error *err)
{
    fedge_cohort *fresh = NULL;
    *cohort = NULL;
    FEDGE_TRY(make_planned(config, &fresh, err));
    fedge_status status = FEDGE_OK;
    FEDGE_TRY_OR(check_examples(fresh, err), failed);
    FEDGE_TRY_OR(open_on_gpu(fresh, err), failed);
    fresh->slots = calloc(fresh->num_slots, sizeof(*fresh->slots));
    if (fresh->slots) {
        *cohort = fresh;
        return FEDGE_OK;
    }
    status = fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a cohort's slots");
failed:
    fedge_cohort_free(fresh);
    return status;
}

static void free_host(fedge_cohort *self)
{
    for (uint32_t i = 0; i < 2; i++) {
        (void)cudaFreeHost(self->upload[i].slot_steps);
        (void)cudaFreeHost(self->upload[i].indices);
        (void)cudaFreeHost(self->upload[i].moves);
        (void)cudaFreeHost(self->staging[i]);
        if (self->upload[i].done)
            (void)cudaEventDestroy(self->upload[i].done);
        if (self->staged[i])
            (void)cudaEventDestroy(self->staged[i]);
    }
    for (uint32_t i = 0; i < FEDGE_COHORT_RING; i++) {
        (void)cudaFreeHost(self->endings[i].values);
        (void)cudaFreeHost(self->endings[i].tally);
        if (self->endings[i].done)
            (void)cudaEventDestroy(self->endings[i].done);
    }
    for (uint32_t i = 0; i < 2; i++)
        (void)cudaFreeHost(self->host_states[i]);
    (void)cudaFreeHost(self->predicted);
    (void)cudaFreeHost(self->chunks);
}

void fedge_cohort_free(fedge_cohort *cohort)
{
    if (!cohort)
        return;
    /* The thread may have made another GPU its current one. */
    (void)cudaSetDevice(cohort->config.gpu);
    fedge_cohort_forget_graphs(cohort);
    if (cohort->stream) {
        (void)cudaStreamSynchronize(cohort->stream);
        (void)cudaStreamDestroy(cohort->stream);
    }
    free_host(cohort);
    (void)cudaFree(cohort->slot_block);
    (void)cudaFree(cohort->shared_block);
    for (uint32_t i = 0; cohort->slots && i < cohort->num_slots; i++)
        free(cohort->slots[i].order);
    free(cohort->slots);
    free(cohort);
}

uint32_t fedge_cohort_slots(const fedge_cohort *cohort)
{
    return cohort->num_slots;
}
