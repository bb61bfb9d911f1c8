/* Inverse probabilities as docs/reference/job.md and aggregator/rounds/sampler.h have them. */
#include <math.h>

#include "tests/world/plain_step.h"

#define MOST 1048576.0 /* of a score */

/* The score of a client in a draw for [round]; 0: it is not known. */
static double known_score(const fedge_job *job, const plain_history *of, uint32_t round)
{
    const double all = (double)of->reported + (double)of->missed + 2.0;
    double halvings = 0.0, score = 0.0;
    switch (job->rounds.sampler.type) {
    case FEDGE_SAMPLER_available:
        return fmax(floor(MOST * ((double)of->reported + 1.0) / all), 1.0);
    case FEDGE_SAMPLER_examples:
        return fmin((double)of->examples, MOST);
    default: /* utility */
        if (of->last_round == 0)
            return 0.0;
        for (uint32_t r = round; r > 1; r /= 2)
            halvings += 1.0;
        score = 8.0 * (double)of->examples * of->loss *
                (1.0 + sqrt(0.1 * (halvings * 0.6931471805599453) / of->last_round));
        return fmin(fmax(floor(score), 1.0), MOST);
    }
}

double plain_ratio(const fedge_job *job, const plain_draw *draw, const plain_history *of,
                   uint32_t round)
{
    if (draw->available == 0)
        return 1.0;
    const double known = known_score(job, of, round), mean = (double)draw->asked / draw->available;
    const double score = fmax(known > 0.0 ? known : draw->unknown, draw->floor);
    const double hits = (double)draw->count * score;
    return hits >= (double)draw->total ? mean : mean * (double)draw->total / hits;
}

uint32_t plain_inverse_weight(const fedge_job *job, const plain_update *update, uint32_t weight,
                              bool is_of_strategy)
{
    const uint32_t most = job->rounds.max_weight;
    const double more = weight * update->ratio * (is_of_strategy ? 1024.0 : 16.0) + 0.5;
    return more < 1.0 ? 1 : more < (double)most ? (uint32_t)more : most;
}
