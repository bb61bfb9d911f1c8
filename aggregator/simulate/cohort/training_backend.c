#include "aggregator/simulate/cohort/training_backend.h"

#include <assert.h>
#include <string.h>

static const fedge_sim_backend_ops *find(const char *name)
{
    const fedge_sim_backend_ops *const *at = fedge_sim_backends;
    if (strcmp(name, fedge_sim_backend_process.name) == 0)
        return &fedge_sim_backend_process;
    while (*at && strcmp((*at)->name, name) != 0)
        at++;
    return *at;
}

fedge_status fedge_sim_backend_check_name(const char *name, fedge_error *err)
{
    if (strcmp(name, FEDGE_SIM_BACKEND_AUTO) == 0 || find(name))
        return FEDGE_OK;
    if (strcmp(name, "cuda") == 0) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "this program was built without CUDA: take --engine cpu, or build it "
                          "where nvcc is found");
    }
    return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "--engine: '%.32s' is not auto, cpu or cuda",
                      name);
}

bool fedge_sim_backend_batches_runs(const char *name)
{
    const fedge_sim_backend_ops *ops = find(name);
    return ops && ops->batches_runs;
}

void fedge_sim_shared_init(fedge_sim_shared *shared, uint32_t max_runs)
{
    *shared = (fedge_sim_shared){.max_runs = max_runs};
    pthread_mutex_init(&shared->mutex, NULL);
}

void fedge_sim_shared_fini(fedge_sim_shared *shared)
{
    if (shared->state)
        shared->close(shared->state);
    pthread_mutex_destroy(&shared->mutex);
}

fedge_status fedge_sim_backend_check(const fedge_sim_backend_ops *ops,
                                     const fedge_sim_backend_config *config, fedge_error *err)
{
    return ops->check ? ops->check(config, err) : FEDGE_OK;
}

/* The first backend from [at] on that can do the job. [because]: why those before were rejected, or
 * "". */
static fedge_status first_able(const fedge_sim_backend_ops *const *at, const char *because,
                               const fedge_sim_backend_config *config,
                               const fedge_sim_backend_ops **ops, fedge_error *err)
{
    fedge_status status = FEDGE_OK;
    fedge_error why;
    (void)fedge_fail(&why, FEDGE_OK, "%s", because);
    for (; *at; at++) {
        *ops = *at;
        status = fedge_sim_backend_check(*at, config, err);
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

fedge_status fedge_sim_backend_choose(const char *name, const fedge_sim_backend_config *config,
                                      const fedge_sim_backend_ops **ops, fedge_error *err)
{
    FEDGE_TRY(fedge_sim_backend_check_name(name, err));
    if (strcmp(name, FEDGE_SIM_BACKEND_AUTO) != 0) {
        *ops = find(name);
        assert(*ops);
        return fedge_sim_backend_check(*ops, config, err);
    }
    return first_able(fedge_sim_backends, "", config, ops, err);
}

fedge_status fedge_sim_backend_choose_fallback(const char *name,
                                               const fedge_sim_backend_config *config,
                                               const fedge_sim_backend_ops **ops,
                                               fedge_status status, fedge_error *err)
{
    const fedge_sim_backend_ops *const *at = fedge_sim_backends;
    const fedge_error why = *err;
    while (*at && *at != *ops)
        at++;
    if (status != FEDGE_NO_MEMORY || strcmp(name, FEDGE_SIM_BACKEND_AUTO) != 0 || !*at || !at[1])
        return status;
    return first_able(at + 1, why.message, config, ops, err);
}

fedge_status fedge_sim_backend_open(fedge_sim_backend *backend, const fedge_sim_backend_ops *ops,
                                    const fedge_sim_backend_config *config, fedge_error *err)
{
    *backend = (fedge_sim_backend){.ops = ops};
    return ops->open(config, &backend->state, err);
}

void fedge_sim_backend_close(fedge_sim_backend *backend)
{
    if (backend->ops)
        backend->ops->close(backend->state);
    *backend = (fedge_sim_backend){0};
}

void fedge_sim_backend_run(fedge_sim_backend *backend, uint32_t round, const int8_t *bounds_log2,
                           fedge_sim_backend_task *tasks, uint32_t num_tasks)
{
    backend->ops->run(backend->state, round, bounds_log2, tasks, num_tasks);
}
