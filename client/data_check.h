/* fedge-client --check-config: reads the data that the client's file names. */
#ifndef FEDGE_CLIENT_DATA_CHECK_H
#define FEDGE_CLIENT_DATA_CHECK_H

#include "edge/core/log.h"
#include "edge/core/status.h"
#include "edge/plan/plan.h"
#include "edge/site/site.h"

/* Loads each data set as a task would, and logs a line of what was found ("data"), or why it cannot
 * be loaded ("data", an error). [plan]: the job's, whose data set is read by what it says, and
 * which the site's policy must allow ("plan"); NULL: none. Others are read by what the files
 * themselves say. Returns the first failure's status. */
FEDGE_MUST_USE fedge_status fedge_data_check(const fedge_site *site, const fedge_plan *plan,
                                             const fedge_log *log);

/* Logs a warning for each data set that the file divides, of which this device would take all. */
void fedge_data_warn(const fedge_site *site, const fedge_log *log);

#endif
