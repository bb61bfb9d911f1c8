#include "tests/world/root_training.h"

#include "aggregator/rounds/root_trainer.h"
#include "edge/train/model.h"
#include "edge/train/trainer.h"
#include "tests/world/plain_codec.h"

fedge_status __real_fedge_trainer_run(fedge_model *model, const fedge_examples *examples,
                                      const fedge_trainer_config *config,
                                      const fedge_trainer_workspace *workspace,
                                      fedge_trainer_result *result, fedge_error *err);
fedge_status __wrap_fedge_trainer_run(fedge_model *model, const fedge_examples *examples,
                                      const fedge_trainer_config *config,
                                      const fedge_trainer_workspace *workspace,
                                      fedge_trainer_result *result, fedge_error *err);

fedge_status __wrap_fedge_trainer_run(fedge_model *model, const fedge_examples *examples,
                                      const fedge_trainer_config *config,
                                      const fedge_trainer_workspace *workspace,
                                      fedge_trainer_result *result, fedge_error *err)
{
    static float before[PLAIN_MAX_VALUES], after[PLAIN_MAX_VALUES];
    const size_t num = fedge_model_num_values(model) + fedge_model_num_buffers(model);
    const bool is_root = config->client_index == FEDGE_ROOT_CLIENT && num <= PLAIN_MAX_VALUES;
    if (is_root)
        fedge_model_get_state(model, before);
    FEDGE_TRY(__real_fedge_trainer_run(model, examples, config, workspace, result, err));
    if (is_root) {
        fedge_model_get_state(model, after);
        world_root_trained(config->round, before, after);
    }
    return FEDGE_OK;
}
