#include "aggregator/reduce/device.h"

#include <assert.h>
#include <string.h>

fedge_status fedge_device_open(const fedge_device_ops *ops, uint32_t ordinal, size_t num_elements,
                               fedge_device *device, fedge_error *err)
{
    *device = (fedge_device){.ops = ops};
    return ops->open(ordinal, num_elements, &device->state, err);
}

fedge_status fedge_device_accumulate(fedge_device *device, const int32_t *v, uint32_t weight,
                                     fedge_error *err)
{
    return device->ops->accumulate(device->state, v, weight, err);
}

fedge_status fedge_device_begin(fedge_device *device, uint32_t weight, fedge_error *err)
{
    return device->ops->begin(device->state, weight, err);
}

void fedge_device_add(fedge_device *device, const int32_t *v, size_t first, size_t count,
                      uint32_t weight)
{
    device->ops->add(device->state, v, first, count, weight);
}

fedge_status fedge_device_reset(fedge_device *device, fedge_error *err)
{
    return device->ops->reset(device->state, err);
}

void fedge_device_close(fedge_device *device)
{
    if (device->ops != NULL)
        device->ops->close(device->state);
    *device = (fedge_device){0};
}

fedge_status fedge_devices_sum(fedge_device *devices, uint32_t num_devices, int64_t *sums,
                               size_t num_elements, fedge_device_totals *totals, fedge_error *err)
{
    assert(num_devices >= 1);
    memset(sums, 0, num_elements * sizeof sums[0]);
    *totals = (fedge_device_totals){0};
    for (uint32_t i = 0; i < num_devices; i++) {
        fedge_status status = devices[i].ops->add_to(devices[i].state, sums, totals, err);
        if (status != FEDGE_OK)
            return status;
    }
    return FEDGE_OK;
}
