/* The client side of FedRep (Collins et al., "Exploiting shared representations for personalized
 * federated learning", ICML 2021): the last layers stay on the client. Each task first trains these
 * layers with the others frozen, then the others with these frozen. */
#include "edge/json/json.h"
#include "edge/plan/client_hooks.h"

static const fedge_json_field ARGUMENTS[] = {
    FEDGE_PERSONAL_LAYERS_FIELD(fedge_hooks_arguments, personal_layers),
#ifndef FEDGE_SMALL
    FEDGE_PERSONAL_TENSORS_FIELD(fedge_hooks_arguments, personal_tensors),
#endif
    FEDGE_HEAD_EPOCHS_FIELD(fedge_hooks_arguments, head_epochs),
    FEDGE_JSON_END,
};

const fedge_client_hooks fedge_client_hooks_fedrep = {
    .name = "FedRep",
    .state_name = "own part of the model",
    .local_state = true,
    .arguments = ARGUMENTS,
    .check = fedge_personal_check_last,
    .personal = fedge_personal_is_last,
    .personal_first = true,
};
