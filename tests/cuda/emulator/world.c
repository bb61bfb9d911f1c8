#define _GNU_SOURCE /* memfd_create */
#include "tests/cuda/emulator/world.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { MAX_PROCESSES = 8, ROOM = 16 << 20 };

/* No file is left behind, however processes end: the id names an open file of the one that made it,
 * and the memory goes with the last of them. */
typedef struct shared {
    _Atomic int members, processes;
    _Atomic bool failed, ended[MAX_PROCESSES];
    _Atomic pid_t pids[MAX_PROCESSES];
    _Atomic uint64_t told[MAX_PROCESSES];
    /* Two for each: who has told of a collective may still read what was brought to the one before.
     */
    _Alignas(64) char rooms[MAX_PROCESSES][2][ROOM];
} shared;

struct world {
    shared *shared;
    uint32_t process, num_processes;
};

bool emulated_world_make_id(fedge_nccl_id *id)
{
    const int file = memfd_create("nccl", MFD_CLOEXEC);
    (void)snprintf(id->bytes, sizeof(id->bytes), "/proc/%ld/fd/%d", (long)getpid(), file);
    return file >= 0 && ftruncate(file, sizeof(shared)) == 0;
}

static shared *map(const fedge_nccl_id *id)
{
    const int file = open(id->bytes, O_RDWR | O_CLOEXEC);
    void *at = file < 0 ? MAP_FAILED
                        : mmap(NULL, sizeof(shared), PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_NORESERVE, file, 0);
    if (file >= 0)
        (void)close(file);
    return at == MAP_FAILED ? NULL : at;
}

/* The file that this process has made is not needed once all have opened it. */
static void close_made(const fedge_nccl_id *id)
{
    long pid = 0;
    int file = -1;
    if (sscanf(id->bytes, "/proc/%ld/fd/%d", &pid, &file) == 2 && pid == (long)getpid())
        (void)close(file);
}

world *emulated_world_join(const fedge_nccl_id *id, int count, int size)
{
    shared *all = map(id);
    world *self = calloc(1, sizeof(*self));
    if (!all || !self) {
        free(self);
        return NULL;
    }
    self->shared = all;
    self->process = (uint32_t)atomic_fetch_add(&all->processes, 1);
    atomic_store(&all->pids[self->process], getpid());
    (void)atomic_fetch_add(&all->members, count);
    while (atomic_load(&all->members) < size && !atomic_load(&all->failed))
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    self->num_processes = (uint32_t)atomic_load(&all->processes);
    close_made(id);
    if (atomic_load(&all->members) == size && !atomic_load(&all->failed))
        return self;
    emulated_world_leave(self);
    return NULL;
}

void emulated_world_fail(const fedge_nccl_id *id)
{
    shared *all = map(id);
    if (all) {
        atomic_store(&all->failed, true);
        (void)munmap(all, sizeof(*all));
    }
}

void emulated_world_end(world *self)
{
    atomic_store(&self->shared->ended[self->process], true);
}

void emulated_world_leave(world *self)
{
    if (self) {
        (void)munmap(self->shared, sizeof(*self->shared));
        free(self);
    }
}

uint32_t emulated_world_processes(const world *self)
{
    return self->num_processes;
}

char *emulated_world_own_room(world *self, uint64_t number)
{
    return self->shared->rooms[self->process][number % 2];
}

const char *emulated_world_room(const world *self, uint32_t process, uint64_t number)
{
    return self->shared->rooms[process][number % 2];
}

bool emulated_world_has_told(const world *self, uint64_t number)
{
    return atomic_load(&self->shared->told[self->process]) >= number;
}

void emulated_world_tell(world *self, uint64_t number)
{
    atomic_store(&self->shared->told[self->process], number);
}

bool emulated_world_all_told(const world *self, uint64_t number)
{
    for (uint32_t p = 0; p < self->num_processes; p++) {
        if (atomic_load(&self->shared->told[p]) < number)
            return false;
    }
    return true;
}

bool emulated_world_has_lost(const world *self, uint64_t started)
{
    for (uint32_t p = 0; p < self->num_processes; p++) {
        const bool gone = atomic_load(&self->shared->ended[p]) ||
                          (kill(atomic_load(&self->shared->pids[p]), 0) != 0 && errno == ESRCH);
        if (gone && atomic_load(&self->shared->told[p]) < started)
            return true;
    }
    return false;
}
