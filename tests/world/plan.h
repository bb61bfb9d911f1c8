/* The plan of a world: its job, its nodes and its faults, drawn from the seed before it begins.
 * Each fault has a random stream of its own, so a world without some faults keeps the others
 * unchanged. */
#ifndef FEDGE_TESTS_WORLD_PLAN_H
#define FEDGE_TESTS_WORLD_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/world/job_draw.h"

enum {
    PLAN_MAX_FAULTS = 10,
    PLAN_MAX_HOSTILE = 2,
    PLAN_MAX_CLIENTS = WORLD_JOB_MAX_CLIENTS + PLAN_MAX_HOSTILE
};

/* X(kind, text) */
#define PLAN_FAULTS(X)                                                                             \
    X(KILL, "kill -9")                                                                             \
    X(POWER, "power failure")                                                                      \
    X(STOP, "SIGTERM")                                                                             \
    X(DIE_AT_CALL, "kill -9 at a system call")                                                     \
    X(CUT, "cut connections")                                                                      \
    X(PARTITION, "partition")                                                                      \
    X(SLOW_LINK, "slow link")                                                                      \
    X(SLOW_DISK, "slow disk")                                                                      \
    X(BAD_CALL, "failing system call")                                                             \
    X(FULL_DISK, "full disk")                                                                      \
    X(CLOCK, "wall clock jumps")                                                                   \
    X(REVOKE, "certificate revoked for a while")                                                   \
    X(LEAVE, "device leaves for good")                                                             \
    X(WIPE, "device loses its store, or a rank its disk")                                          \
    X(RESTORE, "backup restored")                                                                  \
    X(FLIP, "bit flips in a file")                                                                 \
    X(GPU, "GPU fails, hangs or is full")                                                          \
    X(GPUS, "SIGHUP with other GPUs")                                                              \
    X(DRAIN, "SIGUSR1: drain")                                                                     \
    X(HANG, "a rank hangs")                                                                        \
    X(APART, "ranks do not reach each other")

typedef enum plan_fault_kind {
#define PLAN_ENUM(kind, text) PLAN_##kind,
    PLAN_FAULTS(PLAN_ENUM)
#undef PLAN_ENUM
        PLAN_NUM_KINDS
} plan_fault_kind;

typedef struct plan_fault {
    plan_fault_kind kind;
    uint32_t node;     /* WORLD_SERVER, or the node of a client or another rank */
    uint64_t at_ns;    /* it begins at this time … */
    uint64_t at_step;  /* … or, if not 0, at this step of the scheduler */
    uint64_t lasts_ns; /* time until it is repaired, or the node started again */
    uint64_t number;   /* number of a system call or GPU call, a list of GPUs or another rank */
    int error; /* errno of the call; of a GPU: EIO it fails, ETIME it hangs, ENOMEM it is full */
} plan_fault;

/* The kinds of a client's site (docs/reference/client-file.md). */
typedef enum plan_site_kind {
    PLAN_SITE_NONE,   /* no client file */
    PLAN_SITE_ALLOWS, /* a policy that the job meets */
    PLAN_SITE_JOBS,   /* allows other jobs only; this kind and the next ones forbid the job */
    PLAN_SITE_CODECS, /* allows other codecs only */
    PLAN_SITE_EPOCHS, /* allows fewer epochs only */
    PLAN_SITE_RAM,    /* allows less memory than the job needs */
    PLAN_SITE_DATA,   /* has no data set of the job's name */
    PLAN_NUM_SITES
} plan_site_kind;

typedef enum plan_condition {
    PLAN_NO_CONDITION,
    PLAN_ON_MAINS,
    PLAN_CHARGED,
    PLAN_COOL,
    PLAN_FREE_RAM,
    PLAN_NUM_CONDITIONS
} plan_condition;

typedef struct plan_site {
    plan_site_kind kind;
    bool hangs_up;
    plan_condition condition;
    uint64_t unmet_from_ns, unmet_until_ns; /* both 0: always met */
} plan_site;

/* All that is drawn in advance. Plain data. */
typedef struct world_plan {
    uint64_t seed;
    uint32_t order; /* selects another order of steps for the same seed; 0: the first */
    world_job job;
    uint32_t num_workers;   /* workers of the server's first process */
    uint32_t num_ranks;     /* most ranks of the server; 1: one process */
    bool ranks_vary;        /* their number and machines change from start to start */
    bool shares_disk;       /* all ranks share one disk */
    uint64_t rank_delay_ns; /* longest delay from rank to rank */
    uint32_t num_gpus;      /* GPUs of the server; 0: the CPU sums */
    bool needs_gpus;        /* the accumulator is "gpu"; else "auto", which may use the CPU */
    uint64_t queue_bytes;   /* memory for frames of the server's connections */
    uint64_t sync_ns;       /* longest sync of a healthy disk */
    /* In arrays by client, hostile clients follow the honest ones. */
    uint32_t num_hostile;
    bool server_is_hostile;    /* the hostile server replaces the real one, and there are no other
                                  faults */
    uint64_t hostile_until_ns; /* time at which hostile nodes leave for good */
    uint64_t delay_ns[PLAN_MAX_CLIENTS], ns_per_byte[PLAN_MAX_CLIENTS];
    uint64_t starts_ns[PLAN_MAX_CLIENTS]; /* time of the client's first start */
    plan_site sites[WORLD_JOB_MAX_CLIENTS];
    uint32_t num_faults;
    plan_fault faults[PLAN_MAX_FAULTS];
    uint64_t healed_ns; /* time at which all faults are over */
    uint64_t silent_ns; /* longest time for which a rank hears nothing of another */
    bool may_fail;      /* the run may fail for good, since a bit flips */
} world_plan;

/* The number of clients of both kinds. */
uint32_t plan_num_clients(const world_plan *of);
void plan_draw(uint64_t seed, world_plan *out);
/* Whether the site forbids the job. */
bool plan_site_forbids(const plan_site *site);
/* Sets the fields that depend on the faults, after some were removed. */
void plan_finish(world_plan *of);
const char *plan_fault_text(plan_fault_kind kind);

#endif
