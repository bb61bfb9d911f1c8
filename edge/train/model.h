/* Models: a list of layers, the bytes they need, and training them in one caller-supplied block.
 *
 * Layer types, argument names, parameter names and layouts are PyTorch's, so the parameters are a
 * state_dict of torch.nn.Sequential ("0.weight", "0.bias", …) unless a layer has a name of its own.
 * No malloc, no stdio, no globals: fedge_model_size says how many bytes a model needs before it
 * runs, fedge_model_new carves them from the caller's block.
 */
#ifndef FEDGE_EDGE_TRAIN_MODEL_H
#define FEDGE_EDGE_TRAIN_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"
#include "edge/core/tensor.h"

#define FEDGE_MAX_LAYERS 256
#define FEDGE_MAX_LAYER_NAME 64
#define FEDGE_MAX_BATCH 65536
#define FEDGE_MAX_SPATIAL 65536                    /* height or width, also of kernel and stride */
#define FEDGE_MAX_POOL_WINDOW 256                  /* places in a MaxPool2d window */
#define FEDGE_MAX_EXAMPLE_FLOATS ((size_t)1 << 30) /* one example's values between two layers */

typedef enum fedge_layer_type {
    FEDGE_LAYER_LINEAR, /* y = x Wᵀ + b           x: (batch, in) → (batch, out) */
    FEDGE_LAYER_CONV2D, /* cross-correlation      x: (batch, in, h, w) → (batch, out, h', w') */
    FEDGE_LAYER_MAXPOOL2D, /* maximum over a window  x: (batch, c, h, w) → (batch, c, h', w') */
    FEDGE_LAYER_RELU,      /* y = max(x, 0) */
    FEDGE_LAYER_FLATTEN,   /* (batch, …) → (batch, product) */
    FEDGE_LAYER_COUNT
} fedge_layer_type;

/* One layer as a job describes it. Plain data; only the member of [u] that [type] names is read. */
typedef struct fedge_layer_spec {
    fedge_layer_type type;
    char name[FEDGE_MAX_LAYER_NAME]; /* dotted; "" means the layer's position: "0", "1", … */
    union {
        struct {
            uint32_t in_features, out_features;
            bool bias;
        } linear;
        struct {
            uint32_t in_channels, out_channels;
            uint32_t kernel_size[2], stride[2], padding[2]; /* height, width */
            bool bias;
        } conv2d;
        struct {
            uint32_t kernel_size[2], stride[2], padding[2]; /* stride 0: as kernel_size */
        } maxpool2d;
    } u;
} fedge_layer_spec;

/* A whole model with its loss (cross-entropy of logits, mean over the batch). */
typedef struct fedge_model_spec {
    uint32_t input_rank;     /* 1 to 3, without the batch */
    uint32_t input_shape[3]; /* e.g. 1, 28, 28 (channels, height, width) */
    uint32_t num_layers;     /* 1 to FEDGE_MAX_LAYERS */
    fedge_layer_spec layers[FEDGE_MAX_LAYERS];
} fedge_model_spec;

/* "Linear", "Conv2d", …: PyTorch's class names. NULL for an unknown type. */
const char *fedge_layer_type_name(fedge_layer_type type);

/* The parameters of [spec], in state_dict order, appended to an empty [schema]. Checks every shape
 * on the way: FEDGE_INVALID_ARGUMENT or FEDGE_TOO_BIG with the layer's name and the numbers. */
FEDGE_MUST_USE fedge_status fedge_model_schema(const fedge_model_spec *spec, fedge_schema *schema,
                                               fedge_error *err);

/* Number of outputs (classes) and inputs per example. The spec must have passed fedge_model_schema.
 */
uint32_t fedge_model_num_classes(const fedge_model_spec *spec);
size_t fedge_model_input_count(const fedge_model_spec *spec);

/* PyTorch's default initialisers: weights and biases of Linear and Conv2d uniform in
 * ±1/sqrt(fan_in) (kaiming_uniform with a = √5 gives the same bound). Streams
 * (seed, FEDGE_PURPOSE_INIT, tensor index). [values]: schema->num_elements floats. */
FEDGE_MUST_USE fedge_status fedge_model_init_values(const fedge_model_spec *spec,
                                                    const fedge_schema *schema, uint64_t seed,
                                                    float *values, fedge_error *err);

/* How a model will be used. */
typedef struct fedge_model_options {
    uint32_t max_batch;             /* largest batch of one step or evaluation, ≥ 1 */
    bool training;                  /* false: forward only, and far fewer bytes */
    float momentum;                 /* ≠ 0 reserves a velocity per parameter */
    unsigned disabled_cpu_features; /* FEDGE_CPU_ bits (edge/core/os.h) not to use; 0: the best
                                       kernels there are, ~0u: the scalar reference */
} fedge_model_options;

/* Where the bytes go: the table that a user sees before a run. All in bytes. */
typedef struct fedge_model_memory {
    size_t parameters;  /* the values */
    size_t gradients;   /* of activations (two buffers in turn) and of one convolution's weights; a
                           Linear's weights step as their gradient is made, without a buffer */
    size_t velocity;    /* with momentum */
    size_t activations; /* outputs kept for the backward pass, the places of the maxima */
    size_t scratch;     /* repacked weights, one example's working set, the model's own records */
    size_t total;       /* the sum */
} fedge_model_memory;

/* Exact bytes of the block that fedge_model_new needs for any address aligned to 64. */
FEDGE_MUST_USE fedge_status fedge_model_size(const fedge_model_spec *spec,
                                             const fedge_model_options *options,
                                             fedge_model_memory *memory, fedge_error *err);

typedef struct fedge_model fedge_model;

/* Carves a model from [block] (64-byte aligned, memory.total bytes, owned by the caller and in use
 * until the caller reuses it; there is nothing to free). Parameters start as zero.
 * [spec] is copied where needed and may go away. FEDGE_TOO_BIG when the block is too small: the
 * message has both numbers. FEDGE_INVALID_ARGUMENT when the block is not aligned. */
FEDGE_MUST_USE fedge_status fedge_model_new(fedge_model **model, const fedge_model_spec *spec,
                                            const fedge_model_options *options, void *block,
                                            size_t block_size, fedge_error *err);

/* The parameters, in schema order: num_elements floats inside the block; read and write freely
 * between steps. */
float *fedge_model_values(fedge_model *model);
size_t fedge_model_num_values(const fedge_model *model);

/* Floats of one example, and the most examples in one step. */
size_t fedge_model_example_size(const fedge_model *model);
uint32_t fedge_model_max_batch(const fedge_model *model);

/* The kernels this model runs on: "avx512", "avx2", "neon" or "scalar". Equal inputs give equal
 * bits on equal kernels. Static storage. */
const char *fedge_model_kernels(const fedge_model *model);

/* Clears the velocities (the start of a client's round). */
void fedge_model_reset_optimizer(fedge_model *model);

/* torch.optim.SGD without Nesterov:
 *   g ← g + weight_decay · w;  v ← momentum · v + g (v = g at the first step);  w ← w − lr · v */
typedef struct fedge_sgd {
    float learning_rate, momentum, weight_decay;
} fedge_sgd;

/* One step on a batch, by a model made for training (momentum ≠ 0 needs options.momentum ≠ 0). x:
 * (batch, input…) floats; labels: (batch) in [0, num_classes). *loss_sum: sum over the batch of
 * −log softmax(logits)[label] before the step; *correct: how many had their largest logit at the
 * label. FEDGE_OUT_OF_RANGE (label, with its position), FEDGE_NOT_FINITE (loss), before the
 * parameters change. */
FEDGE_MUST_USE fedge_status fedge_model_step(fedge_model *model, const float *x,
                                             const int32_t *labels, uint32_t batch,
                                             const fedge_sgd *sgd, double *loss_sum,
                                             uint32_t *correct, fedge_error *err);

/* Forward only, parameters unchanged: adds nothing, writes this batch's loss sum and correct count.
 */
FEDGE_MUST_USE fedge_status fedge_model_evaluate(fedge_model *model, const float *x,
                                                 const int32_t *labels, uint32_t batch,
                                                 double *loss_sum, uint32_t *correct,
                                                 fedge_error *err);

#endif
