#include "aggregator/rounds/robust/tiles.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/fixed.h"

#define ALIGNMENT 64
#define MIX 512   /* coordinates whose sums are held at a time */
#define APART 160 /* between rows: or all would want the same places of a cache */

/* ---- memory ---------------------------------------------------------------------------------- */

/* Of the sums that a thread makes Gram matrices of. */
static uint64_t gram_sums_bytes(uint32_t num)
{
    return (uint64_t)num * (num + 1) / 2 * FEDGE_GRAM_SUM_BYTES;
}

/* Of both matrices. */
static uint64_t gram_bytes(uint32_t num)
{
    return (uint64_t)num * num * 2 * sizeof(double);
}

static uint64_t thread_bytes(uint32_t num, size_t size, bool mixing)
{
    const uint64_t rows = (uint64_t)num * (mixing ? 2 : 1);
    return rows * ((size + APART) * sizeof(int32_t) + sizeof(int32_t *)) + gram_sums_bytes(num);
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
    return shared_bytes(num, num) + thread_bytes(num, FEDGE_UPDATES_PIECE, true) * num_threads;
}

/* Smaller tiles first, then fewer threads. */
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

fedge_status fedge_tiles_init(fedge_tiles *tiles, const fedge_strategy_sum *sum, bool mixing,
                              fedge_error *err)
{
    const uint32_t num = sum->updates->num;
    *tiles = (fedge_tiles){
        .sum = sum, .num = num, .num_threads = sum->num_threads, .size = FEDGE_UPDATES_PIECE};
    const fedge_status status = fit(tiles, sum->memory, mixing, err);
    if (status != FEDGE_OK)
        return status;
    const fedge_schema *schema = sum->delta.schema;
    for (uint32_t t = 0; t < schema->num_tensors; t++)
        tiles->num_tiles += (schema->tensors[t].count + tiles->size - 1) / tiles->size;
    const size_t rows = (size_t)num * (mixing ? 2 : 1) * tiles->num_threads;
    tiles->values = aligned_alloc(ALIGNMENT, rows * (tiles->size + APART) * sizeof(int32_t));
    tiles->rows = malloc(rows * sizeof(int32_t *));
    tiles->far = mixing ? malloc((size_t)num * num * sizeof(uint32_t)) : NULL;
    if (!tiles->values || !tiles->rows || (mixing && !tiles->far)) {
        fedge_tiles_fini(tiles);
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %u updates side by side",
                          (unsigned)num);
    }
    for (size_t i = 0; i < rows; i++)
        tiles->rows[i] = tiles->values + i * (tiles->size + APART);
    return FEDGE_OK;
}

void fedge_tiles_fini(fedge_tiles *tiles)
{
    free(tiles->values);
    free(tiles->rows);
    free(tiles->far);
    *tiles = (fedge_tiles){0};
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

void fedge_tiles_mix(fedge_tiles *tiles, const double *squares, uint32_t num_far)
{
    /* The rows are not in use now. */
    distance *order = (distance *)tiles->values;
    static_assert(sizeof(distance) <= FEDGE_CODEC_BLOCK * sizeof(int32_t), "rows hold an order");
    for (uint32_t i = 0; i < tiles->num; i++) {
        for (uint32_t j = 0; j < tiles->num; j++)
            order[j] = (distance){squares[(size_t)i * tiles->num + j], j};
        qsort(order, tiles->num, sizeof(*order), by_distance);
        for (uint32_t k = 0; k < num_far; k++)
            tiles->far[(size_t)i * num_far + k] = order[k].index;
    }
    tiles->num_far = num_far;
    tiles->mixed = true;
}

/* Each row of [to] is the mean of all but those far from it: the sum of all less theirs. */
static void mix(const fedge_tiles *tiles, int32_t *const *from, int32_t *const *to, size_t count)
{
    int64_t all[MIX], sum[MIX];
    const uint32_t num_near = tiles->num - tiles->num_far;
    for (size_t at = 0; at < count; at += MIX) {
        const size_t n = count - at < MIX ? count - at : MIX;
        memset(all, 0, sizeof(all));
        for (uint32_t i = 0; i < tiles->num; i++) {
            for (size_t k = 0; k < n; k++)
                all[k] += from[i][at + k];
        }
        for (uint32_t i = 0; i < tiles->num; i++) {
            memcpy(sum, all, sizeof(sum));
            for (uint32_t j = 0; j < tiles->num_far; j++) {
                const int32_t *less = from[tiles->far[(size_t)i * tiles->num_far + j]] + at;
                for (size_t k = 0; k < n; k++)
                    sum[k] -= less[k];
            }
            for (size_t k = 0; k < n; k++)
                to[i][at + k] = (int32_t)rint((double)sum[k] / num_near);
        }
    }
}

/* ---- a pass ---------------------------------------------------------------------------------- */

typedef struct pass {
    fedge_tiles *tiles;
    fedge_tile_fn visit;
    void *user;
    atomic_size_t next; /* tile */
    atomic_bool failed;
} pass;

typedef struct worker {
    pass *of;
    uint32_t thread;
    fedge_status status;
    fedge_error error;
    pthread_t id;
} worker;

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
                        .num = tiles->num};
}

static fedge_status take_tile(worker *self, size_t index)
{
    const fedge_tiles *tiles = self->of->tiles;
    const fedge_updates *updates = tiles->sum->updates;
    const size_t stride = (size_t)tiles->num * (tiles->far ? 2 : 1);
    int32_t **rows = tiles->rows + stride * self->thread;
    fedge_tile tile = find_tile(tiles, index);
    const fedge_schema *schema = tiles->sum->delta.schema;
    const size_t at =
        tile.first - (schema->tensors[tile.tensor].offset - schema->tensors[0].offset);
    fedge_status status = FEDGE_OK;
    for (uint32_t i = 0; i < tiles->num && status == FEDGE_OK; i++) {
        status =
            updates->read(updates->user, i, tile.tensor, at, tile.count, rows[i], &self->error);
    }
    if (status != FEDGE_OK)
        return status;
    tile.rows = rows;
    tile.thread = self->thread;
    if (tiles->mixed && tiles->far) {
        mix(tiles, rows, rows + tiles->num, tile.count);
        tile.rows = rows + tiles->num;
    }
    return self->of->visit(self->of->user, &tile, &self->error);
}

static void *work(void *user)
{
    worker *self = user;
    pass *of = self->of;
    while (self->status == FEDGE_OK && !atomic_load(&of->failed)) {
        const size_t index = atomic_fetch_add(&of->next, 1);
        if (index >= of->tiles->num_tiles)
            break;
        self->status = take_tile(self, index);
    }
    if (self->status != FEDGE_OK)
        atomic_store(&of->failed, true);
    return NULL;
}

fedge_status fedge_tiles_each(fedge_tiles *tiles, fedge_tile_fn visit, void *user, fedge_error *err)
{
    pass of = {.tiles = tiles, .visit = visit, .user = user};
    worker *workers = calloc(tiles->num_threads, sizeof(*workers));
    if (!workers) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %u threads",
                          (unsigned)tiles->num_threads);
    }
    uint32_t started = 1;
    for (uint32_t i = 0; i < tiles->num_threads; i++)
        workers[i] = (worker){.of = &of, .thread = i};
    /* Fewer threads than wanted do the same. */
    while (started < tiles->num_threads &&
           pthread_create(&workers[started].id, NULL, work, &workers[started]) == 0)
        started++;
    work(&workers[0]);
    for (uint32_t i = 1; i < started; i++)
        pthread_join(workers[i].id, NULL);
    fedge_status status = FEDGE_OK;
    for (uint32_t i = 0; i < started && status == FEDGE_OK; i++) {
        status = workers[i].status;
        if (status != FEDGE_OK && err)
            *err = workers[i].error;
    }
    free(workers);
    return status;
}
