#include "aggregator/reduce/collective.h"

static fedge_status none_open(void **state, fedge_error *err)
{
    (void)err;
    *state = NULL;
    return FEDGE_OK;
}

static uint32_t none_rank(const void *state)
{
    (void)state;
    return 0;
}

static uint32_t none_size(const void *state)
{
    (void)state;
    return 1;
}

/* The vtable's type: others write to [sums] and [totals]. */
/* NOLINTNEXTLINE(readability-non-const-parameter) */
static fedge_status none_allreduce(void *state, int64_t *sums, size_t num_elements,
                                   fedge_device_totals *totals, fedge_error *err)
{
    (void)state;
    (void)sums;
    (void)num_elements;
    (void)totals;
    (void)err;
    return FEDGE_OK;
}

static void none_close(void *state)
{
    (void)state;
}

const fedge_collective_ops fedge_collective_none = {
    .struct_size = sizeof(fedge_collective_ops),
    .name = "none",
    .open = none_open,
    .rank = none_rank,
    .size = none_size,
    .allreduce = none_allreduce,
    .close = none_close,
};
