#include "edge/io/dataset_load.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "edge/io/array_file.h"
#include "edge/io/csv.h"

#define FIRST_LABELS 4096 /* room for labels of a csv file; doubled as needed */

typedef enum format { FORMAT_IDX, FORMAT_NPY, FORMAT_CSV } format;

/* Opens the file; for idx and npy its header is read, for csv it is closed again. */
static fedge_status open_array(const char *path, format *what, fedge_reader *reader,
                               fedge_array_info *info, fedge_error *err)
{
    fedge_status status = fedge_reader_open(reader, path, err);
    if (status)
        return status;
    uint8_t magic[FEDGE_ARRAY_MAGIC_SIZE];
    size_t got = 0;
    status = fedge_reader_peek(reader, magic, sizeof magic, &got, err);
    if (!status && fedge_npy_matches(magic, got)) {
        *what = FORMAT_NPY;
        status = fedge_npy_read_header(reader, info, err);
    } else if (!status && fedge_idx_matches(magic, got)) {
        *what = FORMAT_IDX;
        status = fedge_idx_read_header(reader, info, err);
    } else {
        *what = FORMAT_CSV;
    }
    if (status || *what == FORMAT_CSV)
        fedge_reader_close(reader);
    return status;
}

/* --- elements --------------------------------------------------------------------------------- */

static uint64_t load_bytes(const uint8_t *in, size_t size, bool big_endian)
{
    uint64_t bits = 0;
    for (size_t i = 0; i < size; i++)
        bits = bits << 8 | in[big_endian ? i : size - 1 - i];
    return bits;
}

static float load_f32(const uint8_t *in, bool big_endian)
{
    const uint32_t bits = (uint32_t)load_bytes(in, 4, big_endian);
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static float load_f64(const uint8_t *in, bool big_endian)
{
    const uint64_t bits = load_bytes(in, 8, big_endian);
    double x;
    memcpy(&x, &bits, sizeof x);
    return (float)x;
}

static int64_t load_integer(const uint8_t *in, const fedge_array_info *info)
{
    const uint64_t bits = load_bytes(in, fedge_dtype_size(info->dtype), info->big_endian);
    if (info->dtype == FEDGE_I32)
        return (int32_t)(uint32_t)bits;
    return (int64_t)bits;
}

/* --- labels ----------------------------------------------------------------------------------- */

static fedge_status check_label(const fedge_data_spec *spec, const char *path, uint64_t index,
                                int64_t label, fedge_error *err)
{
    if (label < 0 || label >= spec->num_labels)
        return fedge_fail(err, FEDGE_OUT_OF_RANGE,
                          "%s: the label of example %" PRIu64 " is %" PRId64
                          "; the job has labels 0 to %" PRIu32,
                          path, index, label, spec->num_labels - 1);
    return FEDGE_OK;
}

static fedge_status check_count(const char *path, uint64_t count, fedge_error *err)
{
    if (count == 0)
        return fedge_fail(err, FEDGE_TRUNCATED, "%s: there are no examples in it", path);
    if (count > FEDGE_DATASET_MAX_EXAMPLES)
        return fedge_fail(err, FEDGE_TOO_BIG, "%s: %" PRIu64 " examples; the limit is %" PRIu32,
                          path, count, FEDGE_DATASET_MAX_EXAMPLES);
    return FEDGE_OK;
}

static fedge_status read_array_labels(const fedge_data_spec *spec, fedge_reader *reader,
                                      const fedge_array_info *info, int32_t **labels,
                                      uint32_t *count, fedge_error *err)
{
    const char *path = reader->path;
    if (info->rank != 1)
        return fedge_fail(err, FEDGE_MISMATCH,
                          "%s: labels with %" PRIu32 " dimensions; 1 is needed", path, info->rank);
    if (info->dtype == FEDGE_F32 || info->dtype == FEDGE_F64)
        return fedge_fail(err, FEDGE_MISMATCH, "%s: labels of type %s; integers are needed", path,
                          fedge_dtype_name(info->dtype));
    const size_t size = fedge_dtype_size(info->dtype);
    fedge_status status = check_count(path, info->dims[0], err);
    if (!status)
        status = fedge_reader_expect(reader, info->dims[0] * size, "labels", err);
    if (status)
        return status;
    *count = (uint32_t)info->dims[0];
    *labels = malloc(*count * sizeof **labels);
    if (!*labels)
        return fedge_fail(err, FEDGE_NO_MEMORY, "%s: no memory for %" PRIu32 " labels", path,
                          *count);
    for (uint32_t i = 0; i < *count; i++) {
        uint8_t raw[8];
        status = fedge_reader_read(reader, raw, size, "the labels", err);
        const int64_t label = status ? 0 : load_integer(raw, info);
        if (!status)
            status = check_label(spec, path, i, label, err);
        if (status)
            return status;
        (*labels)[i] = (int32_t)label;
    }
    return fedge_reader_end(reader, err);
}

/* Makes room for one more label behind [count]. */
static fedge_status grow_labels(const char *path, uint32_t count, uint32_t *capacity,
                                int32_t **labels, fedge_error *err)
{
    fedge_status status = check_count(path, (uint64_t)count + 1, err);
    if (status || count < *capacity)
        return status;
    const uint32_t room = *capacity ? *capacity * 2 : FIRST_LABELS;
    int32_t *grown = realloc(*labels, room * sizeof *grown);
    if (!grown)
        return fedge_fail(err, FEDGE_NO_MEMORY, "%s: no memory for %" PRIu32 " labels", path, room);
    *labels = grown;
    *capacity = room;
    return FEDGE_OK;
}

/* [aside]: NULL for none. */
static fedge_status open_csv(fedge_csv *csv, const char *path, uint64_t columns, const char *aside,
                             fedge_error *err)
{
    fedge_status status = fedge_csv_open(csv, path, columns, err);
    if (status || !aside)
        return status;
    status = fedge_csv_set_aside(csv, aside, err);
    if (status)
        fedge_csv_close(csv);
    return status;
}

static fedge_status read_csv_labels(const fedge_data_spec *spec, const char *path, uint64_t columns,
                                    const char *aside, int32_t **labels, uint32_t *count,
                                    fedge_error *err)
{
    fedge_csv csv;
    fedge_status status = open_csv(&csv, path, columns, aside, err);
    if (status)
        return status;
    uint32_t capacity = 0;
    for (;;) {
        bool end = false;
        int64_t label = 0;
        status = fedge_csv_next(&csv, &end, err);
        if (status || end)
            break;
        status = fedge_csv_label(&csv, &label, err);
        if (!status)
            status = check_label(spec, path, *count, label, err);
        if (!status)
            status = grow_labels(path, *count, &capacity, labels, err);
        if (status) {
            status = fedge_error_prefix(err, status, "line %" PRIu64, csv.number);
            break;
        }
        (*labels)[(*count)++] = (int32_t)label;
    }
    fedge_csv_close(&csv);
    return status ? status : check_count(path, *count, err);
}

fedge_status fedge_labels_load(const fedge_data_spec *spec, size_t example_values,
                               const char *values_path, const char *labels_path, const char *aside,
                               int32_t **labels, uint32_t *count, fedge_error *err)
{
    *labels = NULL;
    *count = 0;
    const bool in_values = labels_path[0] == '\0';
    const char *path = in_values ? values_path : labels_path;
    format what;
    fedge_reader reader;
    fedge_array_info info;
    fedge_status status = open_array(path, &what, &reader, &info, err);
    if (status)
        return status;
    if (what == FORMAT_CSV) {
        const uint64_t columns = in_values ? (uint64_t)example_values + 1 : 1;
        status = read_csv_labels(spec, path, columns, in_values ? aside : NULL, labels, count, err);
    } else {
        if (in_values)
            status = fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                                "%s: a file without labels; name the file that has them "
                                "(only csv holds them in its last column)",
                                path);
        else
            status = read_array_labels(spec, &reader, &info, labels, count, err);
        fedge_reader_close(&reader);
    }
    if (status) {
        free(*labels);
        *labels = NULL;
        *count = 0;
    }
    return status;
}

/* --- values ----------------------------------------------------------------------------------- */

/* Copies the dimensions that are not 1; returns how many. */
static uint32_t squeeze(uint32_t rank, const uint64_t *dims, uint64_t *out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < rank; i++)
        if (dims[i] != 1)
            out[n++] = dims[i];
    return n;
}

/* Is the file's example, dims[1…], laid out as the job's? */
static bool same_shape(const fedge_data_spec *spec, size_t example_values,
                       const fedge_array_info *info)
{
    uint64_t want[3], have[FEDGE_ARRAY_MAX_RANK];
    for (uint32_t i = 0; i < spec->rank; i++)
        want[i] = spec->shape[i];
    const uint32_t want_rank = squeeze(spec->rank, want, want);
    const uint32_t have_rank = squeeze(info->rank - 1, info->dims + 1, have);
    if (want_rank == have_rank)
        return memcmp(want, have, want_rank * sizeof *want) == 0;
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

static fedge_status check_array(const fedge_dataset *dataset, const fedge_reader *reader,
                                const fedge_array_info *info, uint32_t num_examples,
                                fedge_error *err)
{
    const fedge_data_spec *spec = &dataset->spec;
    const bool fits =
        info->dtype == spec->dtype || (info->dtype == FEDGE_F64 && spec->dtype == FEDGE_F32);
    if (!fits)
        return fedge_fail(err, FEDGE_MISMATCH, "%s: values of type %s, but the job has data of %s",
                          reader->path, fedge_dtype_name(info->dtype),
                          fedge_dtype_name(spec->dtype));
    if (!same_shape(spec, dataset->example_values, info)) {
        char have[FEDGE_SHAPE_TEXT_SIZE], want[FEDGE_SHAPE_TEXT_SIZE];
        dims_text(info, have);
        fedge_shape_text(spec->rank, spec->shape, want);
        return fedge_fail(err, FEDGE_MISMATCH,
                          "%s: examples of shape %s, but the job has data of shape %s",
                          reader->path, have, want);
    }
    if (info->dims[0] != num_examples)
        return fedge_fail(err, FEDGE_MISMATCH, "%s: %" PRIu64 " examples, but %" PRIu32 " labels",
                          reader->path, info->dims[0], num_examples);
    return FEDGE_OK;
}

static fedge_status allocate_values(fedge_dataset *dataset, const char *path, fedge_error *err)
{
    const uint64_t example_bytes =
        (uint64_t)dataset->example_values * fedge_dtype_size(dataset->spec.dtype);
    const uint64_t bytes = example_bytes * dataset->count;
    if (bytes > FEDGE_DATASET_MAX_BYTES || bytes > SIZE_MAX)
        return fedge_fail(err, FEDGE_TOO_BIG,
                          "%s: %" PRIu32 " examples of %" PRIu64 " bytes are over the limit of "
                          "%" PRIu64 " bytes",
                          path, dataset->count, example_bytes, FEDGE_DATASET_MAX_BYTES);
    dataset->values = malloc((size_t)bytes);
    if (!dataset->values)
        return fedge_fail(err, FEDGE_NO_MEMORY, "%s: no memory for %" PRIu64 " bytes of examples",
                          path, bytes);
    return FEDGE_OK;
}

/* Where the values of the example at [slot] lie. */
static uint8_t *slot_values(const fedge_dataset *dataset, uint32_t slot)
{
    return (uint8_t *)dataset->values +
           (size_t)slot * dataset->example_values * fedge_dtype_size(dataset->spec.dtype);
}

/* Turns the elements of one example, as the file has them, into floats. */
static fedge_status convert_floats(const fedge_array_info *info, const char *path, uint32_t example,
                                   const uint8_t *raw, size_t n, float *out, fedge_error *err)
{
    for (size_t i = 0; i < n; i++) {
        out[i] = info->dtype == FEDGE_F64 ? load_f64(raw + 8 * i, info->big_endian)
                                          : load_f32(raw + 4 * i, info->big_endian);
        if (!isfinite(out[i]))
            return fedge_fail(err, FEDGE_NOT_FINITE,
                              "%s: value %zu of example %" PRIu32
                              " is not a finite float; clean the data",
                              path, i, example);
    }
    return FEDGE_OK;
}

static bool is_kept(const fedge_selection *kept, uint32_t example)
{
    return !kept->owner || kept->owner[example] == kept->part;
}

static fedge_status read_array_values(fedge_dataset *dataset, fedge_reader *reader,
                                      const fedge_array_info *info, const fedge_selection *kept,
                                      fedge_error *err)
{
    const size_t n = dataset->example_values;
    const size_t raw_size = n * fedge_dtype_size(info->dtype);
    const bool bytes = info->dtype == FEDGE_U8;
    uint8_t *raw = bytes ? NULL : malloc(raw_size);
    if (!bytes && !raw)
        return fedge_fail(err, FEDGE_NO_MEMORY, "%s: no memory for an example of %zu bytes",
                          reader->path, raw_size);
    fedge_status status = FEDGE_OK;
    uint32_t slot = 0;
    for (uint32_t i = 0; i < kept->num_examples && !status; i++) {
        if (!is_kept(kept, i)) {
            status = fedge_reader_skip(reader, raw_size, "the values", err);
            continue;
        }
        uint8_t *out = slot_values(dataset, slot++);
        status = fedge_reader_read(reader, bytes ? out : raw, raw_size, "the values", err);
        if (!status && !bytes)
            status = convert_floats(info, reader->path, i, raw, n, (float *)(void *)out, err);
        if (status)
            status = fedge_error_prefix(err, status, "example %" PRIu32 " of %" PRIu32, i,
                                        kept->num_examples);
    }
    free(raw);
    return status ? status : fedge_reader_end(reader, err);
}

static fedge_status read_csv_values(fedge_dataset *dataset, const char *path, bool label_column,
                                    const char *aside, const fedge_selection *kept,
                                    fedge_error *err)
{
    const uint64_t columns = (uint64_t)dataset->example_values + (label_column ? 1 : 0);
    fedge_csv csv;
    fedge_status status = open_csv(&csv, path, columns, aside, err);
    if (status)
        return status;
    uint32_t row = 0, slot = 0;
    for (;; row++) {
        bool end = false;
        status = fedge_csv_next(&csv, &end, err);
        if (status || end)
            break;
        if (row == kept->num_examples) {
            status = fedge_fail(err, FEDGE_MISMATCH,
                                "%s:%" PRIu64 ": more rows than the %" PRIu32 " labels", path,
                                csv.number, kept->num_examples);
            break;
        }
        if (!is_kept(kept, row))
            continue;
        status = fedge_csv_values(&csv, dataset->spec.dtype, dataset->example_values,
                                  slot_values(dataset, slot++), err);
        if (status)
            break;
    }
    fedge_csv_close(&csv);
    if (!status && row < kept->num_examples)
        return fedge_fail(err, FEDGE_MISMATCH, "%s: %" PRIu32 " rows, but %" PRIu32 " labels", path,
                          row, kept->num_examples);
    return status;
}

fedge_status fedge_values_load(fedge_dataset *dataset, const char *path, bool label_column,
                               const char *aside, const fedge_selection *kept, fedge_error *err)
{
    format what;
    fedge_reader reader;
    fedge_array_info info;
    fedge_status status = open_array(path, &what, &reader, &info, err);
    if (status)
        return status;
    if (what == FORMAT_CSV) {
        status = allocate_values(dataset, path, err);
        return status ? status : read_csv_values(dataset, path, label_column, aside, kept, err);
    }
    status = check_array(dataset, &reader, &info, kept->num_examples, err);
    if (!status)
        status = fedge_reader_expect(&reader,
                                     (uint64_t)kept->num_examples * dataset->example_values *
                                         fedge_dtype_size(info.dtype),
                                     "values", err);
    if (!status)
        status = allocate_values(dataset, path, err);
    if (!status)
        status = read_array_values(dataset, &reader, &info, kept, err);
    fedge_reader_close(&reader);
    return status;
}
