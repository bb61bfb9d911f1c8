/* The store in a directory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/store_backend.h"

#define MAX_PATH 512

typedef struct store_dir {
    char path[MAX_PATH];
    int lock;
} store_dir;

static fedge_status path_of(const store_dir *dir, const char *name, const char *suffix,
                            char path[MAX_PATH], fedge_error *err)
{
    int n = snprintf(path, MAX_PATH, "%s/%s%s", dir->path, name, suffix);
    if (n < 0 || n >= MAX_PATH) {
        return fedge_fail(err, FEDGE_TOO_BIG, "the path %s/%s%s has over %d bytes", dir->path, name,
                          suffix, MAX_PATH - 1);
    }
    return FEDGE_OK;
}

/* Creates the folder that [path] lies in. */
static fedge_status make_parent(const char *path, fedge_error *err)
{
    char parent[MAX_PATH];
    snprintf(parent, sizeof(parent), "%s", path);
    char *slash = strrchr(parent, '/');
    if (!slash)
        return FEDGE_OK;
    *slash = '\0';
    return fedge_os_is_dir(parent) ? FEDGE_OK : fedge_os_make_dirs(parent, err);
}

static fedge_status dir_size(void *user, const char *name, uint64_t *size, fedge_error *err)
{
    char path[MAX_PATH];
    fedge_os_file file;
    fedge_status status = path_of(user, name, "", path, err);
    if (!status)
        status = fedge_os_open(&file, path, FEDGE_OS_READ, err);
    if (status)
        return status;
    status = fedge_os_file_size(&file, size, err);
    fedge_os_close(&file);
    return status;
}

static fedge_status dir_read(void *user, const char *name, uint64_t offset, void *out, size_t size,
                             fedge_error *err)
{
    char path[MAX_PATH];
    fedge_os_file file;
    fedge_status status = path_of(user, name, "", path, err);
    if (!status)
        status = fedge_os_open(&file, path, FEDGE_OS_READ, err);
    if (status)
        return status;
    status = fedge_os_read_at(&file, offset, out, size, err);
    fedge_os_close(&file);
    return status;
}

static fedge_status dir_write_at(void *user, const char *name, uint64_t offset,
                                 fedge_bytes_view span, fedge_error *err)
{
    char path[MAX_PATH];
    fedge_os_file file;
    fedge_status status = path_of(user, name, "", path, err);
    if (!status)
        status = make_parent(path, err);
    if (!status)
        status = fedge_os_open(&file, path, FEDGE_OS_CREATE, err);
    if (status)
        return status;
    /* Not synced: a blob is hashed before it is used, and what a crash has cost is fetched again.
     */
    status = fedge_os_write_at(&file, offset, span.data, span.size, err);
    fedge_os_close(&file);
    return status;
}

/* Writes and syncs the temporary file. */
static fedge_status write_new(const char *path, fedge_bytes_view first, fedge_bytes_view second,
                              fedge_error *err)
{
    fedge_os_file file;
    fedge_status status = FEDGE_OK;
    /* Left by a process that was killed. */
    if (fedge_os_exists(path))
        status = fedge_os_remove(path, err);
    if (!status)
        status = fedge_os_open(&file, path, FEDGE_OS_CREATE, err);
    if (status)
        return status;
    status = fedge_os_write_at(&file, 0, first.data, first.size, err);
    if (!status && second.size > 0)
        status = fedge_os_write_at(&file, first.size, second.data, second.size, err);
    /* Before it gets its name: the name stands for whole bytes. */
    if (!status)
        status = fedge_os_sync(&file, err);
    fedge_os_close(&file);
    return status;
}

static fedge_status dir_replace(void *user, const char *name, fedge_bytes_view first,
                                fedge_bytes_view second, fedge_error *err)
{
    char path[MAX_PATH], fresh[MAX_PATH];
    fedge_status status = path_of(user, name, "", path, err);
    if (!status)
        status = path_of(user, name, ".new", fresh, err);
    if (!status)
        status = make_parent(path, err);
    if (!status)
        status = write_new(fresh, first, second, err);
    if (status == FEDGE_NO_SPACE)
        (void)!fedge_os_remove(fresh, NULL); /* its room is for what can be stored */
    return status ? status : fedge_os_publish(fresh, path, err);
}

static fedge_status dir_remove(void *user, const char *name, fedge_error *err)
{
    char path[MAX_PATH];
    fedge_status status = path_of(user, name, "", path, err);
    return status ? status : fedge_os_remove_tree(path, err);
}

static fedge_status dir_list(void *user, const char *folder, fedge_os_visit visit, void *visit_user,
                             fedge_error *err)
{
    char path[MAX_PATH];
    fedge_status status = path_of(user, folder, "", path, err);
    /* A folder that nobody has needed yet has nothing in it. */
    if (status || !fedge_os_exists(path))
        return status;
    return fedge_os_list_dir(path, visit, visit_user, err);
}

static void dir_close(void *user)
{
    store_dir *dir = user;
    fedge_os_unlock(dir->lock);
    free(dir);
}

/* Who made a run's folder of values may have been killed before its name was on the disk. */
static fedge_status sync_folders(const store_dir *dir, fedge_error *err)
{
    char values[MAX_PATH];
    const fedge_status status = path_of(dir, "kv", "", values, err);
    return status || !fedge_os_exists(values) ? status : fedge_os_sync_dir(values, err);
}

fedge_status fedge_store_backend_dir(const char *path, fedge_store_backend *backend,
                                     fedge_error *err)
{
    char lock[MAX_PATH];
    store_dir *dir = calloc(1, sizeof(*dir));
    if (!dir)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to open the state directory %s", path);
    fedge_status status = FEDGE_OK;
    if (strlen(path) >= sizeof(dir->path)) {
        status =
            fedge_fail(err, FEDGE_TOO_BIG, "the path %s has over %d bytes", path, MAX_PATH - 1);
    }
    snprintf(dir->path, sizeof(dir->path), "%s", path);
    if (!status)
        status = fedge_os_make_dirs(path, err);
    if (!status)
        status = path_of(dir, "lock", "", lock, err);
    /* Before the lock: it only makes durable what is there. */
    if (!status)
        status = sync_folders(dir, err);
    if (!status)
        status = fedge_os_lock(lock, &dir->lock, err);
    if (status) {
        free(dir);
        return fedge_error_prefix(err, status, "state directory %s", path);
    }
    *backend = (fedge_store_backend){.user = dir,
                                     .size = dir_size,
                                     .read = dir_read,
                                     .write_at = dir_write_at,
                                     .replace = dir_replace,
                                     .remove = dir_remove,
                                     .list = dir_list,
                                     .close = dir_close};
    return FEDGE_OK;
}
