#include "aggregator/run/ingest/upload_buffers.h"

void fedge_upload_rooms_init(fedge_upload_rooms *rooms, size_t size, uint32_t num_workers)
{
    const size_t fitting = size > 0 ? FEDGE_UPLOAD_ROOMS_BYTES / size : num_workers;
    *rooms = (fedge_upload_rooms){.count = fitting < 1             ? 1
                                           : fitting < num_workers ? (uint32_t)fitting
                                                                   : num_workers};
    pthread_mutex_init(&rooms->mutex, NULL);
    pthread_cond_init(&rooms->freed, NULL);
}

void fedge_upload_rooms_fini(fedge_upload_rooms *rooms)
{
    fedge_upload_rooms_empty(rooms);
    pthread_cond_destroy(&rooms->freed);
    pthread_mutex_destroy(&rooms->mutex);
}

/* NULL: all are taken. */
static fedge_upload_room *find_free(fedge_upload_rooms *rooms)
{
    for (uint32_t i = 0; i < rooms->count; i++) {
        if (!rooms->is_taken[i]) {
            rooms->is_taken[i] = true;
            return &rooms->of[i];
        }
    }
    return NULL;
}

fedge_upload_room *fedge_upload_rooms_take(fedge_upload_rooms *rooms)
{
    pthread_mutex_lock(&rooms->mutex);
    fedge_upload_room *taken = find_free(rooms);
    while (!taken) {
        pthread_cond_wait(&rooms->freed, &rooms->mutex);
        taken = find_free(rooms);
    }
    pthread_mutex_unlock(&rooms->mutex);
    return taken;
}

void fedge_upload_rooms_give_back(fedge_upload_rooms *rooms, const fedge_upload_room *room)
{
    pthread_mutex_lock(&rooms->mutex);
    rooms->is_taken[room - rooms->of] = false;
    pthread_cond_signal(&rooms->freed);
    pthread_mutex_unlock(&rooms->mutex);
}

void fedge_upload_rooms_empty(fedge_upload_rooms *rooms)
{
    pthread_mutex_lock(&rooms->mutex);
    for (uint32_t i = 0; i < rooms->count; i++) {
        if (!rooms->is_taken[i])
            fedge_upload_room_fini(&rooms->of[i]);
    }
    pthread_mutex_unlock(&rooms->mutex);
}
