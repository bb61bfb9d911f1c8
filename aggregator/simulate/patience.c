#include "aggregator/simulate/patience.h"

#define LEAST_NS 1000 /* what is less is none: the clock takes a good part of it */

void fedge_patience_init(fedge_patience *patience, uint64_t most_ns)
{
    *patience = (fedge_patience){.most_ns = most_ns, .ns = most_ns};
}

uint64_t fedge_patience_begin(const fedge_patience *patience)
{
    const bool tries = patience->num_vain % FEDGE_PATIENCE_TRIAL == FEDGE_PATIENCE_TRIAL - 1;
    return tries ? patience->most_ns : patience->ns;
}

void fedge_patience_end(fedge_patience *patience, bool rewarded)
{
    if (rewarded) {
        fedge_patience_init(patience, patience->most_ns);
        return;
    }
    patience->num_vain++;
    patience->ns = patience->ns / 2 < LEAST_NS ? 0 : patience->ns / 2;
}
