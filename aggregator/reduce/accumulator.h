/* Accumulators sum a round's updates and take the step, on a CPU or a machine's GPUs.
 *
 * An accumulator holds int64 sums, whatever the number of clients. It takes encoded updates as they
 * arrived, after inflate, and decodes them on the hardware that sums them:
 *
 *     validate  reads the update once and checks every value
 *     add       sum[i] += weight · v[i] for a batch of validated updates, in one pass
 *     step      values[i] += (float)(rate · (sum[i] / W · 2^−F))
 *
 * Sums are integers (edge/core/fixed.h), so the result does not depend on order, threads, batches,
 * the kind of accumulator, or the assignment of updates to GPUs. A kind is one entry of a table;
 * nothing else in the tree knows its name.
 *
 * Threads: validate, add, wait, drop, begin and add_values may be called from any number of threads
 * at once. For any other call all tickets must have been waited for and no other call may run.
 *
 * Any call may return FEDGE_GPU_LOST with the GPU's number in the message. That is final: the
 * process has to restart with the remaining GPUs. FEDGE_NO_MEMORY is as final unless a call below
 * says otherwise, but the GPU is sound and may have enough memory after a restart.
 */
#ifndef FEDGE_AGGREGATOR_REDUCE_ACCUMULATOR_H
#define FEDGE_AGGREGATOR_REDUCE_ACCUMULATOR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "aggregator/reduce/collective.h"
#include "aggregator/reduce/optimizer.h"
#include "aggregator/reduce/tile.h"
#include "edge/core/codec/codec.h"
#include "edge/core/log.h"
#include "edge/core/status.h"
#include "edge/core/tensor.h"

/* ---- GPUs lost at work ----------------------------------------------------------------------- */

/* The GPUs that earlier processes of this program lost at work. Lies in memory that the processes
 * share, all zero at first. Thread-safe. */
typedef struct fedge_lost_gpus {
    _Atomic uint64_t numbers; /* bit mask of the driver's numbers, 0 to 63 */
    _Atomic uint32_t there; /* number of GPUs that the driver had then. When it differs now, numbers
                               may mean other GPUs, and [numbers] is ignored */
} fedge_lost_gpus;

/* Allows gpus (num_gpus) to be used again; num_gpus 0: all. [lost] may be NULL. */
static inline void fedge_lost_gpus_forget(fedge_lost_gpus *lost, const uint32_t *gpus,
                                          uint32_t num_gpus)
{
    uint64_t others = num_gpus > 0 ? UINT64_MAX : 0;
    for (uint32_t i = 0; i < num_gpus; i++)
        others &= gpus[i] < 64 ? ~(UINT64_C(1) << gpus[i]) : UINT64_MAX;
    if (lost)
        (void)atomic_fetch_and(&lost->numbers, others);
}

/* ---- scatters -------------------------------------------------------------------------------- */

/* A reduce-scatter: adds up the sums of several ranks in the accumulators' memory, so that each
 * rank gets the total of its shard. A kind of accumulator may have one; all kinds can use the
 * host's memory and MPI instead (distributed_accumulator.h).
 *
 * accumulator: the state of an open accumulator, which must outlive the scatter. */
typedef struct fedge_scatter_ops {
    const char *name; /* such as "nccl" */

    /* Checks that this rank has the hardware and libraries; else the message names what is missing.
     * [release] must be the same on all ranks. */
    fedge_status (*prepare)(void *accumulator, char release[FEDGE_COLLECTIVE_FACT_TEXT],
                            fedge_error *err);
    /* All ranks call it together, for [num_elements] sums. *state is NULL on failure; a single rank
     * may fail. */
    fedge_status (*open)(void *accumulator, const fedge_collective *ranks, size_t num_elements,
                         void **state, fedge_error *err);
    void (*close)(void *state); /* waits for no other rank; NULL is fine */
    /* All ranks call it together. In sums (num_elements) those of the rank's shard become the sums
     * over all ranks; the others stay. FEDGE_GPU_LOST, of this or another rank: the process must
     * end. */
    fedge_status (*sum)(void *state, int64_t *sums, fedge_error *err);
} fedge_scatter_ops;

/* ---- accumulators ---------------------------------------------------------------------------- */

#define FEDGE_ACCUMULATOR_MAX_SECTIONS 16
#define FEDGE_ACCUMULATOR_MAX_BATCH 16 /* most updates of one add */
#define FEDGE_ACCUMULATOR_MAX_GPUS 64
#define FEDGE_ACCUMULATOR_MAX_LANES 256
#define FEDGE_ACCUMULATOR_MAX_DESCRIPTION ((size_t)192 * FEDGE_ACCUMULATOR_MAX_GPUS) /* bytes */

/* Consecutive tensors with one codec. */
typedef struct fedge_update_layout_section {
    fedge_codec codec;
    const fedge_schema *schema; /* its offsets are those in the block of all sections */
} fedge_update_layout_section;

/* The layout of an encoded update: its sections in order, as fedge_codec_encode_chunks writes them.
 */
typedef struct fedge_update_layout {
    uint32_t num_sections; /* 1 to FEDGE_ACCUMULATOR_MAX_SECTIONS */
    fedge_update_layout_section sections[FEDGE_ACCUMULATOR_MAX_SECTIONS];
    size_t num_elements; /* elements of all sections: the length of the sums */
    size_t size;         /* most bytes of an encoded update */
} fedge_update_layout;

/* One encoded update. It stays valid and unchanged from validate until add returns or drop is
 * called; its bytes only until validate returns when that sets [copied]. */
typedef struct fedge_encoded {
    const uint8_t *bytes;  /* NULL: [read] reads them, and all sections have fixed sizes */
    const uint64_t *sizes; /* bytes of each section; NULL: each has its maximum */
    /* Reads the bytes [offset, offset + size). A pass over the update asks for ascending offsets;
     * the next pass begins at 0 again. */
    fedge_status (*read)(void *user, uint64_t offset, uint8_t *bytes, size_t size,
                         fedge_error *err);
    void *user;
    const int8_t *bounds_log2; /* b of each tensor, over all sections */
    uint32_t weight;           /* ≥ 1 */
    void *staged; /* state of the accumulator, from validate until add or drop; NULL at first */
    bool copied; /* set by validate: the accumulator has a copy and does not read the bytes again */
} fedge_encoded;

/* One tensor's values and the sums that move them. An accumulator may cache the values of its last
 * step on the GPU and use them in the next one while they are [unchanged]. */
typedef struct fedge_step_part {
    size_t first; /* index of its first sum */
    size_t count;
    int bound_log2; /* F = 30 − b */
    double rate;    /* the strategy's rate, such as FedAvg's η_s */
    float *values;  /* (count) values on the host, moved in place */
    bool unchanged; /* only this accumulator's last step has written values and moments */
    const fedge_optimizer_step *optimizer; /* NULL: values[i] += (float)(rate · mean). Needs a kind
                                              with [optimizes] */
    float *moments[2]; /* optimizer->num_moments of (count) each, on the host; moved in place */
} fedge_step_part;

/* How several GPUs divide the work: by updates, or by coordinates of all updates. */
typedef enum fedge_shard {
    FEDGE_SHARD_AUTO,
    FEDGE_SHARD_CLIENTS,
    FEDGE_SHARD_COORDINATES
} fedge_shard;

typedef struct fedge_accumulator_config {
    const fedge_update_layout *layout; /* copied; its schemas outlive the accumulator */
    uint32_t num_lanes; /* CPU: blocks of sums, 1 to FEDGE_ACCUMULATOR_MAX_LANES. More of them make
                           threads wait less for each other; the step adds them up */
    uint32_t num_gpus;  /* length of gpus[]; 0: all usable GPUs */
    uint32_t gpus[FEDGE_ACCUMULATOR_MAX_GPUS]; /* the driver's GPU numbers */
    bool skip_missing;     /* leave out unusable ones of gpus[], as after a loss, and log it */
    fedge_lost_gpus *lost; /* other GPUs to leave out; new losses are added. May be NULL */
    fedge_shard shard;
    const char *join; /* method that adds up the sums of ranks: "mpi", the name of a scatter, or
                         "auto", also NULL (distributed_accumulator.h) */
    bool in_place;    /* the caller adds to sums by device_pointer, so few slots for updates suffice
                       */
    bool distributed; /* sums are added to those of other ranks, whose hosts take the steps */
    unsigned num_moments;   /* moments of step's optimizer, 0 to 2, for which memory is reserved */
    uint64_t robust_memory; /* bytes of memory for strategies that read single updates; not used by
                               the accumulator itself */
    const fedge_log *log;   /* log of the selection and its reasons, or NULL; outlives it */
    /* Called on a separate thread when a call to a GPU does not return, with FEDGE_GPU_LOST and the
     * GPU. It must end the process. NULL: such calls are waited for. */
    void (*stuck)(const fedge_error *err);
} fedge_accumulator_config;

typedef struct fedge_accumulator_totals {
    uint64_t total_weight; /* Σ w of the added updates */
    uint32_t num_updates;
} fedge_accumulator_totals;

/* The work of one GPU since it was opened. */
typedef struct fedge_gpu_stats {
    uint32_t gpu;           /* the driver's GPU number */
    uint64_t memory_bytes;  /* bytes allocated on it */
    uint64_t decoded_bytes; /* bytes of encoded updates that it summed */
    /* Seconds of work: copying updates to it; checking and decoding them; adding to the sums,
     * including those of other GPUs; the steps. Overlapping work counts each time. */
    double seconds_copy, seconds_decode, seconds_reduce, seconds_step;
} fedge_gpu_stats;

typedef struct fedge_accumulator_ops {
    const char *name; /* such as "cpu" or "cuda" */
    bool optimizes;   /* step supports optimizers */

    /* Whether it can sum updates of this layout; called before open and forecast.
     * FEDGE_INVALID_ARGUMENT names the codec that it cannot. NULL: it can sum all. */
    fedge_status (*can_sum)(const fedge_update_layout *layout, fedge_error *err);

    /* Opens with all sums 0. FEDGE_NOT_FOUND: the message names hardware, driver or library that
     * the machine lacks. FEDGE_NO_MEMORY: it does not fit. *state is NULL on failure. */
    fedge_status (*open)(const fedge_accumulator_config *config, void **state, fedge_error *err);
    void (*close)(void *state); /* NULL is fine */

    /* FEDGE_NOT_FINITE, FEDGE_OUT_OF_RANGE and FEDGE_CORRUPT name the first bad value as
     * fedge_codec_decode does. Errors of [read] are returned. */
    fedge_status (*validate)(void *state, fedge_encoded *update, fedge_error *err);
    /* Adds [count] ≤ FEDGE_ACCUMULATOR_MAX_BATCH validated updates, all with the same bounds.
     * FEDGE_OUT_OF_RANGE, with nothing added, when the total weight would exceed
     * FEDGE_FIXED_MAX_TOTAL_WEIGHT or a weight is 0. After any other failure the sums are
     * undefined. */
    fedge_status (*add)(void *state, fedge_encoded *const *updates, uint32_t count,
                        uint64_t *ticket, fedge_error *err);
    /* Waits until the updates of [ticket] are summed. */
    fedge_status (*wait)(void *state, uint64_t ticket, fedge_error *err);
    void (*drop)(void *state, fedge_encoded *update); /* frees a validated update, not added */

    /* Add an update in fixed point (|v| ≤ 2^30) that comes in chunks, with the errors of add. begin
     * counts the update and its weight; add_values then adds each value once: v (count) from
     * [first] on. lane < num_lanes; threads on the same lane wait for each other. */
    fedge_status (*begin)(void *state, uint32_t weight, fedge_error *err);
    fedge_status (*add_values)(void *state, uint32_t lane, const int32_t *v, size_t first,
                               size_t count, uint32_t weight, fedge_error *err);

    /* Sets *sums to the device pointer of sum [first] on [gpu] (the driver's number); the other
     * sums of its tensor follow. The caller may add to them until the next call of anything but
     * begin, which counts the update. FEDGE_UNSUPPORTED: the sums are not on that GPU. NULL: the
     * kind has no sums on GPUs. */
    fedge_status (*device_pointer)(void *state, uint32_t gpu, size_t first, int64_t **sums,
                                   fedge_error *err);

    void (*totals)(const void *state, fedge_accumulator_totals *totals);
    /* Reads sums (count) from [first] on. */
    fedge_status (*read)(void *state, size_t first, size_t count, int64_t *sums, fedge_error *err);
    /* Takes fedge_fixed_step, or the optimizer's step, of each part with the total weight, which
     * must not be 0. All kinds give the same bits. After a failure the values are undefined, except
     * after FEDGE_UNSUPPORTED: the GPUs lack memory for the optimizer's moments, which the log says
     * once. */
    fedge_status (*step)(void *state, const fedge_step_part *parts, uint32_t num_parts,
                         fedge_error *err);
    fedge_status (*reset)(void *state, fedge_error *err); /* sets sums and totals to 0 */

    /* Adds up the sums of several ranks in the accumulators' memory; NULL: the host does. */
    const fedge_scatter_ops *scatter;

    /* The tile backend for the same hardware, and the argument of its open. *num_devices: each
     * device needs at least one thread. NULL: fedge_tile_cpu. */
    const fedge_tile_ops *(*tiles)(void *state, void **hardware, uint32_t *num_devices);

    /* Describes the memory use for people, with a line for each device. */
    void (*describe)(const void *state, char *text, size_t size);
    /* Gives the text that describe would give after an open, or open's error, without allocating
     * memory on GPUs. NULL: only an open can tell. */
    fedge_status (*forecast)(const fedge_accumulator_config *config, char *text, size_t size,
                             fedge_error *err);
    /* Fills stats (room) and returns how many GPUs there are. Any thread, at any time. */
    uint32_t (*stats)(const void *state, fedge_gpu_stats *stats, uint32_t capacity);
} fedge_accumulator_ops;

extern const fedge_accumulator_ops fedge_accumulator_cpu;
extern const fedge_accumulator_ops fedge_accumulator_cuda; /* exists in builds with CUDA */

/* The kinds of this build, the fastest first; ends with NULL (accumulator_kinds.c). */
extern const fedge_accumulator_ops *const fedge_accumulator_kinds[];

/* Sums that replace an accumulator's, such as those of all ranks (distributed_accumulator.h).
 * totals, read, step and reset are as the accumulator's; step supports optimizers. */
typedef struct fedge_sums_ops {
    void (*close)(void *state);
    void (*totals)(const void *state, fedge_accumulator_totals *totals);
    fedge_status (*read)(void *state, size_t first, size_t count, int64_t *sums, fedge_error *err);
    fedge_status (*step)(void *state, const fedge_step_part *parts, uint32_t num_parts,
                         fedge_error *err);
    fedge_status (*reset)(void *state, fedge_error *err);
} fedge_sums_ops;

/* An accumulator; all zero: closed. */
typedef struct fedge_accumulator {
    const fedge_accumulator_ops *ops;
    void *state;
    const fedge_sums_ops *sums; /* NULL: the accumulator's sums */
    void *sums_state;
    bool counts_only; /* updates count in the totals but are not summed, for strategies that read
                         single updates. Set it after open, before the first add */
} fedge_accumulator;

/* Opens the kind named [name]; "auto": the first of the table that works on this machine, and the
 * log says why the earlier ones do not. FEDGE_INVALID_ARGUMENT lists the kinds of this build.
 * FEDGE_GPU_LOST, FEDGE_GPU_MEMORY: the machine lacks hardware or memory for the named kind.
 * *accumulator is closed on failure. */
FEDGE_MUST_USE fedge_status fedge_accumulator_open(const char *name,
                                                   const fedge_accumulator_config *config,
                                                   fedge_accumulator *accumulator,
                                                   fedge_error *err);
/* Checks that there is a kind named [name], or that it is "auto". FEDGE_INVALID_ARGUMENT lists the
 * kinds. */
FEDGE_MUST_USE fedge_status fedge_accumulator_check_name(const char *name, fedge_error *err);
/* Gives the text of fedge_accumulator_describe after this open; fails as the open would. */
FEDGE_MUST_USE fedge_status fedge_accumulator_forecast(const char *name,
                                                       const fedge_accumulator_config *config,
                                                       char *text, size_t size, fedge_error *err);
void fedge_accumulator_close(fedge_accumulator *accumulator); /* a closed one is fine */

/* The functions of the table, for one accumulator. */
FEDGE_MUST_USE fedge_status fedge_accumulator_validate(fedge_accumulator *accumulator,
                                                       fedge_encoded *update, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_accumulator_add(fedge_accumulator *accumulator,
                                                  fedge_encoded *const *updates, uint32_t count,
                                                  uint64_t *ticket, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_accumulator_wait(fedge_accumulator *accumulator, uint64_t ticket,
                                                   fedge_error *err);
void fedge_accumulator_drop(fedge_accumulator *accumulator, fedge_encoded *update);
FEDGE_MUST_USE fedge_status fedge_accumulator_begin(fedge_accumulator *accumulator, uint32_t weight,
                                                    fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_accumulator_add_values(fedge_accumulator *accumulator,
                                                         uint32_t lane, const int32_t *v,
                                                         size_t first, size_t count,
                                                         uint32_t weight, fedge_error *err);
/* FEDGE_UNSUPPORTED when the kind has no sums on GPUs. */
FEDGE_MUST_USE fedge_status fedge_accumulator_device_pointer(fedge_accumulator *accumulator,
                                                             uint32_t gpu, size_t first,
                                                             int64_t **sums, fedge_error *err);
fedge_accumulator_totals fedge_accumulator_get_totals(const fedge_accumulator *accumulator);
FEDGE_MUST_USE fedge_status fedge_accumulator_read(fedge_accumulator *accumulator, size_t first,
                                                   size_t count, int64_t *sums, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_accumulator_step(fedge_accumulator *accumulator,
                                                   const fedge_step_part *parts, uint32_t num_parts,
                                                   fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_accumulator_reset(fedge_accumulator *accumulator,
                                                    fedge_error *err);
bool fedge_accumulator_optimizes(const fedge_accumulator *accumulator);
/* The table's tiles; fedge_tile_cpu if that is NULL. */
const fedge_tile_ops *fedge_accumulator_tiles(const fedge_accumulator *accumulator, void **hardware,
                                              uint32_t *num_devices);
void fedge_accumulator_describe(const fedge_accumulator *accumulator, char *text, size_t size);
uint32_t fedge_accumulator_stats(const fedge_accumulator *accumulator, fedge_gpu_stats *stats,
                                 uint32_t capacity);

/* Parse users' text: "0,2,3" or "all" for config->gpus, and "auto", "clients" or "coordinates" for
 * config->shard. FEDGE_INVALID_ARGUMENT says what is wrong. */
FEDGE_MUST_USE fedge_status fedge_accumulator_parse_gpus(const char *text,
                                                         fedge_accumulator_config *config,
                                                         fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_accumulator_parse_shard(const char *text, fedge_shard *shard,
                                                          fedge_error *err);

#endif
