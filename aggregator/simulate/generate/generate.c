#include "aggregator/simulate/generate/generate.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/simulate/generate/npy_writer.h"
#include "aggregator/simulate/time/availability.h"
#include "aggregator/store/disk.h"
#include "edge/core/os.h"
#include "edge/data/dataset.h"
#include "edge/json/json.h"

#define COHORT 10u                 /* clients of a round, at most */
#define MAX_JSON ((size_t)1 << 16) /* bytes */
#define FILE_MODE 0600

enum { TRAIN_VALUES, TRAIN_LABELS, TEST_VALUES, TEST_LABELS, NUM_ARRAYS };

static const char *const NAMES[] = {"train-values.npy", "train-labels.npy", "test-values.npy",
                                    "test-labels.npy",  "owners.csv",       "client.json",
                                    "job.json"};
enum { OWNERS = NUM_ARRAYS, SITE, JOB, NUM_FILES };

typedef struct generator {
    const fedge_generate_settings *settings;
    char paths[NUM_FILES][FEDGE_MAX_PATH];
    fedge_npy_writer arrays[NUM_ARRAYS];
    fedge_synthetic *synthetic;
    uint32_t *owner; /* (num_train) */
    void *values;    /* one example's values */
    uint32_t next;   /* position in owner */
    double best_sum; /* over the test set */
    fedge_generate_report report;
} generator;

/* ---- counts ---------------------------------------------------------------------------------- */

/* A client's examples for training and for the test set. */
static void count_client(const fedge_generate_settings *settings, uint32_t client, uint32_t *train,
                         uint32_t *test)
{
    *train = settings->num_examples;
    *test = 0;
    if (settings->data.kind == FEDGE_SYNTHETIC_FEDPROX) {
        const uint32_t all =
            *train > 0 ? *train : fedge_synthetic_draw_count(settings->seed, client);
        *test = (all + 9) / 10;
        *train = all - *test;
    }
}

static fedge_status count(generator *self, fedge_error *err)
{
    const fedge_generate_settings *settings = self->settings;
    fedge_generate_report *report = &self->report;
    const uint64_t example =
        fedge_synthetic_example_values(&settings->data) * fedge_dtype_size(settings->data.dtype);
    *report = (fedge_generate_report){.num_test = settings->num_test, .min_train = UINT32_MAX};
    for (uint32_t c = 0; c < settings->num_clients; c++) {
        uint32_t train = 0, test = 0;
        count_client(settings, c, &train, &test);
        report->num_train += train;
        report->num_test += test;
        report->min_train = train < report->min_train ? train : report->min_train;
        report->max_train = train > report->max_train ? train : report->max_train;
    }
    const uint64_t larger =
        report->num_train > report->num_test ? report->num_train : report->num_test;
    if (larger > FEDGE_DATASET_MAX_EXAMPLES || larger * example > FEDGE_DATASET_MAX_BYTES) {
        return fedge_fail(err, FEDGE_TOO_BIG,
                          "%" PRIu64 " examples of %" PRIu64 " bytes are over the limit of %" PRIu32
                          " examples and %" PRIu64 " bytes: fewer --clients, --examples or --test",
                          larger, example, FEDGE_DATASET_MAX_EXAMPLES, FEDGE_DATASET_MAX_BYTES);
    }
    return FEDGE_OK;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Names the files, and removes or refuses existing ones. */
static fedge_status clear(generator *self, fedge_error *err)
{
    const fedge_generate_settings *settings = self->settings;
    FEDGE_TRY(fedge_os_make_dirs(settings->dir, err));
    for (int i = 0; i < NUM_FILES; i++) {
        FEDGE_TRY(fedge_path_join(settings->dir, NAMES[i], self->paths[i], err));
        if (!settings->force && fedge_os_exists(self->paths[i])) {
            return fedge_fail(err, FEDGE_EXISTS,
                              "%s exists: use --force to replace it, or another --out",
                              self->paths[i]);
        }
    }
    for (int i = NUM_FILES - 1; i >= 0; i--) {
        if (fedge_os_exists(self->paths[i]))
            FEDGE_TRY(fedge_os_remove(self->paths[i], err));
    }
    return FEDGE_OK;
}

static void remove_all(const generator *self)
{
    for (int i = NUM_FILES - 1; i >= 0; i--) {
        if (fedge_os_exists(self->paths[i]) && fedge_os_remove(self->paths[i], NULL) != FEDGE_OK)
            return; /* the first failure is reported */
    }
}

static fedge_status open_arrays(generator *self, fedge_error *err)
{
    const fedge_synthetic_spec *data = &self->settings->data;
    for (int i = 0; i < NUM_ARRAYS; i++) {
        const bool is_values = i == TRAIN_VALUES || i == TEST_VALUES;
        const bool is_train = i == TRAIN_VALUES || i == TRAIN_LABELS;
        const uint32_t shape[FEDGE_NPY_MAX_RANK] = {
            (uint32_t)(is_train ? self->report.num_train : self->report.num_test), data->shape[0],
            data->shape[1], data->shape[2]};
        const uint32_t targets[FEDGE_NPY_MAX_RANK] = {shape[0], data->num_targets};
        const bool is_target = !is_values && data->num_targets > 0;
        const fedge_dtype answers = is_target ? FEDGE_F32 : FEDGE_I32;
        const uint32_t rank = is_values ? data->rank + 1 : is_target ? 2 : 1;
        FEDGE_TRY(fedge_npy_writer_init(&self->arrays[i], self->paths[i],
                                        is_values ? data->dtype : answers, rank,
                                        is_target ? targets : shape, err));
    }
    return FEDGE_OK;
}

/* ---- examples -------------------------------------------------------------------------------- */

/* Appends an example of [client] to the training or the test set. */
static fedge_status add_example(generator *self, uint32_t client, uint32_t index, bool is_train,
                                fedge_error *err)
{
    int32_t label = 0;
    const double best =
        fedge_synthetic_example(self->synthetic, client, index, self->values, &label);
    if (is_train)
        self->owner[self->next++] = client;
    else
        self->best_sum += best;
    const fedge_synthetic_spec *data = &self->settings->data;
    const size_t count = fedge_synthetic_example_values(data);
    fedge_npy_writer *answers = &self->arrays[is_train ? TRAIN_LABELS : TEST_LABELS];
    FEDGE_TRY(fedge_npy_writer_append(&self->arrays[is_train ? TRAIN_VALUES : TEST_VALUES],
                                      self->values, count, err));
    return data->num_targets > 0
               ? fedge_npy_writer_append(answers, (const float *)self->values + count,
                                         data->num_targets, err)
               : fedge_npy_writer_append(answers, &label, 1, err);
}

static fedge_status add_examples(generator *self, fedge_error *err)
{
    for (uint32_t c = 0; c < self->settings->num_clients; c++) {
        uint32_t train = 0, test = 0;
        count_client(self->settings, c, &train, &test);
        for (uint32_t i = 0; i < train + test; i++)
            FEDGE_TRY(add_example(self, c, i, i < train, err));
    }
    for (uint32_t i = 0; i < self->settings->num_test; i++)
        FEDGE_TRY(add_example(self, FEDGE_SYNTHETIC_TEST, i, false, err));
    for (int i = 0; i < NUM_ARRAYS; i++)
        FEDGE_TRY(fedge_npy_writer_finish(&self->arrays[i], err));
    return FEDGE_OK;
}

/* ---- the job and the client file ------------------------------------------------------------- */

/* The training of a kind. */
typedef struct recipe {
    uint32_t rounds, local_epochs;
    const char *learning_rate;
} recipe;

static const recipe RECIPES[] = {
    [FEDGE_SYNTHETIC_LOGISTIC] = {50, 1, "0.05"},
    [FEDGE_SYNTHETIC_FEDPROX] = {200, 20, "0.01"}, /* the paper's; B = 10 and 10 clients too */
    [FEDGE_SYNTHETIC_IMAGES] = {20, 1, "0.02"},
    [FEDGE_SYNTHETIC_SERIES] = {20, 1, "0.02"},
};

/* "3, 32, 32" */
static void shape_text(const fedge_synthetic_spec *data, char text[FEDGE_GENERATE_MAX_TEXT])
{
    int size = 0;
    for (uint32_t i = 0; i < data->rank; i++) {
        size += snprintf(text + size, FEDGE_GENERATE_MAX_TEXT - (size_t)size, "%s%" PRIu32,
                         i ? ", " : "", data->shape[i]);
    }
}

/* What is learned, as members of "data". */
static void answers_text(const fedge_synthetic_spec *data, char *text, size_t size)
{
    (void)(data->num_targets > 0 ? snprintf(text, size,
                                            "\n    \"targets\": {\"shape\": [%" PRIu32
                                            "], \"dtype\": \"f32\", \"mean\": [50], \"std\": [14]}",
                                            data->num_targets)
                                 : snprintf(text, size, "\"labels\": %" PRIu32, data->num_labels));
}

static fedge_status add_layers(const fedge_synthetic_spec *data, fedge_buffer *text,
                               fedge_error *err)
{
    const uint32_t labels = data->num_labels;
    if (data->num_targets > 0) {
        return fedge_buffer_printf(text, err,
                                   "      {\"type\": \"Linear\", \"in_features\": %" PRIu32
                                   ", \"out_features\": 32},\n"
                                   "      {\"type\": \"ReLU\"},\n"
                                   "      {\"type\": \"Linear\", \"in_features\": 32, "
                                   "\"out_features\": %" PRIu32 "}\n",
                                   data->shape[0], data->num_targets);
    }
    if (data->rank == 1) {
        return fedge_buffer_printf(text, err,
                                   "      {\"type\": \"Linear\", \"in_features\": %" PRIu32
                                   ", \"out_features\": %" PRIu32 "}\n",
                                   data->shape[0], labels);
    }
    return fedge_buffer_printf(
        text, err,
        "      {\"type\": \"Conv2d\", \"in_channels\": %" PRIu32
        ", \"out_channels\": 16, \"kernel_size\": 3, \"padding\": 1},\n"
        "      {\"type\": \"ReLU\"},\n"
        "      {\"type\": \"MaxPool2d\", \"kernel_size\": 2},\n"
        "      {\"type\": \"Conv2d\", \"in_channels\": 16, \"out_channels\": 32, "
        "\"kernel_size\": 3, \"padding\": 1},\n"
        "      {\"type\": \"ReLU\"},\n"
        "      {\"type\": \"MaxPool2d\", \"kernel_size\": 2},\n"
        "      {\"type\": \"Flatten\"},\n"
        "      {\"type\": \"Linear\", \"in_features\": %" PRIu32 ", \"out_features\": %" PRIu32
        "}\n",
        data->shape[0], 32 * (data->shape[1] / 4) * (data->shape[2] / 4), labels);
}

fedge_status fedge_generate_job(const fedge_generate_settings *settings, fedge_buffer *text,
                                fedge_error *err)
{
    const fedge_synthetic_spec *data = &settings->data;
    const recipe *how = &RECIPES[data->kind];
    const uint32_t clients = settings->num_clients, cohort = clients < COHORT ? clients : COHORT;
    char shape[FEDGE_GENERATE_MAX_TEXT], answers[160];
    shape_text(data, shape);
    answers_text(data, answers, sizeof(answers));
    FEDGE_TRY(fedge_buffer_printf(text, err,
                                  "{\n"
                                  "  \"fedge-job\": 1,\n"
                                  "  \"name\": \"%s\",\n"
                                  "  \"seed\": %" PRIu64 ",\n"
                                  "  \"model\": {\n"
                                  "    \"input-shape\": [%s],\n"
                                  "    \"layers\": [\n",
                                  settings->text, settings->seed, shape));
    FEDGE_TRY(add_layers(data, text, err));
    return fedge_buffer_printf(
        text, err,
        "    ],\n"
        "    \"loss\": {\"type\": \"%s\"}\n"
        "  },\n"
        "  \"data\": {\n"
        "    \"name\": \"synthetic\", \"shape\": [%s], \"dtype\": \"%s\", %s%s\n"
        "  },\n"
        "  \"training\": {\"local-epochs\": %" PRIu32
        ", \"batch-size\": 10, \"learning-rate\": %s},\n"
        "  \"rounds\": {\"num-server-rounds\": %" PRIu32
        ", \"fraction-train\": %.6g, \"min-train-nodes\": %" PRIu32 "},\n"
        "  \"update\": {\"codec\": \"none\", \"deflate\": false},\n"
        "  \"test-set\": {\"values\": \"test-values.npy\", \"labels\": \"test-labels.npy\"}\n"
        "}\n",
        data->num_targets > 0 ? "MSELoss" : "CrossEntropyLoss", shape,
        data->dtype == FEDGE_U8 ? "u8" : "f32", answers,
        data->dtype == FEDGE_U8
            ? ",\n    \"normalisation\": {\"divide-by\": 255, \"mean\": [0.5], \"std\": [0.25]}"
        : data->num_targets > 0 ? ",\n    \"normalisation\": {\"mean\": [50], \"std\": [14]}"
                                : "",
        how->local_epochs, how->learning_rate, how->rounds, (double)cohort / clients, cohort);
}

static const char SITE_TEXT[] = "{\n"
                                "  \"data\": {\n"
                                "    \"synthetic\": {\n"
                                "      \"values\": \"train-values.npy\",\n"
                                "      \"labels\": \"train-labels.npy\",\n"
                                "      \"partition\": \"file:owners.csv\"\n"
                                "    }\n"
                                "  }\n"
                                "}\n";

static fedge_status write_job(const generator *self, fedge_error *err)
{
    fedge_buffer text;
    fedge_buffer_init(&text, MAX_JSON);
    fedge_status status;
    FEDGE_TRY_OR(fedge_generate_job(self->settings, &text, err), done);
    status = fedge_os_write_file(self->paths[JOB], text.data, text.size, FILE_MODE, err);
done:
    fedge_buffer_fini(&text);
    return status;
}

static fedge_status write_all(generator *self, fedge_error *err)
{
    FEDGE_TRY(open_arrays(self, err));
    FEDGE_TRY(add_examples(self, err));
    FEDGE_TRY(fedge_partition_write_csv(self->paths[OWNERS], self->owner, self->next, err));
    FEDGE_TRY(
        fedge_os_write_file(self->paths[SITE], SITE_TEXT, sizeof(SITE_TEXT) - 1, FILE_MODE, err));
    return write_job(self, err);
}

static fedge_status take_memory(generator *self, fedge_error *err)
{
    const fedge_synthetic_spec *data = &self->settings->data;
    self->owner = malloc(self->report.num_train * sizeof(*self->owner));
    self->values = malloc(fedge_synthetic_example_values(data) * fedge_dtype_size(data->dtype) +
                          data->num_targets * sizeof(float));
    if (!self->owner || !self->values) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the owners of %" PRIu64 " examples",
                          self->report.num_train);
    }
    return fedge_synthetic_new(data, self->settings->seed, &self->synthetic, err);
}

fedge_status fedge_generate(const fedge_generate_settings *settings, fedge_generate_report *report,
                            fedge_error *err)
{
    generator self = {.settings = settings};
    for (int i = 0; i < NUM_ARRAYS; i++)
        self.arrays[i].file.fd = -1;
    fedge_status status;
    FEDGE_TRY_OR(count(&self, err), done);
    FEDGE_TRY_OR(take_memory(&self, err), done);
    FEDGE_TRY_OR(clear(&self, err), done);
    status = write_all(&self, err);
    for (int i = 0; i < NUM_ARRAYS; i++)
        fedge_npy_writer_fini(&self.arrays[i]);
    if (status != FEDGE_OK)
        remove_all(&self);
done:
    self.report.best_accuracy = self.best_sum / (double)self.report.num_test;
    *report = self.report;
    fedge_synthetic_free(self.synthetic);
    free(self.owner);
    free(self.values);
    return status;
}

/* ---- options -------------------------------------------------------------------------------- */

#define CLIENTS 100u /* default */
#define FEDPROX_CLIENTS 30u
#define EXAMPLES 600u
#define IMAGE_EXAMPLES 50u
#define TEST_EXAMPLES 2000u
#define LEAST_FEDPROX_EXAMPLES 2u /* one of them for the test set */

#define OPTION(name, argument, help, type, field)                                                  \
    FEDGE_OPTION(name, argument, help, type, fedge_generate_settings, field)

static const fedge_option OPTIONS[] = {
    {OPTION("out", "DIR", "directory for the files, created if missing", TEXT, dir),
     .needed = true},
    {OPTION("clients", "N", "(100; fedprox 30)", U32, num_clients), .min = 1,
     .max = FEDGE_SIMULATE_MAX_CLIENTS},
    {OPTION("examples", "N",
            "of each client (600; images 50; fedprox as in the paper: 50 + lognormal(4, 2), a "
            "tenth of them for the test set)",
            U32, num_examples),
     .min = 1, .max = FEDGE_SYNTHETIC_MAX_EXAMPLES},
    {OPTION("test", "N", "examples of the test set (2000); not for fedprox", U32, num_test),
     .min = 1, .max = FEDGE_SYNTHETIC_MAX_EXAMPLES},
    {OPTION("seed", "S", "of the data and the job", U64, seed), .max = FEDGE_JSON_MAX_INTEGER,
     .preset = "0"},
    {OPTION("force", NULL, "replace existing files", FLAG, force)}};

static const fedge_command_line COMMAND_LINE = {
    .name = "fedge-simulate generate",
    .command = true,
    .usage = "Usage: fedge-simulate generate KIND --out DIR [OPTION...]\n"
             "Generates data and a job that learns it, and writes both into DIR.\n"
             "\n"
             "KIND is one of\n"
             "  logistic[:FEATURES,LABELS]    Gaussian features, labels drawn by one softmax\n"
             "                                regression for all clients (60,10)\n"
             "  fedprox[:ALPHA,BETA], fedprox:iid\n"
             "                                synthetic(ALPHA,BETA) of Li et al. 2020 (1,1)\n"
             "  images[:C,H,W[,LABELS]]       a moved, noisy picture for each label\n"
             "                                (3,32,32,10)\n"
             "  series[:BEFORE,AHEAD]         loads by the hour, and those to forecast (24,1)\n"
             "\n",
    .options = OPTIONS,
    .num_options = sizeof(OPTIONS) / sizeof(*OPTIONS),
    .notes = "\nExit: 0 done; 1 failed; 2 usage; 3 settings, or existing files\n",
    .arguments = true};

const char *fedge_generate_options_help(char text[FEDGE_HELP_SIZE])
{
    return fedge_command_line_help(&COMMAND_LINE, false, text);
}

/* Sets the defaults. */
static fedge_status derive(fedge_generate_settings *settings, fedge_error *err)
{
    const bool fedprox = settings->data.kind == FEDGE_SYNTHETIC_FEDPROX;
    const bool images = settings->data.kind == FEDGE_SYNTHETIC_IMAGES;
    FEDGE_TRY(fedge_command_line_check(&COMMAND_LINE, settings, err));
    if (fedprox && settings->num_test > 0) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "--test is not for fedprox, whose test set is a tenth of each client's "
                          "examples: leave it out");
    }
    if (fedprox && settings->num_examples > 0 && settings->num_examples < LEAST_FEDPROX_EXAMPLES) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "--examples must be at least %u for fedprox: one is for the test set",
                          LEAST_FEDPROX_EXAMPLES);
    }
    if (settings->num_clients == 0)
        settings->num_clients = fedprox ? FEDPROX_CLIENTS : CLIENTS;
    if (!fedprox && settings->num_examples == 0)
        settings->num_examples = images ? IMAGE_EXAMPLES : EXAMPLES;
    if (!fedprox && settings->num_test == 0)
        settings->num_test = TEST_EXAMPLES;
    return FEDGE_OK;
}

static fedge_status take_kind(const fedge_words *words, fedge_generate_settings *settings,
                              fedge_error *err)
{
    if (words->num != 1) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "generate needs one KIND of data, not %u (see generate --help)",
                          words->num);
    }
    if (strlen(words->at[0]) >= sizeof(settings->text)) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "'%.60s…' is over %zu bytes", words->at[0],
                          sizeof(settings->text) - 1);
    }
    (void)snprintf(settings->text, sizeof(settings->text), "%s", words->at[0]);
    return fedge_synthetic_parse(words->at[0], &settings->data, err);
}

fedge_status fedge_generate_options_parse(int argc, char **argv, fedge_generate_options *options,
                                          fedge_error *err)
{
    fedge_words words;
    *options = (fedge_generate_options){0};
    fedge_status status =
        fedge_command_line_read(&COMMAND_LINE, argc, argv, &options->settings, &words, err);
    options->help = words.asked == FEDGE_ASKED_HELP;
    if (status != FEDGE_OK || options->help)
        return status;
    status = take_kind(&words, &options->settings, err);
    return status == FEDGE_OK ? derive(&options->settings, err) : status;
}
