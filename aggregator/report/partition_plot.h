/* partition.svg: the labels and the number of examples of each client. */
#ifndef FEDGE_AGGREGATOR_REPORT_PARTITION_PLOT_H
#define FEDGE_AGGREGATOR_REPORT_PARTITION_PLOT_H

#include <stdint.h>

#include "edge/core/status.h"
#include "edge/data/partitions/partition.h"

#define FEDGE_PARTITION_PLOT_MAX_CLIENTS 1000u /* most clients drawn; others are skipped evenly */
#define FEDGE_PARTITION_PLOT_MAX_BANDS 32u     /* most colours; beyond, neighbours share one */

/* Draws a column per client: above, the fractions of its labels, stacked (absent if the data has no
 * labels); below, its number of examples. Up to 60 clients are drawn in their order with their
 * numbers; more are sorted by their most frequent label, then by its fraction, with that label at
 * the bottom.
 *
 * owner: (data->num_examples), from fedge_partition_assign. [title] is drawn above. Replaces
 * [svg_path] atomically. FEDGE_NO_MEMORY; errors of writing a file. */
FEDGE_MUST_USE fedge_status fedge_partition_plot(const char *svg_path, const char *title,
                                                 const fedge_partition_data *data,
                                                 const uint32_t *owner, uint32_t num_parts,
                                                 fedge_error *err);

#endif
