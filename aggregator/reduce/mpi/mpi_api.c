#include "aggregator/reduce/mpi/mpi_api.h"

#include <assert.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

#define LIBRARY "libmpi.so.40"

/* Compares the type of the header's function with the table's at compile time. Nothing is called,
 * so nothing has to be linked. */
#define IS_SAME(field, function)                                                                   \
    static_assert(sizeof(((fedge_mpi *)0)->field == (function)) > 0, #function)

IS_SAME(init_thread, MPI_Init_thread);
IS_SAME(finalize, MPI_Finalize);
IS_SAME(abort, MPI_Abort);
IS_SAME(comm_rank, MPI_Comm_rank);
IS_SAME(comm_size, MPI_Comm_size);
IS_SAME(comm_split, MPI_Comm_split);
IS_SAME(comm_free, MPI_Comm_free);
IS_SAME(reduce, MPI_Reduce);
IS_SAME(bcast, MPI_Bcast);
IS_SAME(send, MPI_Send);
IS_SAME(recv, MPI_Recv);
IS_SAME(isend, MPI_Isend);
IS_SAME(irecv, MPI_Irecv);
IS_SAME(test, MPI_Test);
IS_SAME(iprobe, MPI_Iprobe);
IS_SAME(get_count, MPI_Get_count);

/* The address of a function or an object; POSIX has dlsym return both alike. */
static bool find(const fedge_mpi *mpi, const char *name, void *address, fedge_error *err)
{
    void *symbol = dlsym(mpi->library, name);
    memcpy(address, &symbol, sizeof(symbol));
    if (!symbol)
        (void)fedge_fail(err, FEDGE_UNSUPPORTED, LIBRARY " has no %s: install Open MPI 4", name);
    return symbol != NULL;
}

fedge_status fedge_mpi_load(fedge_mpi *mpi, fedge_error *err)
{
    *mpi = (fedge_mpi){0};
    /* RTLD_GLOBAL: Open MPI loads plugins that look for its symbols there. */
    mpi->library = dlopen(LIBRARY, RTLD_NOW | RTLD_GLOBAL);
    if (!mpi->library) {
        return fedge_fail(err, FEDGE_NOT_FOUND,
                          "Open MPI is not found on this machine (%.120s): install openmpi-bin",
                          dlerror());
    }
    const bool complete =
        find(mpi, "ompi_mpi_comm_world", &mpi->world, err) &&
        find(mpi, "ompi_mpi_byte", &mpi->byte, err) &&
        find(mpi, "ompi_mpi_int64_t", &mpi->int64, err) &&
        find(mpi, "ompi_mpi_op_sum", &mpi->add, err) &&
        find(mpi, "MPI_Init_thread", &mpi->init_thread, err) &&
        find(mpi, "MPI_Finalize", &mpi->finalize, err) &&
        find(mpi, "MPI_Abort", &mpi->abort, err) &&
        find(mpi, "MPI_Comm_rank", &mpi->comm_rank, err) &&
        find(mpi, "MPI_Comm_size", &mpi->comm_size, err) &&
        find(mpi, "MPI_Comm_split", &mpi->comm_split, err) &&
        find(mpi, "MPI_Comm_free", &mpi->comm_free, err) &&
        find(mpi, "MPI_Reduce", &mpi->reduce, err) && find(mpi, "MPI_Bcast", &mpi->bcast, err) &&
        find(mpi, "MPI_Send", &mpi->send, err) && find(mpi, "MPI_Recv", &mpi->recv, err) &&
        find(mpi, "MPI_Isend", &mpi->isend, err) && find(mpi, "MPI_Irecv", &mpi->irecv, err) &&
        find(mpi, "MPI_Test", &mpi->test, err) && find(mpi, "MPI_Iprobe", &mpi->iprobe, err) &&
        find(mpi, "MPI_Get_count", &mpi->get_count, err);
    return complete ? FEDGE_OK : FEDGE_UNSUPPORTED;
}
