/* FedNova's weights and rate, as its paper has them (Wang et al., "Tackling the objective
 * inconsistency problem in heterogeneous federated optimization", NeurIPS 2020). The product
 * multiplies matrices instead, and rounds otherwise. */
#include <math.h>

#include "edge/plan/client_hooks.h"
#include "tests/world/plain_step.h"

/* Where the paper has no closed form, a path has ended once its steps are this much shorter. */
#define ENDED 1e-18

static uint64_t steps_of(const fedge_job *job, const plain_update *update)
{
    const fedge_training_spec *training = &job->plan.training;
    const uint64_t examples =
        update->said.num_examples < UINT32_MAX ? update->said.num_examples : UINT32_MAX;
    const uint64_t batches = (examples + training->batch_size - 1) / training->batch_size;
    return training->local_steps > 0 ? training->local_steps : training->local_epochs * batches;
}

/* Without a proximal term: the momentum after step k is (1 − ρ^k) / (1 − ρ), and the path is their
 * sum. Each of Nesterov's steps is as long as one and ρ times that momentum. */
static double free_path(double rho, bool nesterov, double steps)
{
    const double sum = (steps - rho * (1.0 - pow(rho, steps)) / (1.0 - rho)) / (1.0 - rho);
    return nesterov ? steps + rho * sum : sum;
}

/* With both: step after step, until none of them goes further. */
static double followed_path(double rho, double e, bool nesterov, uint64_t steps)
{
    double momentum = 0.0, path = 0.0, step = 1.0;
    for (uint64_t k = 0; k < steps && fabs(step) > ENDED * path; k++) {
        const double gradient = 1.0 - e * path;
        momentum = rho * momentum + gradient;
        step = nesterov ? gradient + rho * momentum : momentum;
        path += step;
    }
    return path;
}

double plain_nova_path(const fedge_job *job, uint32_t round, uint64_t steps)
{
    const fedge_training_spec *training = &job->plan.training;
    const fedge_optimizer *optimizer = &training->optimizer;
    const double rho = (double)optimizer->momentum;
    const double e = (double)(float)fedge_schedule_rate(&training->schedule,
                                                        (double)training->learning_rate, round) *
                     (double)optimizer->proximal_mu;
    const double path = e == 0.0 ? free_path(rho, optimizer->nesterov, (double)steps)
                                 : followed_path(rho, e, optimizer->nesterov, steps);
    return fmax(path, 1.0);
}

static double path_of(const plain_round *round, const plain_update *update)
{
    return plain_nova_path(round->job, round->round, steps_of(round->job, update));
}

/* What n / a is multiplied by, so that the largest comes near the largest weight. */
static double unit_of(const plain_round *round, double most)
{
    const fedge_training_spec *training = &round->job->plan.training;
    if (training->local_steps > 0)
        return plain_nova_path(round->job, round->round, training->local_steps);
    const double largest = (double)training->batch_size /
                           plain_nova_path(round->job, round->round, training->local_epochs);
    return most / (training->optimizer.proximal_mu > 0.0f ? fmax(1024.0, 16.0 * largest) : largest);
}

uint32_t plain_nova_weight(const plain_round *round, const plain_update *update)
{
    const double cohort =
        round->cohort > 0 ? round->cohort : (double)round->num_clients - round->variant;
    const double most = fmin(floor(4294967296.0 / cohort), INT32_MAX);
    const double examples = plain_examples_weight(round->job, update);
    const double value = rint(unit_of(round, most) * examples / path_of(round, update));
    return value < 1.0 ? 1 : value < most ? (uint32_t)value : (uint32_t)most;
}

double plain_nova_rate(const plain_round *round, double total_weight)
{
    double total = 0.0, effective = 0.0;
    for (uint32_t i = 0; i < round->num_updates; i++) {
        const double path = path_of(round, &round->updates[i]);
        const double part = (double)plain_nova_weight(round, &round->updates[i]) * path;
        total += part;
        effective += part * path;
    }
    return (effective / total) * (total_weight / total);
}
