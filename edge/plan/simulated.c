#include "edge/plan/simulated.h"

#include <stdlib.h>

#include "edge/core/os.h"
#include "edge/plan/client_hooks.h"

#define LINE 16 /* floats of a cache line */

/* Reserves [count] floats behind the others. */
static size_t place(fedge_simulated_layout *layout, size_t count)
{
    const size_t at = layout->bytes / sizeof(float);
    layout->bytes += (count + LINE - 1) / LINE * LINE * sizeof(float);
    return at;
}

fedge_simulated_layout fedge_simulated_layout_of(const fedge_plan *plan)
{
    fedge_simulated_layout layout = {
        .values = plan->schema.num_elements,
        .correction = plan->hooks && plan->hooks->corrects ? plan->num_parameters : 0,
        .personal = fedge_plan_is_personal(plan) ? fedge_plan_num_client_state(plan) : 0,
        .others = fedge_plan_is_clustered(plan)
                      ? fedge_plan_num_broadcast(plan) * plan->sent.sections[0].schema.num_elements
                      : 0};
    (void)place(&layout, layout.values);
    layout.correction_at = place(&layout, layout.correction);
    layout.personal_at = place(&layout, layout.personal);
    layout.others_at = place(&layout, layout.others);
    return layout;
}

fedge_status fedge_simulated_send(int channel, const fedge_simulated_message *message,
                                  const void *data, int share, fedge_error *err)
{
    FEDGE_TRY(fedge_os_channel_send(channel, message, sizeof(*message), share, err));
    return fedge_os_channel_send(channel, data, (size_t)message->size, -1, err);
}

fedge_status fedge_simulated_receive(int channel, fedge_simulated_message *message, uint64_t limit,
                                     void **data, int *share, fedge_error *err)
{
    *data = NULL;
    FEDGE_TRY(fedge_os_channel_receive(channel, message, sizeof(*message), share, err));
    if (message->size == 0)
        return FEDGE_OK;
    if (message->size > limit) {
        return fedge_fail(err, FEDGE_TOO_BIG, "a message of %llu bytes, and the limit is %llu",
                          (unsigned long long)message->size, (unsigned long long)limit);
    }
    uint8_t *fresh = malloc((size_t)message->size + 1);
    if (!fresh) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a message of %llu bytes",
                          (unsigned long long)message->size);
    }
    const fedge_status status =
        fedge_os_channel_receive(channel, fresh, (size_t)message->size, NULL, err);
    if (status != FEDGE_OK) {
        free(fresh);
        return status;
    }
    fresh[message->size] = 0;
    *data = fresh;
    return FEDGE_OK;
}
