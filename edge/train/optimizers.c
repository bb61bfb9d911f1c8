#include "edge/train/optimizers.h"

static const fedge_optimizer_ops *const TABLE[FEDGE_OPTIMIZER_COUNT] = {
#define OPTIMIZER_ENTRY(upper, lower, class) [FEDGE_OPTIMIZER_##upper] = &fedge_optimizer_##lower,
    FEDGE_OPTIMIZER_MAP(OPTIMIZER_ENTRY)
#undef OPTIMIZER_ENTRY
};

static const char *const NAMES[FEDGE_OPTIMIZER_COUNT] = {
#define NAME_ENTRY(upper, lower, class) [FEDGE_OPTIMIZER_##upper] = #class,
    FEDGE_OPTIMIZER_MAP(NAME_ENTRY)
#undef NAME_ENTRY
};

const fedge_optimizer_ops *fedge_optimizer_ops_of(fedge_optimizer_type type)
{
    return (unsigned)type < FEDGE_OPTIMIZER_COUNT ? TABLE[type] : NULL;
}

const char *fedge_optimizer_type_name(fedge_optimizer_type type)
{
    return (unsigned)type < FEDGE_OPTIMIZER_COUNT ? NAMES[type] : NULL;
}

uint32_t fedge_optimizer_states(const fedge_model_options *options)
{
    const fedge_optimizer_ops *ops = fedge_optimizer_ops_of(options->optimizer);
    if (!options->training || ops == NULL) {
        return 0;
    }
    return options->optimizer == FEDGE_OPTIMIZER_SGD ? options->momentum != 0.0f : ops->num_states;
}
