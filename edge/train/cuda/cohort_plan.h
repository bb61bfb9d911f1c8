/* What a cohort's model is made of, and where its arrays lie; private to
 * edge/train/cuda. */
#ifndef FEDGE_EDGE_TRAIN_CUDA_COHORT_PLAN_H
#define FEDGE_EDGE_TRAIN_CUDA_COHORT_PLAN_H

#include <stdbool.h>

#include "edge/train/cuda/cohort.h"
#include "edge/train/cuda/layer.h"

#define FEDGE_COHORT_RING 8        /* trained models that wait for their caller */
#define FEDGE_COHORT_MAX_RANGES 64 /* of values that are trained */
#define FEDGE_COHORT_MAX_RUN 32    /* steps that are told to the GPU at a time */

typedef struct fedge_cohort_plan {
    const fedge_model_options *options; /* the caller's */
    bool augments;
    uint32_t num_layers, classes, batch;
    fedge_cohort_layer layers[FEDGE_MAX_LAYERS];
    bool is_chain; /* each layer reads the one before it: gradients take turns in two arrays */
    uint32_t num_ranges, ranges[FEDGE_COHORT_MAX_RANGES][2]; /* first value, and how many */
    size_t num_values;                                       /* parameters */
    size_t num_state;                                        /* and statistics behind them */
    size_t stride;       /* floats from a slot's state to the next one's */
    fedge_shape shape;   /* of one example */
    size_t input;        /* values of it */
    size_t most;         /* of one example between two layers */
    uint32_t num_states; /* of the optimizer */
    uint32_t loss;       /* its function in kernels.h, and its argument */
    float argument;
    fedge_cohort_split split;
} fedge_cohort_plan;

/* Arrays on the GPU, those of slots first. */
typedef struct fedge_cohort_arrays {
    float *values; /* models' states */
    float *gradients, *corrections;
    void *states[2]; /* of what is trained alone, (slots, fedge_cohort_num_state_values) */
    float *input;
    float *between[2]; /* of a chain: gradients of layers' outputs, in turn; else [0]: what is added
                          to another gradient */
    int64_t *sums;     /* of a share: (stride), of gradients; else NULL */
    int64_t *reduced;  /* then: this GPU's part of all GPUs' */
    double *squares;
    fedge_cohort_tally *tallies;
    fedge_cohort_slot_step *slot_steps; /* (run, slots) */
    uint32_t *indices;                  /* (run, slots, batch) */
    fedge_cohort_move *moves;           /* likewise; NULL without augmentation */
    int32_t *predicted;                 /* likewise */
    /* In training, but not of a share: how many steps of the run each slot has taken, and what the
     * present one is told. */
    uint32_t *steps_taken;             /* (slots) */
    fedge_cohort_slot_step *slot_step; /* (slots) */
    uint32_t *batch;                   /* (slots, batch): its indices */
    fedge_cohort_move *step_moves;     /* likewise; NULL without augmentation */
    float *start;                      /* shared: (members, stride) */
    float *mean, *std;                 /* likewise: (channels) */
    fedge_cohort_chunk *chunks;        /* likewise: (members, config.num_chunks) */
    fedge_cohort_set sets[FEDGE_COHORT_SETS];
} fedge_cohort_arrays;

/* FEDGE_UNSUPPORTED as fedge_cohort_check. */
FEDGE_MUST_USE fedge_status fedge_cohort_plan_make(fedge_cohort_plan *plan,
                                                   const fedge_cohort_config *config,
                                                   fedge_error *err);

/* Lays the arrays of so many slots out from [block] on, layers' among them, and
 * returns their bytes; NULL: only counts. [run]: steps that are told at a time.
 */
size_t fedge_cohort_lay_out_slots(fedge_cohort_plan *plan, fedge_cohort_arrays *arrays, char *block,
                                  uint32_t slots, uint32_t run);
/* The same for what all slots share. */
size_t fedge_cohort_lay_out_shared(const fedge_cohort_plan *plan, const fedge_cohort_config *config,
                                   fedge_cohort_arrays *arrays, char *block);

/* May batches not be cut (fedge_cohort_layer_ops)? */
bool fedge_cohort_batch_coupled(const fedge_model_spec *model);

/* fedge_trainer_count_steps, and whether the layers take its batches. */
FEDGE_MUST_USE fedge_status fedge_cohort_count_steps(const fedge_cohort_plan *plan,
                                                     const fedge_trainer_config *training,
                                                     uint32_t num_examples, uint64_t *steps,
                                                     fedge_error *err);

/* At least 1. */
uint32_t fedge_cohort_members(const fedge_cohort_config *config);

/* Bits that factors of products lose (kernels.h). */
uint32_t fedge_cohort_dropped_bits(const fedge_cohort_plan *plan);

/* Values that a GPU steps, of a share; else those of a slot. */
size_t fedge_cohort_num_stepped(const fedge_cohort_plan *plan);
/* How many values of a range that is trained lie among those that are stepped from [from] on, and
 * the first of them. */
uint32_t fedge_cohort_clip_range(const fedge_cohort_plan *plan, const uint32_t range[2],
                                 size_t from, uint32_t *first);
/* Values that the optimizer keeps states of: for each slot, or of a share on the GPU that steps the
 * most that are trained. */
size_t fedge_cohort_num_state_values(const fedge_cohort_plan *plan);
size_t fedge_cohort_state_size(const fedge_cohort_plan *plan); /* bytes of one of a value */

/* Steps that are told at a time, of so many slots; of a share one, whose parts come in so many
 * waves, and the step's own turn. */
uint32_t fedge_cohort_run_of(const fedge_cohort_plan *plan, uint32_t slots);

/* Bytes of pinned memory for so many slots. */
size_t fedge_cohort_host_bytes(const fedge_cohort_plan *plan, uint32_t slots);

#endif
