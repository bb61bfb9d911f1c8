/* The buffers in which updates are unpacked that cannot be read piece by piece: lent to one worker
 * at a time, as many as fit into a budget, and one at the least, since an update of a large model
 * is as large as the model. Thread-safe.
 */
#ifndef FEDGE_AGGREGATOR_RUN_INGEST_UPLOAD_BUFFERS_H
#define FEDGE_AGGREGATOR_RUN_INGEST_UPLOAD_BUFFERS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "aggregator/run/ingest/upload_source.h"

#define FEDGE_UPLOAD_BUFFERS_MAX 64
#define FEDGE_UPLOAD_BUFFERS_BYTES ((size_t)64 << 20)

typedef struct fedge_upload_buffers {
    pthread_mutex_t mutex;
    pthread_cond_t freed;
    uint32_t count;
    bool is_taken[FEDGE_UPLOAD_BUFFERS_MAX];
    fedge_upload_buffer of[FEDGE_UPLOAD_BUFFERS_MAX];
} fedge_upload_buffers;

/* For updates of at most [size] bytes and [num_workers] workers, 1 to FEDGE_UPLOAD_BUFFERS_MAX. No
 * memory is taken yet. */
void fedge_upload_buffers_init(fedge_upload_buffers *buffers, size_t size, uint32_t num_workers);
void fedge_upload_buffers_fini(fedge_upload_buffers *buffers);

/* Waits for a buffer that nobody has. Who has one waits for nothing before it gives it back. */
fedge_upload_buffer *fedge_upload_buffers_take(fedge_upload_buffers *buffers);
void fedge_upload_buffers_give_back(fedge_upload_buffers *buffers,
                                    const fedge_upload_buffer *buffer);

/* Frees the memory of buffers that nobody has. */
void fedge_upload_buffers_empty(fedge_upload_buffers *buffers);

#endif
