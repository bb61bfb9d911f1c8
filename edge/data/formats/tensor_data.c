#include "edge/data/formats/data_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/bytes.h"
#include "edge/data/formats/safetensors.h"

#define PREFIX_SIZE 8 /* header size as u64 */

bool fedge_tensor_data_matches(const uint8_t *head, size_t size)
{
    return size >= FEDGE_TENSOR_DATA_HEAD_SIZE && memcmp(head + PREFIX_SIZE, "{\"", 2) == 0 &&
           fedge_get_u64(head) <= FEDGE_SAFETENSORS_MAX_HEADER;
}

static bool may_be_labels(const fedge_tensor_spec *t)
{
    return t->rank == 1 && (t->dtype == FEDGE_U8 || t->dtype == FEDGE_I32 || t->dtype == FEDGE_I64);
}

/* The tensor to read, or NULL. */
static const fedge_tensor_spec *choose(const fedge_schema *schema, bool labels, bool both)
{
    const fedge_tensor_spec *named = fedge_schema_find(schema, labels ? "labels" : "values");
    named = !FEDGE_WITH_TARGETS || named || !labels ? named : fedge_schema_find(schema, "targets");
    const fedge_tensor_spec *first = &schema->tensors[0], *second = &schema->tensors[1];
    if (named)
        return named;
    if (!both)
        return schema->num_tensors == 1 ? first : NULL;
    if (schema->num_tensors != 2 || may_be_labels(first) == may_be_labels(second))
        return NULL;
    return may_be_labels(first) == labels ? first : second;
}

static fedge_status describe(const fedge_reader *reader, const fedge_schema *schema, bool labels,
                             bool both, fedge_array_info *info, uint64_t *offset, fedge_error *err)
{
    const fedge_tensor_spec *tensor = choose(schema, labels, both);
    if (!tensor) {
        return fedge_fail(err, FEDGE_MISMATCH,
                          "%s: which of its %" PRIu32 " tensors has the %s? Name it \"%s\"",
                          reader->path, schema->num_tensors, labels ? "labels" : "values",
                          labels ? "labels" : "values");
    }
    if (tensor->rank == 0) {
        return fedge_fail(err, FEDGE_MISMATCH, "%s: tensor \"%s\" is a single number", reader->path,
                          tensor->name);
    }
    *info = (fedge_array_info){.dtype = tensor->dtype, .rank = tensor->rank, .open_end = true};
    for (uint32_t d = 0; d < tensor->rank; d++)
        info->dims[d] = tensor->shape[d];
    *offset = 0; /* they are contiguous */
    for (const fedge_tensor_spec *t = schema->tensors; t != tensor; t++)
        *offset += (uint64_t)t->count * fedge_dtype_size(t->dtype);
    return FEDGE_OK;
}

/* [header]: prefix and JSON; nothing else of the file is read. */
static fedge_status parse(const fedge_reader *reader, const uint8_t *header, uint64_t total,
                          bool labels, bool both, fedge_array_info *info, uint64_t *offset,
                          fedge_error *err)
{
    fedge_tensor_spec storage[FEDGE_TENSOR_DATA_MAX];
    fedge_schema schema;
    const uint8_t *data = NULL;
    fedge_schema_init(&schema, storage, FEDGE_TENSOR_DATA_MAX);
    const fedge_status status = fedge_safetensors_read_schema(
        header, total < SIZE_MAX ? (size_t)total : SIZE_MAX, &schema, &data, err);
    return status ? fedge_error_prefix(err, status, "%s", reader->path)
                  : describe(reader, &schema, labels, both, info, offset, err);
}

fedge_status fedge_tensor_data_open(fedge_reader *reader, bool labels, bool both,
                                    fedge_array_info *info, fedge_error *err)
{
    uint8_t prefix[PREFIX_SIZE];
    uint64_t total = 0, offset = 0;
    FEDGE_TRY(fedge_reader_total(reader, &total, err));
    FEDGE_TRY(fedge_reader_read(reader, prefix, sizeof(prefix), "the header's size", err));
    const uint64_t size = fedge_get_u64(prefix);
    if (size > FEDGE_SAFETENSORS_MAX_HEADER) {
        return fedge_fail(err, FEDGE_TOO_BIG, "%s: safetensors: header of %" PRIu64 " bytes",
                          reader->path, size);
    }
    uint8_t *header = malloc(PREFIX_SIZE + (size_t)size);
    if (!header)
        return fedge_fail(err, FEDGE_NO_MEMORY, "%s: no memory for its header", reader->path);
    memcpy(header, prefix, sizeof(prefix));
    fedge_status status;
    FEDGE_TRY_OR(fedge_reader_read(reader, header + PREFIX_SIZE, (size_t)size, "the header", err),
                 done);
    status = parse(reader, header, total, labels, both, info, &offset, err);
done:
    free(header);
    return status ? status : fedge_reader_skip(reader, offset, "the tensors", err);
}
