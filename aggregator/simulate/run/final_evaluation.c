#include "aggregator/simulate/run/final_evaluation.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "aggregator/rounds/evaluator.h"
#include "aggregator/simulate/cohort/attacks.h"
#include "edge/core/rng.h"
#include "edge/plan/client_hooks.h"

#define NUM_WHOLE 2u /* sets before the clients': test, validation */

/* What is evaluated: the server's sets, then the clients'. */
typedef struct workload {
    fedge_evaluation_set *sets;
    uint32_t num_sets, num_clients;
    fedge_evaluation_set *test, *validation; /* among [sets]; NULL: none */
} workload;

static void workload_fini(workload *work)
{
    for (uint32_t s = 0; work->sets && s < NUM_WHOLE; s++)
        free(work->sets[s].predicted);
    free(work->sets);
}

static fedge_view examples_of(const fedge_client_data *client_data, uint32_t client, bool held_out)
{
    return held_out ? fedge_client_data_held_out(client_data, client)
                    : fedge_client_data_train(client_data, client);
}

/* Lists the clients that have such examples; returns their number. */
static uint32_t list_clients(const fedge_client_data *client_data, bool held_out, uint32_t *clients)
{
    uint32_t count = 0;
    for (uint32_t c = 0; c < client_data->num_clients; c++) {
        if (examples_of(client_data, c, held_out).count > 0)
            clients[count++] = c;
    }
    return count;
}

static fedge_status add_whole(workload *work, const fedge_view *view, fedge_evaluation_set **at,
                              fedge_error *err)
{
    if (view->count == 0)
        return FEDGE_OK;
    *at = &work->sets[work->num_sets++];
    **at =
        (fedge_evaluation_set){.view = *view, .predicted = malloc(view->count * sizeof(int32_t))};
    return (*at)->predicted ? FEDGE_OK
                            : fedge_fail(err, FEDGE_NO_MEMORY,
                                         "no memory for %" PRIu32 " predictions", view->count);
}

static fedge_status plan_work(workload *work, fedge_final_evaluation *to, const fedge_view *test,
                              const fedge_plan *plan, const fedge_client_data *client_data,
                              uint32_t max_clients, fedge_error *err)
{
    uint32_t *clients = malloc((size_t)client_data->num_clients * sizeof(*clients)), count;
    if (!clients)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to list the clients");
    to->clients.num_eligible = list_clients(client_data, true, clients);
    to->clients.held_out = to->clients.num_eligible > 0;
    if (!to->clients.held_out)
        to->clients.num_eligible = list_clients(client_data, false, clients);
    count = to->clients.num_eligible;
    if (count > max_clients) { /* cohorts use the streams of rounds from 1 on, not this one */
        fedge_rng rng = fedge_rng_stream(plan->seed, FEDGE_PURPOSE_SAMPLE, 0, 0, 0);
        fedge_rng_shuffle(&rng, clients, count);
        count = max_clients;
    }
    const fedge_view validation = fedge_client_data_validation(client_data);
    work->sets = calloc(NUM_WHOLE + (size_t)count, sizeof(*work->sets));
    fedge_status status;
    FEDGE_TRY_OR(work->sets ? FEDGE_OK
                            : fedge_fail(err, FEDGE_NO_MEMORY,
                                         "no memory to evaluate %" PRIu32 " clients", count),
                 done);
    FEDGE_TRY_OR(add_whole(work, test, &work->test, err), done);
    FEDGE_TRY_OR(add_whole(work, &validation, &work->validation, err), done);
    for (uint32_t i = 0; i < count; i++) {
        work->sets[work->num_sets++] = (fedge_evaluation_set){
            .view = examples_of(client_data, clients[i], to->clients.held_out),
            .personal = fedge_plan_is_personal(plan) || fedge_plan_is_clustered(plan),
            .client = clients[i]};
        work->num_clients++;
    }
done:
    free(clients);
    return status;
}

static fedge_status classify(fedge_classification *to, const fedge_evaluation_set *set,
                             const fedge_plan *plan, fedge_error *err)
{
    if (!set || isnan(set->loss))
        return FEDGE_OK;
    const uint32_t outputs = fedge_model_num_classes(&plan->model);
    uint32_t classes = outputs > 1 ? outputs : 2;
    classes = classes > plan->data.num_labels ? classes : plan->data.num_labels;
    return fedge_classification_init(to, classes, fedge_dataset_labels(set->view.dataset),
                                     set->view.indices, set->predicted, set->view.count, err);
}

static fedge_status measure_clients(fedge_client_accuracies *to, const workload *work,
                                    fedge_error *err)
{
    const uint32_t count = work->num_clients;
    const fedge_evaluation_set *sets = work->sets + work->num_sets - count;
    if (count == 0)
        return FEDGE_OK;
    uint64_t *correct = malloc(count * sizeof(*correct));
    uint32_t *examples = malloc(count * sizeof(*examples));
    double *scratch = malloc(count * sizeof(*scratch));
    bool diverged = false;
    fedge_status status;
    FEDGE_TRY_OR(correct && examples && scratch
                     ? FEDGE_OK
                     : fedge_fail(err, FEDGE_NO_MEMORY,
                                  "no memory for %" PRIu32 " clients' accuracies", count),
                 done);
    for (uint32_t i = 0; i < count; i++) {
        correct[i] = sets[i].correct;
        examples[i] = sets[i].view.count;
        diverged = diverged || isnan(sets[i].loss);
    }
    if (!diverged)
        fedge_client_accuracies_measure(to, correct, examples, count, scratch);
done:
    free(correct);
    free(examples);
    free(scratch);
    return status;
}

fedge_status fedge_final_evaluation_init(fedge_final_evaluation *to, fedge_simulation *simulation,
                                         const fedge_plan *plan,
                                         const fedge_client_data *client_data, uint32_t max_clients,
                                         fedge_error *err)
{
    workload work = {0};
    const fedge_view test = fedge_simulation_test_set(simulation);
    *to = (fedge_final_evaluation){.clients = {0}};
    if (!fedge_has_accuracy(plan) || fedge_data_num_targets(&plan->data) > 0)
        return FEDGE_OK;
    fedge_status status;
    FEDGE_TRY_OR(plan_work(&work, to, &test, plan, client_data, max_clients, err), done);
    FEDGE_TRY_OR(fedge_simulation_evaluate(simulation, work.sets, work.num_sets, true, err), done);
    FEDGE_TRY_OR(classify(&to->test, work.test, plan, err), done);
    FEDGE_TRY_OR(classify(&to->validation, work.validation, plan, err), done);
    status = measure_clients(&to->clients, &work, err);
done:
    workload_fini(&work);
    return status == FEDGE_CANCELLED ? FEDGE_OK : status;
}

void fedge_final_evaluation_fini(fedge_final_evaluation *final_evaluation)
{
    fedge_classification_fini(&final_evaluation->test);
    fedge_classification_fini(&final_evaluation->validation);
    *final_evaluation = (fedge_final_evaluation){.clients = {0}};
}

/* ---- backdoors ------------------------------------------------------------------------------- */

fedge_status fedge_backdoor_measure(fedge_simulation *simulation, fedge_dataset *test_set,
                                    double *fraction, fedge_error *err)
{
    const uint32_t count = fedge_dataset_size(test_set);
    const int32_t *labels = fedge_dataset_labels(test_set);
    fedge_evaluation_set set = {.view = fedge_simulation_test_set(simulation),
                                .predicted = malloc(count * sizeof(int32_t))};
    uint32_t others = 0, fooled = 0;
    if (!set.predicted)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %" PRIu32 " predictions", count);
    for (uint32_t i = 0; i < count; i++)
        fedge_dataset_stamp(test_set, i);
    *fraction = NAN;
    fedge_status status;
    FEDGE_TRY_OR(fedge_simulation_evaluate(simulation, &set, 1, true, err), done);
    for (uint32_t i = 0; i < count && !isnan(set.loss); i++) {
        others += labels[i] != FEDGE_BACKDOOR_LABEL;
        fooled += labels[i] != FEDGE_BACKDOOR_LABEL && set.predicted[i] == FEDGE_BACKDOOR_LABEL;
    }
    *fraction = others > 0 ? (double)fooled / others : NAN;
done:
    free(set.predicted);
    return status == FEDGE_CANCELLED ? FEDGE_OK : status;
}
