/* The layers of a cohort's model and the layout of its arrays. Private to edge/train/cuda. */
#ifndef FEDGE_EDGE_TRAIN_CUDA_COHORT_PLAN_H
#define FEDGE_EDGE_TRAIN_CUDA_COHORT_PLAN_H

#include <stdbool.h>

#include "edge/train/cuda/cohort.h"
#include "edge/train/cuda/layer.h"

#define FEDGE_COHORT_RING 8        /* finished tasks whose results are being copied */
#define FEDGE_COHORT_MAX_RANGES 64 /* ranges of trained values */
#define FEDGE_COHORT_MAX_RUN 32    /* steps per upload */

typedef struct fedge_cohort_plan {
    const fedge_model_options *options; /* the caller's */
    bool augments;
    uint32_t num_layers, classes, batch;
    fedge_cohort_layer layers[FEDGE_MAX_LAYERS];
    bool is_chain; /* each layer reads the one before it, so two arrays suffice for gradients */
    uint32_t num_ranges, ranges[FEDGE_COHORT_MAX_RANGES][2]; /* trained values: first, count */
    size_t num_values;                                       /* parameters */
    size_t num_state;    /* parameters and the statistics after them */
    size_t stride;       /* floats from one slot's state to the next one's */
    fedge_shape shape;   /* shape of an example */
    size_t input;        /* values of an example */
    size_t most;         /* maximum of values of an example between two layers */
    uint32_t num_states; /* the optimizer's states of a value */
    uint32_t loss;       /* function of kernels.h */
    float argument;      /* the loss's argument */
    fedge_cohort_split split;
} fedge_cohort_plan;

/* Arrays on the GPU. */
typedef struct fedge_cohort_arrays {
    float *values; /* (slots, stride): parameters and statistics; split: (stride) */
    float *gradients, *corrections; /* (slots, stride) */
    void *states[2];                /* (slots, fedge_cohort_num_state_values): the optimizer's */
    float *input;                   /* (slots, batch, input) */
    float *between[2]; /* chain: gradients of layers' outputs, used alternately; otherwise [0] is a
                          gradient that is added to another */
    int64_t *sums;     /* (stride), split: sums of gradients; otherwise NULL */
    int64_t *reduced;  /* split: the range of all GPUs' sums that this GPU steps */
    double *squares;   /* (slots, FEDGE_COHORT_NORM_PARTS), with clipping */
    fedge_cohort_tally *tallies;        /* (slots); split: one for each part */
    fedge_cohort_slot_step *slot_steps; /* (run, slots) */
    uint32_t *indices;                  /* (run, slots, batch) */
    fedge_cohort_move *moves;           /* (run, slots, batch); NULL without augmentation */
    int32_t *predicted;                 /* (run, slots, batch) */
    /* The current step of a run, in training of models that are not split; fedge_cohort_advance. */
    uint32_t *steps_taken;             /* (slots) */
    fedge_cohort_slot_step *slot_step; /* (slots) */
    uint32_t *batch;                   /* (slots, batch) */
    fedge_cohort_move *step_moves;     /* (slots, batch); NULL without augmentation */
    /* Arrays that all slots read. */
    float *start;               /* (members, stride) */
    float *mean, *std;          /* (channels) */
    fedge_cohort_chunk *chunks; /* (members, config.num_chunks) */
    fedge_cohort_set sets[FEDGE_COHORT_SETS];
} fedge_cohort_arrays;

/* Plans the model. FEDGE_UNSUPPORTED as fedge_cohort_check. */
FEDGE_MUST_USE fedge_status fedge_cohort_plan_make(fedge_cohort_plan *plan,
                                                   const fedge_cohort_config *config,
                                                   fedge_error *err);

/* Lays out the arrays of [slots] slots, including the layers', from [block] on, and returns their
 * bytes. [block] NULL: only counts them. [run]: steps per upload. */
size_t fedge_cohort_lay_out_slots(fedge_cohort_plan *plan, fedge_cohort_arrays *arrays, char *block,
                                  uint32_t slots, uint32_t run);
/* The same for the arrays that all slots read. */
size_t fedge_cohort_lay_out_shared(const fedge_cohort_plan *plan, const fedge_cohort_config *config,
                                   fedge_cohort_arrays *arrays, char *block);

/* True when the result for an example depends on the rest of its batch (fedge_cohort_layer_ops), so
 * that batches must not be divided. */
bool fedge_cohort_batch_coupled(const fedge_model_spec *model);

/* As fedge_trainer_count_steps; also fails when a layer cannot train one of the batch sizes. */
FEDGE_MUST_USE fedge_status fedge_cohort_count_steps(const fedge_cohort_plan *plan,
                                                     const fedge_trainer_config *training,
                                                     uint32_t num_examples, uint64_t *steps,
                                                     fedge_error *err);

/* The number of members, at least 1. */
uint32_t fedge_cohort_members(const fedge_cohort_config *config);

/* Bits that rounding drops of the factors of products (kernels.h). */
uint32_t fedge_cohort_dropped_bits(const fedge_cohort_plan *plan);

/* Values of the range that a GPU steps; of a slot when the model is not split. */
size_t fedge_cohort_num_stepped(const fedge_cohort_plan *plan);
/* The part of a range of trained values in the GPU's range, which begins at value [from]: returns
 * the count and sets *first. */
uint32_t fedge_cohort_clip_range(const fedge_cohort_plan *plan, const uint32_t range[2],
                                 size_t from, uint32_t *first);
/* Values with optimizer states in a slot; of a split model, the maximum over the GPUs. */
size_t fedge_cohort_num_state_values(const fedge_cohort_plan *plan);
size_t fedge_cohort_state_size(const fedge_cohort_plan *plan); /* bytes of one state */

/* Steps per upload for [slots] slots. Of a split model: rows of the upload for one step, one for
 * each wave of parts and one for the optimizer. */
uint32_t fedge_cohort_run_of(const fedge_cohort_plan *plan, uint32_t slots);

/* Bytes of pinned memory for [slots] slots. */
size_t fedge_cohort_host_bytes(const fedge_cohort_plan *plan, uint32_t slots);

#endif
