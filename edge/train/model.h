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

/* A build for microcontrollers says less (FEDGE_MAX_LAYERS in CMake): a spec has room for them all,
 * and so has the stack while a model is planned. */
#ifndef FEDGE_MAX_LAYERS
#define FEDGE_MAX_LAYERS 256
#endif
/* Bytes of stack that planning takes at most (fedge_model_size, _layer_memory, _micro_batch, _new),
 * compiled with optimisation: the plan of every layer and the order in which arrays are placed. A
 * model on the fused stages takes a tenth of it. */
#define FEDGE_PLANNING_STACK ((size_t)FEDGE_MAX_LAYERS * 160 + 4096)
#define FEDGE_MAX_LAYER_INPUTS 4
#define FEDGE_MAX_LAYER_NAME 64
#define FEDGE_MAX_BATCH 65536
#define FEDGE_MAX_SPATIAL 65536                    /* height or width, also of kernel and stride */
#define FEDGE_MAX_POOL_WINDOW 65536                /* places in a MaxPool2d window */
#define FEDGE_MAX_EXAMPLE_FLOATS ((size_t)1 << 30) /* one example's values between two layers */

/* Every layer: X(its name in enum fedge_layer_type, its name in C, PyTorch's class). A new layer is
 * one line at the end of this list and one file that defines fedge_layer_<name in C>
 * (edge/train/layers/layer.h). */
#define FEDGE_LAYER_MAP(X)                                                                         \
    X(LINEAR, linear, Linear)                                                                      \
    X(CONV2D, conv2d, Conv2d)                                                                      \
    X(MAXPOOL2D, maxpool2d, MaxPool2d)                                                             \
    X(RELU, relu, ReLU)                                                                            \
    X(FLATTEN, flatten, Flatten)                                                                   \
    X(ADD, add, Add)                                                                               \
    X(CONV1D, conv1d, Conv1d)                                                                      \
    X(MAXPOOL1D, maxpool1d, MaxPool1d)                                                             \
    X(AVGPOOL1D, avgpool1d, AvgPool1d)                                                             \
    X(AVGPOOL2D, avgpool2d, AvgPool2d)                                                             \
    X(ADAPTIVEAVGPOOL2D, adaptiveavgpool2d, AdaptiveAvgPool2d)                                     \
    X(RELU6, relu6, ReLU6)                                                                         \
    X(LEAKYRELU, leakyrelu, LeakyReLU)                                                             \
    X(GELU, gelu, GELU)                                                                            \
    X(SIGMOID, sigmoid, Sigmoid)                                                                   \
    X(TANH, tanh, Tanh)                                                                            \
    X(SILU, silu, SiLU)                                                                            \
    X(BATCHNORM2D, batchnorm2d, BatchNorm2d)                                                       \
    X(GROUPNORM, groupnorm, GroupNorm)                                                             \
    X(LAYERNORM, layernorm, LayerNorm)                                                             \
    X(DROPOUT, dropout, Dropout)                                                                   \
    X(EMBEDDING, embedding, Embedding)                                                             \
    X(SELECT, select, Select)                                                                      \
    X(MEAN, mean, Mean)                                                                            \
    X(POSITIONALEMBEDDING, positionalembedding, PositionalEmbedding)                               \
    X(MULTIHEADATTENTION, multiheadattention, MultiheadAttention)                                  \
    X(TRANSFORMERENCODERLAYER, transformerencoderlayer, TransformerEncoderLayer)                   \
    X(LSTM, lstm, LSTM)                                                                            \
    X(GRU, gru, GRU)

typedef enum fedge_layer_type {
#define FEDGE_LAYER_ENUM(upper, lower, class) FEDGE_LAYER_##upper,
    FEDGE_LAYER_MAP(FEDGE_LAYER_ENUM)
#undef FEDGE_LAYER_ENUM
        FEDGE_LAYER_COUNT
} fedge_layer_type;

/* Which of a layer's parameters are trained; the others stay as they are and are not sent. */
typedef enum fedge_train_mode {
    FEDGE_TRAIN_ALL,
    FEDGE_TRAIN_NONE, /* frozen */
    FEDGE_TRAIN_BIAS, /* tensors with "bias" in their name only */
    FEDGE_TRAIN_MODE_COUNT
} fedge_train_mode;

#define FEDGE_INPUT_MODEL 0xffffu /* as a layer's input: the model's own input */

/* One layer as a job describes it. Plain data; only the member of [u] that [type] names is read.
 * Arguments have the ranges that docs/job.schema.json gives them, in C too, where 0 stands for a
 * default besides if its comment says so. */
typedef struct fedge_layer_spec {
    fedge_layer_type type;
    fedge_train_mode train;
    /* Rows of the layer's trained tensors that are trained, [begin, end): output channels of weight
     * and bias; the others stay as they are, bit for bit. num_train_channels 0: all; else 2. */
    uint32_t num_train_channels, train_channels[2];
    char name[FEDGE_MAX_LAYER_NAME]; /* dotted; "" means the layer's position: "0", "1", … */
    /* Whose outputs this layer reads: positions of earlier layers, or FEDGE_INPUT_MODEL. None: the
     * output of the layer before it. */
    uint32_t num_inputs;
    uint16_t inputs[FEDGE_MAX_LAYER_INPUTS];
    bool recompute; /* its output is not kept for the backward pass but made again when it is needed
                       (Chen et al. 2016): the same bits in fewer bytes and more time, where the
                       model runs layer by layer without it too */
    union {
        struct {
            uint32_t in_features, out_features;
            bool bias;
            uint32_t r; /* > 0: low-rank adaptation (LoRA), weight and bias frozen */
            float lora_alpha;
        } linear;
        struct {
            uint32_t in_channels, out_channels;
            uint32_t kernel_size[2], stride[2], padding[2]; /* height, width */
            bool bias;
            uint32_t dilation[2], groups; /* 0: 1 */
        } conv2d;
        struct {
            uint32_t kernel_size[2], stride[2], padding[2]; /* stride 0: as kernel_size */
            uint32_t dilation[2];                           /* 0: 1 */
            bool ceil_mode;
        } maxpool2d;
        struct {
            uint32_t in_channels, out_channels, kernel_size, stride, padding;
            bool bias;
            uint32_t dilation, groups; /* 0: 1 */
        } conv1d;
        struct {
            uint32_t kernel_size, stride, padding; /* stride 0: as kernel_size */
            uint32_t dilation;                     /* 0: 1 */
            bool ceil_mode;
        } maxpool1d;
        struct {
            uint32_t kernel_size, stride, padding; /* stride 0: as kernel_size */
            bool ceil_mode, count_include_pad;
        } avgpool1d;
        struct {
            uint32_t kernel_size[2], stride[2], padding[2]; /* stride 0: as kernel_size */
            bool ceil_mode, count_include_pad;
            uint32_t divisor_override; /* 0: none */
        } avgpool2d;
        struct {
            uint32_t output_size[2];
        } adaptiveavgpool2d;
        struct {
            bool inplace; /* says nothing: models work in place where they may */
        } activation;     /* ReLU, ReLU6, SiLU */
        struct {
            float negative_slope;
            bool inplace;
        } leakyrelu;
        struct {
            uint32_t approximate; /* 0: none, by the error function; 1: tanh */
        } gelu;
        struct {
            uint32_t num_features;
            float eps, momentum;
            bool affine, track_running_stats;
            bool frozen; /* not PyTorch's: use the running statistics in training too */
        } batchnorm2d;
        struct {
            uint32_t num_groups, num_channels;
            float eps;
            bool affine;
        } groupnorm;
        struct {
            uint32_t rank, normalized_shape[3];
            float eps;
            bool elementwise_affine, bias;
        } layernorm;
        struct {
            float p;
            bool inplace;
        } dropout;
        struct {
            uint32_t num_embeddings, embedding_dim;
        } embedding;
        struct {
            int32_t dim, index; /* dim 0 is the batch; negative: from the end */
        } select;
        struct {
            int32_t dim;
        } mean;
        struct {
            uint32_t num_embeddings, embedding_dim; /* num_embeddings: the most steps */
        } positionalembedding;
        struct {
            uint32_t embed_dim, num_heads;
            float dropout;
            bool bias, batch_first, is_causal; /* batch_first: true only */
        } multiheadattention;
        struct {
            uint32_t d_model, nhead, dim_feedforward;
            float dropout, layer_norm_eps;
            uint32_t activation;                           /* 0: relu; 1: gelu */
            bool bias, batch_first, norm_first, is_causal; /* both *_first: true only */
        } transformerencoderlayer;
        struct {
            uint32_t input_size, hidden_size, num_layers;
            bool bias, batch_first, bidirectional; /* batch_first: true only */
        } recurrent;                               /* LSTM and GRU */
    } u;
} fedge_layer_spec;

/* X(its name in enum fedge_loss_type, its name in C, PyTorch's class). See
 * edge/train/losses/losses.h. */
#define FEDGE_LOSS_MAP(X)                                                                          \
    X(CROSS_ENTROPY, cross_entropy, CrossEntropyLoss)                                              \
    X(BCE_WITH_LOGITS, bce_with_logits, BCEWithLogitsLoss)                                         \
    X(MSE, mse, MSELoss)                                                                           \
    X(L1, l1, L1Loss)                                                                              \
    X(HUBER, huber, HuberLoss)

typedef enum fedge_loss_type {
#define FEDGE_LOSS_ENUM(upper, lower, class) FEDGE_LOSS_##upper,
    FEDGE_LOSS_MAP(FEDGE_LOSS_ENUM)
#undef FEDGE_LOSS_ENUM
        FEDGE_LOSS_COUNT
} fedge_loss_type;

/* X(word): what layers and losses could not do from the beginning. A plan whose model needs it says
 * so, and older clients decline it. Which arguments need which word, their tables say
 * (fedge_layer_ops, fedge_loss_ops). The order is kept: append. */
#define FEDGE_MODEL_FEATURE_MAP(X)                                                                 \
    X("pooling")                                                                                   \
    X("label-smoothing")                                                                           \
    X("bidirectional")

/* A whole model with its loss, the mean over the batch. */
typedef struct fedge_model_spec {
    uint32_t input_rank;     /* 1 to 3, without the batch */
    uint32_t input_shape[3]; /* e.g. 1, 28, 28 (channels, height, width) */
    fedge_loss_type loss;    /* 0: CrossEntropyLoss */
    float loss_delta;        /* HuberLoss; 0: 1 */
    float label_smoothing;   /* CrossEntropyLoss */
    uint32_t num_layers;     /* 1 to FEDGE_MAX_LAYERS */
    fedge_layer_spec layers[FEDGE_MAX_LAYERS];
} fedge_model_spec;

/* "Linear", "Conv2d", "CrossEntropyLoss", "SGD", …: PyTorch's class names. NULL for an unknown
 * type. */
const char *fedge_layer_type_name(fedge_layer_type type);
const char *fedge_loss_type_name(fedge_loss_type type);

/* The parameters of [spec], in state_dict order, appended to an empty [schema]. Checks every shape
 * on the way: FEDGE_INVALID_ARGUMENT or FEDGE_TOO_BIG with the layer's name and the numbers. */
FEDGE_MUST_USE fedge_status fedge_model_schema(const fedge_model_spec *spec, fedge_schema *schema,
                                               fedge_error *err);

/* The buffers of [spec], the statistics that layers keep beside their parameters
 * ("1.running_mean"), appended to an empty [schema]; none for most models. The spec must have
 * passed fedge_model_schema. */
FEDGE_MUST_USE fedge_status fedge_model_buffer_schema(const fedge_model_spec *spec,
                                                      fedge_schema *schema, fedge_error *err);

/* Is parameter [index] of fedge_model_schema trained? What is not need not be sent. */
bool fedge_model_trains(const fedge_model_spec *spec, uint32_t index);

/* Number of outputs (classes) and inputs per example. The spec must have passed fedge_model_schema.
 */
uint32_t fedge_model_num_classes(const fedge_model_spec *spec);
size_t fedge_model_input_count(const fedge_model_spec *spec);

/* The first values of the parameters, by PyTorch's default initialisers: uniform in ±1/sqrt(fan_in)
 * for Linear and Conv (kaiming_uniform with a = √5 gives the same bound), in ±1/sqrt(hidden_size)
 * for LSTM and GRU, in ±sqrt(6 / (fan_in + fan_out)) for what goes into attention (Xavier); N(0, 1)
 * for an Embedding, N(0, 0.02²) for positions; 1 and 0 for norms. Streams
 * (seed, FEDGE_PURPOSE_INIT, tensor index). The spec must have passed fedge_model_schema or
 * fedge_model_size. values: (num_values) in schema order, e.g. fedge_model_values. */
void fedge_model_init_values(const fedge_model_spec *spec, uint64_t seed, float *values);

/* The first values of the buffers. values: (num_elements of fedge_model_buffer_schema).
 * fedge_model_new does this to its own. */
void fedge_model_init_buffers(const fedge_model_spec *spec, float *values);

/* X(its name in enum fedge_optimizer_type, its name in C, PyTorch's class). See
 * edge/train/optimizers/optimizers.h. */
#define FEDGE_OPTIMIZER_MAP(X) X(SGD, sgd, SGD) X(ADAM, adam, Adam) X(ADAMW, adamw, AdamW)

typedef enum fedge_optimizer_type {
#define FEDGE_OPTIMIZER_ENUM(upper, lower, class) FEDGE_OPTIMIZER_##upper,
    FEDGE_OPTIMIZER_MAP(FEDGE_OPTIMIZER_ENUM)
#undef FEDGE_OPTIMIZER_ENUM
        FEDGE_OPTIMIZER_COUNT
} fedge_optimizer_type;

/* How parameters step. Names and formulas are torch.optim's:
 *
 *   SGD:       g ← g + weight_decay · w;  v ← momentum · v + g (v = g at the first step);
 *              w ← w − lr · v, with nesterov w ← w − lr · (g + momentum · v)
 *   Adam(W):   see edge/train/optimizers/adam.c
 *
 * Before that the gradient of the batch's mean loss goes through three terms, in this order, each
 * only when it is asked for:
 *
 *   FedProx:   g ← g + proximal_mu · (w − w at the last fedge_model_reset_optimizer)
 *              (Li et al. 2020)
 *
 *   clipping:  g ← g · min(1, clip_norm / (‖g‖ + 1e-6)), the norm over all that is trained
 *              (torch.nn.utils.clip_grad_norm_)
 *
 *   strategy:  g ← g + correction, as SCAFFOLD's c − c_i (edge/plan/client_hooks.h) */
typedef struct fedge_optimizer {
    float learning_rate, momentum, weight_decay;
    fedge_optimizer_type type; /* 0: SGD */
    bool nesterov;
    uint32_t num_betas;      /* Adam and AdamW: 2, or 0 for 0.9 and 0.999 */
    float betas[2], epsilon; /* likewise; 0: 1e-8 */
    float clip_norm;         /* 0: no clipping */
    float proximal_mu;       /* 0: no proximal term */
} fedge_optimizer;

#define FEDGE_MAX_LEARNING_RATE 1e6
#define FEDGE_MAX_CLIP_NORM 1e30
#define FEDGE_MAX_PROXIMAL_MU 1e6

const char *fedge_optimizer_type_name(fedge_optimizer_type type);

/* The numbers that matrix products are made of. Sums are fp32 in any case, and so is all else. */
typedef enum fedge_precision {
    FEDGE_PRECISION_FP32,
    FEDGE_PRECISION_BF16, /* operands rounded to bf16, see below */
    FEDGE_PRECISION_TF32, /* GPUs round operands to tf32, 11 bits of precision; CPUs have fp32 */
    FEDGE_PRECISION_INT8, /* evaluation only: weights and activations of Linear, Conv1d and Conv2d
                             (not depthwise) as int8 with sums in int32, see
                             edge/train/kernels/int8.h */
    FEDGE_PRECISION_COUNT
} fedge_precision;

/* "fp32", "bf16", "tf32", "int8"; NULL: unknown. */
const char *fedge_precision_name(fedge_precision precision);

/* The numbers that are kept. All arithmetic is in fp32: 16 bits are widened before they are used,
 * and what is kept is rounded to nearest, ties to even. */
typedef enum fedge_storage {
    FEDGE_STORAGE_FP32,
    FEDGE_STORAGE_BF16, /* 8 bits of precision, fp32's range */
    FEDGE_STORAGE_FP16, /* 11 bits of precision, up to 65504: what is larger becomes that */
    FEDGE_STORAGE_COUNT
} fedge_storage;

/* "fp32", "bf16", "fp16"; NULL: unknown. */
const char *fedge_storage_name(fedge_storage storage);

/* How a model will be used. */
typedef struct fedge_model_options {
    uint32_t max_batch;   /* largest batch of one step or evaluation, ≥ 1 */
    uint32_t micro_batch; /* > 0 and < max_batch (fedge_model_micro_batch chooses): a batch passes
                             through the layers so many examples at a time, in the memory of so
                             many, and its gradients are summed before the one step, in the memory
                             of one per parameter. Equal but for rounding; BatchNorm measures each
                             part by itself, Dropout draws part by part. Layer by layer */
    bool training;        /* false: forward only, and far fewer bytes */
    float momentum;       /* ≠ 0 reserves a velocity per parameter */
    fedge_optimizer_type optimizer; /* the states that it keeps */
    bool nesterov;                  /* of these, each step may do what was reserved here */
    bool clip;                      /* a gradient per parameter, for clip_norm */
    bool proximal;                  /* a copy of the parameters, for proximal_mu */
    bool correction;                /* a correction per parameter, 0 until it is written */
    bool general;                   /* run layer by layer even where fused stages fit; the results
                                       differ in rounding. For tests and comparison */
    bool unshared;                  /* layer by layer, and no two arrays share memory: the same bits
                                       in more bytes, with activations in fp32. For tests of the
                                       plan */
    /* Of the matrix products forward and backward. BF16: weights, activations and gradients are
     * rounded to bf16 where a Linear, Conv1d, Conv2d (not depthwise) or projection of attention
     * multiplies them, layer by layer. Equal results on every CPU up to numbers below 2^-126; fast
     * where the CPU has AVX512_BF16, else slower than FP32. INT8: only without training; the
     * weights take a quarter of the room. */
    fedge_precision precision;
    /* Parameters between uses; optimizers' states stay fp32. A layer's are widened for its passes
     * and rounded after each step, in which a change of less than half a last place is lost; layer
     * by layer. */
    fedge_storage weights;
    /* Outputs of layers from their last use forward to their first use backward, layer by layer.
     * What a layer saves for itself stays fp32, and so does the model's input. */
    fedge_storage activations;
    unsigned disabled_cpu_features; /* FEDGE_CPU_ bits (edge/core/os.h) not to use; 0: the best
                                       kernels there are, ~0u: the scalar reference */
} fedge_model_options;

/* Where the bytes go: the table that a user sees before a run. All in bytes. */
typedef struct fedge_model_memory {
    size_t parameters;  /* the values, and the buffers (statistics) */
    size_t gradients;   /* fused: of activations (two buffers in turn, but what a convolution or
                           Flatten read makes room for its gradient) and of one convolution's
                           weights; a Linear's weights step as their gradient is made, without a
                           buffer. Else: of all parameters, with clip or micro-batches; without, 0:
                           one layer's at a time lie in the room of activations */
    size_t velocity;    /* the optimizer's states, FedProx's copy, a correction */
    size_t activations; /* fused: outputs kept for the backward pass, the places of the maxima.
                           Else: all that layers make, its room used again as soon as it can be */
    size_t scratch;     /* repacked weights, one example's working set, the model's own records */
    size_t total;       /* the sum */
} fedge_model_memory;

/* Exact bytes of the block that fedge_model_new needs for any address aligned to 64. */
FEDGE_MUST_USE fedge_status fedge_model_size(const fedge_model_spec *spec,
                                             const fedge_model_options *options,
                                             fedge_model_memory *memory, fedge_error *err);

/* One layer's share, for a table. Outputs, gradients and scratch use the same memory in turn where
 * their times allow it, so they sum to more than a fedge_model_memory has. Layers that run as one
 * fused stage have theirs with the last of them. In bytes but for shape and counts. */
typedef struct fedge_layer_memory {
    uint32_t rank, shape[3]; /* of one example's output */
    size_t parameters;       /* how many; those that are not trained too */
    size_t buffers;          /* how many, of statistics */
    size_t values;           /* parameters and buffers */
    size_t optimizer;        /* its states, FedProx's copy, a correction */
    size_t output;   /* the (micro-)batch's; 0: it lies where the layer's input does, or only
                        parts of it exist, one after another */
    size_t saved;    /* from the forward pass to the backward pass, besides outputs */
    size_t gradient; /* of the output; 0: in the place of another, or not made */
    size_t scratch;  /* forward or backward, and the parameters' gradients */
} fedge_layer_memory;

/* layers: (num_layers), to be filled. What fedge_model_size lays out, layer by layer. */
FEDGE_MUST_USE fedge_status fedge_model_layer_memory(const fedge_model_spec *spec,
                                                     const fedge_model_options *options,
                                                     fedge_layer_memory *layers, fedge_error *err);

/* The micro_batch that saves most memory of those that are as fast as the whole batch, or nearly;
 * 0: the whole batch. [options]'s own is not read.
 * It depends on the two alone, not on the CPU or its kernels. Parts are of 4 examples, of 8 where a
 * layer is recurrent, doubled until what the layers make of a part is twice as large as the
 * gradients that all parts are summed in, for each part goes over these and the weights once more,
 * and is 32 KiB for each layer and 256 KiB, for each layer costs a part some time of its own; then
 * as many of one size as go into the batch. 0 where the fused stages run the batch, with a
 * BatchNorm2d that is not frozen, for batches of less than two such parts, and when the block would
 * not be smaller by an eighth. Also when [spec] is not valid, which fedge_model_size tells. */
uint32_t fedge_model_micro_batch(const fedge_model_spec *spec, const fedge_model_options *options);

typedef struct fedge_model fedge_model;

/* Carves a model from [block] (64-byte aligned, memory.total bytes, owned by the caller and in use
 * until the caller reuses it; there is nothing to free). Parameters start as zero.
 * [spec] is copied where needed and may go away. FEDGE_TOO_BIG when the block is too small: the
 * message has both numbers, and the layer that takes most. FEDGE_INVALID_ARGUMENT when the block is
 * not aligned. */
FEDGE_MUST_USE fedge_status fedge_model_new(fedge_model **model, const fedge_model_spec *spec,
                                            const fedge_model_options *options, void *block,
                                            size_t block_size, fedge_error *err);

/* Parameters from outside, in schema order, (num_values), into any model; one that keeps them in
 * int8 or in 16 bits rounds them here. */
void fedge_model_load(fedge_model *model, const float *values);

/* And to outside, from any model but one in int8, which has them no more: that writes zeros. */
void fedge_model_store(const fedge_model *model, float *values);

/* The parameters, in schema order: num_elements floats inside the block; read and write freely
 * between steps. NULL when the model keeps them in int8 or in 16 bits. */
float *fedge_model_values(fedge_model *model);
size_t fedge_model_num_values(const fedge_model *model);

/* Floats of one example, and the most examples in one step. */
size_t fedge_model_example_size(const fedge_model *model);
uint32_t fedge_model_max_batch(const fedge_model *model);

/* The kernels this model runs on: "avx512", "avx2", "neon" or "scalar", with FEDGE_PRECISION_BF16
 * and " bf16" or, where that is emulated, " bf16 without dot products" behind it. Equal inputs give
 * equal bits on equal kernels. Lives as long as the model's block. */
const char *fedge_model_kernels(const fedge_model *model);

/* The start of a client's round, after its parameters have been written: clears the optimizer's
 * states and its count of steps, and copies the parameters for proximal_mu. */
void fedge_model_reset_optimizer(fedge_model *model);

/* A strategy's correction, in schema order, (num_values): written by the caller, added to every
 * gradient. NULL without options.correction. */
float *fedge_model_correction(fedge_model *model);

/* The buffers (BatchNorm's statistics), in the order of fedge_model_buffer_schema. */
float *fedge_model_buffers(fedge_model *model);
size_t fedge_model_num_buffers(const fedge_model *model);

/* Parameters and then buffers, (num_values + num_buffers): into any model, and out of one that
 * keeps floats. */
void fedge_model_set_state(fedge_model *model, const float *state);
void fedge_model_get_state(const fedge_model *model, float *state);

/* What training made of [state], which fedge_model_set_state was given. With weights of 16 bits
 * that is [state] and the change since, so that the rounding of the start is no part of an update.
 */
void fedge_model_get_trained(const fedge_model *model, float *state);

/* Names the stream of random numbers for dropout: (seed, FEDGE_PURPOSE_DROPOUT, round, client
 * index, step). Without this call all are 0. Steps count from the last reset. */
void fedge_model_set_random(fedge_model *model, uint64_t seed, uint32_t round,
                            uint32_t client_index);

/* A batch of examples. */
typedef struct fedge_batch {
    const float *x;        /* (size, input…) */
    const int32_t *labels; /* (size) in [0, num_classes), or NULL */
    const float *targets;  /* (size, outputs), for losses of real numbers; NULL: from the labels,
                              the number itself for one output and one-hot for more */
    uint32_t size;
    bool finite; /* x and targets are known to be: they are not looked through */
} fedge_batch;

/* One step on a batch, by a model made for training with what [optimizer] needs reserved.
 * *loss_sum: sum over the batch of the example's loss before the step; *correct: how many were
 * classified right. FEDGE_INVALID_ARGUMENT (a number of the optimizer that jobs do not take either,
 * with its name), FEDGE_OUT_OF_RANGE (label, with its position) and FEDGE_NOT_FINITE (a value or
 * target, with its position) before anything is computed; FEDGE_NOT_FINITE (loss) before the
 * parameters change, but BatchNorm's statistics may have. */
FEDGE_MUST_USE fedge_status fedge_model_train(fedge_model *model, const fedge_batch *batch,
                                              const fedge_optimizer *optimizer, double *loss_sum,
                                              uint32_t *correct, fedge_error *err);

/* Forward only, parameters unchanged: writes this batch's loss sum and correct count. */
FEDGE_MUST_USE fedge_status fedge_model_test(fedge_model *model, const fedge_batch *batch,
                                             double *loss_sum, uint32_t *correct, fedge_error *err);

/* Can the model take a batch of [size] examples, for a step when it is [training]?
 * FEDGE_INVALID_ARGUMENT when it was made for fewer, or when a layer cannot (BatchNorm2d of one
 * value for each channel), with the layer's name and the numbers. Steps and evaluations check this
 * before anything changes. */
FEDGE_MUST_USE fedge_status fedge_model_check_size(const fedge_model *model, uint32_t size,
                                                   bool training, fedge_error *err);

/* Are all parameters and statistics finite? Steps check the loss, which comes before what they make
 * of the parameters; fedge_trainer_run ends with this. FEDGE_NOT_FINITE with layer, tensor and
 * place of the first that is not. A model in int8 has nothing to check. */
FEDGE_MUST_USE fedge_status fedge_model_check(const fedge_model *model, fedge_error *err);

/* What the model gave in the last fedge_model_test or fedge_model_evaluate: (batch, outputs), until
 * the next step or evaluation. */
const float *fedge_model_outputs(const fedge_model *model);

/* The same two for labels. */
FEDGE_MUST_USE fedge_status fedge_model_step(fedge_model *model, const float *x,
                                             const int32_t *labels, uint32_t batch,
                                             const fedge_optimizer *optimizer, double *loss_sum,
                                             uint32_t *correct, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_model_evaluate(fedge_model *model, const float *x,
                                                 const int32_t *labels, uint32_t batch,
                                                 double *loss_sum, uint32_t *correct,
                                                 fedge_error *err);

#endif
