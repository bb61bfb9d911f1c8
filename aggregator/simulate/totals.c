#include "aggregator/simulate/totals.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "aggregator/simulate/json_text.h"
#include "aggregator/store/json_file.h"

/* What is read back from rounds.jsonl has nine digits, and two accuracies on the same examples, of
 * which there are at most 2^28, differ by more than this or not at all. */
#define SAME 1e-9

void fedge_totals_init(fedge_totals *totals, const double *targets, uint32_t num_targets)
{
    const fedge_totals_curve unknown = {.loss = NAN, .accuracy = NAN, .best = NAN};
    *totals = (fedge_totals){.test = unknown,
                             .validation = unknown,
                             .test_at_best = NAN,
                             .client_loss = NAN,
                             .client_accuracy = NAN,
                             .num_targets = num_targets};
    for (uint32_t i = 0; i < num_targets; i++) {
        totals->targets[i] = targets[i];
        totals->reached[i] = NAN;
    }
}

/* Where the line from the highest accuracy so far to a higher one crosses the target. Nothing is
 * known before the first. */
static void reach_targets(fedge_totals *totals, uint32_t round, double best, double accuracy)
{
    for (uint32_t i = 0; i < totals->num_targets; i++) {
        if (isnan(totals->reached[i]) && accuracy >= totals->targets[i]) {
            const double share =
                isnan(best) ? 1.0 : (totals->targets[i] - best) / (accuracy - best);
            totals->reached[i] =
                (double)totals->evaluated + share * ((double)round - (double)totals->evaluated);
        }
    }
}

/* Is its accuracy the best so far? */
static bool add_to_curve(fedge_totals_curve *curve, uint32_t round, double loss, double accuracy)
{
    curve->loss = loss;
    if (isnan(accuracy)) {
        return false;
    }
    const bool best = isnan(curve->best) || accuracy > curve->best + SAME;
    curve->accuracy = accuracy;
    curve->best = best ? accuracy : curve->best;
    curve->best_round = best ? round : curve->best_round;
    curve->last[curve->num_accuracies++ % FEDGE_TOTALS_LAST] = accuracy;
    return best;
}

static void add_evaluation(fedge_totals *totals, const fedge_round_summary *summary)
{
    const uint32_t round = summary->round;
    const fedge_validation *validation = &summary->validation;
    const bool known = isfinite(summary->accuracy) || isfinite(summary->loss);
    const bool lost = summary->seconds_evaluate > 0.0 && isfinite(totals->test.loss);
    const bool tested = known || lost; /* the loss of one that has diverged is not finite */
    const bool validated =
        validation->present && (isfinite(validation->accuracy) || isfinite(validation->loss));
    if (tested) {
        reach_targets(totals, round, totals->test.best, summary->accuracy);
        (void)add_to_curve(&totals->test, round, summary->loss, summary->accuracy);
    } else if (validated) {
        reach_targets(totals, round, totals->validation.best, validation->accuracy);
    }
    if (validated &&
        add_to_curve(&totals->validation, round, validation->loss, validation->accuracy)) {
        totals->test_at_best = summary->accuracy;
    }
    totals->evaluated = tested || validated ? round : totals->evaluated;
}

void fedge_totals_add(fedge_totals *totals, const fedge_round_summary *summary)
{
    totals->bytes_up += summary->bytes_up;
    totals->bytes_down += summary->bytes_down;
    totals->seconds += summary->seconds;
    if (summary->virtual_phase.present) {
        totals->has_virtual_time = true;
        totals->virtual_time = summary->virtual_phase.time;
    }
    totals->is_best = fedge_selection_add(&totals->selection, summary, NULL);
    totals->trained_last = summary->kind == FEDGE_TASK_TRAIN;
    if (summary->kind == FEDGE_TASK_EVALUATE) {
        totals->client_loss = summary->loss;
        totals->client_accuracy = summary->accuracy;
        return;
    }
    totals->rounds = summary->round;
    totals->clients += summary->reported;
    totals->examples += summary->examples;
    totals->clamped += summary->clamped;
    for (uint32_t i = 0; i < FEDGE_SPEED_QUANTILES; i++) {
        totals->asked_by_speed[i] += summary->virtual_phase.asked[i];
        totals->reported_by_speed[i] += summary->virtual_phase.reported[i];
    }
    memcpy(totals->model, summary->model, sizeof(totals->model));
    add_evaluation(totals, summary);
}

bool fedge_totals_all_reached(const fedge_totals *totals)
{
    for (uint32_t i = 0; i < totals->num_targets; i++) {
        if (isnan(totals->reached[i])) {
            return false;
        }
    }
    return true;
}

double fedge_totals_last_mean(const fedge_totals_curve *curve)
{
    const uint32_t count =
        curve->num_accuracies < FEDGE_TOTALS_LAST ? curve->num_accuracies : FEDGE_TOTALS_LAST;
    double sum = 0.0;
    for (uint32_t i = 0; i < count; i++) {
        sum += curve->last[i];
    }
    return count > 0 ? sum / count : NAN;
}

bool fedge_totals_add_seed(cJSON *json, const char *key, uint64_t seed)
{
    char text[24];
    (void)snprintf(text, sizeof(text), "%" PRIu64, seed);
    return cJSON_AddRawToObject(json, key, text) != NULL;
}

static bool add_targets(cJSON *json, const fedge_totals *totals)
{
    cJSON *list = cJSON_AddArrayToObject(json, "targets");
    bool made = list != NULL;
    for (uint32_t i = 0; i < totals->num_targets && made; i++) {
        cJSON *target = cJSON_CreateObject();
        made = cJSON_AddItemToArray(list, target) &&
               cJSON_AddNumberToObject(target, "accuracy", totals->targets[i]) &&
               cJSON_AddNumberToObject(target, "rounds", totals->reached[i]);
    }
    return made;
}

static double share_of(const uint64_t counts[FEDGE_SPEED_QUANTILES], uint32_t at)
{
    double sum = 0.0;
    for (uint32_t i = 0; i < FEDGE_SPEED_QUANTILES; i++) {
        sum += (double)counts[i];
    }
    return (double)counts[at] / sum; /* NaN, which becomes null, when there are none */
}

static bool add_inclusion(cJSON *json, const fedge_totals *totals)
{
    if (!totals->has_virtual_time) {
        return true;
    }
    bool made = cJSON_AddNumberToObject(json, "virtual_seconds", totals->virtual_time) != NULL;
    cJSON *list = made ? cJSON_AddArrayToObject(json, "inclusion") : NULL;
    made = list != NULL;
    for (uint32_t i = 0; i < FEDGE_SPEED_QUANTILES && made; i++) {
        cJSON *one = cJSON_CreateObject();
        made = cJSON_AddItemToArray(list, one) &&
               cJSON_AddNumberToObject(one, "asked", share_of(totals->asked_by_speed, i)) &&
               cJSON_AddNumberToObject(one, "reported", share_of(totals->reported_by_speed, i));
    }
    return made;
}

/* Nothing, where no examples are for validation. */
static bool add_validation(cJSON *json, const fedge_totals *totals,
                           const fedge_classification *classes,
                           const fedge_simulation_settings *settings)
{
    const fedge_totals_curve *curve = &totals->validation;
    if (settings->num_validation == 0) {
        return true;
    }
    const fedge_json_number_field numbers[] = {
        {"examples", settings->num_validation},
        {"accuracy", curve->accuracy},
        {"loss", curve->loss},
        {"accuracy_last_10", fedge_totals_last_mean(curve)},
        {"accuracy_best", curve->best},
        {"round_best", curve->num_accuracies > 0 ? (double)curve->best_round : NAN},
        {"test_accuracy_at_best", totals->test_at_best}};
    cJSON *to = cJSON_AddObjectToObject(json, "validation");
    return to && fedge_json_add_numbers(to, numbers, sizeof(numbers) / sizeof(numbers[0])) &&
           fedge_classification_add(to, classes);
}

/* Nothing without keep-best. */
static bool add_best(cJSON *json, const fedge_selection *selection)
{
    const fedge_selected *best = &selection->state.best;
    const bool any = best->round > 0;
    const fedge_json_number_field numbers[] = {{"best_value", selection->state.keep.best},
                                               {"best_accuracy", best->accuracy},
                                               {"best_loss", best->loss}};
    fedge_json_number_field values[3];
    for (size_t i = 0; i < 3; i++) {
        values[i] = (fedge_json_number_field){numbers[i].key, any ? numbers[i].value : NAN};
    }
    return !selection->keep.present ||
           (cJSON_AddNumberToObject(json, "best_round", any ? (double)best->round : (double)NAN) &&
            cJSON_AddStringToObject(json, "best_metric",
                                    fedge_criterion_text(selection->keep.metric)) &&
            fedge_json_add_numbers(json, values, 3) &&
            (best->model[0] ? cJSON_AddStringToObject(json, "best_model_sha256", best->model)
                            : cJSON_AddNullToObject(json, "best_model_sha256")));
}

fedge_status fedge_totals_json(const fedge_totals *totals, const fedge_appraisal *appraisal,
                               const fedge_job *job, const fedge_simulation_settings *settings,
                               const char *ending, char **text, fedge_error *err)
{
    cJSON *json = cJSON_CreateObject();
    const fedge_json_number_field numbers[] = {
        {"num_server_rounds", settings->num_rounds},
        {"parameters", (double)job->plan.num_parameters},
        {"rounds", totals->rounds},
        {"accuracy", totals->test.accuracy},
        {"loss", totals->test.loss},
        {"accuracy_last_10", fedge_totals_last_mean(&totals->test)},
        {"accuracy_best", totals->test.best},
        {"client_accuracy", totals->client_accuracy},
        {"client_loss", totals->client_loss},
        {"clients_trained", (double)totals->clients},
        {"examples_trained", (double)totals->examples},
        {"bytes_up", (double)totals->bytes_up},
        {"bytes_down", (double)totals->bytes_down},
        {"clamped", (double)totals->clamped},
        {"seconds", totals->seconds},
        {"clients_per_second", (double)totals->clients / totals->seconds}};
    bool made = cJSON_AddStringToObject(json, "job", job->plan.name) &&
                cJSON_AddStringToObject(json, "ending", ending) &&
                fedge_json_add_text(json, "partition", settings->partition) &&
                fedge_totals_add_seed(json, "seed", settings->seed) &&
                cJSON_AddNumberToObject(json, "clients", settings->num_clients) &&
                fedge_totals_add_seed(json, "partition_seed", settings->partition_seed) &&
                fedge_json_add_numbers(json, numbers, sizeof(numbers) / sizeof(numbers[0]));
    made = made && add_targets(json, totals) && add_inclusion(json, totals) &&
           (totals->model[0] ? cJSON_AddStringToObject(json, "model_sha256", totals->model)
                             : cJSON_AddNullToObject(json, "model_sha256")) &&
           add_best(json, &totals->selection) &&
           fedge_client_accuracies_add(json, &appraisal->clients) &&
           fedge_classification_add(json, &appraisal->test) &&
           add_validation(json, totals, &appraisal->validation, settings);
    *text = made ? cJSON_PrintUnformatted(json) : NULL;
    cJSON_Delete(json);
    return *text ? FEDGE_OK : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the summary");
}
