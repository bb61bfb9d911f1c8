#include "edge/train/losses/losses.h"

static const fedge_loss_ops *const TABLE[FEDGE_LOSS_COUNT] = {
#define LOSS_ENTRY(upper, lower, class) [FEDGE_LOSS_##upper] = &fedge_loss_##lower,
    FEDGE_LOSS_MAP(LOSS_ENTRY)
#undef LOSS_ENTRY
};

static const char *const NAMES[FEDGE_LOSS_COUNT] = {
#define NAME_ENTRY(upper, lower, class) [FEDGE_LOSS_##upper] = #class,
    FEDGE_LOSS_MAP(NAME_ENTRY)
#undef NAME_ENTRY
};

const fedge_loss_ops *fedge_loss_ops_of(fedge_loss_type type)
{
    return (unsigned)type < FEDGE_LOSS_COUNT ? TABLE[type] : NULL;
}

const char *fedge_loss_type_name(fedge_loss_type type)
{
    return (unsigned)type < FEDGE_LOSS_COUNT ? NAMES[type] : NULL;
}

fedge_status fedge_loss_check(const fedge_model_spec *spec, fedge_error *err)
{
    const fedge_loss_ops *ops = fedge_loss_ops_of(spec->loss);
    if (!ops)
        return fedge_fail(err, FEDGE_UNSUPPORTED, "unknown loss type %d", (int)spec->loss);
    const fedge_status status = fedge_arguments_check(ops->arguments, spec, err);
    return status == FEDGE_OK ? FEDGE_OK
                              : fedge_error_prefix(err, status, "the loss (%s)", NAMES[spec->loss]);
}

float fedge_loss_target(const fedge_loss_run *run, size_t b, uint32_t output)
{
    if (run->targets)
        return run->targets[b * run->outputs + output];
    if (run->outputs == 1)
        return (float)run->labels[b];
    return (uint32_t)run->labels[b] == output ? 1.0f : 0.0f;
}
