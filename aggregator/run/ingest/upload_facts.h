/* What a client says of its update, as strategies and the round log take it. */
#ifndef FEDGE_AGGREGATOR_RUN_INGEST_UPLOAD_FACTS_H
#define FEDGE_AGGREGATOR_RUN_INGEST_UPLOAD_FACTS_H

#include <stdint.h>

#include "aggregator/rounds/global_model.h"
#include "aggregator/store/journal.h"
#include "edge/wire/protocol.h"

/* The updates that follow are of [phase], which their weights depend on. */
void fedge_upload_set_phase(fedge_global_model *model, const fedge_journal_phase *phase);

/* What an update of this round says of itself; [base]: of its task. */
fedge_update_facts fedge_upload_facts(const fedge_global_model *model, const fedge_upload *upload,
                                      uint32_t round, uint32_t client, uint32_t base);

/* The metric named [name] of an upload, or NaN. */
double fedge_upload_metric(const fedge_upload *upload, const char *name);

#endif
