/* Random nets made from bytes, for the fuzzer and the unit tests: every type of layer by the table
 * of its arguments, branches that join, all losses, optimizers and options. Equal bytes, equal
 * nets. */
#ifndef FEDGE_TESTS_EDGE_TRAIN_RANDOM_NET_H
#define FEDGE_TESTS_EDGE_TRAIN_RANDOM_NET_H

#include "edge/train/model.h"

/* Where choices come from; behind the last byte it goes on with numbers that follow from all. */
typedef struct net_bytes {
    const uint8_t *data;
    size_t size, at;
    uint64_t state;
} net_bytes;

net_bytes net_bytes_of(const uint8_t *data, size_t size);

/* In 0 … n − 1; n ≥ 1. */
uint32_t net_choose(net_bytes *from, uint32_t n);

typedef struct random_net {
    fedge_model_spec spec;
    fedge_model_options options;
    fedge_optimizer optimizer;
    uint32_t batch;   /* ≤ options.max_batch */
    uint32_t indices; /* > 0: the inputs are whole numbers below it */
    bool spoilt;      /* one argument was replaced: may be refused, and may be too large to run */
    bool has_targets; /* else labels */
} random_net;

void random_net_make(net_bytes *from, random_net *net);

/* Sizes it, and unless it is spoilt and too large, trains a step and evaluates in blocks of exactly
 * the planned size on every kernel level. NULL: all is as it should be; else what is not, in static
 * storage or in [net]'s. */
const char *random_net_check(net_bytes *from, const random_net *net);

#endif
