#include <stdlib.h>

#include "edge/data/partitions/scheme.h"

typedef struct mixture {
    uint32_t num_labels, num_parts;
    fedge_classes classes;
    uint32_t *left;     /* (num_labels): unassigned members of a label, its first ones */
    double *cumulative; /* (num_parts, num_labels): cumulative label weights of each part */
} mixture;

static void mixture_fini(mixture *m)
{
    fedge_classes_fini(&m->classes);
    free(m->left);
    free(m->cumulative);
}

/* Draws the weights of all parts. No example is assigned yet. */
static fedge_status mixture_init(mixture *m, const fedge_partition_spec *spec,
                                 const fedge_partition_data *data, fedge_error *err)
{
    FEDGE_TRY(fedge_classes_init(&m->classes, data, err));
    m->left = malloc(m->num_labels * sizeof(*m->left));
    m->cumulative = malloc((size_t)m->num_parts * m->num_labels * sizeof(*m->cumulative));
    if (!m->left || !m->cumulative) {
        mixture_fini(m);
        return fedge_partition_no_memory(data->num_examples, m->num_parts, err);
    }
    for (uint32_t k = 0; k < m->num_labels; k++) {
        m->left[k] = fedge_classes_shuffle(
            &m->classes, k,
            fedge_rng_stream(spec->seed, FEDGE_PURPOSE_PARTITION, k, 0, FEDGE_DRAW_CLIENT_ORDER));
    }
    double *at = m->cumulative;
    for (uint32_t j = 0; j < m->num_parts; j++) {
        fedge_rng rng =
            fedge_rng_stream(spec->seed, FEDGE_PURPOSE_PARTITION, j, 0, FEDGE_DRAW_CLIENT_MIX);
        double sum = 0;
        for (uint32_t k = 0; k < m->num_labels; k++)
            *at++ = sum += fedge_rng_gamma(&rng, spec->alpha);
    }
    return FEDGE_OK;
}

/* The first label whose cumulative weight exceeds u; else the last one. */
static uint32_t label_at(const double *cumulative, uint32_t num_labels, double u)
{
    uint32_t low = 0, high = num_labels - 1;
    while (low < high) {
        const uint32_t mid = low + (high - low) / 2;
        if (cumulative[mid] > u)
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

/* Draws a label with unassigned members by the part's weights, or by their counts if the part's
 * weights are 0 (gammas may be). */
static uint32_t label_among_left(const mixture *m, const double *cumulative, double uniform)
{
    double wanted = 0, present = 0;
    for (uint32_t k = 0; k < m->num_labels; k++) {
        wanted += m->left[k] > 0 ? cumulative[k] - (k > 0 ? cumulative[k - 1] : 0) : 0;
        present += m->left[k];
    }
    double u = uniform * (wanted > 0 ? wanted : present);
    uint32_t chosen = 0;
    for (uint32_t k = 0; k < m->num_labels; k++) {
        if (m->left[k] == 0)
            continue;
        chosen = k; /* the last of them if u was rounded up to the sum */
        u -= wanted > 0 ? cumulative[k] - (k > 0 ? cumulative[k - 1] : 0) : m->left[k];
        if (u < 0)
            break;
    }
    return chosen;
}

static void hand_out(mixture *m, uint64_t seed, const uint32_t *order, uint32_t num_examples,
                     uint32_t *owner)
{
    fedge_rng rng = fedge_rng_stream(seed, FEDGE_PURPOSE_PARTITION, 0, 0, FEDGE_DRAW_CLIENT_PICKS);
    for (uint32_t i = 0; i < num_examples; i++) {
        const uint32_t part = (uint32_t)((uint64_t)order[i] * m->num_parts / num_examples);
        const double *cumulative = m->cumulative + (size_t)part * m->num_labels;
        const double sum = cumulative[m->num_labels - 1];
        uint32_t k = label_at(cumulative, m->num_labels, fedge_rng_double(&rng) * sum);
        if (m->left[k] == 0)
            k = label_among_left(m, cumulative, fedge_rng_double(&rng));
        owner[m->classes.members[m->classes.start[k] + --m->left[k]]] = part;
    }
}

static fedge_status assign(const fedge_partition_spec *spec, const fedge_partition_data *data,
                           uint32_t num_parts, uint32_t *owner, fedge_error *err)
{
    FEDGE_TRY(fedge_partition_check_draws(data->num_labels, num_parts, err));
    mixture m = {.num_labels = data->num_labels, .num_parts = num_parts};
    FEDGE_TRY(mixture_init(&m, spec, data, err));
    uint32_t *order = fedge_partition_shuffled(
        data->num_examples,
        fedge_rng_stream(spec->seed, FEDGE_PURPOSE_PARTITION, 0, 0, FEDGE_DRAW_CLIENT_DEALING));
    if (order)
        hand_out(&m, spec->seed, order, data->num_examples, owner);
    free(order);
    mixture_fini(&m);
    return order ? FEDGE_OK : fedge_partition_no_memory(data->num_examples, num_parts, err);
}

const fedge_partition_ops fedge_partition_dirichlet_client = {.name = "dirichlet-client",
                                                              .usage = "dirichlet-client:ALPHA",
                                                              .argument = FEDGE_PARTITION_ALPHA,
                                                              .min_examples = 1,
                                                              .needs_labels = true,
                                                              .assign = assign};
