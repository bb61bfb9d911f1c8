#include "aggregator/rounds/sampler.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>

/* Products such as 0.55 · 100 = 55.000000000000007 must not change a count by one. */
#define ROUNDING 1e-9

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t max_u32(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* Converts a rounded [value] ≥ 0. */
static uint32_t count_of(double value)
{
    return value >= (double)UINT32_MAX ? UINT32_MAX : (uint32_t)value;
}

static uint32_t min_nodes(const fedge_rounds_spec *spec, fedge_task_kind kind)
{
    return kind == FEDGE_TASK_TRAIN ? spec->min_train_nodes : spec->min_evaluate_nodes;
}

uint32_t fedge_cohort_needed(const fedge_rounds_spec *spec, fedge_task_kind kind)
{
    return max_u32(1, max_u32(spec->min_available_nodes, min_nodes(spec, kind)));
}

fedge_cohort_size fedge_cohort_size_of(const fedge_rounds_spec *spec, fedge_task_kind kind,
                                       uint32_t available)
{
    assert(available >= 1 && spec->max_cohort >= 1);
    bool train = kind == FEDGE_TASK_TRAIN;
    double fraction = train ? spec->fraction_train : spec->fraction_evaluate;
    double over_selection = train ? spec->over_selection : 1.0;
    uint32_t most = min_u32(available, spec->max_cohort);
    uint32_t wanted = count_of(floor(fraction * available + ROUNDING));
    wanted = max_u32(wanted, max_u32(1, min_nodes(spec, kind)));
    wanted = min_u32(wanted, most);
    uint32_t asked = count_of(ceil(wanted * over_selection - ROUNDING));
    if (spec->buffer_size > 0)
        return (fedge_cohort_size){.wanted = min_u32(wanted, spec->buffer_size), .asked = wanted};
    return (fedge_cohort_size){.wanted = wanted, .asked = min_u32(max_u32(asked, wanted), most)};
}

uint32_t fedge_cohort_min_reports(const fedge_rounds_spec *spec, uint32_t wanted)
{
    uint32_t reports = count_of(ceil(spec->min_report_fraction * wanted - ROUNDING));
    return max_u32(1, min_u32(reports, wanted));
}

void fedge_sample(fedge_rng *rng, uint32_t *items, uint32_t n, uint32_t k)
{
    assert(k <= n);
    for (uint32_t i = 0; i < k; i++) {
        uint32_t j = i + fedge_rng_below(rng, n - i);
        uint32_t item = items[i];
        items[i] = items[j];
        items[j] = item;
    }
}

/* ---- samplers by kind ------------------------------------------------------------------------ */

#define ENTRY(name, text) &fedge_sampler_##name,
static const fedge_sampler_ops *const samplers[] = {FEDGE_SAMPLER_MAP(ENTRY)};

const fedge_sampler_ops *fedge_sampler_of(fedge_sampler_kind kind)
{
    assert(kind < FEDGE_SAMPLER_COUNT);
    return samplers[kind];
}

bool fedge_sampler_uses_history(const fedge_sampler_spec *spec)
{
    return fedge_sampler_of(spec->type)->score != NULL;
}

/* The client's score; 0: unknown. */
static uint32_t known_score(const fedge_sampler_spec *spec, const fedge_client_history *history,
                            uint32_t round, uint32_t client)
{
    const fedge_client_record record = fedge_client_history_get(history, client);
    const uint32_t score = fedge_sampler_of(spec->type)->score(&record, round);
    assert(score <= FEDGE_SAMPLER_MAX_SCORE);
    return score;
}

uint32_t fedge_draw_score(const fedge_draw *draw, const fedge_sampler_spec *spec,
                          const fedge_client_history *history, uint32_t round, uint32_t client)
{
    const uint32_t known = known_score(spec, history, round, client);
    const uint32_t score = known > 0 ? known : draw->unknown;
    return score > draw->floor ? score : draw->floor;
}

/* Sets the score of unknown clients and the lowest score. */
static fedge_draw begin(const fedge_sampler_spec *spec, const fedge_client_history *history,
                        uint32_t round, const uint32_t *items, uint32_t n)
{
    uint64_t sum = 0;
    uint32_t known = 0, greatest = 1;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t score = known_score(spec, history, round, items[i]);
        known += score > 0;
        sum += score;
        greatest = score > greatest ? score : greatest;
    }
    const uint32_t mean = known > 0 && sum >= known ? (uint32_t)(sum / known) : 1;
    const uint32_t unknown = fedge_sampler_of(spec->type)->optimistic ? greatest : mean;
    const uint64_t all = sum + (uint64_t)(n - known) * unknown;
    const uint64_t mean_of_all = all / n;
    const double least = spec->minimum_share * (double)mean_of_all;
    return (fedge_draw){
        .unknown = unknown, .floor = least > 1.0 ? (uint32_t)least : 1, .available = n};
}

static void swap(uint32_t *items, uint32_t i, uint32_t j)
{
    const uint32_t item = items[i];
    items[i] = items[j];
    items[j] = item;
}

fedge_draw fedge_draw_cohort(const fedge_sampler_spec *spec, const fedge_client_history *history,
                             uint32_t round, fedge_rng *rng, uint32_t *items, uint32_t n,
                             uint32_t k)
{
    assert(k >= 1 && k <= n && n <= (uint32_t)1 << 24);
    fedge_draw draw = begin(spec, history, round, items, n);
    draw.asked = k;
    fedge_sample(rng, items, n, n);
    /* Clients with π_i ≥ 1 are taken first, which raises the probability of the others. */
    uint32_t taken = 0, before;
    do {
        before = taken;
        draw.total = 0;
        for (uint32_t i = taken; i < n; i++)
            draw.total += fedge_draw_score(&draw, spec, history, round, items[i]);
        for (uint32_t i = taken; i < n && taken < k; i++) {
            const uint64_t score = fedge_draw_score(&draw, spec, history, round, items[i]);
            if (score * (k - before) >= draw.total)
                swap(items, taken++, i);
        }
    } while (taken > before && taken < k);
    draw.count = k - taken;
    if (taken == k) {
        draw.total = 0;
        return draw;
    }
    assert(draw.total > 0 && draw.count > 0); /* every score is at least 1 */
    /* Systematic sampling: k points at equal distances T / k, the first drawn from [0, T / k), on a
     * line where each client's length is its score. Positions are whole numbers and remainders of a
     * division by k. */
    const uint64_t start = (((uint64_t)fedge_rng_u32(rng) << 32) | fedge_rng_u32(rng)) % draw.total;
    uint64_t point = start / draw.count, remainder = start % draw.count, reached = 0;
    for (uint32_t i = taken; i < n && taken < k; i++) {
        reached += fedge_draw_score(&draw, spec, history, round, items[i]);
        if (point < reached) {
            swap(items, taken++, i);
            point += draw.total / draw.count;
            remainder += draw.total % draw.count;
            point += remainder >= draw.count;
            remainder -= remainder >= draw.count ? draw.count : 0;
        }
    }
    return draw;
}

double fedge_draw_ratio(const fedge_draw *draw, const fedge_sampler_spec *spec,
                        const fedge_client_history *history, uint32_t round, uint32_t client)
{
    if (draw->available == 0)
        return 1.0;
    const double mean = (double)draw->asked / (double)draw->available;
    const uint64_t hits =
        draw->count * (uint64_t)fedge_draw_score(draw, spec, history, round, client);
    return hits >= draw->total ? mean : mean * (double)draw->total / (double)hits;
}
