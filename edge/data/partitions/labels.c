#include <inttypes.h>
#include <stdlib.h>

#include "edge/data/partitions/scheme.h"

/* The labels of each part. A label is an index in [present], which omits labels without examples.
 */
typedef struct allotment {
    uint32_t num_present;
    uint32_t *present; /* (num_present) */
    uint32_t *chosen;  /* (num_parts · K): labels of each part */
    uint32_t *start;   /* (num_present + 1): start of each label in [takers] */
    uint32_t *takers;  /* (num_parts · K): indices in [chosen], by label */
} allotment;

static void allotment_fini(allotment *a)
{
    free(a->present);
    free(a->chosen);
    free(a->start);
    free(a->takers);
}

static fedge_status allotment_init(allotment *a, const fedge_classes *classes,
                                   const fedge_partition_data *data, uint32_t num_chosen,
                                   fedge_error *err)
{
    *a = (allotment){.present = malloc(data->num_labels * sizeof(*a->present)),
                     .chosen = malloc(num_chosen * sizeof(*a->chosen)),
                     .start = malloc(((size_t)data->num_labels + 1) * sizeof(*a->start)),
                     .takers = malloc(num_chosen * sizeof(*a->takers))};
    if (!a->present || !a->chosen || !a->start || !a->takers) {
        allotment_fini(a);
        return fedge_partition_no_memory(data->num_examples, num_chosen, err);
    }
    for (uint32_t k = 0; k < data->num_labels; k++) {
        if (classes->start[k + 1] > classes->start[k])
            a->present[a->num_present++] = k;
    }
    return FEDGE_OK;
}

/* Moves the label at [from] to [to]. [position] has the index of each label in [pool]. */
static void swap(uint32_t *pool, uint32_t *position, uint32_t from, uint32_t to)
{
    const uint32_t moved = pool[from];
    pool[from] = pool[to];
    pool[to] = moved;
    position[pool[from]] = from;
    position[pool[to]] = to;
}

/* Each part gets one label in rotation and the others by a partial Fisher–Yates shuffle. The pool
 * stays a permutation in any order, so it needs no reset between parts. */
static fedge_status choose(allotment *a, uint64_t seed, uint32_t num_parts, uint32_t per_part,
                           fedge_error *err)
{
    uint32_t *pool = malloc(a->num_present * sizeof(*pool));
    uint32_t *position = malloc(a->num_present * sizeof(*position));
    if (!pool || !position) {
        free(pool);
        free(position);
        return fedge_partition_no_memory(a->num_present, num_parts, err);
    }
    for (uint32_t k = 0; k < a->num_present; k++)
        pool[k] = position[k] = k;
    fedge_rng rng = fedge_rng_stream(seed, FEDGE_PURPOSE_PARTITION, 0, 0, FEDGE_DRAW_LABELS);
    for (uint32_t part = 0; part < num_parts; part++) {
        uint32_t *mine = a->chosen + (size_t)part * per_part;
        swap(pool, position, position[part % a->num_present], 0);
        mine[0] = pool[0];
        for (uint32_t j = 1; j < per_part; j++) {
            swap(pool, position, j + fedge_rng_below(&rng, a->num_present - j), j);
            mine[j] = pool[j];
        }
    }
    free(pool);
    free(position);
    fedge_partition_group(a->chosen, num_parts * per_part, a->num_present, a->start, a->takers);
    return FEDGE_OK;
}

/* Divides the examples of label [index] equally among its parts. */
static fedge_status divide(const allotment *a, const fedge_partition_spec *spec,
                           fedge_classes *classes, uint32_t index, uint32_t num_parts,
                           uint32_t *owner, fedge_error *err)
{
    const uint32_t label = a->present[index];
    const uint32_t *takers = a->takers + a->start[index];
    const uint32_t num_takers = a->start[index + 1] - a->start[index];
    const uint32_t count = fedge_classes_shuffle(
        classes, label,
        fedge_rng_stream(spec->seed, FEDGE_PURPOSE_PARTITION, label, 0, FEDGE_DRAW_LABELS_ORDER));
    if (num_takers == 0) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "partition labels:%" PRIu32 ": none of the %" PRIu32
                          " clients has label %" PRIu32 "; use %" PRIu32
                          " or more clients, or a larger K",
                          spec->count, num_parts, label, a->num_present);
    }
    if (num_takers > count) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "partition labels:%" PRIu32 ": %" PRIu32 " clients have label %" PRIu32
                          ", of which there are %" PRIu32
                          " examples; use fewer clients or a smaller K",
                          spec->count, num_takers, label, count);
    }
    const uint32_t *members = classes->members + classes->start[label];
    for (uint32_t i = 0; i < count; i++)
        owner[members[i]] = takers[(uint64_t)i * num_takers / count] / spec->count;
    return FEDGE_OK;
}

static fedge_status assign(const fedge_partition_spec *spec, const fedge_partition_data *data,
                           uint32_t num_parts, uint32_t *owner, fedge_error *err)
{
    fedge_classes classes;
    allotment a;
    FEDGE_TRY(fedge_classes_init(&classes, data, err));
    /* num_parts · K ≤ num_examples: checked by the caller. */
    fedge_status status;
    FEDGE_TRY_OR(allotment_init(&a, &classes, data, num_parts * spec->count, err), free_classes);
    if (spec->count > a.num_present) {
        status = fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                            "partition labels:%" PRIu32 ": the examples have %" PRIu32
                            " labels; use labels:%" PRIu32 " or less",
                            spec->count, a.num_present, a.num_present);
        goto free_allotment;
    }
    FEDGE_TRY_OR(choose(&a, spec->seed, num_parts, spec->count, err), free_allotment);
    for (uint32_t k = 0; k < a.num_present && !status; k++)
        status = divide(&a, spec, &classes, k, num_parts, owner, err);
free_allotment:
    allotment_fini(&a);
free_classes:
    fedge_classes_fini(&classes);
    return status;
}

const fedge_partition_ops fedge_partition_labels = {.name = "labels",
                                                    .usage = "labels:K",
                                                    .argument = FEDGE_PARTITION_K,
                                                    .needs_labels = true,
                                                    .assign = assign};
