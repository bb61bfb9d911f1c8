#include "aggregator/reduce/lost_gpus.h"

void fedge_lost_gpus_forget(fedge_lost_gpus *lost, const uint32_t *gpus, uint32_t num_gpus)
{
    uint64_t kept = num_gpus > 0 ? UINT64_MAX : 0;
    for (uint32_t i = 0; i < num_gpus; i++)
        kept &= gpus[i] < 64 ? ~(UINT64_C(1) << gpus[i]) : UINT64_MAX;
    if (lost)
        (void)atomic_fetch_and(&lost->numbers, kept);
}
