#include "secure/identity/clock.h"

#include "edge/core/os.h"
#include "secure/identity/certificate.h"

void fedge_clock_set_min(fedge_clock *clock, uint64_t unix_ms)
{
    atomic_store(&clock->min_ms, unix_ms);
}

uint64_t fedge_clock_now_ms(const fedge_clock *clock)
{
    const uint64_t system_ms = fedge_os_unix_ms();
    const uint64_t built_ms = FEDGE_BUILD_DAY * FEDGE_DAY_MS;
    const uint64_t set_ms = atomic_load(&clock->min_ms);
    const uint64_t now_ms = system_ms > built_ms ? system_ms : built_ms;
    return now_ms > set_ms ? now_ms : set_ms;
}
