#include "edge/data/dataset_load.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "edge/data/formats/csv.h"
#include "edge/data/formats/data_file.h"
#include "edge/data/formats/leaf.h"

#if FEDGE_WITH_TARGETS
#define NUMBERS "; to learn numbers give the job data.targets"
#else
#define NUMBERS ""
#endif

/* Labels read so far. */
typedef struct label_list {
    int32_t *of; /* malloc'ed, (capacity) */
    uint32_t count, capacity;
    uint64_t max_bytes; /* limit of the data set; 0: none */
} label_list;

/* [line]: for messages; 0 in a file without lines. */
static fedge_status check_label(const fedge_data_spec *spec, const char *path, uint64_t line,
                                uint64_t index, int64_t label, fedge_error *err)
{
    if (label >= 0 && label < spec->num_labels)
        return FEDGE_OK;
    const fedge_status status = fedge_fail(err, FEDGE_OUT_OF_RANGE,
                                           "the label of example %" PRIu64 " is %" PRId64
                                           "; the job has labels 0 to %" PRIu32,
                                           index, label, spec->num_labels - 1);
    return line > 0 ? fedge_error_prefix(err, status, "%s:%" PRIu64, path, line)
                    : fedge_error_prefix(err, status, "%s", path);
}

/* Checks the limits for [more] labels. */
static fedge_status check_count(const label_list *list, const char *path, uint64_t more,
                                fedge_error *err)
{
    if (more > FEDGE_DATASET_MAX_EXAMPLES - list->count) {
        return fedge_fail(err, FEDGE_TOO_BIG,
                          "%s: %" PRIu64 " examples behind %" PRIu32 "; the limit is %" PRIu32,
                          path, more, list->count, FEDGE_DATASET_MAX_EXAMPLES);
    }
    if (list->max_bytes > 0 && (list->count + more) * FEDGE_DATASET_ROW > list->max_bytes) {
        return fedge_fail(err, FEDGE_NO_MEMORY,
                          "%s: the labels of %" PRIu64
                          " examples, and whose they are, are over the limit of %" PRIu64 " bytes",
                          path, list->count + more, list->max_bytes);
    }
    return FEDGE_OK;
}

/* Reserves capacity for [more] labels. */
static fedge_status reserve(label_list *list, const char *path, uint64_t more, fedge_error *err)
{
    FEDGE_TRY(check_count(list, path, more, err));
    const uint32_t need = list->count + (uint32_t)more;
    if (more == 0 || (list->of && need <= list->capacity))
        return FEDGE_OK;
    const uint32_t capacity = need > list->capacity * 2 ? need : list->capacity * 2;
    int32_t *grown = realloc(list->of, capacity * sizeof(*grown));
    if (!grown) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "%s: no memory for %" PRIu32 " labels", path,
                          capacity);
    }
    list->of = grown;
    list->capacity = capacity;
    return FEDGE_OK;
}

static fedge_status read_array(const fedge_data_spec *spec, fedge_data_file *file, label_list *list,
                               fedge_error *err)
{
    fedge_reader *reader = &file->reader;
    const fedge_array_info *info = &file->info;
    const char *path = reader->path;
    if (info->rank != 1) {
        return fedge_fail(err, FEDGE_MISMATCH,
                          "%s: labels with %" PRIu32 " dimensions; 1 is needed" NUMBERS, path,
                          info->rank);
    }
    const size_t size = fedge_dtype_size(info->dtype);
    if (info->dtype != FEDGE_U8 && info->dtype != FEDGE_I32 && info->dtype != FEDGE_I64) {
        return fedge_fail(err, FEDGE_MISMATCH, "%s: labels of type %s; integers are needed" NUMBERS,
                          path, fedge_dtype_name(info->dtype));
    }
    const uint64_t count = info->dims[0];
    FEDGE_TRY(check_count(list, path, count, err));
    FEDGE_TRY(fedge_reader_expect(reader, count * size, "labels", err));
    FEDGE_TRY(reserve(list, path, count, err));
    for (uint64_t i = 0; i < count; i++) {
        uint8_t raw[8];
        FEDGE_TRY(fedge_reader_skip(reader, info->before, "the labels", err));
        FEDGE_TRY(fedge_reader_read(reader, raw, size, "the labels", err));
        FEDGE_TRY(fedge_reader_skip(reader, info->after, "the labels", err));
        const int64_t label = fedge_array_integer(info, raw);
        FEDGE_TRY(check_label(spec, path, 0, i, label, err));
        list->of[list->count++] = (int32_t)label;
    }
    return info->open_end ? FEDGE_OK : fedge_reader_end(reader, err);
}

static fedge_status read_csv(const fedge_data_spec *spec, const char *path, uint64_t columns,
                             const char *aside, label_list *list, fedge_error *err)
{
    fedge_csv csv;
    FEDGE_TRY(fedge_csv_open_aside(&csv, path, columns, aside, err));
    fedge_status status;
    const uint32_t first = list->count;
    csv.labelled = columns > 1;
    for (;;) {
        bool end = false;
        int64_t label = 0;
        FEDGE_TRY_OR(fedge_csv_next(&csv, &end, err), done);
        if (end)
            break;
        FEDGE_TRY_OR(fedge_csv_label(&csv, &label, err), done);
        FEDGE_TRY_OR(check_label(spec, path, csv.number, list->count - first, label, err), done);
        FEDGE_TRY_OR(reserve(list, path, 1, err), done);
        list->of[list->count++] = (int32_t)label;
    }
done:
    fedge_csv_close(&csv);
    return status;
}

/* Reading labels of a LEAF file. */
typedef struct leaf_labels {
    const fedge_data_spec *spec;
    const char *path;
    label_list *list;
    uint32_t first;
} leaf_labels;

static fedge_status add_leaf_label(void *context, int64_t label, fedge_error *err)
{
    const leaf_labels *l = context;
    FEDGE_TRY(check_label(l->spec, l->path, 0, l->list->count - l->first, label, err));
    FEDGE_TRY(reserve(l->list, l->path, 1, err));
    l->list->of[l->list->count++] = (int32_t)label;
    return FEDGE_OK;
}

static fedge_status read_leaf(const fedge_data_spec *spec, const char *path, label_list *list,
                              fedge_error *err)
{
    leaf_labels l = {spec, path, list, list->count};
    const fedge_leaf_visitor visitor = {.context = &l, .label = add_leaf_label};
    return fedge_leaf_read(path, &visitor, err);
}

static fedge_status read_file(const fedge_data_spec *spec, const char *path, bool inline_labels,
                              uint64_t columns, const char *aside, label_list *list,
                              fedge_error *err)
{
    fedge_data_file file;
    const fedge_data_role role = inline_labels ? FEDGE_DATA_INLINE_LABELS : FEDGE_DATA_LABELS;
    const uint32_t first = list->count;
    FEDGE_TRY(fedge_data_file_open(&file, spec, path, role, err));
    fedge_status status;
    if (file.format == FEDGE_DATA_CSV)
        status = read_csv(spec, path, columns, aside, list, err);
    else if (FEDGE_WITH_MORE_DATA && file.format == FEDGE_DATA_LEAF)
        status = read_leaf(spec, path, list, err);
    else
        status = read_array(spec, &file, list, err);
    fedge_data_file_close(&file);
    if (status == FEDGE_OK && list->count == first)
        status = fedge_fail(err, FEDGE_TRUNCATED, "%s: there are no examples in it", path);
    return status;
}

fedge_status fedge_labels_load(const fedge_data_spec *spec, size_t example_values,
                               fedge_dataset_files *files, const char *aside, int32_t **labels,
                               uint32_t *count, fedge_error *err)
{
    *labels = NULL;
    const bool inline_labels = files->labels.count == 0;
    const fedge_file_list *from = inline_labels ? &files->values : &files->labels;
    const uint64_t columns = inline_labels ? (uint64_t)example_values + 1 : 1;
    label_list list = {.max_bytes = spec->max_bytes};
    files->ends = malloc(from->count * sizeof(*files->ends));
    fedge_status status = FEDGE_OK;
    if (!files->ends) {
        status =
            fedge_fail(err, FEDGE_NO_MEMORY, "no memory to list %" PRIu32 " files", from->count);
    }
    for (uint32_t f = 0; f < from->count && !status; f++) {
        status = read_file(spec, from->paths[f], inline_labels, columns,
                           inline_labels ? aside : NULL, &list, err);
        if (status == FEDGE_OK)
            files->ends[f] = list.count;
    }
    if (status != FEDGE_OK)
        free(list.of);
    *labels = status ? NULL : list.of;
    *count = status ? 0 : list.count;
    return status;
}

/* ---- guessing -------------------------------------------------------------------------------- */

/* Counts the values of a csv row: its fields, without the label. */
static fedge_status count_fields(const char *path, const char *aside, bool label, uint64_t *count,
                                 fedge_error *err)
{
    fedge_csv csv;
    bool end = false;
    FEDGE_TRY(fedge_csv_open_aside(&csv, path, 0, aside, err));
    fedge_status status = fedge_csv_next(&csv, &end, err);
    *count = csv.columns - (label && csv.columns > 0);
    fedge_csv_close(&csv);
    return status;
}

/* Guesses the shape and dtype of examples from the first file. */
static fedge_status guess_values(const fedge_dataset_files *files, const char *aside,
                                 fedge_data_spec *spec, fedge_error *err)
{
    const char *path = files->values.paths[0];
    const bool inline_labels = files->labels.count == 0;
    fedge_data_file file;
    uint64_t count = 1;
    fedge_status status = FEDGE_OK;
    FEDGE_TRY(fedge_data_file_open(
        &file, spec, path, inline_labels ? FEDGE_DATA_VALUES_WITH_LABELS : FEDGE_DATA_VALUES, err));
    if (file.format == FEDGE_DATA_CSV) {
        status = count_fields(path, aside, inline_labels, &count, err);
    } else if (FEDGE_WITH_MORE_DATA && file.format == FEDGE_DATA_LEAF) {
        status =
            fedge_fail(err, FEDGE_UNSUPPORTED, "%s: only a job describes LEAF's examples", path);
    } else {
        spec->dtype = file.info.dtype == FEDGE_U8 ? FEDGE_U8 : FEDGE_F32;
    }
    for (uint32_t i = 1; file.format == FEDGE_DATA_ARRAY && i < file.info.rank; i++) {
        count = file.info.dims[i] <= FEDGE_DATASET_MAX_EXAMPLE_VALUES / (count ? count : 1)
                    ? count * file.info.dims[i]
                    : UINT32_MAX;
    }
    fedge_data_file_close(&file);
    spec->shape[0] =
        count < UINT32_MAX ? (uint32_t)count : UINT32_MAX; /* loading reports the problem */
    return status;
}

fedge_status fedge_dataset_guess(const char *values_path, const char *labels_path,
                                 const fedge_partition_spec *partition, fedge_data_spec *spec,
                                 fedge_error *err)
{
    fedge_dataset_files files = {.ends = NULL};
    int32_t *labels = NULL, most = 0;
    uint32_t count = 0;
    const bool natural = partition && partition->scheme == FEDGE_PARTITION_NATURAL;
    const char *aside = natural ? partition->source : NULL;
    *spec =
        (fedge_data_spec){.rank = 1, .dtype = FEDGE_F32, .num_labels = INT32_MAX, .divide_by = 1};
    fedge_status status;
    FEDGE_TRY_OR(fedge_file_list_open(&files.values, values_path, err), done);
    FEDGE_TRY_OR(fedge_file_list_open(&files.labels, labels_path, err), done);
    if (files.values.count == 0)
        FEDGE_TRY_OR(fedge_fail(err, FEDGE_NOT_FOUND, "there is no file of values"), done);
    FEDGE_TRY_OR(guess_values(&files, aside, spec, err), done);
    status = fedge_labels_load(spec, spec->shape[0], &files, aside, &labels, &count, err);
done:
    for (uint32_t i = 0; i < count; i++)
        most = labels[i] > most ? labels[i] : most;
    spec->num_labels = (uint32_t)most + 1;
    free(labels);
    free(files.ends);
    fedge_file_list_close(&files.values);
    fedge_file_list_close(&files.labels);
    return status;
}
