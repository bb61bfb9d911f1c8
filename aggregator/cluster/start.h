/* How the ranks of one aggregator start: what must be equal on all, and where each listens. */
#ifndef FEDGE_AGGREGATOR_CLUSTER_START_H
#define FEDGE_AGGREGATOR_CLUSTER_START_H

#include <stddef.h>
#include <stdint.h>

#include "aggregator/net/listener.h"
#include "aggregator/reduce/collective.h"
#include "edge/core/log.h"
#include "edge/core/os.h"
#include "edge/core/status.h"
#include "edge/plan/plan.h"

#define FEDGE_RANKS_NUM_FACTS 5
#define FEDGE_RANKS_PORTS 2u /* distance between the ports of a host's neighbouring ranks */

/* Facts about release, processor, job, registry and accumulator, for fedge_collective_agree. Errors
 * are those of reading the registry. */
FEDGE_MUST_USE fedge_status fedge_ranks_facts(const char *job_text, size_t job_size,
                                              const char *registry_dir, const char *accumulator,
                                              fedge_collective_fact facts[FEDGE_RANKS_NUM_FACTS],
                                              fedge_error *err);

/* Sets the addresses of this rank: the ports of the options, plus FEDGE_RANKS_PORTS for each rank
 * before it on its host. Port 0 stays 0. */
void fedge_ranks_set_addresses(const fedge_collective *collective, fedge_address *listen,
                               fedge_address *http);
/* Does so for one address and the rank's number on its host. */
void fedge_ranks_offset_port(fedge_address *address, uint32_t local_rank);

/* Warns where Open MPI has bound this process to fewer cores than its machine has. */
void fedge_ranks_check_cores(const fedge_log *log);

/* [path] for rank 0 or alone, and PATH.RANK for the others. FEDGE_TOO_BIG. */
FEDGE_MUST_USE fedge_status fedge_ranks_port_file(const fedge_collective *collective,
                                                  const char *path, char out[FEDGE_MAX_PATH],
                                                  fedge_error *err);

#endif
