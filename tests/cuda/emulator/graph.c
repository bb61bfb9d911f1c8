/* Graphs: what is given to a stream that is being captured is kept, and queued whenever the graph
 * is launched. Each node counts as a call of its name then too (fail_at). */
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/emulator/internal.h"

typedef struct node {
    struct node *next;
    const char *name;
    emulated_work work;
    size_t size;
    _Alignas(16) unsigned char data[];
} node;

struct emulated_graph {
    node *first, **last;
};

static struct emulated_graph *make_graph(void)
{
    struct emulated_graph *made = calloc(1, sizeof(*made));
    made->last = &made->first;
    emulated_count(1);
    return made;
}

static void add_node(struct emulated_graph *graph, const char *name, emulated_work work,
                     const void *data, size_t size)
{
    node *made = malloc(sizeof(*made) + size);
    *made = (node){NULL, name, work, size};
    memcpy(made->data, data, size);
    *graph->last = made;
    graph->last = &made->next;
}

static void free_graph(struct emulated_graph *graph)
{
    while (graph->first) {
        node *first = graph->first;
        graph->first = first->next;
        free(first);
    }
    free(graph);
    emulated_count(-1);
}

void emulated_add(cudaStream_t stream, const char *name, emulated_work work, const void *data,
                  size_t size)
{
    struct emulated_graph *recording = *emulated_recording(stream);
    if (recording) {
        add_node(recording, name, work, data, size);
        return;
    }
    void *copy = malloc(size);
    memcpy(copy, data, size);
    emulated_enqueue(stream, NULL, work.run, copy, work.ns);
    emulated_progress();
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    const cudaError_t error = emulated_enter_as("cudaStreamBeginCapture");
    (void)mode;
    if (!error)
        *emulated_recording(stream) = make_graph();
    return emulated_leave(error);
}

/* A capture ends even where the call fails, and then has no graph. */
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    const cudaError_t error = emulated_enter_as("cudaStreamEndCapture");
    struct emulated_graph **recording = emulated_recording(stream);
    *graph = error ? NULL : *recording;
    if (error && *recording)
        free_graph(*recording);
    *recording = NULL;
    return emulated_leave(error);
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph,
                                          unsigned long long flags)
{
    const cudaError_t error = emulated_enter_as("cudaGraphInstantiate");
    (void)flags;
    if (!error) {
        *exec = make_graph();
        for (const node *n = graph->first; n; n = n->next)
            add_node(*exec, n->name, n->work, n->data, n->size);
    }
    return emulated_leave(error);
}

/* Refused as a whole: where one of its kernels fails, none has begun. */
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    cudaError_t error = emulated_enter_as("cudaGraphLaunch");
    for (const node *n = error ? NULL : exec->first; n && !error; n = n->next)
        error = emulated_call(n->name);
    for (const node *n = error ? NULL : exec->first; n; n = n->next)
        emulated_add(stream, n->name, n->work, n->data, n->size);
    return emulated_leave(error);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    const cudaError_t error = emulated_enter();
    free_graph(graph);
    return emulated_leave(error);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    const cudaError_t error = emulated_enter();
    free_graph(exec);
    return emulated_leave(error);
}
