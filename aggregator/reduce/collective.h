/* Collectives let the processes of one MPI job, its ranks, exchange bytes and add up sums.
 *
 * A program started by mpirun is one rank of several, on one machine or many. Any other program is
 * alone; then nothing below waits, sends or loads a library. All ranks make the same calls, in the
 * same order and with the same sizes; fedge_collective_send pairs with fedge_collective_receive.
 * When a rank is lost, MPI ends the whole job and no call returns, so there is nothing to clean up.
 *
 * Messages (fedge_collective_begin_send) are sent without waiting, at any time, and polled for.
 * Messages of one rank arrive in the order in which they were sent; other calls do not see them.
 *
 * One thread at a time makes calls of a collective. Another may use a part of it
 * (fedge_collective_split) at the same time, and any thread may call fedge_collective_abort.
 */
#ifndef FEDGE_AGGREGATOR_REDUCE_COLLECTIVE_H
#define FEDGE_AGGREGATOR_REDUCE_COLLECTIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"

#define FEDGE_COLLECTIVE_HOST 64       /* bytes of a host's name; longer ones are cut */
#define FEDGE_COLLECTIVE_MAX_FACTS 16  /* most facts compared */
#define FEDGE_COLLECTIVE_FACT_TEXT 128 /* bytes of a fact; longer ones are cut */
#define FEDGE_COLLECTIVE_MAX_MESSAGE ((size_t)1 << 30)

typedef struct fedge_collective_ops {
    const char *name; /* "mpi" */

    /* As fedge_collective_split; NULL: unsupported. The part is closed with close. */
    fedge_status (*split)(void *state, uint32_t group, void **part, uint32_t *rank,
                          uint32_t *num_ranks, fedge_error *err);

    /* FEDGE_NOT_FOUND: its library is not there; FEDGE_UNSUPPORTED: it lacks something. */
    fedge_status (*open)(void **state, uint32_t *rank, uint32_t *num_ranks, fedge_error *err);
    void (*close)(void *state);           /* waits for the others to close */
    void (*abort)(void *state, int code); /* ends all ranks; does not return */

    /* values (count) of rank [on] become the sums over all ranks; those of the others stay. */
    void (*sum)(void *state, int64_t *values, size_t count, uint32_t on);
    /* Copies [bytes] of rank [from] to all ranks. */
    void (*broadcast)(void *state, void *bytes, size_t size, uint32_t from);
    void (*send)(void *state, const void *bytes, size_t size, uint32_t to);
    void (*receive)(void *state, void *bytes, size_t size, uint32_t from);

    /* Messages, as the functions below; NULL: unsupported. */
    void *(*begin_send)(void *state, const void *bytes, size_t size, uint32_t to);
    bool (*is_done)(void *state, void *handle);
    bool (*probe)(void *state, uint32_t *from, size_t *size);
    void *(*begin_receive)(void *state, void *bytes, size_t size, uint32_t from);
} fedge_collective_ops;

/* The collective "mpi", in builds with MPI: ranks started by Open MPI's mpirun. Its library is
 * loaded when the collective is opened. An MPI error, such as a lost rank, ends the job. */
extern const fedge_collective_ops fedge_collective_mpi;

/* An open collective; all 0: alone. */
typedef struct fedge_collective {
    const fedge_collective_ops *ops; /* NULL: alone */
    void *state;
    uint32_t rank, num_ranks; /* 0 and 0 when alone */
    char host[FEDGE_COLLECTIVE_HOST];
} fedge_collective;

/* Whether mpirun has started this process, even as the only one. */
bool fedge_collective_started(void);

/* Joins this process's MPI job. [*collective] is alone without one, and on failure.
 * FEDGE_UNSUPPORTED: there is a job, but this program was built without MPI. */
FEDGE_MUST_USE fedge_status fedge_collective_open(fedge_collective *collective, fedge_error *err);
/* Call it when no communication is pending; a collective that is alone is fine. */
void fedge_collective_close(fedge_collective *collective);
/* Ends all ranks, including this one, with an exit code; returns only when alone. For failures
 * after which the other ranks would wait forever. */
void fedge_collective_abort(const fedge_collective *collective, int code);

/* Makes a collective of the ranks that pass the same [group], in their order; all ranks call it.
 * A group of one rank gets an alone *part. All of a group close their part before this collective.
 * FEDGE_UNSUPPORTED, FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_collective_split(const fedge_collective *collective,
                                                   uint32_t group, fedge_collective *part,
                                                   fedge_error *err);

bool fedge_collective_is_alone(const fedge_collective *collective);

/* A rank's shard of [count] coordinates; shards are of about equal size, in the order of ranks. */
typedef struct fedge_collective_shard {
    size_t first, count;
} fedge_collective_shard;
fedge_collective_shard fedge_collective_shard_of(const fedge_collective *collective, size_t count,
                                                 uint32_t rank);
/* Reduce-scatter: values (count) of a rank's shard become the sums over all ranks; the others stay.
 */
void fedge_collective_sum_shards(const fedge_collective *collective, int64_t *values, size_t count);
/* Gathers the values of all shards on rank 0. */
void fedge_collective_gather_shards(const fedge_collective *collective, int64_t *values,
                                    size_t count);

/* The functions of the table; they do nothing when alone. Sums go to rank 0. */
void fedge_collective_sum(const fedge_collective *collective, int64_t *values, size_t count);
void fedge_collective_broadcast(const fedge_collective *collective, void *bytes, size_t size,
                                uint32_t from);
void fedge_collective_send(const fedge_collective *collective, const void *bytes, size_t size,
                           uint32_t to);
void fedge_collective_receive(const fedge_collective *collective, void *bytes, size_t size,
                              uint32_t from);

/* The bytes of all ranks: those of rank r are [bytes + starts[r], bytes + starts[r + 1]). */
typedef struct fedge_collective_gathered {
    uint8_t *bytes;
    size_t *starts; /* (num_ranks + 1) */
} fedge_collective_gathered;

/* All-gather: each rank gets the bytes of all ranks. FEDGE_NO_MEMORY, on all ranks or none; call
 * _fini also after that. */
FEDGE_MUST_USE fedge_status fedge_collective_gather(const fedge_collective *collective,
                                                    const void *bytes, size_t size,
                                                    fedge_collective_gathered *gathered,
                                                    fedge_error *err);
void fedge_collective_gathered_fini(fedge_collective_gathered *gathered); /* all 0 is fine */

/* Begins to send [bytes] (size ≤ FEDGE_COLLECTIVE_MAX_MESSAGE), which must not change until
 * fedge_collective_is_done. NULL: no memory. Do not call it, nor the next three, when alone. */
void *fedge_collective_begin_send(const fedge_collective *collective, const void *bytes,
                                  size_t size, uint32_t to);
/* Whether a message has arrived for fedge_collective_begin_receive, its sender and size. */
bool fedge_collective_probe(const fedge_collective *collective, uint32_t *from, size_t *size);
/* Begins to receive it; [bytes] are complete after fedge_collective_is_done. NULL: no memory. */
void *fedge_collective_begin_receive(const fedge_collective *collective, void *bytes, size_t size,
                                     uint32_t from);
/* Returns true once, when the operation is done, and frees its handle. */
bool fedge_collective_is_done(const fedge_collective *collective, void *handle);

/* A text that must be equal on all ranks. */
typedef struct fedge_collective_fact {
    const char *name;                      /* "accumulator" */
    char text[FEDGE_COLLECTIVE_FACT_TEXT]; /* "": this rank has none to compare */
    const char *advice;                    /* "install the same release everywhere" */
} fedge_collective_fact;

/* Returns one result on all ranks: FEDGE_OK when each passes FEDGE_OK and the facts of rank 0. Else
 * the status of the first rank that does not, and its message after its number and host;
 * FEDGE_MISMATCH names a fact with both texts. [status], [err]: the caller's result so far. */
FEDGE_MUST_USE fedge_status fedge_collective_agree(const fedge_collective *collective,
                                                   fedge_status status,
                                                   const fedge_collective_fact *facts,
                                                   uint32_t num_facts, fedge_error *err);

#endif
