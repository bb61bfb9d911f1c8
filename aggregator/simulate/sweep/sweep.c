#include "aggregator/simulate/sweep/sweep.h"

#include <assert.h>
#include <stdlib.h>

#include "aggregator/simulate/sweep/sweep_internal.h"

fedge_status fedge_sweep_new(const fedge_simulate_options *options,
                             const fedge_collective *collective, const char *job_text,
                             size_t job_size, fedge_sweep **sweep, fedge_error *err)
{
    *sweep = NULL;
    fedge_sweep *fresh = calloc(1, sizeof(*fresh));
    if (!fresh)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a sweep");
    fresh->options = options;
    fresh->collective = collective;
    fresh->job_text = job_text;
    fresh->job_size = job_size;
    fedge_status status = fedge_sweep_parse_axes(fresh, err);
    if (status == FEDGE_OK) {
        assert(fresh->num_combinations > 0 && fresh->num_seeds > 0);
        fresh->outcomes =
            calloc((size_t)fresh->num_combinations * fresh->num_seeds, sizeof(*fresh->outcomes));
        fresh->cohorts = calloc(fresh->num_combinations, sizeof(*fresh->cohorts));
        fresh->shareable = calloc(fresh->num_combinations, sizeof(*fresh->shareable));
        status = fresh->outcomes && fresh->cohorts && fresh->shareable
                     ? FEDGE_OK
                     : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %u runs",
                                  fresh->num_combinations * fresh->num_seeds);
    }
    for (uint32_t c = 0; status == FEDGE_OK && c < fresh->num_combinations; c++)
        status = fedge_sweep_check(fresh, c, err);
    if (status == FEDGE_OK)
        status = fedge_sweep_check_folders(fresh, err);
    if (status != FEDGE_OK) {
        fedge_sweep_free(fresh);
        return status;
    }
    *sweep = fresh;
    return FEDGE_OK;
}

void fedge_sweep_free(fedge_sweep *sweep)
{
    if (sweep) {
        free(sweep->outcomes);
        free(sweep->cohorts);
        free(sweep->shareable);
        free(sweep);
    }
}
