/* Collectives: how the processes of one job, its ranks, exchange bytes and add sums.
 *
 * A program that mpirun has started is one rank of several, on one machine or many; any other is
 * alone, and then nothing below waits, sends or loads a library. Every call is made by all ranks,
 * in the same order and with the same sizes; fedge_collective_send goes with
 * fedge_collective_receive. There is nothing to clean up after a rank that is lost: MPI ends the
 * whole job, and no call returns.
 *
 * A message (fedge_collective_begin_send) is for what a rank says when it has something to say: it
 * is sent without waiting, and looked for. Messages of one rank come in the order in which they
 * were sent; other calls do not see them.
 *
 * One thread of a process at a time makes calls of a collective; another may make calls of a part
 * of it (fedge_collective_split) meanwhile, and any may call fedge_collective_abort.
 */
#ifndef FEDGE_AGGREGATOR_REDUCE_COLLECTIVE_H
#define FEDGE_AGGREGATOR_REDUCE_COLLECTIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"

#define FEDGE_COLLECTIVE_HOST 64       /* bytes of a host's name, cut off */
#define FEDGE_COLLECTIVE_MAX_FACTS 16  /* that are compared */
#define FEDGE_COLLECTIVE_FACT_TEXT 128 /* bytes of one, cut off */
#define FEDGE_COLLECTIVE_MAX_MESSAGE ((size_t)1 << 30)

typedef struct fedge_collective_ops {
    const char *name; /* "mpi" */

    /* As fedge_collective_split; NULL: it cannot be. What it opens is closed as this one is. */
    fedge_status (*split)(void *state, uint32_t group, void **part, uint32_t *rank,
                          uint32_t *num_ranks, fedge_error *err);

    /* FEDGE_NOT_FOUND: its library is not there; FEDGE_UNSUPPORTED: it lacks something. */
    fedge_status (*open)(void **state, uint32_t *rank, uint32_t *num_ranks, fedge_error *err);
    void (*close)(void *state);           /* waits for the others to close */
    void (*abort)(void *state, int code); /* ends all ranks; does not return */

    /* values (count) of rank [on] become the sums over all ranks; those of the others stay. */
    void (*sum)(void *state, int64_t *values, size_t count, uint32_t on);
    /* Everyone's [bytes] become those of [from]. */
    void (*broadcast)(void *state, void *bytes, size_t size, uint32_t from);
    void (*send)(void *state, const void *bytes, size_t size, uint32_t to);
    void (*receive)(void *state, void *bytes, size_t size, uint32_t from);

    /* Messages, as the functions below; NULL: there is none of this kind. */
    void *(*begin_send)(void *state, const void *bytes, size_t size, uint32_t to);
    bool (*is_done)(void *state, void *handle);
    bool (*probe)(void *state, uint32_t *from, size_t *size);
    void *(*begin_receive)(void *state, void *bytes, size_t size, uint32_t from);
} fedge_collective_ops;

/* The collective "mpi", in builds with MPI: ranks that Open MPI's mpirun has started. Its library
 * is loaded when the collective is opened; an error of MPI, a lost rank among them, ends the job.
 */
extern const fedge_collective_ops fedge_collective_mpi;

/* One that is open; all 0: alone. */
typedef struct fedge_collective {
    const fedge_collective_ops *ops; /* NULL: alone */
    void *state;
    uint32_t rank, num_ranks; /* 0 and 0 when alone */
    char host[FEDGE_COLLECTIVE_HOST];
} fedge_collective;

/* Whether mpirun has started this process, be it the only one. */
bool fedge_collective_started(void);

/* Joins the job that this process was started for. [*collective] is alone without one, and on
 * failure. FEDGE_UNSUPPORTED: there is one, and this program was built without MPI. */
FEDGE_MUST_USE fedge_status fedge_collective_open(fedge_collective *collective, fedge_error *err);
/* When all that was to be said has been said; one that is alone is fine. */
void fedge_collective_close(fedge_collective *collective);
/* Ends all ranks, this one too, with an exit code; returns only when alone. For a failure after
 * which the other ranks would wait for ever. */
void fedge_collective_abort(const fedge_collective *collective, int code);

/* Ranks that name the same [group] form one, in their order; all call this. Of one rank, *part is
 * alone. To be closed, by all of the group, before this one. FEDGE_UNSUPPORTED, FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_collective_split(const fedge_collective *collective,
                                                   uint32_t group, fedge_collective *part,
                                                   fedge_error *err);

bool fedge_collective_is_alone(const fedge_collective *collective);

/* A rank's share of [count] coordinates: about as many for each, in the order of ranks. */
typedef struct fedge_collective_shard {
    size_t first, count;
} fedge_collective_shard;
fedge_collective_shard fedge_collective_shard_of(const fedge_collective *collective, size_t count,
                                                 uint32_t rank);
/* values (count) of all ranks are added up, and each gets the sums of its shard in their place; the
 * rest stay. */
void fedge_collective_sum_shards(const fedge_collective *collective, int64_t *values, size_t count);
/* Rank 0 gets the values of all others' shards. */
void fedge_collective_gather_shards(const fedge_collective *collective, int64_t *values,
                                    size_t count);

/* The functions of the table; nothing when alone. Sums are rank 0's. */
void fedge_collective_sum(const fedge_collective *collective, int64_t *values, size_t count);
void fedge_collective_broadcast(const fedge_collective *collective, void *bytes, size_t size,
                                uint32_t from);
void fedge_collective_send(const fedge_collective *collective, const void *bytes, size_t size,
                           uint32_t to);
void fedge_collective_receive(const fedge_collective *collective, void *bytes, size_t size,
                              uint32_t from);

/* What all ranks have said: rank r [bytes + starts[r], bytes + starts[r + 1]). */
typedef struct fedge_collective_said {
    uint8_t *bytes;
    size_t *starts; /* (num_ranks + 1) */
} fedge_collective_said;

/* Everyone gets what everyone says. On all ranks alike: FEDGE_NO_MEMORY. _fini also after that. */
FEDGE_MUST_USE fedge_status fedge_collective_gather(const fedge_collective *collective,
                                                    const void *bytes, size_t size,
                                                    fedge_collective_said *said, fedge_error *err);
void fedge_collective_said_fini(fedge_collective_said *said); /* one that is all 0 is fine */

/* Begins to send [bytes] (size ≤ FEDGE_COLLECTIVE_MAX_MESSAGE); they stay as they are until
 * fedge_collective_is_done. NULL: no memory. Not when alone, as all that follows. */
void *fedge_collective_begin_send(const fedge_collective *collective, const void *bytes,
                                  size_t size, uint32_t to);
/* Whether a message has come, from whom and of what size: the one that
 * fedge_collective_begin_receive reads. */
bool fedge_collective_probe(const fedge_collective *collective, uint32_t *from, size_t *size);
/* Begins to read it; [bytes] are whole with fedge_collective_is_done. NULL: no memory. */
void *fedge_collective_begin_receive(const fedge_collective *collective, void *bytes, size_t size,
                                     uint32_t from);
/* True once, when what was begun is done; its handle is gone then. */
bool fedge_collective_is_done(const fedge_collective *collective, void *handle);

/* What must be the same on all ranks. */
typedef struct fedge_collective_fact {
    const char *name;                      /* "accumulator" */
    char text[FEDGE_COLLECTIVE_FACT_TEXT]; /* "": this rank has none to compare */
    const char *advice;                    /* "install the same release everywhere" */
} fedge_collective_fact;

/* The verdict of all ranks, the same on each: FEDGE_OK when each comes with FEDGE_OK and with the
 * facts that rank 0 has. Else the status of the first rank that does not, and its message with its
 * number and host before it: FEDGE_MISMATCH for a fact, which is named with both texts. [status],
 * [err]: how the caller has fared until here. */
FEDGE_MUST_USE fedge_status fedge_collective_agree(const fedge_collective *collective,
                                                   fedge_status status,
                                                   const fedge_collective_fact *facts,
                                                   uint32_t num_facts, fedge_error *err);

#endif
