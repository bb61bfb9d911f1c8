/* What of a job goes to GPUs: their cohorts' configuration. */
#include <string.h>

#include "aggregator/rounds/sampler.h"
#include "aggregator/simulate/cohort/trainer_cuda_internal.h"

#define LEAST_SLOTS 16 /* wanted: a test set comes in pieces, which are evaluated side by side */

static fedge_cohort_examples examples_of(const fedge_dataset *dataset)
{
    return dataset
               ? (fedge_cohort_examples){fedge_dataset_values(dataset),
                                         fedge_dataset_labels(dataset), fedge_dataset_size(dataset)}
               : (fedge_cohort_examples){0};
}

/* The kernels' number of a section's codec; below 0: they have none. A codec needs no number: a
 * plan with one of the others has no pieces (below), and its clients' models are copied back to be
 * encoded and summed by the host, as after training on a CPU. */
int fedge_trainer_cuda_codec_of(const fedge_section *section)
{
    char text[FEDGE_CODEC_TEXT];
    (void)fedge_codec_text(&section->codec, text);
    return section->codec.tensors      ? -1
           : strcmp(text, "none") == 0 ? FEDGE_COHORT_CODEC_NONE
           : strcmp(text, "int8") == 0 ? FEDGE_COHORT_CODEC_INT8
                                       : -1;
}

/* Pieces of what travels; 0: not all of it is in codecs that GPUs know, or it is no plain change.
 */
uint32_t fedge_trainer_cuda_count_pieces(const fedge_plan *plan)
{
    uint64_t count = 0;
    if (plan->hooks || fedge_plan_keeps(plan) || fedge_plan_makes_residual(plan) ||
        plan->update.deflate)
        return 0;
    for (uint32_t s = 0; s < plan->sent.num_sections; s++) {
        const fedge_section *section = &plan->sent.sections[s];
        if (fedge_trainer_cuda_codec_of(section) < 0)
            return 0;
        for (uint32_t t = 0; t < section->schema.num_tensors; t++) {
            count +=
                (section->schema.tensors[t].count + FEDGE_COHORT_CHUNK - 1) / FEDGE_COHORT_CHUNK;
        }
    }
    return count <= INT32_MAX ? (uint32_t)count : 0;
}

uint32_t fedge_trainer_cuda_clients_asked(const fedge_trainer_engine_config *config)
{
    return fedge_cohort_size_of(&config->job->rounds, FEDGE_TASK_TRAIN,
                                config->client_data->num_clients)
        .asked;
}

fedge_cohort_config fedge_trainer_cuda_cohort_of(const fedge_trainer_engine_config *config,
                                                 uint32_t num_gpus, uint32_t num_members,
                                                 trainer_cuda_needs *has)
{
    const fedge_plan *plan = &config->job->plan;
    const uint32_t asked = fedge_trainer_cuda_clients_asked(config);
    const uint32_t share = (asked * num_members + num_gpus - 1) / num_gpus;
    const fedge_dataset *other =
        config->test_set != config->client_data->dataset ? config->test_set : NULL;
    const fedge_trainer_config any = {
        0}; /* of the augmentation, its arguments are all that counts */
    const fedge_examples none = {0};
    has->options = fedge_plan_model_options(plan);
    (void)fedge_plan_augment(plan, &any, &none, &has->augmented);
    return (fedge_cohort_config){
        .model = &plan->model,
        .options = &has->options,
        .sets = {examples_of(config->client_data->dataset), examples_of(other)},
        .dtype = plan->data.dtype,
        .num_channels = plan->data.num_channels,
        .divide_by = plan->data.divide_by,
        .mean = plan->data.mean,
        .std = plan->data.std,
        .augmentation = plan->data.has_augmentation ? &has->augmented.augmentation : NULL,
        .most_slots = share > LEAST_SLOTS ? share : LEAST_SLOTS,
        .num_chunks = fedge_trainer_cuda_count_pieces(plan),
        .num_members = num_members};
}

fedge_status fedge_trainer_cuda_count_gpus(const fedge_trainer_engine_config *config,
                                           uint32_t *count, fedge_error *err)
{
    uint32_t there = 0;
    FEDGE_TRY(fedge_cohort_count_gpus(&there, err));
    there = there < FEDGE_COHORT_MAX_GPUS ? there : FEDGE_COHORT_MAX_GPUS;
    *count = config->num_gpus > 0 ? config->num_gpus : there;
    for (uint32_t i = 0; i < config->num_gpus; i++) {
        if (config->gpus[i] >= there) {
            return fedge_fail(err, FEDGE_NOT_FOUND, "GPU %u is not there: there are 0 to %u",
                              config->gpus[i], there - 1);
        }
    }
    return FEDGE_OK;
}

uint32_t fedge_trainer_cuda_number(const fedge_trainer_engine_config *config, uint32_t index)
{
    return config->num_gpus > 0 ? config->gpus[index] : index;
}
