/* Downloads by parts (edge/wire/protocol.h): parts of a new model that the client's store has
 * already are copied within it, in order, between the ranges of bytes that are fetched. Blobs only
 * grow, so a restart continues where the download stopped. A small build asks for no list of parts
 * (FEDGE_TAKES_PARTS).
 */
#ifndef FEDGE_CLIENT_PARTS_H
#define FEDGE_CLIENT_PARTS_H

#include <stdint.h>

#include "client/store.h"
#include "edge/core/status.h"
#include "edge/wire/protocol.h"

/* A model being fetched, its list, and where its parts are held. One thread at a time. */
typedef struct fedge_parts fedge_parts;

/* Begins the model of [task], whose list is held in [store]. [store] and the hash [plan] outlive
 * it. Removes other blobs that share no part with the model; a list is made for those that have
 * none. FEDGE_CORRUPT and FEDGE_MISMATCH: the list is of no use. */
FEDGE_MUST_USE fedge_status fedge_parts_open(fedge_store *store, const fedge_task *task,
                                             const char *plan, fedge_parts **parts,
                                             fedge_error *err);
/* Continues after the *held bytes of the model that are held: appends the known parts that follow,
 * some megabytes at most, and adds them to *held. Then the bytes up to *end must be fetched, or,
 * with *end == *held, this called again. *held is the model's size once it is whole. */
FEDGE_MUST_USE fedge_status fedge_parts_go_on(fedge_parts *parts, uint64_t *held, uint64_t *end,
                                              fedge_error *err);
void fedge_parts_free(fedge_parts *parts); /* NULL is fine */

#endif
