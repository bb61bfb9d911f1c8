/* Paths of what is kept in a folder. */
#ifndef FEDGE_AGGREGATOR_STORE_PATH_H
#define FEDGE_AGGREGATOR_STORE_PATH_H

#include "edge/core/status.h"
#include "edge/plan/plan.h"

/* path: "dir/name". FEDGE_TOO_BIG when it has FEDGE_MAX_PATH bytes or more. */
FEDGE_MUST_USE fedge_status fedge_path_join(const char *dir, const char *name,
                                            char path[FEDGE_MAX_PATH], fedge_error *err);

#endif
