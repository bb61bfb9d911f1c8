/* Storage of the store's files. A file has a relative path with "/" ("blobs/HASH"). */
#ifndef FEDGE_CLIENT_STORE_BACKEND_H
#define FEDGE_CLIENT_STORE_BACKEND_H

#include <stddef.h>
#include <stdint.h>

#include "edge/core/os.h"
#include "edge/core/status.h"

/* A range of bytes; a file may be written from two without copying them together. */
typedef struct fedge_bytes_view {
    const void *data;
    size_t size;
} fedge_bytes_view;

typedef struct fedge_store_backend {
    void *user;
    /* FEDGE_NOT_FOUND if missing. */
    fedge_status (*size)(void *user, const char *name, uint64_t *size, fedge_error *err);
    fedge_status (*read)(void *user, const char *name, uint64_t offset, void *out, size_t size,
                         fedge_error *err);
    /* Creates the file if missing; not durable. */
    fedge_status (*write_at)(void *user, const char *name, uint64_t offset, fedge_bytes_view bytes,
                             fedge_error *err);
    /* Replaces the whole file, atomically and durably. */
    fedge_status (*replace)(void *user, const char *name, fedge_bytes_view first,
                            fedge_bytes_view second, fedge_error *err);
    /* A missing name is no error; a folder's name removes its contents. */
    fedge_status (*remove)(void *user, const char *name, fedge_error *err);
    /* Visits the names in a folder; none if it is missing. The visitor may remove files it is
     * shown. */
    fedge_status (*list)(void *user, const char *folder, fedge_os_visit visit, void *visit_user,
                         fedge_error *err);
    void (*close)(void *user);
} fedge_store_backend;

FEDGE_MUST_USE fedge_status fedge_store_backend_dir(const char *path, fedge_store_backend *backend,
                                                    fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_store_backend_memory(fedge_store_backend *backend,
                                                       fedge_error *err);

#endif
