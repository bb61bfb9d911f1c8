#include "aggregator/simulate/population.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/simulate/memory.h"

/* The lists come on top of the data, of which each example may be small. */
static fedge_status check_room(uint32_t count, uint32_t clients, fedge_error *err)
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
static fedge_status group(fedge_population *population, fedge_error *err)
{
    const uint32_t clients = population->num_clients;
    const uint32_t count = fedge_dataset_size(population->dataset);
    const fedge_status status = check_room(count, clients, err);
    if (status != FEDGE_OK) {
        return status;
    }
    population->examples = malloc(((size_t)count + 1) * sizeof(*population->examples));
    population->first = calloc((size_t)clients + 1, sizeof(*population->first));
    population->held = calloc(clients, sizeof(*population->held));
    if (!population->examples || !population->first || !population->held) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the parts of %" PRIu32 " clients",
                          clients);
    }
    fedge_partition_group(population->owner, count, clients, population->first,
                          population->examples);
    uint32_t *validation = population->examples + population->first[clients];
    for (uint32_t i = 0; i < count; i++) {
        if (population->owner[i] == FEDGE_PARTITION_VALIDATION) {
            validation[population->num_validation++] = i;
        }
    }
    return FEDGE_OK;
}

/* Puts the held-out examples of a client behind its others. */
static fedge_status hold_out(fedge_population *population, uint32_t client, double fraction,
                             uint64_t seed, fedge_error *err)
{
    uint32_t *examples = population->examples + population->first[client];
    const uint32_t count = population->first[client + 1] - population->first[client];
    fedge_view train = {population->dataset, malloc(count * sizeof(*examples)), count}, held;
    if (!train.indices) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to split %" PRIu32 " examples", count);
    }
    memcpy(train.indices, examples, count * sizeof(*examples));
    fedge_status status = fedge_view_split(&train, fraction, seed, client, &held, err);
    if (status == FEDGE_OK) {
        memcpy(examples, train.indices, train.count * sizeof(*examples));
        if (held.count > 0) {
            memcpy(examples + train.count, held.indices, held.count * sizeof(*examples));
        }
        population->held[client] = population->first[client] + train.count;
    }
    fedge_view_fini(&held);
    fedge_view_fini(&train);
    return status;
}

static fedge_status split(fedge_population *population, double fraction, uint64_t seed,
                          fedge_error *err)
{
    fedge_status status = FEDGE_OK;
    for (uint32_t c = 0; c < population->num_clients && status == FEDGE_OK; c++) {
        population->held[c] = population->first[c + 1];
        if (fraction > 0) {
            status = hold_out(population, c, fraction, seed, err);
        }
        const uint32_t train = population->held[c] - population->first[c];
        const uint32_t held = population->first[c + 1] - population->held[c];
        population->most = train > population->most ? train : population->most;
        population->most = held > population->most ? held : population->most;
    }
    return status;
}

fedge_status fedge_population_new(const fedge_plan *plan, const fedge_site_data *data,
                                  double validation_split, uint32_t num_clients,
                                  fedge_population **population, fedge_error *err)
{
    *population = NULL;
    if (num_clients == 0 || num_clients > FEDGE_SIMULATE_MAX_CLIENTS) {
        return fedge_fail(err, FEDGE_OUT_OF_RANGE, "%" PRIu32 " clients: 1 to %u", num_clients,
                          FEDGE_SIMULATE_MAX_CLIENTS);
    }
    fedge_population *fresh = calloc(1, sizeof(*fresh));
    if (!fresh) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the clients' data");
    }
    fresh->num_clients = num_clients;
    fedge_status status = fedge_dataset_load_divided(
        &plan->data, data->values, data->labels, &data->partition, validation_split, num_clients,
        &fresh->dataset, &fresh->owner, err);
    if (status == FEDGE_OK) {
        status = group(fresh, err);
    }
    if (status == FEDGE_OK) {
        status = split(fresh, data->validation_fraction, plan->seed, err);
    }
    if (status != FEDGE_OK) {
        fedge_population_free(fresh);
        return status;
    }
    *population = fresh;
    return FEDGE_OK;
}

void fedge_population_free(fedge_population *population)
{
    if (!population) {
        return;
    }
    fedge_dataset_free(population->dataset);
    free(population->owner);
    free(population->examples);
    free(population->first);
    free(population->held);
    free(population);
}

fedge_view fedge_population_train(const fedge_population *population, uint32_t client)
{
    const uint32_t first = population->first[client];
    return (fedge_view){population->dataset, population->examples + first,
                        population->held[client] - first};
}

fedge_view fedge_population_held_out(const fedge_population *population, uint32_t client)
{
    const uint32_t held = population->held[client];
    return (fedge_view){population->dataset, population->examples + held,
                        population->first[client + 1] - held};
}

fedge_view fedge_population_validation(const fedge_population *population)
{
    return (fedge_view){population->dataset,
                        population->examples + population->first[population->num_clients],
                        population->num_validation};
}
