#include "aggregator/simulate/output/run_summary.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "aggregator/store/json_file.h"
#include "aggregator/store/round_log.h"

/* rounds.jsonl has nine digits, and two accuracies on at most 2^28 examples are equal or differ by
 * more than this. */
#define SAME 1e-9

void fedge_run_summary_init(fedge_run_summary *run_summary, const double *targets,
                            uint32_t num_targets)
{
    const fedge_run_summary_curve unknown = {.loss = NAN, .accuracy = NAN, .best = NAN};
    *run_summary = (fedge_run_summary){.test = unknown,
                                       .validation = unknown,
                                       .test_at_best = NAN,
                                       .client_loss = NAN,
                                       .client_accuracy = NAN,
                                       .num_targets = num_targets};
    for (uint32_t i = 0; i < num_targets; i++) {
        run_summary->targets[i] = targets[i];
        run_summary->reached[i] = NAN;
    }
}

/* A target is reached where the line from the highest accuracy so far to a higher one crosses it.
 */
static void update_targets(fedge_run_summary *run_summary, uint32_t round, double best,
                           double accuracy)
{
    for (uint32_t i = 0; i < run_summary->num_targets; i++) {
        if (isnan(run_summary->reached[i]) && accuracy >= run_summary->targets[i]) {
            const double fraction =
                isnan(best) ? 1.0 : (run_summary->targets[i] - best) / (accuracy - best);
            run_summary->reached[i] = (double)run_summary->evaluated +
                                      fraction * ((double)round - (double)run_summary->evaluated);
        }
    }
}

/* True where the accuracy is the best so far. */
static bool add_to_curve(fedge_run_summary_curve *curve, uint32_t round, double loss,
                         double accuracy)
{
    curve->loss = loss;
    if (isnan(accuracy))
        return false;
    const bool best = isnan(curve->best) || accuracy > curve->best + SAME;
    curve->accuracy = accuracy;
    curve->best = best ? accuracy : curve->best;
    curve->best_round = best ? round : curve->best_round;
    curve->last[curve->num_accuracies++ % FEDGE_RUN_SUMMARY_LAST] = accuracy;
    return best;
}

static void add_evaluation(fedge_run_summary *run_summary, const fedge_round_summary *summary)
{
    const uint32_t round = summary->round;
    const fedge_validation *validation = &summary->validation;
    const bool known = isfinite(summary->accuracy) || isfinite(summary->loss);
    const bool lost = summary->seconds_evaluate > 0.0 && isfinite(run_summary->test.loss);
    const bool tested = known || lost; /* the loss of a model that has diverged is not finite */
    const bool validated =
        validation->present && (isfinite(validation->accuracy) || isfinite(validation->loss));
    if (tested) {
        update_targets(run_summary, round, run_summary->test.best, summary->accuracy);
        (void)add_to_curve(&run_summary->test, round, summary->loss, summary->accuracy);
    } else if (validated) {
        update_targets(run_summary, round, run_summary->validation.best, validation->accuracy);
    }
    if (validated &&
        add_to_curve(&run_summary->validation, round, validation->loss, validation->accuracy))
        run_summary->test_at_best = summary->accuracy;
    run_summary->evaluated = tested || validated ? round : run_summary->evaluated;
}

void fedge_run_summary_add(fedge_run_summary *run_summary, const fedge_round_summary *summary)
{
    run_summary->bytes_up += summary->bytes_up;
    run_summary->bytes_down += summary->bytes_down;
    run_summary->seconds += summary->seconds;
    if (summary->virtual_phase.present) {
        run_summary->has_virtual_time = true;
        run_summary->virtual_time = summary->virtual_phase.time;
    }
    run_summary->is_best = fedge_selection_add(&run_summary->selection, summary);
    run_summary->trained_last = summary->kind == FEDGE_TASK_TRAIN;
    if (summary->kind == FEDGE_TASK_EVALUATE) {
        run_summary->client_loss = summary->loss;
        run_summary->client_accuracy = summary->accuracy;
        return;
    }
    run_summary->rounds = summary->round;
    run_summary->clients += summary->reported;
    run_summary->examples += summary->examples;
    run_summary->clamped += summary->clamped;
    for (uint32_t i = 0; i < FEDGE_SPEED_QUANTILES; i++) {
        run_summary->asked_by_speed[i] += summary->virtual_phase.asked[i];
        run_summary->reported_by_speed[i] += summary->virtual_phase.reported[i];
    }
    memcpy(run_summary->model, summary->model, sizeof(run_summary->model));
    add_evaluation(run_summary, summary);
}

static fedge_status add_line(void *user, const fedge_round_summary *summary, fedge_error *err)
{
    (void)err;
    fedge_run_summary_add(user, summary);
    return FEDGE_OK;
}

fedge_status fedge_run_summary_read(fedge_run_summary *run_summary, const char *path,
                                    fedge_error *err)
{
    return fedge_round_lines_read(path, add_line, run_summary, err);
}

bool fedge_run_summary_all_reached(const fedge_run_summary *run_summary)
{
    for (uint32_t i = 0; i < run_summary->num_targets; i++) {
        if (isnan(run_summary->reached[i]))
            return false;
    }
    return true;
}

double fedge_run_summary_last_mean(const fedge_run_summary_curve *curve)
{
    const uint32_t count = curve->num_accuracies < FEDGE_RUN_SUMMARY_LAST ? curve->num_accuracies
                                                                          : FEDGE_RUN_SUMMARY_LAST;
    double sum = 0.0;
    for (uint32_t i = 0; i < count; i++)
        sum += curve->last[i];
    return count > 0 ? sum / count : NAN;
}

bool fedge_run_summary_add_seed(cJSON *json, const char *key, uint64_t seed)
{
    char text[24];
    (void)snprintf(text, sizeof(text), "%" PRIu64, seed);
    return cJSON_AddRawToObject(json, key, text) != NULL;
}

static bool add_targets(cJSON *json, const fedge_run_summary *run_summary)
{
    cJSON *list = cJSON_AddArrayToObject(json, "targets");
    bool made = list != NULL;
    for (uint32_t i = 0; i < run_summary->num_targets && made; i++) {
        cJSON *target = cJSON_CreateObject();
        made = cJSON_AddItemToArray(list, target) &&
               cJSON_AddNumberToObject(target, "accuracy", run_summary->targets[i]) &&
               cJSON_AddNumberToObject(target, "rounds", run_summary->reached[i]);
    }
    return made;
}

static double fraction_of(const uint64_t counts[FEDGE_SPEED_QUANTILES], uint32_t at)
{
    double sum = 0.0;
    for (uint32_t i = 0; i < FEDGE_SPEED_QUANTILES; i++)
        sum += (double)counts[i];
    return (double)counts[at] / sum; /* NaN, which becomes null, when there are none */
}

static bool add_inclusion(cJSON *json, const fedge_run_summary *run_summary)
{
    if (!run_summary->has_virtual_time)
        return true;
    bool made = cJSON_AddNumberToObject(json, "virtual_seconds", run_summary->virtual_time) != NULL;
    cJSON *list = made ? cJSON_AddArrayToObject(json, "inclusion") : NULL;
    made = list != NULL;
    for (uint32_t i = 0; i < FEDGE_SPEED_QUANTILES && made; i++) {
        cJSON *one = cJSON_CreateObject();
        made = cJSON_AddItemToArray(list, one) &&
               cJSON_AddNumberToObject(one, "asked", fraction_of(run_summary->asked_by_speed, i)) &&
               cJSON_AddNumberToObject(one, "reported",
                                       fraction_of(run_summary->reported_by_speed, i));
    }
    return made;
}

/* Adds nothing where no examples are for validation. */
static bool add_validation(cJSON *json, const fedge_run_summary *run_summary,
                           const fedge_classification *classes,
                           const fedge_simulation_settings *settings)
{
    const fedge_run_summary_curve *curve = &run_summary->validation;
    if (settings->num_validation == 0)
        return true;
    const fedge_json_number_field numbers[] = {
        {"examples", settings->num_validation},
        {"accuracy", curve->accuracy},
        {"loss", curve->loss},
        {"accuracy_last_10", fedge_run_summary_last_mean(curve)},
        {"accuracy_best", curve->best},
        {"round_best", curve->num_accuracies > 0 ? (double)curve->best_round : NAN},
        {"test_accuracy_at_best", run_summary->test_at_best}};
    cJSON *to = cJSON_AddObjectToObject(json, "validation");
    return to && fedge_json_add_numbers(to, numbers, sizeof(numbers) / sizeof(numbers[0])) &&
           fedge_classification_add(to, classes);
}

/* Adds nothing without keep-best. */
static bool add_best(cJSON *json, const fedge_selection *selection)
{
    const fedge_selected *best = &selection->state.best;
    const bool any = best->round > 0;
    const fedge_json_number_field values[] = {
        {"best_value", any ? selection->state.keep.best : NAN},
        {"best_accuracy", any ? best->accuracy : NAN},
        {"best_loss", any ? best->loss : NAN}};
    return !selection->keep.present ||
           (cJSON_AddNumberToObject(json, "best_round", any ? (double)best->round : (double)NAN) &&
            cJSON_AddStringToObject(json, "best_metric",
                                    fedge_criterion_text(selection->keep.metric)) &&
            fedge_json_add_numbers(json, values, 3) &&
            (best->model[0] ? cJSON_AddStringToObject(json, "best_model_sha256", best->model)
                            : cJSON_AddNullToObject(json, "best_model_sha256")));
}

fedge_status fedge_run_summary_json(const fedge_run_summary *run_summary,
                                    const fedge_final_evaluation *final_evaluation,
                                    const fedge_job *job, const fedge_simulation_settings *settings,
                                    const char *ending, char **text, fedge_error *err)
{
    cJSON *json = cJSON_CreateObject();
    const fedge_json_number_field numbers[] = {
        {"num_server_rounds", settings->num_rounds},
        {"parameters", (double)job->plan.num_parameters},
        {"rounds", run_summary->rounds},
        {"accuracy", run_summary->test.accuracy},
        {"loss", run_summary->test.loss},
        {"accuracy_last_10", fedge_run_summary_last_mean(&run_summary->test)},
        {"accuracy_best", run_summary->test.best},
        {"client_accuracy", run_summary->client_accuracy},
        {"client_loss", run_summary->client_loss},
        {"clients_trained", (double)run_summary->clients},
        {"examples_trained", (double)run_summary->examples},
        {"bytes_up", (double)run_summary->bytes_up},
        {"bytes_down", (double)run_summary->bytes_down},
        {"clamped", (double)run_summary->clamped},
        {"seconds", run_summary->seconds},
        {"clients_per_second", (double)run_summary->clients / run_summary->seconds}};
    bool made = cJSON_AddStringToObject(json, "job", job->plan.name) &&
                cJSON_AddStringToObject(json, "ending", ending) &&
                fedge_json_add_text(json, "partition", settings->partition) &&
                fedge_run_summary_add_seed(json, "seed", settings->seed) &&
                cJSON_AddNumberToObject(json, "clients", settings->num_clients) &&
                fedge_run_summary_add_seed(json, "partition_seed", settings->partition_seed) &&
                fedge_json_add_numbers(json, numbers, sizeof(numbers) / sizeof(numbers[0]));
    made =
        made && add_targets(json, run_summary) && add_inclusion(json, run_summary) &&
        (run_summary->model[0] ? cJSON_AddStringToObject(json, "model_sha256", run_summary->model)
                               : cJSON_AddNullToObject(json, "model_sha256")) &&
        add_best(json, &run_summary->selection) &&
        fedge_client_accuracies_add(json, &final_evaluation->clients) &&
        fedge_classification_add(json, &final_evaluation->test) &&
        (!final_evaluation->has_backdoor ||
         fedge_json_add_numbers(
             json, &(fedge_json_number_field){"backdoor_success", final_evaluation->backdoor},
             1)) &&
        add_validation(json, run_summary, &final_evaluation->validation, settings);
    *text = made && fedge_json_keep_digits(json) ? cJSON_PrintUnformatted(json) : NULL;
    cJSON_Delete(json);
    return *text ? FEDGE_OK : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the summary");
}
