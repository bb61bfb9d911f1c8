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

/* [value] ≥ 0, rounded already. */
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
