/* Accumulators: places that sum a round's updates and take the step (a CPU, a machine's GPUs).
 *
 * An accumulator holds int64 sums, whatever the number of clients. Encoded updates go in as they
 * travelled (inflated, else untouched) and are decoded where they are summed:
 *
 *     validate  reads the update once and checks every value
 *     add       sum[i] += weight · v[i] for a batch of validated updates, in one pass
 *     step      values[i] += (float)(rate · (sum[i] / W · 2^−F))
 *
 * Sums are integers (edge/core/fixed.h), so the result does not depend on order, threads, batches,
 * nor on which kind of accumulator or GPU got which update. A kind is one entry of a table; nothing
 * else in the tree knows its name.
 *
 * Threads: validate, add, wait, drop, begin and add_values may be called from any number of threads
 * at once; everything else needs every ticket waited for and no other call running.
 *
 * Any call may return FEDGE_GPU_LOST (the message has the GPU's number). That is final: the process
 * has to start again, with the GPUs that there are then. FEDGE_NO_MEMORY, where no call here says
 * more of it, is as final, but the GPU is sound, and may do with what is free after a new start.
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

/* The GPUs that earlier processes of this program lost at work, in memory that the processes share,
 * all zero at first. Thread-safe. */
typedef struct fedge_lost_gpus {
    _Atomic uint64_t numbers; /* a bit for each of the driver's numbers, 0 to 63 */
    _Atomic uint32_t there;   /* the number of GPUs that the driver had then. When it has another,
                                 the numbers may mean other GPUs, and [numbers] is ignored */
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

/* A reduce-scatter: adds up the sums of several ranks in the accumulators' own memory, so that each
 * rank gets the total of its shard. A kind of accumulator may have one; all kinds can go by way of
 * the host's memory and MPI (distributed_accumulator.h).
 *
 * accumulator: the state of an open one, which must outlive what is opened here. */
typedef struct fedge_scatter_ops {
    const char *name; /* "nccl" */

    /* Checks that this rank has the hardware and libraries; else the message names what is missing.
     * [release] must be the same on all ranks. */
    fedge_status (*prepare)(void *accumulator, char release[FEDGE_COLLECTIVE_FACT_TEXT],
                            fedge_error *err);
    /* All ranks together, for [num_elements] sums. *state is NULL on failure, which may be of this
     * rank alone. */
    fedge_status (*open)(void *accumulator, const fedge_collective *ranks, size_t num_elements,
                         void **state, fedge_error *err);
    void (*close)(void *state); /* waits for no other rank; NULL is fine */
    /* All ranks together. sums (num_elements): those of the rank's shard become the sums over all
     * ranks; the others stay. FEDGE_GPU_LOST, of this rank or another: the process has to end. */
    fedge_status (*sum)(void *state, int64_t *sums, fedge_error *err);
} fedge_scatter_ops;

/* ---- accumulators ---------------------------------------------------------------------------- */

#define FEDGE_ACCUMULATOR_MAX_SECTIONS 16
#define FEDGE_ACCUMULATOR_MAX_BATCH 16 /* updates of one add */
#define FEDGE_ACCUMULATOR_MAX_GPUS 64
#define FEDGE_ACCUMULATOR_MAX_LANES 256
#define FEDGE_ACCUMULATOR_MAX_DESCRIPTION ((size_t)192 * FEDGE_ACCUMULATOR_MAX_GPUS) /* bytes */

/* A run of tensors in one codec. */
typedef struct fedge_layout_section {
    fedge_codec codec;
    const fedge_schema *schema; /* its tensors' offsets are those in the block of all sections */
} fedge_layout_section;

/* How an encoded update lies: its sections one after another, as fedge_codec_encode_chunks made
 * them. */
typedef struct fedge_layout {
    uint32_t num_sections; /* 1 to FEDGE_ACCUMULATOR_MAX_SECTIONS */
    fedge_layout_section sections[FEDGE_ACCUMULATOR_MAX_SECTIONS];
    size_t num_elements; /* of all sections: the length of the sums */
    size_t size;         /* most bytes of an encoded update */
} fedge_layout;

/* One encoded update. It stays valid and unchanged from validate until add returns or drop is
 * called. Where validate has [copied] it, its bytes need not. */
typedef struct fedge_encoded {
    const uint8_t *bytes;  /* as many as [sizes] say; NULL: they are pulled by [read], and no
                              section has a codec that is not plain */
    const uint64_t *sizes; /* of the bytes of each section; NULL: each has as many as it can have */
    /* Reads the bytes [offset, offset + size). A pass over the update asks for ascending offsets;
     * the next pass begins at 0 again. */
    fedge_status (*read)(void *user, uint64_t offset, uint8_t *bytes, size_t size,
                         fedge_error *err);
    void *user;
    const int8_t *bounds_log2; /* b of each tensor, over all sections */
    uint32_t weight;           /* ≥ 1 */
    void *held;  /* the accumulator's, from validate until add or drop; NULL at first */
    bool copied; /* validate's: the accumulator has a copy, and reads the bytes no more */
} fedge_encoded;

/* One tensor's values and the sums that move them. A place that sums elsewhere may keep the values
 * that a step gave, and take those at the next instead of reading them again where they are
 * [unchanged]. */
typedef struct fedge_step_part {
    size_t first; /* of its sums */
    size_t count;
    int bound_log2; /* F = 30 − b */
    double rate;    /* the strategy's, as FedAvg's η_s */
    float *values;  /* (count), on the host; moved in place */
    bool unchanged; /* they, and what is kept, are as this accumulator's last step left them */
    const fedge_optimizer_step *optimizer; /* NULL: values[i] += (float)(rate · mean). For kinds
                                              that [optimizes] */
    float
        *moments[2]; /* (count) each, on the host; optimizer->num_moments of them, moved in place */
} fedge_step_part;

/* How several GPUs share the work: each sums some clients' updates, or some coordinates of all. */
typedef enum fedge_shard {
    FEDGE_SHARD_AUTO,
    FEDGE_SHARD_CLIENTS,
    FEDGE_SHARD_COORDINATES
} fedge_shard;

typedef struct fedge_accumulator_config {
    const fedge_layout *layout; /* copied; its schemas outlive the accumulator */
    uint32_t num_lanes; /* CPU: blocks of sums, 1 to FEDGE_ACCUMULATOR_MAX_LANES. The more there
                           are, the less threads wait for each other; they are joined in the step */
    uint32_t num_gpus;  /* of gpus[]; 0: all that there are and can be used */
    uint32_t gpus[FEDGE_ACCUMULATOR_MAX_GPUS]; /* the driver's numbers */
    bool skip_missing; /* leave out those of gpus[] that cannot be used, as after a loss, and say so
                        */
    fedge_lost_gpus *lost; /* those that are left out, too; those that are lost are marked there.
                              NULL: nobody remembers */
    fedge_shard shard;
    const char *join; /* what joins the sums of several ranks: "mpi", the name of a scatter, or
                         "auto", also NULL (distributed_accumulator.h) */
    bool in_place; /* changes are added where the sums lie (device_pointer): little room for updates
                    * will do
                    */
    bool joined;   /* with the sums of other ranks, whose hosts take the steps */
    unsigned num_moments; /* vectors of an optimizer that step takes, 0 to 2: room is made for them
                          where the sums are */
    uint64_t robust_memory; /* bytes for strategies that go through a round's updates one by one;
                               not the accumulator's */
    const fedge_log *log;   /* is told what was found and chosen, and why, and outlives the
                               accumulator; may be NULL */
    /* Told, on a thread of its own, that a call to a GPU does not return: FEDGE_GPU_LOST, with the
     * GPU. It has to end the process. NULL: such a call is waited for. */
    void (*stuck)(const fedge_error *err);
} fedge_accumulator_config;

typedef struct fedge_accumulator_totals {
    uint64_t total_weight; /* Σ w of what was added */
    uint32_t num_updates;
} fedge_accumulator_totals;

/* What one GPU has done since it was opened. */
typedef struct fedge_gpu_stats {
    uint32_t gpu;           /* the driver's number */
    uint64_t memory_bytes;  /* taken on it */
    uint64_t decoded_bytes; /* of encoded updates that were summed there */
    /* How long it worked: bringing updates to it; checking them and laying them out; adding to the
     * sums and joining those of other GPUs; the steps. What overlaps counts each. */
    double seconds_copy, seconds_decode, seconds_reduce, seconds_step;
} fedge_gpu_stats;

typedef struct fedge_accumulator_ops {
    const char *name; /* "cpu", "cuda" */
    bool optimizes;   /* step can take an optimizer's parts */

    /* Can it sum updates of this layout? FEDGE_INVALID_ARGUMENT names the codec that it cannot.
     * NULL: it can sum all. Asked before open and forecast. */
    fedge_status (*can_sum)(const fedge_layout *layout, fedge_error *err);

    /* All sums 0. FEDGE_NOT_FOUND: the machine lacks the hardware, driver or library that the
     * message names; FEDGE_NO_MEMORY: it does not fit. *state is NULL on failure. */
    fedge_status (*open)(const fedge_accumulator_config *config, void **state, fedge_error *err);
    void (*close)(void *state); /* NULL is fine */

    /* FEDGE_NOT_FINITE, FEDGE_OUT_OF_RANGE and FEDGE_CORRUPT name the first bad value as
     * fedge_codec_decode does; what [read] returns is passed on. */
    fedge_status (*validate)(void *state, fedge_encoded *update, fedge_error *err);
    /* Adds [count] ≤ FEDGE_ACCUMULATOR_MAX_BATCH validated updates, all with the same bounds.
     * FEDGE_OUT_OF_RANGE, with nothing added, when the total weight would exceed
     * FEDGE_FIXED_MAX_TOTAL_WEIGHT or a weight is 0. After any other failure the sums are
     * undefined. */
    fedge_status (*add)(void *state, fedge_encoded *const *updates, uint32_t count,
                        uint64_t *ticket, fedge_error *err);
    fedge_status (*wait)(void *state, uint64_t ticket, fedge_error *err); /* until it is summed */
    void (*drop)(void *state, fedge_encoded *update); /* validated, but not to be added */

    /* As add for an update in fixed point (|v| ≤ 2^30) that is made piece by piece: begin counts it
     * and its weight; then each of its values is added once, v (count) being those from [first] on.
     * lane < num_lanes; threads may share one, and wait for each other where they meet. */
    fedge_status (*begin)(void *state, uint32_t weight, fedge_error *err);
    fedge_status (*add_values)(void *state, uint32_t lane, const int32_t *v, size_t first,
                               size_t count, uint32_t weight, fedge_error *err);

    /* *sums: the device pointer of sum [first] on [gpu] (the driver's number), followed by those of
     * the remainder of its tensor. The caller adds to them there, until the next call of anything
     * but begin, which counts the update. FEDGE_UNSUPPORTED: the sums do not lie there. NULL: the
     * kind has none on GPUs. */
    fedge_status (*device_pointer)(void *state, uint32_t gpu, size_t first, int64_t **sums,
                                   fedge_error *err);

    void (*totals)(const void *state, fedge_accumulator_totals *totals);
    /* sums (count): those from [first] on. */
    fedge_status (*read)(void *state, size_t first, size_t count, int64_t *sums, fedge_error *err);
    /* fedge_fixed_step of each part, or the optimizer's, by the total weight, which must not be 0,
     * bit for bit. After a failure the values are undefined, but after FEDGE_UNSUPPORTED: where the
     * sums are there is no room for what the optimizer keeps, and the log says so once. */
    fedge_status (*step)(void *state, const fedge_step_part *parts, uint32_t num_parts,
                         fedge_error *err);
    fedge_status (*reset)(void *state, fedge_error *err); /* sums and totals are 0 */

    /* How the sums of several ranks are added up where they are; NULL: on the host alone. */
    const fedge_scatter_ops *scatter;

    /* Who reduces tiles of updates there, and the place that its open takes; *num_places: pieces of
     * hardware, each of which wants a thread at least. NULL: fedge_tile_cpu does. */
    const fedge_tile_ops *(*tiles)(void *state, void **place, uint32_t *num_places);

    /* For people, a line for each place: what lies there, in bytes. */
    void (*describe)(const void *state, char *text, size_t size);
    /* What describe would say after an open, and how open would fail, without taking memory of the
     * GPUs. NULL: it takes an open to know. */
    fedge_status (*forecast)(const fedge_accumulator_config *config, char *text, size_t size,
                             fedge_error *err);
    /* Fills stats (room) and returns how many GPUs there are. Any thread, at any time. */
    uint32_t (*stats)(const void *state, fedge_gpu_stats *stats, uint32_t capacity);
} fedge_accumulator_ops;

extern const fedge_accumulator_ops fedge_accumulator_cpu;
extern const fedge_accumulator_ops fedge_accumulator_cuda; /* in builds with CUDA */

/* The kinds of this build, the fastest first; ends with NULL (accumulator_kinds.c). */
extern const fedge_accumulator_ops *const fedge_accumulator_kinds[];

/* Sums that replace an accumulator's own, such as those of all ranks (distributed_accumulator.h).
 * totals, read, step and reset are as the accumulator's; step takes an optimizer's parts. */
typedef struct fedge_sums_ops {
    void (*close)(void *state);
    void (*totals)(const void *state, fedge_accumulator_totals *totals);
    fedge_status (*read)(void *state, size_t first, size_t count, int64_t *sums, fedge_error *err);
    fedge_status (*step)(void *state, const fedge_step_part *parts, uint32_t num_parts,
                         fedge_error *err);
    fedge_status (*reset)(void *state, fedge_error *err);
} fedge_sums_ops;

/* An open accumulator; all zero: a closed one. */
typedef struct fedge_accumulator {
    const fedge_accumulator_ops *ops;
    void *state;
    const fedge_sums_ops *sums; /* NULL: the accumulator's own sums */
    void *sums_state;
    bool counts_only; /* what is added counts in the totals and is not summed: for who looks at
                         updates one by one. To be set when it is open and nothing is added */
} fedge_accumulator;

/* Opens the kind named [name]; "auto": the first of the table that this machine can, and the log
 * says why not the ones before it. FEDGE_INVALID_ARGUMENT lists the kinds of this build.
 * FEDGE_GPU_LOST: a kind that was asked for by name needs hardware that is not there;
 * FEDGE_GPU_MEMORY: memory that it has not.
 * *accumulator is closed on failure. */
FEDGE_MUST_USE fedge_status fedge_accumulator_open(const char *name,
                                                   const fedge_accumulator_config *config,
                                                   fedge_accumulator *accumulator,
                                                   fedge_error *err);
/* Is there a kind of this name, or is it "auto"? FEDGE_INVALID_ARGUMENT lists them. */
FEDGE_MUST_USE fedge_status fedge_accumulator_check_name(const char *name, fedge_error *err);
/* What fedge_accumulator_describe would say after this open; fails as the open would. */
FEDGE_MUST_USE fedge_status fedge_accumulator_forecast(const char *name,
                                                       const fedge_accumulator_config *config,
                                                       char *text, size_t size, fedge_error *err);
void fedge_accumulator_close(fedge_accumulator *accumulator); /* one that is closed is fine */

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
/* FEDGE_UNSUPPORTED where the kind has no sums on GPUs. */
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
/* As the table's; of NULL, fedge_tile_cpu. */
const fedge_tile_ops *fedge_accumulator_tiles(const fedge_accumulator *accumulator, void **place,
                                              uint32_t *num_places);
void fedge_accumulator_describe(const fedge_accumulator *accumulator, char *text, size_t size);
uint32_t fedge_accumulator_stats(const fedge_accumulator *accumulator, fedge_gpu_stats *stats,
                                 uint32_t capacity);

/* What users write: "0,2,3" or "all" for config->gpus, and "auto", "clients" or "coordinates" for
 * config->shard. FEDGE_INVALID_ARGUMENT says what is wrong. */
FEDGE_MUST_USE fedge_status fedge_accumulator_parse_gpus(const char *text,
                                                         fedge_accumulator_config *config,
                                                         fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_accumulator_parse_shard(const char *text, fedge_shard *shard,
                                                          fedge_error *err);

#endif
