/* The nodes of a world and all else that it knows: what world.c and nodes.c share. */
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
    bool up, gone;            /* gone: for good */
    bool finished;            /* its work is done: exit code 0 after the run's end */
    bool excused;             /* a fault may make it exit with an error */
    bool exited;              /* the process that is up has ended by itself … */
    bool failed;              /* … with another code than 0 */
    uint64_t started_ns;      /* when the last process was started */
    uint64_t start_ns;        /* when it is started; WORLD_NEVER: not */
    uint64_t heal_ns;         /* when its disk, link or certificate is well again; WORLD_NEVER */
    world_disk_faults faults; /* of its disk */
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
    uint32_t num_ranks, most_ranks; /* of the server, now and ever */
    uint64_t fall_ns;               /* when all ranks are ended; WORLD_NEVER: not */
    uint64_t down_ns;               /* no rank is started before then */
    bool done[PLAN_MAX_FAULTS];     /* the fault has happened */
    world_disk_copy *empty, *backup;
    uint64_t backup_mark;
    uint64_t steps;
    uint64_t passed_ns;          /* until when sites have changed */
    uint64_t num_ends;           /* world_num_ends() when deaths were looked for last */
    uint64_t next_ns;            /* when something begins or ends, as far as is known */
    uint64_t look_ns, look_step; /* nothing is to happen before the first of these two */
    char run_id[FEDGE_RUN_ID_TEXT];
    bool written;  /* the run's results are */
    bool complete; /* and the run is marked as finished */
    bool calm, sent_home;
    uint32_t server_starts;
    bool declined;           /* a device has declined a task */
    uint64_t quiet_since_ns; /* no message was sent and no node started or ended since then */
} world_state;
extern world_state w; /* of the one world that runs */

/* Clients of both kinds and the server's first rank have the numbers below this. */
uint32_t nodes_num(void);
uint32_t nodes_first_hostile(void);
/* All numbers are below this; not all of them exist. */
uint32_t nodes_end(void);
bool nodes_exist(uint32_t index);
bool nodes_share_disk(uint32_t index); /* a rank's disk is that of all ranks */
bool nodes_serve(void);                /* a rank of the server is up */

void nodes_start(uint32_t index);
/* Ends the node's process, for so long at least; on several ranks the others end soon after. */
void nodes_kill(uint32_t index, bool power, uint64_t down_ns);
void nodes_kill_ranks(bool power, uint64_t down_ns);
/* Processes that ended by themselves, or whose own system call killed them. True: there may be
 * some. */
bool nodes_notice_deaths(void);
void nodes_drop_files(uint32_t index); /* those that a process has open */

#endif
