#include "aggregator/reduce/optimizer.h"

#include <assert.h>
#include <math.h>

#include "edge/core/fixed.h"
#include "edge/core/os.h"

/* One plain version, which the compiler vectorizes for several CPUs. Each IEEE 754 operation rounds
 * the same way, so all give the same bits. Sums are converted first: AVX2 has no such conversion,
 * and it would keep the surrounding loop scalar. */
#define BLOCK 256
#if defined(__clang__)
#define WIDE ""
#else
#define WIDE ",prefer-vector-width=512"
#endif
#define AVX2 __attribute__((target("avx2")))
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl" WIDE)))
#define INLINE static inline __attribute__((always_inline))

typedef struct moved {
    float *restrict x, *restrict m, *restrict v;
} moved;

INLINE double next_v(fedge_step_rule rule, double beta2, double v, double square)
{
    const double sign = v > square ? 1.0 : v < square ? -1.0 : 0.0;
    return rule == FEDGE_STEP_RULE_ADAGRAD ? v + square
           : rule == FEDGE_STEP_RULE_ADAM  ? beta2 * v + (1.0 - beta2) * square
                                           : v - (1.0 - beta2) * square * sign;
}

/* Steps [count] ≤ BLOCK values with their means. */
INLINE void move(fedge_step_rule rule, const fedge_optimizer_step *step, double rate,
                 const double *restrict mean, size_t count, moved of)
{
    const double beta1 = step->beta1, beta2 = step->beta2, tau = step->tau;
    assert(rule == FEDGE_STEP_RULE_MOMENTUM || rule == FEDGE_STEP_RULE_DYN || of.v);
    for (size_t i = 0; i < count; i++) {
        double change;
        if (rule == FEDGE_STEP_RULE_MOMENTUM) {
            of.m[i] = (float)(beta1 * (double)of.m[i] + mean[i]);
            change = rate * (double)of.m[i];
        } else if (rule == FEDGE_STEP_RULE_DYN) {
            of.m[i] = (float)((double)of.m[i] - beta1 * beta2 * mean[i]);
            change = rate * (mean[i] - (double)of.m[i] / beta1);
        } else {
            of.m[i] = (float)(beta1 * (double)of.m[i] + (1.0 - beta1) * mean[i]);
            of.v[i] = (float)next_v(rule, beta2, (double)of.v[i], mean[i] * mean[i]);
            change = rate * (double)of.m[i] / (sqrt((double)of.v[i]) + tau);
        }
        of.x[i] += (float)change;
    }
}

INLINE void move_all(fedge_step_rule rule, const fedge_optimizer_step *step, double rate,
                     const fedge_optimizer_sums *by, float *values, float *const moments[2])
{
    const double unit = ldexp(1.0, by->bound_log2 - FEDGE_FIXED_VALUE_BITS);
    const double total = (double)by->total_weight;
    double mean[BLOCK];
    for (size_t at = 0; at < by->count; at += BLOCK) {
        const size_t count = by->count - at < BLOCK ? by->count - at : BLOCK;
        for (size_t i = 0; i < count; i++)
            mean[i] = (double)by->sums[at + i];
        for (size_t i = 0; i < count; i++)
            mean[i] = mean[i] / total * unit;
        move(rule, step, rate, mean, count,
             (moved){values + at, moments[0] + at, step->num_moments > 1 ? moments[1] + at : NULL});
    }
}

/* The rule is a constant in each loop. */
INLINE void move_by_rule(const fedge_optimizer_step *step, double rate,
                         const fedge_optimizer_sums *by, float *values, float *const moments[2])
{
    switch (step->rule) {
    case FEDGE_STEP_RULE_MOMENTUM:
        move_all(FEDGE_STEP_RULE_MOMENTUM, step, rate, by, values, moments);
        break;
    case FEDGE_STEP_RULE_ADAGRAD:
        move_all(FEDGE_STEP_RULE_ADAGRAD, step, rate, by, values, moments);
        break;
    case FEDGE_STEP_RULE_ADAM:
        move_all(FEDGE_STEP_RULE_ADAM, step, rate, by, values, moments);
        break;
    case FEDGE_STEP_RULE_YOGI:
        move_all(FEDGE_STEP_RULE_YOGI, step, rate, by, values, moments);
        break;
    case FEDGE_STEP_RULE_DYN:
        move_all(FEDGE_STEP_RULE_DYN, step, rate, by, values, moments);
        break;
    }
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void move_avx2(const fedge_optimizer_step *step, double rate,
                                                      const fedge_optimizer_sums *by, float *values,
                                                      float *const moments[2])
{
    move_by_rule(step, rate, by, values, moments);
}

AVX512 static void move_avx512(const fedge_optimizer_step *step, double rate,
                               const fedge_optimizer_sums *by, float *values,
                               float *const moments[2])
{
    move_by_rule(step, rate, by, values, moments);
}
#endif

void fedge_optimizer_move(const fedge_optimizer_step *step, double rate,
                          const fedge_optimizer_sums *by, float *values, float *const moments[2])
{
#if defined(__x86_64__)
    const unsigned features = fedge_os_cpu_features();
    if (features & FEDGE_CPU_AVX512) {
        move_avx512(step, rate, by, values, moments);
        return;
    }
    if (features & FEDGE_CPU_AVX2) {
        move_avx2(step, rate, by, values, moments);
        return;
    }
#endif
    move_by_rule(step, rate, by, values, moments);
}
