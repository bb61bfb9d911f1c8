#include "aggregator/simulate/cohort/training_backend.h"

#include <assert.h>
#include <string.h>

static const fedge_trainer_engine_ops *find(const char *name)
{
    const fedge_trainer_engine_ops *const *at = fedge_trainer_engines;
    while (*at && strcmp((*at)->name, name) != 0)
        at++;
    return *at;
}

fedge_status fedge_trainer_engine_check_name(const char *name, fedge_error *err)
{
    if (strcmp(name, FEDGE_TRAINER_ENGINE_AUTO) == 0 || find(name))
        return FEDGE_OK;
    if (strcmp(name, "cuda") == 0) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "this program was built without CUDA: take --engine cpu, or build it "
                          "where nvcc is found");
    }
    return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "--engine: '%.32s' is not auto, cpu or cuda",
                      name);
}

bool fedge_trainer_engine_joins_runs(const char *name)
{
    const fedge_trainer_engine_ops *ops = find(name);
    return ops && ops->joins_runs;
}

void fedge_trainer_share_init(fedge_trainer_share *share, uint32_t most_runs)
{
    *share = (fedge_trainer_share){.most_runs = most_runs};
    pthread_mutex_init(&share->mutex, NULL);
}

void fedge_trainer_share_fini(fedge_trainer_share *share)
{
    if (share->state)
        share->close(share->state);
    pthread_mutex_destroy(&share->mutex);
}

fedge_status fedge_trainer_engine_check(const fedge_trainer_engine_ops *ops,
                                        const fedge_trainer_engine_config *config, fedge_error *err)
{
    return ops->check ? ops->check(config, err) : FEDGE_OK;
}

/* Of the table from [at] on; [because]: why those before it are not taken, "": there are none. */
static fedge_status first_able(const fedge_trainer_engine_ops *const *at, const char *because,
                               const fedge_trainer_engine_config *config,
                               const fedge_trainer_engine_ops **ops, fedge_error *err)
{
    fedge_status status = FEDGE_OK;
    fedge_error why;
    (void)fedge_fail(&why, FEDGE_OK, "%s", because);
    for (; *at; at++) {
        *ops = *at;
        status = fedge_trainer_engine_check(*at, config, err);
        if (status == FEDGE_OK || status == FEDGE_GPU_LOST)
            break;
        why = *err;
    }
    if (status == FEDGE_OK && config->log && why.message[0]) {
        FEDGE_LOG(config->log, FEDGE_LOG_INFO, "trainer-engine",
                  fedge_log_str("kind", (*ops)->name), fedge_log_str("because", why.message));
    }
    return status;
}

fedge_status fedge_trainer_engine_choose(const char *name,
                                         const fedge_trainer_engine_config *config,
                                         const fedge_trainer_engine_ops **ops, fedge_error *err)
{
    FEDGE_TRY(fedge_trainer_engine_check_name(name, err));
    if (strcmp(name, FEDGE_TRAINER_ENGINE_AUTO) != 0) {
        *ops = find(name);
        assert(*ops); /* it has passed check_name */
        return fedge_trainer_engine_check(*ops, config, err);
    }
    return first_able(fedge_trainer_engines, "", config, ops, err);
}

fedge_status fedge_trainer_engine_choose_again(const char *name,
                                               const fedge_trainer_engine_config *config,
                                               const fedge_trainer_engine_ops **ops,
                                               fedge_status status, fedge_error *err)
{
    const fedge_trainer_engine_ops *const *at = fedge_trainer_engines;
    const fedge_error why = *err;
    while (*at && *at != *ops)
        at++;
    if (status != FEDGE_NO_MEMORY || strcmp(name, FEDGE_TRAINER_ENGINE_AUTO) != 0 || !*at || !at[1])
        return status;
    return first_able(at + 1, why.message, config, ops, err);
}

fedge_status fedge_trainer_engine_open(fedge_trainer_engine *engine,
                                       const fedge_trainer_engine_ops *ops,
                                       const fedge_trainer_engine_config *config, fedge_error *err)
{
    *engine = (fedge_trainer_engine){.ops = ops};
    return ops->open(config, &engine->state, err);
}

void fedge_trainer_engine_close(fedge_trainer_engine *engine)
{
    if (engine->ops)
        engine->ops->close(engine->state);
    *engine = (fedge_trainer_engine){0};
}

void fedge_trainer_engine_run(fedge_trainer_engine *engine, uint32_t round,
                              const int8_t *bounds_log2, fedge_trainer_engine_task *tasks,
                              uint32_t num_tasks)
{
    engine->ops->run(engine->state, round, bounds_log2, tasks, num_tasks);
}
