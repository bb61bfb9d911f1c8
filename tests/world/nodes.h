/* The state of a world, with its nodes: what world.c and nodes.c share. */
#ifndef FEDGE_TESTS_WORLD_NODES_H
#define FEDGE_TESTS_WORLD_NODES_H

#include <stdbool.h>
#include <stdint.h>

#include "edge/plan/plan.h"
#include "tests/world/client.h"
#include "tests/world/disk.h"
#include "tests/world/hostile_client.h"
#include "tests/world/hostile_server.h"
#include "tests/world/plan.h"
#include "tests/world/ranks.h"
#include "tests/world/scheduler.h"
#include "tests/world/server.h"
#include "tests/world/stub_trainer.h"
#include "tests/world/world.h"

#define SECOND_NS ((uint64_t)1000000000)
#define MS_NS ((uint64_t)1000000)
/* Unix time at the beginning: 2026-01-01. */
#define EPOCH_NS ((uint64_t)1767225600 * SECOND_NS)

typedef struct node {
    bool up, gone;            /* gone: it is never started again */
    bool finished;            /* it ended with code 0 after the run's end */
    bool excused;             /* a fault justifies an exit with an error */
    bool exited;              /* the present process has ended by itself … */
    bool failed;              /* … with another code than 0 */
    uint64_t started_ns;      /* time of the last start */
    uint64_t start_ns;        /* time of the next start; WORLD_NEVER: none */
    uint64_t heal_ns;         /* time at which its faults end; WORLD_NEVER: it has none */
    world_disk_faults faults; /* faults of its disk */
} node;

typedef struct world_state {
    const world_plan *plan;
    world_outcome *outcome;
    fedge_job *job;
    world_server server;
    world_client clients[WORLD_JOB_MAX_CLIENTS];
    stub_trainer trainers[WORLD_JOB_MAX_CLIENTS];
    fedge_client_callbacks callbacks[WORLD_JOB_MAX_CLIENTS];
    hostile_client hostile[PLAN_MAX_HOSTILE];
    hostile_server hostile_server;
    node nodes[WORLD_MAX_NODES];
    uint32_t num_ranks;                 /* present number of ranks of the server */
    uint64_t fall_ns;                   /* time at which all ranks are killed; WORLD_NEVER: none */
    uint64_t down_ns;                   /* ranks start at this time or later */
    bool done[PLAN_MAX_FAULTS];         /* whether each fault has begun */
    uint32_t machines[WORLD_MAX_RANKS]; /* machine of each rank, if there are several disks */
    bool disk_lost;                     /* some rank's disk was lost since the last start */
    bool restored_first;                /* rank 0's disk was restored since the last start */
    world_disk_copy *empty, *backups[WORLD_MAX_RANKS]; /* backups by machine */
    uint64_t backup_mark;
    uint64_t steps;
    uint64_t passed_ns;          /* changes of sites up to this time are made */
    uint64_t num_ends;           /* world_num_ends() at the last look for ended processes */
    uint64_t next_ns;            /* next known time of a start, a fault or its end */
    uint64_t look_ns, look_step; /* nothing is due before this time or this step */
    char run_id[FEDGE_RUN_ID_TEXT];
    bool written;  /* the results of the run are written */
    bool complete; /* the run is marked as finished */
    bool calm, sent_home;
    uint32_t server_starts;
    bool declined;           /* a device has declined a task */
    uint64_t quiet_since_ns; /* time of the last message, start or end of a node */
} world_state;
extern world_state w; /* state of the one world that runs */

/* The server's first rank and the clients of both kinds have numbers below this. */
uint32_t nodes_num(void);
uint32_t nodes_first_hostile(void);
/* All nodes have numbers below this, but not each number has a node. */
uint32_t nodes_end(void);
bool nodes_exist(uint32_t index);
bool nodes_share_disk(uint32_t index); /* the node is a rank, and all ranks share one disk */
bool nodes_serve(void);                /* some rank of the server is up */

void nodes_start(uint32_t index);
/* Kills the node's process, for [down_ns] at least. Of several ranks the others end soon after. */
void nodes_kill(uint32_t index, bool power, uint64_t down_ns);
void nodes_kill_ranks(bool power, uint64_t down_ns);
/* Cuts a machine off from the others for [lasts_ns]. mpirun may notice, and kill all ranks. */
void nodes_cut_off(uint32_t rank, uint64_t lasts_ns);
/* Finds processes that ended by themselves or died in a system call. False: none has ended. */
bool nodes_notice_deaths(void);
void nodes_drop_files(uint32_t index); /* closes the files that the process has open */

#endif
