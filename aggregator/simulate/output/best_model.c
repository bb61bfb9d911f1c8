#include "aggregator/simulate/output/best_model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/store/disk.h"
#include "aggregator/store/model_file.h"
#include "edge/core/os.h"
#include "edge/data/formats/safetensors.h"
#include "secure/crypto/sha256.h"

void fedge_best_model_fini(fedge_best_model *best)
{
    free(best->values);
    *best = (fedge_best_model){.values = NULL};
}

fedge_status fedge_best_model_take(fedge_best_model *best, const fedge_plan *plan, uint32_t round,
                                   const float *values, fedge_error *err)
{
    const size_t count = plan->schema.num_elements;
    if (!best->values)
        best->values = malloc(count * sizeof(*values));
    if (!best->values) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to keep the best model's %zu values",
                          count);
    }
    memcpy(best->values, values, count * sizeof(*values));
    best->round = round;
    return FEDGE_OK;
}

/* ---- files ----------------------------------------------------------------------------------- */

static fedge_status path_of(const char *dir, uint32_t round, char path[FEDGE_MAX_PATH],
                            fedge_error *err)
{
    char name[48];
    (void)snprintf(name, sizeof(name), "checkpoints/best-%06" PRIu32 ".safetensors", round);
    return fedge_path_join(dir, name, path, err);
}

/* The file without metadata, malloc'ed. */
static fedge_status make_file(const fedge_best_model *best, const fedge_plan *plan, uint8_t **file,
                              size_t *size, fedge_error *err)
{
    FEDGE_TRY(fedge_safetensors_size(&plan->schema, size, err));
    uint8_t *bytes = malloc(*size);
    if (!bytes)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a model file of %zu bytes", *size);
    const fedge_status status =
        fedge_safetensors_write(&plan->schema, best->values, bytes, *size, err);
    if (status != FEDGE_OK) {
        free(bytes);
        return status;
    }
    *file = bytes;
    return FEDGE_OK;
}

fedge_status fedge_best_model_save(const fedge_best_model *best, const fedge_plan *plan,
                                   const char *dir, fedge_error *err)
{
    char path[FEDGE_MAX_PATH];
    uint8_t *file = NULL;
    size_t size = 0;
    if (best->round == best->saved)
        return FEDGE_OK;
    FEDGE_TRY(path_of(dir, best->round, path, err));
    FEDGE_TRY(make_file(best, plan, &file, &size, err));
    const fedge_status status = fedge_os_write_file(path, file, size, 0600, err);
    free(file);
    return status;
}

fedge_status fedge_best_model_prune(fedge_best_model *best, const char *dir, bool committed,
                                    fedge_error *err)
{
    char path[FEDGE_MAX_PATH];
    const uint32_t other = committed ? best->saved : best->round;
    if (best->round == best->saved)
        return FEDGE_OK;
    best->saved = committed ? best->round : best->saved;
    if (other == 0)
        return FEDGE_OK;
    FEDGE_TRY(path_of(dir, other, path, err));
    return fedge_os_remove_tree(path, err);
}

fedge_status fedge_best_model_load(fedge_best_model *best, const fedge_plan *plan, const char *dir,
                                   const fedge_selected *of, fedge_error *err)
{
    char path[FEDGE_MAX_PATH], hash[FEDGE_HASH_TEXT];
    uint8_t *file = NULL;
    size_t size = 0;
    fedge_status status;
    FEDGE_TRY(path_of(dir, of->round, path, err));
    FEDGE_TRY(fedge_os_read_file(path, FEDGE_SAFETENSORS_MAX_SIZE, &file, &size, err));
    fedge_sha256_text(file, size, hash);
    best->values =
        best->values ? best->values : malloc(plan->schema.num_elements * sizeof(*best->values));
    if (!best->values) {
        status = fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the best model");
    } else if (strcmp(hash, of->model) != 0) {
        status = fedge_fail(err, FEDGE_CORRUPT,
                            "%s is damaged: its SHA-256 is not that of round %" PRIu32 "'s model",
                            path, of->round);
    } else {
        status = fedge_safetensors_read(file, size, &plan->schema, best->values, err);
    }
    free(file);
    if (status == FEDGE_OK)
        best->round = best->saved = of->round;
    return status;
}

bool fedge_best_model_is_leftover(const char *name, uint32_t round)
{
    unsigned of = 0;
    int end = 0;
    if (sscanf(name, "best-%6u.safetensors%n", &of, &end) != 1 || end == 0)
        return false;
    return of != round || name[end] != '\0';
}

fedge_status fedge_best_model_export(const fedge_best_model *best, const fedge_plan *plan,
                                     const char *dir, const fedge_selected *of, fedge_error *err)
{
    char path[FEDGE_MAX_PATH];
    uint8_t *file = NULL;
    size_t size = 0;
    if (!best->values || best->round != of->round)
        return FEDGE_OK;
    fedge_model_facts facts = {.round = of->round,
                               .loss = of->loss,
                               .accuracy = of->accuracy,
                               .validation_loss = of->validation_loss,
                               .validation_accuracy = of->validation_accuracy};
    FEDGE_TRY(fedge_path_join(dir, FEDGE_BEST_MODEL_NAME, path, err));
    FEDGE_TRY(make_file(best, plan, &file, &size, err));
    memcpy(facts.model, of->model, sizeof(facts.model));
    const fedge_status status = fedge_model_file_write(path, plan, &facts, file, size, err);
    free(file);
    return status;
}
