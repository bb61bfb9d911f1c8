/* Shapes from layer to layer, with every limit checked; private to edge/train. */
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

/* The model's input; checks rank, dimensions and the number of layers. */
FEDGE_MUST_USE fedge_status fedge_shape_input(const fedge_model_spec *spec, fedge_shape *shape,
                                              fedge_error *err);

/* Where layer [index] reads: its sources as positions of earlier layers or FEDGE_INPUT_MODEL.
 * *num_sources ≥ 1. Fails on a wrong number of them, and on a layer that is not earlier. */
FEDGE_MUST_USE fedge_status fedge_layer_sources(const fedge_model_spec *spec, uint32_t index,
                                                uint16_t sources[FEDGE_MAX_LAYER_INPUTS],
                                                uint32_t *num_sources, fedge_error *err);

/* Puts the layer's place, type and name before the message: 'layer 2 (Linear "fc"): …'. Returns
 * [status]. */
fedge_status fedge_layer_prefix(const fedge_layer_spec *layer, uint32_t index, fedge_status status,
                                fedge_error *err);
fedge_status fedge_layer_fail(const fedge_model_spec *spec, uint32_t index, fedge_status status,
                              fedge_error *err);

/* What layer [index] makes of the shapes [in] of its sources; checks its arguments. */
FEDGE_MUST_USE fedge_status fedge_shape_infer(const fedge_model_spec *spec, uint32_t index,
                                              const fedge_shape *in, uint32_t num_inputs,
                                              fedge_shape *out, fedge_error *err);

/* What the whole model makes of its input; checks every layer on the way. */
FEDGE_MUST_USE fedge_status fedge_shape_model(const fedge_model_spec *spec, fedge_shape *out,
                                              fedge_error *err);

/* What layer [index] of a plain list makes of [shape], in place. */
FEDGE_MUST_USE fedge_status fedge_shape_advance(const fedge_model_spec *spec, uint32_t index,
                                                fedge_shape *shape, fedge_error *err);

/* The last layer's shape must be [outputs], and there must be something to train. */
FEDGE_MUST_USE fedge_status fedge_shape_output(const fedge_shape *shape, size_t num_parameters,
                                               fedge_error *err);

/* For layers' infer: the input must have [rank] dimensions, called [layout] in the message. */
FEDGE_MUST_USE fedge_status fedge_shape_need(const fedge_shape *shape, uint32_t rank,
                                             const char *layout, fedge_error *err);

/* For windows of one or two dimensions: the height (1 in a rank of 2) and width behind the channels
 * of (channels, length) or (channels, height, width), and such a shape again. */
void fedge_shape_sides(const fedge_shape *shape, uint32_t sides[2]);
const char *fedge_shape_side_name(uint32_t rank, int side); /* "height", "width" or "length" */
fedge_shape fedge_shape_of_sides(uint32_t rank, uint32_t channels, const uint32_t sides[2]);

/* For their layers' infer: the input must have [rank] 2 or 3. */
FEDGE_MUST_USE fedge_status fedge_shape_need_sides(const fedge_shape *shape, uint32_t rank,
                                                   fedge_error *err);

/* One dimension of a row-major array, and what lies before and behind it. */
typedef struct fedge_axis {
    uint32_t at;   /* among the example's dimensions */
    size_t outer;  /* product of the dimensions before it; of one example */
    size_t length; /* the dimension */
    size_t inner;  /* product of those behind it: floats between its neighbours */
} fedge_axis;

/* For layers that take one dimension away: PyTorch's [dim], which counts the batch as 0 and from
 * the end when negative. Fails for the batch, for a dim that is not there, and for rank 1, which
 * would leave nothing. */
FEDGE_MUST_USE fedge_status fedge_shape_axis(const fedge_shape *shape, int32_t dim,
                                             fedge_axis *axis, fedge_error *err);

/* Takes dimension [at] away; rank ≥ 2. */
void fedge_shape_drop(fedge_shape *shape, uint32_t at);

/* One axis of a sliding window with dilation ≥ 1:
 * out = floor((size + 2 · padding − dilation · (kernel − 1) − 1) / stride) + 1.
 * [axis]: its name in messages, "height". */
FEDGE_MUST_USE fedge_status fedge_shape_window(const char *axis, uint32_t kernel, uint32_t stride,
                                               uint32_t padding, uint32_t dilation, uint32_t size,
                                               uint32_t *out, fedge_error *err);

/* Dimensions ≥ 1 and a product that stays under the limit, without overflow. */
FEDGE_MUST_USE fedge_status fedge_shape_check(const fedge_shape *shape, fedge_error *err);

/* The layer's name, or its position as text when it has none. */
const char *fedge_layer_label(const fedge_layer_spec *layer, uint32_t index,
                              char label[FEDGE_MAX_LAYER_NAME]);

/* What a layer is: one table of operations per type, one file per table under edge/train/layers/.
 *
 * A layer sees dense row-major arrays with the batch first: (batch, channels, height, width),
 * (batch, steps, features), (batch, features). It owns nothing: the model hands it every pointer in
 * a fedge_layer_run, for one pass over a batch. docs/layers.md says how to add one.
 */

#define FEDGE_MAX_LAYER_TENSORS 12

/* ---- arguments, as a job writes them ---- */

typedef enum fedge_argument_kind {
    FEDGE_ARGUMENT_U32,   /* uint32_t */
    FEDGE_ARGUMENT_PAIR,  /* uint32_t[2]: height, width; one number stands for both */
    FEDGE_ARGUMENT_BOOL,  /* bool */
    FEDGE_ARGUMENT_F32,   /* float */
    FEDGE_ARGUMENT_U32S,  /* uint32_t[3], a list of 1 to 3; the uint32_t at extra is how many */
    FEDGE_ARGUMENT_F32S,  /* float[2], a list; the uint32_t at extra is 2 or, when absent, 0 */
    FEDGE_ARGUMENT_I32,   /* int32_t, always required */
    FEDGE_ARGUMENT_CHOICE /* an enum: one of the texts that choice_name gives */
} fedge_argument_kind;

/* Small, for a device has the tables of all layers. */
typedef struct fedge_argument {
    const char *name;                            /* PyTorch's; NULL ends a table */
    double min, max;                             /* of numbers, inclusive */
    double fallback;                             /* when absent; a choice's number */
    const char *(*choice_name)(unsigned choice); /* CHOICE */
    uint16_t offset;                             /* in the struct that the table describes */
    uint16_t extra;                              /* U32S, F32S: offset of how many */
    uint8_t kind;                                /* fedge_argument_kind */
    uint8_t num_choices;                         /* CHOICE */
    bool required;
    bool zero_is_default; /* F32: in C 0 stands for the default, though it is below min */
} fedge_argument;

#define FEDGE_ARGUMENT_MAX_COUNT 16777216.0 /* of features, channels, embeddings */
#define FEDGE_ARGUMENT_MAX_SIDE 65536.0     /* of a kernel, stride or padding */

/* Entries of a table. [at]: offsetof the value. */
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
/* What is added to a variance, which may be 0. */
#define FEDGE_EPS_ARGUMENT(text, at) FEDGE_F32_ARGUMENT(text, at, 1e-30, 1, 1e-5)
#define FEDGE_BOOL_ARGUMENT(text, at, missing)                                                     \
    {                                                                                              \
        .name = text, .kind = FEDGE_ARGUMENT_BOOL, .offset = at, .fallback = missing               \
    }
#define FEDGE_NO_ARGUMENT                                                                          \
    {                                                                                              \
        .name = NULL                                                                               \
    }

/* Are the real numbers and choices of [record], which [arguments] describes (NULL: none), within
 * their ranges (FEDGE_INVALID_ARGUMENT), and single whole numbers not above them (FEDGE_TOO_BIG)?
 * The message has the argument's name and numbers. Jobs are held to the same ranges as they are
 * read; infer checks whole numbers against shapes, and knows where 0 stands for a default. */
FEDGE_MUST_USE fedge_status fedge_arguments_check(const fedge_argument *arguments,
                                                  const void *record, fedge_error *err);

/* ---- parameters and buffers ---- */

typedef enum fedge_init {
    FEDGE_INIT_ZERO,
    FEDGE_INIT_ONE,
    FEDGE_INIT_UNIFORM, /* in ±scale */
    FEDGE_INIT_NORMAL   /* of mean 0 and standard deviation scale */
} fedge_init;

typedef struct fedge_layer_tensor {
    const char *name; /* behind the layer's: "weight", "running_mean" */
    bool buffer;      /* a statistic: no gradient, a section of its own */
    bool frozen;      /* never trained, whatever the layer's train mode; a buffer: never changed */
    bool factor;      /* of matrix products, a row for each output: may come in int8, run->int8 */
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
    float *gemm_pack; /* for kernels->gemm */
    uint32_t batch;   /* ≥ 1, at most the max_batch that sizes was asked for */
    bool training;    /* false: evaluation */
    bool recompute;   /* forward: the second time in this step, to make y anew: no statistics */
    uint32_t num_inputs;
    fedge_shape in[FEDGE_MAX_LAYER_INPUTS], out; /* of one example */

    const float *x[FEDGE_MAX_LAYER_INPUTS]; /* (batch, in…); backward: only with FEDGE_USES_X */
    float *y;                               /* (batch, out…); backward: only with FEDGE_USES_Y */
    const float *dy;                        /* (batch, out…) */
    float *dx[FEDGE_MAX_LAYER_INPUTS]; /* (batch, in…), to be overwritten; NULL: not wanted */

    const float *values[FEDGE_MAX_LAYER_TENSORS]; /* parameters, in the order of ops->tensors */
    /* backward, when not NULL: the first tensor has no gradient, backward takes its step of plain
     * SGD itself (sizes.fuses_sgd). weight: values[0]; velocity: of the same size, NULL without
     * momentum. */
    const fedge_optimizer *sgd;
    float *weight, *velocity;
    bool in_int8;           /* evaluation with the factor in int8; its place in values is NULL */
    fedge_int8_weight int8; /* then: the factor */
    fedge_int8_multiply int8_multiply;
    float *gradients[FEDGE_MAX_LAYER_TENSORS]; /* to be added to; NULL: not trained */
    float *buffers[FEDGE_MAX_LAYER_TENSORS];   /* of tensors that are buffers; else NULL */

    float ceiling; /* > 0: y = min(max(y, 0), ceiling) besides, and dy is the gradient of that; for
                      the rectifier behind, which is not run. Only with sizes.fuses_relu */
    bool masked;   /* saved is sizes.mask bytes, and backward reads neither x nor y */
    void *saved;   /* sizes.saved bytes from this pass's forward; NULL when nothing goes backward */
    void *scratch; /* sizes.forward or sizes.backward bytes, anything in them */
    fedge_rng *rng; /* the step's stream for dropout; used forward only, in layer order */
} fedge_layer_run;

/* Bytes of working memory for a run of run->batch examples. A model adds and checks them. */
typedef struct fedge_layer_sizes {
    uint64_t saved, forward, backward;
    uint64_t mask; /* > 0: with so many bytes saved, backward could do without x and y. The planner
                      decides, and says so in run->masked */
    /* backward can take the first tensor's step itself (run->sgd), without a gradient of it in
     * memory */
    bool fuses_sgd;
    /* forward and backward can do the work of a rectifier behind the layer (run->ceiling) */
    bool fuses_relu;
    bool batch_coupled; /* training: an example's output depends on the others of its batch */
    /* Examples at a time with which it is as fast as with many, where that is more than
     * FEDGE_MIN_EFFICIENT_BATCH; 0: it is not. */
    uint32_t min_efficient_batch;
} fedge_layer_sizes;

/* Examples at a time from which on layers are fast that work on many rows of each: the pixels of an
 * image, the steps of a sequence. */
#define FEDGE_MIN_EFFICIENT_BATCH 4

/* What backward reads besides dy and saved. */
#define FEDGE_USES_X 0x1u
#define FEDGE_USES_Y 0x2u
#define FEDGE_Y_ON_X 0x4u   /* forward may be asked to write y over x[0] (same size) */
#define FEDGE_DX_ON_DY 0x8u /* backward may be asked to write dx[0] over dy (same size) */
#define FEDGE_EXACT_X 0x10u /* x is whole numbers: nothing before it may be rounded to 16 bits */
#define FEDGE_X_IS_STEPS                                                                           \
    0x20u /* an x of two dimensions is (steps, features), not (channels, length) */
#define FEDGE_BATCH_NORM 0x40u /* normalises by a batch: FedBN leaves it with the client */

typedef struct fedge_layer_ops {
    const fedge_argument *arguments; /* of a fedge_layer_spec; NULL: none */
    uint32_t min_inputs, max_inputs; /* 0, 0: exactly one */
    unsigned flags;
    float ceiling; /* > 0: y = min(max(x, 0), ceiling), which the layer before may do
                    * (sizes.fuses_relu)
                    */

    /* out from in: checks every argument and dimension, with a message that has the numbers (the
     * caller puts the layer's name before it). in: num_inputs shapes, each valid. The caller checks
     * the dimensions and the size of *out. */
    fedge_status (*infer)(const fedge_layer_spec *layer, const fedge_shape *in, uint32_t num_inputs,
                          fedge_shape *out, fedge_error *err);

    /* The word of FEDGE_MODEL_FEATURE_MAP that clients must know to run the layer, besides its
     * type: for what the type could not do from the beginning. NULL, here or from it: none. */
    const char *(*feature)(const fedge_layer_spec *layer);

    /* Once a job's arguments are read: fills in those that stand for others, so that plans have the
     * numbers. NULL: there are none. */
    void (*complete)(fedge_layer_spec *layer);
    /* Sets the padding that PyTorch calls "same" by the other arguments. FEDGE_INVALID_ARGUMENT
     * with the numbers where there is none. NULL: the layer has padding in numbers only, or none.
     */
    fedge_status (*pad_same)(fedge_layer_spec *layer, fedge_error *err);

    /* Parameters and buffers in state_dict order, how many. NULL: none. */
    uint32_t (*tensors)(const fedge_layer_spec *layer,
                        fedge_layer_tensor list[FEDGE_MAX_LAYER_TENSORS]);

    /* run: spec, kernels, batch, shapes only. NULL: no working memory. */
    void (*sizes)(const fedge_layer_run *run, fedge_layer_sizes *sizes);

    /* Refuses what forward cannot work on: a batch, by its size, and data (an index out of range).
     * With x[0] NULL the size alone is asked for, when a model is planned. NULL: takes all. */
    fedge_status (*check)(const fedge_layer_run *run, fedge_error *err);

    void (*forward)(const fedge_layer_run *run);
    void (*backward)(const fedge_layer_run *run);
} fedge_layer_ops;

#define FEDGE_LAYER_DECLARE(upper, lower, class) extern const fedge_layer_ops fedge_layer_##lower;
FEDGE_LAYER_MAP(FEDGE_LAYER_DECLARE)
#undef FEDGE_LAYER_DECLARE

/* NULL for an unknown type. */
const fedge_layer_ops *fedge_layer_ops_of(fedge_layer_type type);

/* The tensors of a layer, how many; [list] may be larger than needed. */
uint32_t fedge_layer_tensors(const fedge_layer_spec *layer,
                             fedge_layer_tensor list[FEDGE_MAX_LAYER_TENSORS]);
size_t fedge_layer_tensor_count(const fedge_layer_tensor *tensor);

/* Is [tensor] kept in int8 by a model with [options]? Rows beyond FEDGE_INT8_MAX_LENGTH are not. */
bool fedge_layer_in_int8(const fedge_model_options *options, const fedge_layer_tensor *tensor);

/* Is [tensor] of [layer] trained, or some of its rows? */
bool fedge_layer_trains(const fedge_layer_spec *layer, const fedge_layer_tensor *tensor);

/* Which rows of [tensor] are trained: [*begin, *end) of its first dimension. Both 0 when none is.
 */
void fedge_layer_trained_rows(const fedge_layer_spec *layer, const fedge_layer_tensor *tensor,
                              uint32_t *begin, uint32_t *end);

/* Can the layer's train_channels be obeyed? FEDGE_INVALID_ARGUMENT with the numbers when the range
 * is empty or too long, or when the trained tensors differ in their rows. */
FEDGE_MUST_USE fedge_status fedge_layer_check_channels(const fedge_layer_spec *layer,
                                                       fedge_error *err);

#endif
