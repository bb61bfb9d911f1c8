/* Paths in files are relative to the file; of job.c, site.c, and strategies that read files. */
#ifndef FEDGE_EDGE_PLAN_PATH_H
#define FEDGE_EDGE_PLAN_PATH_H

#include <stdbool.h>

#include "edge/plan/plan.h"

/* Puts the folder of [file] before [path] unless that is empty or begins with '/'. False when the
 * result is too long; [path] is unchanged then. */
FEDGE_MUST_USE bool fedge_path_resolve(const char *file, char path[FEDGE_MAX_PATH]);

/* The same for each line. False also when all are too long together. */
FEDGE_MUST_USE bool fedge_paths_resolve(const char *file, char paths[FEDGE_MAX_PATHS]);

#endif
