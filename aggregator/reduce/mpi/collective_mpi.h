/* The collective "mpi": ranks that Open MPI's mpirun has started. Its library is loaded when the
 * collective is opened; an error of MPI, a lost rank among them, ends the job. */
#ifndef FEDGE_AGGREGATOR_REDUCE_MPI_COLLECTIVE_MPI_H
#define FEDGE_AGGREGATOR_REDUCE_MPI_COLLECTIVE_MPI_H

#include "aggregator/reduce/collective.h"

extern const fedge_collective_ops fedge_collective_mpi;

#endif
