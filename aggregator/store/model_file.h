/* Model files of a run: safetensors files that record where the model comes from.
 *
 * A model's name, "model_sha256", is the SHA-256 of its plain file: the tensors as
 * fedge_safetensors_write writes them, without "__metadata__". Clients fetch that file and
 * checkpoints hold it; runs that compute the same values give the same file. The file for users has
 * the same tensors and a "__metadata__" of strings, which names the run among others, so its own
 * SHA-256 differs. fedge_model_file_read recovers the model's name from it.
 *
 *     format         "pt": names and layouts are those of a PyTorch state_dict
 *     fedge          the release that wrote the file
 *     job            the job's name
 *     run            the run's id; absent in a simulation
 *     round          the round whose model this is
 *     model_sha256   see above
 *     loss, accuracy on the server's test set, if known
 *     validation_loss, validation_accuracy   on the examples for validation, if known
 *     normalisation  JSON, as in the job: applied to an example before the model
 */
#ifndef FEDGE_AGGREGATOR_STORE_MODEL_FILE_H
#define FEDGE_AGGREGATOR_STORE_MODEL_FILE_H

#include <cjson/cJSON.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"
#include "edge/plan/plan.h"
#include "edge/wire/protocol.h"

/* Origin and quality of a model. Plain data; unknown numbers are NaN. */
typedef struct fedge_model_facts {
    const char *run_id; /* NULL: simulated */
    uint32_t round;
    char model[FEDGE_HASH_TEXT]; /* SHA-256 of the plain file */
    double loss, accuracy, validation_loss, validation_accuracy;
} fedge_model_facts;

/* Writes [path] (0644) from the plain file model[0, size), without copying it; durable like
 * fedge_os_write_file. FEDGE_CORRUPT: [model] is not a safetensors file, or not the one named by
 * [facts]. */
FEDGE_MUST_USE fedge_status fedge_model_file_write(const char *path, const fedge_plan *plan,
                                                   const fedge_model_facts *facts,
                                                   const uint8_t *model, size_t size,
                                                   fedge_error *err);

/* Writes the second and later models of a plan with several among which clients choose as
 * DIR/model-cluster-N.safetensors with N from 1 (the first is the run's model). Writes nothing for
 * other plans. [others]: their plain files, one after another, as fedge_global_model_write packs
 * them. [facts]: those of the run's model. */
FEDGE_MUST_USE fedge_status fedge_model_file_write_clusters(const char *dir, const fedge_plan *plan,
                                                            const fedge_model_facts *facts,
                                                            const uint8_t *others, size_t size,
                                                            fedge_error *err);

/* Metadata and contents of a model file. */
typedef struct fedge_model_report {
    cJSON *metadata; /* strings by key; NULL without any */
    uint32_t num_tensors;
    size_t num_values;
    char model[FEDGE_HASH_TEXT]; /* SHA-256 of its tensors as a plain file */
} fedge_model_report;

/* Reads any safetensors file of floats; names a foreign one as if fedge had written it.
 * FEDGE_UNSUPPORTED: tensors of another type, or a header shorter than fedge's. Errors name the
 * file. */
FEDGE_MUST_USE fedge_status fedge_model_file_read(const char *path, fedge_model_report *report,
                                                  fedge_error *err);
void fedge_model_report_fini(fedge_model_report *report);

#endif
