/* Where the store's files are: in memory, for clients without a state directory, or in a directory.
 */
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

/* Reserves [size] bytes in total. */
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

static fedge_status fail_full(const char *name, fedge_error *err)
{
    return fedge_fail(err, FEDGE_TOO_BIG,
                      "no room for %s: the limit is %d files and %d bytes a name", name, MAX_FILES,
                      MAX_NAME - 1);
}

/* Writes at [offset], which is at most the file's size; creates a missing file. */
static fedge_status put_at(store_memory *memory, const char *name, size_t offset,
                           fedge_bytes_view bytes, fedge_error *err)
{
    memory_file *file = find(memory, name);
    if (!file)
        file = find(memory, "");
    if (!file || strlen(name) >= MAX_NAME)
        return fail_full(name, err);
    if (offset > file->size || bytes.size > SIZE_MAX - offset)
        return fedge_fail(err, FEDGE_OUT_OF_RANGE, "%s: a write behind its end", name);
    FEDGE_TRY(grow(file, name, offset + bytes.size, err));
    snprintf(file->name, sizeof(file->name), "%s", name);
    if (bytes.size > 0)
        memcpy(file->data + offset, bytes.data, bytes.size);
    if (offset + bytes.size > file->size)
        file->size = offset + bytes.size;
    return FEDGE_OK;
}

static fedge_status memory_write_at(void *user, const char *name, uint64_t offset,
                                    fedge_bytes_view bytes, fedge_error *err)
{
    store_memory *memory = user;
    if (offset > SIZE_MAX)
        return fedge_fail(err, FEDGE_TOO_BIG, "%s does not fit in memory", name);
    pthread_mutex_lock(&memory->mutex);
    fedge_status status = put_at(memory, name, (size_t)offset, bytes, err);
    pthread_mutex_unlock(&memory->mutex);
    return status;
}

static fedge_status put_both(store_memory *memory, const char *name, fedge_bytes_view first,
                             fedge_bytes_view second, fedge_error *err)
{
    FEDGE_TRY(put_at(memory, name, 0, first, err));
    return put_at(memory, name, first.size, second, err);
}

static fedge_status memory_replace(void *user, const char *name, fedge_bytes_view first,
                                   fedge_bytes_view second, fedge_error *err)
{
    store_memory *memory = user;
    const char *fresh = "new";
    if (strlen(name) >= MAX_NAME)
        return fail_full(name, err);
    pthread_mutex_lock(&memory->mutex);
    /* As in a directory, the old value stays until the new one is complete. */
    const fedge_status status = put_both(memory, fresh, first, second, err);
    memory_file *file = find(memory, status ? fresh : name);
    if (file)
        drop(file);
    if (status == FEDGE_OK) {
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
        /* Unlocked, since the visitor may remove. */
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

/* Creates the directory of [path]. */
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

static fedge_status dir_open(const store_dir *dir, const char *name, fedge_os_file *file,
                             fedge_error *err)
{
    char path[MAX_PATH];
    FEDGE_TRY(path_of(dir, name, "", path, err));
    return fedge_os_open(file, path, FEDGE_OS_READ, err);
}

static fedge_status dir_size(void *user, const char *name, uint64_t *size, fedge_error *err)
{
    fedge_os_file file;
    FEDGE_TRY(dir_open(user, name, &file, err));
    const fedge_status status = fedge_os_file_size(&file, size, err);
    fedge_os_close(&file);
    return status;
}

static fedge_status dir_read(void *user, const char *name, uint64_t offset, void *out, size_t size,
                             fedge_error *err)
{
    fedge_os_file file;
    FEDGE_TRY(dir_open(user, name, &file, err));
    const fedge_status status = fedge_os_read_at(&file, offset, out, size, err);
    fedge_os_close(&file);
    return status;
}

static fedge_status dir_write_at(void *user, const char *name, uint64_t offset,
                                 fedge_bytes_view bytes, fedge_error *err)
{
    char path[MAX_PATH];
    fedge_os_file file;
    FEDGE_TRY(path_of(user, name, "", path, err));
    FEDGE_TRY(make_parent(path, err));
    FEDGE_TRY(fedge_os_open(&file, path, FEDGE_OS_CREATE, err));
    /* Not synced: a blob's hash is checked before use, and what a crash loses is fetched again. */
    const fedge_status status = fedge_os_write_at(&file, offset, bytes.data, bytes.size, err);
    fedge_os_close(&file);
    return status;
}

/* Writes and syncs the temporary file. */
static fedge_status write_new(const char *path, fedge_bytes_view first, fedge_bytes_view second,
                              fedge_error *err)
{
    fedge_os_file file;
    /* Left by a process that was killed. */
    if (fedge_os_exists(path))
        FEDGE_TRY(fedge_os_remove(path, err));
    FEDGE_TRY(fedge_os_open(&file, path, FEDGE_OS_CREATE, err));
    fedge_status status;
    FEDGE_TRY_OR(fedge_os_write_at(&file, 0, first.data, first.size, err), done);
    if (second.size > 0)
        FEDGE_TRY_OR(fedge_os_write_at(&file, first.size, second.data, second.size, err), done);
    status = fedge_os_sync(&file, err);
done:
    fedge_os_close(&file);
    return status;
}

static fedge_status dir_replace(void *user, const char *name, fedge_bytes_view first,
                                fedge_bytes_view second, fedge_error *err)
{
    char path[MAX_PATH], fresh[MAX_PATH];
    FEDGE_TRY(path_of(user, name, "", path, err));
    FEDGE_TRY(path_of(user, name, ".new", fresh, err));
    FEDGE_TRY(make_parent(path, err));
    const fedge_status status = write_new(fresh, first, second, err);
    if (status == FEDGE_NO_SPACE)
        (void)!fedge_os_remove(fresh, NULL); /* a smaller file may fit */
    FEDGE_TRY(status);
    return fedge_os_publish(fresh, path, err);
}

static fedge_status dir_remove(void *user, const char *name, fedge_error *err)
{
    char path[MAX_PATH];
    FEDGE_TRY(path_of(user, name, "", path, err));
    return fedge_os_remove_tree(path, err);
}

static fedge_status dir_list(void *user, const char *folder, fedge_os_visit visit, void *visit_user,
                             fedge_error *err)
{
    char path[MAX_PATH];
    FEDGE_TRY(path_of(user, folder, "", path, err));
    return fedge_os_exists(path) ? fedge_os_list_dir(path, visit, visit_user, err) : FEDGE_OK;
}

static void dir_close(void *user)
{
    store_dir *dir = user;
    fedge_os_unlock(dir->lock);
    free(dir);
}

static fedge_status lock_dir(store_dir *dir, const char *path, fedge_error *err)
{
    char lock[MAX_PATH], values[MAX_PATH];
    if (strlen(path) >= sizeof(dir->path))
        return fedge_fail(err, FEDGE_TOO_BIG, "the path %s has over %d bytes", path, MAX_PATH - 1);
    snprintf(dir->path, sizeof(dir->path), "%s", path);
    FEDGE_TRY(fedge_os_make_dirs(path, err));
    FEDGE_TRY(path_of(dir, "lock", "", lock, err));
    FEDGE_TRY(path_of(dir, "kv", "", values, err));
    /* A process may have been killed before the name of a run's folder was synced. */
    if (fedge_os_exists(values))
        FEDGE_TRY(fedge_os_sync_dir(values, err));
    return fedge_os_lock(lock, &dir->lock, err);
}

fedge_status fedge_store_backend_dir(const char *path, fedge_store_backend *backend,
                                     fedge_error *err)
{
    store_dir *dir = calloc(1, sizeof(*dir));
    if (!dir)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to open the state directory %s", path);
    const fedge_status status = lock_dir(dir, path, err);
    if (status != FEDGE_OK) {
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
