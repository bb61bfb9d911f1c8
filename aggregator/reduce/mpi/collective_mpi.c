#include "aggregator/reduce/collective.h"

#include <stdlib.h>

#include "aggregator/reduce/mpi/mpi_api.h"

#define MAIL_TAG 1
#define MAX_COUNT ((size_t)1 << 27) /* most bytes of one call, which counts in ints */

/* A failed call ends the job before it returns: MPI's errors are fatal by default. */

static fedge_status mpi_open(void **state, uint32_t *rank, uint32_t *num_ranks, fedge_error *err)
{
    fedge_mpi *mpi = malloc(sizeof(*mpi));
    *state = NULL;
    if (!mpi)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for MPI");
    fedge_status status = fedge_mpi_load(mpi, err);
    int provided = 0, my_rank = 0, size = 0;
    /* MPI_THREAD_MULTIPLE: different threads may use a collective and its parts at the same time.
     */
    if (status == FEDGE_OK && mpi->init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided) != 0)
        status = fedge_fail(err, FEDGE_UNSUPPORTED, "Open MPI does not start");
    if (status == FEDGE_OK && provided < MPI_THREAD_MULTIPLE) {
        status = fedge_fail(err, FEDGE_UNSUPPORTED,
                            "this Open MPI was built without threads: install Debian's");
    }
    if (status != FEDGE_OK) {
        free(mpi);
        return status;
    }
    (void)mpi->comm_rank(mpi->world, &my_rank);
    (void)mpi->comm_size(mpi->world, &size);
    *rank = (uint32_t)my_rank;
    *num_ranks = (uint32_t)size;
    *state = mpi;
    return FEDGE_OK;
}

static fedge_status mpi_split(void *state, uint32_t group, void **part, uint32_t *rank,
                              uint32_t *num_ranks, fedge_error *err)
{
    const fedge_mpi *whole = state;
    MPI_Comm comm;
    int my_rank = 0, size = 0;
    (void)whole->comm_rank(whole->world, &my_rank);
    (void)whole->comm_split(whole->world, (int)group, my_rank, &comm);
    fedge_mpi *mpi = malloc(sizeof(*mpi));
    *part = mpi;
    if (!mpi) {
        (void)whole->comm_free(&comm);
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for MPI");
    }
    *mpi = *whole;
    mpi->world = comm;
    mpi->is_part = true;
    (void)mpi->comm_rank(comm, &my_rank);
    (void)mpi->comm_size(comm, &size);
    *rank = (uint32_t)my_rank;
    *num_ranks = (uint32_t)size;
    return FEDGE_OK;
}

static void mpi_close(void *state)
{
    fedge_mpi *mpi = state;
    if (mpi->is_part)
        (void)mpi->comm_free(&mpi->world);
    else
        (void)mpi->finalize();
    free(mpi); /* the library stays loaded, since it has registered handlers */
}

static void mpi_abort(void *state, int code)
{
    const fedge_mpi *mpi = state;
    (void)mpi->abort(mpi->world, code);
}

static int next_count(size_t left)
{
    return (int)(left < MAX_COUNT ? left : MAX_COUNT);
}

static void mpi_sum(void *state, int64_t *values, size_t count, uint32_t on)
{
    const fedge_mpi *mpi = state;
    int rank = 0;
    (void)mpi->comm_rank(mpi->world, &rank);
    const bool has = rank == (int)on;
    for (size_t at = 0; at < count; at += MAX_COUNT) {
        const int n = next_count(count - at);
        /* The root's values are summed in place. */
        (void)mpi->reduce(has ? MPI_IN_PLACE : values + at, has ? values + at : NULL, n, mpi->int64,
                          mpi->add, (int)on, mpi->world);
    }
}

static void mpi_broadcast(void *state, void *bytes, size_t size, uint32_t from)
{
    const fedge_mpi *mpi = state;
    for (size_t at = 0; at < size; at += MAX_COUNT) {
        (void)mpi->bcast((char *)bytes + at, next_count(size - at), mpi->byte, (int)from,
                         mpi->world);
    }
}

static void mpi_send(void *state, const void *bytes, size_t size, uint32_t to)
{
    const fedge_mpi *mpi = state;
    for (size_t at = 0; at < size; at += MAX_COUNT) {
        /* Tag 0 is for exchanges whose order both sides know. Messages have another tag and may
         * arrive in between. */
        (void)mpi->send((const char *)bytes + at, next_count(size - at), mpi->byte, (int)to, 0,
                        mpi->world);
    }
}

static void mpi_receive(void *state, void *bytes, size_t size, uint32_t from)
{
    const fedge_mpi *mpi = state;
    for (size_t at = 0; at < size; at += MAX_COUNT) {
        (void)mpi->recv((char *)bytes + at, next_count(size - at), mpi->byte, (int)from, 0,
                        mpi->world, MPI_STATUS_IGNORE);
    }
}

/* ---- messages -------------------------------------------------------------------------------- */

static void *mpi_begin_send(void *state, const void *bytes, size_t size, uint32_t to)
{
    const fedge_mpi *mpi = state;
    MPI_Request *sending = malloc(sizeof(MPI_Request));
    if (sending)
        (void)mpi->isend(bytes, (int)size, mpi->byte, (int)to, MAIL_TAG, mpi->world, sending);
    return sending;
}

static bool mpi_is_done(void *state, void *handle)
{
    const fedge_mpi *mpi = state;
    int done = 0;
    (void)mpi->test(handle, &done, MPI_STATUS_IGNORE);
    if (done)
        free(handle);
    return done != 0;
}

static bool mpi_probe(void *state, uint32_t *from, size_t *size)
{
    const fedge_mpi *mpi = state;
    MPI_Status status;
    int found = 0, count = 0;
    (void)mpi->iprobe(MPI_ANY_SOURCE, MAIL_TAG, mpi->world, &found, &status);
    if (found) {
        (void)mpi->get_count(&status, mpi->byte, &count);
        *from = (uint32_t)status.MPI_SOURCE;
        *size = (size_t)count;
    }
    return found != 0;
}

/* A blocking receive would spin while the sender does something else. */
static void *mpi_begin_receive(void *state, void *bytes, size_t size, uint32_t from)
{
    const fedge_mpi *mpi = state;
    MPI_Request *reading = malloc(sizeof(MPI_Request));
    if (reading)
        (void)mpi->irecv(bytes, (int)size, mpi->byte, (int)from, MAIL_TAG, mpi->world, reading);
    return reading;
}

const fedge_collective_ops fedge_collective_mpi = {
    .name = "mpi",
    .split = mpi_split,
    .open = mpi_open,
    .close = mpi_close,
    .abort = mpi_abort,
    .sum = mpi_sum,
    .broadcast = mpi_broadcast,
    .send = mpi_send,
    .receive = mpi_receive,
    .begin_send = mpi_begin_send,
    .is_done = mpi_is_done,
    .probe = mpi_probe,
    .begin_receive = mpi_begin_receive,
};
