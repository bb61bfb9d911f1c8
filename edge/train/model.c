#include "edge/train/model.h"

#include <math.h>
#include <string.h>

#include "edge/core/os.h"
#include "edge/train/layers.h"
#include "edge/train/plan.h"

#define ALIGNMENT 64

struct fedge_model {
    fedge_layer_context context; /* batch is set by each step */
    fedge_stage *stages;
    uint32_t num_stages;
    uint32_t max_batch, classes;
    size_t example_size;
    bool training, momentum;
    float *values, *velocity; /* velocity NULL without momentum */
    size_t num_values;
    float *gradients[2]; /* of the outputs of even and of odd stages */
};

/* Hands out consecutive aligned parts of a block, or only counts them when there is no block yet:
 * planning and carving are one walk, so the planned size is exact. */
typedef struct carver {
    uint8_t *block; /* NULL: count only */
    size_t used;
    bool overflow;
} carver;

static void *carve(carver *from, size_t count, size_t element_size, size_t *account)
{
    if (count > (SIZE_MAX - ALIGNMENT) / element_size ||
        from->used > SIZE_MAX - ALIGNMENT - count * element_size) {
        from->overflow = true;
        return NULL;
    }
    const size_t bytes = (count * element_size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    void *part = from->block == NULL ? NULL : from->block + from->used;
    from->used += bytes;
    *account += bytes;
    return part;
}

/* The product, or SIZE_MAX (which no block holds) when it does not fit. */
static size_t multiply(size_t a, size_t b)
{
    return b != 0 && a > SIZE_MAX / b ? SIZE_MAX : a * b;
}

/* What the walk over the stages finds out before anything can be carved. */
typedef struct layout {
    uint32_t num_stages, classes;
    size_t example_size, num_parameters;
    size_t buffers[2]; /* floats per example: gradients in training, else activations in turn */
    fedge_scratch_counts scratch;
} layout;

static const fedge_kernels *choose_kernels(const fedge_model_options *options)
{
    return fedge_kernels_choose(fedge_os_cpu_features() & ~options->disabled_cpu_features);
}

static fedge_status survey(const fedge_model_spec *spec, const fedge_model_options *options,
                           layout *out, fedge_error *err)
{
    if (options->max_batch == 0 || options->max_batch > FEDGE_MAX_BATCH) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "max_batch is %u: give 1 to %d",
                          (unsigned)options->max_batch, FEDGE_MAX_BATCH);
    }
    *out = (layout){0};
    fedge_stage_walk plan;
    fedge_status status = fedge_stage_walk_begin(&plan, spec, choose_kernels(options)->lanes, err);
    bool more = status == FEDGE_OK;
    if (more) {
        out->example_size = fedge_shape_count(&plan.shape);
    }
    while (more) {
        fedge_stage stage;
        status = fedge_stage_walk_next(&plan, &stage, &more, err);
        if (!more) {
            break;
        }
        size_t *buffer = &out->buffers[out->num_stages % 2];
        if (!options->training || stage.num_parameters > 0 || stage.pass_gradient) {
            *buffer = stage.out.size > *buffer ? stage.out.size : *buffer;
        }
        fedge_plan_scratch(&stage, options->training, &out->scratch);
        out->num_stages++;
    }
    out->classes = plan.grid.channels;
    out->num_parameters = plan.num_parameters;
    return status;
}

static void carve_parameters(fedge_stage *stage, float **values, float **velocity)
{
    stage->weight = *values;
    stage->bias_values = stage->bias ? *values + stage->num_weights : NULL;
    *values += stage->num_parameters;
    if (*velocity != NULL) {
        stage->weight_velocity = *velocity;
        stage->bias_velocity = stage->bias ? *velocity + stage->num_weights : NULL;
        *velocity += stage->num_parameters;
    }
}

/* The tables of segments; see kernels.h. */
static void fill_segments(const fedge_stage *stage)
{
    const fedge_window *conv = &stage->conv;
    const uint32_t width = conv->in[1] + 2 * conv->pad[1];
    const uint32_t height = conv->in[0] + 2 * conv->pad[0];
    for (uint32_t s = 0; s < stage->shape.num_segments; s++) {
        stage->segment_offsets[s] =
            stage->planar ? (s / conv->kernel[0] * height + s % conv->kernel[0]) * width
                          : s * width * stage->in.padded_channels;
    }
}

/* Everything of one stage but its parameters. Evaluation keeps two activations in turn and the
 * places of one example's maxima. */
static void carve_stage(carver *from, fedge_stage *stage, const fedge_model_options *options,
                        float *shared, fedge_model_memory *memory)
{
    const bool pooling = stage->kind == FEDGE_STAGE_MAXPOOL2D || stage->pooled;
    const size_t batch = options->training ? options->max_batch : 1;
    stage->activation = shared;
    if (options->training) {
        stage->activation = carve(from, multiply(options->max_batch, stage->out.size),
                                  sizeof *stage->activation, &memory->activations);
    }
    if (pooling) {
        stage->argmax =
            carve(from, multiply(batch, fedge_stage_pool_size(stage)), 1, &memory->activations);
        stage->argmax_stride = options->training ? fedge_stage_pool_size(stage) : 0;
    }
    if (stage->kind == FEDGE_STAGE_CONV2D) {
        stage->segment_offsets = carve(from, stage->shape.num_segments,
                                       sizeof *stage->segment_offsets, &memory->scratch);
        stage->shape.segment_offsets = stage->segment_offsets;
        if (from->block != NULL) {
            fill_segments(stage);
        }
    }
}

static void carve_scratch(carver *from, const fedge_scratch_counts *counts, fedge_scratch *scratch,
                          fedge_model_memory *memory)
{
    const size_t real = sizeof(float);
    scratch->packed = carve(from, counts->packed, real, &memory->scratch);
    scratch->bias = carve(from, counts->bias, real, &memory->scratch);
    scratch->band = carve(from, counts->band, real, &memory->scratch);
    scratch->input = carve(from, counts->input, real, &memory->scratch);
    scratch->weight_gradient = carve(from, counts->weight_gradient, real, &memory->gradients);
    scratch->bias_gradient = carve(from, counts->bias_gradient, real, &memory->gradients);
    scratch->entries = carve(from, counts->entries, sizeof *scratch->entries, &memory->scratch);
    scratch->entry_counts =
        carve(from, counts->entry_counts, sizeof *scratch->entry_counts, &memory->scratch);
}

/* Lays a model out in from->block, or counts its bytes when there is none. [model]: where to put
 * the records, a throw-away when counting. */
static fedge_status lay_out(carver *from, const fedge_model_spec *spec,
                            const fedge_model_options *options, const layout *sizes,
                            fedge_model **model, fedge_model_memory *memory, fedge_error *err)
{
    fedge_model counted = {0};
    *memory = (fedge_model_memory){0};
    fedge_model *self = carve(from, 1, sizeof *self, &memory->scratch);
    *model = self;
    self = self == NULL ? &counted : self;
    self->stages = carve(from, sizes->num_stages, sizeof *self->stages, &memory->scratch);
    self->values = carve(from, sizes->num_parameters, sizeof *self->values, &memory->parameters);
    if (options->training && options->momentum != 0.0f) {
        self->velocity =
            carve(from, sizes->num_parameters, sizeof *self->velocity, &memory->velocity);
    }
    float *shared[2];
    for (int i = 0; i < 2; i++) {
        shared[i] = carve(from, multiply(options->max_batch, sizes->buffers[i]), sizeof *shared[i],
                          options->training ? &memory->gradients : &memory->activations);
        self->gradients[i] = options->training ? shared[i] : NULL;
    }
    carve_scratch(from, &sizes->scratch, &self->context.scratch, memory);

    float *values = self->values, *velocity = self->velocity;
    fedge_stage_walk plan;
    fedge_status status = fedge_stage_walk_begin(&plan, spec, choose_kernels(options)->lanes, err);
    for (uint32_t i = 0; status == FEDGE_OK && i < sizes->num_stages; i++) {
        fedge_stage counted_stage;
        fedge_stage *stage = from->block == NULL ? &counted_stage : &self->stages[i];
        bool more;
        status = fedge_stage_walk_next(&plan, stage, &more, err);
        if (status == FEDGE_OK) {
            carve_stage(from, stage, options, shared[i % 2], memory);
            if (from->block != NULL) {
                carve_parameters(stage, &values, &velocity);
            }
        }
    }
    memory->total = from->used;
    if (status == FEDGE_OK && from->overflow) {
        return fedge_fail(err, FEDGE_TOO_BIG,
                          "the model needs more bytes than this machine can address, for batches "
                          "of %u: lower the batch size",
                          (unsigned)options->max_batch);
    }
    return status;
}

fedge_status fedge_model_size(const fedge_model_spec *spec, const fedge_model_options *options,
                              fedge_model_memory *memory, fedge_error *err)
{
    layout sizes;
    carver counter = {0};
    fedge_model *none;
    fedge_status status = survey(spec, options, &sizes, err);
    return status == FEDGE_OK ? lay_out(&counter, spec, options, &sizes, &none, memory, err)
                              : status;
}

fedge_status fedge_model_new(fedge_model **model, const fedge_model_spec *spec,
                             const fedge_model_options *options, void *block, size_t block_size,
                             fedge_error *err)
{
    layout sizes;
    fedge_model_memory memory;
    fedge_status status = fedge_model_size(spec, options, &memory, err);
    if (status != FEDGE_OK) {
        return status;
    }
    if (block_size < memory.total) {
        return fedge_fail(err, FEDGE_TOO_BIG,
                          "the model needs a block of %zu bytes but was given %zu", memory.total,
                          block_size);
    }
    if (block == NULL || (uintptr_t)block % ALIGNMENT != 0) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "the model's block must be aligned to %d bytes", ALIGNMENT);
    }
    memset(block, 0, memory.total);
    carver from = {.block = block};
    status = survey(spec, options, &sizes, err);
    if (status == FEDGE_OK) {
        status = lay_out(&from, spec, options, &sizes, model, &memory, err);
    }
    if (status != FEDGE_OK) {
        return status;
    }
    (*model)->context.kernels = choose_kernels(options);
    (*model)->num_stages = sizes.num_stages;
    (*model)->max_batch = options->max_batch;
    (*model)->classes = sizes.classes;
    (*model)->example_size = sizes.example_size;
    (*model)->training = options->training;
    (*model)->momentum = options->momentum != 0.0f;
    (*model)->num_values = sizes.num_parameters;
    return FEDGE_OK;
}

float *fedge_model_values(fedge_model *model)
{
    return model->values;
}

size_t fedge_model_num_values(const fedge_model *model)
{
    return model->num_values;
}

size_t fedge_model_example_size(const fedge_model *model)
{
    return model->example_size;
}

uint32_t fedge_model_max_batch(const fedge_model *model)
{
    return model->max_batch;
}

const char *fedge_model_kernels(const fedge_model *model)
{
    return model->context.kernels->name;
}

void fedge_model_reset_optimizer(fedge_model *model)
{
    if (model->velocity != NULL) {
        memset(model->velocity, 0, model->num_values * sizeof *model->velocity);
    }
}

static fedge_status check_batch(const fedge_model *model, const int32_t *labels, uint32_t batch,
                                fedge_error *err)
{
    if (batch == 0 || batch > model->max_batch) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "a batch of %u examples: this model was made for 1 to %u",
                          (unsigned)batch, (unsigned)model->max_batch);
    }
    for (uint32_t i = 0; i < batch; i++) {
        if (labels[i] < 0 || (uint32_t)labels[i] >= model->classes) {
            return fedge_fail(err, FEDGE_OUT_OF_RANGE,
                              "label %d of example %u in the batch is not in 0 to %u",
                              (int)labels[i], (unsigned)i, (unsigned)model->classes - 1);
        }
    }
    return FEDGE_OK;
}

/* Runs every stage; returns the logits, (batch, classes). */
static float *forward(const fedge_model *model, const float *x)
{
    for (uint32_t i = 0; i < model->num_stages; i++) {
        const fedge_stage *stage = &model->stages[i];
        switch (stage->kind) {
        case FEDGE_STAGE_IMPORT:
            fedge_import_forward(&model->context, stage, x);
            break;
        case FEDGE_STAGE_CONV2D:
            fedge_conv2d_forward(&model->context, stage, x);
            break;
        case FEDGE_STAGE_MAXPOOL2D:
            fedge_maxpool2d_forward(&model->context, stage, x);
            break;
        case FEDGE_STAGE_FLATTEN:
            fedge_flatten_forward(&model->context, stage, x);
            break;
        case FEDGE_STAGE_LINEAR:
            fedge_linear_forward(&model->context, stage, x);
            break;
        }
        x = stage->activation;
    }
    return model->stages[model->num_stages - 1].activation;
}

static void backward(const fedge_model *model, const float *x, const fedge_sgd *sgd)
{
    for (uint32_t i = model->num_stages; i-- > 0;) {
        const fedge_stage *stage = &model->stages[i];
        float *dy = model->gradients[i % 2];
        float *dx = stage->pass_gradient ? model->gradients[(i + 1) % 2] : NULL;
        const float *in = i == 0 ? x : model->stages[i - 1].activation;
        switch (stage->kind) {
        case FEDGE_STAGE_CONV2D:
            fedge_conv2d_backward(&model->context, stage, in, dy, sgd, dx);
            break;
        case FEDGE_STAGE_LINEAR:
            fedge_linear_backward(&model->context, stage, in, dy, sgd, dx);
            break;
        case FEDGE_STAGE_MAXPOOL2D:
            if (dx != NULL) {
                fedge_maxpool2d_backward(&model->context, stage, dy, dx);
            }
            break;
        case FEDGE_STAGE_FLATTEN:
            if (dx != NULL) {
                fedge_flatten_backward(&model->context, stage, dy, dx);
            }
            break;
        case FEDGE_STAGE_IMPORT:
            break;
        }
    }
}

static fedge_status check_loss(double loss_sum, uint32_t batch, fedge_error *err)
{
    if (!isfinite(loss_sum)) {
        return fedge_fail(err, FEDGE_NOT_FINITE,
                          "the loss of a batch of %u examples is %g: check the inputs for values "
                          "that are not finite, or lower the learning rate",
                          (unsigned)batch, loss_sum);
    }
    return FEDGE_OK;
}

fedge_status fedge_model_step(fedge_model *model, const float *x, const int32_t *labels,
                              uint32_t batch, const fedge_sgd *sgd, double *loss_sum,
                              uint32_t *correct, fedge_error *err)
{
    if (!model->training || (sgd->momentum != 0.0f && !model->momentum)) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "the model was made without %s: set it in fedge_model_options",
                          model->training ? "momentum" : "training");
    }
    fedge_status status = check_batch(model, labels, batch, err);
    if (status != FEDGE_OK) {
        return status;
    }
    model->context.batch = batch;
    float *logits = forward(model, x);
    /* The gradient of the logits takes the place that the last stage's backward pass reads. */
    float *gradient = model->gradients[(model->num_stages - 1) % 2];
    memcpy(gradient, logits, (size_t)batch * model->classes * sizeof *gradient);
    *loss_sum = fedge_cross_entropy(gradient, labels, batch, model->classes, true, correct);
    status = check_loss(*loss_sum, batch, err);
    if (status == FEDGE_OK) {
        backward(model, x, sgd);
    }
    return status;
}

fedge_status fedge_model_evaluate(fedge_model *model, const float *x, const int32_t *labels,
                                  uint32_t batch, double *loss_sum, uint32_t *correct,
                                  fedge_error *err)
{
    fedge_status status = check_batch(model, labels, batch, err);
    if (status != FEDGE_OK) {
        return status;
    }
    model->context.batch = batch;
    float *logits = forward(model, x);
    *loss_sum = fedge_cross_entropy(logits, labels, batch, model->classes, false, correct);
    return check_loss(*loss_sum, batch, err);
}
