/* Chooses a micro-batch if the user gives none. */
#include "edge/train/model/graph_plan.h"
#include "edge/train/model/internals.h"

#define MIN_SAVING 8 /* smaller savings than 1 / MIN_SAVING of the block do not pay */
#define MIN_WORK 2   /* bytes of activations for each byte of gradients */

/* A part pays for its overhead with MIN_PER_LAYER bytes of activations for each layer and
 * EXTRA_LAYERS more. With a third of that, small nets took up to 1.15 times as long as with whole
 * batches; with a fiftieth, 1.8 times. */
#define MIN_PER_LAYER 32768
#define EXTRA_LAYERS 8

/* The least batch with which all layers are efficient; 0: the batch cannot be split. */
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
static size_t bytes_of_data(const fedge_model_memory *memory)
{
    return memory->total - memory->scratch;
}

/* The size of nearly equal parts, as many as parts of [part] examples fit: 10 by 4 gives 5 and 5,
 * not 4, 4 and 2. */
static uint32_t even_part(uint32_t batch, uint32_t part)
{
    const uint32_t parts = batch / part;
    return (batch + parts - 1) / parts;
}

uint32_t fedge_model_micro_batch(const fedge_model_spec *spec, const fedge_model_options *options)
{
    fedge_model_options parts = *options;
    fedge_model_memory whole, split;
    parts.micro_batch = 0;
    parts.disabled_cpu_features = ~0u; /* the same bytes on every machine */
    if (!options->training || fedge_model_size(spec, &parts, &whole, NULL) != FEDGE_OK ||
        fedge_fused_fits(spec, &parts))
        return 0;
    uint32_t part = efficient_examples(spec, &parts);
    for (; part > 0 && part <= options->max_batch / 2; part *= 2) {
        parts.micro_batch = even_part(options->max_batch, part);
        if (fedge_model_size(spec, &parts, &split, NULL) != FEDGE_OK ||
            bytes_of_data(&split) > bytes_of_data(&whole) - bytes_of_data(&whole) / MIN_SAVING)
            return 0; /* larger parts need more */
        if (split.activations / MIN_WORK >= split.gradients &&
            split.activations / MIN_PER_LAYER >= spec->num_layers + EXTRA_LAYERS)
            return parts.micro_batch;
    }
    return 0;
}
