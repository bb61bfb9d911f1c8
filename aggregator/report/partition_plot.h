/* partition.svg: who has which labels, and how many examples. */
#ifndef FEDGE_AGGREGATOR_REPORT_PARTITION_PLOT_H
#define FEDGE_AGGREGATOR_REPORT_PARTITION_PLOT_H

#include <stdint.h>

#include "edge/core/status.h"
#include "edge/data/partitions/partition.h"

#define FEDGE_PARTITION_PLOT_MAX_CLIENTS 1000u /* drawn; of more, as many evenly chosen */
#define FEDGE_PARTITION_PLOT_MAX_BANDS 32u     /* colours; of more labels, neighbours share one */

/* Draws a column for each client: above the shares of its labels, stacked (left out where data has
 * no labels), below its number of examples. Up to 60 clients stand in their order with their
 * numbers; more are sorted by their most frequent label, then by its share, and that label stands
 * at the bottom.
 *
 * owner: (data->num_examples), as fedge_partition_assign gives it. [title] stands above. Replaces
 * [svg_path] atomically. FEDGE_NO_MEMORY; what writing a file gives. */
FEDGE_MUST_USE fedge_status fedge_partition_plot(const char *svg_path, const char *title,
                                                 const fedge_partition_data *data,
                                                 const uint32_t *owner, uint32_t num_parts,
                                                 fedge_error *err);

#endif
