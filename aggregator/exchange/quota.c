#include "aggregator/exchange/quota.h"

bool fedge_quota_take(fedge_quota *quota, uint32_t burst, uint32_t per_second, uint64_t now_ms)
{
    /* Of two threads the later may have read the clock first. */
    const uint64_t passed_ms = now_ms > quota->counted_ms ? now_ms - quota->counted_ms : 0;
    const uint64_t back = passed_ms * per_second / 1000;
    if (back >= quota->used) {
        quota->used = 0;
        quota->counted_ms += passed_ms;
    } else {
        quota->used -= (uint32_t)back;
        /* Only the time of whole units, so that the rest is not lost to who asks often. */
        quota->counted_ms += back * 1000 / per_second;
    }
    if (quota->used >= burst)
        return false;
    quota->used++;
    return true;
}
