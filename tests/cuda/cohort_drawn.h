/* A model of layers that GPUs have, data, clients of different sizes and an optimizer, all drawn
 * from a seed, trained by a cohort on a GPU and by the CPU's trainer. One at a time. */
#ifndef FEDGE_TESTS_CUDA_COHORT_DRAWN_H
#define FEDGE_TESTS_CUDA_COHORT_DRAWN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/rng.h"
#include "edge/train/cuda/cohort.h"
#include "edge/train/model.h"
#include "edge/train/trainer.h"

enum { EXAMPLES = 60, CLIENTS = 5, SIDE = 6, CHANNELS = 2, MOST = CHANNELS * SIDE * SIDE };
enum { WORDS = 20, CLASSES = 3, MAX_VALUES = 4096 };

/* What the test chooses before it draws: which models, and the type of their data. */
extern enum drawn_family {
    DRAWN_PLAIN,
    DRAWN_RESIDUAL,
    DRAWN_SIGNAL, /* of one dimension, and averages of windows */
    DRAWN_TEXT,
    DRAWN_SEQUENCE,
    DRAWN_DIRECTIONS,
    DRAWN_ENCODERS,
    DRAWN_ATTENTION,
    DRAWN_DROPPED,
    DRAWN_BATCH_NORMS,
    DRAWN_ADAPTED /* low-rank, and what is not trained */
} drawn_family;
extern fedge_loss_type drawn_loss;
extern uint32_t drawn_outputs; /* of plain models: 1, or CLASSES */
extern bool drawn_are_floats;
extern bool drawn_accumulates; /* changes are added to sums on the GPU */

extern bool drawn_recomputes; /* two layers of three are made again */

/* What is drawn. */
extern fedge_rng drawn_rng;
extern fedge_model_options drawn_options;
extern fedge_trainer_config drawn_training;
extern float drawn_floats[EXAMPLES * MOST];
extern uint32_t drawn_places[EXAMPLES], drawn_firsts[CLIENTS + 1]; /* of clients, in the places */
extern size_t drawn_num_values, drawn_example_values;              /* num_values: with statistics */
extern float drawn_start[MAX_VALUES], drawn_corrections[CLIENTS][MAX_VALUES];
extern fedge_cohort_chunk drawn_chunks[MAX_VALUES];
extern uint32_t drawn_num_chunks;

/* What clients become, on the GPU and on the CPU. */
extern float drawn_trained[CLIENTS][MAX_VALUES], drawn_expected[CLIENTS][MAX_VALUES];
extern fedge_cohort_task drawn_tasks[CLIENTS];
extern uint32_t drawn_num_done;

void drawn_model(uint64_t seed);
fedge_model_spec drawn_spec(uint64_t seed); /* cohort_drawn_models.c: of the family, by drawn_rng */
uint32_t drawn_weight_of(uint32_t client);
fedge_cohort_config drawn_config_of(uint32_t slots);

/* An emulated machine for the seed, and that nothing of it is left or went wrong. */
void drawn_begin(uint64_t seed);
void drawn_end(void);

FEDGE_MUST_USE fedge_status drawn_run(fedge_cohort *cohort, const fedge_trainer_config *config,
                                      fedge_error *err);
void drawn_train_on_gpu(uint64_t seed, uint32_t slots);
void drawn_train_on_cpu(void);
void drawn_compare(uint64_t seed); /* values within the bound, counts alike */
/* All of it, of one family. */
void drawn_agree(enum drawn_family family, uint64_t seed, uint32_t slots);

#endif
