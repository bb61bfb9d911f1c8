#include "tests/world/job_draw.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Properties of a job that a strategy does not permit (docs/strategies.md). */
enum {
    NO_EXTERNAL = 1 << 0,
    NO_STATISTICS = 1 << 1, /* BatchNorm layers */
    NO_FROZEN = 1 << 2,     /* layers that are not trained */
    NO_SPARSE = 1 << 3,     /* sparse codecs without error feedback */
    NO_DOWN = 1 << 4,
    NO_EXAMPLES = 1 << 5, /* a sampler weighted by examples */
    NO_INVERSE = 1 << 6,  /* weighting by inverse sampling probabilities */
    NO_PROXIMAL = 1 << 7,
    NO_TEST_SET = 1 << 8,
    ONLY_SGD = 1 << 9,
    ONLY_PLAIN_SGD = 1 << 10,
    ASYNCHRONOUS = 1 << 11,
    COLLECTS = 1 << 12,
    PERSONAL = 1 << 13,
    TWO_LAYERS = 1 << 14, /* layers with parameters */
    BATCH_NORM = 1 << 15, /* one of them is BatchNorm */
    CORRECTS = 1 << 16,
    CLUSTERED = 1 << 17,
    CONTROL = 1 << 18, /* updates have a section for control variates */
    /* Combinations. */
    ROBUST = COLLECTS | NO_STATISTICS | NO_INVERSE,
    OWN_PARTS = PERSONAL | NO_EXTERNAL | NO_FROZEN | NO_SPARSE,
    LATE = ASYNCHRONOUS | NO_EXTERNAL | NO_STATISTICS | NO_FROZEN | NO_SPARSE | NO_DOWN |
           NO_EXAMPLES | NO_INVERSE
};

typedef struct drawing {
    fedge_rng *rng;
    world_job *out;
    size_t used; /* size of the text in bytes */
    const struct strategy *strategy;
    uint32_t min_train_nodes;
    uint32_t num_malicious; /* f of a robust rule */
    bool mixes;
    bool has_statistics; /* which are sent */
    bool is_frozen;      /* layers that are not trained */
    bool has_test_set;
} drawing;

static void put(drawing *d, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(drawing *d, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    const size_t left = sizeof(d->out->text) - d->used;
    const int size = vsnprintf(d->out->text + d->used, left, format, values);
    va_end(values);
    assert(size >= 0 && (size_t)size < left);
    d->used += (size_t)size;
}

/* The order of evaluation of a call's arguments is undefined, so no call has two draws. */

/* True with a chance of [percent]. */
static bool chance(drawing *d, uint32_t percent)
{
    return fedge_rng_below(d->rng, 100) < percent;
}

static uint32_t between(drawing *d, uint32_t least, uint32_t most)
{
    return least + fedge_rng_below(d->rng, most - least + 1);
}

#define ONE_OF(d, list) ((list)[fedge_rng_below((d)->rng, sizeof(list) / sizeof((list)[0]))])

static bool has(const drawing *d, unsigned flag);

/* ---- strategies ------------------------------------------------------------------------------ */

static void nothing(drawing *d)
{
    (void)d;
}

static void proximal(drawing *d)
{
    put(d, ",\"proximal-mu\":0.%02u", between(d, 1, 99));
}

static void momentum(drawing *d)
{
    if (chance(d, 50))
        put(d, ",\"server-momentum\":0.%u", between(d, 0, 9));
}

static void adaptive(drawing *d)
{
    if (chance(d, 50))
        put(d, ",\"beta1\":0.%u", between(d, 0, 9));
    if (chance(d, 50))
        put(d, ",\"tau\":0.0%u", between(d, 1, 9));
}

static void adaptive_with_decay(drawing *d)
{
    adaptive(d);
    if (chance(d, 50))
        put(d, ",\"beta2\":0.9%u", between(d, 0, 9));
}

static void num_clients(drawing *d)
{
    if (chance(d, 70))
        put(d, ",\"num-clients\":%u", d->out->num_clients);
}

static void dynamic(drawing *d)
{
    num_clients(d);
    put(d, ",\"alpha\":0.%u", between(d, 1, 9));
}

static void robust(drawing *d)
{
    put(d, ",\"num-malicious-nodes\":%u", d->num_malicious);
    if (d->mixes)
        put(d, ",\"mixing\":true");
}

static void trimmed(drawing *d)
{
    robust(d);
    put(d, ",\"beta\":0.%u", between(d, 0, 4));
}

static void selected(drawing *d)
{
    robust(d);
    if (chance(d, 50))
        put(d, ",\"num-nodes-to-keep\":%u", between(d, 1, 3));
}

static void geometric(drawing *d)
{
    robust(d);
    put(d, ",\"num-iterations\":%u", between(d, 1, 4));
}

static void clipped(drawing *d)
{
    robust(d);
    put(d, ",\"norm\":%u", between(d, 0, 2));
}

static void trusted(drawing *d)
{
    robust(d);
    put(d, ",\"root-set\":{\"values\":\"%s\"}", WORLD_JOB_EXAMPLES);
    d->out->needs_examples = true;
}

static void fair(drawing *d)
{
    put(d, ",\"q\":%u", between(d, 0, 2));
    put(d, ".%u", between(d, 0, 9));
}

static void representation(drawing *d)
{
    put(d, ",\"personal-layers\":1,\"head-epochs\":%u", between(d, 1, 3));
}

static void ditto(drawing *d)
{
    put(d, ",\"lambda\":0.%u", between(d, 1, 9));
}

static void clusters(drawing *d)
{
    put(d, ",\"num-clusters\":%u", between(d, 2, 3));
}

static void staleness(drawing *d)
{
    static const char *const WEIGHTS[] = {"\"polynomial\",\"staleness-exponent\":0.9",
                                          "\"polynomial\"", "\"constant\"",
                                          "\"hinge\",\"hinge-slope\":2,\"hinge-delay\":1"};
    put(d, ",\"staleness-weight\":%s", ONE_OF(d, WEIGHTS));
    if (chance(d, 50))
        put(d, ",\"max-staleness\":%u", between(d, 1, 4));
}

static void buffered(drawing *d)
{
    put(d, ",\"buffer-size\":%u", d->out->buffer_size);
    staleness(d);
}

static void asynchronous(drawing *d)
{
    put(d, ",\"alpha\":0.%u", between(d, 1, 9));
    staleness(d);
}

static uint32_t of_krum(uint32_t f)
{
    return 2 * f + 3;
}

static uint32_t of_bulyan(uint32_t f)
{
    return 4 * f + 3;
}

static const struct strategy {
    const char *name;
    uint32_t weight; /* weight of the choice */
    unsigned flags;
    void (*arguments)(drawing *d);
    uint32_t (*min_updates)(uint32_t num_malicious); /* NULL: one */
} STRATEGIES[] = {
    {"FedAvg", 50, 0, nothing, NULL},
    {"FedProx", 2, NO_PROXIMAL, proximal, NULL},
    {"FedAvgM", 3, 0, momentum, NULL},
    {"FedAdagrad", 2, 0, adaptive, NULL},
    {"FedAdam", 2, 0, adaptive_with_decay, NULL},
    {"FedYogi", 2, 0, adaptive_with_decay, NULL},
    {"FedNova", 2, NO_EXTERNAL | NO_EXAMPLES | NO_INVERSE | ONLY_SGD, nothing, NULL},
    {"SCAFFOLD", 3,
     NO_EXTERNAL | NO_SPARSE | NO_DOWN | NO_PROXIMAL | ONLY_PLAIN_SGD | CORRECTS | CONTROL,
     num_clients, NULL},
    {"FedDyn", 3, NO_EXTERNAL | NO_SPARSE | NO_PROXIMAL | CORRECTS, dynamic, NULL},
    {"FedMedian", 2, ROBUST, robust, NULL},
    {"FedTrimmedAvg", 1, ROBUST, trimmed, NULL},
    {"Krum", 2, ROBUST, robust, of_krum},
    {"MultiKrum", 1, ROBUST, selected, of_krum},
    {"Bulyan", 1, ROBUST, robust, of_bulyan},
    {"RFA", 1, ROBUST, geometric, NULL},
    {"NormClipping", 1, ROBUST, clipped, NULL},
    {"FLTrust", 1, ROBUST | NO_EXTERNAL | NO_FROZEN, trusted, NULL},
    {"QFedAvg", 2, NO_EXTERNAL | NO_INVERSE, fair, NULL},
    {"FedPer", 2, OWN_PARTS | NO_TEST_SET | TWO_LAYERS, nothing, NULL},
    {"FedRep", 1, OWN_PARTS | NO_TEST_SET | TWO_LAYERS, representation, NULL},
    {"FedBN", 2, OWN_PARTS | NO_TEST_SET | BATCH_NORM, nothing, NULL},
    {"Ditto", 2, OWN_PARTS, ditto, NULL},
    {"IFCA", 2,
     CLUSTERED | NO_EXTERNAL | NO_STATISTICS | NO_FROZEN | NO_DOWN | NO_EXAMPLES | NO_INVERSE |
         NO_TEST_SET,
     clusters, NULL},
    {"FedBuff", 6, LATE, buffered, NULL},
    {"FedAsync", 5, LATE, asynchronous, NULL},
};

static bool has(const drawing *d, unsigned flag)
{
    return (d->strategy->flags & flag) != 0;
}

static void draw_strategy(drawing *d)
{
    uint32_t sum = 0;
    for (size_t i = 0; i < sizeof(STRATEGIES) / sizeof(STRATEGIES[0]); i++)
        sum += STRATEGIES[i].weight;
    uint32_t at = fedge_rng_below(d->rng, sum);
    d->strategy = STRATEGIES;
    while (at >= d->strategy->weight)
        at -= d->strategy++->weight;
    d->out->strategy = d->strategy->name;
    d->out->asynchronous = has(d, ASYNCHRONOUS);
    d->out->collects = has(d, COLLECTS | CLUSTERED);
    d->out->personal = has(d, PERSONAL);
    d->out->clustered = has(d, CLUSTERED);
    d->out->corrects = has(d, CORRECTS);
}

static void put_schedule(drawing *d, const char *key)
{
    static const char *const SCHEDULES[] = {
        "{\"type\":\"StepLR\",\"step_size\":2,\"gamma\":0.5}",
        "{\"type\":\"ExponentialLR\",\"gamma\":0.9}",
        "{\"type\":\"CosineAnnealingLR\",\"T_max\":7,\"eta_min\":0.01,\"warmup-rounds\":1}",
        "{\"warmup-rounds\":2}"};
    put(d, ",\"%s\":%s", key, ONE_OF(d, SCHEDULES));
}

static void put_strategy(drawing *d)
{
    /* A default value is omitted at times. */
    if (d->strategy == STRATEGIES && chance(d, 30))
        return;
    put(d, ",\"strategy\":{\"type\":\"%s\"", d->strategy->name);
    if (chance(d, 20))
        put(d, ",\"server-learning-rate\":0.%u", between(d, 1, 9));
    if (chance(d, 10))
        put_schedule(d, "server-schedule");
    d->strategy->arguments(d);
    put(d, "}");
}

/* ---- clients and rounds ---------------------------------------------------------------------- */

/* The number of clients, and how many of them a rule needs. */
static void draw_clients(drawing *d)
{
    uint32_t needed = 1;
    if (has(d, COLLECTS)) {
        const uint32_t most = d->strategy->min_updates == of_bulyan ? 1 : 2;
        d->num_malicious = chance(d, 50) ? 0 : between(d, 0, most);
        d->mixes = d->num_malicious > 0 && chance(d, 30);
        if (d->strategy->min_updates)
            needed = d->strategy->min_updates(d->num_malicious);
        if (d->mixes && needed < 2 * d->num_malicious + 1)
            needed = 2 * d->num_malicious + 1;
    }
    const uint32_t least = needed > 2 ? needed : 2;
    d->out->num_clients =
        chance(d, 70) && needed <= 4 ? 4 : between(d, least, WORLD_JOB_MAX_CLIENTS);
    d->min_train_nodes =
        chance(d, 50) ? d->out->num_clients : between(d, needed, d->out->num_clients);
    d->out->min_available_nodes =
        chance(d, 50) ? d->min_train_nodes : between(d, d->min_train_nodes, d->out->num_clients);
    if (strcmp(d->strategy->name, "FedBuff") == 0)
        d->out->buffer_size = between(d, 1, d->min_train_nodes);
    else if (has(d, ASYNCHRONOUS))
        d->out->buffer_size = 1;
}

static void put_sampler(drawing *d)
{
    static const char *const TYPES[] = {"available", "utility", "examples", "uniform"};
    const size_t first = has(d, NO_EXAMPLES) ? 2 : 3;
    const char *type = chance(d, 10) ? TYPES[3] : TYPES[fedge_rng_below(d->rng, (uint32_t)first)];
    put(d, ",\"sampler\":{\"type\":\"%s\"", type);
    if (chance(d, 50))
        put(d, ",\"minimum-share\":0.%u", between(d, 1, 9));
    if (type != TYPES[3] && !has(d, NO_INVERSE) && chance(d, 50))
        put(d, ",\"inverse-probability\":true");
    put(d, "}");
}

/* Keys of "rounds" that asynchronous strategies refuse. */
static void put_cohort(drawing *d)
{
    if (chance(d, 20))
        put(d, ",\"over-selection\":1.%u", between(d, 1, 9));
    if (chance(d, 30))
        put_sampler(d);
    d->out->evaluates = chance(d, 35);
    if (d->out->evaluates) {
        static const char *const FRACTIONS[] = {"0.3", "0.5", "1"};
        put(d, ",\"fraction-evaluate\":%s", ONE_OF(d, FRACTIONS));
        put(d, ",\"min-evaluate-nodes\":%u", between(d, 1, d->out->min_available_nodes));
    }
}

static void put_rounds(drawing *d)
{
    static const char *const FRACTIONS[] = {"1", "1", "0.5", "0.34", "0.75"};
    static const char *const REPORTS[] = {"0.5", "0.25", "0.75", "0.9"};
    d->out->num_rounds = chance(d, 60) ? 3 : between(d, 1, WORLD_JOB_MAX_ROUNDS);
    d->out->deadline_ms = (uint64_t)between(d, 4, 40) * 500;
    put(d,
        ",\"rounds\":{\"num-server-rounds\":%u,\"min-train-nodes\":%u,\"min-available-nodes\":%u,"
        "\"round-deadline-s\":%u.%u",
        d->out->num_rounds, d->min_train_nodes, d->out->min_available_nodes,
        (unsigned)(d->out->deadline_ms / 1000), d->out->deadline_ms % 1000 ? 5 : 0);
    if (chance(d, 50))
        put(d, ",\"fraction-train\":%s", ONE_OF(d, FRACTIONS));
    /* A rule that needs several updates gets them, as all wanted clients must report. */
    if (!d->strategy->min_updates && !d->mixes && chance(d, 50))
        put(d, ",\"min-report-fraction\":%s", ONE_OF(d, REPORTS));
    if (chance(d, 10))
        put(d, ",\"max-cohort\":%u", between(d, d->min_train_nodes, WORLD_JOB_MAX_CLIENTS));
    if (chance(d, 10))
        put(d, ",\"max-weight\":%u", between(d, 1, 60));
    if (!d->out->asynchronous)
        put_cohort(d);
    put(d, "}");
}

static void put_selection(drawing *d)
{
    static const char *const OF_CLIENTS[] = {"auto", "validation-accuracy", "validation-loss"};
    static const char *const OF_SERVER[] = {"auto", "test-accuracy", "test-loss"};
    if (!d->out->evaluates && !d->has_test_set)
        return;
    const char *metric = d->out->evaluates ? ONE_OF(d, OF_CLIENTS) : ONE_OF(d, OF_SERVER);
    if (chance(d, 40))
        put(d, ",\"keep-best\":{\"metric\":\"%s\"}", metric);
    d->out->stops_early = chance(d, 15);
    if (d->out->stops_early)
        put(d, ",\"early-stopping\":{\"metric\":\"%s\",\"patience\":%u}", metric, between(d, 1, 2));
}

/* ---- models ---------------------------------------------------------------------------------- */

static void put_data(drawing *d, const char *shape, uint32_t inputs, uint32_t labels)
{
    d->out->num_inputs = inputs;
    d->out->num_labels = labels;
    put(d, ",\"data\":{\"name\":\"points\",\"shape\":%s,\"dtype\":\"f32\",\"labels\":%u}", shape,
        labels);
}

/* Ends a layer's arguments; some layers with parameters are frozen. */
static void put_train(drawing *d, bool may_freeze)
{
    static const char *const PARTS[] = {"\"none\"", "\"bias\""};
    const bool freezes = may_freeze && !has(d, NO_FROZEN) && !d->out->external && chance(d, 15);
    if (freezes)
        put(d, ",\"train\":%s", ONE_OF(d, PARTS));
    d->is_frozen = d->is_frozen || freezes;
    put(d, "}");
}

static void put_linear(drawing *d, uint32_t in, uint32_t out)
{
    put(d, "{\"type\":\"Linear\",\"in_features\":%u,\"out_features\":%u", in, out);
    d->out->num_parameters += (in + 1) * out;
}

/* One or two Linear layers. */
static void put_dense_model(drawing *d)
{
    char shape[16];
    const bool deep = has(d, TWO_LAYERS) || chance(d, 20);
    const uint32_t labels = between(d, 2, 6);
    /* Codecs cut tensors of over 256 values into blocks. */
    uint32_t in = chance(d, 80) ? between(d, 1, 8) : between(d, 40, deep ? 60 : 140);
    /* A few models need several messages. */
    in = in > 136 ? 38 * in : in;
    (void)snprintf(shape, sizeof(shape), "[%u]", in);
    put(d, ",\"model\":{\"input-shape\":%s,\"layers\":[", shape);
    uint32_t width = in;
    if (deep) {
        width = between(d, 1, 12);
        put_linear(d, in, width);
        put_train(d, true);
        put(d, ",{\"type\":\"%s\"},", chance(d, 50) ? "ReLU" : "Tanh");
    }
    put_linear(d, width, labels);
    if (!deep && labels > 2 && !has(d, NO_FROZEN) && chance(d, 10)) {
        put(d, ",\"train-channels\":[1,%u]", labels);
        d->is_frozen = true;
    }
    put(d, "}]}");
    put_data(d, shape, in, labels);
}

/* A convolution, a norm and a Linear layer. */
static void put_convolution(drawing *d, bool batch_norm)
{
    const uint32_t channels = between(d, 1, 3), out = between(d, 1, 4), labels = between(d, 2, 4);
    char shape[24];
    (void)snprintf(shape, sizeof(shape), "[%u,4,4]", channels);
    put(d,
        ",\"model\":{\"input-shape\":%s,\"layers\":[{\"type\":\"Conv2d\",\"in_channels\":%u,"
        "\"out_channels\":%u,\"kernel_size\":3",
        shape, channels, out);
    put_train(d, true);
    if (batch_norm)
        put(d, ",{\"type\":\"BatchNorm2d\",\"num_features\":%u}", out);
    else
        put(d, ",{\"type\":\"GroupNorm\",\"num_groups\":1,\"num_channels\":%u}", out);
    put(d, ",{\"type\":\"ReLU\"},{\"type\":\"Flatten\"},");
    put_linear(d, 4 * out, labels);
    put(d, "}]}");
    d->has_statistics = batch_norm && !has(d, BATCH_NORM); /* FedBN's layers stay with the client */
    d->out->num_parameters += (channels * 9 + 1) * out + 2 * out;
    put_data(d, shape, channels * 16, labels);
}

/* Tensors of every rank from 0 to 3. */
static void put_external_model(drawing *d)
{
    put(d, ",\"model\":{\"type\":\"external\",\"tensors\":[");
    const uint32_t num = between(d, 1, 4);
    for (uint32_t i = 0; i < num; i++) {
        const uint32_t rank = fedge_rng_below(d->rng, 4);
        uint32_t count = 1;
        put(d, "%s{\"name\":\"t%u\",\"shape\":[", i > 0 ? "," : "", i);
        for (uint32_t k = 0; k < rank; k++) {
            const uint32_t size = between(d, 1, 6);
            count *= size;
            put(d, "%s%u", k > 0 ? "," : "", size);
        }
        d->out->num_parameters += count;
        put(d, "]}");
    }
    put(d, "]}");
}

static void put_model(drawing *d)
{
    d->out->external = !has(d, NO_EXTERNAL) && chance(d, 8);
    if (d->out->external)
        put_external_model(d);
    else if (has(d, BATCH_NORM))
        put_convolution(d, true);
    else if (!has(d, TWO_LAYERS) && chance(d, 12))
        put_convolution(d, !has(d, NO_STATISTICS) && chance(d, 70));
    else
        put_dense_model(d);
}

static void put_training(drawing *d)
{
    static const char *const ANY[] = {"{\"type\":\"Adam\"}", "{\"type\":\"AdamW\"}",
                                      "{\"type\":\"SGD\",\"momentum\":0.9}"};
    put(d, ",\"training\":{\"local-epochs\":%u", between(d, 1, 3));
    put(d, ",\"batch-size\":%u", between(d, 1, 32));
    put(d, ",\"learning-rate\":0.%u", between(d, 1, 9));
    if (has(d, ONLY_SGD) && chance(d, 30))
        put(d, ",\"optimizer\":%s", ANY[2]);
    else if (!has(d, ONLY_SGD | ONLY_PLAIN_SGD) && chance(d, 20))
        put(d, ",\"optimizer\":%s", ONE_OF(d, ANY));
    if (!has(d, NO_PROXIMAL) && chance(d, 5))
        put(d, ",\"proximal-mu\":0.1");
    if (chance(d, 10))
        put_schedule(d, "schedule");
    put(d, "}");
}

/* ---- updates --------------------------------------------------------------------------------- */

static const char *draw_values(drawing *d)
{
    static const char *const CODECS[] = {"none", "int8", "f16", "bf16", "int4", "int8", "f32"};
    return ONE_OF(d, CODECS);
}

/* "topk:0.25+int8" or "int8", and [end]. */
static void draw_codec(drawing *d, bool sparse, const char *end, char text[64])
{
    static const char *const SPARSE[] = {"topk", "randk", "ternary"};
    static const char *const FRACTIONS[] = {"0.01", "0.1", "0.25", "0.5", "1", "0.000001"};
    const char *sparsifier = ONE_OF(d, SPARSE), *fraction = ONE_OF(d, FRACTIONS);
    const char *values = draw_values(d);
    if (sparse)
        (void)snprintf(text, 64, "%s:%s+%s%s", sparsifier, fraction, values, end);
    else
        (void)snprintf(text, 64, "%s%s", values, end);
}

/* Draws codecs for single tensors of a model of layers; at least one tensor is sent. */
static void put_layer_codecs(drawing *d)
{
    char codec[64];
    const bool sparse = !has(d, NO_SPARSE);
    put(d, ",\"layers\":[");
    if (chance(d, 60)) {
        put(d, "{\"tensors\":\"vectors\",\"codec\":\"%s\"}", draw_values(d));
    } else {
        draw_codec(d, sparse && chance(d, 50), "", codec);
        put(d, "{\"tensors\":\"*\",\"codec\":\"%s\"", codec);
        if (d->out->down[0]) {
            draw_codec(d, chance(d, 50), "", codec);
            put(d, ",\"down\":\"%s\"", codec);
        }
        put(d, "}");
    }
    put(d, "]");
}

static void put_feedback(drawing *d)
{
    static const char *const ANY[] = {"auto", "on", "off"};
    const char *feedback = ONE_OF(d, ANY);
    if (has(d, NO_SPARSE) && feedback == ANY[1])
        feedback = ANY[2];
    put(d, ",\"error-feedback\":\"%s\",\"residual-half-life\":%u", feedback, between(d, 0, 3));
}

static void put_bounds(drawing *d)
{
    /* Small bounds clamp values. */
    if (chance(d, 30))
        put(d, ",\"bound-log2\":%d", (int)between(d, 0, 8) - 4);
    if (has(d, CONTROL) && chance(d, 30)) {
        put(d, ",\"control\":\"%s\"", draw_values(d));
        put(d, ",\"control-bound-log2\":%d", (int)between(d, 0, 8) - 2);
    }
    if (d->has_statistics && chance(d, 30)) {
        put(d, ",\"buffers\":\"%s\"", draw_values(d));
        put(d, ",\"buffer-bound-log2\":%u", between(d, 6, 9));
    }
}

static void put_update(drawing *d)
{
    if (chance(d, 10)) { /* all defaults */
        (void)snprintf(d->out->up, sizeof(d->out->up), "int8+deflate");
        return;
    }
    const bool deflates = chance(d, 40), sparse = !has(d, NO_SPARSE) && chance(d, 25);
    char codec[64];
    draw_codec(d, sparse, "", codec);
    (void)snprintf(d->out->up, sizeof(d->out->up), "%.40s%s", codec, deflates ? "+deflate" : "");
    if (chance(d, 50))
        put(d, ",\"update\":{\"up\":\"%s\"", d->out->up);
    else
        put(d, ",\"update\":{\"codec\":\"%s\",\"deflate\":%s", codec, deflates ? "true" : "false");
    if (!has(d, NO_DOWN) && chance(d, 30)) {
        const bool is_sparse = chance(d, 30);
        draw_codec(d, is_sparse, chance(d, 50) ? "+deflate" : "", d->out->down);
        put(d, ",\"down\":\"%s\"", d->out->down);
    }
    if (!d->out->external && !d->is_frozen && chance(d, 15))
        put_layer_codecs(d);
    if (chance(d, 30))
        put_feedback(d);
    put_bounds(d);
    put(d, "}");
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void put_server(drawing *d)
{
    if (!d->out->external && !has(d, NO_TEST_SET) && chance(d, 5)) {
        put(d, ",\"test-set\":{\"values\":\"%s\"}", WORLD_JOB_EXAMPLES);
        d->has_test_set = d->out->needs_examples = true;
    }
    if (chance(d, 30))
        put(d, ",\"keep-checkpoints\":%u", between(d, 1, 4));
    put(d, ",\"min-free-disk\":%u", chance(d, 5) ? 1u << 20 : 0);
}

void world_job_draw(fedge_rng *draw, world_job *out)
{
    memset(out, 0, sizeof(*out));
    drawing d = {.rng = draw, .out = out};
    draw_strategy(&d);
    draw_clients(&d);
    put(&d, "{\"fedge-job\":1,\"name\":\"world\",\"seed\":%u", fedge_rng_u32(draw));
    put_model(&d);
    put_training(&d);
    put_rounds(&d);
    put_strategy(&d);
    put_update(&d);
    put_server(&d);
    put_selection(&d);
    put(&d, "}");
    assert(out->num_parameters <= WORLD_JOB_MAX_PARAMETERS);
}

size_t world_job_examples(const world_job *job, char csv[WORLD_JOB_EXAMPLES_TEXT])
{
    size_t used = 0;
    const uint32_t count = job->num_inputs > 60 ? 5 : 12;
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t k = 0; k < job->num_inputs; k++) {
            used += (size_t)snprintf(csv + used, WORLD_JOB_EXAMPLES_TEXT - used, "0.%u,",
                                     (i * 31 + k * 7) % 100);
        }
        used += (size_t)snprintf(csv + used, WORLD_JOB_EXAMPLES_TEXT - used, "%u\n",
                                 i % job->num_labels);
        assert(used < WORLD_JOB_EXAMPLES_TEXT);
    }
    return used;
}
