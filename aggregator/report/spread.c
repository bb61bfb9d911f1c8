#include "aggregator/report/spread.h"

#include <math.h>

void fedge_spread_add(fedge_spread *spread, double value)
{
    if (!isfinite(value))
        return;
    const double off = value - spread->mean;
    spread->count++;
    spread->mean += off / spread->count;
    spread->squares += off * (value - spread->mean);
}

double fedge_spread_mean(const fedge_spread *spread)
{
    return spread->count > 0 ? spread->mean : NAN;
}

double fedge_spread_deviation(const fedge_spread *spread)
{
    return spread->count > 1 ? sqrt(spread->squares / (spread->count - 1)) : NAN;
}
