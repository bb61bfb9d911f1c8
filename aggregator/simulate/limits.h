/* What all rooms of the simulator keep to. */
#ifndef FEDGE_AGGREGATOR_SIMULATE_LIMITS_H
#define FEDGE_AGGREGATOR_SIMULATE_LIMITS_H

#define FEDGE_SIMULATE_MAX_CLIENTS 16777216u

#endif
