#include "aggregator/simulate/cohort/client_data.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/simulate/cohort/memory.h"
#include "aggregator/simulate/time/availability.h"

/* The lists may be as large as the data when examples are small. */
static fedge_status check_memory(uint32_t count, uint32_t clients, fedge_error *err)
{
    const uint64_t bytes = ((uint64_t)count + 2 * (uint64_t)clients) * sizeof(uint32_t);
    return bytes <= fedge_memory_left()
               ? FEDGE_OK
               : fedge_fail(err, FEDGE_NO_MEMORY,
                            "the parts of %" PRIu32 " clients, who have %" PRIu32
                            " examples, take another %" PRIu64 " MB: use fewer of either",
                            clients, count, bytes / 1000000 + 1);
}

/* Lists each client's examples. */
static fedge_status group(fedge_client_data *client_data, fedge_error *err)
{
    const uint32_t clients = client_data->num_clients;
    const uint32_t count = client_data->num_examples;
    FEDGE_TRY(check_memory(count, clients, err));
    client_data->examples = malloc(((size_t)count + 1) * sizeof(*client_data->examples));
    client_data->first = calloc((size_t)clients + 1, sizeof(*client_data->first));
    client_data->held_out_first = calloc(clients, sizeof(*client_data->held_out_first));
    if (!client_data->examples || !client_data->first || !client_data->held_out_first) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the parts of %" PRIu32 " clients",
                          clients);
    }
    fedge_partition_group(client_data->owner, count, clients, client_data->first,
                          client_data->examples);
    uint32_t *validation = client_data->examples + client_data->first[clients];
    for (uint32_t i = 0; i < count; i++) {
        if (client_data->owner[i] == FEDGE_PARTITION_VALIDATION)
            validation[client_data->num_validation++] = i;
    }
    return FEDGE_OK;
}

/* Moves the held-out examples of a client behind its others. */
static fedge_status hold_out(fedge_client_data *client_data, uint32_t client, double fraction,
                             uint64_t seed, fedge_error *err)
{
    uint32_t *examples = client_data->examples + client_data->first[client];
    const uint32_t count = client_data->first[client + 1] - client_data->first[client];
    fedge_view train = {client_data->dataset, malloc(count * sizeof(*examples)), count}, held_out;
    if (!train.indices)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to split %" PRIu32 " examples", count);
    memcpy(train.indices, examples, count * sizeof(*examples));
    fedge_status status;
    FEDGE_TRY_OR(fedge_view_split(&train, fraction, seed, client, &held_out, err), done);
    memcpy(examples, train.indices, train.count * sizeof(*examples));
    if (held_out.count > 0)
        memcpy(examples + train.count, held_out.indices, held_out.count * sizeof(*examples));
    client_data->held_out_first[client] = client_data->first[client] + train.count;
done:
    fedge_view_fini(&held_out);
    fedge_view_fini(&train);
    return status;
}

static fedge_status split(fedge_client_data *client_data, double fraction, uint64_t seed,
                          fedge_error *err)
{
    for (uint32_t c = 0; c < client_data->num_clients; c++) {
        client_data->held_out_first[c] = client_data->first[c + 1];
        if (fraction > 0)
            FEDGE_TRY(hold_out(client_data, c, fraction, seed, err));
        const uint32_t train = client_data->held_out_first[c] - client_data->first[c];
        const uint32_t held_out = client_data->first[c + 1] - client_data->held_out_first[c];
        client_data->max_examples =
            train > client_data->max_examples ? train : client_data->max_examples;
        client_data->max_examples =
            held_out > client_data->max_examples ? held_out : client_data->max_examples;
    }
    return FEDGE_OK;
}

fedge_status fedge_client_data_divide(fedge_client_data *fresh, uint32_t *owner,
                                      uint32_t num_examples, double held_out, uint64_t seed,
                                      fedge_error *err)
{
    fresh->owner = owner;
    fresh->num_examples = num_examples;
    FEDGE_TRY(group(fresh, err));
    return split(fresh, held_out, seed, err);
}

fedge_status fedge_client_data_new(const fedge_plan *plan, const fedge_site_data *data,
                                   double validation_split, uint32_t num_clients,
                                   fedge_client_data **client_data, fedge_error *err)
{
    *client_data = NULL;
    if (num_clients == 0 || num_clients > FEDGE_SIMULATE_MAX_CLIENTS) {
        return fedge_fail(err, FEDGE_OUT_OF_RANGE, "%" PRIu32 " clients: 1 to %u", num_clients,
                          FEDGE_SIMULATE_MAX_CLIENTS);
    }
    fedge_client_data *fresh = calloc(1, sizeof(*fresh));
    if (!fresh)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the clients' data");
    const fedge_division division = {&data->partition, num_clients, validation_split};
    uint32_t *owner = NULL;
    fresh->num_clients = num_clients;
    fedge_status status;
    FEDGE_TRY_OR(fedge_dataset_load_divided(&plan->data, data->values, data->labels, &division,
                                            &fresh->dataset, &owner, err),
                 failed);
    FEDGE_TRY_OR(fedge_client_data_divide(fresh, owner, fedge_dataset_size(fresh->dataset),
                                          data->validation_fraction, plan->seed, err),
                 failed);
    *client_data = fresh;
    return FEDGE_OK;
failed:
    fedge_client_data_free(fresh);
    return status;
}

fedge_status fedge_client_data_new_unknown(uint32_t num_clients, fedge_client_data **client_data,
                                           fedge_error *err)
{
    fedge_client_data *fresh = calloc(1, sizeof(*fresh));
    *client_data = NULL;
    if (!fresh)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the clients' data");
    fresh->num_clients = num_clients;
    const fedge_status status = group(fresh, err);
    if (status != FEDGE_OK) {
        fedge_client_data_free(fresh);
        return status;
    }
    *client_data = fresh;
    return FEDGE_OK;
}

void fedge_client_data_free(fedge_client_data *client_data)
{
    if (!client_data)
        return;
    fedge_dataset_free(client_data->dataset);
    free(client_data->labels);
    free(client_data->owner);
    free(client_data->examples);
    free(client_data->first);
    free(client_data->held_out_first);
    free(client_data);
}

fedge_view fedge_client_data_train(const fedge_client_data *client_data, uint32_t client)
{
    const uint32_t first = client_data->first[client];
    return (fedge_view){client_data->dataset, client_data->examples + first,
                        client_data->held_out_first[client] - first};
}

fedge_view fedge_client_data_held_out(const fedge_client_data *client_data, uint32_t client)
{
    const uint32_t held_out = client_data->held_out_first[client];
    return (fedge_view){client_data->dataset, client_data->examples + held_out,
                        client_data->first[client + 1] - held_out};
}

fedge_view fedge_client_data_validation(const fedge_client_data *client_data)
{
    return (fedge_view){client_data->dataset,
                        client_data->examples + client_data->first[client_data->num_clients],
                        client_data->num_validation};
}

const int32_t *fedge_client_data_labels(const fedge_client_data *client_data)
{
    return client_data->labels ? client_data->labels : fedge_dataset_labels(client_data->dataset);
}

uint32_t fedge_client_data_crc32(const fedge_client_data *client_data)
{
    return client_data->labels ? client_data->crc32 : fedge_dataset_crc32(client_data->dataset);
}

uint32_t fedge_client_data_client_at(const fedge_client_data *client_data, uint32_t at)
{
    uint32_t low = 0, high = client_data->num_clients; /* first[low] ≤ at < first[high] */
    if (at >= client_data->first[high])
        return FEDGE_PLACEMENT_ANYONE;
    while (high - low > 1) {
        const uint32_t mid = low + (high - low) / 2;
        if (client_data->first[mid] <= at)
            low = mid;
        else
            high = mid;
    }
    return low;
}
