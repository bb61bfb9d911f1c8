#include "aggregator/simulate/cohort/client_accuracies.h"

#include <math.h>

#include "aggregator/store/json_file.h"

static double mean_of(const double *values, uint32_t count)
{
    double sum = 0.0;
    for (uint32_t i = 0; i < count; i++)
        sum += values[i];
    return sum / count;
}

void fedge_client_accuracies_measure(fedge_client_accuracies *to, const uint64_t *correct,
                                     const uint32_t *examples, uint32_t num_clients, double *room)
{
    uint64_t right = 0;
    double squares = 0.0;
    to->num_clients = num_clients;
    to->num_examples = 0;
    for (uint32_t c = 0; c < num_clients; c++) {
        room[c] = (double)correct[c] / (double)examples[c];
        right += correct[c];
        to->num_examples += examples[c];
    }
    fedge_accuracy_quantiles_measure(&to->quantiles, room, num_clients);
    to->mean = mean_of(room, num_clients);
    to->weighted_mean = (double)right / (double)to->num_examples;
    for (uint32_t c = 0; c < num_clients; c++)
        squares += (room[c] - to->mean) * (room[c] - to->mean);
    to->deviation = sqrt(squares / num_clients);
    const uint32_t tenth = num_clients / 10 + (num_clients % 10 > 0);
    to->worst_tenth = mean_of(room, tenth);
    to->best_tenth = mean_of(room + num_clients - tenth, tenth);
}

bool fedge_client_accuracies_add(cJSON *json, const fedge_client_accuracies *accuracies)
{
    if (accuracies->num_clients == 0)
        return cJSON_AddNullToObject(json, "per_client_accuracy");
    const fedge_json_number_field numbers[] = {{"clients", accuracies->num_clients},
                                               {"clients_with_examples", accuracies->num_eligible},
                                               {"examples", (double)accuracies->num_examples},
                                               {"mean", accuracies->mean},
                                               {"weighted_mean", accuracies->weighted_mean},
                                               {"standard_deviation", accuracies->deviation},
                                               {"worst_tenth", accuracies->worst_tenth},
                                               {"best_tenth", accuracies->best_tenth}};
    cJSON *to = cJSON_AddObjectToObject(json, "per_client_accuracy");
    bool made =
        to && cJSON_AddStringToObject(to, "set", accuracies->held_out ? "held-out" : "training") &&
        fedge_json_add_numbers(to, numbers, sizeof(numbers) / sizeof(numbers[0]));
    cJSON *quantiles = made ? cJSON_AddObjectToObject(to, "quantiles") : NULL;
    made = quantiles != NULL;
    for (unsigned q = 0; q < FEDGE_ACCURACY_QUANTILES && made; q++) {
        made = cJSON_AddNumberToObject(quantiles, fedge_accuracy_quantile_key(q),
                                       accuracies->quantiles.values[q]);
    }
    return made;
}
