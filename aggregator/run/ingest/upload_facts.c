#include "aggregator/run/ingest/upload_facts.h"

#include <math.h>
#include <string.h>

#include "edge/plan/client_hooks.h"

double fedge_upload_metric(const fedge_upload *upload, const char *name)
{
    for (uint32_t i = 0; i < upload->num_metrics; i++) {
        if (strcmp(upload->metrics[i].name, name) == 0)
            return upload->metrics[i].value;
    }
    return NAN;
}

void fedge_upload_set_phase(fedge_global_model *model, const fedge_journal_phase *phase)
{
    model->draw = phase->draw;
    model->cohort = phase->by_cohort ? phase->num_tasks : 0;
}

fedge_update_facts fedge_upload_facts(const fedge_global_model *model, const fedge_upload *upload,
                                      uint32_t round, uint32_t client, uint32_t base)
{
    const double loss = fedge_upload_metric(upload, FEDGE_START_LOSS);
    const double trained = fedge_upload_metric(upload, "loss");
    const double norm = fedge_upload_metric(upload, FEDGE_SQUARED_NORM);
    const double cluster = fedge_upload_metric(upload, FEDGE_CLUSTER);
    return (fedge_update_facts){.round = round,
                                .cluster = cluster > 0.0 ? (uint32_t)cluster : 0, /* checked */
                                .client = client,
                                .staleness = round - 1 - base,
                                .loss = isfinite(trained) ? trained : 0.0,
                                .cohort = model->cohort,
                                .ratio = fedge_update_ratio(model, round, client),
                                .num_examples = upload->num_examples,
                                .start_loss = isfinite(loss) ? loss : 0.0,
                                .squared_norm = isfinite(norm) ? norm : 0.0};
}
