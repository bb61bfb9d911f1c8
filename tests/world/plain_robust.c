/* Robust rules: selection of updates, and the combination of their values coordinate by coordinate.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/world/plain_codec.h"
#include "tests/world/plain_step.h"

/* The updates of a round, mixed if the job requires it. */
typedef struct rows {
    uint32_t num;
    const int32_t *v[PLAIN_MAX_UPDATES];
} rows;

/* The result of a rule. */
typedef struct choice {
    uint32_t weights[PLAIN_MAX_UPDATES + 1]; /* 0: the update is left out */
    double divisor; /* divisor of the weighted sum; 0: the sum of the weights */
} choice;

static int by_value(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static int by_double(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* ---- distances ------------------------------------------------------------------------------- */

static int largest_bound(const plain_round *round)
{
    const int8_t *bounds = round->updates[0].bounds_log2;
    int most = bounds[0];
    for (uint32_t t = 1; t < round->job->plan.sent.sections[0].schema.num_tensors; t++)
        most = bounds[t] > most ? bounds[t] : most;
    return most;
}

/* Σ a·b of two updates, or ‖a − b‖², each rounded to 24 bits of the largest bound. */
static double product(const plain_round *round, const int32_t *a, const int32_t *b, bool squared)
{
    const fedge_schema *schema = &round->job->plan.sent.sections[0].schema;
    const int most = largest_bound(round);
    int64_t high = 0, low = 0; /* the sum is high · 2^32 + low: it may be over 2^63 */
    for (uint32_t t = 0; t < schema->num_tensors; t++) {
        const fedge_tensor_spec *spec = &schema->tensors[t];
        const int bits = 6 + most - round->updates[0].bounds_log2[t];
        const int shift = bits < 30 ? bits : 30;
        const int64_t half = (int64_t)1 << (shift - 1);
        for (size_t i = spec->offset; i < spec->offset + spec->count; i++) {
            const int64_t x = (a[i] + half) >> shift, y = (b[i] + half) >> shift;
            const int64_t value = squared ? (x - y) * (x - y) : x * y;
            high += value >> 32;
            low += value & 0xffffffff;
        }
    }
    high += low >> 32;
    return (double)high * 0x1p32 + (double)(low & 0xffffffff);
}

/* Replaces each update by the mean of all but the [malicious] farthest from it. */
static void mix(const plain_round *round, rows *all, uint32_t malicious)
{
    static int32_t mixed[PLAIN_MAX_UPDATES][PLAIN_MAX_VALUES];
    const size_t num_values = round->job->plan.sent.sections[0].schema.num_elements;
    for (uint32_t u = 0; u < all->num; u++) {
        double distances[PLAIN_MAX_UPDATES];
        bool far[PLAIN_MAX_UPDATES] = {false};
        for (uint32_t i = 0; i < all->num; i++)
            distances[i] = product(round, all->v[u], all->v[i], true);
        for (uint32_t k = 0; k < malicious; k++) {
            uint32_t worst = all->num;
            for (uint32_t i = 0; i < all->num; i++) {
                if (!far[i] && (worst == all->num || distances[i] >= distances[worst]))
                    worst = i;
            }
            far[worst] = true;
        }
        for (size_t i = 0; i < num_values; i++) {
            int64_t sum = 0;
            for (uint32_t k = 0; k < all->num; k++)
                sum += far[k] ? 0 : all->v[k][i];
            mixed[u][i] = (int32_t)rint((double)sum / (all->num - malicious));
        }
    }
    for (uint32_t u = 0; u < all->num; u++)
        all->v[u] = mixed[u];
}

/* ---- whole updates --------------------------------------------------------------------------- */

/* The sum of the distances from [of] to its [near] nearest among those that are left. */
static double krum_score(const plain_round *round, const rows *all, const bool *alive, uint32_t of,
                         uint32_t near)
{
    double distances[PLAIN_MAX_UPDATES], score = 0.0;
    uint32_t num = 0;
    for (uint32_t i = 0; i < all->num; i++) {
        if (i != of && alive[i])
            distances[num++] = product(round, all->v[of], all->v[i], true);
    }
    qsort(distances, num, sizeof(*distances), by_double);
    for (uint32_t i = 0; i < near && i < num; i++)
        score += distances[i];
    return score;
}

/* The update with the lowest score among those with can[i]. Of equal scores the first one counts,
 * beginning at the variant if the server's order is not known. */
static uint32_t lowest(const plain_round *round, const double *scores, const bool *can,
                       uint32_t num)
{
    uint32_t best = num;
    for (uint32_t k = 0; k < num; k++) {
        const uint32_t i = (k + round->variant) % num;
        if (can[i] && (best == num || scores[i] < scores[best]))
            best = i;
    }
    return best;
}

/* Krum and MultiKrum compute scores once, Bulyan after each selection. */
static void choose_by_krum(const plain_round *round, const rows *all, choice *out)
{
    const fedge_job *job = round->job;
    const uint32_t num = all->num;
    const uint32_t f = (uint32_t)plain_argument(job, "num-malicious-nodes");
    const uint32_t given = (uint32_t)plain_argument(job, "num-nodes-to-keep");
    const bool bulyan = plain_is(job, "Bulyan");
    const uint32_t wanted = bulyan                  ? num - 2 * f
                            : plain_is(job, "Krum") ? 1
                            : given > 0             ? given
                                                    : num - f;
    double scores[PLAIN_MAX_UPDATES];
    bool can[PLAIN_MAX_UPDATES];
    for (uint32_t i = 0; i < num; i++) {
        can[i] = true;
        out->weights[i] = 0;
    }
    for (uint32_t n = 0; n < wanted && n < num; n++) {
        const uint32_t left = num - n;
        const uint32_t near = left > f + 3 ? left - f - 2 : 1;
        for (uint32_t i = 0; (bulyan || n == 0) && i < num; i++)
            scores[i] = can[i] ? krum_score(round, all, can, i, bulyan ? near : num - f - 2) : 0.0;
        const uint32_t best = lowest(round, scores, can, num);
        can[best] = false;
        out->weights[best] = 1;
    }
}

/* Coefficients as integers of the bits that the sums permit. Returns the integer of 1. */
static double weigh(choice *out, const double *coefficients, uint32_t num)
{
    double most = 0.0;
    int bits = 32;
    out->divisor = 0.0;
    for (uint32_t n = 1; n < num; n *= 2)
        bits--;
    for (uint32_t i = 0; i < num; i++)
        most = coefficients[i] > most ? coefficients[i] : most;
    const double unit = most > 0.0 ? ldexp(1.0, bits < 30 ? bits : 30) / most : 0.0;
    for (uint32_t i = 0; i < num; i++) {
        out->weights[i] = (uint32_t)rint(coefficients[i] * unit);
        out->divisor += (double)out->weights[i];
    }
    return unit;
}

static void clip_norms(const plain_round *round, const rows *all, choice *out)
{
    const uint32_t num = all->num;
    const double unit = ldexp(1.0, largest_bound(round) - 24);
    const double given = plain_argument(round->job, "norm");
    double norms[PLAIN_MAX_UPDATES], sorted[PLAIN_MAX_UPDATES];
    for (uint32_t i = 0; i < num; i++)
        sorted[i] = norms[i] = sqrt(product(round, all->v[i], all->v[i], false)) * unit;
    qsort(sorted, num, sizeof(*sorted), by_double);
    const double most = given > 0.0 ? given : 0.5 * (sorted[(num - 1) / 2] + sorted[num / 2]);
    for (uint32_t i = 0; i < num; i++)
        norms[i] = norms[i] > most ? most / norms[i] : 1.0;
    out->divisor = weigh(out, norms, num) * num;
}

/* RFA: the coefficients of the geometric median. */
static void find_median(const plain_round *round, const rows *all, choice *out)
{
    const uint32_t num = all->num;
    const double unit = ldexp(1.0, largest_bound(round) - 24);
    const double least = plain_argument(round->job, "smoothing");
    const uint32_t turns = (uint32_t)plain_argument(round->job, "num-iterations");
    double alpha[PLAIN_MAX_UPDATES], along[PLAIN_MAX_UPDATES], square[PLAIN_MAX_UPDATES];
    for (uint32_t i = 0; i < num; i++) {
        alpha[i] = 1.0 / num;
        square[i] = product(round, all->v[i], all->v[i], false);
    }
    for (uint32_t turn = 0; turn < turns; turn++) {
        double total = 0.0, sum = 0.0;
        for (uint32_t i = 0; i < num; i++) {
            along[i] = 0.0;
            for (uint32_t j = 0; j < num; j++)
                along[i] += alpha[j] * product(round, all->v[i], all->v[j], false);
            total += alpha[i] * along[i];
        }
        for (uint32_t i = 0; i < num; i++) {
            const double apart = total - 2.0 * along[i] + square[i];
            const double distance = apart > 0.0 ? sqrt(apart) * unit : 0.0;
            alpha[i] = 1.0 / (distance > least ? distance : least);
            sum += alpha[i];
        }
        for (uint32_t i = 0; i < num; i++)
            alpha[i] /= sum;
    }
    (void)weigh(out, alpha, num);
}

/* The server's update, as a client would send it in full precision. */
static void quantise(const plain_round *round, int32_t *v)
{
    const fedge_schema *schema = &round->job->plan.sent.sections[0].schema;
    for (uint32_t t = 0; t < schema->num_tensors; t++) {
        const fedge_tensor_spec *spec = &schema->tensors[t];
        const int bound_log2 = round->updates[0].bounds_log2[t];
        const double bound = ldexp(1.0, bound_log2);
        for (size_t i = spec->offset; i < spec->offset + spec->count; i++) {
            const double x = fmax(-bound, fmin(bound, (double)round->root[i]));
            v[i] = (int32_t)rint(ldexp(x, 30 - bound_log2));
        }
    }
}

/* FLTrust: an update counts by the cosine of its angle to the server's, and with its length. The
 * server's own update has a weight, too, which is 0. */
static void trust(const plain_round *round, const rows *all, choice *out)
{
    static int32_t root[PLAIN_MAX_VALUES];
    double factors[PLAIN_MAX_UPDATES + 1] = {0.0}, trusted = 0.0;
    quantise(round, root);
    const double length = sqrt(product(round, root, root, false));
    for (uint32_t i = 0; i < all->num; i++) {
        const double norm = sqrt(product(round, all->v[i], all->v[i], false));
        const double dot = product(round, all->v[i], root, false);
        const double cosine = dot > 0.0 ? dot / (norm * length) : 0.0;
        factors[i] = dot > 0.0 ? cosine * length / norm : 0.0;
        trusted += cosine;
    }
    const double unit = weigh(out, factors, all->num + 1);
    out->divisor = unit * trusted;
}

/* ---- coordinates ----------------------------------------------------------------------------- */

/* The sum of sorted values without the [cut] farthest from their median. */
static int64_t nearest(const int32_t *values, uint32_t num, uint32_t cut)
{
    const int64_t twice = (int64_t)values[(num - 1) / 2] + values[num / 2];
    uint32_t from = 0, to = num;
    int64_t sum = 0;
    while (to - from > num - cut) {
        if (twice - 2 * (int64_t)values[from] > 2 * (int64_t)values[to - 1] - twice)
            from++;
        else
            to--;
    }
    for (uint32_t i = from; i < to; i++)
        sum += values[i];
    return sum;
}

/* Combines one coordinate of the selected updates. Sets the divisor of the sum. */
static int64_t reduce(const fedge_job *job, int32_t *values, uint32_t num, uint32_t f,
                      double *divisor)
{
    int64_t sum = 0;
    const uint32_t cut = plain_is(job, "FedMedian") ? (num - 1) / 2 : f;
    qsort(values, num, sizeof(*values), by_value);
    *divisor = (double)(num - 2 * cut);
    if (plain_is(job, "Bulyan"))
        return nearest(values, num, 2 * f);
    for (uint32_t i = cut; i < num - cut; i++)
        sum += values[i];
    return sum;
}

static bool has_enough(const fedge_job *job, uint32_t num, uint32_t f)
{
    const uint32_t by_rule = plain_is(job, "Bulyan")                    ? 4 * f + 3
                             : plain_is_one_of(job, " Krum MultiKrum ") ? 2 * f + 3
                                                                        : 1;
    return num >= by_rule && (plain_argument(job, "mixing") == 0.0 || num >= 2 * f + 1);
}

bool plain_needs_root(const fedge_job *job)
{
    return plain_is(job, "FLTrust");
}

bool plain_robust_sums(const plain_round *round, int64_t *sums, size_t num_values, double *divisor)
{
    static choice chosen;
    const fedge_job *job = round->job;
    const uint32_t f = (uint32_t)plain_argument(job, "num-malicious-nodes");
    const bool sorts = plain_is_one_of(job, " FedMedian FedTrimmedAvg Bulyan ");
    rows all = {.num = round->num_updates};
    if (!has_enough(job, all.num, f) || (plain_needs_root(job) && !round->root))
        return false;
    chosen.divisor = 0.0;
    for (uint32_t u = 0; u < all.num; u++) {
        all.v[u] = round->updates[u].v;
        chosen.weights[u] = 1;
    }
    if (plain_argument(job, "mixing") != 0.0)
        mix(round, &all, f);
    if (plain_is_one_of(job, " Krum MultiKrum Bulyan "))
        choose_by_krum(round, &all, &chosen);
    else if (plain_is(job, "NormClipping"))
        clip_norms(round, &all, &chosen);
    else if (plain_is(job, "RFA"))
        find_median(round, &all, &chosen);
    else if (plain_needs_root(job))
        trust(round, &all, &chosen);
    for (uint32_t u = 0; !plain_is_one_of(job, " NormClipping RFA FLTrust ") && u < all.num; u++)
        chosen.divisor += (double)chosen.weights[u];
    *divisor = chosen.divisor > 0.0 ? chosen.divisor : 1.0;
    const uint32_t cut =
        plain_is(job, "FedTrimmedAvg") ? (uint32_t)(plain_argument(job, "beta") * all.num) : f;
    for (size_t i = 0; i < num_values; i++) {
        int32_t values[PLAIN_MAX_UPDATES];
        uint32_t num = 0;
        sums[i] = 0;
        for (uint32_t u = 0; u < all.num; u++) {
            sums[i] += (int64_t)chosen.weights[u] * all.v[u][i];
            if (chosen.weights[u] > 0)
                values[num++] = all.v[u][i];
        }
        if (sorts)
            sums[i] = reduce(job, values, num, cut, divisor);
    }
    return true;
}
