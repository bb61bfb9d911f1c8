#include "tests/edge/train/zoo.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

uint32_t zoo_hash(uint32_t stream, size_t i)
{
    uint32_t x = (uint32_t)(i + 1) * 2654435761u + stream * 2246822519u;
    x = (x ^ (x >> 16)) * 0x45d9f3bu;
    x = (x ^ (x >> 15)) * 0x2c1b3c6du;
    return x ^ (x >> 16);
}

double zoo_number(uint32_t stream, size_t i)
{
    return ((double)(zoo_hash(stream, i) >> 8) - 8388608.0) / 8388608.0;
}

void zoo_start(const fedge_tensor_spec *tensor, uint32_t stream, float *values)
{
    const char *dot = strrchr(tensor->name, '.');
    const char *name = !dot ? tensor->name : dot + 1;
    const size_t length = strlen(name);
    const bool bias = length >= 4 && strcmp(name + length - 4, "bias") == 0;
    const double per_output = (double)tensor->count / tensor->shape[0];
    const bool scaled = !bias && tensor->rank > 1;
    const double scale = scaled ? 1.0 / sqrt(per_output) : strcmp(name, "weight") == 0 ? 0.2 : 0.1;
    const double middle = !scaled && strcmp(name, "weight") == 0 ? 1.0 : 0.0;
    for (size_t i = 0; i < tensor->count; i++)
        values[i] = (float)(middle + zoo_number(stream, i) * scale);
}

fedge_status zoo_train(fedge_model *model, const fedge_plan *plan, const fedge_dataset *dataset,
                       uint32_t nudge, uint32_t steps, uint32_t batch, double *losses,
                       fedge_error *err)
{
    const fedge_view view = {.dataset = dataset, .count = fedge_dataset_size(dataset)};
    const fedge_examples examples = fedge_view_examples(&view);
    fedge_optimizer optimizer = plan->training.optimizer;
    float *x = malloc(batch * fedge_model_example_size(model) * sizeof(*x));
    int32_t *labels = malloc(batch * sizeof(*labels));
    uint32_t *indices = malloc(batch * sizeof(*indices));
    fedge_status status = !x || !labels || !indices
                              ? fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a batch")
                              : FEDGE_OK;
    optimizer.learning_rate = plan->training.learning_rate;
    for (uint32_t t = 0; t < plan->schema.num_tensors; t++) {
        const fedge_tensor_spec *tensor = &plan->schema.tensors[t];
        float *values = fedge_model_values(model) + tensor->offset;
        zoo_start(tensor, t, values);
        for (size_t i = 0; nudge != 0 && i < tensor->count; i++)
            values[i] = zoo_hash(nudge, i) & 1 ? nextafterf(values[i], HUGE_VALF) : values[i];
    }
    fedge_model_reset_optimizer(model);
    for (uint32_t step = 0; status == FEDGE_OK && step < steps; step++) {
        uint32_t correct;
        for (uint32_t k = 0; k < batch; k++)
            indices[k] = zoo_hash(ZOO_ORDER, (size_t)step * batch + k) % examples.num_examples;
        status = examples.read(examples.user, indices, batch, 0, x, labels, err);
        if (status == FEDGE_OK) {
            status =
                fedge_model_step(model, x, labels, batch, &optimizer, &losses[step], &correct, err);
            losses[step] /= batch;
        }
    }
    free(indices);
    free(labels);
    free(x);
    return status;
}
