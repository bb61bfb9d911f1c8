#include "tests/world/plain_step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rounds/strategy.h"
#include "edge/json/json.h"
#include "tests/world/plain_codec.h"

/* ---- the job --------------------------------------------------------------------------------- */

bool plain_is(const fedge_job *job, const char *strategy)
{
    return strcmp(job->strategy, strategy) == 0;
}

bool plain_is_one_of(const fedge_job *job, const char *strategies)
{
    const char *found = strstr(strategies, job->strategy);
    return found && found[-1] == ' ' && found[strlen(job->strategy)] == ' ';
}

static bool is_robust(const fedge_job *job)
{
    return plain_is_one_of(job, PLAIN_ROBUST);
}

static bool is_adaptive(const fedge_job *job)
{
    return plain_is_one_of(job, " FedAdagrad FedAdam FedYogi ");
}

double plain_argument(const fedge_job *job, const char *key)
{
    const fedge_json_field *field = NULL;
    for (size_t i = 0; job->strategies[i]; i++) {
        if (strcmp(job->strategies[i]->name, job->strategy) == 0)
            field = job->strategies[i]->arguments;
    }
    while (field && field->key && strcmp(field->key, key) != 0)
        field++;
    if (!field || !field->key)
        return 0.0;
    const uint8_t *at = (const uint8_t *)job->strategy_settings + field->offset;
    double real = 0.0;
    float less = 0.0f;
    uint64_t whole = 0;
    if (field->kind == FEDGE_JSON_F64) {
        memcpy(&real, at, sizeof(real));
        return real;
    }
    if (field->kind == FEDGE_JSON_F32) {
        memcpy(&less, at, sizeof(less));
        return (double)less;
    }
    memcpy(&whole, at, field->size); /* kinds U32, BOOL and ENUM */
    return (double)whole;
}

static double rate_of(const plain_round *round)
{
    const fedge_strategy_common *common = round->job->strategy_settings;
    return fedge_schedule_rate(&common->schedule, common->server_learning_rate, round->round);
}

bool plain_step_models(const fedge_job *job)
{
    return is_robust(job) || plain_is_one_of(job, " FedAvg FedProx FedAvgM FedAdagrad FedAdam "
                                                  "FedYogi FedNova QFedAvg SCAFFOLD FedDyn FedPer "
                                                  "FedRep FedBN Ditto IFCA FedBuff FedAsync ");
}

void plain_step_begin(const fedge_job *job, plain_model *model)
{
    const size_t num = job->plan.sent.sections[0].schema.num_elements;
    const double tau = plain_argument(job, "tau");
    memset(model->moments[0], 0, num * sizeof(float));
    memset(model->residual, 0, num * sizeof(float));
    for (size_t i = 0; i < num; i++)
        model->moments[1][i] = is_adaptive(job) ? (float)(tau * tau) : 0.0f;
}

/* ---- weights --------------------------------------------------------------------------------- */

/* The largest power of two that is at most [x]. */
static double power_of_two(double x)
{
    double power = 1.0;
    while (power * 2.0 <= x)
        power *= 2.0;
    return power;
}

uint32_t plain_examples_weight(const fedge_job *job, const plain_update *update)
{
    const uint64_t examples = update->said.num_examples > 0 ? update->said.num_examples : 1;
    return examples < job->rounds.max_weight ? (uint32_t)examples : job->rounds.max_weight;
}

static double staleness_weight(const fedge_job *job, uint32_t staleness)
{
    const double s = staleness, delay = plain_argument(job, "hinge-delay");
    switch ((unsigned)plain_argument(job, "staleness-weight")) {
    case 0: /* polynomial */
        return pow(1.0 + s, -plain_argument(job, "staleness-exponent"));
    case 2: /* hinge */
        return s <= delay ? 1.0 : 1.0 / (plain_argument(job, "hinge-slope") * (s - delay) + 1.0);
    default:
        return 1.0;
    }
}

static double qfed_unit(const fedge_job *job)
{
    return job->rounds.max_weight < 64 ? 1.0 : power_of_two(job->rounds.max_weight / 64.0);
}

static double qfed_loss(const plain_update *update)
{
    return update->said.start_loss > 1e-10 ? update->said.start_loss : 1e-10;
}

static uint32_t clamp_weight(double value, uint32_t most)
{
    return value < 1.0 ? 1 : value < (double)most ? (uint32_t)value : most;
}

static uint32_t drawn_weight_of(const plain_round *round, const plain_update *update)
{
    const fedge_job *job = round->job;
    const uint32_t most = job->rounds.max_weight;
    if (is_robust(job) || plain_is_one_of(job, " SCAFFOLD FedDyn "))
        return 1;
    if (plain_is(job, "FedNova"))
        return plain_nova_weight(round, update);
    if (plain_is(job, "QFedAvg")) {
        return clamp_weight(rint(qfed_unit(job) * pow(qfed_loss(update), plain_argument(job, "q"))),
                            most);
    }
    if (plain_is_one_of(job, " FedBuff FedAsync ")) {
        return clamp_weight(rint(power_of_two(most) * staleness_weight(job, update->staleness)),
                            UINT32_MAX);
    }
    return job->rounds.sampler.type == FEDGE_SAMPLER_examples && update->ratio == 0.0
               ? 1
               : plain_examples_weight(job, update);
}

static uint32_t weight_of(const plain_round *round, const plain_update *update)
{
    const uint32_t weight = drawn_weight_of(round, update);
    return update->ratio > 0.0
               ? plain_inverse_weight(round->job, update, weight,
                                      plain_is_one_of(round->job, " SCAFFOLD FedDyn "))
               : weight;
}

/* ---- rates ----------------------------------------------------------------------------------- */

static double qfed_rate(const plain_round *round, double total_weight)
{
    const fedge_job *job = round->job;
    const fedge_schema *schema = &job->plan.sent.sections[0].schema;
    const fedge_training_spec *training = &job->plan.training;
    const double q = plain_argument(job, "q"), unit = qfed_unit(job);
    const double lipschitz =
        1.0 /
        fedge_schedule_rate(&training->schedule, (double)training->learning_rate, round->round);
    double h = 0.0, most = 0.0;
    for (uint32_t t = 0; t < schema->num_tensors; t++)
        most += ldexp((double)schema->tensors[t].count, 2 * round->updates[0].bounds_log2[t]);
    for (uint32_t i = 0; i < round->num_updates; i++) {
        const plain_update *update = &round->updates[i];
        const double power = (double)weight_of(round, update) / unit;
        const double norm =
            update->said.squared_norm > 0.0 ? fmin(update->said.squared_norm, most) : 0.0;
        h += q * power / qfed_loss(update) * lipschitz * lipschitz * norm + power * lipschitz;
    }
    return rate_of(round) * lipschitz * (total_weight / unit) / h;
}

/* The factor of the weighted mean in a step. */
static double mean_rate(const plain_round *round, double total_weight)
{
    const fedge_job *job = round->job;
    if (plain_is(job, "FedNova"))
        return rate_of(round) * plain_nova_rate(round, total_weight);
    if (plain_is(job, "QFedAvg"))
        return qfed_rate(round, total_weight);
    if (plain_is(job, "FedBuff")) {
        return rate_of(round) * (total_weight / power_of_two(job->rounds.max_weight)) /
               round->num_updates;
    }
    if (plain_is(job, "FedAsync")) {
        return rate_of(round) * plain_argument(job, "alpha") /
               power_of_two(job->rounds.max_weight) / round->num_updates;
    }
    return rate_of(round);
}

/* ---- steps ----------------------------------------------------------------------------------- */

typedef enum rule { PLAIN, MOMENTUM, ADAGRAD, ADAM, YOGI, DYN, ASYNC } rule;

typedef struct mover {
    rule by;
    double rate, momentum, beta1, beta2, tau;
    double alpha, fraction; /* FedDyn's α and |S| / N */
} mover;

/* |S| / N */
static double fraction_of(const plain_round *round)
{
    const double clients = plain_argument(round->job, "num-clients");
    return clients > round->num_updates ? (double)round->num_updates / clients : 1.0;
}

static mover mover_of(const plain_round *round, double rate)
{
    const fedge_job *job = round->job;
    return (mover){.by = plain_is(job, "FedAvgM")      ? MOMENTUM
                         : plain_is(job, "FedAdagrad") ? ADAGRAD
                         : plain_is(job, "FedAdam")    ? ADAM
                         : plain_is(job, "FedYogi")    ? YOGI
                         : plain_is(job, "FedDyn")     ? DYN
                         : plain_is(job, "FedAsync")   ? ASYNC
                                                       : PLAIN,
                   .rate = rate,
                   .momentum = plain_argument(job, "server-momentum"),
                   .beta1 = plain_argument(job, "beta1"),
                   .beta2 = plain_argument(job, "beta2"),
                   .tau = plain_argument(job, "tau"),
                   .alpha = plain_argument(job, "alpha"),
                   .fraction = fraction_of(round)};
}

/* The step of one value from [x] by the mean change [d]. m and v are its moments. */
static float move(const mover *with, double d, float x, float *m, float *v)
{
    if (with->by == MOMENTUM) {
        *m = (float)(with->momentum * (double)*m + d);
        return x + (float)(with->rate * (double)*m);
    }
    if (with->by == PLAIN)
        return x + (float)(with->rate * d);
    if (with->by == DYN) {
        *m = (float)((double)*m - with->alpha * with->fraction * d);
        return x + (float)(with->rate * (d - (double)*m / with->alpha));
    }
    const double square = d * d, old = (double)*v;
    const double sign = old > square ? 1.0 : old < square ? -1.0 : 0.0;
    *m = (float)(with->beta1 * (double)*m + (1.0 - with->beta1) * d);
    *v = (float)(with->by == ADAGRAD ? old + square
                 : with->by == ADAM  ? with->beta2 * old + (1.0 - with->beta2) * square
                                     : old - (1.0 - with->beta2) * square * sign);
    return x + (float)(with->rate * (double)*m / (sqrt((double)*v) + with->tau));
}

/* FedAsync: steps towards the client's model, whose training may have begun from an older model. */
static float move_async(const plain_round *round, const mover *with, const uint32_t *weights,
                        double total_weight, double d, size_t i, float x)
{
    double change = with->rate * total_weight * d;
    for (uint32_t u = 0; u < round->num_updates; u++) {
        const plain_update *update = &round->updates[u];
        if (update->staleness > 0)
            change += with->rate * (double)weights[u] * ((double)update->base[i] - (double)x);
    }
    return (float)((double)x + change);
}

/* Whether the update moves the model: with IFCA only updates of the first model do. */
static bool moves(const plain_round *round, const plain_update *update)
{
    return !plain_is(round->job, "IFCA") || !(update->said.cluster >= 1.0);
}

static uint64_t weighted_sums(const plain_round *round, int64_t *sums, size_t num_values)
{
    uint64_t total = 0;
    memset(sums, 0, num_values * sizeof(*sums));
    for (uint32_t u = 0; u < round->num_updates; u++) {
        const int64_t weight = weight_of(round, &round->updates[u]);
        const int32_t *v = round->updates[u].v;
        if (!moves(round, &round->updates[u]))
            continue;
        for (size_t i = 0; i < num_values; i++)
            sums[i] += weight * v[i];
        total += (uint64_t)weight;
    }
    return total;
}

static void step_delta(const plain_round *round, const int64_t *sums, double divisor, double rate,
                       plain_model *model)
{
    const fedge_sent *sent = &round->job->plan.sent;
    const fedge_schema *schema = &sent->sections[0].schema;
    const mover with = mover_of(round, rate);
    uint32_t weights[PLAIN_MAX_UPDATES];
    for (uint32_t u = 0; u < round->num_updates; u++)
        weights[u] = weight_of(round, &round->updates[u]);
    for (uint32_t t = 0; t < schema->num_tensors; t++) {
        const fedge_tensor_spec *spec = &schema->tensors[t];
        const double unit = ldexp(1.0, round->updates[0].bounds_log2[t] - 30);
        for (size_t i = 0; i < spec->count; i++) {
            const size_t from = spec->offset + i, to = sent->model_offsets[t] + i;
            const double d = (double)sums[from] / divisor * unit;
            float *x = &model->values[to];
            *x = with.by == ASYNC
                     ? move_async(round, &with, weights, divisor, d, to, *x)
                     : move(&with, d, *x, &model->moments[0][from], &model->moments[1][from]);
        }
    }
}

/* Replaces BatchNorm's statistics by the weighted mean of the clients'. */
static void step_statistics(const plain_round *round, const int64_t *sums, double divisor,
                            plain_model *model)
{
    const fedge_sent *sent = &round->job->plan.sent;
    for (uint32_t s = 1; s < sent->num_sections; s++) {
        const fedge_section *section = &sent->sections[s];
        for (uint32_t t = 0;
             section->kind == FEDGE_SECTION_BUFFERS && t < section->schema.num_tensors; t++) {
            const fedge_tensor_spec *spec = &section->schema.tensors[t];
            const int bound_log2 = round->updates[0].bounds_log2[section->first + t];
            float *x = model->values + sent->model_offsets[section->first + t];
            for (size_t i = 0; i < spec->count; i++) {
                const double mean = (double)sums[spec->offset + i] / divisor;
                x[i] += (float)(mean * ldexp(1.0, bound_log2 - 30));
                if (strstr(spec->name, ".running_var") && !(x[i] > 0.0f))
                    x[i] = 0.0f;
            }
        }
    }
}

/* Updates SCAFFOLD's control variate c. */
static void step_control(const plain_round *round, const int64_t *sums, double divisor,
                         plain_model *model)
{
    const fedge_sent *sent = &round->job->plan.sent;
    const double fraction = fraction_of(round);
    for (uint32_t s = 1; s < sent->num_sections; s++) {
        const fedge_section *section = &sent->sections[s];
        size_t at = 0;
        for (uint32_t t = 0;
             section->kind == FEDGE_SECTION_HOOKS && t < section->schema.num_tensors; t++) {
            const fedge_tensor_spec *spec = &section->schema.tensors[t];
            const int bound_log2 = round->updates[0].bounds_log2[section->first + t];
            for (size_t i = 0; i < spec->count; i++, at++) {
                const double mean = (double)sums[spec->offset + i] / divisor;
                model->moments[0][at] += (float)(fraction * (mean * ldexp(1.0, bound_log2 - 30)));
            }
        }
    }
}

/* Advances the model that clients have by what "down" sends. The rest is sent later. */
static void step_down(const plain_round *round, const plain_model *before, plain_model *model)
{
    static float clipped[PLAIN_MAX_VALUES];
    static int32_t v[PLAIN_MAX_VALUES];
    const fedge_plan *plan = &round->job->plan;
    const fedge_codec *down = &plan->update.down;
    const fedge_schema *schema = &plan->sent.sections[0].schema;
    const int bound_log2 = plan->update.bound_log2;
    const float bound = ldexpf(1.0f, bound_log2), unit = ldexpf(1.0f, bound_log2 - 30);
    for (uint32_t t = 0; down->values && t < schema->num_tensors; t++) {
        const fedge_tensor_spec *spec = &schema->tensors[t];
        const size_t at = plan->sent.model_offsets[t];
        float *residual = model->residual + spec->offset;
        for (size_t i = 0; i < spec->count; i++) {
            residual[i] += model->values[at + i] - before->values[at + i];
            clipped[i] = residual[i] > bound ? bound : residual[i] < -bound ? -bound : residual[i];
        }
        plain_encode(down->tensors ? down->tensors[t] : down, spec->rank, bound_log2,
                     plain_key(plan, round->round, t), clipped, spec->count, v);
        for (size_t i = 0; i < spec->count; i++) {
            const float told = (float)v[i] * unit, excess = residual[i] - clipped[i];
            residual[i] = clipped[i] - told;
            if (excess != 0.0f)
                residual[i] += excess;
            model->values[at + i] = before->values[at + i] + told;
        }
    }
}

uint32_t plain_step_variants(const plain_round *round)
{
    return plain_is_one_of(round->job, " Krum MultiKrum Bulyan ") && !round->in_slots
               ? round->num_updates
           : plain_needs_cohort(round->job) && round->cohort == 0 ? round->num_clients
                                                                  : 1;
}

bool plain_needs_cohort(const fedge_job *job)
{
    return plain_is(job, "FedNova");
}

bool plain_needs_slots(const fedge_job *job)
{
    return plain_is_one_of(job, PLAIN_ROBUST);
}

bool plain_rounds_otherwise(const fedge_job *job)
{
    return plain_is(job, "FedNova");
}

bool plain_step_is(const fedge_job *job, const float *before, const float *ours, const void *theirs)
{
    const size_t num = job->plan.schema.num_elements;
    bool close = memcmp(ours, theirs, num * sizeof(float)) == 0;
    if (close || !plain_rounds_otherwise(job))
        return close;
    close = true;
    for (size_t i = 0; i < num; i++) {
        const double size = fabs((double)before[i]) + fabs((double)ours[i]);
        float other;
        memcpy(&other, (const uint8_t *)theirs + i * sizeof(other), sizeof(other));
        close = close && fabs((double)ours[i] - (double)other) <= 4e-7 * size;
    }
    return close;
}

static void step_linear(const plain_round *round, plain_model *model)
{
    static int64_t sums[PLAIN_MAX_VALUES];
    const size_t num = round->job->plan.sent.schema.num_elements;
    const double total = (double)weighted_sums(round, sums, num);
    bool lost = false;
    if (total > 0.0)
        step_delta(round, sums, total, mean_rate(round, total), model);
    step_statistics(round, sums, total, model);
    step_control(round, sums, total, model);
    for (uint32_t u = 0; u < round->num_updates; u++)
        lost = lost || round->updates[u].said.state_lost > 0.0;
    if (lost && plain_is_one_of(round->job, " SCAFFOLD FedDyn ")) {
        const size_t num_moved = round->job->plan.sent.sections[0].schema.num_elements;
        memset(model->moments[0], 0, num_moved * sizeof(float));
    }
}

bool plain_step(const plain_round *round, const plain_model *before, plain_model *after)
{
    static int64_t sums[PLAIN_MAX_VALUES];
    const fedge_plan *plan = &round->job->plan;
    const size_t num_moved = plan->sent.sections[0].schema.num_elements;
    double divisor = 1.0;
    if (round->num_updates == 0)
        return false;
    memcpy(after->values, before->values, plan->schema.num_elements * sizeof(float));
    memcpy(after->residual, before->residual, num_moved * sizeof(float));
    for (int k = 0; k < 2; k++)
        memcpy(after->moments[k], before->moments[k], num_moved * sizeof(float));
    if (!is_robust(round->job))
        step_linear(round, after);
    else if (plain_robust_sums(round, sums, num_moved, &divisor))
        step_delta(round, sums, divisor, rate_of(round), after);
    else
        return false;
    step_down(round, before, after);
    return true;
}
