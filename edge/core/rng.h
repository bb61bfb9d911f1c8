/* Named randomness: Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as
 * 1, 2, 3", SC 2011), a counter-based generator.
 *
 * A stream is named by (seed, purpose, a, b, c). Drawing from one stream never touches another, so
 * no result depends on the order of threads, clients or rounds. Not for secrets: noise and masks
 * come from fedge_os_random.
 */
#ifndef FEDGE_EDGE_CORE_RNG_H
#define FEDGE_EDGE_CORE_RNG_H

#include <stddef.h>
#include <stdint.h>

/* Purposes of streams. Their values are part of the reproducibility contract: never renumber. */
typedef enum fedge_purpose {
    FEDGE_PURPOSE_INIT = 1,            /* weights: a = tensor index */
    FEDGE_PURPOSE_SHUFFLE = 2,         /* a = round, b = client index, c = epoch */
    FEDGE_PURPOSE_SAMPLE = 3,          /* cohort: a = round, b = attempt */
    FEDGE_PURPOSE_PARTITION = 4,       /* a = class or client */
    FEDGE_PURPOSE_DROPOUT = 5,         /* a = round, b = client index, c = step */
    FEDGE_PURPOSE_TEST = 6,            /* tests and fault injection */
    FEDGE_PURPOSE_JITTER = 7,          /* reconnect times */
    FEDGE_PURPOSE_CLIENT_PROFILES = 8, /* a simulated device: a = client index, c = property */
    FEDGE_PURPOSE_FAILURE =
        9, /* failure of a simulated task: a = round, b = client index, c = attempt */
    FEDGE_PURPOSE_ONLINE = 10,    /* a simulated device: a = client index, b = segment of time */
    FEDGE_PURPOSE_SYNTHETIC = 11, /* generated data: a = client index, b = example, c = property */
    FEDGE_PURPOSE_AUGMENT = 12,   /* a = round, b = client index, c = epoch */
    FEDGE_PURPOSE_TIE_BREAK = 13, /* order of simulated results at one time: as FAILURE */
    FEDGE_PURPOSE_CHOICE = 14,    /* sparsifier's selection: a = round, b = tensor */
    FEDGE_PURPOSE_ROUNDING = 15 /* rounding of optimizer state, as DROPOUT: word i is of value i */
} fedge_purpose;

/* A stream. Plain data; a copy continues independently. */
typedef struct fedge_rng {
    uint32_t key[2];
    uint32_t counter[4];
    uint32_t block[4]; /* the current output */
    uint32_t used;     /* words of [block] already used */
} fedge_rng;

/* The raw bijection: ten rounds of Philox4x32 on [counter] under [key]. */
void fedge_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* The stream with this name; each name has an independent stream of 2^34 words. The key is the
 * seed, the counter is (block number, purpose << 16 | c, a, b). */
fedge_rng fedge_rng_stream(uint64_t seed, fedge_purpose purpose, uint32_t a, uint32_t b,
                           uint16_t c);

uint32_t fedge_rng_u32(fedge_rng *rng);
uint64_t fedge_rng_u64(fedge_rng *rng);

/* Uniform in [0, bound) without bias (Lemire 2019). [bound] ≥ 1. */
uint32_t fedge_rng_below(fedge_rng *rng, uint32_t bound);

/* Uniform in [0, 1): 24 bits as float, 53 as double. */
float fedge_rng_float(fedge_rng *rng);
double fedge_rng_double(fedge_rng *rng);

/* Standard normal (Box–Muller); Gamma(shape, 1), shape > 0 (Marsaglia and Tsang 2000); a shape near
 * 0 may give 0. They use libm's log, cos and pow, so the last bit may depend on the libm. */
double fedge_rng_normal(fedge_rng *rng);
double fedge_rng_gamma(fedge_rng *rng, double shape);

/* Fisher–Yates over [n] indices in place. */
void fedge_rng_shuffle(fedge_rng *rng, uint32_t *items, size_t n);

#endif
