/* The runtime: memory, streams and events of N GPUs, and the failures that tests ask for. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include <cuda_runtime_api.h>

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/cuda/emulator/internal.h"

#if defined(__SANITIZE_ADDRESS__)
void __asan_poison_memory_region(const volatile void *address, size_t size);
void __asan_unpoison_memory_region(const volatile void *address, size_t size);
#define POISON __asan_poison_memory_region
#define UNPOISON __asan_unpoison_memory_region
#define PROTECT(at, access) ((void)(at)) /* poison does it, and faster */
#else
#define PROTECT(at, access) ((void)mprotect(at, ARENA, access))
#define POISON(at, size) ((void)(at), (void)(size))
#define UNPOISON(at, size) ((void)(at), (void)(size))
#endif

/* MEMORY: what an arena holds, and the margins of allocations; a GPU says that it has so much. */
enum { ARENA = 256 << 20, MEMORY = ARENA - (8 << 20), MAX_GRID = 0x7fffffff };

typedef struct block { /* of memory */
    struct block *next;
    char *at;
    size_t size;
    int gpu; /* −1: pinned memory of the host */
} block;

typedef struct work {
    struct work *next;
    bool (*ready)(void *data);
    void (*run)(void *data);
    void *data;
    uint64_t ns;
} work;

struct emulated_stream {
    struct emulated_stream *next;
    int gpu;
    work *head, **tail;
    uint64_t now_ns; /* of the work that is done */
    struct emulated_graph *recording;
};

struct emulated_event {
    uint64_t recorded, done; /* how often */
    uint32_t users;          /* itself and queued work */
    bool timed, blocks;
    uint64_t at_ns; /* on its stream, when it last came */
};

static struct {
    emulator_config config;
    bool started;
    uint64_t calls, counted; /* all, and those of fail_at */
    int64_t alive;
    char fault[400];
    block *blocks;
    struct emulated_stream *streams;
    cudaError_t sticky[EMULATOR_MAX_GPUS];
    bool blocking[EMULATOR_MAX_GPUS]; /* threads that wait for its streams block */
    size_t used[EMULATOR_MAX_GPUS];
    char *arenas[EMULATOR_MAX_GPUS]; /* addresses of each GPU's memory; kept */
} all;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local int current_gpu;

/* ---- tests' side ------------------------------------------------------------------------------
 */

bool emulator_start(const emulator_config *config)
{
    all.config = *config;
    all.started = true;
    all.calls = all.counted = 0;
    all.alive = 0;
    all.fault[0] = '\0';
    memset(all.sticky, 0, sizeof(all.sticky));
    memset(all.blocking, 0, sizeof(all.blocking));
    memset(all.used, 0, sizeof(all.used));
    current_gpu = 0;
    emulated_seed(config->seed);
    emulated_nccl_reset();
    for (int g = 0; g < EMULATOR_MAX_GPUS; g++) {
        if (all.arenas[g])
            PROTECT(all.arenas[g], PROT_READ | PROT_WRITE);
    }
    return true;
}

/* The rules of the first process that sees the variables, and of those that come after it. */
static const char *rules(void)
{
    const char *mark = getenv("FEDGE_EMULATOR_MARK");
    FILE *first = mark ? fopen(mark, "wx") : NULL;
    if (mark && !first)
        return getenv("FEDGE_EMULATOR_AGAIN");
    if (first)
        fclose(first);
    return getenv("FEDGE_EMULATOR");
}

static void start_from_environment(void)
{
    static char fail_at[32];
    const char *text = rules();
    const char *at = text ? strstr(text, "at=") : NULL;
    enum { COUNT = 9 };
    unsigned long long values[COUNT] = {1};
    static const char *const KEYS[COUNT] = {
        "gpus=", "order=", "seed=", "memory=", "fail=", "error=", "old=", "no-code=", "no-nccl="};
    for (int i = 0; text && i < COUNT; i++) {
        const char *found = strstr(text, KEYS[i]);
        values[i] = found ? strtoull(found + strlen(KEYS[i]), NULL, 10) : values[i];
    }
    (void)emulator_start(
        &(emulator_config){.num_gpus = (uint32_t)values[0],
                           .order = (emulator_order)values[1],
                           .seed = values[2],
                           .memory_bytes = values[3],
                           .fail_call = values[4],
                           .fail_at = at && sscanf(at, "at=%31s", fail_at) == 1 ? fail_at : NULL,
                           .fail_error = (int)values[5],
                           .old_chip = values[6] > 0,
                           .no_code = values[7] > 0,
                           .no_nccl = values[8] > 0});
}

uint32_t emulator_real_gpus(void)
{
    return 0;
}

uint64_t emulator_calls(void)
{
    return all.calls;
}

uint64_t emulator_counted(void)
{
    return all.counted;
}

bool emulator_failed(void)
{
    return all.config.fail_call > 0 && all.counted >= all.config.fail_call;
}

uint32_t emulator_pending(void)
{
    uint32_t count = 0;
    for (const struct emulated_stream *s = all.streams; s; s = s->next) {
        for (const work *item = s->head; item; item = item->next)
            count++;
    }
    return count;
}

uint32_t emulator_leaks(void)
{
    return (uint32_t)all.alive;
}

const char *emulator_fault(void)
{
    return all.fault[0] ? all.fault : NULL;
}

const emulator_config *emulated_config(void)
{
    return &all.config;
}

void emulated_fault(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (!all.fault[0]) {
        (void)vsnprintf(all.fault, sizeof(all.fault), format, arguments);
        (void)fprintf(stderr, "emulator: %s\n", all.fault);
    }
    va_end(arguments);
}

void emulated_count(int change)
{
    all.alive += change;
}

static bool is_sticky(cudaError_t error)
{
    return error == cudaErrorECCUncorrectable || error == cudaErrorIllegalAddress ||
           error == cudaErrorLaunchFailure;
}

/* Of a template, without what is in its brackets. */
static bool is_counted(const char *name)
{
    const char *wanted = all.config.fail_at;
    const size_t length = wanted ? strlen(wanted) : 0;
    return !wanted ||
           (strncmp(name, wanted, length) == 0 && (name[length] == '\0' || name[length] == '<'));
}

cudaError_t emulated_enter(void)
{
    return emulated_enter_as("");
}

/* As a call that waits for a peer that is gone; other threads go on. */
static void wait_for_ever(void)
{
    pthread_mutex_unlock(&lock);
    for (;;)
        (void)pause();
}

cudaError_t emulated_enter_as(const char *name)
{
    pthread_mutex_lock(&lock);
    if (!all.started)
        start_from_environment();
    return all.config.no_driver ? cudaErrorInsufficientDriver : emulated_call(name);
}

cudaError_t emulated_call(const char *name)
{
    all.calls++;
    if (is_counted(name) && ++all.counted == all.config.fail_call) {
        const cudaError_t error =
            all.config.fail_error ? (cudaError_t)all.config.fail_error : cudaErrorECCUncorrectable;
        if (all.config.fail_error == EMULATOR_HANGS)
            wait_for_ever();
        if (all.config.fail_error == EMULATOR_DIES)
            (void)raise(SIGKILL);
        if (is_sticky(error))
            all.sticky[current_gpu] = error;
        return error;
    }
    return all.sticky[current_gpu];
}

cudaError_t emulated_leave(cudaError_t error)
{
    pthread_mutex_unlock(&lock);
    return error;
}

/* ---- memory -----------------------------------------------------------------------------------
 */

/* The one that is found goes to the front: the race detector asks for the same few all the time. */
static block *find(const void *address, size_t size)
{
    const char *at = address;
    for (block **place = &all.blocks; *place; place = &(*place)->next) {
        block *b = *place;
        if (at >= b->at && size <= b->size && (size_t)(at - b->at) <= b->size - size) {
            *place = b->next;
            b->next = all.blocks;
            all.blocks = b;
            return b;
        }
    }
    return NULL;
}

bool emulated_is_device(const void *address, size_t size)
{
    const block *b = find(address, size);
    return b && b->gpu >= 0;
}

/* The host cannot read a GPU's memory, nor can another GPU: it is open only while work of that GPU
 * runs, or of all of them (-1). */
void emulated_expose(int gpu, bool open)
{
    for (int g = 0; g < (int)all.config.num_gpus && !all.config.unprotected; g++) {
        if (all.arenas[g] && (gpu < 0 || g == gpu))
            PROTECT(all.arenas[g], open ? PROT_READ | PROT_WRITE : PROT_NONE);
    }
    for (const block *b = all.config.unprotected ? NULL : all.blocks; b; b = b->next) {
        if (b->gpu >= 0 && (gpu < 0 || b->gpu == gpu)) {
            if (open)
                UNPOISON(b->at, b->size);
            else
                POISON(b->at, b->size);
        }
    }
}

/* The first gap of the GPU's arena that has room, with a margin on both sides. */
static char *find_gap(int gpu, size_t size)
{
    if (!all.arenas[gpu]) {
        all.arenas[gpu] = mmap(NULL, ARENA, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    }
    char *at = all.arenas[gpu] + 256;
    for (const block *b = all.blocks; b;) {
        const bool meets = b->gpu == gpu && at < b->at + b->size + 256 && b->at < at + size + 256;
        at = meets ? b->at + (b->size + 511) / 256 * 256 : at;
        b = meets ? all.blocks : b->next;
    }
    return at + size <= all.arenas[gpu] + ARENA ? at : NULL;
}

static cudaError_t allocate(void **pointer, size_t size, int gpu)
{
    char *at = gpu < 0 ? aligned_alloc(256, (size + 255) / 256 * 256) : find_gap(gpu, size);
    if (!at)
        return cudaErrorMemoryAllocation;
    block *b = calloc(1, sizeof(*b));
    *b = (block){all.blocks, at, size, gpu};
    emulated_expose(gpu < 0 ? EMULATOR_MAX_GPUS : gpu, true);
    POISON(at - (gpu < 0 ? 0 : 256), gpu < 0 ? 0 : size + 512);
    UNPOISON(at, size);
    memset(at, 0xA5, size);
    all.blocks = b;
    all.used[gpu < 0 ? 0 : gpu] += gpu < 0 ? 0 : size;
    all.alive++;
    emulated_expose(gpu < 0 ? EMULATOR_MAX_GPUS : gpu, false);
    *pointer = b->at;
    return cudaSuccess;
}

static cudaError_t release(void *pointer, bool pinned)
{
    block **place = &all.blocks;
    while (*place && (*place)->at != pointer)
        place = &(*place)->next;
    block *b = *place;
    if (!b || (b->gpu < 0) != pinned) {
        emulated_fault("memory is freed that was not allocated so, or twice");
        return cudaErrorInvalidValue;
    }
    *place = b->next;
    all.used[b->gpu < 0 ? 0 : b->gpu] -= b->gpu < 0 ? 0 : b->size;
    all.alive--;
    if (b->gpu < 0)
        free(b->at);
    free(b);
    return cudaSuccess;
}

static size_t memory_of_gpu(void)
{
    return all.config.memory_bytes > 0 ? all.config.memory_bytes : MEMORY;
}

cudaError_t cudaMalloc(void **pointer, size_t size)
{
    cudaError_t error = emulated_enter_as("allocation");
    const size_t most = memory_of_gpu();
    if (!error && (size > most || all.used[current_gpu] > most - size))
        error = cudaErrorMemoryAllocation;
    return emulated_leave(error ? error : allocate(pointer, size, current_gpu));
}

cudaError_t cudaHostAlloc(void **pointer, size_t size, unsigned flags)
{
    (void)flags;
    const cudaError_t error = emulated_enter_as("allocation");
    return emulated_leave(error ? error : allocate(pointer, size, -1));
}

/* Freeing waits for the GPU, and succeeds as far as leaks go even when the GPU is lost. */
static cudaError_t free_memory(void *pointer, bool pinned)
{
    const cudaError_t error = emulated_enter();
    if (!pointer || error == cudaErrorInsufficientDriver)
        return emulated_leave(error);
    const cudaError_t freed = release(pointer, pinned);
    return emulated_leave(error ? error : freed);
}

cudaError_t cudaFree(void *pointer)
{
    return free_memory(pointer, false);
}

cudaError_t cudaFreeHost(void *pointer)
{
    return free_memory(pointer, true);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    const cudaError_t error = emulated_enter_as("memory");
    *total_bytes = memory_of_gpu();
    *free_bytes = *total_bytes - all.used[current_gpu];
    return emulated_leave(error);
}

/* ---- streams ----------------------------------------------------------------------------------
 */

/* Does the first work of a stream, if it can be done. */
static bool advance(struct emulated_stream *stream)
{
    work *first = stream->head;
    if (!first || (first->ready && !first->ready(first->data)))
        return false;
    stream->head = first->next;
    if (!stream->head)
        stream->tail = &stream->head;
    stream->now_ns += first->ns;
    first->run(first->data);
    free(first->data);
    free(first);
    return true;
}

/* One step of any stream, a drawn one first. */
static bool advance_any(void)
{
    uint32_t count = 0;
    for (struct emulated_stream *s = all.streams; s; s = s->next)
        count++;
    uint32_t skip = count ? emulated_random(count) : 0;
    struct emulated_stream *at = all.streams;
    while (skip-- > 0)
        at = at->next;
    for (uint32_t i = 0; i < count; i++) {
        if (advance(at))
            return true;
        at = at->next ? at->next : all.streams;
    }
    return false;
}

void emulated_progress(void)
{
    uint32_t steps = all.config.order == EMULATOR_RANDOM ? emulated_random(5) : 0;
    while ((all.config.order == EMULATOR_EAGER || steps-- > 0) && advance_any()) {
    }
}

void emulated_enqueue(cudaStream_t stream, bool (*ready)(void *), void (*run)(void *), void *data,
                      uint64_t ns)
{
    work *made = calloc(1, sizeof(*made));
    *made = (work){NULL, ready, run, data, ns};
    if (stream->recording) { /* an event's or a collective's: fedge captures neither */
        emulated_fault("work that waits for others is given to a stream that is being captured");
    }
    *stream->tail = made;
    stream->tail = &made->next;
}

/* Until the stream is empty, or the event has come. */
static cudaError_t wait_for(struct emulated_stream *stream, const struct emulated_event *event)
{
    if (stream && stream->recording) {
        emulated_fault("the host waits for a stream that is being captured");
        return cudaErrorStreamCaptureUnsupported;
    }
    if (!(stream ? all.blocking[stream->gpu] : event->blocks))
        emulated_fault("a thread that waits for a GPU spins, and keeps a core busy");
    while (stream ? stream->head != NULL : event->done < event->recorded) {
        const bool moved = (stream && emulated_random(2) && advance(stream)) || advance_any();
        if (!moved) {
            emulated_fault("the host waits for work that never ends");
            return cudaErrorUnknown;
        }
    }
    return all.sticky[current_gpu];
}

struct emulated_graph **emulated_recording(cudaStream_t stream)
{
    return &stream->recording;
}

static bool is_here(cudaStream_t stream)
{
    if (!stream || stream->gpu != current_gpu) {
        emulated_fault("work is given to a stream of another GPU than the current one");
        return false;
    }
    return true;
}

typedef struct launch {
    emulated_kernel kernel;
    int gpu;
    _Alignas(16) unsigned char closure[];
} launch;

static void run_launch(void *data)
{
    launch *self = data;
    self->kernel.closure = self->closure;
    emulated_expose(self->gpu, true);
    if (!emulated_run(&self->kernel))
        all.sticky[self->gpu] = cudaErrorLaunchFailure;
    emulated_expose(self->gpu, false);
}

cudaError_t emulated_launch(const char *name, const cudaLaunchConfig_t *config,
                            void (*body)(const void *), const void *closure, size_t size);
cudaError_t emulated_launch(const char *name, const cudaLaunchConfig_t *config,
                            void (*body)(const void *), const void *closure, size_t size)
{
    cudaError_t error = emulated_enter_as(name);
    const dim3 g = config->gridDim, b = config->blockDim;
    if (error || !is_here(config->stream))
        return emulated_leave(error ? error : cudaErrorInvalidResourceHandle);
    if (all.config.no_code)
        return emulated_leave(cudaErrorNoKernelImageForDevice);
    if (!g.x || g.x > MAX_GRID || !g.y || g.y > 65535 || !g.z || !b.x || b.x > 1024 || !b.y ||
        b.y > 1024 || !b.z || b.x * b.y * b.z > 1024 || config->dynamicSmemBytes > 48 << 10)
        return emulated_leave(cudaErrorInvalidConfiguration);
    launch *made = malloc(sizeof(*made) + size);
    made->gpu = current_gpu;
    made->kernel = (emulated_kernel){g, b, config->dynamicSmemBytes, body, NULL};
    memcpy(made->closure, closure, size);
    emulated_add(config->stream, name, (emulated_work){run_launch, EMULATOR_LAUNCH_NS}, made,
                 sizeof(*made) + size);
    free(made);
    return emulated_leave(cudaSuccess);
}

typedef struct copy {
    void *to;
    const void *from; /* NULL: filled with value */
    size_t size;
    int value, gpu;
} copy;

static void run_copy(void *data)
{
    const copy *self = data;
    emulated_expose(self->gpu, true);
    if (self->from)
        memmove(self->to, self->from, self->size);
    else
        memset(self->to, self->value, self->size);
    emulated_expose(self->gpu, false);
}

static cudaError_t add_copy(const char *name, copy wanted, cudaStream_t stream)
{
    const cudaError_t error = emulated_enter_as(name);
    if (error || !is_here(stream))
        return emulated_leave(error ? error : cudaErrorInvalidResourceHandle);
    if (!find(wanted.to, wanted.size) || (wanted.from && !find(wanted.from, wanted.size))) {
        emulated_fault("a copy of %zu bytes outside memory that is on a GPU or pinned",
                       wanted.size);
        return emulated_leave(cudaErrorInvalidValue);
    }
    const emulated_work made = {run_copy, wanted.from ? wanted.size : 0};
    emulated_add(stream, name, made, &wanted, sizeof(wanted));
    return emulated_leave(cudaSuccess);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    return add_copy(kind == cudaMemcpyHostToDevice ? "copy" : "read",
                    (copy){to, from, size, 0, current_gpu}, stream);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t size, cudaStream_t stream)
{
    return add_copy("fill", (copy){to, NULL, size, value, current_gpu}, stream);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    const cudaError_t error = emulated_enter();
    (void)flags;
    if (!error) {
        *stream = calloc(1, sizeof(**stream));
        **stream =
            (struct emulated_stream){all.streams, current_gpu, NULL, &(*stream)->head, 0, NULL};
        all.streams = *stream;
        all.alive++;
    }
    return emulated_leave(error);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    const cudaError_t error = emulated_enter();
    struct emulated_stream **place = &all.streams;
    while (*place != stream)
        place = &(*place)->next;
    while (stream->head && advance_any()) {
    }
    while (stream->head) { /* of a collective that hangs */
        work *first = stream->head;
        stream->head = first->next;
        free(first->data);
        free(first);
    }
    *place = stream->next;
    free(stream);
    all.alive--;
    return emulated_leave(error);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    const cudaError_t error = emulated_enter();
    return emulated_leave(error ? error : wait_for(stream, NULL));
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    const cudaError_t error = emulated_enter();
    if (!error && stream->head)
        (void)advance_any();
    return emulated_leave(error          ? error
                          : stream->head ? cudaErrorNotReady
                                         : all.sticky[stream->gpu]);
}

cudaError_t cudaDeviceSynchronize(void)
{
    cudaError_t error = emulated_enter();
    for (struct emulated_stream *s = all.streams; s && !error; s = s->next)
        error = s->gpu == current_gpu ? wait_for(s, NULL) : cudaSuccess;
    return emulated_leave(error);
}

/* ---- events -----------------------------------------------------------------------------------
 */

typedef struct mark {
    struct emulated_event *event;
    struct emulated_stream *stream;
    uint64_t number; /* of the record */
} mark;

static void unuse(struct emulated_event *event)
{
    if (--event->users == 0)
        free(event);
}

static void run_record(void *data)
{
    mark *self = data;
    self->event->done = self->number > self->event->done ? self->number : self->event->done;
    self->event->at_ns = self->stream->now_ns;
    unuse(self->event);
}

static bool has_come(void *data)
{
    const mark *self = data;
    return self->event->done >= self->number;
}

static void run_wait(void *data)
{
    const mark *self = data;
    const uint64_t at_ns = self->event->at_ns;
    self->stream->now_ns = at_ns > self->stream->now_ns ? at_ns : self->stream->now_ns;
    unuse(self->event);
}

static cudaError_t add_mark(cudaEvent_t event, cudaStream_t stream, bool record)
{
    const cudaError_t error = emulated_enter();
    if (error || (record && !is_here(stream)))
        return emulated_leave(error ? error : cudaErrorInvalidResourceHandle);
    mark *made = malloc(sizeof(*made));
    event->recorded += record;
    event->users++;
    *made = (mark){event, stream, event->recorded};
    emulated_enqueue(stream, record ? NULL : has_come, record ? run_record : run_wait, made, 0);
    emulated_progress();
    return emulated_leave(cudaSuccess);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    return add_mark(event, stream, true);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    (void)flags;
    return add_mark(event, stream, false);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    const cudaError_t error = emulated_enter();
    if (!error) {
        *event = calloc(1, sizeof(**event));
        (*event)->timed = (flags & cudaEventDisableTiming) == 0;
        (*event)->blocks = (flags & cudaEventBlockingSync) != 0;
        (*event)->users = 1;
        all.alive++;
    }
    return emulated_leave(error);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    const cudaError_t error = emulated_enter();
    unuse(event);
    all.alive--;
    return emulated_leave(error);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    const cudaError_t error = emulated_enter();
    return emulated_leave(error ? error : wait_for(NULL, event));
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    const cudaError_t error = emulated_enter();
    if (!error && event->done < event->recorded)
        (void)advance_any();
    return emulated_leave(error                           ? error
                          : event->done < event->recorded ? cudaErrorNotReady
                                                          : cudaSuccess);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    cudaError_t error = emulated_enter();
    if (!error && (!start->timed || !end->timed || !start->recorded || !end->recorded)) {
        emulated_fault("a time between events that do not measure, or were not recorded");
        error = cudaErrorInvalidResourceHandle;
    }
    if (!error && (start->done < start->recorded || end->done < end->recorded))
        error = cudaErrorNotReady;
    *ms = error ? 0.0f : (float)((double)end->at_ns - (double)start->at_ns) * 1e-6f;
    return emulated_leave(error);
}

/* ---- devices ------------------------------------------------------------------------
 */

cudaError_t cudaGetDeviceCount(int *count)
{
    cudaError_t error = emulated_enter_as("counting");
    *count = (int)all.config.num_gpus;
    return emulated_leave(error ? error : *count == 0 ? cudaErrorNoDevice : cudaSuccess);
}

/* Without a driver too. */
cudaError_t cudaDriverGetVersion(int *version)
{
    *version = all.config.no_driver ? all.config.driver_version : CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    cudaError_t error = emulated_enter_as("choosing");
    if (error == cudaErrorInsufficientDriver || device < 0 || device >= (int)all.config.num_gpus)
        return emulated_leave(error ? error : cudaErrorInvalidDevice);
    error = error && error != all.sticky[current_gpu] ? error : all.sticky[device];
    current_gpu = device;
    return emulated_leave(error);
}

cudaError_t cudaSetDeviceFlags(unsigned flags)
{
    const cudaError_t error = emulated_enter();
    if (!error)
        all.blocking[current_gpu] = (flags & cudaDeviceScheduleBlockingSync) != 0;
    return emulated_leave(error);
}

cudaError_t cudaGetDevice(int *device)
{
    *device = current_gpu;
    return cudaSuccess;
}
