#include <stdbool.h>

#include "edge/train/layers/layer.h"

static fedge_status fail_number(const fedge_argument *argument, float value, fedge_error *err)
{
    return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "%s is %g: give %.8g to %.8g", argument->name,
                      (double)value, argument->min, argument->max);
}

/* Also false when it is not a number. Limits are compared as what they are in the record. */
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
