/* The CPU accumulator: one or more lanes of sums. A lane is divided into stripes, each with a lock,
 * so that threads that add at the same time work on different stripes. An update is decoded and
 * added tile by tile: decoded values never leave the first-level cache, and no buffer grows with
 * the model. */
#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/reduce/accumulator.h"
#include "aggregator/reduce/sum.h"
#include "edge/core/fixed.h"
#include "edge/core/os.h"

/* 64 KiB of sums: they stay in a core's cache during the work, and adding 8,192 values takes much
 * longer than locking them. A multiple of the codecs' blocks. */
#define STRIPE_ELEMENTS ((size_t)8192)
/* Decoded values of a tile: 4 KiB. */
#define TILE_ELEMENTS ((size_t)1024)
#define MAX_BYTES_PER_ELEMENT 4 /* most of all codecs, rounded up */

static_assert(FEDGE_ACCUMULATOR_MAX_BATCH <= FEDGE_SUM_MAX_UPDATES, "a batch is summed at once");
static_assert(STRIPE_ELEMENTS % TILE_ELEMENTS == 0 && TILE_ELEMENTS % FEDGE_CODEC_BLOCK == 0,
              "tiles begin where blocks do");

typedef struct lane {
    int64_t *sums;          /* (num_elements) */
    pthread_mutex_t *locks; /* (num_locks): one lock for each stripe */
    size_t num_locks;
} lane;

typedef struct cpu_accumulator {
    fedge_update_layout layout;
    size_t num_stripes;                /* number of stripes, and of locks of a lane */
    atomic_uint_fast64_t total_weight; /* weight that is reserved before values are added */
    atomic_uint_fast32_t num_updates;
    atomic_uint_fast32_t next_lane; /* lane of the next batch */
    pthread_mutex_t buffers_lock;
    struct pull_buffer *buffers; /* free buffers */
    uint32_t num_lanes;
    lane lanes[];
} cpu_accumulator;

/* A buffer for the bytes of one run of all updates of a batch. */
typedef struct pull_buffer {
    struct pull_buffer *next;
    uint8_t bytes[FEDGE_ACCUMULATOR_MAX_BATCH][STRIPE_ELEMENTS * MAX_BYTES_PER_ELEMENT];
} pull_buffer;

/* ---- life ------------------------------------------------------------------------------------ */

static void cpu_close(void *state)
{
    cpu_accumulator *self = state;
    for (uint32_t i = 0; self && i < self->num_lanes; i++) {
        for (size_t k = 0; k < self->lanes[i].num_locks; k++)
            pthread_mutex_destroy(&self->lanes[i].locks[k]);
        free(self->lanes[i].locks);
        free(self->lanes[i].sums);
    }
    for (pull_buffer *next, *at = self ? self->buffers : NULL; at; at = next) {
        next = at->next;
        free(at);
    }
    if (self)
        pthread_mutex_destroy(&self->buffers_lock);
    free(self);
}

static fedge_status make_lane(cpu_accumulator *self, lane *fresh, fedge_error *err)
{
    const size_t size = self->layout.num_elements * sizeof(*fresh->sums);
    fresh->sums = calloc(1, size);
    fresh->locks = calloc(self->num_stripes, sizeof(*fresh->locks));
    if (!fresh->sums || !fresh->locks) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the sums of %zu values (%zu MiB)",
                          self->layout.num_elements, size >> 20);
    }
    /* Every update touches all sums; with 4 KiB pages their address translations would not fit the
     * TLB. */
    fedge_os_large_pages(fresh->sums, size);
    for (; fresh->num_locks < self->num_stripes; fresh->num_locks++) {
        int error = pthread_mutex_init(&fresh->locks[fresh->num_locks], NULL);
        if (error)
            return fedge_fail_errno(err, error, "cannot make a lock for the sums");
    }
    return FEDGE_OK;
}

static fedge_status cpu_open(const fedge_accumulator_config *config, void **state, fedge_error *err)
{
    *state = NULL;
    cpu_accumulator *self = calloc(1, sizeof(*self) + config->num_lanes * sizeof(lane));
    if (!self)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for an accumulator");
    self->layout = *config->layout;
    self->num_lanes = config->num_lanes;
    self->num_stripes = (self->layout.num_elements + STRIPE_ELEMENTS - 1) / STRIPE_ELEMENTS;
    pthread_mutex_init(&self->buffers_lock, NULL);
    atomic_init(&self->total_weight, 0);
    atomic_init(&self->num_updates, 0);
    atomic_init(&self->next_lane, 0);
    fedge_status status = FEDGE_OK;
    for (uint32_t i = 0; i < self->num_lanes && status == FEDGE_OK; i++)
        status = make_lane(self, &self->lanes[i], err);
    if (status != FEDGE_OK) {
        cpu_close(self);
        return status;
    }
    *state = self;
    return FEDGE_OK;
}

/* ---- adding ---------------------------------------------------------------------------------- */

/* Reserve the weight first: when the total exceeds the limit, nothing has been added. */
static fedge_status reserve_weight(cpu_accumulator *self, uint64_t weight, uint32_t num_updates,
                                   fedge_error *err)
{
    /* With |v| ≤ 2^30 and a total weight ≤ 2^32 no partial sum exceeds 2^62 in any order: this
     * check prevents overflow. */
    const uint64_t most = FEDGE_FIXED_MAX_TOTAL_WEIGHT;
    uint_fast64_t total = atomic_load(&self->total_weight);
    do {
        if (weight > most || total > most - weight) {
            return fedge_fail(err, FEDGE_OUT_OF_RANGE,
                              "weight %" PRIu64 " on top of %" PRIuFAST64 " is over the %" PRIu64
                              " that the sums are safe for; lower the largest weight or cohort",
                              weight, total, most);
        }
    } while (!atomic_compare_exchange_weak(&self->total_weight, &total, total + weight));
    atomic_fetch_add(&self->num_updates, num_updates);
    return FEDGE_OK;
}

static fedge_status fail_weight(fedge_error *err)
{
    return fedge_fail(err, FEDGE_OUT_OF_RANGE, "an update's weight must be at least 1");
}

/* Adds [count] values of a lane from [first] on, stripe by stripe. */
static void add_to_lane(const cpu_accumulator *self, lane *to, size_t first, const int32_t *v,
                        size_t count, uint32_t weight)
{
    /* Only the assertion uses it. */
    (void)self;
    assert(first <= self->layout.num_elements && count <= self->layout.num_elements - first);
    while (count > 0) {
        const size_t left = STRIPE_ELEMENTS - first % STRIPE_ELEMENTS;
        const size_t part = left < count ? left : count;
        pthread_mutex_t *lock = &to->locks[first / STRIPE_ELEMENTS];
        pthread_mutex_lock(lock);
        fedge_fixed_accumulate(to->sums + first, v, part, weight);
        pthread_mutex_unlock(lock);
        v += part;
        first += part;
        count -= part;
    }
}

/* A run of one tensor's values in an encoded update. */
typedef struct run {
    const fedge_codec *codec;
    fedge_sum_fn sum; /* kernel for encoded values; NULL: decode first */
    const fedge_tensor_spec *tensor;
    uint32_t index;      /* index of the tensor, over all sections */
    size_t first, count; /* range of values; [first] is a multiple of FEDGE_CODEC_BLOCK */
    size_t offset;       /* offset in bytes in the section */
    uint64_t sections[FEDGE_ACCUMULATOR_MAX_BATCH]; /* offset of the section in each update */
} run;

/* Returns a free buffer or a new one. There is one for each thread that reads at the same time. */
static pull_buffer *take_buffer(cpu_accumulator *self)
{
    pthread_mutex_lock(&self->buffers_lock);
    pull_buffer *taken = self->buffers;
    self->buffers = taken ? taken->next : NULL;
    pthread_mutex_unlock(&self->buffers_lock);
    /* Outside the lock: malloc may enter the kernel while other threads return buffers. */
    return taken ? taken : malloc(sizeof(*taken));
}

static void give_buffer(cpu_accumulator *self, pull_buffer *taken)
{
    if (taken) {
        pthread_mutex_lock(&self->buffers_lock);
        taken->next = self->buffers;
        self->buffers = taken;
        pthread_mutex_unlock(&self->buffers_lock);
    }
}

/* An action on a run of [count] updates; bytes[i] are those of update i. */
typedef fedge_status (*run_fn)(cpu_accumulator *self, const run *part,
                               fedge_encoded *const *updates, const uint8_t *const *bytes,
                               uint32_t count, lane *to, fedge_error *err);

/* Checks a run of one update. */
static fedge_status check_run(cpu_accumulator *self, const run *part, fedge_encoded *const *updates,
                              const uint8_t *const *bytes, uint32_t count, lane *to,
                              fedge_error *err)
{
    (void)self, (void)count, (void)to;
    return fedge_codec_decode_run(part->codec, part->tensor, updates[0]->bounds_log2[part->index],
                                  part->first, part->count, bytes[0], NULL, err);
}

/* Decodes a run of all updates tile by tile and adds it. */
static fedge_status add_decoded(const run *part, int bound_log2, const fedge_summand *summands,
                                uint32_t count, int64_t *sums, fedge_error *err)
{
    int32_t v[TILE_ELEMENTS];
    fedge_status status = FEDGE_OK;
    for (size_t at = 0; at < part->count; at += TILE_ELEMENTS) {
        const size_t left = part->count - at, n = left < TILE_ELEMENTS ? left : TILE_ELEMENTS;
        const size_t offset = fedge_codec_run_size(part->codec, at);
        for (uint32_t i = 0; i < count && status == FEDGE_OK; i++) {
            status = fedge_codec_decode_run(part->codec, part->tensor, bound_log2, part->first + at,
                                            n, summands[i].bytes + offset, v, err);
            fedge_fixed_accumulate(sums + at, v, status == FEDGE_OK ? n : 0, summands[i].weight);
        }
    }
    return status;
}

/* Adds a run of all updates. It lies in one stripe or two adjacent ones. */
static fedge_status add_run(cpu_accumulator *self, const run *part, fedge_encoded *const *updates,
                            const uint8_t *const *bytes, uint32_t count, lane *to, fedge_error *err)
{
    (void)self;
    fedge_status status = FEDGE_OK;
    const size_t first = part->tensor->offset + part->first;
    /* A tensor may begin anywhere, so its runs need not end at a stripe's end. */
    const size_t low = first / STRIPE_ELEMENTS, high = (first + part->count - 1) / STRIPE_ELEMENTS;
    fedge_summand summands[FEDGE_ACCUMULATOR_MAX_BATCH];
    const int8_t bound_log2 = updates[0]->bounds_log2[part->index];
    for (uint32_t i = 0; i < count; i++) {
        assert(updates[i]->bounds_log2[part->index] == bound_log2);
        summands[i] = (fedge_summand){.bytes = bytes[i], .weight = updates[i]->weight};
    }
    /* A run is no longer than a stripe, so it needs at most two. Locking in ascending order avoids
     * deadlock. */
    pthread_mutex_lock(&to->locks[low]);
    if (high != low) { /* locks are taken in ascending order */
        pthread_mutex_lock(&to->locks[high]);
    }
    if (part->sum)
        part->sum(to->sums + first, summands, count, part->count, bound_log2);
    else
        status = add_decoded(part, bound_log2, summands, count, to->sums + first, err);
    if (high != low)
        pthread_mutex_unlock(&to->locks[high]);
    pthread_mutex_unlock(&to->locks[low]);
    return status;
}

/* A batch of updates and the action on each of its runs. */
typedef struct batch {
    fedge_encoded *const *updates; /* (count) */
    uint32_t count;
    pull_buffer *pulled; /* NULL when every update is in memory */
    run_fn act;
    lane *to; /* NULL when the updates are only checked */
} batch;

/* Reads one run of every update, then acts on it. */
static fedge_status take_run(cpu_accumulator *self, const run *part, const batch *of,
                             fedge_error *err)
{
    const size_t size = fedge_codec_run_size(part->codec, part->count);
    const uint8_t *bytes[FEDGE_ACCUMULATOR_MAX_BATCH];
    for (uint32_t i = 0; i < of->count; i++) {
        const fedge_encoded *update = of->updates[i];
        const uint64_t offset = part->sections[i] + part->offset;
        bytes[i] = update->bytes ? update->bytes + offset : of->pulled->bytes[i];
        if (!update->bytes)
            FEDGE_TRY(update->read(update->user, offset, of->pulled->bytes[i], size, err));
    }
    return of->act(self, part, of->updates, bytes, of->count, of->to, err);
}

/* Processes a section of all updates run by run, so that a run's sums are loaded once for all. */
static fedge_status take_runs(cpu_accumulator *self, const fedge_schema *schema, run *part,
                              const batch *of, fedge_error *err)
{
    part->sum = fedge_sum_of(part->codec);
    part->offset = 0;
    for (uint32_t t = 0; t < schema->num_tensors; t++, part->index++) {
        part->tensor = &schema->tensors[t];
        for (part->first = 0; part->first < part->tensor->count; part->first += part->count) {
            const size_t left = part->tensor->count - part->first;
            /* A stripe's sums of 64 KiB stay in the second-level cache while all updates of the
             * batch are added. */
            part->count = left < STRIPE_ELEMENTS ? left : STRIPE_ELEMENTS;
            FEDGE_TRY(take_run(self, part, of, err));
            part->offset += fedge_codec_run_size(part->codec, part->count);
        }
    }
    return FEDGE_OK;
}

/* Target of a tensor's values, which arrive one by one. */
typedef struct target {
    cpu_accumulator *self;
    lane *to;
    size_t first; /* index of the tensor's first sum */
    uint32_t weight;
} target;

static fedge_status add_given(void *user, size_t at, const uint32_t *positions, size_t n,
                              const int32_t *v, fedge_error *err)
{
    const target *into = user;
    (void)err;
    if (!positions) {
        add_to_lane(into->self, into->to, into->first + at, v, n, into->weight);
        return FEDGE_OK;
    }
    /* Positions ascend, so each stripe is locked once. */
    for (size_t i = 0; i < n;) {
        const size_t stripe = (into->first + positions[i]) / STRIPE_ELEMENTS;
        pthread_mutex_lock(&into->to->locks[stripe]);
        for (; i < n && (into->first + positions[i]) / STRIPE_ELEMENTS == stripe; i++)
            into->to->sums[into->first + positions[i]] += (int64_t)into->weight * v[i];
        pthread_mutex_unlock(&into->to->locks[stripe]);
    }
    return FEDGE_OK;
}

/* Processes a section of one update whose codec has no fixed size. Only checks it when [to] is
 * NULL. */
static fedge_status take_chosen(cpu_accumulator *self, const fedge_schema *schema, run *part,
                                const fedge_encoded *update, uint64_t offset, uint64_t size,
                                lane *to, fedge_error *err)
{
    /* A section whose size depends on its values cannot be read by offsets. */
    assert(update->bytes);
    const uint8_t *in = update->bytes + offset;
    size_t left = (size_t)size;
    target into = {.self = self, .to = to, .weight = update->weight};
    for (uint32_t t = 0; t < schema->num_tensors; t++) {
        const fedge_codec_tensor tensor = {.codec = fedge_codec_of(part->codec, t),
                                           .spec = &schema->tensors[t],
                                           .bound_log2 = update->bounds_log2[part->index + t],
                                           .give = to ? add_given : NULL,
                                           .user = &into};
        size_t used = 0;
        into.first = tensor.spec->offset;
        FEDGE_TRY(fedge_codec_read_tensor(&tensor, in, left, &used, err));
        in += used;
        left -= used;
    }
    return fedge_codec_check_end(left, err);
}

static fedge_status take_sections(cpu_accumulator *self, const batch *of, fedge_error *err)
{
    run part = {0};
    for (uint32_t s = 0; s < self->layout.num_sections; s++) {
        const fedge_update_layout_section *section = &self->layout.sections[s];
        const uint64_t most = fedge_codec_size(&section->codec, section->schema);
        part.codec = &section->codec;
        const bool plain = fedge_codec_is_plain(part.codec);
        if (plain)
            FEDGE_TRY(take_runs(self, section->schema, &part, of, err));
        for (uint32_t i = 0; i < of->count; i++) {
            const fedge_encoded *update = of->updates[i];
            const uint64_t size = update->sizes ? update->sizes[s] : most;
            if (!plain) {
                FEDGE_TRY(take_chosen(self, section->schema, &part, update, part.sections[i], size,
                                      of->to, err));
            }
            part.sections[i] += size;
        }
        /* take_runs has counted these bytes. */
        part.index += plain ? 0 : section->schema->num_tensors;
    }
    return FEDGE_OK;
}

static fedge_status take_all(cpu_accumulator *self, fedge_encoded *const *updates, uint32_t count,
                             run_fn act, lane *to, fedge_error *err)
{
    bool pulls = false;
    for (uint32_t i = 0; i < count; i++)
        pulls = pulls || !updates[i]->bytes;
    const batch of = {updates, count, pulls ? take_buffer(self) : NULL, act, to};
    if (pulls && !of.pulled)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to read updates");
    fedge_status status = take_sections(self, &of, err);
    give_buffer(self, of.pulled);
    return status;
}

static fedge_status cpu_validate(void *state, fedge_encoded *update, fedge_error *err)
{
    return take_all(state, &update, 1, check_run, NULL, err);
}

static fedge_status cpu_add(void *state, fedge_encoded *const *updates, uint32_t count,
                            uint64_t *ticket, fedge_error *err)
{
    cpu_accumulator *self = state;
    assert(count >= 1 && count <= FEDGE_ACCUMULATOR_MAX_BATCH);
    uint64_t weight = 0;
    *ticket = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (updates[i]->weight == 0)
            return fail_weight(err);
        weight += updates[i]->weight;
    }
    FEDGE_TRY(reserve_weight(self, weight, count, err));
    /* Batches use the lanes in rotation, so threads seldom meet in one. */
    const uint32_t batch_index = (uint32_t)atomic_fetch_add(&self->next_lane, 1);
    return take_all(self, updates, count, add_run, &self->lanes[batch_index % self->num_lanes],
                    err);
}

/* add has already finished the work. */
static fedge_status cpu_wait(void *state, uint64_t ticket, fedge_error *err)
{
    (void)state;
    (void)ticket;
    (void)err;
    return FEDGE_OK;
}

/* The type is the table's; other kinds release their copy. */
/* NOLINTNEXTLINE(readability-non-const-parameter) */
static void cpu_drop(void *state, fedge_encoded *update)
{
    (void)state;
    (void)update;
}

static fedge_status cpu_begin(void *state, uint32_t weight, fedge_error *err)
{
    return weight == 0 ? fail_weight(err) : reserve_weight(state, weight, 1, err);
}

static fedge_status cpu_add_values(void *state, uint32_t index, const int32_t *v, size_t first,
                                   size_t count, uint32_t weight, fedge_error *err)
{
    (void)err;
    cpu_accumulator *self = state;
    assert(index < self->num_lanes);
    add_to_lane(self, &self->lanes[index], first, v, count, weight);
    return FEDGE_OK;
}

/* ---- the end of a round ---------------------------------------------------------------------- */

static void cpu_totals(const void *state, fedge_accumulator_totals *totals)
{
    const cpu_accumulator *self = state;
    *totals = (fedge_accumulator_totals){.total_weight = atomic_load(&self->total_weight),
                                         .num_updates = (uint32_t)atomic_load(&self->num_updates)};
}

/* Adds the sums [first, first + count) of all lanes to the first lane's. */
static void join_lanes(cpu_accumulator *self, size_t first, size_t count)
{
    for (uint32_t i = 1; i < self->num_lanes; i++) {
        int64_t *from = self->lanes[i].sums + first;
        fedge_fixed_merge(self->lanes[0].sums + first, from, count);
        /* Merge once, however often these sums are read. */
        memset(from, 0, count * sizeof(*from));
    }
}

static fedge_status cpu_read(void *state, size_t first, size_t count, int64_t *sums,
                             fedge_error *err)
{
    (void)err;
    cpu_accumulator *self = state;
    assert(first <= self->layout.num_elements && count <= self->layout.num_elements - first);
    join_lanes(self, first, count);
    memcpy(sums, self->lanes[0].sums + first, count * sizeof(*sums));
    return FEDGE_OK;
}

static fedge_status cpu_step(void *state, const fedge_step_part *parts, uint32_t num_parts,
                             fedge_error *err)
{
    (void)err;
    cpu_accumulator *self = state;
    const uint64_t total_weight = atomic_load(&self->total_weight);
    for (uint32_t i = 0; i < num_parts; i++) {
        const fedge_step_part *part = &parts[i];
        /* Merge and step while the sums are in the cache. */
        for (size_t at = 0; at < part->count; at += STRIPE_ELEMENTS) {
            const size_t left = part->count - at;
            const size_t n = left < STRIPE_ELEMENTS ? left : STRIPE_ELEMENTS;
            join_lanes(self, part->first + at, n);
            fedge_fixed_step(part->values + at, self->lanes[0].sums + part->first + at, n,
                             total_weight, part->bound_log2, part->rate);
        }
    }
    return FEDGE_OK;
}

static fedge_status cpu_reset(void *state, fedge_error *err)
{
    (void)err;
    cpu_accumulator *self = state;
    for (uint32_t i = 0; i < self->num_lanes; i++)
        memset(self->lanes[i].sums, 0, self->layout.num_elements * sizeof(int64_t));
    atomic_store(&self->total_weight, 0);
    atomic_store(&self->num_updates, 0);
    return FEDGE_OK;
}

static void cpu_describe(const void *state, char *text, size_t size)
{
    const cpu_accumulator *self = state;
    snprintf(text, size, "CPU: %zu bytes of sums in %u %s",
             self->layout.num_elements * sizeof(int64_t) * self->num_lanes,
             (unsigned)self->num_lanes, self->num_lanes == 1 ? "block" : "blocks");
}

static uint32_t cpu_stats(const void *state, fedge_gpu_stats *stats, uint32_t capacity)
{
    (void)state;
    (void)stats;
    (void)capacity;
    return 0;
}

const fedge_accumulator_ops fedge_accumulator_cpu = {
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .validate = cpu_validate,
    .add = cpu_add,
    .wait = cpu_wait,
    .drop = cpu_drop,
    .begin = cpu_begin,
    .add_values = cpu_add_values,
    .totals = cpu_totals,
    .read = cpu_read,
    .step = cpu_step,
    .reset = cpu_reset,
    .describe = cpu_describe,
    .stats = cpu_stats,
};
