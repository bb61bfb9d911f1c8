/* The client side of FedPer (Arivazhagan et al., "Federated learning with personalization layers",
 * 2019): the last layers stay on the client. It trains the whole model and sends the changes of the
 * other layers. */
#include "edge/json/json.h"
#include "edge/plan/client_hooks.h"

static const fedge_json_field ARGUMENTS[] = {
    FEDGE_PERSONAL_LAYERS_FIELD(fedge_hooks_arguments, personal_layers),
#ifndef FEDGE_SMALL
    FEDGE_PERSONAL_TENSORS_FIELD(fedge_hooks_arguments, personal_tensors),
#endif
    FEDGE_JSON_END,
};

const fedge_client_hooks fedge_client_hooks_fedper = {
    .name = "FedPer",
    .state_name = "own part of the model",
    .local_state = true,
    .arguments = ARGUMENTS,
    .check = fedge_personal_check_last,
    .personal = fedge_personal_is_last,
};
