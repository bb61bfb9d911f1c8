#include "aggregator/simulate/output/run_summary.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

#include "aggregator/store/json_file.h"
#include "edge/core/message.h"

#define CRC "_crc32" /* suffix of a setting: the CRC-32 of the file that the setting names */
#define EVALUATE_EVERY "evaluate_every"
#define FILE_SPEC "file:"
#define DATA "data" /* read from the client's file */
#define TEST "test"

/* ---- writing --------------------------------------------------------------------------------- */

static fedge_status sum_file(const char *path, uint32_t *crc, fedge_error *err)
{
    uint8_t part[4096];
    size_t got = 0;
    FILE *file = fopen(path, "rb");
    if (!file)
        return fedge_fail(err, FEDGE_NOT_FOUND, "%.200s cannot be opened", path);
    *crc = 0;
    while ((got = fread(part, 1, sizeof(part), file)) > 0)
        *crc = fedge_crc32(*crc, part, got);
    const bool failed = ferror(file) != 0;
    (void)fclose(file);
    return failed ? fedge_fail(err, FEDGE_IO, "%.200s cannot be read", path) : FEDGE_OK;
}

/* Adds a text, and the CRC-32 of the file [path] that it names (NULL: none); nothing where [value]
 * is NULL. */
static fedge_status add_text(cJSON *json, const char *key, const char *value, const char *path,
                             fedge_error *err)
{
    char crc_key[32];
    uint32_t crc = 0;
    if (!value)
        return FEDGE_OK;
    if (path)
        FEDGE_TRY(sum_file(path, &crc, err));
    (void)snprintf(crc_key, sizeof(crc_key), "%s" CRC, key);
    if (!fedge_json_add_text(json, key, value) ||
        (path && !cJSON_AddNumberToObject(json, crc_key, crc)))
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the settings");
    return FEDGE_OK;
}

static bool is_file(const char *value)
{
    return value && strncmp(value, FILE_SPEC, strlen(FILE_SPEC)) == 0;
}

static fedge_status add_profiles(cJSON *json, const fedge_client_profiles_settings *profiles,
                                 fedge_error *err)
{
    const char *online = profiles->availability;
    FEDGE_TRY(add_text(json, "compute", profiles->compute, NULL, err));
    FEDGE_TRY(add_text(json, "bandwidth", profiles->bandwidth, NULL, err));
    FEDGE_TRY(add_text(json, "availability", online,
                       is_file(online) ? online + strlen(FILE_SPEC) : NULL, err));
    FEDGE_TRY(add_text(json, "trace", profiles->trace, profiles->trace, err));
    if (profiles->failure != 0.0 && !cJSON_AddNumberToObject(json, "failure", profiles->failure))
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the settings");
    return FEDGE_OK;
}

static bool add_sums(cJSON *json, const fedge_simulation_settings *settings)
{
    return (!settings->has_data_sum ||
            cJSON_AddNumberToObject(json, DATA CRC, settings->data_sum)) &&
           (!settings->has_test_sum || cJSON_AddNumberToObject(json, TEST CRC, settings->test_sum));
}

static fedge_status add_settings(cJSON *json, const fedge_simulation_settings *settings,
                                 fedge_error *err)
{
    const bool made =
        cJSON_AddNumberToObject(json, "format", 1) &&
        fedge_run_summary_add_seed(json, "seed", settings->seed) &&
        cJSON_AddNumberToObject(json, "clients", settings->num_clients) &&
        fedge_json_add_text(json, "partition", settings->partition) &&
        fedge_run_summary_add_seed(json, "partition_seed", settings->partition_seed) &&
        cJSON_AddNumberToObject(json, "validation_fraction", settings->validation_fraction) &&
        (settings->validation_split == 0.0 ||
         cJSON_AddNumberToObject(json, "validation_split", settings->validation_split)) &&
        cJSON_AddNumberToObject(json, "num_server_rounds", settings->num_rounds) &&
        cJSON_AddNumberToObject(json, EVALUATE_EVERY, settings->evaluate_every) &&
        add_sums(json, settings);
    if (!made)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the settings");
    FEDGE_TRY(add_profiles(json, &settings->profiles, err));
    FEDGE_TRY(add_text(json, "engine", settings->backend, NULL, err));
    FEDGE_TRY(add_text(json, "attack", settings->attack, NULL, err));
    return settings->draws_ties ? add_text(json, "first_of_equals", "drawn", NULL, err) : FEDGE_OK;
}

fedge_status fedge_settings_text(const fedge_simulation_settings *settings, char **text,
                                 fedge_error *err)
{
    cJSON *json = cJSON_CreateObject();
    const fedge_status status = add_settings(json, settings, err);
    *text = status == FEDGE_OK ? cJSON_PrintUnformatted(json) : NULL;
    cJSON_Delete(json);
    return status == FEDGE_OK && !*text
               ? fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the settings")
               : status;
}

/* ---- comparing ------------------------------------------------------------------------------- */

/* May the two differ, since both are paths of a file whose CRC-32 is compared? */
static bool names_file(const cJSON *a, const cJSON *b)
{
    return strcmp(a->string, "trace") == 0 ||
           ((strcmp(a->string, "partition") == 0 || strcmp(a->string, "availability") == 0) &&
            is_file(cJSON_GetStringValue(a)) && is_file(cJSON_GetStringValue(b)));
}

static bool is_crc(const char *key)
{
    const size_t size = strlen(key), end = strlen(CRC);
    return size > end && strcmp(key + size - end, CRC) == 0;
}

/* Says which file, or which data, has another checksum. */
static fedge_status fail_replaced(const char *path, const char *key, fedge_error *err)
{
    if (strcmp(key, DATA CRC) == 0 || strcmp(key, TEST CRC) == 0) {
        return fedge_fail(err, FEDGE_MISMATCH,
                          "%s differs: --resume needs the same data; the %s has other "
                          "contents now: restore the old ones, or start again in another --out",
                          path, strcmp(key, DATA CRC) == 0 ? "training data" : "test set");
    }
    return fedge_fail(err, FEDGE_MISMATCH,
                      "%s differs: --resume needs the same settings; the file of "
                      "--%.*s has other contents now",
                      path, (int)(strlen(key) - strlen(CRC)), key);
}

static fedge_status fail_differs(const char *path, const char *key, const cJSON *was,
                                 const cJSON *is, fedge_error *err)
{
    char *before = was ? cJSON_PrintUnformatted(was) : NULL;
    char *now = is ? cJSON_PrintUnformatted(is) : NULL;
    fedge_status status =
        was && is && is_crc(key)
            ? fail_replaced(path, key, err)
            : fedge_fail(err, FEDGE_MISMATCH,
                         "%s differs: --resume needs the same settings; %s was "
                         "%.120s, and now it is %.120s",
                         path, key, before ? before : "not given", now ? now : "not given");
    cJSON_free(before);
    cJSON_free(now);
    return status;
}

/* Is each setting of [a] in [b]? [swapped]: [b] is the stored one, perhaps of an older program,
 * which had neither checksums nor evaluate_every. */
static fedge_status check_each(const char *path, const cJSON *a, const cJSON *b, bool swapped,
                               fedge_error *err)
{
    const cJSON *mine = NULL;
    cJSON_ArrayForEach(mine, a)
    {
        const cJSON *theirs = cJSON_GetObjectItemCaseSensitive(b, mine->string);
        if (swapped && !theirs &&
            (is_crc(mine->string) || strcmp(mine->string, EVALUATE_EVERY) == 0))
            continue;
        if (!theirs || (!names_file(mine, theirs) && !cJSON_Compare(mine, theirs, true))) {
            return fail_differs(path, mine->string, swapped ? theirs : mine,
                                swapped ? mine : theirs, err);
        }
    }
    return FEDGE_OK;
}

fedge_status fedge_settings_check(const char *path, const char *stored, const char *present,
                                  fedge_error *err)
{
    cJSON *before = cJSON_Parse(stored), *now = cJSON_Parse(present);
    fedge_status status;
    FEDGE_TRY_OR(
        cJSON_IsObject(before) && cJSON_IsObject(now)
            ? check_each(path, before, now, false, err)
            : fedge_fail(err, FEDGE_CORRUPT, "%s is not a JSON object: choose another --out", path),
        done);
    status = check_each(path, now, before, true, err);
done:
    cJSON_Delete(before);
    cJSON_Delete(now);
    return status;
}
