/* Models: a list of layers, the bytes they need, and training them in one caller-supplied block.
 *
 * Layer types, argument names, parameter names and layouts are PyTorch's, so the parameters are a
 * state_dict of torch.nn.Sequential ("0.weight", "0.bias", …) unless layers are named. No malloc,
 * no stdio, no globals: fedge_model_size tells in advance how many bytes a model needs, and
 * fedge_model_new allocates them in the caller's block.
 */
#ifndef FEDGE_EDGE_TRAIN_MODEL_H
#define FEDGE_EDGE_TRAIN_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"
#include "edge/core/tensor.h"

/* Builds for microcontrollers set a smaller number (FEDGE_MAX_LAYERS in CMake): a spec has space
 * for all layers, and so has the stack while a model is planned. */
#ifndef FEDGE_MAX_LAYERS
#define FEDGE_MAX_LAYERS 256
#endif
/* The most bytes of stack that planning takes (fedge_model_size, _layer_memory, _micro_batch, _new)
 * if compiled with optimisation. A model on fused stages takes a tenth of it. */
#define FEDGE_PLANNING_STACK ((size_t)FEDGE_MAX_LAYERS * 160 + 4096)
#define FEDGE_MAX_LAYER_INPUTS 4
#define FEDGE_MAX_LAYER_NAME 64
#define FEDGE_MAX_BATCH 65536
#define FEDGE_MAX_SPATIAL 65536     /* height or width of images, kernels and strides */
#define FEDGE_MAX_POOL_WINDOW 65536 /* elements of a MaxPool2d window */
#define FEDGE_MAX_EXAMPLE_FLOATS ((size_t)1 << 30) /* values of one example between two layers */

/* All layers: X(name in enum fedge_layer_type, name in C, PyTorch's class). A new layer is one line
 * at the end of the second list and one file that defines fedge_layer_<name in C>
 * (edge/train/layers/layer.h). The first list has those of the first clients, whose place among the
 * features is fixed. */
#define FEDGE_FIRST_LAYER_MAP(X)                                                                   \
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
#define FEDGE_MORE_LAYER_MAP(X)                                                                    \
    X(HARDSWISH, hardswish, Hardswish)                                                             \
    X(HARDSIGMOID, hardsigmoid, Hardsigmoid)                                                       \
    X(ELU, elu, ELU)                                                                               \
    X(SOFTPLUS, softplus, Softplus)                                                                \
    X(PRELU, prelu, PReLU)                                                                         \
    X(GLU, glu, GLU)                                                                               \
    X(SOFTMAX, softmax, Softmax)                                                                   \
    X(MUL, mul, Mul)                                                                               \
    X(CONCAT, concat, Concat)                                                                      \
    X(RMSNORM, rmsnorm, RMSNorm)                                                                   \
    X(BATCHNORM1D, batchnorm1d, BatchNorm1d)                                                       \
    X(UPSAMPLE, upsample, Upsample)                                                                \
    X(CONVTRANSPOSE1D, convtranspose1d, ConvTranspose1d)                                           \
    X(CONVTRANSPOSE2D, convtranspose2d, ConvTranspose2d)
#define FEDGE_LAYER_MAP(X) FEDGE_FIRST_LAYER_MAP(X) FEDGE_MORE_LAYER_MAP(X)

typedef enum fedge_layer_type {
#define FEDGE_LAYER_ENUM(upper, lower, class) FEDGE_LAYER_##upper,
    FEDGE_LAYER_MAP(FEDGE_LAYER_ENUM)
#undef FEDGE_LAYER_ENUM
        FEDGE_LAYER_COUNT
} fedge_layer_type;

/* Which of a layer's parameters are trained. The others do not change and are not sent. */
typedef enum fedge_train_mode {
    FEDGE_TRAIN_ALL,
    FEDGE_TRAIN_NONE, /* frozen */
    FEDGE_TRAIN_BIAS, /* only tensors with "bias" in their name */
    FEDGE_TRAIN_MODE_COUNT
} fedge_train_mode;

#define FEDGE_INPUT_MODEL 0xffffu /* the model's input, as an entry of [inputs] */

/* One layer as described in a job. Plain data; only the member of [u] that [type] names is read.
 * The ranges of arguments are those of docs/job.schema.json; in C, 0 stands for a default where a
 * comment says so. */
typedef struct fedge_layer_spec {
    fedge_layer_type type;
    fedge_train_mode train;
    /* [begin, end) of the output channels of weight and bias that are trained; the others do not
     * change. num_train_channels is 2, or 0 to train all. */
    uint32_t num_train_channels, train_channels[2];
    char name[FEDGE_MAX_LAYER_NAME]; /* dotted; "": the layer's index, "0", "1", … */
    /* Indices of earlier layers whose outputs this layer reads, or FEDGE_INPUT_MODEL. None: the
     * layer before it. */
    uint32_t num_inputs;
    uint16_t inputs[FEDGE_MAX_LAYER_INPUTS];
    bool
        recompute; /* the output is not stored for the backward pass but recomputed (Chen et al.
                      2016): fewer bytes, more time, and the bits of the model run layer by layer */
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
            bool causal; /* zeros before the first place alone: dilation · (kernel_size − 1) */
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
            bool inplace; /* ignored: models work in place where possible */
        } activation;     /* ReLU, ReLU6, SiLU, Hardswish, Hardsigmoid */
        struct {
            float negative_slope;
            bool inplace;
        } leakyrelu;
        struct {
            uint32_t approximate; /* 0: none (error function); 1: tanh */
        } gelu;
        struct {
            uint32_t num_features;
            float eps, momentum;
            bool affine, track_running_stats;
            bool frozen; /* fedge only: training uses the running statistics too */
        } batchnorm2d;   /* and BatchNorm1d */
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
            uint32_t num_embeddings, embedding_dim; /* num_embeddings: maximum number of steps */
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
        struct {
            float alpha;
            bool inplace;
        } elu;
        struct {
            float beta, threshold;
        } softplus;
        struct {
            uint32_t num_parameters; /* 1, or the number of channels */
            float init;
        } prelu;
        struct {
            int32_t dim; /* counts the batch as 0; negative: from the end */
        } glu, softmax, concat;
        struct {
            uint32_t rank, normalized_shape[3];
            float eps;
            bool elementwise_affine;
        } rmsnorm;
        struct {
            uint32_t size[2], scale_factor[2]; /* one of them is 0 */
            uint32_t mode;                     /* 0: nearest; 1: linear; 2: bilinear */
            bool align_corners;
        } upsample;
        struct {
            uint32_t in_channels, out_channels, kernel_size, stride, padding, output_padding;
            bool bias;
            uint32_t dilation, groups; /* 0: 1 */
        } convtranspose1d;
        struct {
            uint32_t in_channels, out_channels;
            uint32_t kernel_size[2], stride[2], padding[2], output_padding[2];
            bool bias;
            uint32_t dilation[2], groups; /* 0: 1 */
        } convtranspose2d;
    } u;
} fedge_layer_spec;

#ifndef FEDGE_WITH_TARGETS
#define FEDGE_WITH_TARGETS 1 /* 0: built without numbers as targets, and losses just for them */
#endif
#if FEDGE_WITH_TARGETS
#define FEDGE_TARGET_LOSS_MAP(X) X(SMOOTH_L1, smooth_l1, SmoothL1Loss)
#else
#define FEDGE_TARGET_LOSS_MAP(X)
#endif

/* X(name in enum fedge_loss_type, name in C, PyTorch's class). See edge/train/losses/losses.h. */
#define FEDGE_LOSS_MAP(X)                                                                          \
    X(CROSS_ENTROPY, cross_entropy, CrossEntropyLoss)                                              \
    X(BCE_WITH_LOGITS, bce_with_logits, BCEWithLogitsLoss)                                         \
    X(MSE, mse, MSELoss)                                                                           \
    X(L1, l1, L1Loss)                                                                              \
    X(HUBER, huber, HuberLoss)                                                                     \
    FEDGE_TARGET_LOSS_MAP(X)

typedef enum fedge_loss_type {
#define FEDGE_LOSS_ENUM(upper, lower, class) FEDGE_LOSS_##upper,
    FEDGE_LOSS_MAP(FEDGE_LOSS_ENUM)
#undef FEDGE_LOSS_ENUM
        FEDGE_LOSS_COUNT
} fedge_loss_type;

/* X(word): features added to layers and losses since the first release. A plan names the features
 * its model needs, and older clients decline it. fedge_layer_ops and fedge_loss_ops say which
 * arguments need which feature. Append only. */
#define FEDGE_MODEL_FEATURE_MAP(X)                                                                 \
    X("pooling")                                                                                   \
    X("label-smoothing")                                                                           \
    X("bidirectional")                                                                             \
    X("causal")

/* A whole model with its loss, which is the mean over the batch. */
typedef struct fedge_model_spec {
    uint32_t input_rank;     /* 1 to 3, without the batch */
    uint32_t input_shape[3]; /* e.g. 1, 28, 28 (channels, height, width) */
    fedge_loss_type loss;    /* 0: CrossEntropyLoss */
    float loss_delta;        /* HuberLoss, and SmoothL1Loss as beta; 0: 1 */
    float label_smoothing;   /* CrossEntropyLoss */
    uint32_t num_layers;     /* 1 to FEDGE_MAX_LAYERS */
    fedge_layer_spec layers[FEDGE_MAX_LAYERS];
} fedge_model_spec;

/* "Linear", "Conv2d", "CrossEntropyLoss", "SGD", …: PyTorch's class names. NULL for an unknown
 * type. */
const char *fedge_layer_type_name(fedge_layer_type type);
const char *fedge_loss_type_name(fedge_loss_type type);

/* Appends the parameters of [spec], in state_dict order, to an empty [schema], and checks all
 * shapes: FEDGE_INVALID_ARGUMENT or FEDGE_TOO_BIG with the layer's name and the numbers. */
FEDGE_MUST_USE fedge_status fedge_model_schema(const fedge_model_spec *spec, fedge_schema *schema,
                                               fedge_error *err);

/* Appends the buffers of [spec] to an empty [schema]: the statistics of layers ("1.running_mean").
 * Most models have none. The spec must have passed fedge_model_schema. */
FEDGE_MUST_USE fedge_status fedge_model_buffer_schema(const fedge_model_spec *spec,
                                                      fedge_schema *schema, fedge_error *err);

/* True if parameter [index] of fedge_model_schema is trained. Others need not be sent. */
bool fedge_model_trains(const fedge_model_spec *spec, uint32_t index);

/* Number of outputs (classes) and inputs per example. [spec] has passed fedge_model_schema. */
uint32_t fedge_model_num_classes(const fedge_model_spec *spec);
size_t fedge_model_input_count(const fedge_model_spec *spec);

/* Initial values of the parameters, by PyTorch's default initialisers: uniform in ±1/sqrt(fan_in)
 * for Linear and Conv (the bound of kaiming_uniform with a = √5), in ±1/sqrt(hidden_size) for LSTM
 * and GRU, in ±sqrt(6 / (fan_in + fan_out)) for attention's input projection (Xavier); N(0, 1) for
 * an Embedding, N(0, 0.02²) for positions; 1 and 0 for norms. Random streams:
 * (seed, FEDGE_PURPOSE_INIT, tensor index). The spec must have passed fedge_model_schema or
 * fedge_model_size. values: (num_values) in schema order, e.g. fedge_model_values. */
void fedge_model_init_values(const fedge_model_spec *spec, uint64_t seed, float *values);

/* Initial values of the buffers, (num_elements of fedge_model_buffer_schema). fedge_model_new sets
 * them in its model. */
void fedge_model_init_buffers(const fedge_model_spec *spec, float *values);

/* X(name in enum fedge_optimizer_type, name in C, PyTorch's class). See
 * edge/train/optimizers/optimizers.h. The first list has those of the first clients, whose place
 * among the features is fixed; builds for small devices (FEDGE_FIRST_OPTIMIZERS) have no others. */
#define FEDGE_FIRST_OPTIMIZER_MAP(X) X(SGD, sgd, SGD) X(ADAM, adam, Adam) X(ADAMW, adamw, AdamW)
#ifdef FEDGE_FIRST_OPTIMIZERS
#define FEDGE_MORE_OPTIMIZER_MAP(X)
#else
#define FEDGE_MORE_OPTIMIZER_MAP(X)                                                                \
    X(RMSPROP, rmsprop, RMSprop) X(ADAGRAD, adagrad, Adagrad) X(LION, lion, Lion)
#endif
#define FEDGE_OPTIMIZER_MAP(X) FEDGE_FIRST_OPTIMIZER_MAP(X) FEDGE_MORE_OPTIMIZER_MAP(X)

typedef enum fedge_optimizer_type {
#define FEDGE_OPTIMIZER_ENUM(upper, lower, class) FEDGE_OPTIMIZER_##upper,
    FEDGE_OPTIMIZER_MAP(FEDGE_OPTIMIZER_ENUM)
#undef FEDGE_OPTIMIZER_ENUM
        FEDGE_OPTIMIZER_COUNT
} fedge_optimizer_type;

/* An optimizer. Names and formulas are torch.optim's:
 *
 *   SGD:       g ← g + weight_decay · w;  v ← momentum · v + g (v = g at the first step);
 *              w ← w − lr · v, with nesterov w ← w − lr · (g + momentum · v)
 *   others:    see edge/train/optimizers/adam.c, rmsprop.c, adagrad.c and lion.c
 *
 * First, three optional terms change the gradient of the batch's mean loss, in this order:
 *
 *   FedProx:   g ← g + proximal_mu · (w − w at the last fedge_model_reset_optimizer)
 *              (Li et al. 2020)
 *
 *   clipping:  g ← g · min(1, clip_norm / (‖g‖ + 1e-6)), the norm over all trained parameters
 *              (torch.nn.utils.clip_grad_norm_)
 *
 *   strategy:  g ← g + correction, such as SCAFFOLD's c − c_i (edge/plan/client_hooks.h) */
typedef struct fedge_optimizer {
    float learning_rate, momentum, weight_decay;
    fedge_optimizer_type type; /* 0: SGD */
    bool nesterov;
    uint32_t num_betas;      /* Adam, AdamW and Lion: 2, or 0 for 0.9 and 0.999 (Lion: 0.99) */
    float betas[2], epsilon; /* Lion: betas alone; epsilon 0: 1e-8 (Adagrad: 1e-10) */
    float clip_norm;         /* 0: no clipping */
    float proximal_mu;       /* 0: no proximal term */
    float alpha;             /* RMSprop; 0: 0.99 */
    bool centered;           /* RMSprop */
    float lr_decay;          /* Adagrad, a step */
    float initial_accumulator_value; /* Adagrad */
} fedge_optimizer;

#define FEDGE_MAX_LEARNING_RATE 1e6
#define FEDGE_MAX_CLIP_NORM 1e30
#define FEDGE_MAX_PROXIMAL_MU 1e6

const char *fedge_optimizer_type_name(fedge_optimizer_type type);

/* The precision of the operands of matrix products. Sums and all other arithmetic are fp32. */
typedef enum fedge_precision {
    FEDGE_PRECISION_FP32,
    FEDGE_PRECISION_BF16, /* operands rounded to bf16, see below */
    FEDGE_PRECISION_TF32, /* tf32, 11 bits of precision, on GPUs; fp32 on CPUs */
    FEDGE_PRECISION_INT8, /* evaluation only: weights and activations of Linear, Conv1d and Conv2d
                             (not depthwise) as int8 with sums in int32, see
                             edge/train/kernels/int8.h */
    FEDGE_PRECISION_COUNT
} fedge_precision;

/* "fp32", "bf16", "tf32", "int8"; NULL: unknown. */
const char *fedge_precision_name(fedge_precision precision);

/* The format of stored numbers. Arithmetic is fp32: 16 bits are converted before use, and results
 * are rounded to nearest, ties to even, when they are stored. */
typedef enum fedge_storage {
    FEDGE_STORAGE_FP32,
    FEDGE_STORAGE_BF16, /* 8 bits of precision, fp32's range */
    FEDGE_STORAGE_FP16, /* 11 bits of precision; clamped to ±65504 */
    FEDGE_STORAGE_COUNT
} fedge_storage;

/* "fp32", "bf16", "fp16"; NULL: unknown. */
const char *fedge_storage_name(fedge_storage storage);

/* Options that a model is made with. */
typedef struct fedge_model_options {
    uint32_t max_batch; /* largest batch of one step or evaluation, ≥ 1 */
    /* > 0 and < max_batch: a batch passes through the layers in parts of this many examples, in the
     * memory of one part. All gradients are stored and summed before the one step. Differs from a
     * whole batch by rounding; BatchNorm measures and Dropout draws part by part. The model
     * runs layer by layer. See fedge_model_micro_batch. */
    uint32_t micro_batch;
    bool training;                  /* false: forward only, in far fewer bytes */
    float momentum;                 /* ≠ 0 reserves a velocity per parameter (SGD, RMSprop) */
    fedge_optimizer_type optimizer; /* reserves its states */
    bool nesterov;                  /* allows fedge_optimizer.nesterov */
    bool centered;                  /* reserves RMSprop's mean gradient per parameter */
    bool clip;                      /* reserves a gradient per parameter, for clip_norm */
    bool proximal;                  /* reserves a copy of the parameters, for proximal_mu */
    bool correction;                /* reserves a correction per parameter, initially 0 */
    bool general;  /* run layer by layer even if fused stages fit; the results differ by rounding.
                      For tests and comparison */
    bool unshared; /* run layer by layer without sharing memory between arrays: the same bits in
                      more bytes, with activations in fp32. For tests of the plan */
    /* BF16: Linear, Conv1d, Conv2d (not depthwise) and the projections of attention round weights,
     * activations and gradients to bf16 before they multiply; the model runs layer by layer. Equal
     * results on every CPU up to numbers below 2^-126; faster than FP32 only if the CPU has
     * AVX512_BF16. INT8: only without training; weights take a quarter of the bytes. */
    fedge_precision precision;
    /* Format of the parameters; optimizers' states stay fp32. A layer's parameters are converted to
     * fp32 for its passes and rounded after each step, which loses changes of less than half a unit
     * in the last place. With 16 bits the model runs layer by layer. */
    fedge_storage weights;
    /* Format of layers' outputs between their last use forward and their first use backward. What
     * a layer saves for itself and the model's input stay fp32. With 16 bits the model runs layer
     * by layer. */
    fedge_storage activations;
    unsigned disabled_cpu_features; /* FEDGE_CPU_ bits (edge/core/os.h); 0: use the fastest kernels,
                                       ~0u: the scalar reference */
} fedge_model_options;

/* The bytes of a model by purpose. */
typedef struct fedge_model_memory {
    size_t parameters; /* parameters and buffers */
    /* Fused: gradients of activations (two buffers, used alternately; convolutions' and Flatten's
     * inputs are overwritten by theirs) and of one convolution's weights; those of a Linear are not
     * stored. Layer by layer: of all parameters with clip or micro-batches; else 0, because one
     * layer's at a time are counted as activations. */
    size_t gradients;
    size_t velocity; /* optimizer's states, FedProx's copy and a correction */
    /* Fused: outputs saved for the backward pass, and indices of maxima. Layer by layer: all arrays
     * of the layers, which share memory over time. */
    size_t activations;
    size_t scratch; /* repacked weights, one example's working set, bookkeeping */
    size_t total;   /* the sum */
} fedge_model_memory;

/* Exact bytes of the block that fedge_model_new needs for any address aligned to 64. */
FEDGE_MUST_USE fedge_status fedge_model_size(const fedge_model_spec *spec,
                                             const fedge_model_options *options,
                                             fedge_model_memory *memory, fedge_error *err);

/* The bytes of one layer, except for shape and counts. Arrays of different layers share memory over
 * time, so layers sum to more than fedge_model_memory. The bytes of a fused stage are in the last
 * of its layers. */
typedef struct fedge_layer_memory {
    uint32_t rank, shape[3]; /* shape of one example's output */
    size_t parameters;       /* number of parameters, trained or not */
    size_t buffers;          /* number of statistics */
    size_t values;           /* bytes of both */
    size_t optimizer;        /* its states, FedProx's copy and a correction */
    size_t output;   /* bytes for the (micro-)batch; 0 if in place of the input or never whole */
    size_t saved;    /* saved for the backward pass besides outputs */
    size_t gradient; /* bytes of the output's gradient; 0 if in place of another, or not computed */
    size_t scratch;  /* forward or backward, and the parameters' gradients */
} fedge_layer_memory;

/* Sets layers, (num_layers), to the bytes of each layer. */
FEDGE_MUST_USE fedge_status fedge_model_layer_memory(const fedge_model_spec *spec,
                                                     const fedge_model_options *options,
                                                     fedge_layer_memory *layers, fedge_error *err);

/* The micro_batch that saves most memory at nearly the speed of whole batches; 0: whole batches.
 * Depends on [spec] and [options] (without micro_batch) alone, not on the CPU.
 *
 * Parts start at 4 examples, or 8 with a recurrent layer, and are doubled until the activations of
 * a part have twice the bytes of the gradients, over which each part passes, and 32 KiB for each
 * layer plus 256 KiB, for the overhead of a part; then the batch is divided into equal parts. The
 * result is 0 for fused stages, with a BatchNorm2d that is not frozen, if the batch has less than
 * two such parts, if the block would not shrink by an eighth, and if [spec] is not valid. */
uint32_t fedge_model_micro_batch(const fedge_model_spec *spec, const fedge_model_options *options);

typedef struct fedge_model fedge_model;

/* Makes a model in the caller's [block] of at least memory.total bytes, 64-byte aligned. The block
 * must outlive the model; nothing has to be freed. Parameters start as zero. [spec] is copied as
 * needed. FEDGE_TOO_BIG if the block is too small: the message has both sizes and the largest
 * layer. FEDGE_INVALID_ARGUMENT if the block is not aligned. */
FEDGE_MUST_USE fedge_status fedge_model_new(fedge_model **model, const fedge_model_spec *spec,
                                            const fedge_model_options *options, void *block,
                                            size_t block_size, fedge_error *err);

/* Loads parameters, (num_values) in schema order. A model in int8 or 16 bits rounds them. */
void fedge_model_load(fedge_model *model, const float *values);

/* Writes the parameters, (num_values) in schema order; zeros for a model in int8. */
void fedge_model_store(const fedge_model *model, float *values);

/* The parameters inside the block, (num_values) in schema order, to read and write between steps.
 * NULL if the model stores them in int8 or 16 bits. */
float *fedge_model_values(fedge_model *model);
size_t fedge_model_num_values(const fedge_model *model);

/* Floats of one example; the largest batch. */
size_t fedge_model_example_size(const fedge_model *model);
uint32_t fedge_model_max_batch(const fedge_model *model);

/* The name of the model's kernels: "avx512", "avx2", "neon" or "scalar", with FEDGE_PRECISION_BF16
 * followed by " bf16" or, if that is emulated, " bf16 without dot products". Equal inputs give
 * equal bits on equal kernels. Valid as long as the model. */
const char *fedge_model_kernels(const fedge_model *model);

/* Starts a client's round, after its parameters have been loaded: clears the optimizer's states and
 * step count, and copies the parameters for proximal_mu. */
void fedge_model_reset_optimizer(fedge_model *model);

/* A strategy's correction, (num_values) in schema order, which the caller writes and every step
 * adds to the gradient. NULL without options.correction. */
float *fedge_model_correction(fedge_model *model);

/* The buffers (BatchNorm's statistics), in the order of fedge_model_buffer_schema. */
float *fedge_model_buffers(fedge_model *model);
size_t fedge_model_num_buffers(const fedge_model *model);

/* Loads and writes parameters followed by buffers, (num_values + num_buffers). */
void fedge_model_set_state(fedge_model *model, const float *state);
void fedge_model_get_state(const fedge_model *model, float *state);

/* Updates [state], as passed to fedge_model_set_state, by training's result. With weights of 16
 * bits it adds the change since then, so that an update does not contain the rounding of the start.
 */
void fedge_model_get_trained(const fedge_model *model, float *state);

/* Selects the random stream for dropout: (seed, FEDGE_PURPOSE_DROPOUT, round, client index, step).
 * All are 0 by default. Steps count from fedge_model_reset_optimizer. */
void fedge_model_set_random(fedge_model *model, uint64_t seed, uint32_t round,
                            uint32_t client_index);

/* A batch of examples. */
typedef struct fedge_batch {
    const float *x;        /* (size, input…) */
    const int32_t *labels; /* (size) in [0, num_classes), or NULL */
    const float *targets;  /* (size, outputs), for regression losses; NULL: from the labels, as a
                              number for one output and one-hot for more */
    uint32_t size;
    bool finite; /* x and targets are known to be finite and need no check */
} fedge_batch;

/* One step on a batch. The model's options must have reserved what [optimizer] needs. *loss_sum:
 * sum of the examples' losses before the step; *correct: examples classified correctly. Before
 * anything is computed: FEDGE_INVALID_ARGUMENT (an optimizer's argument out of range, with its
 * name), FEDGE_OUT_OF_RANGE (a label) and FEDGE_NOT_FINITE (a value or target), with their index.
 * Before the parameters change: FEDGE_NOT_FINITE (the loss); BatchNorm's statistics may have
 * changed. */
FEDGE_MUST_USE fedge_status fedge_model_train(fedge_model *model, const fedge_batch *batch,
                                              const fedge_optimizer *optimizer, double *loss_sum,
                                              uint32_t *correct, fedge_error *err);

/* Forward only: the batch's loss sum and correct count. */
FEDGE_MUST_USE fedge_status fedge_model_test(fedge_model *model, const fedge_batch *batch,
                                             double *loss_sum, uint32_t *correct, fedge_error *err);

/* Checks that the model accepts a batch of [size] examples, for a step or an evaluation:
 * FEDGE_INVALID_ARGUMENT if it was made for fewer, or if a layer does not (BatchNorm2d of one value
 * per channel), with the layer's name and the numbers. Steps and evaluations check this first. */
FEDGE_MUST_USE fedge_status fedge_model_check_size(const fedge_model *model, uint32_t size,
                                                   bool training, fedge_error *err);

/* Checks that all parameters and statistics are finite: FEDGE_NOT_FINITE with layer, tensor and
 * index of the first that is not. A step only checks the loss before it, so fedge_trainer_run ends
 * with this check. A model in int8 always passes. */
FEDGE_MUST_USE fedge_status fedge_model_check(const fedge_model *model, fedge_error *err);

/* Outputs of the last evaluation, (batch, outputs), valid until the next step or evaluation. */
const float *fedge_model_outputs(const fedge_model *model);

/* fedge_model_train and fedge_model_test for labels. */
FEDGE_MUST_USE fedge_status fedge_model_step(fedge_model *model, const float *x,
                                             const int32_t *labels, uint32_t batch,
                                             const fedge_optimizer *optimizer, double *loss_sum,
                                             uint32_t *correct, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_model_evaluate(fedge_model *model, const float *x,
                                                 const int32_t *labels, uint32_t batch,
                                                 double *loss_sum, uint32_t *correct,
                                                 fedge_error *err);

#endif
