/* The interface of a partition scheme; partition.c has the table of all. Internal to edge/data. */
#ifndef FEDGE_EDGE_DATA_PARTITIONS_SCHEME_H
#define FEDGE_EDGE_DATA_PARTITIONS_SCHEME_H

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/rng.h"
#include "edge/data/partitions/partition.h"

/* The argument after the colon. */
typedef enum fedge_partition_argument {
    FEDGE_PARTITION_NO_ARGUMENT,
    FEDGE_PARTITION_ALPHA, /* a number, spec->alpha */
    FEDGE_PARTITION_K,     /* a count, spec->count, which is also a part's minimum of examples */
    FEDGE_PARTITION_SOURCE /* text, spec->source */
} fedge_partition_argument;

typedef struct fedge_partition_ops {
    const char *name;  /* text before the colon */
    const char *usage; /* the whole form, for messages */
    fedge_partition_argument argument;
    uint32_t min_examples; /* minimum of each part; with a count, that count */
    bool needs_labels;
    /* As fedge_partition_assign, which checks the number of parts, argument and labels before, and
     * afterwards that no part is empty. */
    fedge_status (*assign)(const fedge_partition_spec *spec, const fedge_partition_data *data,
                           uint32_t num_parts, uint32_t *owner, fedge_error *err);
    /* As fedge_partition_num_parts; NULL: any number of parts. */
    fedge_status (*num_parts)(const fedge_partition_spec *spec, const char *values_path,
                              uint32_t *num_parts, fedge_error *err);
} fedge_partition_ops;

extern const fedge_partition_ops fedge_partition_iid, fedge_partition_shards,
    fedge_partition_dirichlet, fedge_partition_dirichlet_client, fedge_partition_labels,
    fedge_partition_quantity, fedge_partition_natural, fedge_partition_file,
    fedge_partition_per_file;

/* Streams of FEDGE_PURPOSE_PARTITION: c is one of these, with a and b as below. Part of the
 * contract: never renumber. */
enum {
    FEDGE_DRAW_PROPORTIONS = 0,    /* dirichlet: a = label, b = attempt */
    FEDGE_DRAW_ORDER = 1,          /* dirichlet: a = label, b = attempt */
    FEDGE_DRAW_IID = 2,            /* iid */
    FEDGE_DRAW_SHARDS = 3,         /* shards */
    FEDGE_DRAW_CLIENT_DEALING = 4, /* dirichlet-client: the order of draws */
    FEDGE_DRAW_CLIENT_MIX = 5,     /* dirichlet-client: a = part */
    FEDGE_DRAW_CLIENT_ORDER = 6,   /* dirichlet-client: a = label */
    FEDGE_DRAW_CLIENT_PICKS = 7,   /* dirichlet-client: the drawn labels */
    FEDGE_DRAW_LABELS = 8,         /* labels: labels of each part */
    FEDGE_DRAW_LABELS_ORDER = 9,   /* labels: a = label */
    FEDGE_DRAW_SIZES = 10,         /* quantity: b = attempt */
    FEDGE_DRAW_SIZES_ORDER = 11,   /* quantity */
    FEDGE_DRAW_VALIDATION = 12     /* validation examples */
};

/* *part: the first part without examples; [num_parts] if there is none. */
FEDGE_MUST_USE fedge_status fedge_partition_find_empty(uint32_t num_examples, uint32_t num_parts,
                                                       const uint32_t *owner, uint32_t *part,
                                                       fedge_error *err);

/* Examples sorted by label, stably. */
typedef struct fedge_classes {
    uint32_t *start;   /* (num_labels + 1): start of each label in [members] */
    uint32_t *members; /* (num_examples) */
} fedge_classes;

/* On failure there is nothing to free. */
FEDGE_MUST_USE fedge_status fedge_classes_init(fedge_classes *classes,
                                               const fedge_partition_data *data, fedge_error *err);
void fedge_classes_fini(fedge_classes *classes);
/* Shuffles the members of [label] and returns their number. */
uint32_t fedge_classes_shuffle(fedge_classes *classes, uint32_t label, fedge_rng rng);

/* FEDGE_NO_MEMORY with the numbers. */
static inline fedge_status fedge_partition_no_memory(uint32_t num_examples, uint32_t num_parts,
                                                     fedge_error *err)
{
    return fedge_fail(err, FEDGE_NO_MEMORY,
                      "no memory to divide %" PRIu32 " examples among %" PRIu32 " parts",
                      num_examples, num_parts);
}

/* Cuts [count] examples into ranges by the parts' weights, which sum to [sum]. cuts: (num_parts),
 * the end of each range; the last one is [count]. */
void fedge_partition_cut(const double *weights, double sum, uint32_t num_parts, uint32_t count,
                         uint32_t *cuts);
/* Sets owner[example] for [count] examples by their cuts. */
void fedge_partition_deal(const uint32_t *examples, uint32_t count, const uint32_t *cuts,
                          uint32_t *owner);

/* FEDGE_TOO_BIG if labels · parts exceeds the limit of draws. */
FEDGE_MUST_USE fedge_status fedge_partition_check_draws(uint32_t num_labels, uint32_t num_parts,
                                                        fedge_error *err);
/* FEDGE_INVALID_ARGUMENT: in all [attempts] a part had fewer than FEDGE_PARTITION_MIN_EXAMPLES;
 * [best] is the largest minimum. */
FEDGE_MUST_USE fedge_status fedge_partition_none_found(const char *scheme, double alpha,
                                                       uint32_t attempts, uint32_t num_examples,
                                                       uint32_t num_parts, uint32_t best,
                                                       fedge_error *err);

/* A shuffle of [num_examples] indices by [rng], malloc'ed; NULL without memory. */
uint32_t *fedge_partition_shuffled(uint32_t num_examples, fedge_rng rng);

#endif
