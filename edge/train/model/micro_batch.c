/* How many examples of a batch pass through the layers at a time, when the user does not say. */
#include "edge/train/model/graph_plan.h"
#include "edge/train/model/internals.h"

#define LEAST_SAVING 8 /* of the block: 1 / LEAST_SAVING; below, batches stay whole */
#define LEAST_WORK 2   /* bytes of activations for each byte of gradients */

/* A part is worth its cost with LEAST_PER_LAYER bytes of activations for each layer and for
 * MORE_LAYERS besides. With a third of it small nets took up to 1.15 times as long as
 * with whole batches, with a fiftieth 1.8 times. */
#define LEAST_PER_LAYER 32768
#define MORE_LAYERS 8

/* The min_efficient_batch examples at a time that all layers are fast with; 0: the batch cannot be
 * cut. */
static uint32_t efficient_examples(const fedge_model_spec *spec, const fedge_model_options *options)
{
    const fedge_kernels *kernels = fedge_kernels_choose(fedge_model_features(options));
    fedge_graph_plan plan;
    uint32_t min_efficient_batch = FEDGE_MIN_EFFICIENT_BATCH;
    if (fedge_graph_plan_make(&plan, spec, options, kernels, NULL) != FEDGE_OK)
        return 0;
    for (uint32_t i = 0; min_efficient_batch > 0 && i < spec->num_layers; i++) {
        const fedge_layer_sizes sizes = fedge_graph_sizes(&plan, i);
        min_efficient_batch = sizes.batch_coupled ? 0
                              : sizes.min_efficient_batch > min_efficient_batch
                                  ? sizes.min_efficient_batch
                                  : min_efficient_batch;
    }
    return min_efficient_batch;
}

/* Bytes that do not depend on the size of a pointer. */
static size_t data_of(const fedge_model_memory *memory)
{
    return memory->total - memory->scratch;
}

/* The batch in as many parts as of [part] examples fit, all of one size but for the last, which is
 * smaller by less than there are parts: 10 by fours is 5 and 5, not 4, 4 and 2. */
static uint32_t even(uint32_t batch, uint32_t part)
{
    const uint32_t parts = batch / part;
    return (batch + parts - 1) / parts;
}

uint32_t fedge_model_micro_batch(const fedge_model_spec *spec, const fedge_model_options *options)
{
    fedge_model_options parts = *options;
    fedge_model_memory whole, cut;
    parts.micro_batch = 0;
    parts.disabled_cpu_features = ~0u; /* every machine counts the same bytes */
    if (!options->training || fedge_model_size(spec, &parts, &whole, NULL) != FEDGE_OK ||
        fedge_fused_fits(spec, &parts))
        return 0;
    uint32_t part = efficient_examples(spec, &parts);
    for (; part > 0 && part <= options->max_batch / 2; part *= 2) {
        parts.micro_batch = even(options->max_batch, part);
        if (fedge_model_size(spec, &parts, &cut, NULL) != FEDGE_OK ||
            data_of(&cut) > data_of(&whole) - data_of(&whole) / LEAST_SAVING)
            return 0; /* larger parts take more */
        if (cut.activations / LEAST_WORK >= cut.gradients &&
            cut.activations / LEAST_PER_LAYER >= spec->num_layers + MORE_LAYERS)
            return parts.micro_batch;
    }
    return 0;
}
