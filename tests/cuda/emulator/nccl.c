/* A stand-in for NCCL: all GPUs of a process, group calls, and communicators of several processes
 * of this machine (world.h); dlopen of libnccl finds it (--wrap).
 *
 * A collective runs when it is at the head of every member's stream, as on GPUs, so one that a
 * member never comes to hangs. */
#include "edge/train/cuda/nccl_api.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/emulator/internal.h"
#include "tests/cuda/emulator/world.h"

enum { MAX_CALLS = 64 };
enum { REDUCE_SCATTER, ALL_REDUCE, ALL_GATHER };

typedef struct clique {
    struct clique
        *next; /* in [cliques]: kept until all begins anew, for work that is still queued */
    int count; /* of this process */
    struct ncclComm *members[EMULATOR_MAX_GPUS];
    bool failed;
    int size;         /* of all processes */
    world *world;     /* of several; NULL: one */
    uint64_t started; /* collectives */
} clique;

struct ncclComm {
    clique *clique;
    int rank;
    bool aborted;
};

typedef struct call {
    int kind;
    const void *from;
    void *to;
    size_t count;
    fedge_nccl_type type;
    ncclComm_t comm;
    cudaStream_t stream;
} call;

typedef struct collective { /* of all members */
    call calls[EMULATOR_MAX_GPUS];
    clique *group;
    int count, arrived, left;
    uint64_t number; /* of its group's, from 1 */
    bool ran, hangs;
} collective;

typedef struct member { /* what lies on one stream */
    collective *of;
    ncclComm_t comm;
    bool arrived;
} member;

typedef struct init { /* a member that is to join in a communicator of several processes */
    ncclComm_t *comm;
    fedge_nccl_id id;
    int size, rank, gpu;
} init;

static call queued[MAX_CALLS];
static init joining[EMULATOR_MAX_GPUS];
static int num_queued, num_joining, depth;
static uint64_t collectives;
static clique *cliques;

void emulated_nccl_reset(void)
{
    while (cliques) {
        clique *group = cliques;
        cliques = group->next;
        for (int i = 0; i < group->count; i++)
            free(group->members[i]);
        emulated_world_leave(group->world);
        free(group);
    }
    num_queued = num_joining = depth = 0;
    collectives = 0;
}

uint64_t emulator_collectives(void)
{
    return collectives;
}

static size_t type_size(fedge_nccl_type type)
{
    return type == FEDGE_NCCL_INT64                                 ? 8
           : type == FEDGE_NCCL_INT32 || type == FEDGE_NCCL_FLOAT32 ? 4
                                                                    : 1;
}

static void add(void *to, const void *from, size_t count, fedge_nccl_type type)
{
    for (size_t i = 0; i < count; i++) {
        if (type == FEDGE_NCCL_INT64)
            ((uint64_t *)to)[i] += ((const uint64_t *)from)[i];
        else if (type == FEDGE_NCCL_INT32)
            ((uint32_t *)to)[i] += ((const uint32_t *)from)[i];
        else if (type == FEDGE_NCCL_FLOAT32)
            ((float *)to)[i] += ((const float *)from)[i];
        else
            ((uint8_t *)to)[i] = (uint8_t)(((uint8_t *)to)[i] + ((const uint8_t *)from)[i]);
    }
}

static size_t whole_of(const collective *self)
{
    const call *first = &self->calls[0];
    return first->kind == ALL_REDUCE ? first->count : first->count * (size_t)self->group->size;
}

/* The sums or parts of this process' members. */
static void contribute(const collective *self, char *result)
{
    const size_t size = type_size(self->calls[0].type);
    memset(result, 0, whole_of(self) * size);
    for (int r = 0; r < self->count; r++) {
        const call *c = &self->calls[r];
        if (c->kind == ALL_GATHER)
            memcpy(result + (size_t)c->comm->rank * c->count * size, c->from, c->count * size);
        else
            add(result, c->from, whole_of(self), c->type);
    }
}

/* The result is made beside inputs and outputs first: these may be the same memory. */
static void deliver(const collective *self, const char *result)
{
    const size_t size = type_size(self->calls[0].type);
    for (int r = 0; r < self->count; r++) {
        const call *c = &self->calls[r];
        const size_t place = c->kind == REDUCE_SCATTER ? (size_t)c->comm->rank * c->count : 0;
        memcpy(c->to, result + place * size,
               (c->kind == REDUCE_SCATTER ? c->count : whole_of(self)) * size);
    }
}

static void carry_out(const collective *self)
{
    const size_t size = type_size(self->calls[0].type), whole = whole_of(self);
    char *result = calloc(whole, size);
    if (!self->group->world)
        contribute(self, result);
    const uint32_t num = self->group->world ? emulated_world_processes(self->group->world) : 0;
    for (uint32_t p = 0; p < num; p++) {
        add(result, emulated_world_room(self->group->world, p, self->number), whole,
            self->calls[0].type);
    }
    deliver(self, result);
    free(result);
}

/* What this process has is there for the others, and theirs for it. */
static bool has_exchanged(const collective *self)
{
    world *all = self->group->world;
    if (!emulated_world_has_told(all, self->number)) {
        emulated_expose(-1, true);
        contribute(self, emulated_world_own_room(all, self->number));
        emulated_expose(-1, false);
        emulated_world_tell(all, self->number);
    }
    return emulated_world_all_told(all, self->number);
}

static bool member_ready(void *data)
{
    member *self = data;
    if (self->comm->aborted)
        return true;
    self->of->arrived += !self->arrived;
    self->arrived = true;
    return self->of->arrived == self->of->count && !self->of->hangs &&
           (!self->of->group->world || self->of->ran || has_exchanged(self->of));
}

static void member_run(void *data)
{
    member *self = data;
    collective *of = self->of;
    if (!of->ran && !self->comm->aborted) {
        emulated_expose(-1, true);
        carry_out(of);
        emulated_expose(-1, false);
        of->ran = true;
    }
    if (--of->left == 0)
        free(of);
}

/* The i-th call of each member's is one collective. */
static fedge_nccl_result start_one(clique *group, int index)
{
    collective *made = calloc(1, sizeof(*made));
    made->group = group;
    made->count = made->left = group->count;
    made->number = ++group->started;
    made->hangs = ++collectives == emulated_config()->hang_collective;
    group->failed = group->failed || (made->hangs && emulated_config()->nccl_async_error);
    for (int r = 0; r < group->count; r++) {
        int wanted = index;
        const call *found = NULL;
        for (int i = 0; i < num_queued && !found; i++)
            found = queued[i].comm == group->members[r] && wanted-- == 0 ? &queued[i] : NULL;
        if (!found || found->kind != queued[0].kind || found->type != queued[0].type) {
            emulated_fault("the members of a communicator call different collectives");
            free(made);
            return FEDGE_NCCL_INVALID_USAGE;
        }
        made->calls[r] = *found;
    }
    for (int r = 0; r < group->count; r++) {
        member *part = calloc(1, sizeof(*part));
        *part = (member){made, group->members[r], false};
        emulated_enqueue(made->calls[r].stream, member_ready, member_run, part, EMULATOR_LAUNCH_NS);
    }
    return FEDGE_NCCL_SUCCESS;
}

static fedge_nccl_result enter(const char *name)
{
    return emulated_enter_as(name) ? FEDGE_NCCL_UNHANDLED_CUDA_ERROR : FEDGE_NCCL_SUCCESS;
}

static fedge_nccl_result leave(fedge_nccl_result result)
{
    (void)emulated_leave(cudaSuccess);
    return result;
}

static fedge_nccl_result flush(void)
{
    fedge_nccl_result result = FEDGE_NCCL_SUCCESS;
    if (num_queued > 0) {
        clique *group = queued[0].comm->clique;
        const int each = num_queued / group->count;
        for (int i = 0; i < each && !result; i++)
            result = start_one(group, i);
        if (each * group->count != num_queued && !result) {
            if (!emulator_failed()) { /* else a member could not be called */
                emulated_fault("a group of collectives that not all members call");
            }
            result = FEDGE_NCCL_INVALID_USAGE;
        }
        num_queued = 0;
        emulated_progress();
    }
    return result;
}

static fedge_nccl_result group_start(void)
{
    const fedge_nccl_result result = enter("ncclGroupStart");
    depth += !result;
    return leave(result);
}

static clique *make_clique(int count, int size)
{
    clique *group = calloc(1, sizeof(*group));
    group->count = count;
    group->size = size;
    group->next = cliques;
    cliques = group;
    return group;
}

static void add_member(clique *group, int index, int rank, ncclComm_t *comm)
{
    *comm = group->members[index] = calloc(1, sizeof(**comm));
    **comm = (struct ncclComm){group, rank, false};
    emulated_count(1);
}

/* All members that this process has in one communicator. */
static fedge_nccl_result join_world(const init *wanted, int count)
{
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < i; j++) {
            if (wanted[i].gpu == wanted[j].gpu)
                return FEDGE_NCCL_INVALID_USAGE;
        }
    }
    clique *group = make_clique(count, wanted->size);
    group->world = emulated_world_join(&wanted->id, count, wanted->size);
    for (int i = 0; i < count; i++)
        add_member(group, i, wanted[i].rank, wanted[i].comm); /* to be ended where it failed, too */
    return group->world ? FEDGE_NCCL_SUCCESS : FEDGE_NCCL_REMOTE_ERROR;
}

static fedge_nccl_result group_end(void)
{
    fedge_nccl_result result = enter("ncclGroupEnd");
    if (depth > 0 && --depth == 0) {
        const int count = num_joining;
        num_joining = 0;
        if (!result && count > 0)
            result = join_world(joining, count);
        const fedge_nccl_result flushed = result ? result : flush();
        num_queued = 0;
        result = flushed;
    }
    return leave(result);
}

static fedge_nccl_result get_unique_id(fedge_nccl_id *id)
{
    const fedge_nccl_result result = enter("ncclGetUniqueId");
    return leave(result                       ? result
                 : emulated_world_make_id(id) ? FEDGE_NCCL_SUCCESS
                                              : FEDGE_NCCL_UNHANDLED_CUDA_ERROR);
}

static fedge_nccl_result init_rank(ncclComm_t *comm, int size, fedge_nccl_id id, int rank)
{
    fedge_nccl_result result = enter("ncclCommInitRank");
    if (result) {
        emulated_world_fail(&id); /* the others hear of it, as when connections end */
    } else if (num_joining == EMULATOR_MAX_GPUS || depth == 0) {
        emulated_fault("one thread drives all GPUs: their inits belong in a group");
        result = FEDGE_NCCL_INVALID_USAGE;
    } else {
        int gpu = 0;
        (void)cudaGetDevice(&gpu);
        joining[num_joining++] = (init){comm, id, size, rank, gpu};
    }
    return leave(result);
}

static fedge_nccl_result queue(call wanted)
{
    static const char *const NAMES[] = {"ncclReduceScatter", "ncclAllReduce", "ncclAllGather"};
    fedge_nccl_result result = enter(NAMES[wanted.kind]);
    if (!result && (num_queued == MAX_CALLS || depth == 0)) {
        emulated_fault("one thread drives all GPUs: collectives belong in a group");
        result = FEDGE_NCCL_INVALID_USAGE;
    }
    if (!result)
        queued[num_queued++] = wanted;
    return leave(result);
}

static fedge_nccl_result reduce_scatter(const void *from, void *to, size_t count,
                                        fedge_nccl_type type, int op, ncclComm_t comm,
                                        cudaStream_t stream)
{
    (void)op;
    return queue((call){REDUCE_SCATTER, from, to, count, type, comm, stream});
}

static fedge_nccl_result all_reduce(const void *from, void *to, size_t count, fedge_nccl_type type,
                                    int op, ncclComm_t comm, cudaStream_t stream)
{
    (void)op;
    return queue((call){ALL_REDUCE, from, to, count, type, comm, stream});
}

static fedge_nccl_result all_gather(const void *from, void *to, size_t count, fedge_nccl_type type,
                                    ncclComm_t comm, cudaStream_t stream)
{
    return queue((call){ALL_GATHER, from, to, count, type, comm, stream});
}

static fedge_nccl_result init_all(ncclComm_t *comms, int count, const int *gpus)
{
    fedge_nccl_result result = enter("ncclCommInitAll");
    for (int i = 0; i < count && !result; i++) {
        for (int j = 0; j < i; j++)
            result = gpus[i] == gpus[j] ? FEDGE_NCCL_INVALID_USAGE : result;
    }
    const int made = result ? 1 : count; /* one that fails may leave some behind */
    clique *group = make_clique(made, count);
    for (int i = 0; i < made; i++)
        add_member(group, i, i, &comms[i]);
    const char *ras = getenv("NCCL_RAS_ENABLE");
    if (!ras || strcmp(ras, "0") != 0)
        emulated_fault("NCCL listens on sockets of its own (NCCL_RAS_ENABLE)");
    return leave(result);
}

/* Ends what of it is under way; a destroy should find nothing. */
static fedge_nccl_result end_as(const char *name, ncclComm_t comm)
{
    const fedge_nccl_result result = enter(name);
    emulated_count(comm->aborted ? 0 : -1);
    comm->aborted = true;
    if (comm->clique->world)
        emulated_world_end(comm->clique->world);
    return leave(result);
}

static fedge_nccl_result destroy(ncclComm_t comm)
{
    return end_as("ncclCommDestroy", comm);
}

static fedge_nccl_result abort_now(ncclComm_t comm)
{
    return end_as("ncclCommAbort", comm);
}

static fedge_nccl_result get_async_error(ncclComm_t comm, fedge_nccl_result *error)
{
    const fedge_nccl_result result = enter("ncclCommGetAsyncError");
    const clique *group = comm->clique;
    const bool lost = group->world && emulated_world_has_lost(group->world, group->started);
    *error = group->failed || lost ? FEDGE_NCCL_REMOTE_ERROR : FEDGE_NCCL_SUCCESS;
    return leave(result);
}

static fedge_nccl_result get_version(int *version)
{
    *version = emulated_config()->nccl_version ? emulated_config()->nccl_version : 22809;
    return FEDGE_NCCL_SUCCESS;
}

static const char *get_error_string(fedge_nccl_result result)
{
    return result == FEDGE_NCCL_REMOTE_ERROR ? "remote process exited or there was a network error"
                                             : "unhandled cuda error";
}

/* ---- loading ----------------------------------------------------------------------------------
 */

/* Any other library is what it is. */
void *__real_dlopen(const char *name, int flags);
void *__real_dlsym(void *library, const char *name);

void *__wrap_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags)
{
    if (strncmp(name, "libnccl", 7) != 0)
        return __real_dlopen(name, flags);
    if ((flags & RTLD_NODELETE) == 0)
        emulated_fault("NCCL's threads outlive its last communicator, and its code would be gone");
    return emulated_config()->no_nccl ? NULL : queued;
}

char *__wrap_dlerror(void);
char *__wrap_dlerror(void)
{
    static char text[] = "libnccl.so.2: cannot open shared object file";
    return text;
}

int __wrap_dlclose(void *library);
int __wrap_dlclose(void *library)
{
    (void)library;
    return 0;
}

void *__wrap_dlsym(void *library, const char *name);
void *__wrap_dlsym(void *library, const char *name)
{
    static const struct {
        const char *name;
        void (*function)(void);
    } KNOWN[] = {
        {"ncclGetVersion", (void (*)(void))get_version},
        {"ncclGetErrorString", (void (*)(void))get_error_string},
        {"ncclCommInitAll", (void (*)(void))init_all},
        {"ncclGetUniqueId", (void (*)(void))get_unique_id},
        {"ncclCommInitRank", (void (*)(void))init_rank},
        {"ncclCommDestroy", (void (*)(void))destroy},
        {"ncclCommAbort", (void (*)(void))abort_now},
        {"ncclCommGetAsyncError", (void (*)(void))get_async_error},
        {"ncclGroupStart", (void (*)(void))group_start},
        {"ncclGroupEnd", (void (*)(void))group_end},
        {"ncclReduceScatter", (void (*)(void))reduce_scatter},
        {"ncclAllReduce", (void (*)(void))all_reduce},
        {"ncclAllGather", (void (*)(void))all_gather},
    };
    if (library != (void *)queued)
        return __real_dlsym(library, name);
    for (size_t i = 0; i < sizeof(KNOWN) / sizeof(KNOWN[0]); i++) {
        if (strcmp(KNOWN[i].name, name) == 0)
            return (void *)(uintptr_t)KNOWN[i].function;
    }
    return NULL;
}
