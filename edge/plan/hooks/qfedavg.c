/* The client side of q-FedAvg (Li et al., "Fair resource allocation in federated learning", ICLR
 * 2020): it reports the loss before training and the squared norm of its update. */
#include "edge/plan/client_hooks.h"

const fedge_client_hooks fedge_client_hooks_qfedavg = {
    .name = "QFedAvg",
    .measures = true,
};
