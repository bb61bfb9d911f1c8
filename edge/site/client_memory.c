#include "edge/site/client_memory.h"

#include "edge/data/formats/safetensors.h"
#include "edge/plan/client_hooks.h"
#include "edge/plan/update.h"
#include "edge/train/trainer.h"

#define STATE_HEADER 8 /* header of stored client state: a task's id */

static const fedge_memory_row ROWS[FEDGE_MEMORY_PARTS] = {
    [FEDGE_MEMORY_PARAMETERS] = {"parameters", "and statistics", "take a smaller model", 0},
    [FEDGE_MEMORY_GRADIENTS] =
        {"gradients", "of outputs, or of all parameters for clip-norm and micro-batches",
         "lower batch-size, remove clip-norm and micro-batch-size, or take a smaller model", 0},
    [FEDGE_MEMORY_OPTIMIZER] = {"optimizer", "its states, FedProx's copy, corrections",
                                "take SGD without momentum and proximal-mu, or another strategy",
                                0},
    [FEDGE_MEMORY_ACTIVATIONS] = {"activations", "all that layers make, in turn",
                                  "lower batch-size or micro-batch-size", 0},
    [FEDGE_MEMORY_SCRATCH] = {"scratch", "repacked weights, records", "take a smaller model", 0},
    [FEDGE_MEMORY_EVALUATION] = {"evaluation", "the block of a model that only evaluates",
                                 "leave evaluation as-trained", 0},
    [FEDGE_MEMORY_DELTA] = {"delta", "parameters as they are trained, then their changes",
                            "take a smaller model", 0},
    [FEDGE_MEMORY_CONTROL] = {"control", "what is kept from round to round, and told",
                              "take another strategy, or a codec that does not choose", 0},
    [FEDGE_MEMORY_BATCH] = {"batch", "a batch of examples; and 4 for each example of the data set",
                            "lower batch-size", 0},
    [FEDGE_MEMORY_TRANSFER] = {"transfer",
                               "what is broadcast beside the model, or the update as it is made",
                               "take a smaller model", 0},
};

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* The blocks of the built-in trainer, and one batch. */
static fedge_status add_trainer(const fedge_plan *plan, fedge_client_memory *to, fedge_error *err)
{
    fedge_model_memory model, evaluation = {0};
    fedge_model_options options = fedge_plan_model_options(plan);
    fedge_status status = fedge_model_size(&plan->model, &options, &model, err);
    if (status == FEDGE_OK && fedge_plan_evaluation_options(plan, &options))
        status = fedge_model_size(&plan->model, &options, &evaluation, err);
    if (status != FEDGE_OK)
        return status;
    to->rows[FEDGE_MEMORY_PARAMETERS].bytes = model.parameters;
    to->rows[FEDGE_MEMORY_GRADIENTS].bytes = model.gradients;
    to->rows[FEDGE_MEMORY_OPTIMIZER].bytes = model.velocity;
    to->rows[FEDGE_MEMORY_ACTIVATIONS].bytes = model.activations;
    to->rows[FEDGE_MEMORY_SCRATCH].bytes = model.scratch;
    to->rows[FEDGE_MEMORY_EVALUATION].bytes = evaluation.total;
    to->rows[FEDGE_MEMORY_BATCH].bytes =
        fedge_plan_scratch_size(plan, 0, plan->training.batch_size);
    to->model = model.total;
    return FEDGE_OK;
}

/* A model's file is read in parts, which takes constant memory. Control data is read whole, beside
 * the client state; before that, a delta is in memory encoded and inflated. One as large as a model
 * is sent as a model. */
static fedge_status download(const fedge_plan *plan, uint64_t state_bytes, uint64_t *bytes,
                             fedge_error *err)
{
    size_t model = 0, broadcast = 0;
    fedge_status status = FEDGE_OK;
    uint64_t delta = 0;
    if (fedge_plan_broadcasts(plan))
        status = fedge_safetensors_size(&plan->sent.sections[0].schema, &broadcast, err);
    if (status == FEDGE_OK && plan->update.down.values) {
        status = fedge_safetensors_size(&plan->schema, &model, err);
        delta = model + fedge_codec_size(&plan->update.down, &plan->sent.sections[0].schema);
    }
    broadcast *= fedge_plan_num_broadcast(plan);
    *bytes = larger(broadcast + (fedge_plan_has_client_state(plan) ? state_bytes + 1 : 0), delta);
    return status;
}

/* The encoded bytes, together with the largest deflated section and, for a strategy with client
 * state, the update as integers; then the client state. */
static uint64_t upload(const fedge_plan *plan, uint64_t state_bytes)
{
    uint64_t section = 0;
    for (uint32_t i = 0; plan->update.deflate && i < plan->sent.num_sections; i++) {
        const fedge_section *at = &plan->sent.sections[i];
        section = larger(section, fedge_codec_size(&at->codec, &at->schema) - 1);
    }
    const uint64_t update = fedge_update_max_size(plan);
    const uint64_t decoded = plan->sent.schema.num_elements * sizeof(int32_t);
    return update + larger(section + (fedge_plan_moves_client_state(plan) ? decoded : 0),
                           fedge_plan_has_client_state(plan) ? state_bytes : 0);
}

fedge_status fedge_client_memory_of(const fedge_plan *plan, fedge_client_memory *memory,
                                    fedge_error *err)
{
    const uint64_t values = plan->schema.num_elements, sent = plan->sent.schema.num_elements;
    const uint64_t state_bytes =
        STATE_HEADER + (uint64_t)fedge_plan_num_client_state(plan) * sizeof(float);
    uint64_t down = 0;
    *memory = (fedge_client_memory){0};
    for (int i = 0; i < FEDGE_MEMORY_PARTS; i++)
        memory->rows[i] = ROWS[i];
    FEDGE_TRY(plan->external ? FEDGE_OK : add_trainer(plan, memory, err));
    if (plan->external && fedge_plan_keeps_anchor(plan)) {
        memory->rows[FEDGE_MEMORY_OPTIMIZER].bytes =
            values * sizeof(float) + plan->schema.num_tensors;
    }
    FEDGE_TRY(download(plan, state_bytes, &down, err));
    memory->rows[FEDGE_MEMORY_DELTA].bytes =
        larger(values, sent) * sizeof(float) + plan->sent.schema.num_tensors;
    memory->rows[FEDGE_MEMORY_CONTROL].bytes = fedge_hooks_state_size(plan);
    memory->rows[FEDGE_MEMORY_TRANSFER].bytes = larger(down, upload(plan, state_bytes));
    for (int i = 0; i < FEDGE_MEMORY_PARTS; i++)
        memory->total += memory->rows[i].bytes;
    return FEDGE_OK;
}
