#include <inttypes.h>
#include <stdio.h>

#include "aggregator/simulate/generate/generate.h"

#define COHORT 10u /* clients of a round, where there are as many */

/* How a kind is trained. */
typedef struct recipe {
    uint32_t rounds, local_epochs;
    const char *learning_rate;
} recipe;

static const recipe RECIPES[] = {
    [FEDGE_SYNTHETIC_LOGISTIC] = {50, 1, "0.05"},
    [FEDGE_SYNTHETIC_FEDPROX] = {200, 20, "0.01"}, /* the paper's; B = 10 and 10 clients too */
    [FEDGE_SYNTHETIC_IMAGES] = {20, 1, "0.02"},
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

static fedge_status add_layers(const fedge_synthetic_spec *data, fedge_buffer *text,
                               fedge_error *err)
{
    const uint32_t labels = data->num_labels;
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
    char shape[FEDGE_GENERATE_MAX_TEXT];
    shape_text(data, shape);
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
        "    \"loss\": {\"type\": \"CrossEntropyLoss\"}\n"
        "  },\n"
        "  \"data\": {\n"
        "    \"name\": \"synthetic\", \"shape\": [%s], \"dtype\": \"%s\", \"labels\": %" PRIu32
        "%s\n"
        "  },\n"
        "  \"training\": {\"local-epochs\": %" PRIu32
        ", \"batch-size\": 10, \"learning-rate\": %s},\n"
        "  \"rounds\": {\"num-server-rounds\": %" PRIu32
        ", \"fraction-train\": %.6g, \"min-train-nodes\": %" PRIu32 "},\n"
        "  \"update\": {\"codec\": \"none\", \"deflate\": false},\n"
        "  \"test-set\": {\"values\": \"test-values.npy\", \"labels\": \"test-labels.npy\"}\n"
        "}\n",
        shape, data->dtype == FEDGE_U8 ? "u8" : "f32", data->num_labels,
        data->dtype == FEDGE_U8
            ? ",\n    \"normalisation\": {\"divide-by\": 255, \"mean\": [0.5], \"std\": [0.25]}"
            : "",
        how->local_epochs, how->learning_rate, how->rounds, (double)cohort / clients, cohort);
}

fedge_status fedge_generate_site(const fedge_generate_settings *settings, fedge_buffer *text,
                                 fedge_error *err)
{
    (void)settings;
    return fedge_buffer_printf(text, err,
                               "{\n"
                               "  \"data\": {\n"
                               "    \"synthetic\": {\n"
                               "      \"values\": \"train-values.npy\",\n"
                               "      \"labels\": \"train-labels.npy\",\n"
                               "      \"partition\": \"file:owners.csv\"\n"
                               "    }\n"
                               "  }\n"
                               "}\n");
}
