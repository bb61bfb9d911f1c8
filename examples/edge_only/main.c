/* fedge's training core alone: a network in a static block learns "exclusive or" from four
 * examples. No malloc, no stdio, no operating system; a PC runs it as well. Ends with 0 once it
 * knows them. */
#include <fedge/train.h>

static const fedge_model_spec spec = {
    .input_rank = 1,
    .input_shape = {2},
    .num_layers = 3,
    .layers = {{.type = FEDGE_LAYER_LINEAR, .u.linear = {2, 8, .bias = true}},
               {.type = FEDGE_LAYER_RELU},
               {.type = FEDGE_LAYER_LINEAR, .u.linear = {8, 2, .bias = true}}}};
static const float x[4][2] = {{0, 0}, {0, 1}, {1, 0}, {1, 1}};
static const int32_t labels[4] = {0, 1, 1, 0};
static _Alignas(64) unsigned char block[4096]; /* fedge_model_new reports if it is too small */

int main(void)
{
    const fedge_model_options options = {.max_batch = 4, .training = true};
    const fedge_optimizer sgd = {.learning_rate = 0.5f};
    fedge_model *model = NULL;
    fedge_error err; /* err.message says what failed and how to fix it */
    if (fedge_model_new(&model, &spec, &options, block, sizeof(block), &err) != FEDGE_OK)
        return 2;
    fedge_model_init_values(&spec, 1, fedge_model_values(model));
    double loss;
    uint32_t correct;
    for (int step = 0; step < 400; step++) {
        if (fedge_model_step(model, x[0], labels, 4, &sgd, &loss, &correct, &err) != FEDGE_OK)
            return 3;
    }
    if (fedge_model_evaluate(model, x[0], labels, 4, &loss, &correct, &err) != FEDGE_OK)
        return 4;
    return correct == 4 && loss < 0.1 ? 0 : 1;
}
