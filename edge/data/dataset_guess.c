#include <stdlib.h>
#include <string.h>

#include "edge/data/dataset_load.h"
#include "edge/data/formats/array_file.h"
#include "edge/data/formats/csv.h"
#include "edge/data/formats/data_file.h"

/* Values of an example in the csv file at [path]: the fields of its first row, but for the label.
 */
static fedge_status count_fields(const char *path, const char *aside, bool label, uint64_t *count,
                                 fedge_error *err)
{
    fedge_csv csv;
    bool end = false;
    fedge_status status = fedge_csv_open_aside(&csv, path, 0, aside, err);
    if (status)
        return status;
    status = fedge_csv_next(&csv, &end, err);
    *count = csv.columns - (label && csv.columns > 0);
    fedge_csv_close(&csv);
    return status;
}

/* Examples as the first of the files has them. */
static fedge_status guess_values(const fedge_dataset_files *files, const char *aside,
                                 fedge_data_spec *spec, fedge_error *err)
{
    const char *path = files->values.paths[0];
    const bool own = files->labels.count == 0;
    fedge_data_file file;
    uint64_t count = 1;
    fedge_status status = fedge_data_file_open(
        &file, spec, path, own ? FEDGE_DATA_OWN_VALUES : FEDGE_DATA_VALUES, err);
    if (status)
        return status;
    if (file.format == FEDGE_DATA_CSV) {
        status = count_fields(path, aside, own, &count, err);
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
    spec->shape[0] = count < UINT32_MAX ? (uint32_t)count : UINT32_MAX; /* loading says why not */
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
    fedge_status status = fedge_file_list_open(&files.values, values_path, err);
    if (!status)
        status = fedge_file_list_open(&files.labels, labels_path, err);
    if (!status && files.values.count == 0)
        status = fedge_fail(err, FEDGE_NOT_FOUND, "there is no file of values");
    if (!status)
        status = guess_values(&files, aside, spec, err);
    if (!status)
        status = fedge_labels_load(spec, spec->shape[0], &files, aside, &labels, &count, err);
    for (uint32_t i = 0; i < count; i++)
        most = labels[i] > most ? labels[i] : most;
    spec->num_labels = (uint32_t)most + 1;
    free(labels);
    free(files.ends);
    fedge_file_list_close(&files.values);
    fedge_file_list_close(&files.labels);
    return status;
}
