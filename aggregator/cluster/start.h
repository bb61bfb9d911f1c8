/* How the ranks of one aggregator begin: what they must have alike, and where each listens. */
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
#define FEDGE_RANKS_PORTS 2u /* between the addresses of two ranks of one host */

/* Release, processor, accumulator, job and registry, for fedge_collective_agree. Errors are of the
 * registry's file. */
FEDGE_MUST_USE fedge_status fedge_ranks_facts(const char *job_text, size_t job_size,
                                              const char *registry_dir, const char *accumulator,
                                              fedge_collective_fact facts[FEDGE_RANKS_NUM_FACTS],
                                              fedge_error *err);

/* The address of a rank: the ports are those of the options, and FEDGE_RANKS_PORTS further for each
 * rank before it on its host; 0 stays 0. */
void fedge_ranks_set_addresses(const fedge_collective *collective, fedge_address *listen,
                               fedge_address *http);
/* The same with the rank's number on its host, for tests. */
void fedge_ranks_offset_port(fedge_address *address, uint32_t local_rank);

/* Warns where Open MPI has bound this process to fewer cores than its machine has. */
void fedge_ranks_check_cores(const fedge_log *log);

/* [path] for rank 0 or alone, and PATH.RANK for the others. FEDGE_TOO_BIG. */
FEDGE_MUST_USE fedge_status fedge_ranks_port_file(const fedge_collective *collective,
                                                  const char *path, char out[FEDGE_MAX_PATH],
                                                  fedge_error *err);

#endif
