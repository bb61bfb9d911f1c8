/* How long a GPU works, and at what: spans of work on a stream, measured by events around it.
 */
#ifndef FEDGE_AGGREGATOR_REDUCE_CUDA_SPAN_H
#define FEDGE_AGGREGATOR_REDUCE_CUDA_SPAN_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

/* What work is for. Spans on several streams may overlap: each counts. */
typedef enum fedge_cuda_work {
    FEDGE_CUDA_COPY,   /* updates, to the GPU */
    FEDGE_CUDA_DECODE, /* they are checked and laid out */
    FEDGE_CUDA_REDUCE, /* they are added to the sums, and GPUs join theirs */
    FEDGE_CUDA_STEP,   /* the step, with its values on their way */
    FEDGE_CUDA_NUM_WORKS
} fedge_cuda_work;

typedef struct fedge_cuda_times {
    _Atomic uint64_t ns[FEDGE_CUDA_NUM_WORKS];
} fedge_cuda_times;

/* One span at a time, in one or two parts. */
typedef struct fedge_cuda_span {
    cudaEvent_t begun, turned; /* turned: where the second part begins */
    cudaEvent_t done;          /* of the last one; has come when there was none */
    fedge_cuda_work first, second;
    bool turns;  /* there is a second part */
    bool counts; /* it has ended, and is not in the times yet */
} fedge_cuda_span;

cudaError_t fedge_cuda_span_init(fedge_cuda_span *span); /* all zero at first */
void fedge_cuda_span_fini(fedge_cuda_span *span);        /* also after a failed init */

/* Queued on [stream], before, within and behind the work. */
cudaError_t fedge_cuda_span_begin(fedge_cuda_span *span, fedge_cuda_work first,
                                  cudaStream_t stream);
cudaError_t fedge_cuda_span_turn(fedge_cuda_span *span, fedge_cuda_work second,
                                 cudaStream_t stream);
cudaError_t fedge_cuda_span_end(fedge_cuda_span *span, cudaStream_t stream);

/* Adds a span that is done to [times], once; one that is not is left for the next call. */
cudaError_t fedge_cuda_span_count(fedge_cuda_span *span, fedge_cuda_times *times);

#endif
