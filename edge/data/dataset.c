#include "edge/data/dataset.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/message.h"
#include "edge/core/os.h"
#include "edge/core/rng.h"
#include "edge/data/dataset_load.h"

#define MOST_FETCHED ((size_t)64 << 10) /* bytes of examples to prefetch */
#define MOST_TABLES                                                                                \
    16 /* a channel's levels take over 1 KB: with more channels, values are computed */

/* --- loading ---------------------------------------------------------------------------------- */

static fedge_status check_spec(const fedge_data_spec *spec, size_t *example_values,
                               fedge_error *err)
{
    const char *name = spec->name;
    if (spec->rank < 1 || spec->rank > 3) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "data '%s': shape of %" PRIu32 " dimensions; 1 to 3 are possible", name,
                          spec->rank);
    }
    size_t n = 1;
    for (uint32_t i = 0; i < spec->rank; i++) {
        if (spec->shape[i] == 0) {
            return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "data '%s': dimension %" PRIu32 " is 0",
                              name, i);
        }
        if (n > FEDGE_DATASET_MAX_EXAMPLE_VALUES / spec->shape[i]) {
            return fedge_fail(err, FEDGE_TOO_BIG,
                              "data '%s': an example has more than the limit of %zu values", name,
                              FEDGE_DATASET_MAX_EXAMPLE_VALUES);
        }
        n *= spec->shape[i];
    }
    if (spec->dtype != FEDGE_U8 && spec->dtype != FEDGE_F32)
        return fedge_fail(err, FEDGE_UNSUPPORTED, "data '%s': the type must be U8 or F32", name);
    if (spec->targets.kind == FEDGE_TARGETS_CLASSES &&
        (spec->num_labels < 1 || spec->num_labels > INT32_MAX)) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "data '%s': %" PRIu32 " labels; 1 to %" PRId32 " are possible", name,
                          spec->num_labels, INT32_MAX);
    }
    const uint32_t channels = spec->num_channels;
    if (channels > 1 && channels != spec->shape[0]) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "data '%s': mean and std for %" PRIu32
                          " channels; 1 or the shape's %" PRIu32 " are possible",
                          name, channels, spec->shape[0]);
    }
    bool usable = isfinite(spec->divide_by) && spec->divide_by != 0;
    for (uint32_t c = 0; c < channels; c++)
        usable = usable && isfinite(spec->mean[c]) && isfinite(spec->std[c]) && spec->std[c] > 0;
    if (!usable) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "data '%s': divide-by must not be 0, std must be over 0, all finite",
                          name);
    }
    *example_values = n;
    return FEDGE_OK;
}

static fedge_status make_levels(fedge_dataset *dataset, fedge_error *err)
{
    if (dataset->spec.dtype != FEDGE_U8)
        return FEDGE_OK;
    const fedge_data_spec *spec = &dataset->spec;
    const uint32_t rows = spec->num_channels > 1 ? spec->num_channels : 1;
    dataset->finite = true;
    for (uint32_t c = 0; c < rows; c++) { /* the other levels are between these two */
        dataset->finite = dataset->finite && isfinite(fedge_data_normalise(spec, c, 0.0f)) &&
                          isfinite(fedge_data_normalise(spec, c, FEDGE_LEVELS - 1));
    }
    if (rows > MOST_TABLES)
        return FEDGE_OK;
    /* A byte has 256 values: a table gives the bits of the computation without a division per
     * pixel. */
    dataset->levels = malloc(rows * sizeof(*dataset->levels));
    if (!dataset->levels) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "data '%s': no memory for its normalisation",
                          spec->name);
    }
    const bool centred = spec->num_channels > 0; /* x − 0 and x / 1 are x */
    for (uint32_t c = 0; c < rows; c++) {
        fedge_levels_make(&dataset->levels[c], spec->divide_by, centred ? spec->mean[c] : 0.0f,
                          centred ? spec->std[c] : 1.0f, fedge_os_cpu_features());
    }
    return FEDGE_OK;
}

/* The division of a data set, and which parts are loaded. */
typedef struct parts {
    const fedge_partition_spec *partition; /* NULL: all examples are loaded */
    uint32_t num_parts;
    uint32_t part; /* loaded part, unless [all] are */
    bool all;
    double validation; /* fraction of validation examples, for [assign_with_validation] */
    fedge_status (*assign_with_validation)(const fedge_partition_spec *,
                                           const fedge_partition_data *, double, uint32_t,
                                           uint32_t *,
                                           fedge_error *); /* NULL when loading a device's part */
    uint32_t *owner; /* malloc'ed, (examples in the files), or NULL without a partition */
} parts;

/* The csv column that is not read as a value, or NULL. */
static const char *aside_of(const fedge_data_spec *spec, const parts *d)
{
    const bool natural = d->partition && d->partition->scheme == FEDGE_PARTITION_NATURAL;
    return natural ? d->partition->source : spec->aside;
}

static fedge_status divide(parts *d, fedge_dataset *dataset, const char *values_path,
                           const fedge_dataset_files *files, uint32_t count, fedge_error *err)
{
    const fedge_data_spec *spec = &dataset->spec;
    const bool ranked = FEDGE_WITH_TARGETS && dataset->num_targets > 0;
    if (!d->partition)
        return FEDGE_OK;
#if FEDGE_WITH_TARGETS
    if (ranked && fedge_partition_needs_labels(d->partition))
        FEDGE_TRY(fedge_targets_bin(dataset, count, FEDGE_PARTITION_BINS, err));
#endif
    d->owner = malloc(count * sizeof(*d->owner));
    if (!d->owner) {
        return fedge_fail(err, FEDGE_NO_MEMORY,
                          "data '%s': no memory to divide %" PRIu32 " examples", spec->name, count);
    }
    const fedge_partition_data data = {
        .num_examples = count,
        .num_labels = ranked ? FEDGE_PARTITION_BINS : spec->num_labels,
        .labels = spec->num_labels > 0 || ranked ? dataset->labels : NULL,
        .values_path = values_path,
        .num_files = files->values.count,
        .file_ends = files->ends};
    return d->assign_with_validation
               ? d->assign_with_validation(d->partition, &data, d->validation, d->num_parts,
                                           d->owner, err)
               : fedge_partition_assign(d->partition, &data, d->num_parts, d->owner, err);
}

/* Lists the files; with per-file, only those of the part. */
static fedge_status list_files(const fedge_data_spec *spec, const char *values_path,
                               const char *labels_path, parts *d, fedge_dataset_files *files,
                               fedge_error *err)
{
    FEDGE_TRY(fedge_file_list_open(&files->values, values_path, err));
    if (spec->targets.kind != FEDGE_TARGETS_INPUT)
        FEDGE_TRY(fedge_file_list_open(&files->labels, labels_path, err));
    const uint32_t count = files->values.count;
    if (count == 0)
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "data '%s': no file is named", spec->name);
    if (files->labels.count > 0 && files->labels.count != count) {
        return fedge_fail(err, FEDGE_MISMATCH,
                          "data '%s': %" PRIu32 " files of values (%s …), but %" PRIu32
                          " of labels (%s …); name as many, in the same order",
                          spec->name, count, files->values.paths[0], files->labels.count,
                          files->labels.paths[0]);
    }
    if (!d->partition || d->all)
        return FEDGE_OK;
    if (d->part >= d->num_parts) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "data '%s': part %" PRIu32 " of %" PRIu32
                          "; parts are counted from 0 to their number − 1",
                          spec->name, d->part, d->num_parts);
    }
    /* Other parts' files need not exist on this device. */
    if (d->partition->scheme != FEDGE_PARTITION_PER_FILE)
        return FEDGE_OK;
    FEDGE_TRY(fedge_partition_check_files(count, d->num_parts, err));
    fedge_file_list_keep(&files->values, d->part);
    if (files->labels.count > 0)
        fedge_file_list_keep(&files->labels, d->part);
    d->partition = NULL;
    return FEDGE_OK;
}

/* Compacts the labels and targets of one part in place; returns their number. */
static uint32_t keep_answers(fedge_dataset *dataset, uint32_t count, const uint32_t *owner,
                             uint32_t part)
{
    const uint32_t each = FEDGE_WITH_TARGETS ? dataset->num_targets : 0;
    uint32_t size = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (owner && owner[i] != part)
            continue;
        if (each > 0 && size < i) {
            memcpy(dataset->targets + (size_t)size * each, dataset->targets + (size_t)i * each,
                   each * sizeof(*dataset->targets));
        }
        dataset->labels[size++] = dataset->labels[i];
    }
    return size;
}

static fedge_status fill(fedge_dataset *dataset, const char *values_path, const char *labels_path,
                         fedge_dataset_files *files, parts *d, fedge_error *err)
{
    const fedge_data_spec *spec = &dataset->spec;
    const char *aside = aside_of(spec, d);
    uint32_t count = 0;
    FEDGE_TRY(list_files(spec, values_path, labels_path, d, files, err));
    FEDGE_TRY(fedge_answers_load(dataset, files, aside, &count, err));
    FEDGE_TRY(divide(d, dataset, values_path, files, count, err));
    /* Labels are read first: a division may need all labels, while a device has memory only for its
     * part's values. */
    const uint32_t *owner = d->all ? NULL : d->owner;
    dataset->count = keep_answers(dataset, count, owner, d->part);
    FEDGE_TRY(fedge_values_load(dataset, files, aside, owner, d->part, err));
    return make_levels(dataset, err);
}

/* A data set without examples. */
static fedge_status make(const fedge_data_spec *spec, fedge_dataset **out, fedge_error *err)
{
    size_t example_values = 0;
    FEDGE_TRY(check_spec(spec, &example_values, err));
    fedge_dataset *dataset = calloc(1, sizeof(*dataset));
    if (!dataset)
        return fedge_fail(err, FEDGE_NO_MEMORY, "data '%s': no memory", spec->name);
    dataset->spec = *spec;
    dataset->example_values = example_values;
    dataset->plane = example_values / (spec->num_channels > 1 ? spec->num_channels : 1);
    *out = dataset;
    return FEDGE_OK;
}

/* On failure d->owner may be allocated. */
static fedge_status load(const fedge_data_spec *spec, const char *values_path,
                         const char *labels_path, parts *d, fedge_dataset **out, fedge_error *err)
{
    *out = NULL;
    fedge_dataset *dataset = NULL;
    FEDGE_TRY(make(spec, &dataset, err));
    fedge_dataset_files files = {.ends = NULL};
    const fedge_status status = d->all && d->num_parts == 0 && d->partition
                                    ? make_levels(dataset, err)
                                    : fill(dataset, values_path, labels_path, &files, d, err);
    fedge_file_list_close(&files.values);
    fedge_file_list_close(&files.labels);
    free(files.ends);
    if (status != FEDGE_OK) {
        fedge_dataset_free(dataset);
        return status;
    }
    *out = dataset;
    return FEDGE_OK;
}

fedge_status fedge_dataset_load(const fedge_data_spec *spec, const char *values_path,
                                const char *labels_path, fedge_dataset **dataset, fedge_error *err)
{
    *dataset = NULL;
    parts d = {.all = true};
    return load(spec, values_path, labels_path, &d, dataset, err);
}

fedge_status fedge_dataset_load_part(const fedge_data_spec *spec, const char *values_path,
                                     const char *labels_path, const fedge_partition_spec *partition,
                                     uint32_t part, uint32_t num_parts, fedge_dataset **dataset,
                                     fedge_error *err)
{
    *dataset = NULL;
    parts d = {.partition = partition, .num_parts = num_parts, .part = part};
    const fedge_status status = load(spec, values_path, labels_path, &d, dataset, err);
    free(d.owner);
    return status;
}

fedge_status fedge_dataset_load_divided(const fedge_data_spec *spec, const char *values_path,
                                        const char *labels_path, const fedge_division *division,
                                        fedge_dataset **dataset, uint32_t **owner, fedge_error *err)
{
    *dataset = NULL;
    *owner = NULL;
    /* A function pointer, so that clients do not link what only simulations use. */
    parts d = {.partition = division->partition,
               .num_parts = division->num_parts,
               .all = true,
               .validation = division->validation,
               .assign_with_validation = fedge_partition_assign_with_validation};
    const fedge_status status = load(spec, values_path, labels_path, &d, dataset, err);
    if (status != FEDGE_OK)
        free(d.owner);
    *owner = status ? NULL : d.owner;
    return status;
}

void fedge_dataset_free(fedge_dataset *dataset)
{
    if (!dataset)
        return;
    free(dataset->values);
    free(dataset->labels);
    free(dataset->targets);
    free(dataset->levels);
    free(dataset);
}

uint32_t fedge_dataset_size(const fedge_dataset *dataset)
{
    return dataset->count;
}

const void *fedge_dataset_values(const fedge_dataset *dataset)
{
    return dataset->values;
}

const int32_t *fedge_dataset_labels(const fedge_dataset *dataset)
{
    return dataset->labels;
}

uint32_t fedge_dataset_crc32(const fedge_dataset *dataset)
{
    const size_t count = dataset->count;
    const size_t size = dataset->example_values * fedge_dtype_size(dataset->spec.dtype);
    const uint32_t crc = fedge_crc32(0, dataset->values, count * size);
    if (FEDGE_WITH_TARGETS && dataset->num_targets > 0) {
        return fedge_crc32(crc, dataset->targets,
                           count * dataset->num_targets * sizeof(*dataset->targets));
    }
    return fedge_crc32(crc, dataset->labels, count * sizeof(*dataset->labels));
}

/* --- reading ---------------------------------------------------------------------------------- */

/* [next]: the example to be read after it. */
static void read_u8(const fedge_dataset *dataset, uint32_t example, uint32_t next, float *x)
{
    const uint8_t *values = dataset->values;
    const uint8_t *v = values + (size_t)example * dataset->example_values;
    const uint8_t *soon = values + (size_t)next * dataset->example_values;
    const fedge_levels *levels = dataset->levels;
    for (size_t at = 0; at < dataset->example_values; at += dataset->plane)
        fedge_levels_read(levels++, v + at, dataset->plane, soon + at, x + at);
}

static void read_computed(const fedge_dataset *dataset, uint32_t example, float *x)
{
    const size_t first = (size_t)example * dataset->example_values;
    const bool bytes = dataset->spec.dtype == FEDGE_U8;
    uint32_t channel = 0;
    for (size_t at = 0; at < dataset->example_values; at += dataset->plane, channel++) {
        for (size_t i = at; i < at + dataset->plane; i++) {
            const float v = bytes ? (float)((const uint8_t *)dataset->values)[first + i]
                                  : ((const float *)dataset->values)[first + i];
            x[i] = fedge_data_normalise(&dataset->spec, channel, v);
        }
    }
}

static uint32_t example_of(const fedge_view *view, uint32_t index)
{
    return view->indices ? view->indices[index] : index;
}

/* Prefetches examples, but no more than stay in the cache during training. */
static void fetch(const fedge_view *view, const uint32_t *indices, uint32_t n)
{
    const fedge_dataset *dataset = view->dataset;
    const size_t size = dataset->example_values * fedge_dtype_size(dataset->spec.dtype);
    for (uint32_t i = 0; i < n && (i + 1) * size <= MOST_FETCHED && indices[i] < view->count; i++) {
        fedge_levels_fetch((const uint8_t *)dataset->values + example_of(view, indices[i]) * size,
                           size);
    }
}

static fedge_status read_view(void *user, const uint32_t *indices, uint32_t n, uint32_t num_next,
                              float *x, int32_t *labels, fedge_error *err)
{
    const fedge_view *view = user;
    const fedge_dataset *dataset = view->dataset;
    for (uint32_t i = 0; i < n; i++) {
        if (indices[i] >= view->count) {
            return fedge_fail(err, FEDGE_OUT_OF_RANGE,
                              "data '%s': example %" PRIu32 " is asked for, but there are %" PRIu32,
                              dataset->spec.name, indices[i], view->count);
        }
    }
    for (uint32_t i = 0; i < n; i++) { /* fetched in one block: memory latency is paid once */
        labels[i] = dataset->labels[example_of(view, indices[i])];
    }
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t example = example_of(view, indices[i]);
        float *out = x + (size_t)i * dataset->example_values;
        if (dataset->levels)
            read_u8(dataset, example, example_of(view, indices[i + 1 < n ? i + 1 : i]), out);
        else
            read_computed(dataset, example, out);
    }
    fetch(view, indices + n, num_next < n ? num_next : n);
    return FEDGE_OK;
}

/* ---- targets ---- */

static void read_targets(const void *user, const uint32_t *indices, uint32_t n, float *targets)
{
    const fedge_view *view = user;
    const fedge_dataset *dataset = view->dataset;
    const fedge_targets_spec *spec = &dataset->spec.targets;
    const uint32_t each = dataset->num_targets;
    for (uint32_t i = 0; i < n; i++) {
        const float *t = dataset->targets + (size_t)example_of(view, indices[i]) * each;
        for (uint32_t k = 0; k < each; k++) {
            const uint32_t at = spec->num_scales > 1 ? k : 0;
            *targets++ = spec->num_scales > 0 ? (t[k] - spec->mean[at]) / spec->std[at] : t[k];
        }
    }
}

static fedge_targets targets_of(const fedge_view *view)
{
    const fedge_data_spec *spec = &view->dataset->spec;
    const uint32_t count = fedge_data_num_targets(spec);
    const bool input = spec->targets.kind == FEDGE_TARGETS_INPUT;
    return (fedge_targets){.count = count,
                           .read = count > 0 && !input ? read_targets : NULL,
                           .user = view,
                           .units = {.num_scales = spec->targets.num_scales,
                                     .mean = spec->targets.mean,
                                     .std = spec->targets.std}};
}

fedge_status fedge_view_variation(const fedge_view *view, double *variation, fedge_error *err)
{
    const fedge_examples examples = fedge_view_examples(view);
    const fedge_targets *targets = &examples.targets;
    const uint32_t each = targets->count;
    *variation = 0.0;
    double *sums = calloc((size_t)each * 2 + 1, sizeof(*sums)),
           *squares = sums ? sums + each : NULL;
    float *x = calloc(view->dataset->example_values, sizeof(*x));
    float *t = targets->read ? calloc((size_t)each + 1, sizeof(*t)) : x;
    fedge_status status = FEDGE_OK;
    if (!sums || !x || !t)
        FEDGE_TRY_OR(fedge_fail(err, FEDGE_NO_MEMORY, "no memory for targets' means"), done);
    for (uint32_t i = 0; i < view->count; i++) {
        int32_t label;
        if (targets->read)
            targets->read(targets->user, &i, 1, t);
        else
            FEDGE_TRY_OR(read_view(examples.user, &i, 1, 0, x, &label, err), done);
        for (uint32_t k = 0; k < each; k++) {
            /* Welford's step, since large means would cancel. */
            const double value = fedge_target_in_unit(&targets->units, k, t[k]);
            const double from = value - sums[k];
            sums[k] += from / ((double)i + 1.0);
            squares[k] += from * (value - sums[k]);
        }
    }
    for (uint32_t k = 0; k < each; k++)
        *variation += squares[k];
done:
    free(sums);
    free(x);
    if (t != x)
        free(t);
    return status;
}

fedge_examples fedge_view_examples(const fedge_view *view)
{
    /* fedge_examples has no const user, for other sources; this one only reads. */
    void *user;
    memcpy(&user, &view, sizeof(user));
    return (fedge_examples){.user = user,
                            .num_examples = view->count,
                            .read = read_view,
                            .finite = view->dataset->finite,
                            .targets = targets_of(view)};
}

void fedge_view_fini(fedge_view *view)
{
    free(view->indices);
    *view = (fedge_view){.dataset = NULL};
}

fedge_status fedge_view_split(fedge_view *view, double fraction, uint64_t seed,
                              uint32_t client_index, fedge_view *held_out, fedge_error *err)
{
    *held_out = (fedge_view){.dataset = view->dataset};
    if (!(fraction >= 0 && fraction < 1)) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "validation fraction %g; it must be at least 0 and below 1", fraction);
    }
    const uint32_t num_held = (uint32_t)(fraction * view->count);
    if (num_held == 0)
        return FEDGE_OK;
    const uint32_t num_train = view->count - num_held;
    uint32_t *order = malloc(view->count * sizeof(*order));
    uint8_t *is_held = calloc(view->count, 1);
    uint32_t *held_indices = malloc(num_held * sizeof(*held_indices));
    uint32_t *train_indices = malloc(num_train * sizeof(*train_indices));
    if (!order || !is_held || !held_indices || !train_indices) {
        free(order);
        free(is_held);
        free(held_indices);
        free(train_indices);
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to split %" PRIu32 " examples",
                          view->count);
    }
    for (uint32_t i = 0; i < view->count; i++)
        order[i] = i;
    /* Rounds start at 1, so round 0's stream of this purpose is unused. */
    fedge_rng rng = fedge_rng_stream(seed, FEDGE_PURPOSE_SHUFFLE, 0, client_index, 0);
    fedge_rng_shuffle(&rng, order, view->count);
    for (uint32_t i = 0; i < num_held; i++)
        is_held[order[i]] = 1;
    uint32_t h = 0, r = 0;
    for (uint32_t i = 0; i < view->count; i++) {
        const uint32_t example = view->indices ? view->indices[i] : i;
        if (is_held[i])
            held_indices[h++] = example;
        else
            train_indices[r++] = example;
    }
    free(order);
    free(is_held);
    free(view->indices);
    *view = (fedge_view){view->dataset, train_indices, num_train};
    *held_out = (fedge_view){view->dataset, held_indices, num_held};
    return FEDGE_OK;
}

/* ---- levels ---------------------------------------------------------------------------------- */

#define LINE 64u /* bytes prefetched at a time */

static void read_table(const fedge_levels *levels, const uint8_t *v, size_t n, float *x)
{
    for (size_t i = 0; i < n; i++)
        x[i] = levels->table[v[i]];
}

#if defined(__x86_64__)

#include <immintrin.h>

__attribute__((target("avx2,fma"))) static void
read_avx2(const fedge_levels *levels, const uint8_t *v, size_t n, const uint8_t *next, float *x)
{
    const __m256 d_high = _mm256_set1_ps(levels->divide_by.high);
    const __m256 d_low = _mm256_set1_ps(levels->divide_by.low);
    const __m256 s_high = _mm256_set1_ps(levels->std.high);
    const __m256 s_low = _mm256_set1_ps(levels->std.low);
    const __m256 mean = _mm256_set1_ps(levels->mean);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        if (i % LINE == 0)
            _mm_prefetch((const char *)next + i, _MM_HINT_T0);
        const __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)(v + i));
        __m256 y = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
        y = _mm256_fmadd_ps(y, d_high, _mm256_mul_ps(y, d_low));
        y = _mm256_sub_ps(y, mean);
        y = _mm256_fmadd_ps(y, s_high, _mm256_mul_ps(y, s_low));
        _mm256_storeu_ps(x + i, y);
    }
    read_table(levels, v + i, n - i, x + i);
}

__attribute__((target("avx512f"))) static void
read_avx512(const fedge_levels *levels, const uint8_t *v, size_t n, const uint8_t *next, float *x)
{
    const __m512 d_high = _mm512_set1_ps(levels->divide_by.high);
    const __m512 d_low = _mm512_set1_ps(levels->divide_by.low);
    const __m512 s_high = _mm512_set1_ps(levels->std.high);
    const __m512 s_low = _mm512_set1_ps(levels->std.low);
    const __m512 mean = _mm512_set1_ps(levels->mean);
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        if (i % LINE == 0)
            _mm_prefetch((const char *)next + i, _MM_HINT_T0);
        const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(v + i));
        __m512 y = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
        y = _mm512_fmadd_ps(y, d_high, _mm512_mul_ps(y, d_low));
        y = _mm512_sub_ps(y, mean);
        y = _mm512_fmadd_ps(y, s_high, _mm512_mul_ps(y, s_low));
        _mm512_storeu_ps(x + i, y);
    }
    read_table(levels, v + i, n - i, x + i);
}

void fedge_levels_fetch(const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i += LINE)
        _mm_prefetch((const char *)bytes + i, _MM_HINT_T1);
}

static void choose(fedge_levels *levels, unsigned cpu_features)
{
    levels->read = (cpu_features & FEDGE_CPU_AVX512) != 0 ? read_avx512
                   : (cpu_features & FEDGE_CPU_AVX2) != 0 ? read_avx2
                                                          : NULL;
}

#else

void fedge_levels_fetch(const uint8_t *bytes, size_t size)
{
    (void)bytes, (void)size;
}

static void choose(fedge_levels *levels, unsigned cpu_features)
{
    (void)cpu_features;
    levels->read = NULL;
}

#endif

static fedge_reciprocal reciprocal(float of)
{
    const double exact = 1.0 / (double)of;
    const float high = (float)exact;
    return (fedge_reciprocal){high, (float)(exact - (double)high)};
}

/* Whether [read] gives the bits of the table. */
static bool is_exact(const fedge_levels *levels)
{
    uint8_t v[FEDGE_LEVELS];
    float x[FEDGE_LEVELS];
    for (unsigned i = 0; i < FEDGE_LEVELS; i++)
        v[i] = (uint8_t)i;
    levels->read(levels, v, FEDGE_LEVELS, v, x);
    uint32_t read[FEDGE_LEVELS], wanted[FEDGE_LEVELS];
    memcpy(read, x, sizeof(read));
    memcpy(wanted, levels->table, sizeof(wanted));
    return memcmp(read, wanted, sizeof(read)) == 0;
}

void fedge_levels_make(fedge_levels *levels, float divide_by, float mean, float std,
                       unsigned cpu_features)
{
    for (unsigned i = 0; i < FEDGE_LEVELS; i++)
        levels->table[i] = ((float)i / divide_by - mean) / std;
    levels->divide_by = reciprocal(divide_by);
    levels->std = reciprocal(std);
    levels->mean = mean;
    choose(levels, cpu_features);
    if (levels->read && !is_exact(levels))
        levels->read = NULL;
}

void fedge_levels_read(const fedge_levels *levels, const uint8_t *v, size_t n, const uint8_t *next,
                       float *x)
{
    if (levels->read)
        levels->read(levels, v, n, next, x);
    else
        read_table(levels, v, n, x);
}

/* ---- editing --------------------------------------------------------------------------------- */

/* Changes of a data set by simulations: attacks, or examples from other ranks. Not linked into
 * clients. */

void fedge_dataset_set_label(fedge_dataset *dataset, uint32_t example, int32_t label)
{
    dataset->labels[example] = label;
}

static void mark(fedge_dataset *dataset, size_t at)
{
    if (dataset->spec.dtype == FEDGE_U8)
        ((uint8_t *)dataset->values)[at] = UINT8_MAX;
    else
        ((float *)dataset->values)[at] = dataset->spec.divide_by;
}

void fedge_dataset_stamp(fedge_dataset *dataset, uint32_t example)
{
    const fedge_data_spec *spec = &dataset->spec;
    const size_t width = spec->shape[spec->rank - 1];
    const size_t height = spec->rank > 1 ? spec->shape[spec->rank - 2] : 1;
    const size_t rows = height < FEDGE_DATASET_MARK ? height : FEDGE_DATASET_MARK;
    const size_t columns = width < FEDGE_DATASET_MARK ? width : FEDGE_DATASET_MARK;
    const size_t first = (size_t)example * dataset->example_values;
    for (size_t image = height * width; image <= dataset->example_values; image += height * width) {
        for (size_t y = 1; y <= rows; y++) {
            for (size_t x = 1; x <= columns; x++)
                mark(dataset, first + image - (y - 1) * width - x);
        }
    }
}

size_t fedge_dataset_example_size(const fedge_dataset *dataset)
{
    return dataset->example_values * fedge_dtype_size(dataset->spec.dtype);
}

fedge_status fedge_dataset_extend(fedge_dataset *dataset, uint32_t count, void **values,
                                  int32_t **labels, fedge_error *err)
{
    if (dataset->num_targets > 0) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "data '%s': files spread over ranks have classes, not data.targets",
                          dataset->spec.name);
    }
    const size_t size = fedge_dataset_example_size(dataset);
    const size_t whole = (size_t)dataset->count + count;
    void *more_values = realloc(dataset->values, whole * size + 1);
    dataset->values = more_values ? more_values : dataset->values;
    int32_t *more_labels = realloc(dataset->labels, whole * sizeof(*more_labels) + 1);
    dataset->labels = more_labels ? more_labels : dataset->labels;
    if (!more_values || !more_labels) {
        return fedge_fail(err, FEDGE_NO_MEMORY,
                          "data '%s': no memory for %" PRIu32 " more examples", dataset->spec.name,
                          count);
    }
    *values = (uint8_t *)dataset->values + dataset->count * size;
    *labels = dataset->labels + dataset->count;
    dataset->count += count;
    return FEDGE_OK;
}
