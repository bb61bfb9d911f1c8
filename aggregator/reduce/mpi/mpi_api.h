/* The part of Open MPI that fedge uses, loaded when it is needed.
 *
 * Programs are not linked with MPI, so that they run where it is not installed. Open MPI's handles
 * (MPI_COMM_WORLD, MPI_SUM and the types) are addresses of objects in its library, and are looked
 * up as its functions are. Types are those of <mpi.h>, and the compiler compares the functions'
 * with it; Open MPI keeps the ABI of libmpi.so.40 from 2.0 to 5.0.
 */
#ifndef FEDGE_AGGREGATOR_REDUCE_MPI_MPI_API_H
#define FEDGE_AGGREGATOR_REDUCE_MPI_MPI_API_H

#include <mpi.h>
#include <stdbool.h>

#include "edge/core/status.h"

/* Functions have MPI's names without "MPI_". */
typedef struct fedge_mpi {
    void *library;
    MPI_Comm world; /* MPI_COMM_WORLD, or a group of it if [is_part] */
    bool is_part;
    MPI_Datatype byte, int64;
    MPI_Op add;
    int (*init_thread)(int *argc, char ***argv, int required, int *provided);
    int (*finalize)(void);
    int (*abort)(MPI_Comm comm, int code);
    int (*comm_rank)(MPI_Comm comm, int *rank);
    int (*comm_size)(MPI_Comm comm, int *size);
    int (*comm_split)(MPI_Comm comm, int color, int key, MPI_Comm *part);
    int (*comm_free)(MPI_Comm *comm);
    int (*reduce)(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op, int root,
                  MPI_Comm comm);
    int (*bcast)(void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm);
    int (*send)(const void *buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm);
    int (*recv)(void *buffer, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
                MPI_Status *status);
    int (*isend)(const void *buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
                 MPI_Request *request);
    int (*irecv)(void *buffer, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
                 MPI_Request *request);
    int (*test)(MPI_Request *request, int *done, MPI_Status *status);
    int (*iprobe)(int from, int tag, MPI_Comm comm, int *found, MPI_Status *status);
    int (*get_count)(const MPI_Status *status, MPI_Datatype type, int *count);
} fedge_mpi;

/* Loads libmpi.so.40, which stays loaded. FEDGE_NOT_FOUND: it is missing. FEDGE_UNSUPPORTED: it
 * lacks a function. */
FEDGE_MUST_USE fedge_status fedge_mpi_load(fedge_mpi *mpi, fedge_error *err);

#endif
