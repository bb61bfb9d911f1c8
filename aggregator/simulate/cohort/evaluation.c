#include "aggregator/simulate/cohort/evaluation.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "aggregator/store/json_file.h"

static uint32_t num_chunks_of(const fedge_evaluation_set *set)
{
    return (set->view.count + FEDGE_EVALUATION_CHUNK - 1) / FEDGE_EVALUATION_CHUNK;
}

static fedge_sim_backend_task chunk_task(const fedge_evaluation_set *set, uint32_t at,
                                         bool may_stop)
{
    const uint32_t first = at * FEDGE_EVALUATION_CHUNK, left = set->view.count - first;
    fedge_sim_backend_task task = {.work = FEDGE_SIM_BACKEND_TEST,
                                   .view = set->view,
                                   .predicted = set->predicted ? set->predicted + first : NULL,
                                   .may_stop = may_stop,
                                   .personal = set->personal,
                                   .client = set->client};
    task.view.indices += first;
    task.view.count = left < FEDGE_EVALUATION_CHUNK ? left : FEDGE_EVALUATION_CHUNK;
    return task;
}

static fedge_status sum(fedge_evaluation_set *set, const fedge_sim_backend_task *tasks,
                        fedge_error *err)
{
    double loss = 0.0;
    set->correct = 0;
    set->errors = (fedge_errors){0};
    for (uint32_t i = 0; i < num_chunks_of(set); i++) {
        if (tasks[i].status == FEDGE_NOT_FINITE) {
            loss = NAN; /* the model has diverged: a result, not a failure */
        } else if (tasks[i].status != FEDGE_OK) {
            return fedge_fail(err, tasks[i].status, "%s", tasks[i].message);
        } else {
            loss += tasks[i].result.loss_sum;
            set->correct += tasks[i].result.correct;
            fedge_errors_merge(&set->errors, &tasks[i].result.errors);
        }
    }
    const double count = (double)set->view.count;
    set->loss = loss / count;
    set->accuracy = isnan(loss) ? 0.0 : (double)set->correct / count;
    return FEDGE_OK;
}

fedge_status fedge_evaluate_sets(fedge_sim_backend *backend, fedge_evaluation_set *sets,
                                 uint32_t num_sets, bool may_stop, fedge_error *err)
{
    uint32_t num_tasks = 0, at = 0;
    for (uint32_t s = 0; s < num_sets; s++)
        num_tasks += num_chunks_of(&sets[s]);
    fedge_sim_backend_task *tasks = calloc(num_tasks > 0 ? num_tasks : 1, sizeof(*tasks));
    if (!tasks)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to evaluate the model");
    for (uint32_t s = 0; s < num_sets; s++) {
        for (uint32_t i = 0; i < num_chunks_of(&sets[s]); i++)
            tasks[at++] = chunk_task(&sets[s], i, may_stop);
    }
    fedge_sim_backend_run(backend, 0, NULL, tasks, num_tasks);
    fedge_status status = FEDGE_OK;
    at = 0;
    for (uint32_t s = 0; s < num_sets; s++) {
        FEDGE_TRY_OR(sum(&sets[s], tasks + at, err), done);
        at += num_chunks_of(&sets[s]);
    }
done:
    free(tasks);
    return status;
}

/* ---- classes --------------------------------------------------------------------------------- */

void fedge_classify(const fedge_model_spec *spec, const float *outputs, uint32_t batch,
                    int32_t *predicted)
{
    const uint32_t num = fedge_model_num_classes(spec);
    for (size_t b = 0; b < batch; b++) {
        const float *row = outputs + b * num;
        uint32_t best = 0;
        for (uint32_t c = 1; c < num; c++)
            best = row[c] > row[best] ? c : best;
        predicted[b] = num == 1 ? row[0] > 0.0f : (int32_t)best;
    }
}

static double ratio(double a, double b)
{
    return b > 0.0 ? a / b : 0.0;
}

static bool occurs(const fedge_classification *of, uint32_t c)
{
    return of->support[c] + of->predicted[c] > 0;
}

static double precision_of(const fedge_classification *of, uint32_t c)
{
    return ratio((double)of->correct[c], (double)of->predicted[c]);
}

static double recall_of(const fedge_classification *of, uint32_t c)
{
    return ratio((double)of->correct[c], (double)of->support[c]);
}

static double f1_of(const fedge_classification *of, uint32_t c)
{
    return ratio(2.0 * (double)of->correct[c], (double)(of->support[c] + of->predicted[c]));
}

static double macro(const fedge_classification *of,
                    double (*value)(const fedge_classification *of, uint32_t c))
{
    double sum = 0.0;
    uint32_t count = 0;
    for (uint32_t c = 0; c < of->num_classes; c++) {
        sum += occurs(of, c) ? value(of, c) : 0.0;
        count += occurs(of, c);
    }
    return sum / count;
}

fedge_status fedge_classification_init(fedge_classification *to, uint32_t num_classes,
                                       const int32_t *labels, const uint32_t *indices,
                                       const int32_t *predicted, uint32_t count, fedge_error *err)
{
    const bool matrix = num_classes <= FEDGE_CONFUSION_MAX_CLASSES;
    const size_t cells = matrix ? (size_t)num_classes * num_classes : 1;
    *to =
        (fedge_classification){.num_classes = num_classes,
                               .support = calloc(num_classes, sizeof(*to->support)),
                               .predicted = calloc(num_classes, sizeof(*to->predicted)),
                               .correct = calloc(num_classes, sizeof(*to->correct)),
                               .confusion = matrix ? calloc(cells, sizeof(*to->confusion)) : NULL};
    if (!to->support || !to->predicted || !to->correct || (matrix && !to->confusion)) {
        fedge_classification_fini(to);
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to count %" PRIu32 " classes",
                          num_classes);
    }
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t label = (uint32_t)labels[indices[i]], got = (uint32_t)predicted[i];
        to->support[label]++;
        to->predicted[got]++;
        to->correct[label] += label == got;
        if (matrix)
            to->confusion[(size_t)label * num_classes + got]++;
    }
    to->macro_precision = macro(to, precision_of);
    to->macro_recall = macro(to, recall_of);
    to->macro_f1 = macro(to, f1_of);
    return FEDGE_OK;
}

void fedge_classification_fini(fedge_classification *classification)
{
    free(classification->support);
    free(classification->predicted);
    free(classification->correct);
    free(classification->confusion);
    *classification = (fedge_classification){0};
}

static bool add_counts(cJSON *json, const char *key, const uint64_t *counts, uint32_t num)
{
    cJSON *list = key ? cJSON_AddArrayToObject(json, key) : cJSON_CreateArray();
    bool made = list && (key || cJSON_AddItemToArray(json, list));
    for (uint32_t c = 0; c < num && made; c++)
        made = cJSON_AddItemToArray(list, cJSON_CreateNumber((double)counts[c]));
    return made;
}

static bool add_values(cJSON *json, const char *key, const fedge_classification *of,
                       double (*value)(const fedge_classification *of, uint32_t c))
{
    cJSON *list = cJSON_AddArrayToObject(json, key);
    bool made = list != NULL;
    for (uint32_t c = 0; c < of->num_classes && made; c++)
        made = cJSON_AddItemToArray(list, cJSON_CreateNumber(occurs(of, c) ? value(of, c) : NAN));
    return made;
}

static bool add_classes(cJSON *json, const fedge_classification *of)
{
    if (of->num_classes == 0 || of->num_classes > FEDGE_CLASSES_MAX_LISTED)
        return cJSON_AddNullToObject(json, "per_class");
    cJSON *to = cJSON_AddObjectToObject(json, "per_class");
    return to && add_counts(to, "support", of->support, of->num_classes) &&
           add_counts(to, "predicted", of->predicted, of->num_classes) &&
           add_values(to, "precision", of, precision_of) &&
           add_values(to, "recall", of, recall_of) && add_values(to, "f1", of, f1_of);
}

static bool add_matrix(cJSON *json, const fedge_classification *of)
{
    if (!of->confusion)
        return cJSON_AddNullToObject(json, "confusion_matrix");
    cJSON *rows = cJSON_AddArrayToObject(json, "confusion_matrix");
    bool made = rows != NULL;
    for (uint32_t c = 0; c < of->num_classes && made; c++)
        made = add_counts(rows, NULL, of->confusion + (size_t)c * of->num_classes, of->num_classes);
    return made;
}

bool fedge_classification_add(cJSON *json, const fedge_classification *classification)
{
    const bool known = classification->num_classes > 0;
    const fedge_json_number_field macros[] = {
        {"macro_f1", known ? classification->macro_f1 : NAN},
        {"macro_precision", known ? classification->macro_precision : NAN},
        {"macro_recall", known ? classification->macro_recall : NAN}};
    return fedge_json_add_numbers(json, macros, 3) && add_classes(json, classification) &&
           add_matrix(json, classification);
}

/* ---- accuracy of each client ----------------------------------------------------------------- */

static double mean_of(const double *values, uint32_t count)
{
    double sum = 0.0;
    for (uint32_t i = 0; i < count; i++)
        sum += values[i];
    return sum / count;
}

void fedge_client_accuracies_measure(fedge_client_accuracies *to, const uint64_t *correct,
                                     const uint32_t *examples, uint32_t num_clients,
                                     double *scratch)
{
    uint64_t num_correct = 0;
    double squares = 0.0;
    to->num_clients = num_clients;
    to->num_examples = 0;
    for (uint32_t c = 0; c < num_clients; c++) {
        scratch[c] = (double)correct[c] / (double)examples[c];
        num_correct += correct[c];
        to->num_examples += examples[c];
    }
    fedge_accuracy_quantiles_measure(&to->quantiles, scratch, num_clients);
    to->mean = mean_of(scratch, num_clients);
    to->weighted_mean = (double)num_correct / (double)to->num_examples;
    for (uint32_t c = 0; c < num_clients; c++)
        squares += (scratch[c] - to->mean) * (scratch[c] - to->mean);
    to->deviation = sqrt(squares / num_clients);
    const uint32_t tenth = num_clients / 10 + (num_clients % 10 > 0);
    to->worst_tenth = mean_of(scratch, tenth);
    to->best_tenth = mean_of(scratch + num_clients - tenth, tenth);
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
