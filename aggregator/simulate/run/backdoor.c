#include "aggregator/simulate/run/backdoor.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "aggregator/simulate/cohort/attacks.h"

fedge_status fedge_backdoor_measure(fedge_simulation *simulation, fedge_dataset *test_set,
                                    double *share, fedge_error *err)
{
    const uint32_t count = fedge_dataset_size(test_set);
    const int32_t *labels = fedge_dataset_labels(test_set);
    fedge_evaluation_set set = {.view = fedge_simulation_test_set(simulation),
                                .predicted = malloc(count * sizeof(int32_t))};
    uint32_t others = 0, taken_in = 0;
    if (!set.predicted)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %" PRIu32 " predictions", count);
    for (uint32_t i = 0; i < count; i++)
        fedge_dataset_stamp(test_set, i);
    fedge_status status = fedge_simulation_evaluate(simulation, &set, 1, true, err);
    for (uint32_t i = 0; i < count && status == FEDGE_OK && !isnan(set.loss); i++) {
        others += labels[i] != FEDGE_BACKDOOR_LABEL;
        taken_in += labels[i] != FEDGE_BACKDOOR_LABEL && set.predicted[i] == FEDGE_BACKDOOR_LABEL;
    }
    *share = others > 0 ? (double)taken_in / others : NAN;
    free(set.predicted);
    return status == FEDGE_CANCELLED ? FEDGE_OK : status;
}
