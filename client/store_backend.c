/* Where the files of the store lie: in memory, for clients without a state directory, or in a
 * directory. */
#define _POSIX_C_SOURCE 200809L
#include "client/store_backend.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FILES 256
#define MAX_NAME 192

typedef struct memory_file {
    char name[MAX_NAME]; /* "": free */
    uint8_t *data;
    size_t size, capacity;
} memory_file;

typedef struct store_memory {
    pthread_mutex_t mutex;
    memory_file files[MAX_FILES];
} store_memory;

static memory_file *find(store_memory *memory, const char *name)
{
    for (size_t i = 0; i < MAX_FILES; i++) {
        if (strcmp(memory->files[i].name, name) == 0)
            return &memory->files[i];
    }
    return NULL;
}

static void drop(memory_file *file)
{
    free(file->data);
    memset(file, 0, sizeof(*file));
}

static fedge_status missing(fedge_error *err, const char *name)
{
    return fedge_fail(err, FEDGE_NOT_FOUND, "%s is not in the store", name);
}

static fedge_status memory_size(void *user, const char *name, uint64_t *size, fedge_error *err)
{
    store_memory *memory = user;
    pthread_mutex_lock(&memory->mutex);
    memory_file *file = find(memory, name);
    fedge_status status = FEDGE_OK;
    if (file)
        *size = file->size;
    else
        status = missing(err, name);
    pthread_mutex_unlock(&memory->mutex);
    return status;
}

static fedge_status memory_read(void *user, const char *name, uint64_t offset, void *out,
                                size_t size, fedge_error *err)
{
    store_memory *memory = user;
    pthread_mutex_lock(&memory->mutex);
    memory_file *file = find(memory, name);
    fedge_status status = FEDGE_OK;
    if (!file) {
        status = missing(err, name);
    } else if (offset > file->size || size > file->size - offset) {
        status = fedge_fail(err, FEDGE_TRUNCATED, "%s has %zu bytes; %zu are wanted from byte %llu",
                            name, file->size, size, (unsigned long long)offset);
    } else if (size > 0) {
        memcpy(out, file->data + offset, size);
    }
    pthread_mutex_unlock(&memory->mutex);
    return status;
}

/* Makes room for [size] bytes in all. */
static fedge_status grow(memory_file *file, const char *name, size_t size, fedge_error *err)
{
    if (size <= file->capacity)
        return FEDGE_OK;
    size_t capacity = size > file->capacity * 2 ? size : file->capacity * 2;
    uint8_t *data = realloc(file->data, capacity);
    if (!data)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %zu bytes of %s", capacity, name);
    file->data = data;
    file->capacity = capacity;
    return FEDGE_OK;
}

static fedge_status no_room(const char *name, fedge_error *err)
{
    return fedge_fail(err, FEDGE_TOO_BIG,
                      "no room for %s: the limit is %d files and %d bytes a name", name, MAX_FILES,
                      MAX_NAME - 1);
}

/* Writes at [offset], which is at most the size of the file; a new one is made when missing. */
static fedge_status put_at(store_memory *memory, const char *name, size_t offset,
                           fedge_bytes_view span, fedge_error *err)
{
    memory_file *file = find(memory, name);
    if (!file)
        file = find(memory, "");
    if (!file || strlen(name) >= MAX_NAME)
        return no_room(name, err);
    if (offset > file->size || span.size > SIZE_MAX - offset)
        return fedge_fail(err, FEDGE_OUT_OF_RANGE, "%s: a write behind its end", name);
    FEDGE_TRY(grow(file, name, offset + span.size, err));
    snprintf(file->name, sizeof(file->name), "%s", name);
    if (span.size > 0)
        memcpy(file->data + offset, span.data, span.size);
    if (offset + span.size > file->size)
        file->size = offset + span.size;
    return FEDGE_OK;
}

static fedge_status memory_write_at(void *user, const char *name, uint64_t offset,
                                    fedge_bytes_view span, fedge_error *err)
{
    store_memory *memory = user;
    if (offset > SIZE_MAX)
        return fedge_fail(err, FEDGE_TOO_BIG, "%s does not fit in memory", name);
    pthread_mutex_lock(&memory->mutex);
    fedge_status status = put_at(memory, name, (size_t)offset, span, err);
    pthread_mutex_unlock(&memory->mutex);
    return status;
}

static fedge_status memory_replace(void *user, const char *name, fedge_bytes_view first,
                                   fedge_bytes_view second, fedge_error *err)
{
    store_memory *memory = user;
    const char *fresh = "new";
    if (strlen(name) >= MAX_NAME)
        return no_room(name, err);
    pthread_mutex_lock(&memory->mutex);
    /* As in a directory, the old value stays until the new one is whole. */
    fedge_status status = put_at(memory, fresh, 0, first, err);
    if (!status)
        status = put_at(memory, fresh, first.size, second, err);
    memory_file *file = find(memory, status ? fresh : name);
    if (file)
        drop(file);
    if (!status) {
        file = find(memory, fresh);
        snprintf(file->name, sizeof(file->name), "%s", name);
    }
    pthread_mutex_unlock(&memory->mutex);
    return status;
}

static fedge_status memory_remove(void *user, const char *name, fedge_error *err)
{
    (void)err;
    store_memory *memory = user;
    size_t length = strlen(name);
    pthread_mutex_lock(&memory->mutex);
    for (size_t i = 0; i < MAX_FILES; i++) {
        memory_file *file = &memory->files[i];
        if (strncmp(file->name, name, length) == 0 &&
            (file->name[length] == '\0' || file->name[length] == '/'))
            drop(file);
    }
    pthread_mutex_unlock(&memory->mutex);
    return FEDGE_OK;
}

static fedge_status memory_list(void *user, const char *folder, fedge_os_visit visit,
                                void *visit_user, fedge_error *err)
{
    store_memory *memory = user;
    size_t length = strlen(folder);
    for (size_t i = 0; i < MAX_FILES; i++) {
        char name[MAX_NAME] = "";
        pthread_mutex_lock(&memory->mutex);
        const memory_file *file = &memory->files[i];
        if (strncmp(file->name, folder, length) == 0 && file->name[length] == '/')
            memcpy(name, file->name + length + 1, sizeof(name) - length - 1);
        pthread_mutex_unlock(&memory->mutex);
        /* Unlocked: the visitor may remove. */
        FEDGE_TRY(name[0] ? visit(visit_user, name, err) : FEDGE_OK);
    }
    return FEDGE_OK;
}

static void memory_close(void *user)
{
    store_memory *memory = user;
    for (size_t i = 0; i < MAX_FILES; i++)
        drop(&memory->files[i]);
    pthread_mutex_destroy(&memory->mutex);
    free(memory);
}

fedge_status fedge_store_backend_memory(fedge_store_backend *backend, fedge_error *err)
{
    store_memory *memory = calloc(1, sizeof(*memory));
    if (!memory) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a store of %zu bytes",
                          sizeof(*memory));
    }
    pthread_mutex_init(&memory->mutex, NULL);
    *backend = (fedge_store_backend){.user = memory,
                                     .size = memory_size,
                                     .read = memory_read,
                                     .write_at = memory_write_at,
                                     .replace = memory_replace,
                                     .remove = memory_remove,
                                     .list = memory_list,
                                     .close = memory_close};
    return FEDGE_OK;
}

/* --- files of a directory -----------------------------------------------------------------------
 */

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
