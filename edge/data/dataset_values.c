#include "edge/data/dataset_load.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/os.h"
#include "edge/data/formats/csv.h"
#include "edge/data/formats/data_file.h"
#include "edge/data/formats/leaf.h"

/* --- what the header must say ----------------------------------------------------------------- */

/* Copies the dimensions other than 1; returns their number. */
static uint32_t squeeze(uint32_t rank, const uint64_t *dims, uint64_t *out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < rank; i++) {
        if (dims[i] != 1)
            out[n++] = dims[i];
    }
    return n;
}

/* Whether the file's example, dims[1…], has the job's layout. */
static bool same_shape(const fedge_data_spec *spec, size_t example_values,
                       const fedge_array_info *info)
{
    uint64_t want[3], have[FEDGE_ARRAY_MAX_RANK];
    for (uint32_t i = 0; i < spec->rank; i++)
        want[i] = spec->shape[i];
    const uint32_t want_rank = squeeze(spec->rank, want, want);
    const uint32_t have_rank = squeeze(info->rank - 1, info->dims + 1, have);
    if (want_rank == have_rank)
        return memcmp(want, have, want_rank * sizeof(*want)) == 0;
    if (have_rank <= 1)
        return (have_rank ? have[0] : 1) == example_values;
    if (want_rank > 1)
        return false;
    uint64_t product = 1;
    for (uint32_t i = 0; i < have_rank; i++) {
        if (have[i] == 0 || product > FEDGE_DATASET_MAX_EXAMPLE_VALUES / have[i])
            return false;
        product *= have[i];
    }
    return product == example_values;
}

static void dims_text(const fedge_array_info *info, char text[FEDGE_SHAPE_TEXT_SIZE])
{
    uint32_t shape[FEDGE_ARRAY_MAX_RANK];
    for (uint32_t i = 0; i < info->rank; i++)
        shape[i] = info->dims[i] > UINT32_MAX ? UINT32_MAX : (uint32_t)info->dims[i];
    fedge_shape_text(info->rank - 1, shape + 1, text);
}

static fedge_status check_array(const fedge_dataset *dataset, fedge_reader *reader,
                                const fedge_array_info *info, uint32_t num_examples,
                                fedge_error *err)
{
    const fedge_data_spec *spec = &dataset->spec;
    const bool floats =
        info->dtype == FEDGE_F64 || info->dtype == FEDGE_F16 || info->dtype == FEDGE_BF16;
    const bool fits = info->dtype == spec->dtype || (floats && spec->dtype == FEDGE_F32);
    if (!fits) {
        return fedge_fail(err, FEDGE_MISMATCH, "%s: values of type %s, but the job has data of %s",
                          reader->path, fedge_dtype_name(info->dtype),
                          fedge_dtype_name(spec->dtype));
    }
    if (!same_shape(spec, dataset->example_values, info)) {
        char have[FEDGE_SHAPE_TEXT_SIZE], want[FEDGE_SHAPE_TEXT_SIZE];
        dims_text(info, have);
        fedge_shape_text(spec->rank, spec->shape, want);
        return fedge_fail(err, FEDGE_MISMATCH,
                          "%s: examples of shape %s, but the job has data of shape %s",
                          reader->path, have, want);
    }
    if (info->dims[0] != num_examples) {
        return fedge_fail(err, FEDGE_MISMATCH, "%s: %" PRIu64 " examples, but %" PRIu32 " labels",
                          reader->path, info->dims[0], num_examples);
    }
    return fedge_reader_expect(
        reader, num_examples * (uint64_t)dataset->example_values * fedge_dtype_size(info->dtype),
        "values", err);
}

/* --- memory ----------------------------------------------------------------------------------- */

static fedge_status allocate_values(fedge_dataset *dataset, fedge_error *err)
{
    const uint64_t example_bytes =
        (uint64_t)dataset->example_values * fedge_dtype_size(dataset->spec.dtype);
    const uint64_t bytes = example_bytes * dataset->count;
    const uint64_t limit = dataset->spec.max_bytes, most = limit ? limit : FEDGE_DATASET_MAX_BYTES;
    const uint64_t row =
        limit ? FEDGE_DATASET_ROW + dataset->num_targets * sizeof(*dataset->targets) : 0;
    if (bytes + row * dataset->count > most || bytes > SIZE_MAX) {
        return fedge_fail(err, most < FEDGE_DATASET_MAX_BYTES ? FEDGE_NO_MEMORY : FEDGE_TOO_BIG,
                          "data '%s': %" PRIu32 " examples of %" PRIu64
                          " bytes are over the limit of %" PRIu64 " bytes",
                          dataset->spec.name, dataset->count, example_bytes + row, most);
    }
    dataset->values = malloc((size_t)bytes);
    if (!dataset->values) {
        return fedge_fail(err, FEDGE_NO_MEMORY,
                          "data '%s': no memory for %" PRIu64 " bytes of examples",
                          dataset->spec.name, bytes);
    }
    fedge_os_large_pages(dataset->values, (size_t)bytes); /* examples are accessed randomly */
    return FEDGE_OK;
}

/* The values of the example at [slot]. */
static uint8_t *slot_values(const fedge_dataset *dataset, uint32_t slot)
{
    return (uint8_t *)dataset->values +
           (size_t)slot * dataset->example_values * fedge_dtype_size(dataset->spec.dtype);
}

/* Converts an example's elements to floats. */
static fedge_status convert_floats(const fedge_array_info *info, const char *path, uint32_t example,
                                   const uint8_t *raw, size_t n, float *out, fedge_error *err)
{
    const size_t size = fedge_dtype_size(info->dtype);
    for (size_t i = 0; i < n; i++) {
        out[i] = fedge_array_float(info, raw + size * i);
        if (!isfinite(out[i])) {
            return fedge_fail(err, FEDGE_NOT_FINITE,
                              "%s: value %zu of example %" PRIu32
                              " is not a finite float; clean the data",
                              path, i, example);
        }
    }
    return FEDGE_OK;
}

/* The examples of a file to load. */
typedef struct selection {
    uint32_t num_examples; /* examples of the file */
    const uint32_t *owner; /* (num_examples); NULL: load all */
    uint32_t part;         /* load those with owner[i] == part */
} selection;

/* Progress over the files of a data set. */
typedef struct progress {
    uint32_t slot;        /* slot of the next loaded example */
    uint32_t names;       /* CRC-32 of the first header's names (fedge_csv); 0: none */
    const char *named_by; /* file with that header */
} progress;

static bool is_wanted(const selection *wanted, uint32_t example)
{
    return !wanted->owner || wanted->owner[example] == wanted->part;
}

/* Reads one example to [out]. [raw]: buffer for conversion, or NULL if the file has the stored
 * type. */
static fedge_status read_example(const fedge_dataset *dataset, fedge_data_file *file,
                                 uint32_t example, uint8_t *raw, uint8_t *out, fedge_error *err)
{
    const size_t n = dataset->example_values;
    FEDGE_TRY(fedge_reader_skip(&file->reader, file->info.before, "the values", err));
    FEDGE_TRY(fedge_reader_read(&file->reader, raw ? raw : out,
                                n * fedge_dtype_size(file->info.dtype), "the values", err));
    if (raw) {
        FEDGE_TRY(convert_floats(&file->info, file->reader.path, example, raw, n,
                                 (float *)(void *)out, err));
    }
    return fedge_reader_skip(&file->reader, file->info.after, "the values", err);
}

static fedge_status read_array(fedge_dataset *dataset, fedge_data_file *file,
                               const selection *wanted, progress *at, fedge_error *err)
{
    const fedge_array_info *info = &file->info;
    const size_t raw_size = dataset->example_values * fedge_dtype_size(info->dtype);
    const bool bytes = info->dtype == FEDGE_U8;
    uint8_t *raw = bytes ? NULL : malloc(raw_size);
    if (!bytes && !raw) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "%s: no memory for an example of %zu bytes",
                          file->reader.path, raw_size);
    }
    fedge_status status = FEDGE_OK;
    for (uint32_t i = 0; i < wanted->num_examples && !status; i++) {
        if (is_wanted(wanted, i)) {
            status = read_example(dataset, file, i, raw, slot_values(dataset, at->slot++), err);
        } else {
            status = fedge_reader_skip(
                &file->reader, (uint64_t)info->before + raw_size + info->after, "the values", err);
        }
        if (status != FEDGE_OK) {
            status = fedge_error_prefix(err, status, "example %" PRIu32 " of %" PRIu32, i,
                                        wanted->num_examples);
        }
    }
    free(raw);
    return status || info->open_end ? status : fedge_reader_end(&file->reader, err);
}

/* All headers of a data set must name the same columns in the same order. */
static fedge_status check_names(const fedge_csv *csv, const char *path, progress *at,
                                fedge_error *err)
{
    if (at->names == 0) {
        at->names = csv->names;
        at->named_by = path;
    }
    if (csv->names == 0 || csv->names == at->names)
        return FEDGE_OK;
    return fedge_fail(err, FEDGE_MISMATCH,
                      "%s: its header names other columns than %s, or in another order; bring them "
                      "into one order, or take the headers away if they mean the same",
                      path, at->named_by);
}

static fedge_status read_csv(fedge_dataset *dataset, const char *path, bool with_answers,
                             const char *aside, const selection *wanted, progress *at,
                             fedge_error *err)
{
    const uint32_t answers = with_answers ? fedge_data_inline_columns(&dataset->spec) : 0;
    const uint64_t columns = (uint64_t)dataset->example_values + answers;
    fedge_csv csv;
    FEDGE_TRY(with_answers ? fedge_data_csv_open(&csv, &dataset->spec, path, columns, aside, err)
                           : fedge_csv_open_aside(&csv, path, columns, aside, err));
    fedge_status status;
    csv.labelled = answers > 0 && dataset->num_targets == 0;
    csv.num_targets = with_answers ? dataset->num_targets : 0;
    for (uint32_t row = 0;; row++) {
        bool end = false;
        FEDGE_TRY_OR(fedge_csv_next(&csv, &end, err), done);
        if (row == 0)
            FEDGE_TRY_OR(check_names(&csv, path, at, err), done);
        if (end) {
            if (row < wanted->num_examples) {
                status =
                    fedge_fail(err, FEDGE_MISMATCH, "%s: %" PRIu32 " rows, but %" PRIu32 " labels",
                               path, row, wanted->num_examples);
            }
            break;
        }
        if (row == wanted->num_examples) {
            status = fedge_fail(err, FEDGE_MISMATCH,
                                "%s:%" PRIu64 ": more rows than the %" PRIu32 " labels", path,
                                csv.number, wanted->num_examples);
            break;
        }
        if (is_wanted(wanted, row)) {
            FEDGE_TRY_OR(fedge_csv_values(&csv, dataset->spec.dtype, dataset->example_values,
                                          slot_values(dataset, at->slot++), err),
                         done);
        }
    }
done:
    fedge_csv_close(&csv);
    return status;
}

/* Reading values of a LEAF file. */
typedef struct leaf_values {
    const fedge_dataset *dataset;
    const selection *wanted;
    const char *path;
    uint32_t example;
    progress *at;
} leaf_values;

static fedge_status next_leaf_slot(void *context, void **out, fedge_error *err)
{
    leaf_values *l = context;
    if (l->example == l->wanted->num_examples) {
        return fedge_fail(err, FEDGE_MISMATCH, "%s: has changed since its labels were read",
                          l->path);
    }
    if (is_wanted(l->wanted, l->example++))
        *out = slot_values(l->dataset, l->at->slot++);
    return FEDGE_OK;
}

static fedge_status read_leaf(const fedge_dataset *dataset, const char *path,
                              const selection *wanted, progress *at, fedge_error *err)
{
    leaf_values l = {dataset, wanted, path, 0, at};
    const fedge_leaf_visitor visitor = {.context = &l,
                                        .values = next_leaf_slot,
                                        .dtype = dataset->spec.dtype,
                                        .example_values = dataset->example_values};
    FEDGE_TRY(fedge_leaf_read(path, &visitor, err));
    if (l.example != wanted->num_examples)
        return fedge_fail(err, FEDGE_MISMATCH, "%s: has changed since its labels were read", path);
    return FEDGE_OK;
}

/* Checks a file's header; if memory is allocated, reads its values into slots from at->slot on. */
static fedge_status load_file(fedge_dataset *dataset, const char *path, bool inline_labels,
                              const char *aside, const selection *wanted, progress *at,
                              fedge_error *err)
{
    fedge_data_file file;
    fedge_status status = FEDGE_OK;
    FEDGE_TRY(fedge_data_file_open(
        &file, &dataset->spec, path,
        inline_labels ? FEDGE_DATA_VALUES_WITH_LABELS : FEDGE_DATA_VALUES, err));
    if (file.format == FEDGE_DATA_CSV) {
        if (dataset->values)
            status = read_csv(dataset, path, inline_labels, aside, wanted, at, err);
    } else if (FEDGE_WITH_MORE_DATA && file.format == FEDGE_DATA_LEAF) {
        if (dataset->values)
            status = read_leaf(dataset, path, wanted, at, err);
    } else if (dataset->values) {
        status = read_array(dataset, &file, wanted, at, err);
    } else {
        status = check_array(dataset, &file.reader, &file.info, wanted->num_examples, err);
    }
    fedge_data_file_close(&file);
    return status;
}

fedge_status fedge_values_load(fedge_dataset *dataset, const fedge_dataset_files *files,
                               const char *aside, const uint32_t *owner, uint32_t part,
                               fedge_error *err)
{
    const bool together =
        files->labels.count == 0 && dataset->spec.targets.kind != FEDGE_TARGETS_INPUT;
    progress at = {0};
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t f = 0; f < files->values.count; f++) {
            const uint32_t first = f > 0 ? files->ends[f - 1] : 0;
            const selection wanted = {files->ends[f] - first, owner ? owner + first : NULL, part};
            FEDGE_TRY(
                load_file(dataset, files->values.paths[f], together, aside, &wanted, &at, err));
        }
        if (pass == 0)
            FEDGE_TRY(allocate_values(dataset, err));
    }
    return FEDGE_OK;
}
