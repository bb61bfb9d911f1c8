#include "aggregator/reduce/accumulator.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_GPU_NUMBER 255

static const fedge_accumulator_ops *find(const char *name)
{
    for (size_t i = 0; fedge_accumulator_kinds[i]; i++) {
        if (strcmp(fedge_accumulator_kinds[i]->name, name) == 0)
            return fedge_accumulator_kinds[i];
    }
    return NULL;
}

fedge_status fedge_accumulator_check_name(const char *name, fedge_error *err)
{
    char known[128] = "auto";
    if (strcmp(name, "auto") == 0 || find(name))
        return FEDGE_OK;
    for (size_t i = 0; fedge_accumulator_kinds[i]; i++) {
        const size_t used = strlen(known);
        snprintf(known + used, sizeof(known) - used, ", %s", fedge_accumulator_kinds[i]->name);
    }
    if (strcmp(name, "cuda") == 0) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "this program was built without CUDA: take one of %s; cmake's line "
                          "'CUDA: left out' says why",
                          known);
    }
    return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                      "there is no accumulator \"%.40s\"; this build has %s", name, known);
}

static fedge_status check_layout(const fedge_update_layout *layout, fedge_error *err)
{
    if (layout->num_elements == 0 || layout->num_elements > FEDGE_MAX_ELEMENTS) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "an accumulator sums updates of 1 to %zu values, not %zu",
                          FEDGE_MAX_ELEMENTS, layout->num_elements);
    }
    if (layout->num_sections == 0 || layout->num_sections > FEDGE_ACCUMULATOR_MAX_SECTIONS) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "an accumulator sums updates of 1 to %d sections, not %u",
                          FEDGE_ACCUMULATOR_MAX_SECTIONS, (unsigned)layout->num_sections);
    }
    return FEDGE_OK;
}

/* Whether another kind may work here when this one fails. */
static bool is_passed_over(fedge_status status)
{
    return status == FEDGE_NOT_FOUND || status == FEDGE_NO_MEMORY || status == FEDGE_UNSUPPORTED;
}

/* Arguments for trying one kind after another. */
typedef fedge_status (*attempt_fn)(const fedge_accumulator_ops *ops,
                                   const fedge_accumulator_config *config, void *user,
                                   fedge_error *err);

/* Tries the kinds in order. If all fail, the last one's error is returned. */
static fedge_status try_all(const fedge_accumulator_config *config, attempt_fn attempt, void *user,
                            const fedge_accumulator_ops **ops, fedge_error *err)
{
    fedge_error why = {0};
    fedge_status status = FEDGE_NOT_FOUND;
    for (size_t i = 0; fedge_accumulator_kinds[i]; i++) {
        *ops = fedge_accumulator_kinds[i];
        const bool able = !(*ops)->can_sum || (*ops)->can_sum(config->layout, &why) == FEDGE_OK;
        status = able ? attempt(*ops, config, user, &why) : why.status;
        if (status == FEDGE_OK)
            return FEDGE_OK;
        /* A kind that lacks hardware or a codec is skipped; one that failed at work is not. */
        if (!fedge_accumulator_kinds[i + 1] || (able && !is_passed_over(status)))
            break;
        if (config->log) {
            FEDGE_LOG(config->log, FEDGE_LOG_INFO, "accumulator-passed-over",
                      fedge_log_str("accumulator", (*ops)->name),
                      fedge_log_str("why", why.message));
        }
    }
    return fedge_fail(err, status, "%s", why.message);
}

/* Logs what sums, with a line for each device. */
static void log_devices(const fedge_accumulator *accumulator, const fedge_log *log)
{
    char text[FEDGE_ACCUMULATOR_MAX_DESCRIPTION];
    fedge_accumulator_describe(accumulator, text, sizeof(text));
    for (char *line = text; line && *line;) {
        char *next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        FEDGE_LOG(log, FEDGE_LOG_INFO, "accumulator", fedge_log_str("kind", accumulator->ops->name),
                  fedge_log_str("place", line));
        line = next;
    }
}

/* Opens the kind named [name], or with "auto" the first that works. */
static fedge_status try_by_name(const char *name, const fedge_accumulator_config *config,
                                attempt_fn attempt, void *user, const fedge_accumulator_ops **ops,
                                fedge_error *err)
{
    if (config->num_lanes == 0 || config->num_lanes > FEDGE_ACCUMULATOR_MAX_LANES) {
        return fedge_fail(err, FEDGE_OUT_OF_RANGE, "%u blocks of sums: 1 to %d",
                          (unsigned)config->num_lanes, FEDGE_ACCUMULATOR_MAX_LANES);
    }
    FEDGE_TRY(fedge_accumulator_check_name(name, err));
    FEDGE_TRY(check_layout(config->layout, err));
    *ops = find(name);
    if (!*ops)
        return try_all(config, attempt, user, ops, err);
    fedge_status status = FEDGE_OK;
    if ((*ops)->can_sum)
        status = (*ops)->can_sum(config->layout, err);
    if (status != FEDGE_OK)
        return fedge_error_prefix(err, status, "accumulator %s", name);
    status = attempt(*ops, config, user, err);
    /* A kind requested by name has no fallback: the process ends with an exit code for GPUs. A GPU
     * that lacks memory is sound after a restart. */
    if (is_passed_over(status) && *ops != &fedge_accumulator_cpu) {
        status = status == FEDGE_NO_MEMORY ? FEDGE_GPU_MEMORY : FEDGE_GPU_LOST;
        status = fedge_error_prefix(err, status, "accumulator %s", name);
    }
    return status;
}

static fedge_status attempt_open(const fedge_accumulator_ops *ops,
                                 const fedge_accumulator_config *config, void *user,
                                 fedge_error *err)
{
    return ops->open(config, (void **)user, err);
}

fedge_status fedge_accumulator_open(const char *name, const fedge_accumulator_config *config,
                                    fedge_accumulator *accumulator, fedge_error *err)
{
    *accumulator = (fedge_accumulator){0};
    void *state = NULL;
    const fedge_accumulator_ops *ops = NULL;
    FEDGE_TRY(try_by_name(name, config, attempt_open, &state, &ops, err));
    *accumulator = (fedge_accumulator){.ops = ops, .state = state};
    if (config->log)
        log_devices(accumulator, config->log);
    return FEDGE_OK;
}

typedef struct forecast {
    char *text;
    size_t size;
} forecast;

static fedge_status attempt_forecast(const fedge_accumulator_ops *ops,
                                     const fedge_accumulator_config *config, void *user,
                                     fedge_error *err)
{
    const forecast *into = user;
    if (ops->forecast)
        return ops->forecast(config, into->text, into->size, err);
    void *state = NULL;
    FEDGE_TRY(ops->open(config, &state, err));
    ops->describe(state, into->text, into->size);
    ops->close(state);
    return FEDGE_OK;
}

fedge_status fedge_accumulator_forecast(const char *name, const fedge_accumulator_config *config,
                                        char *text, size_t size, fedge_error *err)
{
    forecast into = {text, size};
    const fedge_accumulator_ops *ops = NULL;
    return try_by_name(name, config, attempt_forecast, &into, &ops, err);
}

void fedge_accumulator_close(fedge_accumulator *accumulator)
{
    if (accumulator->sums)
        accumulator->sums->close(accumulator->sums_state);
    if (accumulator->ops)
        accumulator->ops->close(accumulator->state);
    *accumulator = (fedge_accumulator){0};
}

fedge_status fedge_accumulator_validate(fedge_accumulator *accumulator, fedge_encoded *update,
                                        fedge_error *err)
{
    return accumulator->ops->validate(accumulator->state, update, err);
}

fedge_status fedge_accumulator_add(fedge_accumulator *accumulator, fedge_encoded *const *updates,
                                   uint32_t count, uint64_t *ticket, fedge_error *err)
{
    if (!accumulator->counts_only)
        return accumulator->ops->add(accumulator->state, updates, count, ticket, err);
    fedge_status status = FEDGE_OK; /* [ticket] stays the one of earlier sums */
    for (uint32_t i = 0; i < count && status == FEDGE_OK; i++) {
        status = accumulator->ops->begin(accumulator->state, updates[i]->weight, err);
        /* The update is counted; its copy is not needed. */
        accumulator->ops->drop(accumulator->state, updates[i]);
    }
    return status;
}

fedge_status fedge_accumulator_wait(fedge_accumulator *accumulator, uint64_t ticket,
                                    fedge_error *err)
{
    return accumulator->ops->wait(accumulator->state, ticket, err);
}

void fedge_accumulator_drop(fedge_accumulator *accumulator, fedge_encoded *update)
{
    accumulator->ops->drop(accumulator->state, update);
}

fedge_status fedge_accumulator_begin(fedge_accumulator *accumulator, uint32_t weight,
                                     fedge_error *err)
{
    return accumulator->ops->begin(accumulator->state, weight, err);
}

fedge_status fedge_accumulator_add_values(fedge_accumulator *accumulator, uint32_t lane,
                                          const int32_t *v, size_t first, size_t count,
                                          uint32_t weight, fedge_error *err)
{
    return accumulator->counts_only ? FEDGE_OK
                                    : accumulator->ops->add_values(accumulator->state, lane, v,
                                                                   first, count, weight, err);
}

fedge_status fedge_accumulator_device_pointer(fedge_accumulator *accumulator, uint32_t gpu,
                                              size_t first, int64_t **sums, fedge_error *err)
{
    return accumulator->ops->device_pointer
               ? accumulator->ops->device_pointer(accumulator->state, gpu, first, sums, err)
               : fedge_fail(err, FEDGE_UNSUPPORTED, "the sums are not on a GPU");
}

fedge_accumulator_totals fedge_accumulator_get_totals(const fedge_accumulator *accumulator)
{
    fedge_accumulator_totals totals;
    if (accumulator->sums)
        accumulator->sums->totals(accumulator->sums_state, &totals);
    else
        accumulator->ops->totals(accumulator->state, &totals);
    return totals;
}

fedge_status fedge_accumulator_read(fedge_accumulator *accumulator, size_t first, size_t count,
                                    int64_t *sums, fedge_error *err)
{
    return accumulator->sums
               ? accumulator->sums->read(accumulator->sums_state, first, count, sums, err)
               : accumulator->ops->read(accumulator->state, first, count, sums, err);
}

fedge_status fedge_accumulator_step(fedge_accumulator *accumulator, const fedge_step_part *parts,
                                    uint32_t num_parts, fedge_error *err)
{
    return accumulator->sums
               ? accumulator->sums->step(accumulator->sums_state, parts, num_parts, err)
               : accumulator->ops->step(accumulator->state, parts, num_parts, err);
}

fedge_status fedge_accumulator_reset(fedge_accumulator *accumulator, fedge_error *err)
{
    return accumulator->sums ? accumulator->sums->reset(accumulator->sums_state, err)
                             : accumulator->ops->reset(accumulator->state, err);
}

bool fedge_accumulator_optimizes(const fedge_accumulator *accumulator)
{
    return accumulator->sums || accumulator->ops->optimizes;
}

const fedge_tile_ops *fedge_accumulator_tiles(const fedge_accumulator *accumulator, void **hardware,
                                              uint32_t *num_devices)
{
    *hardware = NULL;
    *num_devices = 1;
    return accumulator && accumulator->ops->tiles
               ? accumulator->ops->tiles(accumulator->state, hardware, num_devices)
               : &fedge_tile_cpu;
}

void fedge_accumulator_describe(const fedge_accumulator *accumulator, char *text, size_t size)
{
    accumulator->ops->describe(accumulator->state, text, size);
}

uint32_t fedge_accumulator_stats(const fedge_accumulator *accumulator, fedge_gpu_stats *stats,
                                 uint32_t capacity)
{
    return accumulator->ops->stats(accumulator->state, stats, capacity);
}

/* ---- what users write ------------------------------------------------------------------------ */

fedge_status fedge_accumulator_parse_gpus(const char *text, fedge_accumulator_config *config,
                                          fedge_error *err)
{
    const char *at = text;
    bool used[MAX_GPU_NUMBER + 1] = {false};
    config->num_gpus = 0;
    if (strcmp(text, "all") == 0)
        return FEDGE_OK;
    do {
        char *end = NULL;
        const unsigned long gpu = *at >= '0' && *at <= '9' ? strtoul(at, &end, 10) : ULONG_MAX;
        if (!end || (*end != ',' && *end != '\0') || gpu > MAX_GPU_NUMBER) {
            return fedge_fail(
                err, FEDGE_INVALID_ARGUMENT,
                "GPUs are \"all\", or numbers of 0 to %d with commas between them, like "
                "0,1; not \"%.40s\"",
                MAX_GPU_NUMBER, text);
        }
        if (used[gpu] || config->num_gpus == FEDGE_ACCUMULATOR_MAX_GPUS) {
            return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                              used[gpu] ? "GPU %lu is named twice" : "GPU %lu is one too many",
                              gpu);
        }
        used[gpu] = true;
        config->gpus[config->num_gpus++] = (uint32_t)gpu;
        at = end + 1;
    } while (at[-1] == ',');
    return FEDGE_OK;
}

fedge_status fedge_accumulator_parse_shard(const char *text, fedge_shard *shard, fedge_error *err)
{
    static const char *const NAMES[] = {"auto", "clients", "coordinates"};
    for (unsigned i = 0; i < sizeof(NAMES) / sizeof(NAMES[0]); i++) {
        if (strcmp(text, NAMES[i]) == 0) {
            *shard = (fedge_shard)i;
            return FEDGE_OK;
        }
    }
    return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                      "GPUs share the work by auto, clients or coordinates, not by \"%.40s\"",
                      text);
}
