/* The models that are drawn, one family after another. */
#include "tests/cuda/cohort_drawn.h"

#include "edge/train/layers/layer.h"
#include "tests/edge/core/cmocka_all.h"

static fedge_model_spec spec;

static fedge_layer_spec linear(uint32_t in, uint32_t out)
{
    return (fedge_layer_spec){.type = FEDGE_LAYER_LINEAR,
                              .u.linear = {in, out, out % 2 == 1, 0, 0}};
}

static fedge_layer_spec plain(fedge_layer_type type)
{
    return (fedge_layer_spec){.type = type};
}

static void make_mlp(void)
{
    const uint32_t hidden = 1 + fedge_rng_below(&drawn_rng, 40);
    spec = (fedge_model_spec){.input_rank = 1, .input_shape = {MOST}, .num_layers = 3};
    spec.layers[0] = linear(MOST, hidden);
    spec.layers[1] = plain(FEDGE_LAYER_RELU);
    spec.layers[2] = linear(hidden, drawn_outputs);
}

static void make_cnn(void)
{
    const uint32_t first = 1 + fedge_rng_below(&drawn_rng, 18),
                   second = 1 + fedge_rng_below(&drawn_rng, 5);
    spec =
        (fedge_model_spec){.input_rank = 3, .input_shape = {CHANNELS, SIDE, SIDE}, .num_layers = 7};
    spec.layers[0] =
        (fedge_layer_spec){.type = FEDGE_LAYER_CONV2D,
                           .u.conv2d = {CHANNELS, first, {3, 3}, {1, 1}, {1, 1}, true, {0, 0}, 0}};
    spec.layers[1] = plain(FEDGE_LAYER_RELU);
    spec.layers[2] =
        (fedge_layer_spec){.type = FEDGE_LAYER_MAXPOOL2D, .u.maxpool2d = {.kernel_size = {2, 2}}};
    spec.layers[3] = (fedge_layer_spec){
        .type = FEDGE_LAYER_CONV2D,
        .u.conv2d = {first, second, {2, 2}, {1, 1}, {0, 0}, second % 2 == 0, {1, 1}, 1}};
    spec.layers[4] = plain(FEDGE_LAYER_RELU);
    spec.layers[5] = plain(FEDGE_LAYER_FLATTEN);
    spec.layers[6] = linear(second * 4, CLASSES);
}

static fedge_layer_spec conv(uint32_t in, uint32_t out, uint32_t kernel, uint32_t groups)
{
    return (fedge_layer_spec){.type = FEDGE_LAYER_CONV2D,
                              .u.conv2d = {in,
                                           out,
                                           {kernel, kernel},
                                           {1, 1},
                                           {kernel / 2, kernel / 2},
                                           groups > 1,
                                           {1, 1},
                                           groups}};
}

static fedge_layer_spec group_norm(uint32_t groups, uint32_t channels)
{
    return (fedge_layer_spec){.type = FEDGE_LAYER_GROUPNORM,
                              .u.groupnorm = {groups, channels, 1e-5f, true}};
}

static fedge_layer_spec reads(fedge_layer_spec layer, uint32_t count, uint16_t a, uint16_t b)
{
    layer.num_inputs = count;
    layer.inputs[0] = a;
    layer.inputs[1] = b;
    return layer;
}

/* Blocks with a way around them, in every kind: what is read twice, a sum that is read twice, and
 * rectifiers that may not work in place. */
static void make_residual(void)
{
    static const fedge_layer_type FUNCTIONS[] = {FEDGE_LAYER_RELU6, FEDGE_LAYER_LEAKYRELU,
                                                 FEDGE_LAYER_GELU,  FEDGE_LAYER_SIGMOID,
                                                 FEDGE_LAYER_TANH,  FEDGE_LAYER_SILU};
    fedge_layer_spec function = plain(FUNCTIONS[fedge_rng_below(&drawn_rng, 6)]);
    if (function.type == FEDGE_LAYER_LEAKYRELU)
        function.u.leakyrelu.negative_slope = 0.1f;
    if (function.type == FEDGE_LAYER_GELU)
        function.u.gelu.approximate = fedge_rng_below(&drawn_rng, 2);
    spec = (fedge_model_spec){
        .input_rank = 3, .input_shape = {CHANNELS, SIDE, SIDE}, .num_layers = 15};
    spec.layers[0] = conv(CHANNELS, 4, 3, 1);
    spec.layers[1] = group_norm(2, 4);
    spec.layers[2] = plain(FEDGE_LAYER_RELU);
    spec.layers[3] = conv(4, 4, 3, 4);
    spec.layers[4] = function;
    spec.layers[5] = reads(plain(FEDGE_LAYER_ADD), 2, 4, 2);
    spec.layers[6] = plain(FEDGE_LAYER_RELU);
    spec.layers[7] = conv(4, 6, 3, 2);
    spec.layers[8] = reads(conv(4, 6, 1, 1), 1, 6, 0);
    spec.layers[9] = group_norm(3, 6);
    spec.layers[10] = reads(plain(FEDGE_LAYER_ADD), 2, 9, 7);
    spec.layers[11] = reads(plain(FEDGE_LAYER_ADD), 2, 10, 10);
    spec.layers[12] =
        (fedge_layer_spec){.type = FEDGE_LAYER_ADAPTIVEAVGPOOL2D,
                           .u.adaptiveavgpool2d = {{1 + fedge_rng_below(&drawn_rng, 4), 2}}};
    spec.layers[13] = plain(FEDGE_LAYER_FLATTEN);
    spec.layers[14] = linear(6 * spec.layers[12].u.adaptiveavgpool2d.output_size[0] * 2, CLASSES);
}

/* Signals of two channels, as rows of an image would be: products, maxima and means of windows
 * along them. Every other seed averages windows of an image. */
static void make_signal(uint64_t seed)
{
    const uint32_t ceil = fedge_rng_below(&drawn_rng, 2), pad = fedge_rng_below(&drawn_rng, 2);
    spec = (fedge_model_spec){.input_rank = 2, .input_shape = {CHANNELS, SIDE * SIDE}};
    spec.layers[spec.num_layers++] = (fedge_layer_spec){
        .type = FEDGE_LAYER_CONV1D, .u.conv1d = {CHANNELS, 4, 5, 1, 2, true, 1 + ceil, 1 + pad}};
    spec.layers[spec.num_layers++] = plain(FEDGE_LAYER_RELU);
    spec.layers[spec.num_layers++] = (fedge_layer_spec){
        .type = FEDGE_LAYER_MAXPOOL1D, .u.maxpool1d = {3, 2, pad, 1 + ceil, ceil != 0}};
    spec.layers[spec.num_layers++] = (fedge_layer_spec){
        .type = FEDGE_LAYER_AVGPOOL1D, .u.avgpool1d = {4, 3, pad + 1, ceil != 0, pad != 0}};
    if (seed % 2) {
        spec = (fedge_model_spec){.input_rank = 3, .input_shape = {CHANNELS, SIDE, SIDE}};
        spec.layers[spec.num_layers++] = conv(CHANNELS, 4, 3, 1);
        spec.layers[spec.num_layers++] = plain(FEDGE_LAYER_TANH);
        spec.layers[spec.num_layers++] = (fedge_layer_spec){
            .type = FEDGE_LAYER_AVGPOOL2D,
            .u.avgpool2d = {{3, 2}, {2, 1}, {1, pad}, ceil != 0, pad != 0, seed % 4 == 3 ? 5 : 0}};
    }
    spec.layers[spec.num_layers++] = plain(FEDGE_LAYER_FLATTEN);
    spec.num_layers++;
    fedge_shape shape = {spec.input_rank, {CHANNELS, SIDE * SIDE}};
    if (spec.input_rank == 3)
        shape = (fedge_shape){3, {CHANNELS, SIDE, SIDE}};
    for (uint32_t i = 0; i + 1 < spec.num_layers; i++) {
        const fedge_shape in = shape;
        assert_int_equal(fedge_shape_infer(&spec, i, &in, 1, &shape, NULL), FEDGE_OK);
    }
    spec.layers[spec.num_layers - 1] = linear((uint32_t)fedge_shape_count(&shape), CLASSES);
}

/* Words of a text: places in a table, positions, a norm of each step, a product of each. */
static void make_text(void)
{
    spec = (fedge_model_spec){.input_rank = 1, .input_shape = {WORDS}, .num_layers = 7};
    spec.layers[0] = (fedge_layer_spec){.type = FEDGE_LAYER_EMBEDDING, .u.embedding = {256, 3}};
    spec.layers[1] = (fedge_layer_spec){.type = FEDGE_LAYER_POSITIONALEMBEDDING,
                                        .u.positionalembedding = {WORDS + 2, 3}};
    spec.layers[2] = (fedge_layer_spec){.type = FEDGE_LAYER_LAYERNORM,
                                        .u.layernorm = {1, {3}, 1e-5f, true, true}};
    spec.layers[3] = linear(3, 5);
    spec.layers[4] = plain(FEDGE_LAYER_TANH);
    spec.layers[5] = fedge_rng_below(&drawn_rng, 2)
                         ? (fedge_layer_spec){.type = FEDGE_LAYER_MEAN, .u.mean = {1}}
                         : (fedge_layer_spec){.type = FEDGE_LAYER_SELECT, .u.select = {1, -1}};
    spec.layers[6] = linear(5, CLASSES);
}

/* A sequence of vectors through an LSTM or GRU, of one level or more. */
static void make_sequence(uint64_t seed)
{
    const uint32_t hidden = 1 + fedge_rng_below(&drawn_rng, 9);
    spec = (fedge_model_spec){.input_rank = 2, .input_shape = {SIDE, MOST / SIDE}, .num_layers = 3};
    spec.layers[0] =
        (fedge_layer_spec){.type = seed / 4 % 2 ? FEDGE_LAYER_LSTM : FEDGE_LAYER_GRU,
                           .u.recurrent = {MOST / SIDE, hidden, 1 + fedge_rng_below(&drawn_rng, 3),
                                           seed % 8 > 1, true, false}};
    spec.layers[1] = (fedge_layer_spec){.type = FEDGE_LAYER_SELECT, .u.select = {1, -1}};
    spec.layers[2] = linear(hidden, drawn_outputs);
}

/* Two encoder layers over such vectors, of one head or two. */
static void make_encoders(uint64_t seed)
{
    spec = (fedge_model_spec){.input_rank = 2, .input_shape = {MOST / SIDE, SIDE}, .num_layers = 4};
    for (uint32_t i = 0; i < 2; i++) {
        spec.layers[i] = (fedge_layer_spec){
            .type = FEDGE_LAYER_TRANSFORMERENCODERLAYER,
            .u.transformerencoderlayer = {.d_model = SIDE,
                                          .nhead = 1 + i,
                                          .dim_feedforward = 1 + fedge_rng_below(&drawn_rng, 9),
                                          .dropout = seed % 2 ? 0.3f : 0.0f,
                                          .layer_norm_eps = 1e-5f,
                                          .activation = seed % 2,
                                          .bias = seed % 8 > 2,
                                          .batch_first = true,
                                          .norm_first = true,
                                          .is_causal = i == 0}};
    }
    spec.layers[2] = (fedge_layer_spec){.type = FEDGE_LAYER_MEAN, .u.mean = {1}};
    spec.layers[3] = linear(SIDE, CLASSES);
}

/* Channels by the batch's statistics, with weights and without, and by running ones. Rows of one
 * place have a batch's variance only where it has two examples. */
static void make_batch_norms(uint64_t seed)
{
    spec =
        (fedge_model_spec){.input_rank = 3, .input_shape = {CHANNELS, SIDE, SIDE}, .num_layers = 9};
    const fedge_layer_spec norm = {.type = FEDGE_LAYER_BATCHNORM2D,
                                   .u.batchnorm2d = {.num_features = 4,
                                                     .eps = 1e-3f,
                                                     .momentum = 0.2f,
                                                     .affine = true,
                                                     .track_running_stats = true}};
    spec.layers[0] = conv(CHANNELS, 4, 3, 1);
    spec.layers[1] = norm;
    spec.layers[2] = plain(FEDGE_LAYER_RELU);
    spec.layers[3] = conv(4, 4, 3, 1);
    spec.layers[4] = norm;
    spec.layers[4].u.batchnorm2d.affine = seed % 2 == 0;
    spec.layers[5] = reads(plain(FEDGE_LAYER_ADD), 2, 4, 2);
    spec.layers[6] = norm;
    spec.layers[6].u.batchnorm2d.frozen = true;
    spec.layers[6].train = seed % 3 ? FEDGE_TRAIN_ALL : FEDGE_TRAIN_NONE;
    spec.layers[7] = plain(FEDGE_LAYER_FLATTEN);
    spec.layers[8] = linear(4 * SIDE * SIDE, CLASSES);
}

/* ReLU between products of low rank; the first stays as it is, or is adapted too, and so may be one
 * that sees the rows of an example apart. */
static void make_adapted(uint64_t seed)
{
    spec = (fedge_model_spec){.input_rank = 2, .input_shape = {SIDE, MOST / SIDE}, .num_layers = 5};
    spec.layers[0] = linear(MOST / SIDE, 9);
    spec.layers[0].train = FEDGE_TRAIN_NONE;
    spec.layers[1] = plain(FEDGE_LAYER_RELU);
    spec.layers[2] = linear(9, 4 + (uint32_t)seed % 2);
    spec.layers[3] = plain(FEDGE_LAYER_FLATTEN);
    spec.layers[4] = linear(SIDE * (4 + (uint32_t)seed % 2), CLASSES);
    for (uint32_t i = seed % 2 ? 0 : 2; i < 5; i += 2) {
        spec.layers[i].train = FEDGE_TRAIN_ALL;
        spec.layers[i].u.linear.r = 1 + fedge_rng_below(&drawn_rng, 4);
        spec.layers[i].u.linear.lora_alpha = 3.0f;
    }
}

/* In both directions, and a second layer over both. */
static void make_directions(uint64_t seed)
{
    const uint32_t hidden = 1 + fedge_rng_below(&drawn_rng, 5);
    spec = (fedge_model_spec){.input_rank = 2, .input_shape = {SIDE, MOST / SIDE}, .num_layers = 4};
    for (uint32_t i = 0; i < 2; i++) {
        spec.layers[i] =
            (fedge_layer_spec){.type = (seed + i) % 2 ? FEDGE_LAYER_LSTM : FEDGE_LAYER_GRU,
                               .u.recurrent = {i == 0 ? MOST / SIDE : 2 * hidden, hidden, 1,
                                               seed % 4 < 2, true, true}};
    }
    spec.layers[2] = (fedge_layer_spec){.type = FEDGE_LAYER_MEAN, .u.mean = {1}};
    spec.layers[3] = linear(2 * hidden, drawn_outputs);
}

/* Attention of two heads beside a way around it, and what is dropped before and behind. */
static void make_attention(uint64_t seed)
{
    spec = (fedge_model_spec){.input_rank = 2, .input_shape = {MOST / SIDE, SIDE}, .num_layers = 6};
    spec.layers[0] =
        (fedge_layer_spec){.type = FEDGE_LAYER_DROPOUT, .u.dropout = {seed % 3 ? 0.2f : 0.5f, 0}};
    for (uint32_t i = 1; i < 3; i++) {
        spec.layers[i] =
            (fedge_layer_spec){.type = FEDGE_LAYER_MULTIHEADATTENTION,
                               .u.multiheadattention = {.embed_dim = SIDE,
                                                        .num_heads = 1 + i,
                                                        .dropout = (seed + i) % 2 ? 0.25f : 0.0f,
                                                        .bias = seed % 3 > 0,
                                                        .batch_first = true,
                                                        .is_causal = (seed + i) % 3 == 0}};
    }
    spec.layers[3] = reads(plain(FEDGE_LAYER_ADD), 2, 1, 2);
    spec.layers[4] = plain(FEDGE_LAYER_FLATTEN);
    spec.layers[5] = linear(MOST, CLASSES);
}

/* Dropout by itself, first, twice, and behind what may not be written over. */
static void make_dropped(uint64_t seed)
{
    const float p = seed % 4 == 3 ? 0.9f : 0.1f + 0.2f * (float)(seed % 4);
    const fedge_layer_spec drop = {.type = FEDGE_LAYER_DROPOUT, .u.dropout = {p, false}};
    spec =
        (fedge_model_spec){.input_rank = 3, .input_shape = {CHANNELS, SIDE, SIDE}, .num_layers = 8};
    spec.layers[0] = drop;
    spec.layers[1] = conv(CHANNELS, 3, 3, 1);
    spec.layers[2] = plain(FEDGE_LAYER_SIGMOID);
    spec.layers[3] = drop;
    spec.layers[4] = plain(FEDGE_LAYER_RELU);
    spec.layers[5] = drop;
    spec.layers[6] = plain(FEDGE_LAYER_FLATTEN);
    spec.layers[7] = linear(3 * SIDE * SIDE, CLASSES);
}

fedge_model_spec drawn_spec(uint64_t seed)
{
    switch (drawn_family) {
    case DRAWN_RESIDUAL:
        make_residual();
        break;
    case DRAWN_SIGNAL:
        make_signal(seed);
        break;
    case DRAWN_TEXT:
        make_text();
        break;
    case DRAWN_SEQUENCE:
        make_sequence(seed);
        break;
    case DRAWN_DIRECTIONS:
        make_directions(seed);
        break;
    case DRAWN_ENCODERS:
        make_encoders(seed);
        break;
    case DRAWN_BATCH_NORMS:
        make_batch_norms(seed);
        break;
    case DRAWN_ATTENTION:
        make_attention(seed);
        break;
    case DRAWN_DROPPED:
        make_dropped(seed);
        break;
    case DRAWN_ADAPTED:
        make_adapted(seed);
        break;
    default:
        (seed % 2 ? make_cnn : make_mlp)();
    }
    return spec;
}
