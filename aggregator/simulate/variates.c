#include "aggregator/simulate/variates.h"

#include <inttypes.h>
#include <stdlib.h>

#include "edge/core/os.h"

fedge_status fedge_variates_init(fedge_variates *variates, uint32_t num_clients, uint64_t most,
                                 size_t num_values, fedge_error *err)
{
    const uint64_t clients = most < num_clients ? most : num_clients;
    const uint64_t bytes = clients * num_values * sizeof(float);
    *variates = (fedge_variates){0};
    if (bytes > fedge_os_ram_bytes()) {
        return fedge_fail(err, FEDGE_TOO_BIG,
                          "SCAFFOLD keeps a variate of %zu bytes for each of up to %" PRIu64
                          " clients, %" PRIu64 " MB in all, and this machine has %" PRIu64
                          " MB: use fewer clients or rounds, a smaller cohort or another strategy",
                          num_values * sizeof(float), clients, bytes / 1000000,
                          fedge_os_ram_bytes() / 1000000);
    }
    float **of = calloc(num_clients, sizeof(*of));
    if (!of) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the variates of %" PRIu32 " clients",
                          num_clients);
    }
    *variates = (fedge_variates){num_clients, num_values, of};
    return FEDGE_OK;
}

void fedge_variates_fini(fedge_variates *variates)
{
    for (uint32_t i = 0; i < variates->num_clients; i++) {
        free(variates->of[i]);
    }
    free(variates->of);
    *variates = (fedge_variates){0};
}

float *fedge_variates_of(fedge_variates *variates, uint32_t client)
{
    float **of = &variates->of[client];
    if (!*of) {
        *of = calloc(variates->num_values, sizeof(**of));
    }
    return *of;
}
