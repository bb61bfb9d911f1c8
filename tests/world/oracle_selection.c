/* The state of keep-best and early stopping survives every start: in the newest checkpoint it only
 * ever advances. The number of checkpoints follows the job. */
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "aggregator/rounds/selection.h"
#include "tests/world/oracle_books.h"
#include "tests/world/scheduler.h"

/* State of one metric; all 0: nothing was evaluated yet. */
typedef struct progress {
    uint32_t best_round, waited, seen;
    double best;
} progress;

static progress last_keep, last_stop;

void oracle_forget_selection(void)
{
    last_keep = last_stop = (progress){0};
}

static double number(const cJSON *json, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, key);
    return cJSON_IsNumber(item) ? item->valuedouble : NAN;
}

static progress read_progress(const cJSON *json, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, key);
    if (!item)
        return (progress){0};
    return (progress){.best_round = (uint32_t)number(item, "best_round"),
                      .waited = (uint32_t)number(item, "waited"),
                      .seen = (uint32_t)number(item, "seen"),
                      .best = number(item, "best")};
}

/* Returns why [now] is no continuation of [before]; NULL: it is one. */
static const char *compare(const fedge_watch_spec *spec, const progress *before,
                           const progress *now)
{
    if (!spec->present || before->seen == 0)
        return NULL;
    if (now->seen < before->seen || now->best_round < before->best_round)
        return "is forgotten";
    if (now->best_round == before->best_round) {
        const bool same =
            now->waited >= before->waited && (now->best_round == 0 || now->best == before->best);
        return same ? NULL : "changes although nothing was better";
    }
    const bool better = before->best_round == 0 ||
                        (fedge_criterion_is_loss(spec->metric) ? now->best < before->best
                                                               : now->best > before->best);
    return better ? NULL : "becomes worse";
}

static void check(const fedge_watch_spec *spec, const char *key, const cJSON *json,
                  progress *before)
{
    const progress now = read_progress(json, key);
    const char *wrong = compare(spec, before, &now);
    if (wrong) {
        world_fail("oracle: %s, best %g of round %u, %s: now %g of round %u", key, before->best,
                   before->best_round, wrong, now.best, now.best_round);
    }
    *before = now;
}

static bool has_checkpoint(uint32_t round)
{
    char name[64];
    size_t size = 0;
    (void)snprintf(name, sizeof(name), "checkpoints/round-%06" PRIu32 "/model.safetensors", round);
    return oracle_read(name, &size) != NULL;
}

/* 0: only that of the first model, or none */
static uint32_t newest_checkpoint(void)
{
    uint32_t round = oracle.job->rounds.num_server_rounds;
    while (round > 0 && !has_checkpoint(round))
        round--;
    return round;
}

/* With real threads the checkpoint writer may have continued since [newest] was the newest
 * checkpoint. Checkpoints that it removed meanwhile are not missing. */
static bool is_missing(uint32_t round, uint32_t newest)
{
    return !has_checkpoint(round) && newest_checkpoint() == newest;
}

static void check_best_checkpoint(const cJSON *json, uint32_t newest)
{
    const double round = number(cJSON_GetObjectItemCaseSensitive(json, "best"), "round");
    if (round > 0 && is_missing((uint32_t)round, newest))
        world_fail("oracle: the best model is that of round %g, whose checkpoint is gone", round);
}

/* Checks that the job's number of checkpoints is kept. */
static void check_retention(uint32_t newest)
{
    for (uint32_t age = 1; age < oracle.job->keep_checkpoints && age <= newest; age++) {
        if (is_missing(newest - age, newest))
            world_fail("oracle: the checkpoint of round %u is gone", newest - age);
    }
}

static cJSON *read_state(uint32_t round)
{
    char name[64];
    size_t size = 0;
    (void)snprintf(name, sizeof(name), "checkpoints/round-%06" PRIu32 "/state.json", round);
    const uint8_t *text = oracle_read(name, &size);
    return text ? cJSON_ParseWithLength((const char *)text, size) : NULL;
}

void oracle_look_at_selection(void)
{
    fedge_selection rules;
    const uint32_t newest = newest_checkpoint();
    check_retention(newest);
    if (!oracle.job->keep_best.present && !oracle.job->early_stopping.present)
        return;
    cJSON *json = newest > 0 ? read_state(newest) : NULL;
    if (json && fedge_selection_init(&rules, oracle.job, false, NULL) == FEDGE_OK) {
        check(&rules.keep, "keep", json, &last_keep);
        check(&rules.stop, "stop", json, &last_stop);
        check_best_checkpoint(json, newest);
    }
    cJSON_Delete(json);
}
