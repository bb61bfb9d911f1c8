#include "aggregator/reduce/distributed_accumulator.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/fixed.h"

#define AUTO "auto"
#define MPI "mpi"
#define MAX_MOMENTS 2
#define MAX_PARTS 64u /* most parts of a step in one message of rank 0 */

/* The operation that rank 0 wants of all ranks. */
typedef enum act { ACT_JOIN, ACT_STEP, ACT_GATHER, ACT_AGREE } act;

typedef struct distributed {
    fedge_accumulator local;
    const fedge_collective *collective;
    const fedge_log *log; /* may be NULL */
    const char *join;
    void *scatter; /* scatter of the wrapped accumulator; NULL: the host and MPI add up sums */
    bool agreed;   /* the ranks have agreed whether there is a scatter */
    size_t num_elements;
    int64_t *sums; /* (num_elements): sums of all ranks after a join; on shards this rank's only */
    fedge_accumulator_totals totals;
    bool is_joined;

    /* The members below are used only on shards. */
    fedge_collective_shard shard;
    bool on_shard; /* the sums are joined */
    fedge_distributed_together_fn together;
    void *user;
    act wanted;                   /* action of rank 0 */
    const fedge_step_part *parts; /* (num_parts): parts of ACT_STEP */
    uint32_t num_parts;
    float *values, *moments[MAX_MOMENTS]; /* other ranks: (shard.count) each, valid after a step;
                                             NULL before */
    bool all_have_values; /* rank 0: the other ranks have the values of the last step */
} distributed;

static void close_scatter(distributed *self)
{
    if (self->scatter)
        self->local.ops->scatter->close(self->scatter);
    self->scatter = NULL;
}

static void close_distributed(void *state)
{
    distributed *self = state;
    if (self) {
        close_scatter(self);
        free(self->sums);
        free(self->values);
        for (unsigned k = 0; k < MAX_MOMENTS; k++)
            free(self->moments[k]);
        free(self);
    }
}

static const fedge_sums_ops DISTRIBUTED;

/* ---- of all ranks ---------------------------------------------------------------------------- */

static void totals(const void *state, fedge_accumulator_totals *to)
{
    const distributed *self = state;
    *to = self->is_joined ? self->totals : fedge_accumulator_get_totals(&self->local);
}

static fedge_status do_together(distributed *self, act wanted, fedge_error *err)
{
    fedge_accumulator accumulator = self->local;
    accumulator.sums = &DISTRIBUTED;
    accumulator.sums_state = self;
    self->wanted = wanted;
    const fedge_status status = self->together(self->user, &accumulator, err);
    /* The next operation is a join unless changed. */
    self->wanted = ACT_JOIN;
    return status;
}

static fedge_status read_sums(void *state, size_t first, size_t count, int64_t *sums,
                              fedge_error *err)
{
    distributed *self = state;
    if (!self->is_joined)
        return fedge_accumulator_read(&self->local, first, count, sums, err);
    FEDGE_TRY(self->on_shard ? do_together(self, ACT_GATHER, err) : FEDGE_OK);
    memcpy(sums, self->sums + first, count * sizeof(*sums));
    return FEDGE_OK;
}

/* Steps the part's values from [from] on with [count] sums; [values] and [moments] begin there. */
static void move(const fedge_step_part *part, const int64_t *sums, size_t count,
                 uint64_t total_weight, float *values, float *const moments[MAX_MOMENTS])
{
    const fedge_optimizer_sums by = {
        .sums = sums, .count = count, .total_weight = total_weight, .bound_log2 = part->bound_log2};
    if (part->optimizer)
        fedge_optimizer_move(part->optimizer, part->rate, &by, values, moments);
    else
        fedge_fixed_step(values, sums, count, total_weight, part->bound_log2, part->rate);
}

static fedge_status step(void *state, const fedge_step_part *parts, uint32_t num_parts,
                         fedge_error *err)
{
    distributed *self = state;
    fedge_status status = FEDGE_OK;
    /* Before a join a step is this rank's alone, as in a run with one rank. */
    if (!self->is_joined) {
        return parts[0].optimizer && !self->local.ops->optimizes
                   ? fedge_fail(err, FEDGE_UNSUPPORTED, "an optimizer's step is the host's")
                   : fedge_accumulator_step(&self->local, parts, num_parts, err);
    }
    for (uint32_t i = 0; i < num_parts && !self->on_shard; i++) {
        move(&parts[i], self->sums + parts[i].first, parts[i].count, self->totals.total_weight,
             parts[i].values, parts[i].moments);
    }
    for (uint32_t at = 0; at < num_parts && self->on_shard && status == FEDGE_OK; at += MAX_PARTS) {
        self->parts = parts + at;
        self->num_parts = num_parts - at < MAX_PARTS ? num_parts - at : MAX_PARTS;
        status = do_together(self, ACT_STEP, err);
    }
    return status;
}

static fedge_status reset(void *state, fedge_error *err)
{
    distributed *self = state;
    self->is_joined = false;
    self->on_shard = false;
    return fedge_accumulator_reset(&self->local, err);
}

static const fedge_sums_ops DISTRIBUTED = {
    .close = close_distributed,
    .totals = totals,
    .read = read_sums,
    .step = step,
    .reset = reset,
};

fedge_status fedge_distributed_check_name(const char *name, fedge_error *err)
{
    char known[128] = AUTO ", " MPI;
    bool matches = strcmp(name, AUTO) == 0 || strcmp(name, MPI) == 0;
    for (size_t i = 0; fedge_accumulator_kinds[i]; i++) {
        const fedge_scatter_ops *scatter = fedge_accumulator_kinds[i]->scatter;
        const size_t used = strlen(known);
        matches = matches || (scatter && strcmp(name, scatter->name) == 0);
        if (scatter)
            snprintf(known + used, sizeof(known) - used, ", %s", scatter->name);
    }
    return matches ? FEDGE_OK
                   : fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                                "nothing joins sums by \"%.40s\"; this build has %s", name, known);
}

fedge_status fedge_distributed_wrap(fedge_accumulator *accumulator,
                                    const fedge_collective *collective, size_t num_elements,
                                    const fedge_accumulator_config *config, fedge_error *err)
{
    distributed *fresh = calloc(1, sizeof(*fresh));
    int64_t *sums = malloc(num_elements * sizeof(*sums));
    if (!fresh || !sums) {
        free(fresh);
        free(sums);
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %zu sums of all ranks",
                          num_elements);
    }
    *fresh = (distributed){
        .local = *accumulator,
        .collective = collective,
        .log = config->log,
        .join = config->join ? config->join : AUTO,
        .num_elements = num_elements,
        .sums = sums,
        .shard = fedge_collective_shard_of(collective, num_elements, collective->rank)};
    accumulator->sums = &DISTRIBUTED;
    accumulator->sums_state = fresh;
    return FEDGE_OK;
}

/* ---- joining --------------------------------------------------------------------------------- */

/* Whether this rank can use the scatter; its facts are compared by all. */
static fedge_status prepare_scatter(const distributed *self, fedge_collective_fact *has,
                                    fedge_error *err)
{
    const fedge_scatter_ops *scatter = self->local.ops->scatter;
    *has = (fedge_collective_fact){.name = "what joins sums",
                                   .advice = "install the same on all machines"};
    if (strcmp(self->join, MPI) == 0)
        return fedge_fail(err, FEDGE_UNSUPPORTED, "as asked for");
    if (!scatter)
        return fedge_fail(err, FEDGE_UNSUPPORTED, "its accumulator is %s", self->local.ops->name);
    char release[FEDGE_COLLECTIVE_FACT_TEXT] = "";
    const fedge_status status = scatter->prepare(self->local.state, release, err);
    snprintf(has->text, sizeof(has->text), "%s %.100s", scatter->name, release);
    return status;
}

/* All ranks call it together; all open the scatter or none. */
static fedge_status open_scatter(distributed *self, fedge_error *err)
{
    fedge_collective_fact has;
    fedge_status status = prepare_scatter(self, &has, err);
    FEDGE_TRY(fedge_collective_agree(self->collective, status, &has, 1, err));
    status = self->local.ops->scatter->open(self->local.state, self->collective, self->num_elements,
                                            &self->scatter, err);
    status = fedge_collective_agree(self->collective, status, NULL, 0, err);
    if (status != FEDGE_OK)
        close_scatter(self);
    return status;
}

/* Agrees on how sums are added up, again after a rank has opened another accumulator. */
static fedge_status agree_on_way(distributed *self, fedge_error *err)
{
    fedge_error why = {0};
    int64_t fresh = !self->agreed;
    fedge_collective_sum(self->collective, &fresh, 1);
    fedge_collective_broadcast(self->collective, &fresh, sizeof(fresh), 0);
    if (fresh == 0)
        return FEDGE_OK;
    close_scatter(self);
    const bool opened = open_scatter(self, &why) == FEDGE_OK;
    if (!opened && strcmp(self->join, AUTO) != 0 && strcmp(self->join, MPI) != 0) {
        return fedge_fail(err, FEDGE_GPU_LOST, "sums cannot be joined by %.40s: %.200s", self->join,
                          why.message);
    }
    self->agreed = true;
    if (self->log && self->collective->rank == 0) {
        FEDGE_LOG(self->log, FEDGE_LOG_INFO, "sums-joined-by",
                  fedge_log_str("kind", opened ? self->local.ops->scatter->name : MPI),
                  fedge_log_str("because", opened ? "every rank can" : why.message));
    }
    return FEDGE_OK;
}

/* All ranks call it together, with their sums complete. */
static fedge_status add_up(distributed *self, bool on_shard, fedge_error *err)
{
    if (!self->scatter && on_shard)
        fedge_collective_sum_shards(self->collective, self->sums, self->num_elements);
    else if (!self->scatter)
        fedge_collective_sum(self->collective, self->sums, self->num_elements);
    if (!self->scatter)
        return FEDGE_OK;
    fedge_status status = self->local.ops->scatter->sum(self->scatter, self->sums, err);
    FEDGE_TRY(fedge_collective_agree(self->collective, status, NULL, 0, err));
    if (!on_shard)
        fedge_collective_gather_shards(self->collective, self->sums, self->num_elements);
    return FEDGE_OK;
}

/* [status] is this rank's result; when one rank fails, all fail. */
static fedge_status agree_status_and_way(distributed *self, fedge_status status, fedge_error *err)
{
    FEDGE_TRY(fedge_collective_agree(self->collective, status, NULL, 0, err));
    return agree_on_way(self, err);
}

/* All ranks call it together, before there are sums. */
static fedge_status agree_all(distributed *self, fedge_status status, fedge_error *err)
{
    status = agree_status_and_way(self, status, err);
    return fedge_collective_agree(self->collective, status, NULL, 0, err);
}

/* Reads this rank's sums when the host adds them up. */
static fedge_status copy_sums(distributed *self, fedge_status status, fedge_error *err)
{
    FEDGE_TRY(agree_status_and_way(self, status, err));
    return self->scatter
               ? FEDGE_OK
               : fedge_accumulator_read(&self->local, 0, self->num_elements, self->sums, err);
}

static fedge_status join(distributed *self, bool on_shard, fedge_status status, fedge_error *err)
{
    status = copy_sums(self, status, err);
    FEDGE_TRY(fedge_collective_agree(self->collective, status, NULL, 0, err));
    const fedge_accumulator_totals local = fedge_accumulator_get_totals(&self->local);
    int64_t all[3] = {(int64_t)local.total_weight, local.num_updates, self->values != NULL};
    fedge_collective_sum(self->collective, all, 3);
    FEDGE_TRY(add_up(self, on_shard, err));
    self->totals = (fedge_accumulator_totals){.total_weight = (uint64_t)all[0],
                                              .num_updates = (uint32_t)all[1]};
    /* Rank 0 stores no sums of its own here. */
    self->all_have_values = all[2] + 1 == self->collective->num_ranks;
    self->is_joined = true;
    self->on_shard = on_shard;
    /* Each rank has checked only its own weights. */
    return self->totals.total_weight <= FEDGE_FIXED_MAX_TOTAL_WEIGHT
               ? FEDGE_OK
               : fedge_fail(err, FEDGE_OUT_OF_RANGE,
                            "the ranks' updates weigh %llu in all, over 2^32: lower max-weight",
                            (unsigned long long)self->totals.total_weight);
}

fedge_status fedge_distributed_join(fedge_accumulator *accumulator, fedge_status status,
                                    fedge_error *err)
{
    return join(accumulator->sums_state, false, status, err);
}

void fedge_distributed_on_shards(fedge_accumulator *accumulator,
                                 fedge_distributed_together_fn together, void *user)
{
    distributed *self = accumulator->sums_state;
    self->together = together;
    self->user = user;
}

fedge_status fedge_distributed_agree(fedge_accumulator *accumulator, fedge_error *err)
{
    return do_together(accumulator->sums_state, ACT_AGREE, err);
}

/* ---- on shards ------------------------------------------------------------------------------- */

/* Rank 0's message to the others, with a part of its step. Structs are sent as they are in memory.
 */
typedef struct word {
    act wanted;
    uint32_t num_parts;
    uint64_t total_weight;
} word;

typedef struct part_word {
    fedge_step_part part; /* its pointers are meaningless on other ranks */
    bool optimizes;
    fedge_optimizer_step optimizer;
} part_word;

/* The vectors that a step changes: the values and the optimizer's moments. */
static unsigned num_moved(const fedge_step_part *part)
{
    return 1 + (part->optimizer ? part->optimizer->num_moments : 0);
}

static float *moved(const fedge_step_part *part, unsigned which)
{
    return which == 0 ? part->values : part->moments[which - 1];
}

/* The intersection of a part and a shard: its offset in the part, and its length. */
static fedge_collective_shard overlap(const fedge_step_part *part,
                                      const fedge_collective_shard *shard)
{
    const size_t end = part->first + part->count, shard_end = shard->first + shard->count;
    const size_t from = part->first > shard->first ? part->first : shard->first;
    const size_t to = end < shard_end ? end : shard_end;
    return (fedge_collective_shard){from - part->first, to > from ? to - from : 0};
}

static void send_word(const distributed *self)
{
    part_word parts[MAX_PARTS];
    word said = {self->wanted, self->wanted == ACT_STEP ? self->num_parts : 0,
                 self->totals.total_weight};
    memset(parts, 0, sizeof(parts));
    for (uint32_t i = 0; i < said.num_parts; i++) {
        parts[i].part = self->parts[i];
        /* "Unchanged" helps only when all ranks have values of the last step. */
        parts[i].part.unchanged = self->parts[i].unchanged && self->all_have_values;
        parts[i].optimizes = self->parts[i].optimizer != NULL;
        if (parts[i].optimizes)
            parts[i].optimizer = *self->parts[i].optimizer;
    }
    fedge_collective_broadcast(self->collective, &said, sizeof(said), 0);
    fedge_collective_broadcast(self->collective, parts, said.num_parts * sizeof(parts[0]), 0);
}

/* Sends to the other ranks their values of each part, or receives them. */
static void exchange(const distributed *self, uint32_t rank, bool back)
{
    const fedge_collective_shard shard =
        fedge_collective_shard_of(self->collective, self->num_elements, rank);
    for (uint32_t i = 0; i < self->num_parts; i++) {
        const fedge_step_part *part = &self->parts[i];
        const fedge_collective_shard its = overlap(part, &shard);
        const bool goes = back || !part->unchanged || !self->all_have_values;
        /* The order is that in which follow_step receives them. */
        for (unsigned k = 0; its.count > 0 && goes && k < num_moved(part); k++) {
            float *at = moved(part, k) + its.first;
            if (back)
                fedge_collective_receive(self->collective, at, its.count * sizeof(*at), rank);
            else
                fedge_collective_send(self->collective, at, its.count * sizeof(*at), rank);
        }
    }
}

static fedge_status lead_step(distributed *self, fedge_error *err)
{
    const uint32_t num_ranks = self->collective->num_ranks;
    /* A rank without memory could neither receive its values nor send results. */
    FEDGE_TRY(fedge_collective_agree(self->collective, FEDGE_OK, NULL, 0, err));
    /* Send to the others first, so that they step while this rank does. */
    for (uint32_t rank = 1; rank < num_ranks; rank++)
        exchange(self, rank, false);
    for (uint32_t i = 0; i < self->num_parts; i++) {
        const fedge_step_part *part = &self->parts[i];
        const fedge_collective_shard local = overlap(part, &self->shard);
        float *moments[MAX_MOMENTS] = {0};
        for (unsigned k = 1; k < num_moved(part); k++)
            moments[k - 1] = part->moments[k - 1] + local.first;
        if (local.count > 0) {
            move(part, self->sums + part->first + local.first, local.count,
                 self->totals.total_weight, part->values + local.first, moments);
        }
    }
    for (uint32_t rank = 1; rank < num_ranks; rank++)
        exchange(self, rank, true);
    return FEDGE_OK;
}

fedge_status fedge_distributed_lead(fedge_accumulator *accumulator, fedge_error *err)
{
    distributed *self = accumulator->sums_state;
    send_word(self);
    switch (self->wanted) {
    case ACT_JOIN:
        return join(self, true, FEDGE_OK, err);
    case ACT_STEP:
        return lead_step(self, err);
    case ACT_GATHER:
        fedge_collective_gather_shards(self->collective, self->sums, self->num_elements);
        self->on_shard = false;
        break;
    case ACT_AGREE:
        return agree_all(self, FEDGE_OK, err);
    }
    return FEDGE_OK;
}

static fedge_status allocate_vectors(distributed *self, unsigned num_vectors, fedge_error *err)
{
    float **all[1 + MAX_MOMENTS] = {&self->values, &self->moments[0], &self->moments[1]};
    assert(num_vectors <= 1 + MAX_MOMENTS);
    for (unsigned k = 0; k < num_vectors; k++) {
        if (!*all[k])
            *all[k] = calloc(self->shard.count + 1, sizeof(float));
        if (!*all[k]) {
            return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a shard of %zu values",
                              self->shard.count);
        }
    }
    return FEDGE_OK;
}

/* Sets the part's vectors to this rank's, from its shard's first value on. */
static fedge_status locate_vectors(distributed *self, part_word *of,
                                   const fedge_collective_shard *its, fedge_error *err)
{
    fedge_step_part *part = &of->part;
    const size_t at = part->first + its->first - self->shard.first;
    part->optimizer = of->optimizes ? &of->optimizer : NULL;
    part->values = NULL;
    FEDGE_TRY(allocate_vectors(self, num_moved(part), err));
    part->values = self->values + at;
    for (unsigned k = 1; k < num_moved(part); k++)
        part->moments[k - 1] = self->moments[k - 1] + at;
    return FEDGE_OK;
}

static fedge_status follow_step(distributed *self, const word *said, fedge_status status,
                                fedge_error *err)
{
    part_word parts[MAX_PARTS];
    memset(parts, 0, sizeof(parts));
    fedge_collective_broadcast(self->collective, parts, said->num_parts * sizeof(parts[0]), 0);
    for (uint32_t i = 0; i < said->num_parts && status == FEDGE_OK; i++) {
        const fedge_collective_shard its = overlap(&parts[i].part, &self->shard);
        status = locate_vectors(self, &parts[i], &its, err);
    }
    FEDGE_TRY(fedge_collective_agree(self->collective, status, NULL, 0, err));
    for (uint32_t i = 0; i < said->num_parts; i++) {
        const fedge_step_part *part = &parts[i].part;
        const fedge_collective_shard its = overlap(part, &self->shard);
        /* Receive everything before the first step: rank 0 continues to send and does not wait. */
        for (unsigned k = 0; its.count > 0 && !part->unchanged && k < num_moved(part); k++) {
            fedge_collective_receive(self->collective, moved(part, k), its.count * sizeof(float),
                                     0);
        }
    }
    for (uint32_t i = 0; i < said->num_parts; i++) {
        const fedge_step_part *part = &parts[i].part;
        const fedge_collective_shard its = overlap(part, &self->shard);
        if (its.count > 0) {
            move(part, self->sums + part->first + its.first, its.count, said->total_weight,
                 part->values, part->moments);
        }
        for (unsigned k = 0; its.count > 0 && k < num_moved(part); k++)
            fedge_collective_send(self->collective, moved(part, k), its.count * sizeof(float), 0);
    }
    return FEDGE_OK;
}

fedge_status fedge_distributed_follow(fedge_accumulator *accumulator, fedge_status status,
                                      fedge_error *err)
{
    distributed *self = accumulator->sums_state;
    word said;
    fedge_collective_broadcast(self->collective, &said, sizeof(said), 0);
    switch (said.wanted) {
    case ACT_JOIN:
        return join(self, true, status, err);
    case ACT_STEP:
        status = follow_step(self, &said, status, err);
        break;
    case ACT_GATHER:
        fedge_collective_gather_shards(self->collective, self->sums, self->num_elements);
        break;
    case ACT_AGREE:
        return agree_all(self, status, err);
    }
    /* Rank 0 has its results, so this does not delay it. */
    return status == FEDGE_OK && self->is_joined ? reset(self, err) : status;
}
