/* fedge-client --plan: what a job needs of a device's memory, before any of it is taken. */
#ifndef FEDGE_CLIENT_PLAN_REPORT_H
#define FEDGE_CLIENT_PLAN_REPORT_H

#include "client/options.h"
#include "edge/core/status.h"

/* Prints the table of the job file asked->plan to standard output, or one JSON object with
 * asked->json; GPUs train with asked->settings. Every figure is exact and comes from the functions
 * that the trainer allocates by. */
FEDGE_MUST_USE fedge_status fedge_plan_report(const fedge_client_options *asked, fedge_error *err);

#endif
