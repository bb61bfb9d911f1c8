#include "aggregator/run/ingest/upload_buffers.h"

void fedge_upload_buffers_init(fedge_upload_buffers *buffers, size_t size, uint32_t num_workers)
{
    const size_t fitting = size > 0 ? FEDGE_UPLOAD_BUFFERS_BYTES / size : num_workers;
    *buffers = (fedge_upload_buffers){.count = fitting < 1             ? 1
                                               : fitting < num_workers ? (uint32_t)fitting
                                                                       : num_workers};
    pthread_mutex_init(&buffers->mutex, NULL);
    pthread_cond_init(&buffers->freed, NULL);
}

void fedge_upload_buffers_fini(fedge_upload_buffers *buffers)
{
    fedge_upload_buffers_empty(buffers);
    pthread_cond_destroy(&buffers->freed);
    pthread_mutex_destroy(&buffers->mutex);
}

/* NULL: all are taken. */
static fedge_upload_buffer *find_free(fedge_upload_buffers *buffers)
{
    for (uint32_t i = 0; i < buffers->count; i++) {
        if (!buffers->is_taken[i]) {
            buffers->is_taken[i] = true;
            return &buffers->of[i];
        }
    }
    return NULL;
}

fedge_upload_buffer *fedge_upload_buffers_take(fedge_upload_buffers *buffers)
{
    pthread_mutex_lock(&buffers->mutex);
    fedge_upload_buffer *taken = find_free(buffers);
    while (!taken) {
        pthread_cond_wait(&buffers->freed, &buffers->mutex);
        taken = find_free(buffers);
    }
    pthread_mutex_unlock(&buffers->mutex);
    return taken;
}

void fedge_upload_buffers_give_back(fedge_upload_buffers *buffers,
                                    const fedge_upload_buffer *buffer)
{
    pthread_mutex_lock(&buffers->mutex);
    buffers->is_taken[buffer - buffers->of] = false;
    pthread_cond_signal(&buffers->freed);
    pthread_mutex_unlock(&buffers->mutex);
}

void fedge_upload_buffers_empty(fedge_upload_buffers *buffers)
{
    pthread_mutex_lock(&buffers->mutex);
    for (uint32_t i = 0; i < buffers->count; i++) {
        if (!buffers->is_taken[i])
            fedge_upload_buffer_fini(&buffers->of[i]);
    }
    pthread_mutex_unlock(&buffers->mutex);
}
