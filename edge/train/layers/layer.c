#include "edge/train/layers/layer.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "edge/core/words.h"

/* With FEDGE_CHOSEN_LAYERS (FEDGE_LAYERS in CMake) a build has a layer if FEDGE_WITH_<class> is 1:
 * PLACEHOLDER_1 then inserts an argument before the layer, so that it is the second. */
#if defined(FEDGE_CHOSEN_LAYERS)
#define PLACEHOLDER_1 0,
#define SECOND(first, second, ...) second
#define CHOOSE_SECOND(arguments) SECOND(arguments, NULL, 0)
#define CHOOSE_VALUE(value, layer) CHOOSE_SECOND(PLACEHOLDER_##value layer)
#define CHOOSE(value, layer) CHOOSE_VALUE(value, layer)
#else
#define CHOOSE(value, layer) layer
#endif

static const fedge_layer_ops *const TABLE[FEDGE_LAYER_COUNT] = {
#define LAYER_ENTRY(upper, lower, class)                                                           \
    [FEDGE_LAYER_##upper] = CHOOSE(FEDGE_WITH_##class, &fedge_layer_##lower),
    FEDGE_LAYER_MAP(LAYER_ENTRY)
#undef LAYER_ENTRY
};

static const char NAMES[] =
#define NAME_ENTRY(upper, lower, class) #class "\0"
    FEDGE_LAYER_MAP(NAME_ENTRY)
#undef NAME_ENTRY
    ;

const fedge_layer_ops *fedge_layer_ops_of(fedge_layer_type type)
{
    return (unsigned)type < FEDGE_LAYER_COUNT ? TABLE[type] : NULL;
}

const char *fedge_layer_type_name(fedge_layer_type type)
{
    return (unsigned)type < FEDGE_LAYER_COUNT ? fedge_word_at(NAMES, (unsigned)type) : NULL;
}

float fedge_init_bound(uint64_t fan_in)
{
    return (float)(1.0 / sqrt((double)fan_in));
}

uint32_t fedge_layer_tensors(const fedge_layer_spec *layer,
                             fedge_layer_tensor list[FEDGE_MAX_LAYER_TENSORS])
{
    const fedge_layer_ops *ops = fedge_layer_ops_of(layer->type);
    memset(list, 0, FEDGE_MAX_LAYER_TENSORS * sizeof(*list));
    return !ops || !ops->tensors ? 0 : ops->tensors(layer, list);
}

size_t fedge_layer_tensor_count(const fedge_layer_tensor *tensor)
{
    size_t count = 1;
    for (uint32_t i = 0; i < tensor->rank; i++)
        count *= tensor->shape[i];
    return count;
}

bool fedge_layer_in_int8(const fedge_model_options *options, const fedge_layer_tensor *tensor)
{
    return options->precision == FEDGE_PRECISION_INT8 && tensor->factor &&
           fedge_layer_tensor_count(tensor) / tensor->shape[0] <= FEDGE_INT8_MAX_LENGTH;
}

bool fedge_layer_trains(const fedge_layer_spec *layer, const fedge_layer_tensor *tensor)
{
    return !tensor->buffer && !tensor->frozen && layer->train != FEDGE_TRAIN_NONE &&
           (layer->train != FEDGE_TRAIN_BIAS || strstr(tensor->name, "bias"));
}

void fedge_layer_trained_rows(const fedge_layer_spec *layer, const fedge_layer_tensor *tensor,
                              uint32_t *begin, uint32_t *end)
{
    const bool some = layer->num_train_channels != 0;
    *begin = *end = 0;
    if (fedge_layer_trains(layer, tensor)) {
        *begin = some ? layer->train_channels[0] : 0;
        *end = some ? layer->train_channels[1] : tensor->rank == 0 ? 1 : tensor->shape[0];
    }
}

fedge_status fedge_layer_check_channels(const fedge_layer_spec *layer, fedge_error *err)
{
    if (layer->num_train_channels == 0)
        return FEDGE_OK;
    if (layer->num_train_channels != 2) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "%s has %u numbers: give 2 or none",
                          "train-channels", (unsigned)layer->num_train_channels);
    }
    fedge_layer_tensor list[FEDGE_MAX_LAYER_TENSORS];
    const uint32_t n = fedge_layer_tensors(layer, list);
    const uint32_t begin = layer->train_channels[0], end = layer->train_channels[1];
    const fedge_layer_tensor *first = NULL;
    for (uint32_t i = 0; i < n; i++) {
        if (!fedge_layer_trains(layer, &list[i]))
            continue;
        first = !first ? &list[i] : first;
        if (list[i].rank == 0 || list[i].shape[0] != first->shape[0]) {
            return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                              "train-channels needs trained tensors with the same rows, but \"%s\" "
                              "has %u and \"%s\" %u",
                              first->name, (unsigned)first->shape[0], list[i].name,
                              (unsigned)(list[i].rank == 0 ? 0 : list[i].shape[0]));
        }
    }
    if (!first) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "train-channels [%u, %u] of a layer without trained parameters: leave it "
                          "out",
                          (unsigned)begin, (unsigned)end);
    }
    if (begin >= end || end > first->shape[0]) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "train-channels [%u, %u] is not a range within the %u channels of \"%s\"",
                          (unsigned)begin, (unsigned)end, (unsigned)first->shape[0], first->name);
    }
    return FEDGE_OK;
}

static fedge_status fail_number(const fedge_argument *argument, float value, fedge_error *err)
{
    return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "%s is %g: give %.8g to %.8g", argument->name,
                      (double)value, argument->min, argument->max);
}

/* False for NaN. Limits are rounded to float, as values are. */
static bool is_within(const fedge_argument *argument, float value)
{
    return (value >= (float)argument->min && value <= (float)argument->max) ||
           (argument->zero_is_default && value == 0.0f);
}

static fedge_status check_list(const fedge_argument *argument, const float *values, uint32_t count,
                               fedge_error *err)
{
    if (count != 0 && count != 2) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "%s has %u numbers: give 2 or none",
                          argument->name, (unsigned)count);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (!is_within(argument, values[i]))
            return fail_number(argument, values[i], err);
    }
    return FEDGE_OK;
}

fedge_status fedge_arguments_check(const fedge_argument *arguments, const void *record,
                                   fedge_error *err)
{
    const unsigned char *base = record;
    fedge_status status = FEDGE_OK;
    for (; status == FEDGE_OK && arguments && arguments->name; arguments++) {
        const void *at = base + arguments->offset;
        if (arguments->kind == FEDGE_ARGUMENT_F32) {
            const float value = *(const float *)at;
            status = is_within(arguments, value) ? FEDGE_OK : fail_number(arguments, value, err);
        } else if (arguments->kind == FEDGE_ARGUMENT_F32S) {
            status = check_list(arguments, at,
                                *(const uint32_t *)(const void *)(base + arguments->extra), err);
        } else if (arguments->kind == FEDGE_ARGUMENT_CHOICE &&
                   *(const unsigned *)at >= arguments->num_choices) {
            const unsigned last = arguments->num_choices - 1;
            status = fedge_fail(err, FEDGE_INVALID_ARGUMENT, "%s is %u: give 0 (%s) to %u (%s)",
                                arguments->name, *(const unsigned *)at, arguments->choice_name(0),
                                last, arguments->choice_name(last));
        } else if (arguments->kind == FEDGE_ARGUMENT_U32 &&
                   *(const uint32_t *)at > arguments->max) {
            status = fedge_fail(err, FEDGE_TOO_BIG, "%s is %u: give at most %.0f", arguments->name,
                                (unsigned)*(const uint32_t *)at, arguments->max);
        }
    }
    return status;
}
