/* fedge's training core alone: a network in a static block learns to tell three gestures of a
 * 3-axis accelerometer apart. No malloc, no stdio, no operating system; a PC runs it as well. Ends
 * with 0 when at least 95 of the last 100 windows were recognised before they were learnt from. */
#include "edge/core/rng.h"
#include "edge/train/model.h"

#define SAMPLES 16 /* in a window, three axes each */

static const fedge_model_spec spec = {
    .input_rank = 1,
    .input_shape = {3 * SAMPLES},
    .num_layers = 3,
    .layers = {{.type = FEDGE_LAYER_LINEAR, .u.linear = {3 * SAMPLES, 16, true}},
               {.type = FEDGE_LAYER_RELU},
               {.type = FEDGE_LAYER_LINEAR, .u.linear = {16, 3, true}}}};
static _Alignas(64) unsigned char block[8192]; /* fedge_model_new says when it is too small */
static fedge_tensor_spec tensors[4];           /* a weight and a bias per Linear */

/* Stands for a sensor: gesture g shakes along axis g, with noise on all three. */
static int32_t read_window(fedge_rng *rng, float *x)
{
    const int32_t gesture = (int32_t)fedge_rng_below(rng, 3);
    for (int i = 0; i < 3 * SAMPLES; i++) {
        const float shake = i % 3 == gesture ? ((i / 3) % 4 < 2 ? 0.5f : -0.5f) : 0.0f;
        x[i] = shake + fedge_rng_float(rng) - 0.5f;
    }
    return gesture;
}

int main(void)
{
    const fedge_model_options options = {.max_batch = 1, .training = true};
    const fedge_sgd sgd = {.learning_rate = 0.05f};
    fedge_rng rng = fedge_rng_stream(1, FEDGE_PURPOSE_SHUFFLE, 0, 0, 0);
    fedge_model *model = NULL;
    fedge_schema schema;
    fedge_error err;
    fedge_schema_init(&schema, tensors, 4);
    if (fedge_model_schema(&spec, &schema, &err) != FEDGE_OK ||
        fedge_model_new(&model, &spec, &options, block, sizeof block, &err) != FEDGE_OK ||
        fedge_model_init_values(&spec, &schema, 1, fedge_model_values(model), &err) != FEDGE_OK) {
        return 2; /* err.message says why */
    }
    uint32_t recognised = 0;
    for (int step = 0; step < 500; step++) {
        float x[3 * SAMPLES];
        const int32_t gesture = read_window(&rng, x);
        double loss;
        uint32_t correct;
        if (fedge_model_step(model, x, &gesture, 1, &sgd, &loss, &correct, &err) != FEDGE_OK) {
            return 3;
        }
        recognised += step >= 400 ? correct : 0;
    }
    return recognised >= 95 ? 0 : 1;
}
