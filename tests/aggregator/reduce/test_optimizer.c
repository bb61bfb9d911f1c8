/* The steps of the server's optimizers: whatever vectors a CPU has, and however values are cut into
 * calls, the bits are those of the formulas, one value and one operation after another. */
#include "tests/edge/core/cmocka_all.h"

#include <math.h>
#include <string.h>

#include "aggregator/reduce/optimizer.h"
#include "edge/core/rng.h"

enum { MOST = 600, RULES = FEDGE_STEP_RULE_DYN + 1 };

static int64_t sums[MOST];
static float values[2][MOST], first[2][MOST], second[2][MOST];

/* One value. */
static void follow(const fedge_optimizer_step *step, double rate, double mean, float *x, float *m,
                   float *v)
{
    const double square = mean * mean;
    volatile double change, next; /* each operation rounds alone */
    switch (step->rule) {
    case FEDGE_STEP_RULE_MOMENTUM:
        *m = (float)(step->beta1 * (double)*m + mean);
        change = rate * (double)*m;
        break;
    case FEDGE_STEP_RULE_DYN:
        *m = (float)((double)*m - step->beta1 * step->beta2 * mean);
        change = rate * (mean - (double)*m / step->beta1);
        break;
    case FEDGE_STEP_RULE_ADAGRAD:
    case FEDGE_STEP_RULE_ADAM:
    case FEDGE_STEP_RULE_YOGI:
    default:
        *m = (float)(step->beta1 * (double)*m + (1.0 - step->beta1) * mean);
        next = (double)*v + square;
        if (step->rule == FEDGE_STEP_RULE_ADAM)
            next = step->beta2 * (double)*v + (1.0 - step->beta2) * square;
        else if (step->rule == FEDGE_STEP_RULE_YOGI && (double)*v > square)
            next = (double)*v - (1.0 - step->beta2) * square;
        else if (step->rule == FEDGE_STEP_RULE_YOGI)
            next = (double)*v + ((double)*v < square ? (1.0 - step->beta2) * square : 0.0);
        *v = (float)next;
        change = rate * (double)*m / (sqrt((double)*v) + step->tau);
    }
    *x += (float)change;
}

/* Sums of all sizes, none among them, and vectors as steps before have left them. */
static void draw(fedge_rng *rng, uint64_t total_weight)
{
    for (size_t i = 0; i < MOST; i++) {
        const uint64_t most = total_weight << fedge_rng_below(rng, 31);
        const int64_t size = (int64_t)(fedge_rng_u64(rng) % (most + 1));
        const uint32_t kind = fedge_rng_below(rng, 8);
        sums[i] = kind == 0 ? 0 : kind % 2 ? size : -size;
        values[0][i] = (float)fedge_rng_below(rng, 2000) * 0.001f - 1.0f;
        first[0][i] = (float)fedge_rng_below(rng, 2000) * 0.0001f - 0.1f;
        second[0][i] = (float)fedge_rng_below(rng, 1000) * 0.00001f;
    }
    memcpy(values[1], values[0], sizeof(values[0]));
    memcpy(first[1], first[0], sizeof(first[0]));
    memcpy(second[1], second[0], sizeof(second[0]));
}

static void compare(fedge_rng *rng, fedge_step_rule rule)
{
    const uint64_t total = 1 + fedge_rng_u64(rng) % ((uint64_t)1 << (1 + fedge_rng_below(rng, 32)));
    const fedge_optimizer_step step = {
        .rule = rule,
        .num_moments = rule == FEDGE_STEP_RULE_MOMENTUM || rule == FEDGE_STEP_RULE_DYN ? 1 : 2,
        .beta1 = rule == FEDGE_STEP_RULE_DYN ? 0.01 : 0.9,
        .beta2 = 0.99,
        .tau = 1e-3};
    const int bound_log2 = (int)fedge_rng_below(rng, 10) - 4;
    const double unit = ldexp(1.0, bound_log2 - 30), rate = 0.3;
    draw(rng, total);
    for (size_t i = 0; i < MOST; i++) {
        follow(&step, rate, (double)sums[i] / (double)total * unit, &values[0][i], &first[0][i],
               &second[0][i]);
    }
    for (size_t at = 0; at < MOST;) {
        const size_t left = MOST - at, cut = 1 + fedge_rng_below(rng, MOST);
        const fedge_optimizer_sums by = {sums + at, cut < left ? cut : left, total, bound_log2};
        float *const moments[2] = {first[1] + at, step.num_moments > 1 ? second[1] + at : NULL};
        fedge_optimizer_move(&step, rate, &by, values[1] + at, moments);
        at += by.count;
    }
    assert_memory_equal(values[0], values[1], sizeof(values[0]));
    assert_memory_equal(first[0], first[1], sizeof(first[0]));
    assert_memory_equal(second[0], second[1], sizeof(second[0]));
}

static void steps_have_the_bits_of_their_formulas(void **state)
{
    (void)state;
    for (int rule = 0; rule < RULES; rule++) {
        fedge_rng rng = fedge_rng_stream(7, FEDGE_PURPOSE_TEST, (uint32_t)rule, 0, 0);
        for (int i = 0; i < 40; i++)
            compare(&rng, (fedge_step_rule)rule);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_have_the_bits_of_their_formulas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
