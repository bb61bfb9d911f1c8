/* The tensors of a job's model, for programs that write jobs. */
#include "client/fedge_client.h"
#include "edge/plan/plan.h"

fedge_status fedge_client_job_parse(const char *text, size_t size, struct fedge_job **job,
                                    fedge_error *err)
{
    *job = NULL;
    return fedge_job_parse(text, size, "job", job, err);
}

const fedge_schema *fedge_client_job_schema(const struct fedge_job *job)
{
    return &job->plan.schema;
}

void fedge_client_job_free(struct fedge_job *job)
{
    fedge_job_free(job);
}
