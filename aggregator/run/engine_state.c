#include "aggregator/run/engine_state.h"

#include <assert.h>
#include <stdio.h>

#include "aggregator/reduce/distributed_accumulator.h"

void fedge_engine_fail(fedge_engine *engine, const fedge_error *err)
{
    if (engine->failure.status == FEDGE_OK) {
        engine->failure = *err;
        fedge_log_failure(engine->config.log, FEDGE_LOG_ERROR, "stopping", err);
    }
    engine->done = true;
}

void fedge_engine_look_at_sums(const fedge_engine *engine, fedge_sums_seen *seen)
{
    assert(!engine->gpus_change); /* the round finalizer may be closing them */
    const fedge_accumulator *sums = &engine->server.model.accumulator;
    snprintf(seen->kind, sizeof(seen->kind), "%s", fedge_joined_kind(sums));
    seen->num_gpus = fedge_accumulator_stats(sums, seen->gpus, FEDGE_ACCUMULATOR_MAX_GPUS);
}

void fedge_engine_check_evaluation(fedge_engine *engine, const fedge_round_summary *summary)
{
    if (engine->nothing_held_out || summary->examples > 0 ||
        !fedge_selection_asks_clients(&engine->server.selection))
        return;
    engine->nothing_held_out = true;
    FEDGE_LOG(engine->config.log, FEDGE_LOG_WARN, "nothing-held-out",
              fedge_log_int("round", summary->round),
              fedge_log_str("advice",
                            "no client has evaluated the model, and keep-best or early-stopping "
                            "goes by that: give clients a validation-fraction in their files, or "
                            "take a test-... metric"));
}

void fedge_engine_check_selection(const fedge_engine *engine)
{
    const fedge_criterion metric = fedge_selection_lacks(&engine->server.selection);
    if (metric == FEDGE_CRITERION_AUTO)
        return;
    FEDGE_LOG(engine->config.log, FEDGE_LOG_WARN, "nothing-chosen",
              fedge_log_str("metric", fedge_criterion_text(metric)),
              fedge_log_str("advice",
                            "no evaluation gave it a value, so keep-best has kept no model "
                            "and early-stopping could not end the run"));
}

void fedge_engine_stop_early(fedge_engine *engine)
{
    const fedge_selection *selection = &engine->server.selection;
    const fedge_watch_state *state = &selection->state.stop;
    if (engine->stopped_early ||
        engine->rounds_closed >= engine->config.job->rounds.num_server_rounds)
        return; /* an evaluation of that round has ended; or it was the last in any case */
    engine->stopped_early = true;
    fedge_rounds_end_after(engine->rounds, engine->rounds_closed);
    FEDGE_LOG(engine->config.log, FEDGE_LOG_INFO, "stopping-early",
              fedge_log_int("round", engine->rounds_closed),
              fedge_log_str("metric", fedge_criterion_text(selection->stop.metric)),
              fedge_log_int("best-round", state->best_round), fedge_log_num("best", state->best),
              fedge_log_int("evaluations-since", state->waited));
}
