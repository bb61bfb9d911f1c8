/* Downloads by parts (edge/wire/protocol.h): parts of a new model that the store already has are
 * copied in it, in order, between the ranges that are fetched. Blobs only grow, so after a restart
 * the download continues where it stopped. A small build does not request lists of parts
 * (FEDGE_TAKES_PARTS). */
#ifndef FEDGE_CLIENT_PARTS_H
#define FEDGE_CLIENT_PARTS_H

#include <stdint.h>

#include "client/store.h"
#include "edge/core/status.h"
#include "edge/wire/protocol.h"

/* A model being fetched, its list, and stored copies of its parts. One thread at a time. */
typedef struct fedge_parts fedge_parts;

/* Begins the model of [task], whose list is in [store]. [store] and the hash [plan] outlive it.
 * Removes other blobs that share no part with the model; makes lists for those without.
 * FEDGE_CORRUPT and FEDGE_MISMATCH: the list is unusable. */
FEDGE_MUST_USE fedge_status fedge_parts_open(fedge_store *store, const fedge_task *task,
                                             const char *plan, fedge_parts **parts,
                                             fedge_error *err);
/* Continues after the model's *held stored bytes: appends the known parts that follow, some
 * megabytes at most, and adds them to *held. Then the caller fetches the bytes up to *end or, if
 * *end == *held, calls this again. *held is the model's size once it is complete. */
FEDGE_MUST_USE fedge_status fedge_parts_go_on(fedge_parts *parts, uint64_t *held, uint64_t *end,
                                              fedge_error *err);
void fedge_parts_free(fedge_parts *parts); /* NULL is allowed */

#endif
