#include "client/data_check.h"

#include <string.h>

#include "client/builtin_trainer.h"
#include "edge/data/dataset.h"

static fedge_status check_one(const fedge_site_data *data, const fedge_plan *plan,
                              const fedge_log *log, fedge_error *err)
{
    fedge_data_spec guessed;
    const bool of_plan = plan && plan->has_data && strcmp(plan->data.name, data->name) == 0;
    const fedge_data_spec *spec = of_plan ? &plan->data : &guessed;
    fedge_dataset *dataset = NULL;
    fedge_status status =
        of_plan
            ? FEDGE_OK
            : fedge_dataset_guess(data->values, data->labels,
                                  data->num_partitions ? &data->partition : NULL, &guessed, err);
    if (status == FEDGE_UNSUPPORTED) {
        fedge_log_failure(log, FEDGE_LOG_WARN, "data-unchecked", err);
        return FEDGE_OK;
    }
    if (!status)
        status = fedge_builtin_load(spec, data, &dataset, err);
    if (status)
        return fedge_error_prefix(err, status, "data set '%s'", data->name);
    const uint32_t examples = fedge_dataset_size(dataset);
    uint64_t values = 1;
    for (uint32_t i = 0; i < spec->rank; i++)
        values *= spec->shape[i];
    const fedge_log_field fields[] = {
        fedge_log_str("name", data->name),
        fedge_log_int("examples", examples),
        fedge_log_int("features", (int64_t)values),
        fedge_log_int("labels", spec->num_labels),
        fedge_log_int("held-out", (int64_t)(examples * data->validation_fraction)),
        fedge_log_int("partition-id", data->partition_id),
        fedge_log_int("num-partitions", data->num_partitions)};
    /* Of undivided data there is no part to tell. */
    fedge_log_write(log, FEDGE_LOG_INFO, "data", fields,
                    sizeof(fields) / sizeof(*fields) - (data->num_partitions ? 0 : 2));
    fedge_dataset_free(dataset);
    return FEDGE_OK;
}

fedge_status fedge_data_check(const fedge_site *site, const fedge_plan *plan, const fedge_log *log)
{
    fedge_error err;
    fedge_status failed = plan ? fedge_site_check(site, plan, &err) : FEDGE_OK;
    if (failed)
        fedge_log_failure(log, FEDGE_LOG_ERROR, "plan", &err);
    for (uint32_t i = 0; i < site->num_data; i++) {
        const fedge_status status = check_one(&site->data[i], plan, log, &err);
        if (status) {
            fedge_log_failure(log, FEDGE_LOG_ERROR, "data", &err);
            failed = failed ? failed : status;
        }
    }
    return failed;
}

void fedge_data_warn(const fedge_site *site, const fedge_log *log)
{
    for (uint32_t i = 0; i < site->num_data; i++) {
        if (site->data[i].has_partition && site->data[i].num_partitions == 0) {
            FEDGE_LOG(log, FEDGE_LOG_WARN, "data-undivided",
                      fedge_log_str("name", site->data[i].name),
                      fedge_log_str("advice", "it has a partition: say which part with "
                                              "--partition-id and --num-partitions"));
        }
    }
}
