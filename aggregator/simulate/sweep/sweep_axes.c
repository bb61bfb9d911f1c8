/* Parses the axes of a sweep; makes the settings, names and folders of its combinations. */
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rounds/strategy_plugin.h"
#include "aggregator/simulate/experiment/experiment.h"
#include "aggregator/simulate/sweep/sweep_internal.h"
#include "aggregator/simulate/time/availability.h"
#include "aggregator/store/json_file.h"
#include "edge/core/text.h"
#include "edge/plan/plan_fields.h"

#define MAX_SEEDS 1000u
#define SEEDS "seeds"
#define SEED "seed"
#define MOMENTUM_PATH "training.optimizer.momentum"
#define STRATEGY_PATH "strategy.type"
#define PARTITION "partition"
#define CLIENTS "clients"
#define ROUNDS "rounds"
#define ROUNDS_PATH "rounds.num-server-rounds"

/* ---- axes ------------------------------------------------------------------------------------ */

static const struct {
    const char *name, *path;
} SHORT_NAMES[] = {{"lr", "training.learning-rate"},
                   {"epochs", "training.local-epochs"},
                   {"batch", "training.batch-size"},
                   {"fraction", "rounds.fraction-train"},
                   {"server-lr", "strategy.server-learning-rate"},
                   {"momentum", MOMENTUM_PATH},
                   {"strategy", STRATEGY_PATH},
                   {"codec", "update.codec"},
                   {ROUNDS, ROUNDS_PATH}};

/* The path of a key in the job, with each part as docs/reference/job.md spells it first. */
typedef struct job_path {
    char text[2 * FEDGE_SWEEP_MAX_TEXT];
} job_path;

/* Takes the next part of [*path]; false after the last, or where a part is too long. */
static bool next_part(const char **path, char part[FEDGE_SWEEP_MAX_TEXT])
{
    const size_t length = strcspn(*path, ".");
    if (**path == '\0' || length >= FEDGE_SWEEP_MAX_TEXT)
        return false;
    memcpy(part, *path, length);
    part[length] = '\0';
    *path += length + ((*path)[length] == '.');
    return true;
}

/* The path of a key in the job; partition and clients are their own. */
static job_path path_of(const char *key)
{
    job_path path = {.text = ""};
    char part[FEDGE_SWEEP_MAX_TEXT];
    const fedge_json_field *fields = fedge_job_fields;
    size_t size = 0;
    for (size_t k = 0; k < sizeof(SHORT_NAMES) / sizeof(SHORT_NAMES[0]); k++)
        key = strcmp(key, SHORT_NAMES[k].name) == 0 ? SHORT_NAMES[k].path : key;
    while (next_part(&key, part) && size < sizeof(path.text)) {
        const fedge_json_field *field = fedge_json_field_of(fields, part);
        size += (size_t)snprintf(path.text + size, sizeof(path.text) - size, "%s%s",
                                 size > 0 ? "." : "", field ? field->key : part);
        fields = field ? field->fields : NULL;
    }
    return path;
}

/* Are both names of one setting? */
static bool is_same(const char *a, const char *b)
{
    const job_path x = path_of(a), y = path_of(b);
    return strcmp(x.text, y.text) == 0;
}

/* 0.1 and 0.10 are one value. */
static bool same_value(const char *a, const char *b)
{
    char *end_a, *end_b;
    const double x = strtod(a, &end_a), y = strtod(b, &end_b);
    const bool numbers = *end_a == '\0' && *end_b == '\0';
    return strcmp(a, b) == 0 || (numbers && x <= y && x >= y);
}

static bool has_value(const sweep_axis *of, const char *value)
{
    for (uint32_t i = 0; i < of->num_values; i++) {
        if (same_value(of->values[i], value))
            return true;
    }
    return false;
}

/* The comma after a value, which may be a list or an object with commas; NULL: it is the last. */
static char *find_comma(char *value)
{
    int depth = 0;
    for (; *value && (*value != ',' || depth > 0); value++)
        depth += (*value == '[' || *value == '{') - (*value == ']' || *value == '}');
    return *value ? value : NULL;
}

static fedge_status parse_axis(const char *text, sweep_axis *to, fedge_error *err)
{
    const size_t length = strlen(text);
    *to = (sweep_axis){.num_values = 0};
    if (length >= sizeof(to->text)) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "--sweep: %.40s… is over %u bytes", text,
                          FEDGE_SWEEP_MAX_TEXT - 1);
    }
    memcpy(to->text, text, length + 1);
    char *at = strchr(to->text, '=');
    if (!at || at == to->text || at[1] == '\0') {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "--sweep needs KEY=VALUE,VALUE…, such as lr=0.03,0.1, not '%.80s'", text);
    }
    *at = '\0';
    to->key = to->text;
    while (at) {
        if (to->num_values == FEDGE_SWEEP_MAX_VALUES) {
            return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "--sweep: %s has more than %u values",
                              to->key, FEDGE_SWEEP_MAX_VALUES);
        }
        char *value = ++at;
        at = find_comma(value);
        if (at)
            *at = '\0';
        if (value[0] == '\0' || has_value(to, value)) {
            return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "--sweep: %s in '%.80s'",
                              value[0] ? "a value is given twice" : "an empty value", text);
        }
        to->values[to->num_values++] = value;
    }
    return FEDGE_OK;
}

static fedge_status take_seeds(fedge_sweep *sweep, const sweep_axis *seeds, fedge_error *err)
{
    char *end = NULL;
    const unsigned long count = strtoul(seeds->values[0], &end, 10);
    if (seeds->num_values != 1 || *end != '\0' || count < 1 || count > MAX_SEEDS) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "--sweep: seeds=N is a number of seeds, 1 to %u", MAX_SEEDS);
    }
    sweep->num_seeds = (uint32_t)count;
    return FEDGE_OK;
}

static bool has_axis(const fedge_sweep *sweep, const char *key)
{
    for (uint32_t i = 0; i < sweep->num_axes; i++) {
        if (is_same(key, sweep->axes[i].key))
            return true;
    }
    return false;
}

/* A setting given twice, under any name, would make one of two columns wrong. */
static fedge_status check_once(const fedge_sweep *sweep, const char *key, fedge_error *err)
{
    if ((strcmp(key, SEEDS) == 0 && sweep->num_seeds > 0) || has_axis(sweep, key))
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "--sweep: '%.80s' is set twice", key);
    /* seeds=2 with seed=1,2 would run seed 2 twice. */
    const bool seeds = strcmp(key, SEEDS) == 0;
    if ((seeds && has_axis(sweep, SEED)) || (strcmp(key, SEED) == 0 && sweep->num_seeds > 0)) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "--sweep: seeds=N counts on from each seed=…, so runs would be repeated: "
                          "leave one of them out (seeds=N begins with the job's seed or --seed)");
    }
    const fedge_simulate_options *options = sweep->options;
    if ((strcmp(key, SEED) == 0 && options->has_seed) ||
        (is_same(key, ROUNDS) && options->num_rounds > 0)) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "--sweep: '%s' is an option too: leave the option out", key);
    }
    return FEDGE_OK;
}

fedge_status fedge_sweep_parse_axes(fedge_sweep *sweep, fedge_error *err)
{
    sweep->num_combinations = 1;
    for (uint32_t i = 0; i < sweep->options->num_axes; i++) {
        sweep_axis *to = &sweep->axes[sweep->num_axes];
        FEDGE_TRY(parse_axis(sweep->options->axes[i], to, err));
        FEDGE_TRY(check_once(sweep, to->key, err));
        if (sweep->options->trainer && strcmp(to->key, PARTITION) == 0) {
            return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                              "--sweep: with --trainer a client's data is the trainer's, which "
                              "divides it: leave %s out",
                              PARTITION);
        }
        if (strcmp(to->key, SEEDS) == 0) {
            FEDGE_TRY(take_seeds(sweep, to, err));
        } else {
            sweep->num_axes++;
            sweep->num_combinations *= to->num_values;
        }
        const uint32_t seeds = sweep->num_seeds > 0 ? sweep->num_seeds : 1;
        if ((uint64_t)sweep->num_combinations * seeds > FEDGE_SWEEP_MAX_RUNS) {
            return fedge_fail(err, FEDGE_TOO_BIG, "--sweep: more than %u runs: take fewer values",
                              FEDGE_SWEEP_MAX_RUNS);
        }
    }
    sweep->num_seeds = sweep->num_seeds > 0 ? sweep->num_seeds : 1;
    return FEDGE_OK;
}

const char *fedge_sweep_value_of(const fedge_sweep *sweep, uint32_t combination, uint32_t at)
{
    for (uint32_t i = sweep->num_axes - 1; i > at; i--)
        combination /= sweep->axes[i].num_values;
    const sweep_axis *of = &sweep->axes[at];
    return of->values[combination % of->num_values];
}

size_t fedge_sweep_name_of(const fedge_sweep *sweep, uint32_t combination,
                           char name[FEDGE_SWEEP_MAX_NAME])
{
    size_t size = 0;
    name[0] = '\0';
    for (uint32_t i = 0; i < sweep->num_axes; i++) {
        const size_t at = size < FEDGE_SWEEP_MAX_NAME ? size : FEDGE_SWEEP_MAX_NAME - 1;
        size += (size_t)snprintf(name + at, FEDGE_SWEEP_MAX_NAME - at, "%s%s=%s", i > 0 ? "," : "",
                                 sweep->axes[i].key, fedge_sweep_value_of(sweep, combination, i));
    }
    return size;
}

/* Escapes "/", and "%" so that names stay different. */
size_t fedge_sweep_folder_of(const fedge_sweep *sweep, uint32_t combination,
                             char folder[FEDGE_SWEEP_MAX_NAME])
{
    char name[FEDGE_SWEEP_MAX_NAME];
    char *to = folder;
    size_t size = fedge_sweep_name_of(sweep, combination, name);
    *to = '\0';
    if (size >= FEDGE_SWEEP_MAX_NAME)
        return size;
    size = 0;
    for (const char *at = name; *at; at++) {
        const char *text = *at == '/' ? "%2F" : *at == '%' ? "%25" : NULL;
        const size_t length = text ? strlen(text) : 1;
        if (size + length < FEDGE_SWEEP_MAX_NAME) {
            memcpy(to, text ? text : at, length);
            to += length;
        }
        size += length;
    }
    *to = '\0';
    return size;
}

char *fedge_sweep_folder_name(const fedge_sweep *sweep, uint32_t combination, uint32_t seed,
                              char name[FEDGE_SWEEP_MAX_FOLDER])
{
    char folder[FEDGE_SWEEP_MAX_NAME];
    (void)fedge_sweep_folder_of(sweep, combination, folder);
    (void)snprintf(name, FEDGE_SWEEP_MAX_FOLDER, "%s%s" SEED "=%" PRIu32, folder,
                   folder[0] ? "," : "", seed + 1);
    return name;
}

char *fedge_sweep_group_name(const fedge_sweep *sweep, uint32_t combination,
                             char name[FEDGE_SWEEP_MAX_FOLDER])
{
    char folder[FEDGE_SWEEP_MAX_NAME];
    (void)fedge_sweep_folder_of(sweep, combination, folder);
    (void)snprintf(name, FEDGE_SWEEP_MAX_FOLDER, "%s%s" SEED "=%s", folder, folder[0] ? "," : "",
                   sweep->num_seeds > 1 ? "*" : "1");
    return name;
}

/* ---- one combination ------------------------------------------------------------------------- */

/* The member [key] of [object], in any of its spellings. */
static cJSON *find_member(const cJSON *object, const fedge_json_field *fields, const char *key)
{
    const fedge_json_field *field = fedge_json_field_of(fields, key);
    cJSON *member = NULL;
    cJSON_ArrayForEach(member, object)
    {
        if (strcmp(member->string, key) == 0 ||
            (field && field == fedge_json_field_of(fields, member->string)))
            return member;
    }
    return NULL;
}

/* Sets the value at [path], and makes missing objects. The job is checked later. */
static bool set_key(cJSON *job, const char *path, const char *text)
{
    char key[128];
    cJSON *at = job;
    const char *dot;
    const fedge_json_field *fields = fedge_job_fields;
    while ((dot = strchr(path, '.'))) {
        if ((size_t)(dot - path) >= sizeof(key))
            return false;
        memcpy(key, path, (size_t)(dot - path));
        key[dot - path] = '\0';
        cJSON *next = find_member(at, fields, key);
        at = next ? next : cJSON_AddObjectToObject(at, key);
        const fedge_json_field *field = fedge_json_field_of(fields, key);
        fields = field ? field->fields : NULL;
        path = dot + 1;
        if (!cJSON_IsObject(at))
            return false;
    }
    /* JSON as a whole, or else a text. */
    cJSON *value = cJSON_ParseWithOpts(text, NULL, true);
    value = value ? value : cJSON_CreateString(text);
    cJSON *before = find_member(at, fields, path);
    if (before)
        cJSON_Delete(cJSON_DetachItemViaPointer(at, before));
    return cJSON_AddItemToObject(at, path, value);
}

/* Does [path] exist? */
static bool has_key(const cJSON *job, const char *path)
{
    char part[FEDGE_SWEEP_MAX_TEXT];
    const fedge_json_field *fields = fedge_job_fields;
    while (job && next_part(&path, part)) {
        const fedge_json_field *field = fedge_json_field_of(fields, part);
        job = find_member(job, fields, part);
        fields = field ? field->fields : NULL;
    }
    return job != NULL;
}

static bool is_json(const char *text)
{
    cJSON *value = cJSON_ParseWithOpts(text, NULL, true);
    cJSON_Delete(value);
    return value != NULL;
}

/* Is it a setting of the job, not an option of the simulation? */
static bool is_of_job(const sweep_axis *axis)
{
    return strcmp(axis->key, PARTITION) != 0 && strcmp(axis->key, CLIENTS) != 0 &&
           strcmp(axis->key, ROUNDS) != 0;
}

/* Names the optimizer, SGD by default, which a momentum needs. */
static bool name_optimizer(cJSON *job)
{
    const cJSON *training = cJSON_GetObjectItemCaseSensitive(job, "training");
    return !training || cJSON_HasObjectItem(training, "optimizer") ||
           set_key(job, "training.optimizer.type", "SGD");
}

/* The path that an axis sets in a combination: strategy=NAME sets the strategy's type, strategy={…}
 * all of it. */
static job_path target_of(const fedge_sweep *sweep, uint32_t combination, uint32_t at)
{
    job_path path = path_of(sweep->axes[at].key);
    if (strcmp(path.text, STRATEGY_PATH) == 0 &&
        fedge_sweep_value_of(sweep, combination, at)[0] == '{')
        *strrchr(path.text, '.') = '\0';
    return path;
}

/* The axis that sets an object around [path]; NULL: none. */
static const char *find_outer(const fedge_sweep *sweep, uint32_t combination, const char *path)
{
    for (uint32_t i = 0; i < sweep->num_axes; i++) {
        const job_path outer = target_of(sweep, combination, i);
        const size_t size = strlen(outer.text);
        if (strncmp(path, outer.text, size) == 0 && path[size] == '.')
            return sweep->axes[i].key;
    }
    return NULL;
}

static fedge_status set_axis(const fedge_sweep *sweep, uint32_t combination, uint32_t at,
                             const char *path, cJSON *job, fedge_error *err)
{
    const char *value = fedge_sweep_value_of(sweep, combination, at);
    const char *outer = find_outer(sweep, combination, path);
    if (outer && has_key(job, path)) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "--sweep: '%.80s' is set twice: it is in a value of '%.80s' too",
                          sweep->axes[at].key, outer);
    }
    if (value[0] == '{' && !is_json(value)) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "--sweep: %.80s=%.160s begins with a brace and is not JSON: keys and "
                          "texts need double quotes, and the shell needs single ones around it",
                          sweep->axes[at].key, value);
    }
    if ((strcmp(path, MOMENTUM_PATH) == 0 && !name_optimizer(job)) || !set_key(job, path, value)) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "--sweep: cannot set '%.80s': a part of it is not an object in the job",
                          path);
    }
    return FEDGE_OK;
}

static uint32_t depth_of(const char *path)
{
    uint32_t depth = 0;
    for (; *path; path++)
        depth += *path == '.';
    return depth;
}

/* Outer objects first, since setting one removes the parts that were set before. */
static fedge_status apply_to_job(const fedge_sweep *sweep, uint32_t combination, cJSON *job,
                                 fedge_error *err)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < sweep->num_axes; i++)
        left += is_of_job(&sweep->axes[i]);
    for (uint32_t depth = 0; left > 0; depth++) {
        for (uint32_t i = 0; i < sweep->num_axes; i++) {
            const job_path path = target_of(sweep, combination, i);
            if (!is_of_job(&sweep->axes[i]) || depth_of(path.text) != depth)
                continue;
            FEDGE_TRY(set_axis(sweep, combination, i, path.text, job, err));
            left--;
        }
    }
    return FEDGE_OK;
}

static fedge_status apply(const fedge_sweep *sweep, uint32_t combination, cJSON *job,
                          fedge_simulate_options *options, fedge_error *err)
{
    for (uint32_t i = 0; i < sweep->num_axes; i++) {
        const char *value = fedge_sweep_value_of(sweep, combination, i);
        const char *key = sweep->axes[i].key;
        if (strcmp(key, PARTITION) == 0) {
            options->partition = value;
        } else if (strcmp(key, CLIENTS) == 0) {
            FEDGE_TRY(fedge_option_count("sweep clients", value, FEDGE_SIMULATE_MAX_CLIENTS,
                                         &options->num_clients, err));
        } else if (strcmp(key, ROUNDS) == 0) {
            FEDGE_TRY(fedge_option_count("sweep rounds", value, FEDGE_SIMULATE_MAX_ROUNDS,
                                         &options->num_rounds, err));
        }
    }
    return apply_to_job(sweep, combination, job, err);
}

fedge_status fedge_sweep_make(const fedge_sweep *sweep, uint32_t combination,
                              fedge_simulate_options *options, char **text, fedge_error *err)
{
    *options = *sweep->options;
    options->backend = sweep->backend ? sweep->backend : options->backend;
    *text = NULL;
    cJSON *job = cJSON_ParseWithLength(sweep->job_text, sweep->job_size);
    if (!cJSON_IsObject(job)) {
        fedge_job *none = NULL;
        cJSON_Delete(job);
        const fedge_status status = fedge_strategy_job_parse_with(
            fedge_plugin_readers(sweep->options->plugin), sweep->job_text, sweep->job_size,
            sweep->options->job, &none, err);
        fedge_job_free(none);
        return status == FEDGE_OK
                   ? fedge_fail(err, FEDGE_CORRUPT, "%s is not a JSON object", sweep->options->job)
                   : status;
    }
    fedge_status status;
    FEDGE_TRY_OR(apply(sweep, combination, job, options, err), done);
    *text = fedge_json_keep_digits(job) ? cJSON_Print(job) : NULL;
    status = *text ? FEDGE_OK : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a job");
done:
    cJSON_Delete(job);
    return status;
}
