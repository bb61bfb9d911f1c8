/* What goes wrong in a world, drawn from its seed before it begins. Each fault is drawn from its
 * own stream, so that a world without some of them keeps the others as they are. */
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
    X(WIPE, "device loses its store")                                                              \
    X(RESTORE, "backup restored")                                                                  \
    X(FLIP, "bit flips in a file")                                                                 \
    X(GPU, "GPU fails, hangs or is full")                                                          \
    X(GPUS, "SIGHUP with other GPUs")                                                              \
    X(DRAIN, "SIGUSR1: drain")

typedef enum plan_fault_kind {
#define PLAN_ENUM(kind, text) PLAN_##kind,
    PLAN_FAULTS(PLAN_ENUM)
#undef PLAN_ENUM
        PLAN_NUM_KINDS
} plan_fault_kind;

typedef struct plan_fault {
    plan_fault_kind kind;
    uint32_t node;     /* WORLD_SERVER, or that of a client or another rank */
    uint64_t at_ns;    /* when it begins: at this time … */
    uint64_t at_step;  /* … or, if not 0, at this step of the scheduler */
    uint64_t lasts_ns; /* until the node is well again, or is started again */
    uint64_t number;   /* of a system call, of a call to a GPU, or a list of GPUs */
    int error;         /* of a GPU: EIO it fails, ETIME it hangs, ENOMEM it is full */
} plan_fault;

/* A client's site (docs/reference/client-file.md): what it forbids. */
typedef enum plan_site_kind {
    PLAN_SITE_NONE,   /* no client file */
    PLAN_SITE_ALLOWS, /* a policy that the job meets */
    PLAN_SITE_JOBS,   /* other jobs than this one; these forbid it: */
    PLAN_SITE_CODECS, /* other codecs */
    PLAN_SITE_EPOCHS, /* fewer epochs */
    PLAN_SITE_RAM,    /* less memory */
    PLAN_SITE_DATA,   /* it lacks the job's data */
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

/* All of a world that is drawn in advance. Plain data. */
typedef struct world_plan {
    uint64_t seed;
    uint32_t order; /* which order of steps is drawn, with this seed; 0 at first */
    world_job job;
    uint32_t num_workers;   /* of the server's first process */
    uint32_t num_ranks;     /* of the server, at most; 1: one process */
    bool ranks_vary;        /* each start of them has another number */
    bool shares_disk;       /* all ranks have one */
    uint64_t rank_delay_ns; /* bytes take up to this from one to another */
    uint32_t num_gpus;      /* of the server; 0: the CPU sums */
    bool needs_gpus;        /* its accumulator is not "auto", which may sum on the CPU */
    uint64_t queue_bytes;   /* of the server's connections */
    uint64_t sync_ns;       /* a sync takes up to this, on a healthy disk */
    /* By client; hostile ones follow the honest ones. */
    uint32_t num_hostile;
    bool server_is_hostile;    /* another program than the real one, without other faults */
    uint64_t hostile_until_ns; /* they leave for good then */
    uint64_t delay_ns[PLAN_MAX_CLIENTS], ns_per_byte[PLAN_MAX_CLIENTS];
    uint64_t starts_ns[PLAN_MAX_CLIENTS]; /* when the client is first started */
    plan_site sites[WORLD_JOB_MAX_CLIENTS];
    uint32_t num_faults;
    plan_fault faults[PLAN_MAX_FAULTS];
    uint64_t healed_ns; /* all faults are over by then */
    bool may_fail;      /* a fault may end the run for good: a bit has flipped */
} world_plan;

/* Clients of both kinds. */
uint32_t plan_num_clients(const world_plan *of);
void plan_draw(uint64_t seed, world_plan *out);
/* The job is not run by such a site. */
bool plan_site_forbids(const plan_site *site);
/* Sets what follows from the faults, after some were taken out. */
void plan_finish(world_plan *of);
const char *plan_fault_text(plan_fault_kind kind);

#endif
