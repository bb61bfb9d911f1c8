#define _GNU_SOURCE /* memfd_create */
#include "tests/fuzz/data_file.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define SOME_EXAMPLES 64 /* read back of those that were accepted */

void fuzz_save_file(int which, const void *data, size_t size, char path[FUZZ_MAX_PATH])
{
    static int files[2] = {-1, -1};
    if (files[which] < 0)
        files[which] = memfd_create("fuzz", 0);
    if (files[which] < 0 || ftruncate(files[which], 0) ||
        pwrite(files[which], data, size, 0) != (ssize_t)size)
        abort();
    (void)snprintf(path, FUZZ_MAX_PATH, "/proc/self/fd/%d", files[which]);
}

static void check(const fedge_data_spec *spec, const char *values, const char *labels)
{
    fedge_error err;
    fedge_dataset *dataset = NULL;
    if (fedge_dataset_load(spec, values, labels, &dataset, &err))
        return;
    size_t n = 1;
    for (uint32_t i = 0; i < spec->rank; i++)
        n *= spec->shape[i];
    float *x = malloc(n * sizeof(*x));
    if (!x)
        abort();
    const fedge_view view = {dataset, NULL, fedge_dataset_size(dataset)};
    const fedge_examples examples = fedge_view_examples(&view);
    if (view.count == 0)
        abort();
    for (uint32_t i = 0; i < view.count && i < SOME_EXAMPLES; i++) {
        int32_t label = -1;
        if (examples.read(examples.user, &i, 1, 0, x, &label, &err) || label < 0 ||
            (uint32_t)label >= spec->num_labels)
            abort();
        for (size_t j = 0; j < n; j++) {
            if (!isfinite(x[j]))
                abort();
        }
    }
    free(x);
    fedge_dataset_free(dataset);
}

void fuzz_data_file(const fedge_data_spec *spec, const uint8_t *data, size_t size)
{
    static const char LABELS[] = "0\n1\n2\n";
    char values[FUZZ_MAX_PATH], labels[FUZZ_MAX_PATH];
    fuzz_save_file(0, data, size, values);
    fuzz_save_file(1, LABELS, sizeof(LABELS) - 1, labels);
    check(spec, values, labels);
    check(spec, values, "");
    check(spec, labels, values); /* the bytes as labels */
}

void fuzz_both_types(uint32_t rank, const uint8_t *data, size_t size)
{
    fedge_data_spec spec = {.name = "fuzz",
                            .rank = rank,
                            .shape = {2, 2},
                            .dtype = FEDGE_U8,
                            .num_labels = 10,
                            .divide_by = 2};
    fuzz_data_file(&spec, data, size);
    spec.dtype = FEDGE_F32;
    fuzz_data_file(&spec, data, size);
}
