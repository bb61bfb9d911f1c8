#include "edge/site/site.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/os.h"
#include "edge/plan/plan.h"
#include "edge/site/client_memory.h"

#define AT FEDGE_JSON_AT

/* --- fields ----------------------------------------------------------------------------------- */

/* "iid", "dirichlet:0.5", "file:clients.csv" … */
static fedge_status read_partition(const fedge_json *json, const cJSON *node, void *record,
                                   fedge_error *err)
{
    fedge_site_data *data = record;
    char text[FEDGE_PARTITION_MAX_TEXT];
    fedge_error cause = {0};
    FEDGE_TRY(fedge_json_text(json, node, 1, text, sizeof(text), err));
    if (fedge_partition_parse(text, &data->partition, &cause) != FEDGE_OK)
        return fedge_json_fail(json, node, NULL, err, "%s", cause.message);
    data->has_partition = true;
    return FEDGE_OK;
}

static_assert(FEDGE_PARTITION_MAX_SOURCE == FEDGE_MAX_PATH, "file: has a path");

const fedge_json_field fedge_site_data_fields[] = {
    {"values", NULL, FEDGE_JSON_LINES, FEDGE_JSON_REQUIRED, AT(fedge_site_data, values), .min = 1,
     .max = FEDGE_MAX_PATH - 1},
    {.key = "labels",
     .kind = FEDGE_JSON_LINES,
     AT(fedge_site_data, labels),
     .max = FEDGE_MAX_PATH - 1},
    {"validation-fraction", "validation_fraction", FEDGE_JSON_F64,
     AT(fedge_site_data, validation_fraction), .min = 0, .max = 0.9},
    {"partition-seed", "partition_seed", FEDGE_JSON_U64, AT(fedge_site_data, partition.seed)},
    {"partition-id", "partition_id", FEDGE_JSON_U32, FEDGE_JSON_PRESENCE,
     AT(fedge_site_data, partition_id), .extra = offsetof(fedge_site_data, has_partition_id),
     .max = FEDGE_SITE_MAX_PARTITIONS},
    {"num-partitions", "num_partitions", FEDGE_JSON_U32, AT(fedge_site_data, num_partitions),
     .min = 1, .max = FEDGE_SITE_MAX_PARTITIONS},
    {.key = "partition", .kind = FEDGE_JSON_CUSTOM, .read = read_partition},
    FEDGE_JSON_END,
};

static fedge_status read_conditions(const fedge_json *json, const cJSON *node, void *record,
                                    fedge_error *err)
{
    fedge_conditions *conditions = &((fedge_site *)record)->conditions;
    fedge_error cause = {0};
    fedge_status status = fedge_json_read(json, node, fedge_conditions_fields, conditions, err);
    conditions->given = true;
    if (status == FEDGE_OK && fedge_conditions_check(conditions, &cause) != FEDGE_OK)
        status = fedge_json_fail(json, node, "hours", err, "%s", cause.message);
    return status;
}

/* Jobs may write f32 for the first codec, none. */
static const char *codec_word(unsigned i)
{
    return i < FEDGE_CODEC_COUNT ? fedge_codec_name(i) : "f32";
}

const fedge_json_field fedge_policy_fields[] = {
    {"max-ram", "max_ram", FEDGE_JSON_U64, AT(fedge_site, max_ram_bytes), .min = 1,
     .max = (double)FEDGE_JSON_MAX_INTEGER},
    {.key = "codecs",
     .kind = FEDGE_JSON_ENUMS,
     AT(fedge_site, allowed_codecs),
     .name_of = codec_word,
     .num_names = FEDGE_CODEC_COUNT + 1},
    {"max-local-epochs", "max_local_epochs", FEDGE_JSON_U32, AT(fedge_site, max_local_epochs),
     .min = 1, .max = UINT32_MAX},
    {.key = "jobs",
     .kind = FEDGE_JSON_TEXT,
     .flags = FEDGE_JSON_LIST,
     FEDGE_JSON_ARRAY(fedge_site, jobs, num_jobs),
     .min = 1,
     .min_count = 1},
    {"hang-up", "hang_up", FEDGE_JSON_BOOL, AT(fedge_site, hangs_up)},
    {"show-errors", "show_errors", FEDGE_JSON_BOOL, AT(fedge_site, shows_errors)},
    {.key = "conditions", .kind = FEDGE_JSON_CUSTOM, .read = read_conditions},
    FEDGE_JSON_END,
};

/* An object of data sets by name. */
static fedge_status read_data(const fedge_json *json, const cJSON *node, void *record,
                              fedge_error *err)
{
    fedge_site *site = record;
    if (!cJSON_IsObject(node))
        return fedge_json_fail(json, node, NULL, err, "must be an object, {…}");
    if (cJSON_GetArraySize(node) > FEDGE_SITE_MAX_DATA) {
        return fedge_json_fail(json, node, NULL, err, "must have at most %d data sets, not %d",
                               FEDGE_SITE_MAX_DATA, cJSON_GetArraySize(node));
    }
    const cJSON *child = NULL;
    cJSON_ArrayForEach(child, node)
    {
        fedge_site_data *data = &site->data[site->num_data];
        size_t length = strlen(child->string);
        if (length == 0 || length >= sizeof(data->name)) {
            return fedge_json_fail(json, child, NULL, err,
                                   "a data set's name must have 1 to %zu bytes",
                                   sizeof(data->name) - 1);
        }
        FEDGE_TRY(fedge_json_read(json, child, fedge_site_data_fields, data, err));
        memcpy(data->name, child->string, length + 1);
        data->has_partition_seed = cJSON_GetObjectItemCaseSensitive(child, "partition-seed") ||
                                   cJSON_GetObjectItemCaseSensitive(child, "partition_seed");
        if (data->has_partition_id != (data->num_partitions > 0) ||
            (data->has_partition_id &&
             (!data->has_partition || data->partition_id >= data->num_partitions))) {
            return fedge_json_fail(json, child, NULL, err,
                                   "give partition, num-partitions, and a partition-id from 0 to "
                                   "num-partitions - 1, or leave out both numbers");
        }
        const bool has_file = data->has_partition && data->partition.scheme == FEDGE_PARTITION_FILE;
        if (!fedge_paths_resolve(json->options.name, data->values) ||
            !fedge_paths_resolve(json->options.name, data->labels) ||
            (has_file && !fedge_path_resolve(json->options.name, data->partition.source))) {
            return fedge_json_fail(json, child, NULL, err,
                                   "a path is over %d bytes with the folder of this file before "
                                   "it, or all are over %d",
                                   FEDGE_MAX_PATH - 1, FEDGE_MAX_PATHS - 1);
        }
        site->num_data++;
    }
    return FEDGE_OK;
}

const fedge_json_field fedge_site_fields[] = {
    {.key = "$schema", .kind = FEDGE_JSON_IGNORED},
    {.key = "servers",
     .kind = FEDGE_JSON_LINES,
     AT(fedge_site, servers),
     .min = 1,
     .max = FEDGE_MAX_SERVER - 1},
    {.key = "data", .kind = FEDGE_JSON_CUSTOM, .read = read_data},
    {.key = "policy", .kind = FEDGE_JSON_OBJECT, .fields = fedge_policy_fields},
    FEDGE_JSON_END,
};

/* --- files ------------------------------------------------------------------------------------ */

fedge_status fedge_site_parse(const char *text, size_t size, const char *name, fedge_site **site,
                              fedge_error *err)
{
    *site = NULL;
    /* The number of values is limited only by the file's size. */
    const fedge_json_options options = {.name = name,
                                        .lines = true,
                                        .strict = true,
                                        .status = FEDGE_INVALID_ARGUMENT,
                                        .max_size = FEDGE_SITE_MAX_SIZE,
                                        .max_depth = FEDGE_JSON_WIRE_DEPTH,
                                        .max_values = FEDGE_SITE_MAX_SIZE};
    fedge_json json;
    FEDGE_TRY(fedge_json_open(&json, text, size, &options, err));
    fedge_site *made = calloc(1, sizeof(*made));
    fedge_status status = !made ? fedge_fail(err, FEDGE_NO_MEMORY, "%s: no memory for it", name)
                                : fedge_json_read(&json, json.root, fedge_site_fields, made, err);
    fedge_json_close(&json);
    if (status != FEDGE_OK) {
        free(made);
        return status;
    }
    made->allowed_codecs |= made->allowed_codecs >> FEDGE_CODEC_COUNT & 1u;
    *site = made;
    return FEDGE_OK;
}

fedge_status fedge_site_load(const char *path, fedge_site **site, fedge_error *err)
{
    *site = NULL;
    uint8_t *text = NULL;
    size_t size = 0;
    FEDGE_TRY(fedge_os_read_file(path, FEDGE_SITE_MAX_SIZE, &text, &size, err));
    const fedge_status status = fedge_site_parse((const char *)text, size, path, site, err);
    free(text);
    return status;
}

void fedge_site_free(fedge_site *site)
{
    free(site);
}

const fedge_site_data *fedge_site_find(const fedge_site *site, const char *name)
{
    for (uint32_t i = 0; i < site->num_data; i++) {
        if (strcmp(site->data[i].name, name) == 0)
            return &site->data[i];
    }
    return NULL;
}

/* --- policy ----------------------------------------------------------------------------------- */

static bool allows_job(const fedge_site *site, const char *name)
{
    bool allowed = site->num_jobs == 0;
    for (uint32_t i = 0; i < site->num_jobs && !allowed; i++)
        allowed = strcmp(site->jobs[i], name) == 0;
    return allowed;
}

static const fedge_memory_row *largest(const fedge_client_memory *memory,
                                       const fedge_memory_row *but)
{
    const fedge_memory_row *largest = NULL;
    for (int i = 0; i < FEDGE_MEMORY_PARTS; i++) {
        const fedge_memory_row *row = &memory->rows[i];
        if (row != but && (!largest || row->bytes > largest->bytes))
            largest = row;
    }
    return largest;
}

static fedge_status check_memory(const fedge_site *site, const fedge_plan *plan, fedge_error *err)
{
    fedge_client_memory memory;
    fedge_status status = fedge_client_memory_of(plan, &memory, err);
    if (status != FEDGE_OK || site->max_ram_bytes == 0 || memory.total <= site->max_ram_bytes)
        return status;
    const fedge_memory_row *first = largest(&memory, NULL), *second = largest(&memory, first);
    return fedge_fail(err, FEDGE_DENIED,
                      "the plan needs %" PRIu64
                      " bytes to train, this site's policy.max-ram is %" PRIu64
                      "; most of it for %s, %" PRIu64 " (%s), and %s, %" PRIu64 " (%s)",
                      memory.total, site->max_ram_bytes, first->name, first->bytes, first->remedy,
                      second->name, second->bytes, second->remedy);
}

/* Whether the site allows every stage of [codec]. */
static bool allows_codec(const fedge_site *site, const fedge_codec *codec)
{
    for (unsigned i = 0; i < FEDGE_CODEC_COUNT; i++) {
        if (fedge_codec_has(codec, fedge_codec_name(i)) && !(site->allowed_codecs >> i & 1u))
            return site->allowed_codecs == 0;
    }
    return true;
}

/* Whether all codecs of the plan are allowed, for updates and models; otherwise [forbidden] is the
 * first that is not. */
static bool allows_codecs(const fedge_site *site, const fedge_update_spec *update,
                          const fedge_codec **forbidden)
{
    const fedge_codec *const whole[] = {&update->codec, &update->control, &update->buffers,
                                        &update->down};
    for (size_t i = 0; i < sizeof(whole) / sizeof(whole[0]); i++) {
        *forbidden = whole[i];
        if (!allows_codec(site, whole[i]))
            return false;
    }
    for (uint32_t i = 0; i < update->num_layers; i++) {
        const fedge_layer_codec *layer = &update->layers[i];
        *forbidden = !allows_codec(site, &layer->codec) ? &layer->codec : &layer->down;
        if (!allows_codec(site, *forbidden))
            return false;
    }
    return true;
}

/* The site's policy overrides any aggregator: it is checked on the device before data is opened.
 * What it does not mention is allowed, except that the plan's data set must be in the file. */
fedge_status fedge_site_check(const fedge_site *site, const fedge_plan *plan, fedge_error *err)
{
    char text[FEDGE_CODEC_TEXT];
    if (!allows_job(site, plan->name)) {
        return fedge_fail(
            err, FEDGE_DENIED,
            "job \"%s\" is not among this site's policy.jobs; add it there to allow it",
            plan->name);
    }
    const fedge_codec *forbidden;
    if (!allows_codecs(site, &plan->update, &forbidden)) {
        return fedge_fail(err, FEDGE_DENIED,
                          "the plan's codec is %s, which is not among this site's policy.codecs",
                          fedge_codec_text(forbidden, text));
    }
    if (site->max_local_epochs != 0 && plan->training.local_epochs > site->max_local_epochs) {
        return fedge_fail(err, FEDGE_DENIED,
                          "the plan wants %" PRIu32 " local epochs, this site's "
                          "policy.max-local-epochs is %" PRIu32,
                          plan->training.local_epochs, site->max_local_epochs);
    }
    return check_memory(site, plan, err);
}

fedge_status fedge_site_find_data(const fedge_site *site, const fedge_plan *plan,
                                  const fedge_site_data **data, fedge_error *err)
{
    *data = fedge_site_find(site, plan->data.name);
    return *data ? FEDGE_OK
                 : fedge_fail(err, FEDGE_NOT_FOUND,
                              "the plan's data set \"%s\" is not in this site's data; name its "
                              "files there",
                              plan->data.name);
}
