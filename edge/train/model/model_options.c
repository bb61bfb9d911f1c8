#include "edge/train/model/model_options.h"

#include "edge/core/os.h"
#include "edge/train/kernels/bf16.h"
#include "edge/train/losses/losses.h"
#include "edge/train/optimizers/optimizers.h"

unsigned fedge_model_features(const fedge_model_options *options)
{
    return fedge_os_cpu_features() & ~options->disabled_cpu_features;
}

fedge_kernels fedge_kernels_for(const fedge_model_options *options)
{
    const unsigned features = fedge_model_features(options);
    const fedge_kernels *table = fedge_kernels_choose(features);
    return options->precision == FEDGE_PRECISION_BF16 ? fedge_kernels_in_bf16(table, features)
                                                      : *table;
}

const char *fedge_precision_name(fedge_precision precision)
{
    static const char *const NAMES[] = {"fp32", "bf16", "tf32", "int8"};
    return (unsigned)precision < FEDGE_PRECISION_COUNT ? NAMES[precision] : NULL;
}

const char *fedge_storage_name(fedge_storage storage)
{
    static const char *const NAMES[] = {"fp32", "bf16", "fp16"};
    return (unsigned)storage < FEDGE_STORAGE_COUNT ? NAMES[storage] : NULL;
}

bool fedge_multiplies_fp32(const fedge_model_options *options)
{
    return options->precision == FEDGE_PRECISION_FP32 || options->precision == FEDGE_PRECISION_TF32;
}

fedge_status fedge_model_check_options(const fedge_model_spec *spec,
                                       const fedge_model_options *options, fedge_error *err)
{
    if (options->max_batch == 0 || options->max_batch > FEDGE_MAX_BATCH) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "max_batch is %u: give 1 to %d",
                          (unsigned)options->max_batch, FEDGE_MAX_BATCH);
    }
    if (!fedge_optimizer_ops_of(options->optimizer)) {
        return fedge_fail(err, FEDGE_UNSUPPORTED, "unknown optimizer type %d",
                          (int)options->optimizer);
    }
    if (!fedge_precision_name(options->precision))
        return fedge_fail(err, FEDGE_UNSUPPORTED, "unknown precision %d", (int)options->precision);
    if (!fedge_storage_name(options->activations)) {
        return fedge_fail(err, FEDGE_UNSUPPORTED, "unknown storage of activations %d",
                          (int)options->activations);
    }
    if (!fedge_storage_name(options->weights)) {
        return fedge_fail(err, FEDGE_UNSUPPORTED, "unknown storage of weights %d",
                          (int)options->weights);
    }
    if (options->precision == FEDGE_PRECISION_INT8 && options->weights != FEDGE_STORAGE_FP32) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "precision int8 keeps its own weights: leave their storage at fp32");
    }
    if (options->precision == FEDGE_PRECISION_INT8 && options->training) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "precision int8 is for evaluation: make the model without training");
    }
    return fedge_loss_check(spec, err);
}

uint32_t fedge_micro_batch(const fedge_model_options *options)
{
    const uint32_t part = options->micro_batch;
    return part > 0 && part < options->max_batch ? part : options->max_batch;
}

bool fedge_keeps_gradients(const fedge_model_options *options)
{
    return options->training && (options->clip || fedge_micro_batch(options) < options->max_batch);
}

uint32_t fedge_states_of_each(const fedge_model_options *options)
{
    const uint32_t anchors = options->training && options->proximal;
    const uint32_t corrections = options->training && options->correction;
    return fedge_optimizer_states(options) + anchors + corrections;
}
