/* Plans: one that is accepted has a sound schema, reads back and gives the same bytes. */
#include <stdlib.h>
#include <string.h>

#include "edge/plan/plan.h"
#include "edge/plan/update.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fedge_plan *plan = NULL, *back = NULL;
    char *text = NULL, *again = NULL;
    size_t text_size, again_size;
    fedge_error err;
    if (fedge_plan_parse((const char *)data, size, &plan, &err) != FEDGE_OK) {
        if (err.message[0] == '\0')
            abort();
        return 0;
    }
    if (plan->schema.num_tensors == 0 || fedge_update_max_size(plan) == 0)
        abort();
    if (fedge_plan_write(plan, &text, &text_size, &err) != FEDGE_OK ||
        fedge_plan_parse(text, text_size, &back, &err) != FEDGE_OK ||
        fedge_plan_write(back, &again, &again_size, &err) != FEDGE_OK || text_size != again_size ||
        memcmp(text, again, text_size) != 0)
        abort();
    free(text);
    free(again);
    fedge_plan_free(plan);
    fedge_plan_free(back);
    return 0;
}
