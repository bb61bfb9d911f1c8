/* Graphs: what the GPU is given for each step is recorded once, and launched again as one. Only the
 * driver's work for each launch is saved: the kernels, their order and their bits are the same. */
#include "edge/train/cuda/cohort_internal.h"

/* Without graphs everything goes on as before, so what a driver, a tool that watches it or the
 * memory for graphs has against them is no reason to end. */
static bool does_without(cudaError_t error)
{
    return error == cudaErrorMemoryAllocation || error == cudaErrorNotSupported ||
           (error >= cudaErrorStreamCaptureUnsupported &&
            error <= cudaErrorStreamCaptureWrongThread);
}

static cudaError_t record(const fedge_cohort *cohort, fedge_cohort_queue_fn queue, const void *user,
                          cudaGraphExec_t *exec)
{
    cudaGraph_t graph = NULL;
    /* Other threads have cohorts of their own, which may take memory meanwhile. */
    cudaError_t error = cudaStreamBeginCapture(cohort->stream, cudaStreamCaptureModeThreadLocal);
    if (error != cudaSuccess)
        return error;
    const cudaError_t queued = queue(user);
    error = cudaStreamEndCapture(cohort->stream, &graph); /* also when a launch has failed */
    error = queued == cudaSuccess ? error : queued;
    if (error == cudaSuccess)
        error = cudaGraphInstantiateWithFlags(exec, graph, 0);
    if (graph)
        (void)cudaGraphDestroy(graph);
    return error;
}

cudaError_t fedge_cohort_repeat(fedge_cohort *cohort, uint32_t which, fedge_cohort_queue_fn queue,
                                const void *user)
{
    fedge_cohort_graph *graph = &cohort->graphs[which];
    cudaError_t error = cudaSuccess;
    /* The first time all kernels are loaded, which a capture may not do. */
    if (cohort->no_graphs || !graph->seen) {
        graph->seen = true;
        return queue(user);
    }
    if (!graph->exec)
        error = record(cohort, queue, user, &graph->exec);
    if (error == cudaSuccess)
        error = cudaGraphLaunch(graph->exec, cohort->stream);
    if (!does_without(error))
        return error;
    fedge_cohort_forget_graphs(cohort);
    cohort->no_graphs = true;
    (void)cudaGetLastError();
    return queue(user);
}

void fedge_cohort_forget_graphs(fedge_cohort *cohort)
{
    for (uint32_t i = 0; i < FEDGE_COHORT_MAX_GRAPHS; i++) {
        if (cohort->graphs[i].exec)
            (void)cudaGraphExecDestroy(cohort->graphs[i].exec);
        cohort->graphs[i] = (fedge_cohort_graph){0};
    }
}
