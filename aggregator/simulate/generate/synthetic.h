/* Synthetic data, for experiments without files.
 *
 * An example is a function of (kind with its arguments, seed, client, position) alone, so more
 * clients or examples do not change the others. The numbers are the same on every CPU: they are
 * made by IEEE 754's basic operations and roots only, without the libm.
 */
#ifndef FEDGE_AGGREGATOR_SIMULATE_GENERATE_SYNTHETIC_H
#define FEDGE_AGGREGATOR_SIMULATE_GENERATE_SYNTHETIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"
#include "edge/core/tensor.h"

#define FEDGE_SYNTHETIC_MAX_FEATURES 65536u
#define FEDGE_SYNTHETIC_MAX_LABELS 1000u
#define FEDGE_SYNTHETIC_MAX_CHANNELS 16u
#define FEDGE_SYNTHETIC_MIN_SIDE 8u /* pixels of an image's side */
#define FEDGE_SYNTHETIC_MAX_SIDE 1024u
#define FEDGE_SYNTHETIC_MAX_STEPS 8192u             /* hours of a series, and targets */
#define FEDGE_SYNTHETIC_MAX_LAW ((uint64_t)1 << 24) /* values of an example times labels */
#define FEDGE_SYNTHETIC_MAX_EXAMPLES 1048576u       /* examples per client */
#define FEDGE_SYNTHETIC_MAX_SPREAD 1000.0           /* limit of alpha and beta */
#define FEDGE_SYNTHETIC_TEST UINT32_MAX             /* a client index: the test set */

typedef enum fedge_synthetic_kind {
    /* logistic[:FEATURES,LABELS]: one softmax regression for all. x ~ N(0, I), y drawn from
     * softmax(Wx + b), where W and b are such that each logit has standard deviation 3. */
    FEDGE_SYNTHETIC_LOGISTIC,

    /* fedprox[:ALPHA,BETA]: synthetic(alpha, beta) of Li et al. 2020, "Federated Optimization in
     * Heterogeneous Networks", section 5.1: for client k
     *
     *     y = argmax softmax(W_k x + b_k)     W_k ~ N(u_k, 1), b_k ~ N(u_k, 1), u_k ~ N(0, alpha)
     *     x ~ N(v_k, S), S_jj = j^-1.2        v_k ~ N(B_k, 1), B_k ~ N(0, beta)
     *
     * with x in R^60 and 10 labels. As in the authors' program alpha and beta are standard
     * deviations, a client has floor(exp(N(4, 2))) + 50 examples and a tenth of them, rounded up,
     * is for the test set. u_k adds the same to all logits of an example, so alpha changes no
     * label: clients differ by W_k - u_k, b_k - u_k and v_k.
     *
     * fedprox:iid: the same W, b ~ N(0, 1) for all clients and v_k = 0. */
    FEDGE_SYNTHETIC_FEDPROX,

    /* images[:C,H,W[,LABELS]]: bytes. Each label has a smooth random picture; an example is that of
     * a label drawn uniformly, moved by up to an eighth of each side, with 1/4 to 1/2 of its
     * contrast, under noise of standard deviation 96. */
    FEDGE_SYNTHETIC_IMAGES,

    /* series[:BEFORE,AHEAD]: the load of a household by the hour, with a level, a daily swing and a
     * first hour of its own, under noise of standard deviation 1. The values are BEFORE hours, the
     * targets the AHEAD hours that follow. */
    FEDGE_SYNTHETIC_SERIES,

    FEDGE_SYNTHETIC_COUNT
} fedge_synthetic_kind;

typedef struct fedge_synthetic_spec {
    fedge_synthetic_kind kind;
    uint32_t rank, shape[3]; /* shape of an example: (features), or (channels, height, width) */
    fedge_dtype dtype;       /* FEDGE_F32, or FEDGE_U8 for images */
    uint32_t num_labels;     /* 0 with targets */
    uint32_t num_targets;    /* series: floats that follow the values of an example */
    double alpha, beta;      /* fedprox */
    bool iid;                /* fedprox:iid */
} fedge_synthetic_spec;

/* Parses one of the texts above; the defaults are logistic:60,10, fedprox:1,1, images:3,32,32,10,
 * series:24,1. FEDGE_INVALID_ARGUMENT and FEDGE_OUT_OF_RANGE say what is possible. */
FEDGE_MUST_USE fedge_status fedge_synthetic_parse(const char *text, fedge_synthetic_spec *spec,
                                                  fedge_error *err);

/* How many values an example has. */
size_t fedge_synthetic_example_values(const fedge_synthetic_spec *spec);

/* How many examples [client] has by fedprox's law, those for the test set among them: 50 to
 * FEDGE_SYNTHETIC_MAX_EXAMPLES, where larger draws are cut. */
uint32_t fedge_synthetic_draw_count(uint64_t seed, uint32_t client);

/* Opaque: the law of the data. For one thread at a time. */
typedef struct fedge_synthetic fedge_synthetic;

/* FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_synthetic_new(const fedge_synthetic_spec *spec, uint64_t seed,
                                                fedge_synthetic **synthetic, fedge_error *err);
void fedge_synthetic_free(fedge_synthetic *synthetic); /* NULL is fine */

/* Example [index] of [client]: its values, floats or bytes as spec.dtype says, followed by its
 * targets, and its label.
 * Returns the probability that the likeliest label of these values is theirs, where it is known
 * (logistic), else NAN: its mean is the best accuracy that any model can have. Fastest when
 * one client's examples follow another's. */
double fedge_synthetic_example(fedge_synthetic *synthetic, uint32_t client, uint32_t index,
                               void *values, int32_t *label);

#endif
