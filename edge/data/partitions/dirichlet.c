#include <stdlib.h>
#include <string.h>

#include "edge/data/partitions/scheme.h"

typedef struct dirichlet {
    const fedge_partition_spec *spec;
    uint32_t num_examples, num_labels, num_parts;
    fedge_classes classes;
    double *weights; /* (num_parts): of the present label */
    uint32_t *sizes; /* (num_parts): examples of a part so far */
    uint32_t *cuts;  /* (num_labels, num_parts): end of each part's range in its label */
} dirichlet;

static void dirichlet_fini(dirichlet *d)
{
    fedge_classes_fini(&d->classes);
    free(d->weights);
    free(d->sizes);
    free(d->cuts);
}

static fedge_status dirichlet_init(dirichlet *d, const fedge_partition_data *data, fedge_error *err)
{
    FEDGE_TRY(fedge_classes_init(&d->classes, data, err));
    d->weights = malloc(d->num_parts * sizeof(*d->weights));
    d->sizes = malloc(d->num_parts * sizeof(*d->sizes));
    d->cuts = malloc((size_t)d->num_labels * d->num_parts * sizeof(*d->cuts));
    if (!d->weights || !d->sizes || !d->cuts) {
        dirichlet_fini(d);
        return fedge_partition_no_memory(d->num_examples, d->num_parts, err);
    }
    return FEDGE_OK;
}

/* weights ~ Dir(alpha) times their sum, which is returned; 0 for parts with n / N examples. Returns
 * 0 if all open parts' gammas are 0. */
static double draw_weights(dirichlet *d, uint32_t label, uint32_t attempt)
{
    const double fair = (double)d->num_examples / d->num_parts;
    fedge_rng rng = fedge_rng_stream(d->spec->seed, FEDGE_PURPOSE_PARTITION, label, attempt,
                                     FEDGE_DRAW_PROPORTIONS);
    double sum = 0;
    for (uint32_t j = 0; j < d->num_parts; j++) {
        const double gamma = fedge_rng_gamma(&rng, d->spec->alpha);
        d->weights[j] = d->sizes[j] < fair ? gamma : 0;
        sum += d->weights[j];
    }
    return sum;
}

/* Draws all cuts; *smallest is the smallest part's size. The order in a class does not affect
 * sizes, so it is drawn once, for the final attempt. */
static bool draw_cuts(dirichlet *d, uint32_t attempt, uint32_t *smallest)
{
    memset(d->sizes, 0, d->num_parts * sizeof(*d->sizes));
    for (uint32_t k = 0; k < d->num_labels; k++) {
        const uint32_t count = d->classes.start[k + 1] - d->classes.start[k];
        uint32_t *cuts = d->cuts + (size_t)k * d->num_parts;
        if (count == 0) {
            memset(cuts, 0, d->num_parts * sizeof(*cuts));
            continue;
        }
        const double sum = draw_weights(d, k, attempt);
        if (!(sum > 0))
            return false;
        fedge_partition_cut(d->weights, sum, d->num_parts, count, cuts);
        for (uint32_t j = 0; j < d->num_parts; j++)
            d->sizes[j] += cuts[j] - (j > 0 ? cuts[j - 1] : 0);
    }
    *smallest = d->sizes[0];
    for (uint32_t j = 1; j < d->num_parts; j++) {
        if (d->sizes[j] < *smallest)
            *smallest = d->sizes[j];
    }
    return true;
}

static void hand_out(dirichlet *d, uint32_t attempt, uint32_t *owner)
{
    for (uint32_t k = 0; k < d->num_labels; k++) {
        const uint32_t *members = d->classes.members + d->classes.start[k];
        const uint32_t *cuts = d->cuts + (size_t)k * d->num_parts;
        const uint32_t count = fedge_classes_shuffle(
            &d->classes, k,
            fedge_rng_stream(d->spec->seed, FEDGE_PURPOSE_PARTITION, k, attempt, FEDGE_DRAW_ORDER));
        fedge_partition_deal(members, count, cuts, owner);
    }
}

static fedge_status assign(const fedge_partition_spec *spec, const fedge_partition_data *data,
                           uint32_t num_parts, uint32_t *owner, fedge_error *err)
{
    const uint32_t num_examples = data->num_examples, num_labels = data->num_labels;
    const uint64_t draws = (uint64_t)num_labels * num_parts;
    FEDGE_TRY(fedge_partition_check_draws(num_labels, num_parts, err));
    dirichlet d = {.spec = spec,
                   .num_examples = num_examples,
                   .num_labels = num_labels,
                   .num_parts = num_parts};
    FEDGE_TRY(dirichlet_init(&d, data, err));
    uint32_t attempts = 0, best = 0;
    bool found = false;
    while (!found && attempts < FEDGE_PARTITION_MAX_ATTEMPTS &&
           (attempts + 1) * draws <= FEDGE_PARTITION_MAX_DRAWS) {
        uint32_t smallest = 0;
        if (draw_cuts(&d, attempts, &smallest)) {
            found = smallest >= FEDGE_PARTITION_MIN_EXAMPLES;
            best = smallest > best ? smallest : best;
        }
        if (found)
            hand_out(&d, attempts, owner);
        attempts++;
    }
    dirichlet_fini(&d);
    return found ? FEDGE_OK
                 : fedge_partition_none_found("dirichlet", spec->alpha, attempts, num_examples,
                                              num_parts, best, err);
}

const fedge_partition_ops fedge_partition_dirichlet = {.name = "dirichlet",
                                                       .usage = "dirichlet:ALPHA",
                                                       .argument = FEDGE_PARTITION_ALPHA,
                                                       .min_examples = FEDGE_PARTITION_MIN_EXAMPLES,
                                                       .needs_labels = true,
                                                       .assign = assign};
