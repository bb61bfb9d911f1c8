/* The interface of a kind of synthetic data; synthetic.c has the table of kinds. */
#ifndef FEDGE_AGGREGATOR_SIMULATE_GENERATE_SYNTHETIC_KIND_H
#define FEDGE_AGGREGATOR_SIMULATE_GENERATE_SYNTHETIC_KIND_H

#include "aggregator/simulate/generate/synthetic.h"
#include "edge/core/rng.h"

typedef struct fedge_synthetic_ops {
    const char *name;  /* the text before the colon */
    const char *usage; /* name and arguments, for messages */
    /* [arguments]: the text after the colon, or NULL. Sets all of [spec] except the kind. */
    fedge_status (*parse)(const char *arguments, fedge_synthetic_spec *spec, fedge_error *err);
    /* Bytes of the law, which is aligned for doubles and may include scratch of [example]. */
    size_t (*law_size)(const fedge_synthetic_spec *spec);
    /* Draws the law of [client], which is FEDGE_SYNTHETIC_TEST unless each client has its own law.
     */
    void (*draw_law)(const fedge_synthetic_spec *spec, uint64_t seed, uint32_t client, void *law);
    /* As fedge_synthetic_example; [rng] is the example's. */
    double (*example)(const fedge_synthetic_spec *spec, void *law, fedge_rng *rng, void *values,
                      int32_t *label);
} fedge_synthetic_ops;

extern const fedge_synthetic_ops fedge_synthetic_logistic, fedge_synthetic_fedprox,
    fedge_synthetic_images, fedge_synthetic_series;

/* Streams of FEDGE_PURPOSE_SYNTHETIC by c; a = client. Part of the contract: never renumber. */
enum {
    FEDGE_DRAW_EXAMPLE = 0, /* b = position */
    FEDGE_DRAW_LAW = 1,
    FEDGE_DRAW_MEANS = 2, /* fedprox: the means of x */
    FEDGE_DRAW_COUNT = 3  /* fedprox: the number of examples */
};

/* Parses [count] whole numbers with commas between them, up to the text's end. */
bool fedge_synthetic_numbers(const char *text, uint32_t count, uint32_t *numbers);

/* Fails with FEDGE_INVALID_ARGUMENT and the usage of [ops]. */
fedge_status fedge_synthetic_usage(const fedge_synthetic_ops *ops, const char *arguments,
                                   fedge_error *err);

/* exp(x) by basic operations, the same on every CPU; within 1e-12 of it, relatively, for
 * |x| ≤ 700; 0 below. */
double fedge_synthetic_exp(double x);

/* Standard normal, by the ratio of uniforms (Kinderman and Monahan 1977), which takes no logarithm
 * and no cosine: those of fedge_rng_normal may differ in the last bit between C libraries. */
double fedge_synthetic_normal(fedge_rng *rng);

#endif
