/* Trains a network on images of Fashion-MNIST, one by one, and prints the bits of every loss, the
 * memory and the instructions per step. Compiled with MODEL_MLP (784-64-10) or without (a small
 * CNN), with plain SGD or, layer by layer, with Adam (MODEL_ADAM), for a microcontroller or for the
 * PC. */
#include "edge/core/os.h"
#include "edge/train/model.h"
#include "tests/mcu/board.h"
#include "tests/mcu/images.h"

#include <string.h>

#define NUM_STEPS (2 * NUM_IMAGES)

#ifdef MODEL_MLP
#define NAME "mlp"
#define BLOCK_BYTES 204736 /* of which 203,560 are parameters */
static const fedge_model_spec spec = {
    .input_rank = 1,
    .input_shape = {IMAGE_PIXELS},
    .num_layers = 3,
    .layers = {{.type = FEDGE_LAYER_LINEAR, .u.linear = {IMAGE_PIXELS, 64, true}},
               {.type = FEDGE_LAYER_RELU},
               {.type = FEDGE_LAYER_LINEAR, .u.linear = {64, 10, true}}}};
#else
#ifdef MODEL_ADAM
#define NAME "adam"
#define BLOCK_BYTES 136512
#else
#define NAME "cnn"
#define BLOCK_BYTES 64896
#endif
static const fedge_model_spec spec = {
    .input_rank = 3,
    .input_shape = {1, 28, 28},
    .num_layers = 8,
    .layers = {{.type = FEDGE_LAYER_CONV2D, .u.conv2d = {1, 8, {3, 3}, {1, 1}, {0, 0}, true}},
               {.type = FEDGE_LAYER_RELU},
               {.type = FEDGE_LAYER_MAXPOOL2D, .u.maxpool2d = {{2, 2}, {2, 2}, {0, 0}}},
               {.type = FEDGE_LAYER_CONV2D, .u.conv2d = {8, 16, {3, 3}, {1, 1}, {0, 0}, true}},
               {.type = FEDGE_LAYER_RELU},
               {.type = FEDGE_LAYER_MAXPOOL2D, .u.maxpool2d = {{2, 2}, {2, 2}, {0, 0}}},
               {.type = FEDGE_LAYER_FLATTEN},
               {.type = FEDGE_LAYER_LINEAR, .u.linear = {400, 10, true}}}};
#endif

#ifdef MODEL_ADAM
static const fedge_optimizer optimizer = {.type = FEDGE_OPTIMIZER_ADAM, .learning_rate = 0.001f};
#else
static const fedge_optimizer optimizer = {.learning_rate = 0.01f};
#endif

/* As small as the boards allow; with pointers of 64 bits the records are larger. */
static _Alignas(64) unsigned char block[BLOCK_BYTES + (sizeof(void *) > 4 ? 16384 : 0)];

/* The image of a step; after a failure, what went wrong. */
static union {
    float x[IMAGE_PIXELS];
    fedge_error err;
} work;

/* Functions of their own, so that what one keeps on the stack is gone when the next one runs. */
#define APART __attribute__((noinline)) static

APART fedge_status open_model(fedge_model **model, fedge_error *err)
{
    const fedge_model_options options = {.max_batch = 1,
                                         .training = true,
                                         .optimizer = optimizer.type,
                                         .disabled_cpu_features = ~0u};
    const fedge_status status = fedge_model_new(model, &spec, &options, block, sizeof(block), err);
    if (status == FEDGE_OK)
        fedge_model_init_values(&spec, 1, fedge_model_values(*model));
    return status;
}

/* One step on one image; adds its instructions to *total and keeps the most in *most. */
APART fedge_status step(fedge_model *model, uint32_t index, uint64_t *total, uint32_t *most,
                        fedge_error *err)
{
    const int32_t label = image_labels[index];
    for (uint32_t i = 0; i < IMAGE_PIXELS; i++)
        work.x[i] = (float)images[index][i] / 255.0f;
    double loss = 0.0;
    uint32_t correct = 0;
    const uint32_t before = board_instructions();
    const fedge_status status =
        fedge_model_step(model, work.x, &label, 1, &optimizer, &loss, &correct, err);
    const uint32_t spent = board_instructions() - before;
    *total += spent;
    *most = spent > *most ? spent : *most;
    uint64_t bits;
    memcpy(&bits, &loss, sizeof(bits));
    char line[64];
    (void)fedge_os_format(line, sizeof(line), "loss %016llx\n", (unsigned long long)bits);
    board_write(line);
    return status;
}

APART void report(const fedge_model *model, uint64_t total, uint32_t most)
{
    char line[160];
    (void)fedge_os_format(line, sizeof(line),
                          NAME ": kernels %s, instructions per step %lu (most %lu), RAM %lu "
                               "(variables %lu, stack %lu), flash %lu\n",
                          fedge_model_kernels(model), (unsigned long)(total / NUM_STEPS),
                          (unsigned long)most,
                          (unsigned long)(board_static_bytes() + board_stack_bytes()),
                          (unsigned long)board_static_bytes(), (unsigned long)board_stack_bytes(),
                          (unsigned long)(board_flash_bytes()));
    board_write(line);
}

int main(void)
{
    fedge_model *model = NULL;
    uint64_t total = 0;
    uint32_t most = 0;
    fedge_status status = open_model(&model, &work.err);
    for (uint32_t i = 0; status == FEDGE_OK && i < NUM_STEPS; i++)
        status = step(model, i % NUM_IMAGES, &total, &most, &work.err);
    if (status != FEDGE_OK) {
        board_write(work.err.message);
        board_write("\n");
        return 1;
    }
    report(model, total, most);
    return 0;
}
