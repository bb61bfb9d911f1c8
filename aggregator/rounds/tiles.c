#include "aggregator/rounds/tiles.h"

#include <assert.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "aggregator/reduce/rows.h"
#include "aggregator/threads/worker_pool.h"

/* Visits that process rows on the CPU have buffers of one chunk (ifca.c). */
static_assert(FEDGE_DOTS_COUNT <= FEDGE_UPDATES_CHUNK, "a tile of the CPU is at most a chunk");

/* ---- memory ---------------------------------------------------------------------------------- */

/* Bytes of a Gram matrix's sums. */
static uint64_t gram_sums_bytes(uint32_t num)
{
    return (uint64_t)num * (num + 1) / 2 * sizeof(fedge_tile_sum);
}

/* Bytes of a matrix and of the sums of all threads. */
static uint64_t gram_bytes(uint32_t num)
{
    return (uint64_t)num * num * sizeof(double) + gram_sums_bytes(num);
}

static uint64_t thread_bytes(uint32_t num, size_t size, bool mixing)
{
    const uint64_t rows = (uint64_t)num * (mixing ? 2 : 1);
    return rows * ((size + FEDGE_TILE_APART) * sizeof(int32_t) + 2 * sizeof(int32_t *)) +
           size * sizeof(int64_t) + gram_sums_bytes(num);
}

static uint64_t shared_bytes(uint32_t num, uint32_t num_far)
{
    return gram_bytes(num) + (uint64_t)num * num_far * sizeof(uint32_t);
}

uint64_t fedge_tiles_least_bytes(uint32_t num)
{
    return shared_bytes(num, num) + thread_bytes(num, FEDGE_CODEC_BLOCK, true);
}

uint64_t fedge_tiles_bytes(uint32_t num, uint32_t num_threads)
{
    return shared_bytes(num, num) + thread_bytes(num, FEDGE_UPDATES_CHUNK, true) * num_threads;
}

/* Reduces the size of tiles first, then the number of threads. */
static fedge_status fit(fedge_tiles *tiles, uint64_t memory, bool mixing, fedge_error *err)
{
    const uint64_t shared = shared_bytes(tiles->num, mixing ? tiles->num : 0);
    const uint64_t least = shared + thread_bytes(tiles->num, FEDGE_CODEC_BLOCK, mixing);
    if (memory < least) {
        return fedge_fail(err, FEDGE_NO_MEMORY,
                          "the rule takes %" PRIu64 " bytes for %u updates and may take %" PRIu64
                          ": raise --robust-memory, or lower rounds.max-cohort",
                          least, (unsigned)tiles->num, memory);
    }
    while (tiles->num_threads > 1 && (memory - shared) / tiles->num_threads <
                                         thread_bytes(tiles->num, FEDGE_CODEC_BLOCK, mixing))
        tiles->num_threads--;
    while (tiles->size > FEDGE_CODEC_BLOCK &&
           (memory - shared) / tiles->num_threads < thread_bytes(tiles->num, tiles->size, mixing))
        tiles->size /= 2;
    return FEDGE_OK;
}

/* Opens the accumulator's backend, or the CPU's when that lacks memory. */
static fedge_status open_tiles(fedge_tiles *tiles, void *hardware, bool mixing, fedge_error *err)
{
    const fedge_tile_config config = {
        .num = tiles->num, .num_threads = tiles->num_threads, .size = tiles->size, .mixes = mixing};
    fedge_error why;
    fedge_status status = tiles->ops->open(hardware, &config, &tiles->state, &why);
    if (status == FEDGE_NO_MEMORY && tiles->ops != &fedge_tile_cpu) {
        tiles->ops = &fedge_tile_cpu;
        status = tiles->ops->open(NULL, &config, &tiles->state, &why);
    }
    return status == FEDGE_OK ? status : fedge_fail(err, status, "%s", why.message);
}

/* Threads live only as long as the tiles, since most runs have no such step. A step makes up to
 * three passes: distances, distances of mixed rows, the rule. The caller is the first thread; fewer
 * threads than wanted give the same result. */
static fedge_status start_helpers(fedge_tiles *tiles, fedge_error *err)
{
    const fedge_worker_pool_config config = {.name = "helper of a robust rule",
                                             .thread = "fedge-tiles",
                                             .num_workers = tiles->num_threads - 1,
                                             .allow_fewer = true};
    return fedge_worker_pool_new(&tiles->helpers, &config, err);
}

fedge_status fedge_tiles_init(fedge_tiles *tiles, const fedge_strategy_sum *sum, bool mixing,
                              fedge_error *err)
{
    const uint32_t num = sum->updates->num;
    void *hardware = NULL;
    uint32_t num_devices = 1;
    *tiles = (fedge_tiles){.sum = sum, .num = num, .num_read = num};
    tiles->ops = fedge_accumulator_tiles(sum->accumulator, &hardware, &num_devices);
    tiles->num_threads = sum->num_threads > num_devices ? sum->num_threads : num_devices;
    tiles->size = tiles->ops->size;
    FEDGE_TRY(fit(tiles, sum->memory, mixing, err));
    FEDGE_TRY(open_tiles(tiles, hardware, mixing, err));
    const fedge_status status = start_helpers(tiles, err);
    if (status != FEDGE_OK) {
        fedge_tiles_fini(tiles);
        return status;
    }
    const fedge_schema *schema = sum->delta.schema;
    for (uint32_t t = 0; t < schema->num_tensors; t++)
        tiles->num_tiles += (schema->tensors[t].count + tiles->size - 1) / tiles->size;
    return FEDGE_OK;
}

void fedge_tiles_fini(fedge_tiles *tiles)
{
    fedge_worker_pool_free(tiles->helpers);
    if (tiles->ops)
        tiles->ops->close(tiles->state);
    free(tiles->far);
    *tiles = (fedge_tiles){0};
}

void fedge_tiles_read_only(fedge_tiles *tiles, const uint32_t *order, uint32_t num)
{
    assert(!tiles->mixed && num >= 1 && num <= tiles->num);
    tiles->order = order;
    tiles->num_read = num;
}

/* ---- mixing ---------------------------------------------------------------------------------- */

typedef struct distance {
    double square;
    uint32_t index;
} distance;

/* The farthest first. */
static int by_distance(const void *a, const void *b)
{
    const distance *x = a, *y = b;
    if (x->square != y->square)
        return x->square < y->square ? 1 : -1;
    return (x->index < y->index) - (x->index > y->index);
}

fedge_status fedge_tiles_mix(fedge_tiles *tiles, const double *squares, uint32_t num_mixed,
                             uint32_t num_far, fedge_error *err)
{
    distance *order = malloc(num_mixed * sizeof(*order) + 1);
    uint32_t *far = malloc((size_t)num_mixed * num_far * sizeof(*far) + 1);
    fedge_status status = FEDGE_OK;
    free(tiles->far);
    tiles->far = far;
    if (!order || !far) {
        status =
            fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %u neighbours", (unsigned)num_mixed);
        goto done;
    }
    for (uint32_t i = 0; i < num_mixed; i++) {
        for (uint32_t j = 0; j < num_mixed; j++)
            order[j] = (distance){squares[(size_t)i * tiles->num + j], j};
        qsort(order, num_mixed, sizeof(*order), by_distance);
        for (uint32_t k = 0; k < num_far; k++)
            far[(size_t)i * num_far + k] = order[k].index;
    }
    status = tiles->ops->mix(tiles->state, far, num_far, num_mixed, err);

done:
    tiles->mixed = true;
    free(order);
    return status;
}

/* ---- a pass ---------------------------------------------------------------------------------- */

typedef struct pass {
    fedge_tiles *tiles;
    fedge_tile_fn visit;
    void *user;
    atomic_size_t next; /* index of the next tile */
    atomic_bool failed;
    struct ending *endings; /* (num_threads) */
} pass;

typedef struct ending {
    fedge_status status;
    fedge_error error;
} ending;

static fedge_tile find_tile(const fedge_tiles *tiles, size_t index)
{
    const fedge_schema *schema = tiles->sum->delta.schema;
    uint32_t t = 0;
    for (;; t++) {
        const size_t in_tensor = (schema->tensors[t].count + tiles->size - 1) / tiles->size;
        if (index < in_tensor)
            break;
        index -= in_tensor;
    }
    const fedge_tensor_spec *tensor = &schema->tensors[t];
    const size_t at = index * tiles->size, left = tensor->count - at;
    return (fedge_tile){.tensor = t,
                        .first = tensor->offset - schema->tensors[0].offset + at,
                        .count = left < tiles->size ? left : tiles->size,
                        .num = tiles->num_read};
}

/* Reads a row chunk by chunk. */
static fedge_status read_row(const fedge_tiles *tiles, uint32_t index, const fedge_tile *tile,
                             int32_t *row, fedge_error *err)
{
    const fedge_updates *updates = tiles->sum->updates;
    const fedge_tensor_spec *tensors = tiles->sum->delta.schema->tensors;
    const size_t first = tile->first - (tensors[tile->tensor].offset - tensors[0].offset);
    fedge_status status = FEDGE_OK;
    for (size_t at = 0; at < tile->count && status == FEDGE_OK; at += FEDGE_UPDATES_CHUNK) {
        const size_t left = tile->count - at;
        status =
            updates->read(updates->user, index, tile->tensor, first + at,
                          left < FEDGE_UPDATES_CHUNK ? left : FEDGE_UPDATES_CHUNK, row + at, err);
    }
    return status;
}

static fedge_status take_tile(const pass *of, uint32_t thread, size_t index, fedge_error *err)
{
    const fedge_tiles *tiles = of->tiles;
    fedge_tile tile = find_tile(tiles, index);
    tile.thread = thread;
    tile.rows = tiles->ops->rows(tiles->state, tile.thread, tile.num, tile.count);
    for (uint32_t i = 0; i < tile.num; i++)
        FEDGE_TRY(read_row(tiles, tiles->order ? tiles->order[i] : i, &tile, tile.rows[i], err));
    FEDGE_TRY(tiles->ops->load(tiles->state, tile.thread, tile.num, tile.count, err));
    return of->visit(of->user, &tile, err);
}

/* Threads take tiles dynamically. The assignment changes no bits: each tile's result is written to
 * separate memory or is an integer sum. */
static void take_tiles(pass *of, uint32_t thread)
{
    ending *end = &of->endings[thread];
    while (end->status == FEDGE_OK && !atomic_load(&of->failed)) {
        const size_t index = atomic_fetch_add(&of->next, 1);
        if (index >= of->tiles->num_tiles)
            break;
        end->status = take_tile(of, thread, index, &end->error);
    }
    if (end->status != FEDGE_OK)
        atomic_store(&of->failed, true);
}

static void help(void *user, uint32_t worker)
{
    take_tiles(user, worker + 1);
}

fedge_status fedge_tiles_each(fedge_tiles *tiles, fedge_tile_fn visit, void *user, fedge_error *err)
{
    pass of = {.tiles = tiles, .visit = visit, .user = user};
    of.endings = calloc(tiles->num_threads, sizeof(*of.endings));
    if (!of.endings) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %u threads",
                          (unsigned)tiles->num_threads);
    }
    fedge_worker_pool_begin(tiles->helpers, help, &of);
    take_tiles(&of, 0);
    fedge_worker_pool_end(tiles->helpers);
    fedge_status status = FEDGE_OK;
    for (uint32_t i = 0; i < tiles->num_threads && status == FEDGE_OK; i++) {
        status = of.endings[i].status;
        if (status != FEDGE_OK && err)
            *err = of.endings[i].error;
    }
    free(of.endings);
    return status;
}
