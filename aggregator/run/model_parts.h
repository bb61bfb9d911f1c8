/* Which parts a model's blob has (edge/wire/protocol.h), and whether it pays to tell clients. */
#ifndef FEDGE_AGGREGATOR_RUN_MODEL_PARTS_H
#define FEDGE_AGGREGATOR_RUN_MODEL_PARTS_H

#include <stddef.h>

#include "aggregator/exchange/blob.h"
#include "edge/core/status.h"
#include "edge/core/tensor.h"

#define FEDGE_MODEL_PARTS_MIN_BYTES ((size_t)1 << 16) /* smaller models come whole */
/* One byte of this many has to be known for a list to be offered: it takes clients a FETCH more. */
#define FEDGE_MODEL_PARTS_SHARE 16u

/* Lists the parts of [model], which lies in memory: files of [file_size] bytes with the tensors of
 * [schema], or one of them with anything behind it. *last is the list of the model before, or NULL
 * when that is not known, and the new one afterwards. model->parts is it too where parts of the
 * model are equal to one another or to the model's before, or when that is not known. Hashes all of
 * [model]. FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_model_parts_add(fedge_blob *model, const fedge_schema *schema,
                                                  size_t file_size, fedge_blob **last,
                                                  fedge_error *err);

#endif
