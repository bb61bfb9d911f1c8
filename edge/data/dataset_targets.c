#include "edge/data/dataset_load.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "edge/data/formats/data_file.h"

uint32_t fedge_data_inline_columns(const fedge_data_spec *spec)
{
    return !FEDGE_WITH_TARGETS || spec->targets.kind == FEDGE_TARGETS_CLASSES ? 1
           : spec->targets.kind == FEDGE_TARGETS_INPUT                        ? 0
                                                       : fedge_data_num_targets(spec);
}

fedge_status fedge_data_csv_open(fedge_csv *csv, const fedge_data_spec *spec, const char *path,
                                 uint64_t columns, const char *aside, fedge_error *err)
{
#if FEDGE_WITH_TARGETS
    if (spec->targets.columns[0]) {
        FEDGE_TRY(fedge_csv_open(csv, path, columns, err));
        fedge_status status = fedge_csv_put_last(csv, spec->targets.columns, err);
        if (status == FEDGE_OK && aside)
            status = fedge_csv_set_aside(csv, aside, err);
        if (status != FEDGE_OK)
            fedge_csv_close(csv);
        return status;
    }
#endif
    (void)spec;
    return fedge_csv_open_aside(csv, path, columns, aside, err);
}

#if FEDGE_WITH_TARGETS

/* Targets read so far. */
typedef struct target_list {
    const fedge_data_spec *spec;
    uint32_t each; /* targets of an example; 0: examples are only counted */
    float *of;     /* malloc'ed, (capacity, each) */
    uint32_t count, capacity;
} target_list;

/* Reserves room for [more] examples' targets. */
static fedge_status reserve(target_list *list, const char *path, uint64_t more, fedge_error *err)
{
    const uint64_t limit = list->spec->max_bytes, need = list->count + more;
    const uint64_t row = FEDGE_DATASET_ROW + list->each * sizeof(float);
    if (more > FEDGE_DATASET_MAX_EXAMPLES - list->count) {
        return fedge_fail(err, FEDGE_TOO_BIG,
                          "%s: %" PRIu64 " examples behind %" PRIu32 "; the limit is %" PRIu32,
                          path, more, list->count, FEDGE_DATASET_MAX_EXAMPLES);
    }
    if (need * row > (limit > 0 ? limit : FEDGE_DATASET_MAX_BYTES)) {
        return fedge_fail(err, limit > 0 ? FEDGE_NO_MEMORY : FEDGE_TOO_BIG,
                          "%s: the targets of %" PRIu64 " examples are over the limit of %" PRIu64
                          " bytes",
                          path, need, limit > 0 ? limit : FEDGE_DATASET_MAX_BYTES);
    }
    if (list->each == 0 || (list->of && need <= list->capacity))
        return FEDGE_OK;
    const uint64_t capacity = need > (uint64_t)list->capacity * 2 ? need : list->capacity * 2ull;
    float *grown = realloc(list->of, (size_t)capacity * list->each * sizeof(*grown) + 1);
    if (!grown) {
        return fedge_fail(err, FEDGE_NO_MEMORY,
                          "%s: no memory for the targets of %" PRIu64 " examples", path, capacity);
    }
    list->of = grown;
    list->capacity = (uint32_t)capacity;
    return FEDGE_OK;
}

/* Checks the targets of the next example, and counts it. [line]: for messages; 0 without lines. */
static fedge_status add(target_list *list, const char *path, uint64_t line, uint32_t example,
                        fedge_error *err)
{
    const float *t = list->of + (size_t)list->count * list->each;
    for (uint32_t k = 0; k < list->each; k++) {
        const bool range = list->spec->targets.is_fraction && !(t[k] >= 0.0f && t[k] <= 1.0f);
        if (isfinite(t[k]) && !range)
            continue;
        const fedge_status status =
            isfinite(t[k]) ? fedge_fail(err, FEDGE_OUT_OF_RANGE,
                                        "target %" PRIu32 " of example %" PRIu32
                                        " is %g; the job's loss has targets from 0 to 1",
                                        k, example, (double)t[k])
                           : fedge_fail(err, FEDGE_NOT_FINITE,
                                        "target %" PRIu32 " of example %" PRIu32
                                        " is not a finite float; clean the data",
                                        k, example);
        return line > 0 ? fedge_error_prefix(err, status, "%s:%" PRIu64, path, line)
                        : fedge_error_prefix(err, status, "%s", path);
    }
    list->count++;
    return FEDGE_OK;
}

static fedge_status check_array(const target_list *list, const fedge_data_file *file,
                                fedge_error *err)
{
    const fedge_array_info *info = &file->info;
    uint64_t each = 1;
    for (uint32_t i = 1; i < info->rank && each <= FEDGE_MAX_TARGETS; i++)
        each *= info->dims[i] <= FEDGE_MAX_TARGETS ? info->dims[i] : FEDGE_MAX_TARGETS + 1;
    if (each == list->each)
        return FEDGE_OK;
    return fedge_fail(err, FEDGE_MISMATCH,
                      "%s: %" PRIu64 " targets for each example, but the job has %" PRIu32,
                      file->reader.path, each, list->each);
}

static fedge_status read_array(fedge_data_file *file, target_list *list, fedge_error *err)
{
    fedge_reader *reader = &file->reader;
    const fedge_array_info *info = &file->info;
    const size_t size = fedge_dtype_size(info->dtype);
    const bool whole =
        info->dtype == FEDGE_U8 || info->dtype == FEDGE_I32 || info->dtype == FEDGE_I64;
    FEDGE_TRY(check_array(list, file, err));
    const uint64_t count = info->dims[0];
    FEDGE_TRY(reserve(list, reader->path, count, err));
    FEDGE_TRY(fedge_reader_expect(reader, count * list->each * size, "targets", err));
    for (uint32_t i = 0; i < count; i++) {
        float *out = list->of + (size_t)list->count * list->each;
        FEDGE_TRY(fedge_reader_skip(reader, info->before, "the targets", err));
        for (uint32_t k = 0; k < list->each; k++) {
            uint8_t raw[8];
            FEDGE_TRY(fedge_reader_read(reader, raw, size, "the targets", err));
            out[k] = whole ? (float)fedge_array_integer(info, raw) : fedge_array_float(info, raw);
        }
        FEDGE_TRY(fedge_reader_skip(reader, info->after, "the targets", err));
        FEDGE_TRY(add(list, reader->path, 0, i, err));
    }
    return info->open_end ? FEDGE_OK : fedge_reader_end(reader, err);
}

static fedge_status read_csv(const char *path, uint64_t columns, const char *aside,
                             target_list *list, fedge_error *err)
{
    fedge_csv csv;
    FEDGE_TRY(fedge_data_csv_open(&csv, list->spec, path, columns, aside, err));
    fedge_status status;
    csv.num_targets = list->each;
    for (uint32_t row = 0;; row++) {
        bool end = false;
        FEDGE_TRY_OR(fedge_csv_next(&csv, &end, err), done);
        if (end)
            break;
        FEDGE_TRY_OR(reserve(list, path, 1, err), done);
        if (list->each > 0) {
            FEDGE_TRY_OR(fedge_csv_last_floats(&csv, list->each,
                                               list->of + (size_t)list->count * list->each, err),
                         done);
        }
        FEDGE_TRY_OR(add(list, path, csv.number, row, err), done);
    }
done:
    fedge_csv_close(&csv);
    return status;
}

static fedge_status read_file(const char *path, bool inline_targets, uint64_t columns,
                              const char *aside, target_list *list, fedge_error *err)
{
    fedge_data_file file;
    const bool input = list->each == 0;
    const uint32_t first = list->count;
    const fedge_data_role role = input            ? FEDGE_DATA_VALUES
                                 : inline_targets ? FEDGE_DATA_INLINE_LABELS
                                                  : FEDGE_DATA_LABELS;
    FEDGE_TRY(fedge_data_file_open(&file, list->spec, path, role, err));
    fedge_status status = FEDGE_OK;
    if (file.format == FEDGE_DATA_CSV) {
        status = read_csv(path, columns, aside, list, err);
    } else if (file.format == FEDGE_DATA_LEAF) {
        status = fedge_fail(err, FEDGE_UNSUPPORTED,
                            "%s: LEAF's files have classes; save numbers as csv, npy, idx or "
                            "safetensors",
                            path);
    } else if (input) {
        status = reserve(list, path, file.info.dims[0], err);
        list->count += status ? 0 : (uint32_t)file.info.dims[0];
    } else {
        status = read_array(&file, list, err);
    }
    fedge_data_file_close(&file);
    if (status == FEDGE_OK && list->count == first)
        status = fedge_fail(err, FEDGE_TRUNCATED, "%s: there are no examples in it", path);
    return status;
}

static fedge_status load(fedge_dataset *dataset, fedge_dataset_files *files, const char *aside,
                         target_list *list, fedge_error *err)
{
    const bool together = files->labels.count == 0 || list->each == 0;
    const fedge_file_list *from = together ? &files->values : &files->labels;
    const uint64_t columns = (together ? dataset->example_values : 0) + list->each;
    files->ends = malloc(from->count * sizeof(*files->ends));
    if (!files->ends)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to list %" PRIu32 " files", from->count);
    for (uint32_t f = 0; f < from->count; f++) {
        FEDGE_TRY(read_file(from->paths[f], together, columns, together ? aside : NULL, list, err));
        files->ends[f] = list->count;
    }
    dataset->labels = calloc(list->count, sizeof(*dataset->labels));
    return dataset->labels ? FEDGE_OK
                           : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %" PRIu32 " examples",
                                        list->count);
}

#endif

fedge_status fedge_answers_load(fedge_dataset *dataset, fedge_dataset_files *files,
                                const char *aside, uint32_t *count, fedge_error *err)
{
#if FEDGE_WITH_TARGETS
    if (dataset->spec.targets.kind != FEDGE_TARGETS_CLASSES) {
        dataset->num_targets = fedge_data_inline_columns(&dataset->spec);
        target_list list = {.spec = &dataset->spec, .each = dataset->num_targets};
        const fedge_status status = load(dataset, files, aside, &list, err);
        dataset->targets = list.of;
        *count = list.count;
        return status;
    }
#endif
    return fedge_labels_load(&dataset->spec, dataset->example_values, files, aside,
                             &dataset->labels, count, err);
}

/* ---- by rank --------------------------------------------------------------------------------- */

#if FEDGE_WITH_TARGETS

typedef struct ranked {
    float value;
    uint32_t example;
} ranked;

static int by_value(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->value != y->value)
        return x->value < y->value ? -1 : 1;
    return x->example < y->example ? -1 : x->example > y->example;
}

fedge_status fedge_targets_bin(fedge_dataset *dataset, uint32_t count, uint32_t bins,
                               fedge_error *err)
{
    ranked *order = malloc(count * sizeof(*order) + 1);
    if (!order) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "data '%s': no memory to rank %" PRIu32 " targets",
                          dataset->spec.name, count);
    }
    for (uint32_t i = 0; i < count; i++)
        order[i] = (ranked){dataset->targets[(size_t)i * dataset->num_targets], i};
    qsort(order, count, sizeof(*order), by_value);
    for (uint32_t i = 0; i < count; i++)
        dataset->labels[order[i].example] = (int32_t)((uint64_t)i * bins / count);
    free(order);
    return FEDGE_OK;
}

#endif
