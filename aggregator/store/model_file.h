/* The model as a run leaves it: a safetensors file that says where it comes from.
 *
 * A model's name, "model_sha256", is the SHA-256 of its plain file: the tensors as
 * fedge_safetensors_write has them, without "__metadata__". That file is what clients fetch and
 * what checkpoints hold, the same for every run that gives the same values. The file for people has
 * the same tensors and in "__metadata__", which holds texts alone, beside other things the run: so
 * its own SHA-256 is another one, and fedge_model_file_read finds the name of what is in it.
 *
 *     format         "pt": names and layouts are those of a PyTorch state_dict
 *     fedge          the release that wrote it
 *     job            its name
 *     run            its id; not in a simulation's
 *     round          after which the model was so
 *     model_sha256   see above
 *     loss, accuracy of that model on the server's test set, where known
 *     validation_loss, validation_accuracy   on the examples for validation, where known
 *     normalisation  JSON, as in the job: what an example is put through before the model
 */
#ifndef FEDGE_AGGREGATOR_STORE_MODEL_FILE_H
#define FEDGE_AGGREGATOR_STORE_MODEL_FILE_H

#include <cjson/cJSON.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"
#include "edge/plan/plan.h"
#include "edge/wire/protocol.h"

/* What is known of a model. Plain data; numbers that are not known are NaN. */
typedef struct fedge_model_facts {
    const char *run_id; /* NULL: simulated */
    uint32_t round;
    char model[FEDGE_HASH_TEXT]; /* SHA-256 of the plain file */
    double loss, accuracy, validation_loss, validation_accuracy;
} fedge_model_facts;

/* Writes [path] (0644) from the plain file model[0, size), which is not copied: as
 * fedge_os_write_file. FEDGE_CORRUPT: [model] is no safetensors file, or not the one that [facts]
 * name. */
FEDGE_MUST_USE fedge_status fedge_model_file_write(const char *path, const fedge_plan *plan,
                                                   const fedge_model_facts *facts,
                                                   const uint8_t *model, size_t size,
                                                   fedge_error *err);

/* Where clients choose among models: the second and those after it, as
 * DIR/model-cluster-N.safetensors with N from 1; the first is the run's model. [others]: their
 * plain files, one after another, as fedge_global_model_write has them. With other plans nothing is
 * written. [facts]: of the run's. */
FEDGE_MUST_USE fedge_status fedge_model_file_write_clusters(const char *dir, const fedge_plan *plan,
                                                            const fedge_model_facts *facts,
                                                            const uint8_t *others, size_t size,
                                                            fedge_error *err);

/* What a model file says of itself, and what it is. */
typedef struct fedge_model_report {
    cJSON *metadata; /* texts by key; NULL without any */
    uint32_t num_tensors;
    size_t num_values;
    char model[FEDGE_HASH_TEXT]; /* SHA-256 of its tensors as a plain file */
} fedge_model_report;

/* Reads any safetensors file of floats; a foreign one is named as if fedge had written it.
 * FEDGE_UNSUPPORTED: tensors of another type, or a header that is shorter than fedge's. Errors name
 * the file. */
FEDGE_MUST_USE fedge_status fedge_model_file_read(const char *path, fedge_model_report *report,
                                                  fedge_error *err);
void fedge_model_report_fini(fedge_model_report *report);

#endif
