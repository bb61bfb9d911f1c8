#include "edge/train/optimizers/optimizers.h"

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

#define AT(member) offsetof(fedge_optimizer, member)

/* Arguments of every type. */
static const fedge_argument COMMON[] = {
    FEDGE_F32_ARGUMENT("learning_rate", AT(learning_rate), 0, FEDGE_MAX_LEARNING_RATE, 0),
    FEDGE_F32_ARGUMENT("clip_norm", AT(clip_norm), 0, FEDGE_MAX_CLIP_NORM, 0),
    FEDGE_F32_ARGUMENT("proximal_mu", AT(proximal_mu), 0, FEDGE_MAX_PROXIMAL_MU, 0),
    FEDGE_NO_ARGUMENT,
};

static fedge_status check_arguments(const fedge_optimizer_ops *ops,
                                    const fedge_optimizer *optimizer, fedge_error *err)
{
    FEDGE_TRY(fedge_arguments_check(COMMON, optimizer, err));
    return fedge_arguments_check(ops->arguments, optimizer, err);
}

fedge_status fedge_optimizer_check(const fedge_optimizer *optimizer, fedge_error *err)
{
    const fedge_optimizer_ops *ops = fedge_optimizer_ops_of(optimizer->type);
    if (!ops) {
        return fedge_fail(err, FEDGE_UNSUPPORTED, "unknown optimizer type %d",
                          (int)optimizer->type);
    }
    const fedge_status status = check_arguments(ops, optimizer, err);
    return status == FEDGE_OK
               ? FEDGE_OK
               : fedge_error_prefix(err, status, "the optimizer (%s)", NAMES[optimizer->type]);
}

uint32_t fedge_optimizer_states(const fedge_model_options *options)
{
    const fedge_optimizer_ops *ops = fedge_optimizer_ops_of(options->optimizer);
    if (!options->training || !ops)
        return 0;
    return (uint32_t)ops->num_states +
           (FEDGE_HAS_CENTERED(options->optimizer) && options->centered) +
           (FEDGE_HAS_MOMENTUM(options->optimizer) && options->momentum != 0.0f);
}
