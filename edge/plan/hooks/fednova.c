/* The client side of FedNova (aggregator/rounds/strategies/fednova.c). A trainer of one's own takes
 * as many steps as it likes and reports them; those of a built-in model follow from the job. */
#include "edge/plan/client_hooks.h"

const fedge_client_hooks fedge_client_hooks_fednova = {
    .name = "FedNova",
    .counts_steps = true,
    .only_external = true,
};
