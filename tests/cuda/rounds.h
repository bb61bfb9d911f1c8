/* Rounds of the accumulator on GPUs, made up and checked against the scalar references: for tests
 * of tests/cuda, on emulated GPUs and on real ones.
 *
 * One federation at a time, in what is declared here: seed_all makes the layout of an update and
 * the updates, run_rounds plays them. Include cmocka.h first.
 */
#ifndef FEDGE_TESTS_CUDA_ROUNDS_H
#define FEDGE_TESTS_CUDA_ROUNDS_H

#include <stdint.h>

#include "aggregator/reduce/accumulator.h"
#include "edge/core/codec/codec.h"
#include "edge/core/rng.h"
#include "edge/core/tensor.h"

enum { SECTIONS = 3, MAX_TENSORS = 12, MAX_VALUES = 90000, UPDATES = 40 };

extern const fedge_accumulator_ops *const ops;
extern fedge_rng rng;
extern fedge_tensor_spec specs[MAX_TENSORS];
extern fedge_schema schemas[SECTIONS]; /* the second is of floats, whatever the codec */
extern fedge_update_layout layout;
extern int8_t bounds[MAX_TENSORS];
extern int num_updates; /* at most UPDATES */
extern bool extreme;    /* values are ±B, of one sign in all updates, and of weights the largest */
extern uint8_t *bytes[UPDATES];
extern uint64_t sizes[UPDATES][SECTIONS]; /* of their sections */
extern uint32_t weights[UPDATES];
extern int32_t fixed[MAX_VALUES];                      /* the last update, decoded */
extern int64_t expected[MAX_VALUES], sums[MAX_VALUES]; /* of the references; of the GPUs */
extern uint64_t expected_weight;
extern fedge_lost_gpus lost_gpus; /* what the last run_rounds has marked */

/* Tensors of up to [largest] values, and num_updates updates in [codec]; with one that chooses,
 * some are matrices, and the first has more than a group of values. free_updates follows. */
void seed_all(uint64_t seed, const fedge_codec *codec, uint32_t largest);
void free_updates(void);
/* How update [u] is given to an accumulator. */
fedge_encoded encoded(int u);

/* Adds all updates, reads the sums, takes the step, and compares: as far as it gets. */
fedge_status run_round(void *state, fedge_error *err);
/* Opens GPUs 0 to gpus − 1, plays [rounds], closes them; nothing may be left. */
fedge_status run_rounds(uint32_t gpus, fedge_shard shard, int rounds, fedge_error *err);

extern const uint32_t GPUS[4]; /* numbers of GPUs to try */
/* On a machine of [gpus] GPUs that do their work in an order of [seed]: all must go well. */
void check_same_bits(uint32_t gpus, fedge_shard shard, uint64_t seed);
/* On the first of GPUS, and on all real GPUs that there are, both ways to share. */
void check_all_machines(int num_machines, uint64_t seed);

#endif
