/* A robust round, in at most three passes over the updates, tile by tile:
 *
 *   1. mixing, if the job asks for it: all pairwise distances, and each update becomes the mean of
 *      its nearest neighbours (fedge_tiles_mix)
 *   2. the rule's own look at the updates (gram.c), by which it weighs or leaves out whole updates
 *   3. the mean, median or trimmed mean of each coordinate over those that are left
 *
 * Sums are integers until the last division, so the model does not depend on threads or tiles. */
#include "aggregator/rounds/robust/robust.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rounds/robust/sort.h"
#include "aggregator/rounds/sampler.h"
#include "edge/core/fixed.h"

#define WEIGHT_BITS 32 /* of all weights together: as of the sums (edge/core/fixed.h) */

/* ---- before any round ------------------------------------------------------------------------ */

static uint32_t least_updates(const fedge_robust_rule *rule, const fedge_robust_settings *settings)
{
    const uint32_t by_rule = rule->least ? rule->least(settings) : 1;
    /* Mixing averages all but the num_malicious farthest; an honest majority must be left. */
    const uint32_t by_mixing = settings->mixing ? 2 * settings->num_malicious + 1 : 1;
    return by_rule > by_mixing ? by_rule : by_mixing;
}

uint32_t fedge_robust_min_updates(const fedge_job *job)
{
    const fedge_rounds_spec *rounds = &job->rounds;
    const uint32_t available = fedge_cohort_needed(rounds, FEDGE_TASK_TRAIN);
    return fedge_cohort_min_reports(
        rounds, fedge_cohort_size_of(rounds, FEDGE_TASK_TRAIN, available).wanted);
}

fedge_status fedge_robust_derive(const fedge_robust_rule *rule, const fedge_json *json,
                                 const fedge_job *job, const fedge_robust_settings *settings,
                                 fedge_error *err)
{
    const uint32_t min_updates = fedge_robust_min_updates(job);
    const uint32_t least = least_updates(rule, settings);
    if (settings->mixing && settings->num_malicious == 0) {
        return fedge_json_fail_at(json, "strategy.mixing", err,
                                  "leaves out the num-malicious-nodes updates that are farthest, "
                                  "and the job does not say how many: set num-malicious-nodes");
    }
    if (min_updates < least) {
        return fedge_json_fail_at(json, "strategy.num-malicious-nodes", err,
                                  "%s with %" PRIu32 " malicious nodes%s needs %" PRIu32
                                  " updates, and a round of this job may close with %" PRIu32
                                  ": raise rounds.min-train-nodes (and min-report-fraction), or "
                                  "lower num-malicious-nodes",
                                  rule->name, settings->num_malicious,
                                  settings->mixing ? " and mixing" : "", least, min_updates);
    }
    return FEDGE_OK;
}

fedge_status fedge_robust_init(const fedge_strategy_config *config, void **state, fedge_error *err)
{
    const fedge_plan *plan = &config->job->plan;
    *state = NULL;
    if (fedge_sections_find(&plan->sent, FEDGE_SECTION_BUFFERS)) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "%s does not guard BatchNorm's statistics, whose mean one client can "
                          "move: use GroupNorm in the model, or FedAvg",
                          config->job->strategy);
    }
    return fedge_fedavg_init(config, state, err);
}

/* ---- for rules ------------------------------------------------------------------------------- */

double fedge_robust_weigh(fedge_robust_choice *choice, const double *shares)
{
    double most = 0.0, sum = 0.0;
    int bits = WEIGHT_BITS;
    /* The largest share becomes 2^bits: num of them must not be over 2^WEIGHT_BITS together. */
    for (uint32_t n = 1; n < choice->num; n *= 2)
        bits--;
    bits = bits < FEDGE_FIXED_VALUE_BITS ? bits : FEDGE_FIXED_VALUE_BITS;
    for (uint32_t i = 0; i < choice->num; i++)
        most = shares[i] > most ? shares[i] : most;
    const double unit = most > 0.0 ? ldexp(1.0, bits) / most : 0.0;
    for (uint32_t i = 0; i < choice->num; i++) {
        choice->weights[i] = (uint32_t)rint(shares[i] * unit);
        sum += (double)choice->weights[i];
    }
    choice->divisor = sum;
    return unit;
}

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

double fedge_robust_score(const fedge_gram *gram, const bool *alive, uint32_t i, uint32_t count,
                          double *room)
{
    uint32_t others = 0;
    double score = 0.0;
    for (uint32_t j = 0; j < gram->num; j++) {
        if (j != i && alive[j])
            room[others++] = gram->squares[(size_t)i * gram->num + j];
    }
    qsort(room, others, sizeof(*room), by_value);
    for (uint32_t k = 0; k < count && k < others; k++)
        score += room[k];
    return score;
}

/* ---- one value of a coordinate's ------------------------------------------------------------- */

typedef struct pass {
    const fedge_robust_choice *choice;
    const fedge_strategy_section *delta;
    fedge_robust_middle middle;
    double rate;
    float *model;
} pass;

/* sum and divisor of each coordinate, to the model. */
static void move(const pass *self, const fedge_tile *tile, const int64_t *sums, double divisor)
{
    float *model = self->model + tile->first;
    const double unit = ldexp(1.0, self->delta->bounds_log2[tile->tensor] - FEDGE_FIXED_VALUE_BITS);
    for (size_t k = 0; k < tile->count; k++)
        model[k] += (float)(self->rate * ((double)sums[k] / divisor * unit));
}

static void add_weighted(const pass *self, const fedge_tile *tile, int64_t *sums)
{
    for (uint32_t i = 0; i < tile->num; i++) {
        if (self->choice->weights[i] > 0)
            fedge_fixed_accumulate(sums, tile->rows[i], tile->count, self->choice->weights[i]);
    }
}

/* The rows from..to of sorted ones. */
static void add_between(const fedge_tile *tile, uint32_t from, uint32_t to, int64_t *sums)
{
    for (uint32_t i = from; i < to; i++) {
        for (size_t k = 0; k < tile->count; k++)
            sums[k] += tile->rows[i][k];
    }
}

/* The sum of all but the [cut] farthest from the median, which lie at the ends; of two that are as
 * far the greater one goes. Twice the median is an integer. */
static void add_nearest(const fedge_tile *tile, uint32_t num, uint32_t cut, int64_t *sums)
{
    int32_t *const *rows = tile->rows;
    for (size_t k = 0; k < tile->count; k++) {
        const int64_t median = (int64_t)rows[(num - 1) / 2][k] + rows[num / 2][k];
        uint32_t from = 0, to = num;
        for (uint32_t left = cut; left > 0; left--) {
            const int64_t below = median - 2 * (int64_t)rows[from][k];
            const int64_t above = 2 * (int64_t)rows[to - 1][k] - median;
            if (below > above)
                from++;
            else
                to--;
        }
        for (uint32_t i = from; i < to; i++)
            sums[k] += rows[i][k];
    }
}

/* Brings the rows of those that were chosen to the front. */
static uint32_t gather(const pass *self, const fedge_tile *tile)
{
    uint32_t num = 0;
    for (uint32_t i = 0; i < tile->num; i++) {
        if (self->choice->weights[i] == 0)
            continue;
        if (num != i)
            memcpy(tile->rows[num], tile->rows[i], tile->count * sizeof(int32_t));
        num++;
    }
    return num;
}

/* Tiles share no coordinate, so threads write to the model side by side without a lock. */
static fedge_status visit(void *user, const fedge_tile *tile, fedge_error *err)
{
    (void)err;
    const pass *self = user;
    int64_t sums[FEDGE_UPDATES_PIECE];
    memset(sums, 0, tile->count * sizeof(*sums));
    if (self->middle == FEDGE_ROBUST_MEAN) {
        add_weighted(self, tile, sums);
        move(self, tile, sums, self->choice->divisor);
        return FEDGE_OK;
    }
    const uint32_t num = gather(self, tile), cut = self->choice->cut;
    fedge_sort_rows(tile->rows, num, tile->count);
    if (self->middle == FEDGE_ROBUST_MEDIAN) {
        const uint32_t from = (num - 1) / 2, to = num / 2 + 1;
        add_between(tile, from, to, sums);
        move(self, tile, sums, (double)(to - from));
    } else if (self->middle == FEDGE_ROBUST_TRIMMED) {
        add_between(tile, cut, num - cut, sums);
        move(self, tile, sums, (double)(num - 2 * cut));
    } else {
        add_nearest(tile, num, 2 * cut, sums);
        move(self, tile, sums, (double)(num - 2 * cut));
    }
    return FEDGE_OK;
}

/* ---- a round --------------------------------------------------------------------------------- */

static fedge_status choose(const fedge_robust_rule *rule, const fedge_robust_settings *settings,
                           fedge_tiles *tiles, fedge_robust_choice *choice, fedge_error *err)
{
    fedge_gram gram = {0};
    fedge_status status = FEDGE_OK;
    if (settings->mixing) {
        status = fedge_gram_init(&gram, tiles, FEDGE_GRAM_ALL, err);
        if (status == FEDGE_OK)
            fedge_tiles_mix(tiles, gram.squares, settings->num_malicious);
        fedge_gram_fini(&gram);
    }
    if (status == FEDGE_OK)
        status = fedge_gram_init(&gram, tiles, rule->looks_at, err);
    if (status == FEDGE_OK && rule->choose)
        status = rule->choose(settings, &gram, choice, err);
    fedge_gram_fini(&gram);
    double sum = 0.0;
    for (uint32_t i = 0; i < choice->num; i++)
        sum += (double)choice->weights[i];
    choice->divisor = choice->divisor > 0.0 ? choice->divisor : sum > 0.0 ? sum : 1.0;
    return status;
}

static fedge_status check(const fedge_robust_rule *rule, const fedge_robust_settings *settings,
                          const fedge_strategy_sum *sum, fedge_error *err)
{
    const fedge_status status = fedge_strategy_check_sum(sum, rule->name, err);
    const uint32_t least = least_updates(rule, settings);
    if (status != FEDGE_OK)
        return status;
    if (!sum->updates || sum->updates->num != sum->num_updates) {
        return fedge_fail(err, FEDGE_INTERNAL, "%s: round %" PRIu32 " lacks its updates",
                          rule->name, sum->round);
    }
    return sum->num_updates >= least
               ? FEDGE_OK
               : fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                            "%s: round %" PRIu32 " has %" PRIu32 " updates and needs %" PRIu32,
                            rule->name, sum->round, sum->num_updates, least);
}

fedge_status fedge_robust_step(const fedge_robust_rule *rule, void *state,
                               const fedge_strategy_sum *sum, float *model, fedge_error *err)
{
    const fedge_robust_settings *settings = state;
    fedge_robust_choice choice = {.num = sum->num_updates};
    fedge_tiles tiles = {0};
    fedge_status status = check(rule, settings, sum, err);
    if (status == FEDGE_OK)
        status = fedge_tiles_init(&tiles, sum, settings->mixing, err);
    if (status != FEDGE_OK)
        return status;
    choice.weights = malloc(choice.num * sizeof(*choice.weights));
    if (!choice.weights)
        status = fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %" PRIu32 " weights", choice.num);
    for (uint32_t i = 0; status == FEDGE_OK && i < choice.num; i++)
        choice.weights[i] = 1;
    if (status == FEDGE_OK)
        status = choose(rule, settings, &tiles, &choice, err);
    pass of = {.choice = &choice,
               .delta = &sum->delta,
               .middle = rule->middle,
               .rate = fedge_strategy_rate(&settings->common, sum->round),
               .model = model};
    if (status == FEDGE_OK)
        status = fedge_tiles_each(&tiles, visit, &of, err);
    free(choice.weights);
    fedge_tiles_fini(&tiles);
    return status;
}
