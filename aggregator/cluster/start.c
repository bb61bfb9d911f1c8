#define _GNU_SOURCE /* sysconf of the cores that are there */

#include "aggregator/cluster/start.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aggregator/exchange/exchange.h"
#include "aggregator/run/engine.h"
#include "edge/core/os.h"
#include "edge/core/version.h"
#include "secure/crypto/sha256.h"

#define MAX_REGISTRY ((size_t)1 << 30) /* most bytes of the registry's file */

static void take_hash(fedge_collective_fact *fact, const void *bytes, size_t size)
{
    char hash[FEDGE_HASH_TEXT];
    fedge_sha256_text(bytes, size, hash);
    snprintf(fact->text, sizeof(fact->text), "%.16s", hash);
}

fedge_status fedge_ranks_facts(const char *job_text, size_t job_size, const char *registry_dir,
                               const char *accumulator,
                               fedge_collective_fact facts[FEDGE_RANKS_NUM_FACTS], fedge_error *err)
{
    char path[FEDGE_MAX_PATH];
    uint8_t *registry = NULL;
    size_t size = 0;
    const uint16_t order = 1;
    memset(facts, 0, FEDGE_RANKS_NUM_FACTS * sizeof(*facts));
    snprintf(path, sizeof(path), "%s/registry.json", registry_dir);
    FEDGE_TRY(fedge_os_read_file(path, MAX_REGISTRY, &registry, &size, err));
    facts[0] = (fedge_collective_fact){.name = "the release",
                                       .advice = "install the same release on all machines"};
    snprintf(facts[0].text, sizeof(facts[0].text), "%s", fedge_version());
    facts[1] = (fedge_collective_fact){
        .name = "the layout of messages",
        .advice = "use machines with one kind of processor, and one build of the program"};
    snprintf(facts[1].text, sizeof(facts[1].text), "%zu-%zu-%zu-%zu-%u", sizeof(void *),
             sizeof(fedge_request), sizeof(fedge_reply),
             sizeof(fedge_run_status) + sizeof(fedge_order) + sizeof(fedge_report),
             *(const uint8_t *)&order);
    facts[2] =
        (fedge_collective_fact){.name = "the job", .advice = "give all machines the same job file"};
    take_hash(&facts[2], job_text, job_size);
    facts[3] = (fedge_collective_fact){.name = "the registry",
                                       .advice = "give all machines the same registry"};
    take_hash(&facts[3], registry, size);
    facts[4] = (fedge_collective_fact){.name = "the accumulator",
                                       .advice = "give all ranks the same --accumulator"};
    snprintf(facts[4].text, sizeof(facts[4].text), "%s", accumulator);
    free(registry);
    return FEDGE_OK;
}

void fedge_ranks_offset_port(fedge_address *address, uint32_t local_rank)
{
    if (address->port != 0)
        address->port = (uint16_t)(address->port + FEDGE_RANKS_PORTS * local_rank);
}

void fedge_ranks_set_addresses(const fedge_collective *collective, fedge_address *listen,
                               fedge_address *http)
{
    const char *local = getenv("OMPI_COMM_WORLD_LOCAL_RANK");
    const uint32_t local_rank =
        local ? (uint32_t)strtoul(local, NULL, 10) : collective->rank; /* without it, one host */
    fedge_ranks_offset_port(listen, local_rank);
    fedge_ranks_offset_port(http, local_rank);
}

void fedge_ranks_check_cores(const fedge_log *log)
{
    const long has = sysconf(_SC_NPROCESSORS_ONLN);
    /* Open MPI sets this variable where it has bound the process. A container may have few cores
     * without it. */
    if (!getenv("OMPI_MCA_orte_bound_at_launch") || (long)fedge_os_num_cpus() >= has)
        return;
    FEDGE_LOG(log, FEDGE_LOG_WARN, "bound-to-few-cores",
              fedge_log_int("cores", fedge_os_num_cpus()), fedge_log_int("of", has),
              fedge_log_str("advice", "mpirun --bind-to none"));
}

fedge_status fedge_ranks_port_file(const fedge_collective *collective, const char *path,
                                   char out[FEDGE_MAX_PATH], fedge_error *err)
{
    const int length = collective->rank == 0 ? snprintf(out, FEDGE_MAX_PATH, "%s", path)
                                             : snprintf(out, FEDGE_MAX_PATH, "%s.%u", path,
                                                        (unsigned)collective->rank);
    return length > 0 && length < FEDGE_MAX_PATH
               ? FEDGE_OK
               : fedge_fail(err, FEDGE_TOO_BIG, "the path %.60s… is too long", path);
}
