/* fedge-client --plan: what a job needs of a device's memory, before any of it is taken. */
#ifndef FEDGE_CLIENT_PLAN_REPORT_H
#define FEDGE_CLIENT_PLAN_REPORT_H

#include <stdbool.h>

#include "client/engine.h"
#include "edge/core/status.h"

/* Prints the table of the job file [path] to standard output, or one JSON object with [json].
 * [settings]: of the engine that trains. Every figure is exact and comes from the functions that
 * the trainer allocates by. */
FEDGE_MUST_USE fedge_status fedge_plan_report(const char *path,
                                              const fedge_client_engine_settings *settings,
                                              bool json, fedge_error *err);

#endif
