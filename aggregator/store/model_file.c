#include "aggregator/store/model_file.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/store/disk.h"
#include "aggregator/store/run.h"
#include "edge/core/os.h"
#include "edge/core/version.h"
#include "edge/data/formats/safetensors.h"
#include "edge/plan/client_hooks.h"
#include "edge/plan/plan_fields.h"
#include "secure/crypto/sha256.h"

#define METADATA "__metadata__"
#define PREFIX_SIZE 8 /* the header's size as u64, little-endian */
#define ALIGNMENT 8   /* alignment of the data within the file */

static uint64_t header_size(const uint8_t *file)
{
    uint64_t size = 0;
    for (size_t i = 0; i < PREFIX_SIZE; i++)
        size |= (uint64_t)file[i] << (8 * i);
    return size;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Writes the fewest digits that read back as the same number; an unknown one is left out. */
static bool add_number(cJSON *to, const char *key, double value)
{
    char text[32];
    if (!isfinite(value))
        return true;
    for (int digits = 6; digits <= 17; digits++) {
        (void)snprintf(text, sizeof(text), "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    return cJSON_AddStringToObject(to, key, text) != NULL;
}

static fedge_status add_fields(cJSON *to, const char *key, const fedge_json_field *fields,
                               const void *record, fedge_error *err)
{
    char *text = NULL;
    size_t size = 0;
    fedge_status status = fedge_json_print(fields, record, &text, &size, err);
    if (status == FEDGE_OK && !cJSON_AddStringToObject(to, key, text))
        status = fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a model's metadata");
    free(text);
    return status;
}

/* How data enter the model, and what its outputs mean. */
static fedge_status add_data(cJSON *to, const fedge_plan *plan, fedge_error *err)
{
    const fedge_targets_spec *targets = &plan->data.targets;
    if (!plan->has_data)
        return FEDGE_OK;
    FEDGE_TRY(add_fields(to, "normalisation", fedge_normalisation_fields, &plan->data, err));
#if FEDGE_WITH_TARGETS
    if (targets->kind == FEDGE_TARGETS_NUMBERS)
        return add_fields(to, "targets", fedge_targets_fields, targets, err);
#endif
    (void)targets;
    return FEDGE_OK;
}

/* {"format":"pt",…}, malloc'ed. */
static fedge_status make_metadata(const fedge_plan *plan, const fedge_model_facts *facts,
                                  char **text, fedge_error *err)
{
    char round[16];
    cJSON *to = cJSON_CreateObject();
    (void)snprintf(round, sizeof(round), "%" PRIu32, facts->round);
    bool made = cJSON_AddStringToObject(to, "format", "pt") &&
                cJSON_AddStringToObject(to, "fedge", FEDGE_VERSION) &&
                cJSON_AddStringToObject(to, "job", plan->name) &&
                (!facts->run_id || cJSON_AddStringToObject(to, "run", facts->run_id)) &&
                cJSON_AddStringToObject(to, "round", round) &&
                cJSON_AddStringToObject(to, "model_sha256", facts->model) &&
                add_number(to, "loss", facts->loss) &&
                add_number(to, "accuracy", facts->accuracy) &&
                add_number(to, "validation_loss", facts->validation_loss) &&
                add_number(to, "validation_accuracy", facts->validation_accuracy);
    fedge_status status = made ? add_data(to, plan, err) : FEDGE_OK;
    *text = made && status == FEDGE_OK ? cJSON_PrintUnformatted(to) : NULL;
    cJSON_Delete(to);
    return *text || status != FEDGE_OK
               ? status
               : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a model's metadata");
}

/* Inserts [metadata] before the tensors of header[0, size), pads it and puts its size before it, as
 * the file has it. *out is malloc'ed, also on failure. */
static fedge_status add_metadata(const char *header, size_t size, const char *metadata,
                                 uint8_t **out, size_t *out_size, fedge_error *err)
{
    while (size > 0 && header[size - 1] == ' ')
        size--;
    const bool has_tensors = size > 2;
    const size_t capacity = size + strlen(metadata) + sizeof("{\"" METADATA "\":,") + ALIGNMENT;
    char *text = malloc(PREFIX_SIZE + capacity);
    if (!text)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a header of %zu bytes", capacity);
    size_t used = (size_t)snprintf(text + PREFIX_SIZE, capacity, "{\"" METADATA "\":%s%s%.*s",
                                   metadata, has_tensors ? "," : "", (int)(size - 1), header + 1);
    while (used % ALIGNMENT)
        text[PREFIX_SIZE + used++] = ' ';
    for (size_t i = 0; i < PREFIX_SIZE; i++)
        text[i] = (char)((uint64_t)used >> (8 * i) & 0xff);
    *out = (uint8_t *)text;
    *out_size = PREFIX_SIZE + used;
    return used <= FEDGE_SAFETENSORS_MAX_HEADER
               ? FEDGE_OK
               : fedge_fail(err, FEDGE_TOO_BIG,
                            "the model's header would have %zu bytes; the limit is %zu", used,
                            FEDGE_SAFETENSORS_MAX_HEADER);
}

fedge_status fedge_model_file_write(const char *path, const fedge_plan *plan,
                                    const fedge_model_facts *facts, const uint8_t *model,
                                    size_t size, fedge_error *err)
{
    const uint64_t header = size >= PREFIX_SIZE + 2 ? header_size(model) : 0;
    if (header < 2 || header > size - PREFIX_SIZE || model[PREFIX_SIZE] != '{') {
        return fedge_fail(err, FEDGE_CORRUPT, "%s: what is to be written is not a safetensors file",
                          path);
    }
    char hash[FEDGE_HASH_TEXT];
    fedge_sha256_text(model, size, hash);
    if (strcmp(hash, facts->model) != 0) {
        return fedge_fail(err, FEDGE_CORRUPT,
                          "%s: what is to be written has SHA-256 %s, not %s: it was damaged", path,
                          hash, facts->model);
    }
    char *metadata = NULL;
    uint8_t *head = NULL;
    size_t head_size = 0;
    fedge_status status;
    FEDGE_TRY_OR(make_metadata(plan, facts, &metadata, err), end);
    FEDGE_TRY_OR(add_metadata((const char *)model + PREFIX_SIZE, (size_t)header, metadata, &head,
                              &head_size, err),
                 end);
    const size_t data = PREFIX_SIZE + (size_t)header;
    const fedge_os_part parts[] = {{head, head_size}, {model + data, size - data}};
    status = fedge_os_write_parts(path, parts, 2, 0644, err);
end:
    free(metadata);
    free(head);
    return status;
}

fedge_status fedge_model_file_write_clusters(const char *dir, const fedge_plan *plan,
                                             const fedge_model_facts *facts, const uint8_t *others,
                                             size_t size, fedge_error *err)
{
    const uint32_t num = fedge_plan_is_clustered(plan) ? fedge_plan_num_broadcast(plan) : 0;
    for (uint32_t i = 0; i < num; i++) {
        char name[FEDGE_RUN_RESULT_NAME], path[FEDGE_MAX_PATH];
        const uint8_t *file = others + i * (size / num);
        fedge_model_facts cluster_facts = {.run_id = facts->run_id,
                                           .round = facts->round,
                                           .loss = NAN,
                                           .accuracy = NAN,
                                           .validation_loss = NAN,
                                           .validation_accuracy = NAN};
        fedge_sha256_text(file, size / num, cluster_facts.model);
        (void)snprintf(name, sizeof(name), FEDGE_RUN_CLUSTER_MODEL, i + 1);
        FEDGE_TRY(fedge_path_join(dir, name, path, err));
        FEDGE_TRY(fedge_model_file_write(path, plan, &cluster_facts, file, size / num, err));
    }
    return FEDGE_OK;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Overwrites the end of the file's header with the plain header of [schema], so that it lies right
 * before [data], and hashes both. */
static fedge_status name_tensors(uint8_t *file, size_t size, const uint8_t *data,
                                 const fedge_schema *schema, char hash[FEDGE_HASH_TEXT],
                                 fedge_error *err)
{
    const size_t before = (size_t)(data - file), data_size = size - before;
    size_t plain = 0;
    FEDGE_TRY(fedge_safetensors_size(schema, &plain, err));
    const size_t head = plain - data_size;
    if (head > before)
        return fedge_fail(err, FEDGE_UNSUPPORTED, "its header is shorter than fedge writes it");
    FEDGE_TRY(fedge_safetensors_write_header(schema, file + before - head, head, err));
    fedge_sha256_text(file + before - head, plain, hash);
    return FEDGE_OK;
}

static fedge_status read_file(uint8_t *file, size_t size, fedge_model_report *report,
                              fedge_error *err)
{
    const uint8_t *data = NULL;
    fedge_schema schema;
    fedge_tensor_spec *tensors = malloc(FEDGE_MAX_TENSORS * sizeof(*tensors));
    if (!tensors)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %d tensors", FEDGE_MAX_TENSORS);
    fedge_schema_init(&schema, tensors, FEDGE_MAX_TENSORS);
    fedge_status status = fedge_safetensors_read_schema(file, size, &schema, &data, err);
    if (status == FEDGE_OK) { /* the file's header is valid JSON */
        cJSON *json = cJSON_ParseWithLength((const char *)file + PREFIX_SIZE,
                                            (size_t)(data - file) - PREFIX_SIZE);
        report->metadata = cJSON_DetachItemFromObjectCaseSensitive(json, METADATA);
        cJSON_Delete(json);
        report->num_tensors = schema.num_tensors;
        for (uint32_t i = 0; i < schema.num_tensors; i++)
            report->num_values += schema.tensors[i].count;
        status = name_tensors(file, size, data, &schema, report->model, err);
    }
    free(tensors);
    return status;
}

fedge_status fedge_model_file_read(const char *path, fedge_model_report *report, fedge_error *err)
{
    uint8_t *file = NULL;
    size_t size = 0;
    *report = (fedge_model_report){.metadata = NULL};
    FEDGE_TRY(fedge_os_read_file(path, FEDGE_SAFETENSORS_MAX_SIZE, &file, &size, err));
    const fedge_status status = read_file(file, size, report, err);
    free(file);
    if (status != FEDGE_OK) {
        fedge_model_report_fini(report);
        return fedge_error_prefix(err, status, "%s", path);
    }
    return FEDGE_OK;
}

void fedge_model_report_fini(fedge_model_report *report)
{
    cJSON_Delete(report->metadata);
    *report = (fedge_model_report){.metadata = NULL};
}
