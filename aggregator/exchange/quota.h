/* How often something may happen: a burst at once, and a number a second over time. Plain data, no
 * clock. For what others cause, e.g. lines of the log. */
#ifndef FEDGE_AGGREGATOR_EXCHANGE_QUOTA_H
#define FEDGE_AGGREGATOR_EXCHANGE_QUOTA_H

#include <stdbool.h>
#include <stdint.h>

/* All zero: nothing has happened yet. */
typedef struct fedge_quota {
    uint64_t counted_ms; /* until when [used] has gone down */
    uint32_t used;       /* of the burst */
} fedge_quota;

/* Takes one, if there is one: at most [burst] at once, and [per_second] (from 1) come back each
 * second. [now_ms] never goes back. */
bool fedge_quota_take(fedge_quota *quota, uint32_t burst, uint32_t per_second, uint64_t now_ms);

#endif
