/* A robust round, in at most three passes over the updates, tile by tile:
 *
 *   1. mixing, if the job asks for it: all pairwise distances, and each update becomes the mean of
 *      its nearest neighbours (fedge_tiles_mix)
 *   2. the Gram matrix that the rule asks for, by which it weighs or leaves out whole updates
 *   3. the mean, median or trimmed mean of each coordinate over those that remain
 *
 * Sums are integers until the last division, so the model does not depend on threads or tiles. */
#include "aggregator/rounds/robust/robust.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "aggregator/rounds/sampler.h"
#include "edge/core/fixed.h"

#define WEIGHT_BITS 32 /* bits of all weights together, as in the sums (edge/core/fixed.h) */
#define GRAM_BITS 24   /* bits of |u|, the most that fedge_tile_ops.dots accepts */

/* ---- before any round ------------------------------------------------------------------------ */

static uint32_t min_updates_of(const fedge_robust_rule *rule, const fedge_robust_settings *settings)
{
    const uint32_t by_rule = rule->min_updates ? rule->min_updates(settings) : 1;
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
    const uint32_t least = min_updates_of(rule, settings);
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

fedge_status fedge_robust_check(const fedge_json *json, const fedge_job *job, fedge_error *err)
{
    return fedge_sections_find(&job->plan.sent, FEDGE_SECTION_BUFFERS)
               ? fedge_json_fail_at(json, "model.layers", err,
                                    "%s does not guard BatchNorm's statistics, whose mean one "
                                    "client can move: use GroupNorm in the model, or FedAvg",
                                    job->strategy)
               : FEDGE_OK;
}

/* ---- Gram matrices --------------------------------------------------------------------------- */

static double get(fedge_tile_sum value)
{
    /* After a subtraction low may be negative. The shift rounds down and the mask takes the
     * remainder, so the added value is always in [0, 2^32). */
    value.high += value.low >> 32;
    value.low &= 0xffffffff;
    return (double)value.high * 0x1p32 + (double)value.low;
}

typedef struct gram_pass {
    const fedge_tiles *tiles;
    const fedge_strategy_section *delta;
    int8_t most_bound_log2;
    fedge_tile_products products;
} gram_pass;

/* Adds the products of values rounded to GRAM_BITS bits of the largest bound. */
static fedge_status add_tile(void *user, const fedge_tile *tile, fedge_error *err)
{
    const gram_pass *self = user;
    const fedge_tiles *tiles = self->tiles;
    const int less = self->most_bound_log2 - self->delta->bounds_log2[tile->tensor];
    const int bits = FEDGE_FIXED_VALUE_BITS - GRAM_BITS + less;
    /* A larger shift would overflow when half is added for rounding. A tensor with such a small
     * bound adds at most one unit. */
    const int shift = bits < FEDGE_FIXED_VALUE_BITS ? bits : FEDGE_FIXED_VALUE_BITS;
    return tiles->ops->dots(tiles->state, tile->thread, tile->num, tile->count, shift,
                            self->products, err);
}

static void fill(fedge_gram *gram, const fedge_tile_sum *sums)
{
    for (uint32_t i = 0; i < gram->num; i++) {
        for (uint32_t j = 0; j < gram->num; j++) {
            const size_t at = (size_t)i * gram->num + j;
            const fedge_tile_sum *a = &sums[fedge_tile_pair(i, i)];
            const fedge_tile_sum *b = &sums[fedge_tile_pair(j, j)];
            const fedge_tile_sum *ab = &sums[fedge_tile_pair(i, j)];
            const fedge_tile_sum square = {a->high + b->high - 2 * ab->high,
                                           a->low + b->low - 2 * ab->low};
            if (gram->squares)
                gram->squares[at] = get(square);
            else
                gram->dots[at] = get(*ab);
        }
    }
}

static fedge_tile_products products_of(fedge_gram_extent extent)
{
    return extent == FEDGE_GRAM_NORMS  ? FEDGE_PRODUCTS_NORMS
           : extent == FEDGE_GRAM_LAST ? FEDGE_PRODUCTS_LAST
                                       : FEDGE_PRODUCTS_ALL;
}

fedge_status fedge_gram_init(fedge_gram *gram, fedge_tiles *tiles, fedge_gram_extent extent,
                             fedge_error *err)
{
    const uint32_t num = tiles->num;
    *gram = (fedge_gram){.num = num};
    if (extent == FEDGE_GRAM_NOTHING)
        return FEDGE_OK;
    const fedge_strategy_section *delta = &tiles->sum->delta;
    gram_pass of = {.tiles = tiles,
                    .delta = delta,
                    .most_bound_log2 = delta->bounds_log2[0],
                    .products = products_of(extent)};
    for (uint32_t t = 1; t < delta->schema->num_tensors; t++) {
        if (delta->bounds_log2[t] > of.most_bound_log2)
            of.most_bound_log2 = delta->bounds_log2[t];
    }
    /* The budget of tiles.c counts both arrays. */
    fedge_tile_sum *sums = malloc(fedge_tile_pairs(num) * sizeof(*sums));
    double *values = malloc((size_t)num * num * sizeof(*values));
    gram->unit = ldexp(1.0, of.most_bound_log2 - GRAM_BITS);
    if (extent == FEDGE_GRAM_SQUARES)
        gram->squares = values;
    else
        gram->dots = values;
    fedge_status status = FEDGE_OK;
    if (!sums || !values) {
        status = fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the distances of %u updates",
                            (unsigned)num);
        goto done;
    }
    FEDGE_TRY_OR(fedge_tiles_each(tiles, add_tile, &of, err), done);
    FEDGE_TRY_OR(tiles->ops->take_dots(tiles->state, num, sums, err), done);
    fill(gram, sums);

done:
    free(sums);
    return status;
}

void fedge_gram_fini(fedge_gram *gram)
{
    free(gram->dots);
    free(gram->squares);
    *gram = (fedge_gram){0};
}

/* ---- for rules ------------------------------------------------------------------------------- */

double fedge_robust_weigh(fedge_robust_choice *choice, const double *coefficients)
{
    double most = 0.0, sum = 0.0;
    int bits = WEIGHT_BITS;
    /* The largest coefficient becomes 2^bits; the sum of num weights must not exceed 2^WEIGHT_BITS.
     */
    for (uint32_t n = 1; n < choice->num; n *= 2)
        bits--;
    bits = bits < FEDGE_FIXED_VALUE_BITS ? bits : FEDGE_FIXED_VALUE_BITS;
    for (uint32_t i = 0; i < choice->num; i++)
        most = coefficients[i] > most ? coefficients[i] : most;
    const double unit = most > 0.0 ? ldexp(1.0, bits) / most : 0.0;
    for (uint32_t i = 0; i < choice->num; i++) {
        choice->weights[i] = (uint32_t)rint(coefficients[i] * unit);
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
                          double *scratch)
{
    uint32_t others = 0;
    double score = 0.0;
    for (uint32_t j = 0; j < gram->num; j++) {
        if (j != i && alive[j])
            scratch[others++] = gram->squares[(size_t)i * gram->num + j];
    }
    qsort(scratch, others, sizeof(*scratch), by_value);
    for (uint32_t k = 0; k < count && k < others; k++)
        score += scratch[k];
    return score;
}

/* ---- reducing a coordinate's values to one --------------------------------------------------- */

typedef struct pass {
    const fedge_tiles *tiles;
    const fedge_strategy_section *delta;
    fedge_tile_choice choice;
    double divisor, rate;
    float *model;
} pass;

/* The number of values of a coordinate in its sum. */
static double divisor_of(const fedge_tile_choice *choice, double of_mean)
{
    const uint32_t num = choice->num;
    const uint32_t count =
        choice->reduction == FEDGE_ROW_MEDIAN ? 2 - num % 2 : num - 2 * choice->cut;
    return choice->reduction == FEDGE_ROW_MEAN ? of_mean : (double)count;
}

/* Tiles share no coordinate, so threads write to the model without a lock. */
static fedge_status visit(void *user, const fedge_tile *tile, fedge_error *err)
{
    const pass *self = user;
    const fedge_tiles *tiles = self->tiles;
    const int64_t *sums = NULL;
    FEDGE_TRY(
        tiles->ops->reduce(tiles->state, tile->thread, tile->count, &self->choice, &sums, err));
    float *model = self->model + tile->first;
    const double unit = ldexp(1.0, self->delta->bounds_log2[tile->tensor] - FEDGE_FIXED_VALUE_BITS);
    for (size_t k = 0; k < tile->count; k++)
        model[k] += (float)(self->rate * ((double)sums[k] / self->divisor * unit));
    return FEDGE_OK;
}

/* The last pass. Unless updates are mixed, it reads only the selected ones. chosen, weights:
 * (choice->num) scratch. */
static fedge_status move(pass *self, fedge_tiles *tiles, const fedge_robust_choice *choice,
                         uint32_t *chosen, uint32_t *weights, fedge_error *err)
{
    uint32_t num = 0;
    for (uint32_t i = 0; i < choice->num; i++) {
        if (choice->weights[i] > 0) {
            chosen[num] = i;
            weights[num++] = choice->weights[i];
        }
    }
    if (num == 0)
        return FEDGE_OK;
    self->tiles = tiles;
    self->choice.num = num;
    self->choice.rows = tiles->mixed ? chosen : NULL;
    self->choice.weights = weights;
    self->choice.cut = choice->cut;
    self->divisor = divisor_of(&self->choice, choice->divisor);
    if (!tiles->mixed)
        fedge_tiles_read_only(tiles, chosen, num);
    return fedge_tiles_each(tiles, visit, self, err);
}

/* ---- a round --------------------------------------------------------------------------------- */

/* Replaces the updates in the tiles by means of their nearest neighbours. */
static fedge_status mix(const fedge_robust_rule *rule, const fedge_robust_settings *settings,
                        fedge_tiles *tiles, uint32_t num, fedge_error *err)
{
    fedge_gram gram = {0};
    fedge_status status = FEDGE_OK;
    FEDGE_TRY_OR(fedge_gram_init(&gram, tiles, FEDGE_GRAM_SQUARES, err), done);
    status =
        fedge_tiles_mix(tiles, gram.squares, num - rule->num_root, settings->num_malicious, err);

done:
    fedge_gram_fini(&gram);
    return status;
}

static fedge_status choose(const fedge_robust_rule *rule, const fedge_robust_settings *settings,
                           fedge_tiles *tiles, fedge_robust_choice *choice, fedge_error *err)
{
    fedge_gram gram = {0};
    if (settings->mixing)
        FEDGE_TRY(mix(rule, settings, tiles, choice->num, err));
    fedge_status status = fedge_gram_init(&gram, tiles, rule->extent, err);
    if (status == FEDGE_OK && rule->select)
        status = rule->select(settings, &gram, choice, err);
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
    FEDGE_TRY(fedge_strategy_check_updates(sum, rule->name, err));
    const uint32_t least = min_updates_of(rule, settings);
    const uint32_t num_updates = sum->num_updates - rule->num_root;
    return num_updates >= least
               ? FEDGE_OK
               : fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                            "%s: round %" PRIu32 " has %" PRIu32 " updates and needs %" PRIu32,
                            rule->name, sum->round, num_updates, least);
}

fedge_status fedge_robust_step(const fedge_robust_rule *rule, void *state,
                               const fedge_strategy_sum *sum, float *model, fedge_error *err)
{
    const fedge_robust_settings *settings = state;
    fedge_robust_choice choice = {.num = sum->num_updates};
    fedge_tiles tiles = {0};
    fedge_status status = FEDGE_OK;
    FEDGE_TRY(check(rule, settings, sum, err));
    FEDGE_TRY(fedge_tiles_init(&tiles, sum, settings->mixing, err));
    /* The weights of all updates, then the indices and the weights of the chosen ones. */
    uint32_t *lists = malloc(3 * (size_t)choice.num * sizeof(*lists));
    if (!lists) {
        status = fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %" PRIu32 " weights", choice.num);
        goto end;
    }
    choice.weights = lists;
    for (uint32_t i = 0; i < choice.num; i++)
        choice.weights[i] = 1;
    FEDGE_TRY_OR(choose(rule, settings, &tiles, &choice, err), end);
    pass of = {.delta = &sum->delta,
               .choice = {.reduction = rule->reduction},
               .rate = fedge_strategy_rate(&settings->common, sum->round),
               .model = model};
    status = move(&of, &tiles, &choice, lists + choice.num, lists + 2 * (size_t)choice.num, err);
end:
    free(lists);
    fedge_tiles_fini(&tiles);
    return status;
}
