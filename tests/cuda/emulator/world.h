/* A communicator of several processes of this machine, for the stand-in for NCCL: memory that they
 * share, named by the id. Each lays what it brings to the n-th collective in a room of its own, and
 * says so.
 */
#ifndef FEDGE_EMULATOR_WORLD_H
#define FEDGE_EMULATOR_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "edge/train/cuda/nccl_api.h"

typedef struct world world;

bool emulated_world_make_id(fedge_nccl_id *id);
/* With [count] of its [size] members: waits until all are there. NULL: one has failed. */
world *emulated_world_join(const fedge_nccl_id *id, int count, int size);
void emulated_world_fail(const fedge_nccl_id *id); /* joining fails for all */
void emulated_world_end(world *self);              /* for all: a member of this process ends */
void emulated_world_leave(world *self);            /* when nothing of it is queued; NULL is fine */

uint32_t emulated_world_processes(const world *self);
/* number: of a collective, from 1. A room is as large as any of them may be. */
char *emulated_world_own_room(world *self, uint64_t number);
const char *emulated_world_room(const world *self, uint32_t process, uint64_t number);
bool emulated_world_has_told(const world *self, uint64_t number); /* this process */
void emulated_world_tell(world *self, uint64_t number);
bool emulated_world_all_told(const world *self, uint64_t number);
/* Another process has ended, or a member of it, before it had told of the first [started]. */
bool emulated_world_has_lost(const world *self, uint64_t started);

#endif
