/* Who has which example, as a simulation leaves it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/report/partition_plot.h"
#include "aggregator/simulate/output/results.h"
#include "aggregator/store/disk.h"
#include "edge/core/os.h"

/* Is the division the one in [path]? */
static fedge_status check_division(const char *path, const fedge_partition_data *data,
                                   const fedge_client_data *client_data, fedge_error *err)
{
    fedge_partition_spec spec = {.scheme = FEDGE_PARTITION_FILE};
    uint32_t *owner = malloc(((size_t)data->num_examples + 1) * sizeof(*owner));
    if (!owner)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to compare divisions");
    (void)snprintf(spec.source, sizeof(spec.source), "%s", path);
    fedge_status status = fedge_partition_assign(&spec, data, client_data->num_clients, owner, err);
    if (status != FEDGE_OK ||
        memcmp(owner, client_data->owner, data->num_examples * sizeof(*owner)) != 0) {
        status = fedge_fail(
            err, FEDGE_MISMATCH,
            "%s is not how the data is divided now: --resume needs the same data and division",
            path);
    }
    free(owner);
    return status;
}

fedge_status fedge_results_partition(const fedge_results *results,
                                     const fedge_client_data *client_data, fedge_error *err)
{
    char path[FEDGE_MAX_PATH], title[FEDGE_MAX_JOB_NAME + FEDGE_PARTITION_MAX_TEXT];
    if (!results->dir[0])
        return FEDGE_OK;
    (void)snprintf(title, sizeof(title), "%s, %s", results->job->plan.name,
                   results->settings.partition);
    const fedge_partition_data data = {.num_examples = client_data->num_examples,
                                       .num_labels = results->job->plan.data.num_labels,
                                       .labels = fedge_client_data_labels(client_data)};
    fedge_status status = fedge_path_join(results->dir, "partition.csv", path, err);
    if (status == FEDGE_OK && results->resumed && fedge_os_exists(path))
        status = check_division(path, &data, client_data, err);
    if (status == FEDGE_OK)
        status = fedge_partition_write_csv(path, client_data->owner, data.num_examples, err);
    if (status == FEDGE_OK)
        status = fedge_path_join(results->dir, "partition.svg", path, err);
    return status == FEDGE_OK ? fedge_partition_plot(path, title, &data, client_data->owner,
                                                     client_data->num_clients, err)
                              : status;
}
