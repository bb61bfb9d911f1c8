#include "aggregator/rounds/selection.h"

#include <math.h>
#include <string.h>

#include "aggregator/rounds/evaluator.h"

#define FIRST_ERROR FEDGE_CRITERION_VALIDATION_MAE

int fedge_criterion_error(fedge_criterion metric)
{
    return metric < FIRST_ERROR ? -1 : (int)(metric - FIRST_ERROR) / 2;
}

bool fedge_criterion_is_of_test_set(fedge_criterion metric)
{
    const int error = fedge_criterion_error(metric);
    return metric == FEDGE_CRITERION_TEST_ACCURACY || metric == FEDGE_CRITERION_TEST_LOSS ||
           (error >= 0 && (metric - FIRST_ERROR) % 2 == 1);
}

bool fedge_criterion_is_loss(fedge_criterion metric)
{
    const int error = fedge_criterion_error(metric);
    return metric == FEDGE_CRITERION_TEST_LOSS || metric == FEDGE_CRITERION_VALIDATION_LOSS ||
           (error >= 0 && error != FEDGE_ERROR_R2);
}

const char *fedge_criterion_text(fedge_criterion metric)
{
    return fedge_criterion_name((unsigned)metric);
}

/* ---- the rules ------------------------------------------------------------------------------- */

static fedge_criterion choose(bool validation, bool accuracy)
{
    if (validation)
        return accuracy ? FEDGE_CRITERION_VALIDATION_ACCURACY : FEDGE_CRITERION_VALIDATION_LOSS;
    return accuracy ? FEDGE_CRITERION_TEST_ACCURACY : FEDGE_CRITERION_TEST_LOSS;
}

static fedge_status derive(fedge_watch_spec *watch, const char *key, const fedge_job *job,
                           bool set_apart, fedge_error *err)
{
    const bool validation = set_apart || job->rounds.fraction_evaluate > 0.0;
    const bool accuracy = fedge_has_accuracy(&job->plan);
    if (!watch->present)
        return FEDGE_OK;
    const bool tested = job->test_set.present || job->server_evaluates;
    if (!validation && !tested) {
        return fedge_fail(
            err, FEDGE_INVALID_ARGUMENT,
            "%s: nothing is evaluated: give the job rounds.fraction-evaluate above 0, "
            "for validation by clients, or a test-set, or in a simulation --validation-split",
            key);
    }
    if (watch->metric == FEDGE_CRITERION_AUTO) {
        watch->metric = choose(validation, accuracy);
        return FEDGE_OK;
    }
    const bool test = fedge_criterion_is_of_test_set(watch->metric);
    if (test && !tested) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "%s.metric: %s needs a test-set, and the job has none, or a plugin "
                          "that evaluates",
                          key, fedge_criterion_text(watch->metric));
    }
    if (!test && !validation) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "%s.metric: %s needs rounds.fraction-evaluate above 0, and clients with "
                          "a validation-fraction, or in a simulation --validation-split",
                          key, fedge_criterion_text(watch->metric));
    }
    if (fedge_criterion_error(watch->metric) >= 0) {
        return fedge_plan_has_errors(&job->plan)
                   ? FEDGE_OK
                   : fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                                "%s.metric: %s needs numbers as data.targets: take %s", key,
                                fedge_criterion_text(watch->metric),
                                fedge_criterion_text(choose(!test, accuracy)));
    }
    if (!accuracy && !fedge_criterion_is_loss(watch->metric)) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "%s.metric: the job's loss is of real numbers, so there is no accuracy: "
                          "take %s",
                          key, fedge_criterion_text(choose(!test, false)));
    }
    return FEDGE_OK;
}

fedge_status fedge_selection_init(fedge_selection *selection, const fedge_job *job, bool set_apart,
                                  fedge_error *err)
{
    *selection = (fedge_selection){
        .keep = job->keep_best,
        .stop = job->early_stopping,
        .set_apart = set_apart,
        .last = {.loss = NAN, .accuracy = NAN, .validation_loss = NAN, .validation_accuracy = NAN}};
    FEDGE_TRY(derive(&selection->keep, "keep-best", job, set_apart, err));
    return derive(&selection->stop, "early-stopping", job, set_apart, err);
}

void fedge_selection_restore(fedge_selection *selection, const fedge_selection_state *state,
                             const fedge_selected *last)
{
    selection->state = *state;
    selection->last = *last;
}

/* ---- evaluations ----------------------------------------------------------------------------- */

/* Whether the phase measured [metric]. The loss of a model that has diverged is not finite.
 */
static bool has_metric(const fedge_selection *selection, fedge_criterion metric,
                       const fedge_round_summary *summary)
{
    if (!fedge_criterion_is_of_test_set(metric) && !selection->set_apart)
        return summary->kind == FEDGE_TASK_EVALUATE && summary->examples > 0;
    return summary->kind == FEDGE_TASK_TRAIN && summary->seconds_evaluate > 0.0;
}

static double value_of(const fedge_selected *of, fedge_criterion metric)
{
    const int error = fedge_criterion_error(metric);
    const double *errors =
        fedge_criterion_is_of_test_set(metric) ? of->errors : of->validation_errors;
    if (error >= 0)
        return errors[error];
    switch (metric) {
    case FEDGE_CRITERION_TEST_ACCURACY:
        return of->accuracy;
    case FEDGE_CRITERION_TEST_LOSS:
        return of->loss;
    case FEDGE_CRITERION_VALIDATION_ACCURACY:
        return of->validation_accuracy;
    default:
        return of->validation_loss;
    }
}

/* Whether the last round has the best value so far. */
static bool watch(const fedge_watch_spec *spec, const fedge_selected *last,
                  fedge_watch_state *state)
{
    const double value = value_of(last, spec->metric);
    const double gain =
        fedge_criterion_is_loss(spec->metric) ? state->best - value : value - state->best;
    const bool better = isfinite(value) && (state->best_round == 0 || gain > spec->min_delta);
    state->seen = last->round;
    state->waited = better ? 0 : state->waited + 1;
    if (better) {
        state->best = value;
        state->best_round = last->round;
    }
    return better;
}

static void take_errors(double *errors, const fedge_metric_values *metrics)
{
    for (int i = 0; i < FEDGE_ERROR_METRICS; i++)
        errors[i] = fedge_metrics_error(metrics, (fedge_error_metric)i);
}

/* Updates the metrics of the last closed round. */
static void take_last(fedge_selection *selection, const fedge_round_summary *summary)
{
    fedge_selected *last = &selection->last;
    if (summary->kind == FEDGE_TASK_TRAIN) {
        *last = (fedge_selected){.round = summary->round,
                                 .loss = summary->loss,
                                 .accuracy = summary->accuracy,
                                 .validation_loss = NAN,
                                 .validation_accuracy = NAN};
        memcpy(last->model, summary->model, sizeof(last->model));
        take_errors(last->errors, &summary->metrics);
        take_errors(last->validation_errors, &(fedge_metric_values){0});
    }
    if (selection->set_apart && summary->kind == FEDGE_TASK_TRAIN && summary->validation.present) {
        last->validation_loss = summary->validation.loss;
        last->validation_accuracy = summary->validation.accuracy;
        take_errors(last->validation_errors, &summary->validation.metrics);
    } else if (!selection->set_apart && summary->kind == FEDGE_TASK_EVALUATE) {
        last->validation_loss = summary->loss;
        last->validation_accuracy = summary->accuracy;
        take_errors(last->validation_errors, &summary->metrics);
    }
}

bool fedge_selection_add(fedge_selection *selection, const fedge_round_summary *summary)
{
    fedge_selection_state *state = &selection->state;
    bool best = false;
    take_last(selection, summary);
    if (selection->keep.present && state->keep.seen < summary->round &&
        has_metric(selection, selection->keep.metric, summary))
        best = watch(&selection->keep, &selection->last, &state->keep);
    if (selection->stop.present && state->stop.seen < summary->round &&
        has_metric(selection, selection->stop.metric, summary))
        (void)watch(&selection->stop, &selection->last, &state->stop);
    /* The test set is evaluated before the clients evaluate: update the best round with their
     * results. */
    const bool same = state->best.round > 0 && state->best.round == selection->last.round;
    if (best ||
        (same && isnan(state->best.validation_loss) && isfinite(selection->last.validation_loss)))
        state->best = selection->last;
    return best;
}

bool fedge_selection_asks_clients(const fedge_selection *selection)
{
    const fedge_watch_spec *keep = &selection->keep, *stop = &selection->stop;
    return !selection->set_apart &&
           ((keep->present && !fedge_criterion_is_of_test_set(keep->metric)) ||
            (stop->present && !fedge_criterion_is_of_test_set(stop->metric)));
}

fedge_criterion fedge_selection_lacks(const fedge_selection *selection)
{
    const fedge_selection_state *state = &selection->state;
    if (selection->keep.present && state->keep.best_round == 0)
        return selection->keep.metric;
    if (selection->stop.present && state->stop.best_round == 0)
        return selection->stop.metric;
    return FEDGE_CRITERION_AUTO;
}

bool fedge_selection_is_over(const fedge_selection *selection)
{
    return selection->stop.present && selection->state.stop.waited >= selection->stop.patience;
}
