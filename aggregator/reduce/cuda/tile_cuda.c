#include "aggregator/reduce/cuda/accumulator_cuda.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/reduce/cuda/tile_kernels.h"

#define STRIDE 32 /* values; a row begins at a multiple, which is a cache line of the GPU */

struct fedge_cuda_tile_lane {
    fedge_cuda_gpu *gpu;
    cudaStream_t stream;
    int32_t *pinned, *values; /* (num, size): rows on the host, and on the GPU */
    int32_t *mixed;           /* [values] after mixing; NULL: no mixing */
    int64_t *pinned_sums, *sums;
    uint32_t *pinned_lists, *lists; /* (2, num): the selected rows, then their weights */
    int32_t **rows;                 /* (num): pointers into pinned */
    uint64_t stride;                /* stride of the present tile */
};

static const char DOING[] = "going through updates";

static fedge_cuda_tile_lane *lane_of(void *state, uint32_t thread)
{
    return &((fedge_cuda_tiles *)state)->lanes[thread];
}

/* ---- life ------------------------------------------------------------------------------------ */

static void free_lane(fedge_cuda_tile_lane *lane)
{
    /* Freeing on a lost GPU fails, and the errors say nothing new. */
    if (!lane->gpu || fedge_cuda_gpu_use(lane->gpu, NULL) != FEDGE_OK)
        return;
    if (lane->stream)
        (void)cudaStreamDestroy(lane->stream);
    (void)cudaFreeHost(lane->pinned);
    (void)cudaFree(lane->values);
    (void)cudaFree(lane->mixed);
    (void)cudaFreeHost(lane->pinned_sums);
    (void)cudaFree(lane->sums);
    (void)cudaFreeHost(lane->pinned_lists);
    (void)cudaFree(lane->lists);
}

void fedge_cuda_tiles_fini(fedge_cuda_tiles *tiles)
{
    for (uint32_t t = 0; tiles->lanes && t < tiles->capacity.num_threads; t++) {
        free_lane(&tiles->lanes[t]);
        free(tiles->lanes[t].rows);
    }
    for (uint32_t g = 0; tiles->lanes && g < tiles->team->num_gpus; g++) {
        const fedge_cuda_tile_gpu *tile_gpu = &tiles->gpus[g];
        atomic_store(&tiles->team->gpus[g].tile_bytes, 0);
        if (fedge_cuda_gpu_use(&tiles->team->gpus[g], NULL) != FEDGE_OK)
            continue;
        (void)cudaFree(tile_gpu->far);
        (void)cudaFree(tile_gpu->dots);
        (void)cudaFreeHost(tile_gpu->pinned_dots);
    }
    free(tiles->lanes);
    *tiles = (fedge_cuda_tiles){.team = tiles->team, .log = tiles->log};
}

static fedge_status take_both(const fedge_cuda_gpu *gpu, void *pinned, void *device, size_t size,
                              fedge_error *err)
{
    FEDGE_TRY(fedge_cuda_gpu_take(gpu, pinned, size, true, err));
    return fedge_cuda_gpu_take(gpu, device, size, false, err);
}

static fedge_status make_lane(fedge_cuda_tile_lane *lane, const fedge_tile_config *config,
                              fedge_error *err)
{
    const size_t rows = config->num * config->size * sizeof(int32_t);
    FEDGE_TRY(fedge_cuda_gpu_use(lane->gpu, err));
    FEDGE_TRY(fedge_cuda_check(lane->gpu,
                               cudaStreamCreateWithFlags(&lane->stream, cudaStreamNonBlocking),
                               "making a stream", err));
    FEDGE_TRY(take_both(lane->gpu, &lane->pinned, &lane->values, rows, err));
    if (config->mixes)
        FEDGE_TRY(fedge_cuda_gpu_take(lane->gpu, &lane->mixed, rows, false, err));
    FEDGE_TRY(take_both(lane->gpu, &lane->pinned_sums, &lane->sums,
                        config->size * sizeof(*lane->sums), err));
    FEDGE_TRY(take_both(lane->gpu, &lane->pinned_lists, &lane->lists,
                        2 * (size_t)config->num * sizeof(*lane->lists), err));
    lane->rows = malloc(config->num * sizeof(*lane->rows));
    return lane->rows ? FEDGE_OK : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a tile's rows");
}

static fedge_status make_gpu(const fedge_cuda_gpu *gpu, fedge_cuda_tile_gpu *tile_gpu,
                             const fedge_tile_config *config, fedge_error *err)
{
    const size_t num = config->num,
                 dots = 2 * fedge_tile_pairs(config->num) * sizeof(*tile_gpu->dots);
    FEDGE_TRY(fedge_cuda_gpu_use(gpu, err));
    FEDGE_TRY(take_both(gpu, &tile_gpu->pinned_dots, &tile_gpu->dots, dots, err));
    return config->mixes ? fedge_cuda_gpu_take(gpu, &tile_gpu->far,
                                               num * num * sizeof(*tile_gpu->far), false, err)
                         : FEDGE_OK;
}

/* The bytes allocated on the GPUs. */
static void count_bytes(const fedge_cuda_tiles *self, const fedge_tile_config *config)
{
    const uint64_t num = config->num, rows = num * config->size * sizeof(int32_t);
    const uint64_t lane = (config->mixes ? 2 : 1) * rows + config->size * sizeof(int64_t) +
                          2 * num * sizeof(uint32_t);
    const uint64_t tile_gpu = 2 * fedge_tile_pairs(config->num) * sizeof(*self->gpus[0].dots) +
                              (config->mixes ? num * num * sizeof(*self->gpus[0].far) : 0);
    for (uint32_t t = 0; t < config->num_threads; t++)
        (void)atomic_fetch_add(&self->lanes[t].gpu->tile_bytes, lane);
    for (uint32_t g = 0; g < self->team->num_gpus; g++)
        (void)atomic_fetch_add(&self->team->gpus[g].tile_bytes, tile_gpu);
}

static fedge_status make_all(fedge_cuda_tiles *self, const fedge_tile_config *config,
                             fedge_error *err)
{
    fedge_cuda_team *team = self->team;
    assert(team->num_gpus > 0);
    self->lanes = calloc(config->num_threads, sizeof(*self->lanes));
    if (!self->lanes)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %u lanes", config->num_threads);
    self->capacity = *config;
    for (uint32_t g = 0; g < team->num_gpus; g++)
        FEDGE_TRY(make_gpu(&team->gpus[g], &self->gpus[g], config, err));
    for (uint32_t t = 0; t < config->num_threads; t++) {
        /* Every GPU has at least one thread (tiles.c). */
        self->lanes[t].gpu = &team->gpus[t % team->num_gpus];
        FEDGE_TRY(make_lane(&self->lanes[t], config, err));
    }
    count_bytes(self, config);
    return FEDGE_OK;
}

static bool has_capacity(const fedge_cuda_tiles *self, const fedge_tile_config *config)
{
    const fedge_tile_config *capacity = &self->capacity;
    return self->lanes && config->num <= capacity->num &&
           config->num_threads <= capacity->num_threads && config->size <= capacity->size &&
           (capacity->mixes || !config->mixes);
}

static fedge_status empty_dots(fedge_cuda_tiles *self, fedge_error *err)
{
    const size_t size = 2 * fedge_tile_pairs(self->capacity.num) * sizeof(*self->gpus[0].dots);
    for (uint32_t g = 0; g < self->team->num_gpus; g++) {
        const fedge_cuda_gpu *gpu = &self->team->gpus[g];
        FEDGE_TRY(fedge_cuda_gpu_use(gpu, err));
        cudaError_t error = cudaMemsetAsync(self->gpus[g].dots, 0, size, gpu->stream);
        if (error == cudaSuccess)
            error = fedge_cuda_wait_stream(gpu, gpu->stream);
        FEDGE_TRY(fedge_cuda_check(gpu, error, DOING, err));
    }
    return FEDGE_OK;
}

static fedge_status make_ready(fedge_cuda_tiles *self, const fedge_tile_config *config,
                               fedge_error *err)
{
    /* Memory of an earlier step is reused: allocation would stop all work on a GPU. */
    if (!has_capacity(self, config)) {
        fedge_cuda_tiles_fini(self);
        FEDGE_TRY(make_all(self, config, err));
        if (self->log) {
            FEDGE_LOG(self->log, FEDGE_LOG_INFO, "robust-rule", fedge_log_str("kind", "cuda"),
                      fedge_log_int("gpus", self->team->num_gpus),
                      fedge_log_int("threads", config->num_threads),
                      fedge_log_int("updates", config->num),
                      fedge_log_int("coordinates-of-a-tile", (int64_t)config->size));
        }
    }
    self->mixed = false;
    self->num = config->num;
    return empty_dots(self, err);
}

static fedge_status cuda_open(void *tiles, const fedge_tile_config *config, void **state,
                              fedge_error *err)
{
    fedge_cuda_tiles *self = tiles;
    fedge_error why = {0};
    *state = NULL;
    const fedge_status status = make_ready(self, config, &why);
    if (status != FEDGE_OK) {
        fedge_cuda_tiles_fini(self);
        if (status == FEDGE_NO_MEMORY && self->log) {
            FEDGE_LOG(self->log, FEDGE_LOG_WARN, "robust-rule-on-cpu",
                      fedge_log_str("why", why.message),
                      fedge_log_str("advice", "lower --robust-memory or rounds.max-cohort, or take "
                                              "more GPUs by coordinates"));
        }
        return fedge_fail(err, status, "%s", why.message);
    }
    *state = self;
    return FEDGE_OK;
}

static void cuda_close(void *state)
{
    (void)state; /* the memory stays until fedge_cuda_tiles_fini */
}

/* ---- a tile ---------------------------------------------------------------------------------- */

static fedge_status cuda_mix(void *state, const uint32_t *far, uint32_t num_far, uint32_t num_mixed,
                             fedge_error *err)
{
    fedge_cuda_tiles *self = state;
    const size_t size = (size_t)num_mixed * num_far * sizeof(*far);
    for (uint32_t g = 0; g < self->team->num_gpus && num_far > 0; g++) {
        FEDGE_TRY(fedge_cuda_gpu_use(&self->team->gpus[g], err));
        FEDGE_TRY(fedge_cuda_gpu_copy(&self->team->gpus[g], self->gpus[g].far, far, size, err));
    }
    self->num_far = num_far;
    self->num_mixed = num_mixed;
    self->mixed = true;
    return FEDGE_OK;
}

static int32_t **cuda_rows(void *state, uint32_t thread, uint32_t num, size_t count)
{
    fedge_cuda_tile_lane *lane = lane_of(state, thread);
    lane->stride = (count + STRIDE - 1) / STRIDE * STRIDE;
    for (uint32_t i = 0; i < num; i++)
        lane->rows[i] = lane->pinned + i * lane->stride;
    return lane->rows;
}

/* The tile on the GPU after load. */
static fedge_cuda_tile tile_of(const fedge_cuda_tiles *self, const fedge_cuda_tile_lane *lane,
                               uint32_t num, size_t count)
{
    return (fedge_cuda_tile){.values = self->mixed ? lane->mixed : lane->values,
                             .num = num,
                             .count = (uint32_t)count,
                             .stride = lane->stride};
}

static fedge_status cuda_load(void *state, uint32_t thread, uint32_t num, size_t count,
                              fedge_error *err)
{
    const fedge_cuda_tiles *self = state;
    const fedge_cuda_tile_lane *lane = &self->lanes[thread];
    /* Up to the end of the last row, whose padding is never read. */
    const size_t size = (num - 1) * lane->stride + count;
    FEDGE_TRY(fedge_cuda_gpu_use(lane->gpu, err));
    cudaError_t error =
        fedge_cuda_copy(lane->gpu, lane->values, lane->pinned, size * sizeof(*lane->values),
                        cudaMemcpyHostToDevice, lane->stream);
    if (error == cudaSuccess && self->mixed) {
        fedge_cuda_tile tile = tile_of(self, lane, num, count);
        tile.values = lane->values;
        error = fedge_cuda_mix(&tile, self->gpus[thread % self->team->num_gpus].far, self->num_far,
                               self->num_mixed, lane->mixed, lane->stream);
    }
    return fedge_cuda_check(lane->gpu, error, DOING, err);
}

static fedge_status cuda_dots(void *state, uint32_t thread, uint32_t num, size_t count, int shift,
                              fedge_tile_products products, fedge_error *err)
{
    const fedge_cuda_tiles *self = state;
    const fedge_cuda_tile_lane *lane = &self->lanes[thread];
    const fedge_cuda_tile tile = tile_of(self, lane, num, count);
    unsigned long long *dots = self->gpus[thread % self->team->num_gpus].dots;
    /* cuda_load has selected the GPU on this thread. All threads of a GPU add to the same integer
     * sums, in any order. */
    cudaError_t error = fedge_cuda_dots(&tile, shift, products, dots,
                                        dots + fedge_tile_pairs(self->capacity.num), lane->stream);
    /* The copy must end before the pinned rows are filled again. */
    if (error == cudaSuccess)
        error = fedge_cuda_wait_stream(lane->gpu, lane->stream);
    return fedge_cuda_check(lane->gpu, error, DOING, err);
}

static fedge_status take_dots_of(const fedge_cuda_tiles *self, uint32_t g, uint32_t num,
                                 fedge_tile_sum *sums, fedge_error *err)
{
    const fedge_cuda_gpu *gpu = &self->team->gpus[g];
    const fedge_cuda_tile_gpu *tile_gpu = &self->gpus[g];
    const size_t pairs = fedge_tile_pairs(self->capacity.num);
    FEDGE_TRY(fedge_cuda_gpu_use(gpu, err));
    cudaError_t error =
        fedge_cuda_copy(gpu, tile_gpu->pinned_dots, tile_gpu->dots,
                        2 * pairs * sizeof(*tile_gpu->dots), cudaMemcpyDeviceToHost, gpu->stream);
    if (error == cudaSuccess)
        error = fedge_cuda_wait_stream(gpu, gpu->stream);
    for (size_t p = 0; error == cudaSuccess && p < fedge_tile_pairs(num); p++) {
        sums[p].high += (int64_t)tile_gpu->pinned_dots[p];
        sums[p].low += (int64_t)tile_gpu->pinned_dots[pairs + p];
    }
    return fedge_cuda_check(gpu, error, DOING, err);
}

static fedge_status cuda_take_dots(void *state, uint32_t num, fedge_tile_sum *sums,
                                   fedge_error *err)
{
    fedge_cuda_tiles *self = state;
    fedge_status status = FEDGE_OK;
    memset(sums, 0, fedge_tile_pairs(num) * sizeof(*sums));
    for (uint32_t g = 0; g < self->team->num_gpus && status == FEDGE_OK; g++)
        status = take_dots_of(self, g, num, sums, err);
    /* The next pass starts from zero. */
    return status == FEDGE_OK ? empty_dots(self, err) : status;
}

/* Copies the lists of a choice to the GPU. */
static cudaError_t send_choice(const fedge_cuda_tiles *self, const fedge_cuda_tile_lane *lane,
                               const fedge_tile_choice *choice, fedge_cuda_rows *chosen)
{
    const size_t num = choice->num, size = num * sizeof(*lane->lists), behind = self->capacity.num;
    const bool weighs = choice->reduction == FEDGE_ROW_MEAN;
    cudaError_t error = cudaSuccess;
    *chosen = (fedge_cuda_rows){.rows = choice->rows ? lane->lists : NULL,
                                .weights = lane->lists + behind,
                                .num = choice->num};
    if (choice->rows) {
        memcpy(lane->pinned_lists, choice->rows, size);
        error = fedge_cuda_copy(lane->gpu, lane->lists, lane->pinned_lists, size,
                                cudaMemcpyHostToDevice, lane->stream);
    }
    if (weighs && error == cudaSuccess) {
        memcpy(lane->pinned_lists + behind, choice->weights, size);
        error = fedge_cuda_copy(lane->gpu, lane->lists + behind, lane->pinned_lists + behind, size,
                                cudaMemcpyHostToDevice, lane->stream);
    }
    return error;
}

static cudaError_t launch(const fedge_cuda_tile *tile, const fedge_cuda_rows *chosen,
                          const fedge_tile_choice *choice, const fedge_cuda_tile_lane *lane)
{
    const uint32_t num = choice->num, cut = choice->cut;
    switch (choice->reduction) {
    case FEDGE_ROW_MEDIAN:
        /* An even number of rows has two in the middle. */
        return fedge_cuda_between(tile, chosen, (num - 1) / 2, num / 2 + 1, lane->sums,
                                  lane->stream);
    case FEDGE_ROW_TRIMMED:
        return fedge_cuda_between(tile, chosen, cut, num - cut, lane->sums, lane->stream);
    case FEDGE_ROW_NEAREST:
        return fedge_cuda_nearest(tile, chosen, 2 * cut, lane->sums, lane->stream);
    default:
        return fedge_cuda_mean(tile, chosen, lane->sums, lane->stream);
    }
}

static fedge_status cuda_reduce(void *state, uint32_t thread, size_t count,
                                const fedge_tile_choice *choice, const int64_t **sums,
                                fedge_error *err)
{
    const fedge_cuda_tiles *self = state;
    const fedge_cuda_tile_lane *lane = &self->lanes[thread];
    const fedge_cuda_tile tile = tile_of(self, lane, choice->num, count);
    fedge_cuda_rows chosen;
    /* cuda_load has selected the GPU on this thread. */
    cudaError_t error = send_choice(self, lane, choice, &chosen);
    if (error == cudaSuccess)
        error = launch(&tile, &chosen, choice, lane);
    if (error == cudaSuccess) {
        error = fedge_cuda_copy(lane->gpu, lane->pinned_sums, lane->sums,
                                count * sizeof(*lane->sums), cudaMemcpyDeviceToHost, lane->stream);
    }
    if (error == cudaSuccess)
        error = fedge_cuda_wait_stream(lane->gpu, lane->stream);
    *sums = lane->pinned_sums;
    return fedge_cuda_check(lane->gpu, error, DOING, err);
}

const fedge_tile_ops fedge_tile_cuda = {
    .name = "cuda",
    .size = FEDGE_CUDA_TILE_SIZE,
    .open = cuda_open,
    .close = cuda_close,
    .mix = cuda_mix,
    .rows = cuda_rows,
    .load = cuda_load,
    .dots = cuda_dots,
    .take_dots = cuda_take_dots,
    .reduce = cuda_reduce,
};
