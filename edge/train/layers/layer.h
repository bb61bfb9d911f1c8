/* Shapes, arguments and the interface of layers; private to edge/train. */
#ifndef FEDGE_EDGE_TRAIN_LAYERS_LAYER_H
#define FEDGE_EDGE_TRAIN_LAYERS_LAYER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/rng.h"
#include "edge/train/kernels/int8.h"
#include "edge/train/kernels/kernels.h"
#include "edge/train/model.h"

#define FEDGE_MAX_SHAPE_RANK 3

/* One example's shape, without the batch. */
typedef struct fedge_shape {
    uint32_t rank;                       /* 1 to 3 */
    uint32_t dims[FEDGE_MAX_SHAPE_RANK]; /* rank 3: channels, height, width */
} fedge_shape;

size_t fedge_shape_count(const fedge_shape *shape);

/* The shape of the model's input. Checks its rank and dimensions, and the number of layers. */
FEDGE_MUST_USE fedge_status fedge_shape_input(const fedge_model_spec *spec, fedge_shape *shape,
                                              fedge_error *err);

/* The sources of layer [index]: indices of earlier layers or FEDGE_INPUT_MODEL, at least one. Fails
 * if their number is wrong, or if one is not earlier. */
FEDGE_MUST_USE fedge_status fedge_layer_sources(const fedge_model_spec *spec, uint32_t index,
                                                uint16_t sources[FEDGE_MAX_LAYER_INPUTS],
                                                uint32_t *num_sources, fedge_error *err);

/* Prefixes the message by the layer's index, type and name: 'layer 2 (Linear "fc"): …'. Returns
 * [status]. */
fedge_status fedge_layer_prefix(const fedge_layer_spec *layer, uint32_t index, fedge_status status,
                                fedge_error *err);
fedge_status fedge_layer_fail(const fedge_model_spec *spec, uint32_t index, fedge_status status,
                              fedge_error *err);

/* The output shape of layer [index] for the shapes [in] of its sources. Checks its arguments. */
FEDGE_MUST_USE fedge_status fedge_shape_infer(const fedge_model_spec *spec, uint32_t index,
                                              const fedge_shape *in, uint32_t num_inputs,
                                              fedge_shape *out, fedge_error *err);

/* The output shape of the whole model. Checks every layer. */
FEDGE_MUST_USE fedge_status fedge_shape_model(const fedge_model_spec *spec, fedge_shape *out,
                                              fedge_error *err);

/* Replaces [shape] by the output shape of layer [index], which has one source. */
FEDGE_MUST_USE fedge_status fedge_shape_advance(const fedge_model_spec *spec, uint32_t index,
                                                fedge_shape *shape, fedge_error *err);

/* Checks that the last layer's shape is [outputs], and that there are parameters to train. */
FEDGE_MUST_USE fedge_status fedge_shape_output(const fedge_shape *shape, size_t num_parameters,
                                               fedge_error *err);

/* For infer: checks that the input has [rank] dimensions. layout: their names in the message. */
FEDGE_MUST_USE fedge_status fedge_shape_need(const fedge_shape *shape, uint32_t rank,
                                             const char *layout, fedge_error *err);

/* Height and width of (channels, height, width) or (channels, length), where the height is 1; and
 * the reverse. */
void fedge_shape_sides(const fedge_shape *shape, uint32_t sides[2]);
const char *fedge_shape_side_name(uint32_t rank, int side); /* "height", "width" or "length" */
fedge_shape fedge_shape_of_sides(uint32_t rank, uint32_t channels, const uint32_t sides[2]);

/* For infer: checks that the input has [rank] dimensions, 2 or 3. */
FEDGE_MUST_USE fedge_status fedge_shape_need_sides(const fedge_shape *shape, uint32_t rank,
                                                   fedge_error *err);

/* One dimension of a row-major array, seen as (outer, length, inner). */
typedef struct fedge_axis {
    uint32_t at;   /* index among the example's dimensions */
    size_t outer;  /* product of the dimensions before it, in one example */
    size_t length; /* the dimension */
    size_t inner;  /* product of the dimensions after it: floats between its elements */
} fedge_axis;

/* PyTorch's [dim], which counts the batch as 0, or from the end if negative. Fails for the batch,
 * and for a dim out of range. */
FEDGE_MUST_USE fedge_status fedge_shape_dim(const fedge_shape *shape, int32_t dim, fedge_axis *axis,
                                            fedge_error *err);

/* The same for layers that remove the dimension: fails for rank 1 too. */
FEDGE_MUST_USE fedge_status fedge_shape_axis(const fedge_shape *shape, int32_t dim,
                                             fedge_axis *axis, fedge_error *err);

/* Removes dimension [at]; rank ≥ 2. */
void fedge_shape_drop(fedge_shape *shape, uint32_t at);

/* One axis of a sliding window with dilation ≥ 1:
 * out = floor((size + 2 · padding − dilation · (kernel − 1) − 1) / stride) + 1.
 * axis: its name in messages, such as "height". */
FEDGE_MUST_USE fedge_status fedge_shape_window(const char *axis, uint32_t kernel, uint32_t stride,
                                               uint32_t padding, uint32_t dilation, uint32_t size,
                                               uint32_t *out, fedge_error *err);

/* Checks that dimensions are ≥ 1 and that their product is within the limit. */
FEDGE_MUST_USE fedge_status fedge_shape_check(const fedge_shape *shape, fedge_error *err);

/* The layer's name, or its index as text if it has none. */
const char *fedge_layer_label(const fedge_layer_spec *layer, uint32_t index,
                              char label[FEDGE_MAX_LAYER_NAME]);

/* ---- the interface of layers: a table of operations per type, in a file each ----
 *
 * Arrays are dense and row-major with the batch first: (batch, channels, height, width),
 * (batch, steps, features), (batch, features). A layer owns no memory: for each pass over a batch
 * the model passes every pointer in a fedge_layer_run. docs/layers.md says how to add a layer.
 */

#define FEDGE_MAX_LAYER_TENSORS 12

/* ---- arguments of jobs ---- */

typedef enum fedge_argument_kind {
    FEDGE_ARGUMENT_U32,   /* uint32_t */
    FEDGE_ARGUMENT_PAIR,  /* uint32_t[2]: height, width; one number stands for both */
    FEDGE_ARGUMENT_BOOL,  /* bool */
    FEDGE_ARGUMENT_F32,   /* float */
    FEDGE_ARGUMENT_U32S,  /* uint32_t[3], a list of 1 to 3; the uint32_t at extra is its length */
    FEDGE_ARGUMENT_F32S,  /* float[2], a list; the uint32_t at extra is 2, or 0 if absent */
    FEDGE_ARGUMENT_I32,   /* int32_t, always required */
    FEDGE_ARGUMENT_CHOICE /* an enum, with the names that choice_name returns */
} fedge_argument_kind;

/* Kept small: a device has the tables of all layers. */
typedef struct fedge_argument {
    const char *name;                            /* PyTorch's; NULL ends a table */
    double min, max;                             /* inclusive range of numbers */
    double fallback;                             /* value when absent; a choice's number */
    const char *(*choice_name)(unsigned choice); /* CHOICE */
    uint16_t offset;                             /* offset in the struct that the table describes */
    uint16_t extra;                              /* U32S, F32S: offset of the length */
    uint8_t kind;                                /* fedge_argument_kind */
    uint8_t num_choices;                         /* CHOICE */
    bool required;
    bool zero_is_default; /* F32: in C, 0 stands for the default although it is below min */
} fedge_argument;

#define FEDGE_ARGUMENT_MAX_COUNT 16777216.0 /* limit of features, channels, embeddings */
#define FEDGE_ARGUMENT_MAX_SIDE 65536.0     /* limit of a kernel, stride or padding */

/* Entries of a table. at: offset of the value. */
#define FEDGE_COUNT_ARGUMENT(text, at)                                                             \
    {                                                                                              \
        .name = text, .kind = FEDGE_ARGUMENT_U32, .required = true, .offset = at, .min = 1,        \
        .max = FEDGE_ARGUMENT_MAX_COUNT                                                            \
    }
#define FEDGE_PAIR_ARGUMENT(text, at, need, minimum, missing)                                      \
    {                                                                                              \
        .name = text, .kind = FEDGE_ARGUMENT_PAIR, .required = need, .offset = at, .min = minimum, \
        .max = FEDGE_ARGUMENT_MAX_SIDE, .fallback = missing                                        \
    }
#define FEDGE_U32_ARGUMENT(text, at, need, minimum, maximum, missing)                              \
    {                                                                                              \
        .name = text, .kind = FEDGE_ARGUMENT_U32, .required = need, .offset = at, .min = minimum,  \
        .max = maximum, .fallback = missing                                                        \
    }
#define FEDGE_I32_ARGUMENT(text, at, minimum, maximum)                                             \
    {                                                                                              \
        .name = text, .kind = FEDGE_ARGUMENT_I32, .required = true, .offset = at, .min = minimum,  \
        .max = maximum                                                                             \
    }
#define FEDGE_F32_ARGUMENT(text, at, minimum, maximum, missing)                                    \
    {                                                                                              \
        .name = text, .kind = FEDGE_ARGUMENT_F32, .offset = at, .min = minimum, .max = maximum,    \
        .fallback = missing                                                                        \
    }
/* Added to a variance that may be 0. */
#define FEDGE_EPS_ARGUMENT(text, at) FEDGE_F32_ARGUMENT(text, at, 1e-30, 1, 1e-5)
#define FEDGE_BOOL_ARGUMENT(text, at, missing)                                                     \
    {                                                                                              \
        .name = text, .kind = FEDGE_ARGUMENT_BOOL, .offset = at, .fallback = missing               \
    }
#define FEDGE_NO_ARGUMENT                                                                          \
    {                                                                                              \
        .name = NULL                                                                               \
    }

/* Checks that the real numbers and choices of [record] are within the ranges of [arguments]
 * (FEDGE_INVALID_ARGUMENT), and single whole numbers not above them (FEDGE_TOO_BIG). The message
 * has the argument's name and numbers. Jobs are checked against the same ranges when they are read;
 * infer checks whole numbers against shapes. [arguments] may be NULL. */
FEDGE_MUST_USE fedge_status fedge_arguments_check(const fedge_argument *arguments,
                                                  const void *record, fedge_error *err);

/* ---- parameters and buffers ---- */

typedef enum fedge_init {
    FEDGE_INIT_ZERO,
    FEDGE_INIT_ONE,
    FEDGE_INIT_UNIFORM, /* uniform in ±scale */
    FEDGE_INIT_NORMAL,  /* normal with mean 0 and standard deviation scale */
    FEDGE_INIT_CONSTANT /* scale */
} fedge_init;

typedef struct fedge_layer_tensor {
    const char *name; /* name without the layer's: "weight", "running_mean" */
    bool buffer;      /* a statistic: no gradient, sent in a separate section */
    bool frozen;      /* never trained in any train mode; for a buffer: never changed */
    bool factor;      /* operand of matrix products, a row per output: may be in int8 (run->int8) */
    uint32_t rank, shape[4];
    fedge_init init;
    float scale;
} fedge_layer_tensor;

/* 1 / sqrt(fan_in), PyTorch's bound for the weights and biases of Linear and Conv. */
float fedge_init_bound(uint64_t fan_in);

/* ---- one pass ---- */

typedef struct fedge_layer_run {
    const fedge_layer_spec *spec;
    const fedge_kernels *kernels;
    float *gemm_pack; /* scratch of kernels->gemm */
    uint32_t batch;   /* ≥ 1, at most the batch given to sizes */
    bool training;    /* false: evaluation */
    bool recompute;   /* forward: the second run of this step; do not update statistics */
    uint32_t num_inputs;
    fedge_shape in[FEDGE_MAX_LAYER_INPUTS], out; /* shapes of one example */

    const float *x[FEDGE_MAX_LAYER_INPUTS]; /* (batch, in…); backward: valid with FEDGE_USES_X */
    float *y;                               /* (batch, out…); backward: valid with FEDGE_USES_Y */
    const float *dy;                        /* (batch, out…) */
    float *dx[FEDGE_MAX_LAYER_INPUTS];      /* (batch, in…), overwritten; NULL: not needed */

    const float *values[FEDGE_MAX_LAYER_TENSORS]; /* parameters, in the order of ops->tensors */
    /* backward: unless NULL, backward itself takes an SGD step of the first tensor, which has no
     * gradient (sizes.fuses_sgd). weight: values[0]. velocity: of the same size, NULL without
     * momentum. */
    const fedge_optimizer *sgd;
    float *weight, *velocity;
    bool in_int8;           /* evaluation with the factor in int8; its entry of values is NULL */
    fedge_int8_weight int8; /* the factor, with in_int8 */
    fedge_int8_multiply int8_multiply;
    float *gradients[FEDGE_MAX_LAYER_TENSORS]; /* accumulated; NULL: not trained */
    float *buffers[FEDGE_MAX_LAYER_TENSORS];   /* NULL for tensors that are not buffers */

    /* > 0, only with sizes.fuses_relu: the layer absorbs the rectifier after it. It also computes
     * y = min(max(y, 0), ceiling), and dy is the gradient of that. */
    float ceiling;
    bool masked;    /* saved has sizes.mask bytes, and backward reads neither x nor y */
    void *saved;    /* sizes.saved bytes from forward to backward; NULL: no backward pass follows */
    void *scratch;  /* sizes.forward or sizes.backward bytes, uninitialised */
    fedge_rng *rng; /* forward: the step's stream for dropout, used in the order of layers */
} fedge_layer_run;

/* Bytes of working memory for run->batch examples, and abilities of the layer. */
typedef struct fedge_layer_sizes {
    uint64_t saved, forward, backward;
    uint64_t mask;      /* > 0: bytes with which backward needs neither x nor y; see run->masked */
    bool fuses_sgd;     /* backward can step the first tensor (run->sgd) without its gradient */
    bool fuses_relu;    /* the layer can absorb a rectifier after it (run->ceiling) */
    bool batch_coupled; /* training: an example's output depends on the others of its batch */
    /* Least examples at full speed, if more than FEDGE_MIN_EFFICIENT_BATCH; else 0. */
    uint32_t min_efficient_batch;
} fedge_layer_sizes;

/* Least examples at full speed of layers with many rows per example: pixels of an image, steps of a
 * sequence. */
#define FEDGE_MIN_EFFICIENT_BATCH 4

/* Backward reads x, or y. */
#define FEDGE_USES_X 0x1u
#define FEDGE_USES_Y 0x2u
#define FEDGE_Y_ON_X 0x4u      /* y may be x[0], of the same size */
#define FEDGE_DX_ON_DY 0x8u    /* dx[0] may be dy, of the same size */
#define FEDGE_EXACT_X 0x10u    /* x has whole numbers: 16 bits would be too few before it */
#define FEDGE_X_IS_STEPS 0x20u /* an x of rank 2 is (steps, features), not (channels, length) */
#define FEDGE_BATCH_NORM 0x40u /* normalises by the batch: FedBN does not share it */

typedef struct fedge_layer_ops {
    const fedge_argument *arguments; /* arguments in a fedge_layer_spec; NULL: none */
    uint32_t min_inputs, max_inputs; /* 0, 0: exactly one */
    unsigned flags;
    float ceiling; /* > 0: a rectifier, y = min(max(x, 0), ceiling), which another can absorb */

    /* Infers out from in. Checks every argument and dimension; messages have the numbers, and the
     * caller prefixes the layer's name. in: num_inputs valid shapes. The caller checks the
     * dimensions and the size of *out. */
    fedge_status (*infer)(const fedge_layer_spec *layer, const fedge_shape *in, uint32_t num_inputs,
                          fedge_shape *out, fedge_error *err);

    /* The entry of FEDGE_MODEL_FEATURE_MAP that clients need to run the layer with these arguments,
     * or NULL. The function may be NULL. */
    const char *(*feature)(const fedge_layer_spec *layer);

    /* Replaces arguments of a job that stand for others by numbers, for plans. May be NULL. */
    void (*complete)(fedge_layer_spec *layer);
    /* Sets PyTorch's "same" padding from the other arguments. FEDGE_INVALID_ARGUMENT with the
     * numbers if there is none. NULL: not supported. */
    fedge_status (*pad_same)(fedge_layer_spec *layer, fedge_error *err);

    /* Lists parameters and buffers in state_dict order, and returns their number. NULL: none. */
    uint32_t (*tensors)(const fedge_layer_spec *layer,
                        fedge_layer_tensor list[FEDGE_MAX_LAYER_TENSORS]);

    /* run has spec, kernels, batch and shapes only. NULL: no working memory. */
    void (*sizes)(const fedge_layer_run *run, fedge_layer_sizes *sizes);

    /* Refuses batch sizes and data (an index out of range) that forward cannot work on. While a
     * model is planned, x[0] is NULL and only the size is checked. NULL: accepts all. */
    fedge_status (*check)(const fedge_layer_run *run, fedge_error *err);

    void (*forward)(const fedge_layer_run *run);
    void (*backward)(const fedge_layer_run *run);
} fedge_layer_ops;

#define FEDGE_LAYER_DECLARE(upper, lower, class) extern const fedge_layer_ops fedge_layer_##lower;
FEDGE_LAYER_MAP(FEDGE_LAYER_DECLARE)
#undef FEDGE_LAYER_DECLARE

/* NULL for an unknown type. */
const fedge_layer_ops *fedge_layer_ops_of(fedge_layer_type type);

/* Lists the tensors of a layer and returns their number. */
uint32_t fedge_layer_tensors(const fedge_layer_spec *layer,
                             fedge_layer_tensor list[FEDGE_MAX_LAYER_TENSORS]);
size_t fedge_layer_tensor_count(const fedge_layer_tensor *tensor);

/* True if models with [options] store [tensor] in int8: a factor with rows of at most
 * FEDGE_INT8_MAX_LENGTH. */
bool fedge_layer_in_int8(const fedge_model_options *options, const fedge_layer_tensor *tensor);

/* True if [tensor] of [layer], or some of its rows, is trained. */
bool fedge_layer_trains(const fedge_layer_spec *layer, const fedge_layer_tensor *tensor);

/* The trained rows of [tensor], [*begin, *end) of its first dimension; both 0 if there are none. */
void fedge_layer_trained_rows(const fedge_layer_spec *layer, const fedge_layer_tensor *tensor,
                              uint32_t *begin, uint32_t *end);

/* Checks the layer's train_channels: FEDGE_INVALID_ARGUMENT with the numbers if the range is empty
 * or too long, or if the trained tensors differ in their rows. */
FEDGE_MUST_USE fedge_status fedge_layer_check_channels(const fedge_layer_spec *layer,
                                                       fedge_error *err);

#endif
