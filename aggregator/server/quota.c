#include "aggregator/server/quota.h"

bool fedge_quota_take(fedge_quota *quota, uint32_t burst, uint32_t per_second, uint64_t now_ms)
{
    uint64_t back = (now_ms - quota->counted_ms) * per_second / 1000;
    if (back >= quota->used) {
        quota->used = 0;
        quota->counted_ms = now_ms;
    } else {
        quota->used -= (uint32_t)back;
        quota->counted_ms += back * 1000 / per_second;
    }
    if (quota->used >= burst) {
        return false;
    }
    quota->used++;
    return true;
}
