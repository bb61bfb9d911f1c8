#include "edge/data/partitions/partition.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/data/partitions/scheme.h"
#include "edge/json/json.h"

#define MAX_NAME 32 /* bytes of a scheme's name, with NUL */
#define MAX_LIST 256

static const fedge_partition_ops *const SCHEMES[FEDGE_PARTITION_COUNT] = {
    [FEDGE_PARTITION_IID] = &fedge_partition_iid,
    [FEDGE_PARTITION_SHARDS] = &fedge_partition_shards,
    [FEDGE_PARTITION_DIRICHLET] = &fedge_partition_dirichlet,
    [FEDGE_PARTITION_DIRICHLET_CLIENT] = &fedge_partition_dirichlet_client,
    [FEDGE_PARTITION_LABELS] = &fedge_partition_labels,
    [FEDGE_PARTITION_QUANTITY] = &fedge_partition_quantity,
    [FEDGE_PARTITION_NATURAL] = &fedge_partition_natural,
    [FEDGE_PARTITION_FILE] = &fedge_partition_file,
    [FEDGE_PARTITION_PER_FILE] = &fedge_partition_per_file,
};

/* --- texts ------------------------------------------------------------------------------------ */

static fedge_status unknown_scheme(const char *text, const char *name, fedge_error *err)
{
    const char *names[FEDGE_PARTITION_COUNT];
    char list[MAX_LIST] = "";
    size_t length = 0;
    for (int i = 0; i < FEDGE_PARTITION_COUNT; i++) {
        names[i] = SCHEMES[i]->name;
        length += (size_t)snprintf(list + length, sizeof(list) - length, "%s%s", i ? ", " : "",
                                   SCHEMES[i]->usage);
    }
    const char *nearest = fedge_json_nearest(name, names, FEDGE_PARTITION_COUNT);
    return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                      "partition \"%.40s\" is not known%s%s%s one of %s", text,
                      nearest ? "; did you mean \"" : "", nearest ? nearest : "",
                      nearest ? "\"? Use" : "; use", list);
}

/* FEDGE_OUT_OF_RANGE, also for a spec that was not parsed. */
static fedge_status check_argument(const fedge_partition_ops *ops, const fedge_partition_spec *spec,
                                   fedge_error *err)
{
    const bool alpha_fits = spec->alpha >= FEDGE_PARTITION_MIN_ALPHA &&
                            spec->alpha <= FEDGE_PARTITION_MAX_ALPHA; /* false for NaN */
    if (ops->argument == FEDGE_PARTITION_ALPHA && !alpha_fits) {
        return fedge_fail(err, FEDGE_OUT_OF_RANGE, "partition %s: alpha %g must be within %g to %g",
                          ops->usage, spec->alpha, FEDGE_PARTITION_MIN_ALPHA,
                          FEDGE_PARTITION_MAX_ALPHA);
    }
    if (ops->argument == FEDGE_PARTITION_K &&
        (spec->count == 0 || spec->count > FEDGE_PARTITION_MAX_COUNT)) {
        return fedge_fail(err, FEDGE_OUT_OF_RANGE, "partition %s: K must be within 1 to %u",
                          ops->usage, FEDGE_PARTITION_MAX_COUNT);
    }
    return FEDGE_OK;
}

static fedge_status read_alpha(const char *text, const char *digits, double *alpha,
                               fedge_error *err)
{
    char *stop;
    *alpha = strtod(digits, &stop);
    /* strtod would accept white space, signs, "inf" and "nan". */
    const bool starts_well = (*digits >= '0' && *digits <= '9') || *digits == '.';
    if (!starts_well || stop == digits || *stop) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "partition \"%.40s\": a number must follow the colon", text);
    }
    return FEDGE_OK;
}

/* Saturates at UINT32_MAX. */
static fedge_status read_count(const char *text, const char *digits, uint32_t *count,
                               fedge_error *err)
{
    uint64_t n = 0;
    const char *at = digits;
    for (; *at >= '0' && *at <= '9'; at++)
        n = n < UINT32_MAX ? n * 10 + (uint64_t)(*at - '0') : n;
    if (at == digits || *at) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "partition \"%.40s\": a whole number must follow the colon", text);
    }
    *count = n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
    return FEDGE_OK;
}

static fedge_status read_source(const fedge_partition_ops *ops, const char *source,
                                fedge_partition_spec *spec, fedge_error *err)
{
    const size_t length = strlen(source);
    if (length == 0) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "partition \"%s:\": write %s", ops->name,
                          ops->usage);
    }
    if (length >= sizeof(spec->source)) {
        return fedge_fail(err, FEDGE_OUT_OF_RANGE,
                          "partition %s: %zu bytes behind the colon; at most %zu are possible",
                          ops->usage, length, sizeof(spec->source) - 1);
    }
    memcpy(spec->source, source, length + 1);
    return FEDGE_OK;
}

fedge_status fedge_partition_parse(const char *text, fedge_partition_spec *spec, fedge_error *err)
{
    char name[MAX_NAME];
    const size_t length = strcspn(text, ":");
    (void)snprintf(name, sizeof(name), "%.*s", (int)(length < MAX_NAME ? length : MAX_NAME), text);
    int scheme = 0;
    while (scheme < FEDGE_PARTITION_COUNT && strcmp(SCHEMES[scheme]->name, name) != 0)
        scheme++;
    if (scheme == FEDGE_PARTITION_COUNT)
        return unknown_scheme(text, name, err);
    const fedge_partition_ops *ops = SCHEMES[scheme];
    const bool colon = text[length] == ':';
    if (colon != (ops->argument != FEDGE_PARTITION_NO_ARGUMENT)) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "partition \"%.40s\": write \"%s\"", text,
                          ops->usage);
    }
    fedge_partition_spec read = {.scheme = (fedge_partition_scheme)scheme, .seed = spec->seed};
    if (ops->argument == FEDGE_PARTITION_ALPHA)
        FEDGE_TRY(read_alpha(text, text + length + 1, &read.alpha, err));
    else if (ops->argument == FEDGE_PARTITION_K)
        FEDGE_TRY(read_count(text, text + length + 1, &read.count, err));
    else if (ops->argument == FEDGE_PARTITION_SOURCE)
        FEDGE_TRY(read_source(ops, text + length + 1, &read, err));
    FEDGE_TRY(check_argument(ops, &read, err));
    *spec = read;
    return FEDGE_OK;
}

void fedge_partition_text(const fedge_partition_spec *spec, char text[FEDGE_PARTITION_MAX_TEXT])
{
    const fedge_partition_ops *ops = SCHEMES[spec->scheme];
    const size_t size = FEDGE_PARTITION_MAX_TEXT;
    const int length = snprintf(text, size, "%s", ops->name);
    char *after = text + length;
    const size_t capacity = size - (size_t)length;
    if (ops->argument == FEDGE_PARTITION_ALPHA) {
        /* The shortest text that reads back as the same number, since logs show it. */
        (void)snprintf(after, capacity, ":%g", spec->alpha);
        if (strtod(after + 1, NULL) != spec->alpha)
            (void)snprintf(after, capacity, ":%.17g", spec->alpha);
    } else if (ops->argument == FEDGE_PARTITION_K) {
        (void)snprintf(after, capacity, ":%" PRIu32, spec->count);
    } else if (ops->argument == FEDGE_PARTITION_SOURCE) {
        (void)snprintf(after, capacity, ":%s", spec->source);
    }
}

/* --- dividing --------------------------------------------------------------------------------- */

void fedge_partition_group(const uint32_t *owner, uint32_t num_examples, uint32_t num_parts,
                           uint32_t *start, uint32_t *examples)
{
    /* Counting sort: sizes, then each part's start, then the examples in order. */
    memset(start, 0, ((size_t)num_parts + 1) * sizeof(*start));
    for (uint32_t i = 0; i < num_examples; i++) {
        if (owner[i] < num_parts)
            start[owner[i] + 1]++;
    }
    for (uint32_t j = 0; j < num_parts; j++)
        start[j + 1] += start[j];
    for (uint32_t i = 0; i < num_examples; i++) {
        if (owner[i] < num_parts)
            examples[start[owner[i]]++] = i;
    }
    /* Each start has advanced to the next part's. */
    for (uint32_t j = num_parts; j > 0; j--)
        start[j] = start[j - 1];
    start[0] = 0;
}

static fedge_status check_labels(const fedge_partition_data *data, fedge_error *err)
{
    if (!data->labels) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "the data has no labels to divide by; use iid, quantity:ALPHA, "
                          "natural:COLUMN, file:CSV or per-file");
    }
    if (data->num_labels > FEDGE_PARTITION_MAX_LABELS) {
        return fedge_fail(err, FEDGE_TOO_BIG,
                          "%" PRIu32 " labels are over the limit of %" PRIu32
                          " to divide by; use iid or quantity:ALPHA",
                          data->num_labels, FEDGE_PARTITION_MAX_LABELS);
    }
    for (uint32_t i = 0; i < data->num_examples; i++) {
        if (data->labels[i] < 0 || (uint32_t)data->labels[i] >= data->num_labels) {
            return fedge_fail(err, FEDGE_OUT_OF_RANGE,
                              "the label of example %" PRIu32 " is %" PRId32
                              "; it must be in [0, %" PRIu32 ")",
                              i, data->labels[i], data->num_labels);
        }
    }
    return FEDGE_OK;
}

fedge_status fedge_partition_find_empty(uint32_t num_examples, uint32_t num_parts,
                                        const uint32_t *owner, uint32_t *part, fedge_error *err)
{
    uint8_t *has_some = calloc(num_parts, 1);
    if (!has_some)
        return fedge_partition_no_memory(num_examples, num_parts, err);
    for (uint32_t i = 0; i < num_examples; i++) {
        if (owner[i] < num_parts)
            has_some[owner[i]] = 1;
    }
    *part = 0;
    while (*part < num_parts && has_some[*part])
        ++*part;
    free(has_some);
    return FEDGE_OK;
}

/* FEDGE_INVALID_ARGUMENT names the first part without examples. */
static fedge_status check_parts(const fedge_partition_spec *spec, uint32_t num_examples,
                                uint32_t num_parts, const uint32_t *owner, fedge_error *err)
{
    uint32_t part = 0;
    const fedge_status status =
        fedge_partition_find_empty(num_examples, num_parts, owner, &part, err);
    if (status != FEDGE_OK || part == num_parts)
        return status;
    char text[FEDGE_PARTITION_MAX_TEXT];
    fedge_partition_text(spec, text);
    return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                      "partition %.200s: client %" PRIu32 " of %" PRIu32
                      " has no examples; number clients from 0 without a gap, or ask for fewer",
                      text, part, num_parts);
}

fedge_status fedge_partition_assign(const fedge_partition_spec *spec,
                                    const fedge_partition_data *data, uint32_t num_parts,
                                    uint32_t *owner, fedge_error *err)
{
    const fedge_partition_ops *ops = SCHEMES[spec->scheme];
    FEDGE_TRY(check_argument(ops, spec, err));
    /* A scheme with a count, such as shards, gives each client at least that many examples. */
    const bool counted = ops->argument == FEDGE_PARTITION_K;
    const uint32_t minimum = counted ? spec->count : ops->min_examples;
    if (num_parts == 0)
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "a data set cannot be divided into 0 parts");
    const uint32_t most = data->num_examples / minimum;
    if (num_parts > most && counted && num_parts <= data->num_examples) {
        char fewer[40] = "";
        if (most > 0)
            (void)snprintf(fewer, sizeof(fewer), "at most %" PRIu32 " clients, or ", most);
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "%" PRIu32 " examples cannot give %" PRIu32 " clients at least %" PRIu32
                          " each; use %s%s:%" PRIu32 " or less",
                          data->num_examples, num_parts, minimum, fewer, ops->name,
                          data->num_examples / num_parts);
    }
    if (data->num_examples == 0 || num_parts > most) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "%" PRIu32 " examples cannot give %" PRIu32 " clients at least %" PRIu32
                          " each; use at most %" PRIu32 " clients",
                          data->num_examples, num_parts, minimum, most);
    }
    if (ops->needs_labels)
        FEDGE_TRY(check_labels(data, err));
    FEDGE_TRY(ops->assign(spec, data, num_parts, owner, err));
    return check_parts(spec, data->num_examples, num_parts, owner, err);
}

bool fedge_partition_needs_labels(const fedge_partition_spec *spec)
{
    return SCHEMES[spec->scheme]->needs_labels;
}

bool fedge_partition_is_counted(const fedge_partition_spec *spec)
{
    return SCHEMES[spec->scheme]->num_parts != NULL;
}

fedge_status fedge_partition_num_parts(const fedge_partition_spec *spec, const char *values_path,
                                       uint32_t *num_parts, fedge_error *err)
{
    const fedge_partition_ops *ops = SCHEMES[spec->scheme];
    *num_parts = 0;
    if (!ops->num_parts)
        return FEDGE_OK;
    const fedge_status status = ops->num_parts(spec, values_path, num_parts, err);
    return status || *num_parts > 0
               ? status
               : fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                            "partition %s: there is no row in %.200s, so there are no clients",
                            ops->usage, values_path);
}

/* ---- for several schemes --------------------------------------------------------------------- */

void fedge_partition_cut(const double *weights, double sum, uint32_t num_parts, uint32_t count,
                         uint32_t *cuts)
{
    double cumulative = 0;
    for (uint32_t j = 0; j < num_parts; j++) {
        cumulative += weights[j] / sum;
        const double cut = cumulative * count;
        cuts[j] = j + 1 == num_parts || cut >= count ? count : (uint32_t)cut;
    }
}

void fedge_partition_deal(const uint32_t *examples, uint32_t count, const uint32_t *cuts,
                          uint32_t *owner)
{
    uint32_t part = 0;
    for (uint32_t i = 0; i < count; i++) {
        while (i >= cuts[part])
            part++;
        owner[examples[i]] = part;
    }
}

fedge_status fedge_partition_check_draws(uint32_t num_labels, uint32_t num_parts, fedge_error *err)
{
    if ((uint64_t)num_labels * num_parts <= FEDGE_PARTITION_MAX_DRAWS)
        return FEDGE_OK;
    return fedge_fail(err, FEDGE_TOO_BIG,
                      "%" PRIu32 " labels times %" PRIu32 " clients are over the limit of %" PRIu64
                      "; use fewer clients",
                      num_labels, num_parts, FEDGE_PARTITION_MAX_DRAWS);
}

fedge_status fedge_partition_none_found(const char *scheme, double alpha, uint32_t attempts,
                                        uint32_t num_examples, uint32_t num_parts, uint32_t best,
                                        fedge_error *err)
{
    return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                      "partition %s:%g: in %" PRIu32 " attempts no division of %" PRIu32
                      " examples among %" PRIu32 " clients gave each at least %d (best: %" PRIu32
                      "); use a larger alpha, fewer clients or more examples",
                      scheme, alpha, attempts, num_examples, num_parts,
                      FEDGE_PARTITION_MIN_EXAMPLES, best);
}

/* ---- examples by label ------------------------------------------------------------------------
 */

fedge_status fedge_classes_init(fedge_classes *classes, const fedge_partition_data *data,
                                fedge_error *err)
{
    classes->start = malloc(((size_t)data->num_labels + 1) * sizeof(*classes->start));
    classes->members = malloc(data->num_examples * sizeof(*classes->members));
    if (!classes->start || !classes->members) {
        fedge_classes_fini(classes);
        return fedge_partition_no_memory(data->num_examples, data->num_labels, err);
    }
    /* Labels are not negative, so they can be grouped like owners. */
    fedge_partition_group((const uint32_t *)data->labels, data->num_examples, data->num_labels,
                          classes->start, classes->members);
    return FEDGE_OK;
}

void fedge_classes_fini(fedge_classes *classes)
{
    free(classes->start);
    free(classes->members);
    *classes = (fedge_classes){.start = NULL};
}

uint32_t fedge_classes_shuffle(fedge_classes *classes, uint32_t label, fedge_rng rng)
{
    const uint32_t count = classes->start[label + 1] - classes->start[label];
    fedge_rng_shuffle(&rng, classes->members + classes->start[label], count);
    return count;
}
