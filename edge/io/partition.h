/* Dividing one data set among clients, for demonstrations and experiments.
 *
 * Each scheme is a pure function of (labels, scheme, number of parts, seed): every client computes
 * the whole division and keeps its own part.
 */
#ifndef FEDGE_EDGE_IO_PARTITION_H
#define FEDGE_EDGE_IO_PARTITION_H

#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"

#define FEDGE_PARTITION_MIN_EXAMPLES 10               /* of each part of a Dirichlet division */
#define FEDGE_PARTITION_MAX_ATTEMPTS 10000            /* to get there */
#define FEDGE_PARTITION_MAX_DRAWS ((uint64_t)1 << 25) /* attempts · labels · parts: seconds */
#define FEDGE_PARTITION_MIN_ALPHA 1e-3
#define FEDGE_PARTITION_MAX_ALPHA 1e6

typedef enum fedge_partition_scheme {
    FEDGE_PARTITION_IID,      /* a seeded shuffle, cut into equal runs */
    FEDGE_PARTITION_DIRICHLET /* NIID-Bench (Li et al., ICDE 2022): per class p ~ Dir(alpha) over
                                 the parts; a part that has its fair share, num_examples /
                                 num_parts, gets none (p := 0, renormalised); the shuffled class is
                                 cut at the cumulative p. All of it is drawn again until every part
                                 has at least FEDGE_PARTITION_MIN_EXAMPLES */
} fedge_partition_scheme;

typedef struct fedge_partition_spec {
    fedge_partition_scheme scheme;
    double alpha; /* Dirichlet */
    uint64_t seed;
} fedge_partition_spec;

/* "iid" or "dirichlet:0.5"; spec->seed is left alone. FEDGE_INVALID_ARGUMENT; FEDGE_OUT_OF_RANGE
 * for an alpha beyond the limits above. */
FEDGE_MUST_USE fedge_status fedge_partition_parse(const char *text, fedge_partition_spec *spec,
                                                  fedge_error *err);

/* owner[i] gets the part, in [0, num_parts), of example i. [owner]: (num_examples).
 * FEDGE_INVALID_ARGUMENT when a part cannot get its minimum (1 for iid) or no attempt gave it; says
 * what to change. FEDGE_OUT_OF_RANGE for a label not in [0, num_labels); FEDGE_TOO_BIG for more
 * labels times parts than FEDGE_PARTITION_MAX_DRAWS. The same arguments give the same division on
 * every machine whose libm gives the same logarithms and powers (fedge_rng_gamma). */
FEDGE_MUST_USE fedge_status fedge_partition_assign(const fedge_partition_spec *spec,
                                                   const int32_t *labels, uint32_t num_examples,
                                                   uint32_t num_labels, uint32_t num_parts,
                                                   uint32_t *owner, fedge_error *err);

#endif
