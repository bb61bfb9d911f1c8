#include "aggregator/threads/spin_backoff.h"

#define LEAST_NS 1000 /* what is less is none: the clock takes a good part of it */

void fedge_spin_backoff_init(fedge_spin_backoff *backoff, uint64_t most_ns)
{
    *backoff = (fedge_spin_backoff){.most_ns = most_ns, .ns = most_ns};
}

uint64_t fedge_spin_backoff_begin(const fedge_spin_backoff *backoff)
{
    const bool tries = backoff->num_vain % FEDGE_SPIN_BACKOFF_TRIAL == FEDGE_SPIN_BACKOFF_TRIAL - 1;
    return tries ? backoff->most_ns : backoff->ns;
}

void fedge_spin_backoff_end(fedge_spin_backoff *backoff, bool rewarded)
{
    if (rewarded) {
        fedge_spin_backoff_init(backoff, backoff->most_ns);
        return;
    }
    backoff->num_vain++;
    backoff->ns = backoff->ns / 2 < LEAST_NS ? 0 : backoff->ns / 2;
}
