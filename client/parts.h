/* The parts of a model that a client has already (edge/wire/protocol.h): they are copied within
 * its store, in order, between the runs of bytes that it has to fetch. Blobs only grow, so what is
 * held of a model goes on counting after a restart. A small build asks for no list
 * (FEDGE_TAKES_PARTS).
 */
#ifndef FEDGE_CLIENT_PARTS_H
#define FEDGE_CLIENT_PARTS_H

#include <stdint.h>

#include "client/store.h"
#include "edge/core/status.h"
#include "edge/wire/protocol.h"

/* A model on its way, its list, and where its parts are held. Not for several threads. */
typedef struct fedge_parts fedge_parts;

/* Of [task], whose list is held; in [store], which outlives it. [plan], a hash, outlives it.
 * Removes the other blobs that share no part with the model. Reads what has no list of its own, to
 * make one. FEDGE_CORRUPT and FEDGE_MISMATCH: there is no use in the list. */
FEDGE_MUST_USE fedge_status fedge_parts_open(fedge_store *store, const fedge_task *task,
                                             const char *plan, fedge_parts **parts,
                                             fedge_error *err);
/* *held bytes of the model are held. Appends known parts that follow, some megabytes at most, and
 * counts them in *held; the bytes up to *end have to be fetched then, or, with *end == *held, this
 * is to be called again. *held is the model's size once it is whole. */
FEDGE_MUST_USE fedge_status fedge_parts_go_on(fedge_parts *parts, uint64_t *held, uint64_t *end,
                                              fedge_error *err);
void fedge_parts_free(fedge_parts *parts); /* NULL is fine */

#endif
