#include "edge/train/trainer.h"

#include <string.h>

#include "edge/core/rng.h"

#define ALIGNMENT 64

/* Adds [count] aligned elements to *total; SIZE_MAX once it does not fit. */
static void add_part(size_t *total, size_t count, size_t element_size)
{
    if (*total > SIZE_MAX - ALIGNMENT || count > (SIZE_MAX - ALIGNMENT - *total) / element_size)
        *total = SIZE_MAX;
    else
        *total += (count * element_size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* The scratch: indices (examples), then labels (batch), then x (batch, example), then targets
 * (batch, targets). */
typedef struct parts {
    size_t labels, x, targets, total; /* byte offsets */
} parts;

static parts lay_out(size_t example_size, uint32_t num_targets, uint32_t num_examples,
                     uint32_t batch_size)
{
    parts at = {0};
    add_part(&at.total, num_examples, sizeof(uint32_t));
    at.labels = at.total;
    add_part(&at.total, batch_size, sizeof(int32_t));
    at.x = at.total;
    if (batch_size != 0 && example_size > SIZE_MAX / batch_size)
        at.total = SIZE_MAX;
    else
        add_part(&at.total, example_size * batch_size, sizeof(float));
    at.targets = at.total;
    if (num_targets > 0 && batch_size > SIZE_MAX / num_targets)
        at.total = SIZE_MAX;
    else
        add_part(&at.total, (size_t)num_targets * batch_size, sizeof(float));
    return at;
}

size_t fedge_trainer_scratch_size(const fedge_model_spec *spec, uint32_t num_examples,
                                  uint32_t batch_size)
{
    return lay_out(fedge_model_input_count(spec), 0, num_examples, batch_size).total;
}

size_t fedge_trainer_targets_size(uint32_t count, uint32_t batch_size)
{
    return lay_out(0, count, 0, batch_size).total - lay_out(0, 0, 0, batch_size).total;
}

/* One pass over a device's examples, batch by batch. */
typedef struct feed {
    const fedge_examples *examples;
    uint32_t *indices; /* (examples): the order of this epoch */
    int32_t *labels;
    float *x;
    float *targets; /* NULL: labels are learned */
    uint32_t batch_size;
    uint32_t next; /* position in indices */
} feed;

static fedge_status check_sizes(const fedge_model *model, uint32_t num_examples,
                                uint32_t batch_size, fedge_error *err)
{
    if (num_examples == 0)
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "there are no examples to read");
    if (batch_size == 0 || batch_size > fedge_model_max_batch(model)) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "batch_size is %u: this model was made for 1 to %u", (unsigned)batch_size,
                          (unsigned)fedge_model_max_batch(model));
    }
    return FEDGE_OK;
}

static fedge_status feed_init(feed *self, const fedge_model *model, const fedge_examples *examples,
                              uint32_t batch_size, const fedge_trainer_workspace *workspace,
                              fedge_error *err)
{
    FEDGE_TRY(check_sizes(model, examples->num_examples, batch_size, err));
    const uint32_t num_targets = FEDGE_WITH_TARGETS ? examples->targets.count : 0;
    const parts at =
        lay_out(fedge_model_example_size(model), num_targets, examples->num_examples, batch_size);
    if (workspace->scratch_size < at.total) {
        return fedge_fail(err, FEDGE_TOO_BIG,
                          "the trainer needs %zu bytes of scratch for %u examples in batches of "
                          "%u but was given %zu",
                          at.total, (unsigned)examples->num_examples, (unsigned)batch_size,
                          workspace->scratch_size);
    }
    uint8_t *base = workspace->scratch;
    if (!base || (uintptr_t)base % ALIGNMENT != 0) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "the trainer's scratch must be aligned to %d bytes", ALIGNMENT);
    }
    *self = (feed){.examples = examples,
                   .indices = (uint32_t *)(void *)base,
                   .labels = (int32_t *)(void *)(base + at.labels),
                   .x = (float *)(void *)(base + at.x),
                   .targets = num_targets > 0 ? (float *)(void *)(base + at.targets) : NULL,
                   .batch_size = batch_size};
    return FEDGE_OK;
}

/* Back to the first example, in the natural order. */
static void feed_rewind(feed *self)
{
    for (uint32_t i = 0; i < self->examples->num_examples; i++)
        self->indices[i] = i;
    self->next = 0;
}

static void read_targets(const feed *self, uint32_t batch)
{
    const fedge_targets *from = &self->examples->targets;
    if (from->read) {
        from->read(from->user, self->indices + self->next, batch, self->targets);
    } else { /* a copy, since models overwrite their input */
        memcpy(self->targets, self->x, (size_t)batch * from->count * sizeof(float));
    }
}

/* Reads the next batch of the pass; the last one may be short. */
static fedge_status feed_read(feed *self, uint32_t *batch, fedge_error *err)
{
    const uint32_t left = self->examples->num_examples - self->next;
    *batch = left < self->batch_size ? left : self->batch_size;
    fedge_status status = self->examples->read(self->examples->user, self->indices + self->next,
                                               *batch, left - *batch, self->x, self->labels, err);
    if (FEDGE_WITH_TARGETS && status == FEDGE_OK && self->targets)
        read_targets(self, *batch);
    self->next += *batch;
    return status;
}

static fedge_batch feed_batch(const feed *self, uint32_t batch)
{
    return (fedge_batch){.x = self->x,
                         .labels = self->targets ? NULL : self->labels,
                         .targets = self->targets,
                         .size = batch,
                         .finite = self->examples->finite};
}

static bool feed_is_done(const feed *self)
{
    return self->next == self->examples->num_examples;
}

static void count_batch(fedge_trainer_result *result, uint32_t batch, double loss_sum,
                        uint32_t correct)
{
    result->num_seen += batch;
    result->loss_sum += loss_sum;
    result->correct += correct;
}

static fedge_status cancelled(const char *what, uint64_t done, fedge_error *err)
{
    return fedge_fail(err, FEDGE_CANCELLED, "%s was cancelled after %llu batches", what,
                      (unsigned long long)done);
}

fedge_status fedge_trainer_count_steps(const fedge_trainer_config *config, uint32_t num_examples,
                                       uint64_t *steps, fedge_error *err)
{
    const uint64_t per_epoch =
        ((uint64_t)num_examples + config->batch_size - 1) / config->batch_size;
    *steps = config->local_steps > 0 ? config->local_steps : config->local_epochs * per_epoch;
    if (*steps == 0) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "local_epochs and local_steps are both 0: nothing to train");
    }
    if ((*steps + per_epoch - 1) / per_epoch > FEDGE_MAX_EPOCHS) {
        return fedge_fail(err, FEDGE_OUT_OF_RANGE,
                          "%llu steps are over %u epochs of %llu: lower local_epochs (%u) or "
                          "local_steps (%u)",
                          (unsigned long long)*steps, FEDGE_MAX_EPOCHS,
                          (unsigned long long)per_epoch, (unsigned)config->local_epochs,
                          (unsigned)config->local_steps);
    }
    return FEDGE_OK;
}

fedge_status fedge_trainer_check(const fedge_model *model, uint32_t num_examples,
                                 const fedge_trainer_config *config, fedge_error *err)
{
    const uint32_t size = config->batch_size, whole = num_examples < size ? num_examples : size;
    uint64_t steps = 0;
    FEDGE_TRY(check_sizes(model, num_examples, size, err));
    FEDGE_TRY(fedge_trainer_count_steps(config, num_examples, &steps, err));
    const uint32_t left = num_examples % size;
    /* A layer may refuse the last, shorter batch although it accepts a whole one. */
    fedge_status status = fedge_model_check_size(model, whole, true, err);
    if (status == FEDGE_OK && left > 0 && steps > num_examples / size)
        status = fedge_model_check_size(model, left, true, err);
    return status == FEDGE_OK
               ? FEDGE_OK
               : fedge_error_prefix(err, status,
                                    "%u examples in batches of %u, choose another size",
                                    (unsigned)num_examples, (unsigned)size);
}

/* Trains on the next batch and counts it. */
static fedge_status step(feed *from, fedge_model *model, const fedge_trainer_config *config,
                         fedge_trainer_result *result, fedge_error *err)
{
    uint32_t batch = 0, correct = 0;
    double loss_sum = 0.0;
    FEDGE_TRY(feed_read(from, &batch, err));
    const fedge_batch read = feed_batch(from, batch);
    FEDGE_TRY(fedge_model_train(model, &read, &config->optimizer, &loss_sum, &correct, err));
    count_batch(result, batch, loss_sum, correct);
    result->num_steps++;
    if (config->after_step)
        config->after_step(config->after_step_user, model);
    return FEDGE_OK;
}

static bool is_cancelled(const fedge_trainer_workspace *workspace)
{
    return workspace->cancel && workspace->cancel(workspace->cancel_user);
}

fedge_status fedge_trainer_run(fedge_model *model, const fedge_examples *examples,
                               const fedge_trainer_config *config,
                               const fedge_trainer_workspace *workspace,
                               fedge_trainer_result *result, fedge_error *err)
{
    feed from;
    uint64_t steps = 0;
    *result = (fedge_trainer_result){.num_examples = examples->num_examples};
    FEDGE_TRY(feed_init(&from, model, examples, config->batch_size, workspace, err));
    FEDGE_TRY(fedge_trainer_check(model, examples->num_examples, config, err));
    FEDGE_TRY(fedge_trainer_count_steps(config, examples->num_examples, &steps, err));
    fedge_status status = FEDGE_OK;
    fedge_model_set_random(model, config->seed, config->round, config->client_index);
    for (uint32_t epoch = 0; status == FEDGE_OK && result->num_steps < steps; epoch++) {
        /* Every epoch shuffles the natural order: it does not depend on earlier epochs. */
        feed_rewind(&from);
        fedge_rng rng = fedge_rng_stream(config->seed, FEDGE_PURPOSE_SHUFFLE, config->round,
                                         config->client_index, (uint16_t)epoch);
        fedge_rng_shuffle(&rng, from.indices, examples->num_examples);
        while (status == FEDGE_OK && !feed_is_done(&from) && result->num_steps < steps) {
            if (is_cancelled(workspace))
                return cancelled("training", result->num_steps, err);
            status = step(&from, model, config, result, err);
        }
    }
    if (status != FEDGE_OK) {
        return fedge_error_prefix(err, status, "round %u, step %llu", (unsigned)config->round,
                                  (unsigned long long)result->num_steps + 1);
    }
    /* A step's loss is that before the step, so the result of the last step is checked here. */
    status = fedge_model_check(model, err);
    return status == FEDGE_OK
               ? FEDGE_OK
               : fedge_error_prefix(err, status, "round %u", (unsigned)config->round);
}

fedge_status fedge_trainer_evaluate(fedge_model *model, const fedge_examples *examples,
                                    uint32_t batch_size, const fedge_trainer_workspace *workspace,
                                    fedge_trainer_result *result, fedge_error *err)
{
    feed from;
    *result = (fedge_trainer_result){.num_examples = examples->num_examples};
    FEDGE_TRY(feed_init(&from, model, examples, batch_size, workspace, err));
    feed_rewind(&from);
    for (uint64_t done = 0; !feed_is_done(&from); done++) {
        if (is_cancelled(workspace))
            return cancelled("evaluation", done, err);
        uint32_t batch = 0, correct = 0;
        double loss_sum = 0.0;
        fedge_status status = feed_read(&from, &batch, err);
        if (status == FEDGE_OK) {
            const fedge_batch read = feed_batch(&from, batch);
            status = fedge_model_test(model, &read, &loss_sum, &correct, err);
            if (FEDGE_WITH_TARGETS && status == FEDGE_OK && from.targets) {
                fedge_errors_add(&result->errors, &examples->targets.units,
                                 fedge_model_outputs(model), from.targets, batch,
                                 examples->targets.count);
            }
        }
        if (status != FEDGE_OK) {
            return fedge_error_prefix(err, status, "evaluation, batch %llu",
                                      (unsigned long long)done + 1);
        }
        count_batch(result, batch, loss_sum, correct);
    }
    return FEDGE_OK;
}
