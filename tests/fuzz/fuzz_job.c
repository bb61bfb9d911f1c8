/* Jobs, with their strategy's arguments: one that is accepted makes a plan, and the plan reads back
 * and gives the same bytes. */
#include <stdlib.h>
#include <string.h>

#include "aggregator/rounds/strategy.h"

/* Those of this program (aggregator/reduce/accumulator_kinds.c has the others). */
const fedge_accumulator_ops *const fedge_accumulator_kinds[] = {&fedge_accumulator_cpu, NULL};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fedge_job *job = NULL;
    fedge_plan *plan = NULL;
    char *text = NULL, *again = NULL;
    size_t text_size, again_size;
    fedge_error err;
    if (fedge_strategy_job_parse((const char *)data, size, "dir/job.json", &job, &err) !=
        FEDGE_OK) {
        if (err.message[0] == '\0')
            abort();
        return 0;
    }
    if (fedge_plan_write(&job->plan, &text, &text_size, &err) != FEDGE_OK ||
        fedge_plan_parse(text, text_size, &plan, &err) != FEDGE_OK ||
        fedge_plan_write(plan, &again, &again_size, &err) != FEDGE_OK || text_size != again_size ||
        memcmp(text, again, text_size) != 0)
        abort();
    free(text);
    free(again);
    fedge_plan_free(plan);
    fedge_job_free(job);
    return 0;
}
