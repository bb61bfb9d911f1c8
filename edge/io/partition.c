#include "edge/io/partition.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/rng.h"

#define DIRICHLET_PREFIX "dirichlet:"

/* Streams of FEDGE_PURPOSE_PARTITION: a = class, b = attempt, c = what is drawn. */
enum { DRAW_PROPORTIONS = 0, DRAW_ORDER = 1, DRAW_IID = 2 };

fedge_status fedge_partition_parse(const char *text, fedge_partition_spec *spec, fedge_error *err)
{
    const size_t prefix = strlen(DIRICHLET_PREFIX);
    if (strcmp(text, "iid") == 0) {
        spec->scheme = FEDGE_PARTITION_IID;
        spec->alpha = 0;
        return FEDGE_OK;
    }
    if (strncmp(text, DIRICHLET_PREFIX, prefix) != 0)
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "partition \"%.40s\" is not known; use \"iid\" or \"dirichlet:ALPHA\", "
                          "e.g. \"dirichlet:0.5\"",
                          text);
    char *stop;
    const char *digits = text + prefix;
    const double alpha = strtod(digits, &stop);
    const bool starts_well = (*digits >= '0' && *digits <= '9') || *digits == '.';
    if (!starts_well || stop == digits || *stop)
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "partition \"%.40s\": a number must follow the colon", text);
    if (!(alpha >= FEDGE_PARTITION_MIN_ALPHA && alpha <= FEDGE_PARTITION_MAX_ALPHA))
        return fedge_fail(err, FEDGE_OUT_OF_RANGE,
                          "partition \"%.40s\": alpha must be within %g to %g", text,
                          FEDGE_PARTITION_MIN_ALPHA, FEDGE_PARTITION_MAX_ALPHA);
    spec->scheme = FEDGE_PARTITION_DIRICHLET;
    spec->alpha = alpha;
    return FEDGE_OK;
}

/* --- iid -------------------------------------------------------------------------------------- */

static fedge_status assign_iid(const fedge_partition_spec *spec, uint32_t num_examples,
                               uint32_t num_parts, uint32_t *owner, fedge_error *err)
{
    uint32_t *order = malloc(num_examples * sizeof *order);
    if (!order)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to divide %" PRIu32 " examples",
                          num_examples);
    for (uint32_t i = 0; i < num_examples; i++)
        order[i] = i;
    fedge_rng rng = fedge_rng_stream(spec->seed, FEDGE_PURPOSE_PARTITION, 0, 0, DRAW_IID);
    fedge_rng_shuffle(&rng, order, num_examples);
    for (uint32_t i = 0; i < num_examples; i++)
        owner[order[i]] = (uint32_t)((uint64_t)i * num_parts / num_examples);
    free(order);
    return FEDGE_OK;
}

/* --- Dirichlet -------------------------------------------------------------------------------- */

typedef struct dirichlet {
    const fedge_partition_spec *spec;
    uint32_t num_examples, num_labels, num_parts;
    uint32_t *class_start; /* (num_labels + 1): where a class begins in [by_class] */
    uint32_t *by_class;    /* (num_examples): examples sorted by label */
    double *shares;        /* (num_parts): of the class at hand */
    uint32_t *sizes;       /* (num_parts): examples that a part has so far */
    uint32_t *cuts;        /* (num_labels, num_parts): where in its class a part's run ends */
} dirichlet;

static void dirichlet_fini(dirichlet *d)
{
    free(d->class_start);
    free(d->by_class);
    free(d->shares);
    free(d->sizes);
    free(d->cuts);
}

static fedge_status dirichlet_init(dirichlet *d, const int32_t *labels, fedge_error *err)
{
    d->class_start = calloc((size_t)d->num_labels + 1, sizeof *d->class_start);
    d->by_class = malloc(d->num_examples * sizeof *d->by_class);
    d->shares = malloc(d->num_parts * sizeof *d->shares);
    d->sizes = malloc(d->num_parts * sizeof *d->sizes);
    d->cuts = malloc((size_t)d->num_labels * d->num_parts * sizeof *d->cuts);
    uint32_t *fill = malloc(d->num_labels * sizeof *fill);
    if (!d->class_start || !d->by_class || !d->shares || !d->sizes || !d->cuts || !fill) {
        free(fill);
        dirichlet_fini(d);
        return fedge_fail(err, FEDGE_NO_MEMORY,
                          "no memory to divide %" PRIu32 " examples among %" PRIu32 " parts",
                          d->num_examples, d->num_parts);
    }
    for (uint32_t i = 0; i < d->num_examples; i++)
        d->class_start[labels[i] + 1]++;
    for (uint32_t k = 0; k < d->num_labels; k++)
        d->class_start[k + 1] += d->class_start[k];
    memcpy(fill, d->class_start, d->num_labels * sizeof *fill);
    for (uint32_t i = 0; i < d->num_examples; i++)
        d->by_class[fill[labels[i]]++] = i;
    free(fill);
    return FEDGE_OK;
}

/* shares ~ Dir(alpha), a part that has its n / N examples already being left out, then normalised.
 * false when nothing is left to normalise (every open part's gamma was 0). */
static bool draw_shares(dirichlet *d, uint32_t label, uint32_t attempt)
{
    const double fair = (double)d->num_examples / d->num_parts;
    fedge_rng rng =
        fedge_rng_stream(d->spec->seed, FEDGE_PURPOSE_PARTITION, label, attempt, DRAW_PROPORTIONS);
    double sum = 0;
    for (uint32_t j = 0; j < d->num_parts; j++) {
        const double gamma = fedge_rng_gamma(&rng, d->spec->alpha);
        d->shares[j] = d->sizes[j] < fair ? gamma : 0;
        sum += d->shares[j];
    }
    if (!(sum > 0))
        return false;
    for (uint32_t j = 0; j < d->num_parts; j++)
        d->shares[j] /= sum;
    return true;
}

/* Draws all cuts; *smallest gets the size of the smallest part. The order of a class does not
 * matter for the sizes, so it is drawn once, for the attempt that is kept. */
static bool draw_cuts(dirichlet *d, uint32_t attempt, uint32_t *smallest)
{
    memset(d->sizes, 0, d->num_parts * sizeof *d->sizes);
    for (uint32_t k = 0; k < d->num_labels; k++) {
        const uint32_t count = d->class_start[k + 1] - d->class_start[k];
        uint32_t *cuts = d->cuts + (size_t)k * d->num_parts;
        if (count == 0) {
            memset(cuts, 0, d->num_parts * sizeof *cuts);
            continue;
        }
        if (!draw_shares(d, k, attempt))
            return false;
        double cumulative = 0;
        uint32_t last = 0;
        for (uint32_t j = 0; j < d->num_parts; j++) {
            cumulative += d->shares[j];
            const double cut = cumulative * count;
            cuts[j] = j + 1 == d->num_parts || cut >= count ? count : (uint32_t)cut;
            d->sizes[j] += cuts[j] - last;
            last = cuts[j];
        }
    }
    *smallest = d->sizes[0];
    for (uint32_t j = 1; j < d->num_parts; j++)
        if (d->sizes[j] < *smallest)
            *smallest = d->sizes[j];
    return true;
}

static void hand_out(dirichlet *d, uint32_t attempt, uint32_t *owner)
{
    for (uint32_t k = 0; k < d->num_labels; k++) {
        uint32_t *members = d->by_class + d->class_start[k];
        const uint32_t count = d->class_start[k + 1] - d->class_start[k];
        const uint32_t *cuts = d->cuts + (size_t)k * d->num_parts;
        fedge_rng rng =
            fedge_rng_stream(d->spec->seed, FEDGE_PURPOSE_PARTITION, k, attempt, DRAW_ORDER);
        fedge_rng_shuffle(&rng, members, count);
        uint32_t part = 0;
        for (uint32_t i = 0; i < count; i++) {
            while (i >= cuts[part])
                part++;
            owner[members[i]] = part;
        }
    }
}

static fedge_status assign_dirichlet(const fedge_partition_spec *spec, const int32_t *labels,
                                     uint32_t num_examples, uint32_t num_labels, uint32_t num_parts,
                                     uint32_t *owner, fedge_error *err)
{
    const uint64_t draws = (uint64_t)num_labels * num_parts;
    if (draws > FEDGE_PARTITION_MAX_DRAWS)
        return fedge_fail(err, FEDGE_TOO_BIG,
                          "%" PRIu32 " labels times %" PRIu32
                          " parts are over the limit of %" PRIu64 "; use fewer parts",
                          num_labels, num_parts, FEDGE_PARTITION_MAX_DRAWS);
    dirichlet d = {.spec = spec,
                   .num_examples = num_examples,
                   .num_labels = num_labels,
                   .num_parts = num_parts};
    fedge_status status = dirichlet_init(&d, labels, err);
    if (status)
        return status;
    uint32_t attempts = 0, best = 0;
    bool found = false;
    while (!found && attempts < FEDGE_PARTITION_MAX_ATTEMPTS &&
           (attempts + 1) * draws <= FEDGE_PARTITION_MAX_DRAWS) {
        uint32_t smallest = 0;
        if (draw_cuts(&d, attempts, &smallest)) {
            found = smallest >= FEDGE_PARTITION_MIN_EXAMPLES;
            best = smallest > best ? smallest : best;
        }
        if (found)
            hand_out(&d, attempts, owner);
        attempts++;
    }
    dirichlet_fini(&d);
    if (found)
        return FEDGE_OK;
    return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                      "partition dirichlet:%g: in %" PRIu32 " attempts no division of %" PRIu32
                      " examples among %" PRIu32 " parts gave each at least %d (best: %" PRIu32
                      "); use a larger alpha, fewer parts or more examples",
                      spec->alpha, attempts, num_examples, num_parts, FEDGE_PARTITION_MIN_EXAMPLES,
                      best);
}

fedge_status fedge_partition_assign(const fedge_partition_spec *spec, const int32_t *labels,
                                    uint32_t num_examples, uint32_t num_labels, uint32_t num_parts,
                                    uint32_t *owner, fedge_error *err)
{
    const bool iid = spec->scheme == FEDGE_PARTITION_IID;
    const uint32_t minimum = iid ? 1 : FEDGE_PARTITION_MIN_EXAMPLES;
    if (num_parts == 0)
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "a data set cannot be divided into 0 parts");
    if (num_examples == 0 || num_parts > num_examples / minimum)
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "%" PRIu32 " examples cannot give %" PRIu32 " parts at least %" PRIu32
                          " each; use at most %" PRIu32 " parts",
                          num_examples, num_parts, minimum, num_examples / minimum);
    if (iid)
        return assign_iid(spec, num_examples, num_parts, owner, err);
    if (!(spec->alpha >= FEDGE_PARTITION_MIN_ALPHA && spec->alpha <= FEDGE_PARTITION_MAX_ALPHA))
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "partition dirichlet:%g: alpha must be within %g to %g", spec->alpha,
                          FEDGE_PARTITION_MIN_ALPHA, FEDGE_PARTITION_MAX_ALPHA);
    for (uint32_t i = 0; i < num_examples; i++)
        if (labels[i] < 0 || (uint32_t)labels[i] >= num_labels)
            return fedge_fail(err, FEDGE_OUT_OF_RANGE,
                              "the label of example %" PRIu32 " is %" PRId32
                              "; it must be in [0, %" PRIu32 ")",
                              i, labels[i], num_labels);
    return assign_dirichlet(spec, labels, num_examples, num_labels, num_parts, owner, err);
}
