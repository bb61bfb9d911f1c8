#define _POSIX_C_SOURCE 200809L /* gethostname */
#include "aggregator/reduce/collective.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef FEDGE_WITH_MPI
#define MPI_KIND &fedge_collective_mpi
#else
#define MPI_KIND NULL
#endif

/* A rank's status and facts. The same bytes in every release. */
typedef struct agreement {
    int32_t status;
    char message[FEDGE_ERROR_MESSAGE_SIZE];
    char host[FEDGE_COLLECTIVE_HOST];
    char facts[FEDGE_COLLECTIVE_MAX_FACTS][FEDGE_COLLECTIVE_FACT_TEXT];
} agreement;

/* Open MPI sets these variables for the processes that it starts. */
#define NUM_RANKS "OMPI_COMM_WORLD_SIZE"

bool fedge_collective_started(void)
{
    return getenv(NUM_RANKS) != NULL;
}

static unsigned long started_ranks(void)
{
    const char *ranks = getenv(NUM_RANKS);
    return ranks ? strtoul(ranks, NULL, 10) : 1;
}

fedge_status fedge_collective_open(fedge_collective *collective, fedge_error *err)
{
    static const fedge_collective_ops *const MPI = MPI_KIND;
    *collective = (fedge_collective){0};
    if (started_ranks() <= 1)
        return FEDGE_OK;
    if (!MPI) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "mpirun has started %lu of this program, which was built without MPI: "
                          "start it alone, or build it where libopenmpi-dev is installed",
                          started_ranks());
    }
    fedge_collective fresh = {.ops = MPI};
    FEDGE_TRY(MPI->open(&fresh.state, &fresh.rank, &fresh.num_ranks, err));
    (void)gethostname(fresh.host, sizeof(fresh.host) - 1);
    *collective = fresh;
    return FEDGE_OK;
}

void fedge_collective_close(fedge_collective *collective)
{
    if (collective->ops)
        collective->ops->close(collective->state);
    *collective = (fedge_collective){0};
}

void fedge_collective_abort(const fedge_collective *collective, int code)
{
    if (collective->ops)
        collective->ops->abort(collective->state, code);
}

fedge_status fedge_collective_split(const fedge_collective *collective, uint32_t group,
                                    fedge_collective *part, fedge_error *err)
{
    fedge_collective fresh = *collective;
    *part = (fedge_collective){0};
    if (!collective->ops->split)
        return fedge_fail(err, FEDGE_UNSUPPORTED, "these ranks form no groups");
    const fedge_status status = collective->ops->split(collective->state, group, &fresh.state,
                                                       &fresh.rank, &fresh.num_ranks, err);
    if (status == FEDGE_OK && fresh.num_ranks == 1)
        fedge_collective_close(&fresh);
    else if (status == FEDGE_OK)
        *part = fresh;
    return status;
}

bool fedge_collective_is_alone(const fedge_collective *collective)
{
    return !collective || !collective->ops;
}

void fedge_collective_sum(const fedge_collective *collective, int64_t *values, size_t count)
{
    if (!fedge_collective_is_alone(collective))
        collective->ops->sum(collective->state, values, count, 0);
}

fedge_collective_shard fedge_collective_shard_of(const fedge_collective *collective, size_t count,
                                                 uint32_t rank)
{
    const uint64_t num = collective->num_ranks;
    const size_t first = (size_t)((uint64_t)count * rank / num);
    return (fedge_collective_shard){first, (size_t)((uint64_t)count * (rank + 1) / num) - first};
}

void fedge_collective_sum_shards(const fedge_collective *collective, int64_t *values, size_t count)
{
    for (uint32_t rank = 0; rank < collective->num_ranks; rank++) {
        const fedge_collective_shard shard = fedge_collective_shard_of(collective, count, rank);
        collective->ops->sum(collective->state, values + shard.first, shard.count, rank);
    }
}

void fedge_collective_gather_shards(const fedge_collective *collective, int64_t *values,
                                    size_t count)
{
    for (uint32_t rank = 1; rank < collective->num_ranks; rank++) {
        const fedge_collective_shard shard = fedge_collective_shard_of(collective, count, rank);
        const size_t size = shard.count * sizeof(*values);
        if (collective->rank == 0)
            collective->ops->receive(collective->state, values + shard.first, size, rank);
        else if (collective->rank == rank)
            collective->ops->send(collective->state, values + shard.first, size, 0);
    }
}

void fedge_collective_broadcast(const fedge_collective *collective, void *bytes, size_t size,
                                uint32_t from)
{
    if (!fedge_collective_is_alone(collective))
        collective->ops->broadcast(collective->state, bytes, size, from);
}

void fedge_collective_send(const fedge_collective *collective, const void *bytes, size_t size,
                           uint32_t to)
{
    if (!fedge_collective_is_alone(collective))
        collective->ops->send(collective->state, bytes, size, to);
}

void fedge_collective_receive(const fedge_collective *collective, void *bytes, size_t size,
                              uint32_t from)
{
    if (!fedge_collective_is_alone(collective))
        collective->ops->receive(collective->state, bytes, size, from);
}

void *fedge_collective_begin_send(const fedge_collective *collective, const void *bytes,
                                  size_t size, uint32_t to)
{
    return collective->ops->begin_send(collective->state, bytes, size, to);
}

bool fedge_collective_is_done(const fedge_collective *collective, void *handle)
{
    return collective->ops->is_done(collective->state, handle);
}

bool fedge_collective_probe(const fedge_collective *collective, uint32_t *from, size_t *size)
{
    return collective->ops->probe(collective->state, from, size);
}

void *fedge_collective_begin_receive(const fedge_collective *collective, void *bytes, size_t size,
                                     uint32_t from)
{
    return collective->ops->begin_receive(collective->state, bytes, size, from);
}

/* ---- the start ------------------------------------------------------------------------------- */

/* [with] becomes a failure when one of its facts differs from rank 0's. */
static void compare(agreement *with, const agreement *ours, const fedge_collective_fact *facts,
                    uint32_t num_facts)
{
    for (uint32_t i = 0; i < num_facts && with->status == FEDGE_OK; i++) {
        if (with->facts[i][0] != '\0' && strcmp(with->facts[i], ours->facts[i]) != 0) {
            fedge_error err;
            with->status =
                fedge_fail(&err, FEDGE_MISMATCH, "%s is %.70s, and on rank 0 %.70s: %s",
                           facts[i].name, with->facts[i], ours->facts[i], facts[i].advice);
            memcpy(with->message, err.message, sizeof(with->message));
        }
    }
}

static void prefix_message(agreement *of, uint32_t rank)
{
    fedge_error err;
    (void)fedge_fail(&err, (fedge_status)of->status, "rank %" PRIu32 " on %.40s: %s", rank,
                     of->host, of->message);
    memcpy(of->message, err.message, sizeof(of->message));
}

/* Rank 0 reads the results of all others; [gathered] becomes the first failure. */
static void judge(const fedge_collective *self, agreement *gathered,
                  const fedge_collective_fact *facts, uint32_t num_facts)
{
    const agreement ours = *gathered;
    for (uint32_t rank = 1; rank < self->num_ranks; rank++) {
        agreement theirs;
        self->ops->receive(self->state, &theirs, sizeof(theirs), rank);
        compare(&theirs, &ours, facts, num_facts);
        if (gathered->status == FEDGE_OK && theirs.status != FEDGE_OK) {
            *gathered = theirs;
            prefix_message(gathered, rank);
        }
    }
}

fedge_status fedge_collective_agree(const fedge_collective *collective, fedge_status status,
                                    const fedge_collective_fact *facts, uint32_t num_facts,
                                    fedge_error *err)
{
    if (fedge_collective_is_alone(collective))
        return status;
    agreement gathered = {.status = (int32_t)status};
    if (status != FEDGE_OK)
        memcpy(gathered.message, err->message, sizeof(gathered.message));
    memcpy(gathered.host, collective->host, sizeof(gathered.host));
    for (uint32_t i = 0; i < num_facts && status == FEDGE_OK; i++)
        memcpy(gathered.facts[i], facts[i].text, sizeof(gathered.facts[i]));
    if (collective->rank == 0)
        judge(collective, &gathered, facts, num_facts);
    else
        collective->ops->send(collective->state, &gathered, sizeof(gathered), 0);
    collective->ops->broadcast(collective->state, &gathered, sizeof(gathered), 0);
    return gathered.status == FEDGE_OK
               ? FEDGE_OK
               : fedge_fail(err, (fedge_status)gathered.status, "%s", gathered.message);
}

/* ---- what all say ---------------------------------------------------------------------------- */

fedge_status fedge_collective_gather(const fedge_collective *collective, const void *bytes,
                                     size_t size, fedge_collective_gathered *gathered,
                                     fedge_error *err)
{
    size_t whole = 0;
    *gathered = (fedge_collective_gathered){
        .starts = calloc((size_t)collective->num_ranks + 1, sizeof(*gathered->starts))};
    for (uint32_t rank = 0; rank < collective->num_ranks; rank++) {
        size_t theirs = size;
        fedge_collective_broadcast(collective, &theirs, sizeof(theirs), rank);
        whole += theirs;
        if (gathered->starts)
            gathered->starts[rank + 1] = whole;
    }
    gathered->bytes = malloc(whole + 1);
    fedge_status status =
        gathered->starts && gathered->bytes
            ? FEDGE_OK
            : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %zu bytes that ranks say", whole);
    status = fedge_collective_agree(collective, status, NULL, 0, err);
    assert(status != FEDGE_OK ||
           (gathered->starts && gathered->bytes)); /* otherwise this rank would not have agreed */
    for (uint32_t rank = 0; status == FEDGE_OK && rank < collective->num_ranks; rank++) {
        uint8_t *at = gathered->bytes + gathered->starts[rank];
        if (rank == collective->rank && size > 0)
            memcpy(at, bytes, size);
        fedge_collective_broadcast(collective, at,
                                   gathered->starts[rank + 1] - gathered->starts[rank], rank);
    }
    return status;
}

void fedge_collective_gathered_fini(fedge_collective_gathered *gathered)
{
    free(gathered->bytes);
    free(gathered->starts);
    *gathered = (fedge_collective_gathered){0};
}
