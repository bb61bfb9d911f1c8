#include "aggregator/rounds/strategy.h"

#include <stdio.h>
#include <string.h>

static const fedge_strategy_ops *const strategies[] = {
    &fedge_strategy_fedavg,
    &fedge_strategy_scaffold,
};
#define PARTS 64 /* tensors that are moved in one call */
#define NUM_STRATEGIES (sizeof strategies / sizeof strategies[0])

static unsigned min_of(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static size_t length_of(const char *name)
{
    size_t length = strlen(name);
    return length < FEDGE_MAX_STRATEGY_NAME ? length : FEDGE_MAX_STRATEGY_NAME;
}

/* Insertions, deletions and replacements that make [a] of [b] (Levenshtein), case apart; names
 * longer than FEDGE_MAX_STRATEGY_NAME are compared up to there. */
static unsigned distance(const char *a, const char *b)
{
    unsigned row[FEDGE_MAX_STRATEGY_NAME + 1];
    size_t length_a = length_of(a);
    size_t length_b = length_of(b);
    for (unsigned j = 0; j <= length_b; j++)
        row[j] = j;
    for (unsigned i = 1; i <= length_a; i++) {
        unsigned diagonal = row[0];
        row[0] = i;
        for (unsigned j = 1; j <= length_b; j++) {
            unsigned replaced = diagonal + (lower(a[i - 1]) != lower(b[j - 1]));
            diagonal = row[j];
            row[j] = min_of(replaced, 1 + min_of(row[j], row[j - 1]));
        }
    }
    return row[length_b];
}

fedge_status fedge_strategy_move(const fedge_strategy_sum *sum,
                                 const fedge_strategy_section *section, double rate, float *values,
                                 fedge_error *err)
{
    const fedge_schema *schema = section->schema;
    fedge_step_part parts[PARTS];
    fedge_status status = FEDGE_OK;
    uint32_t num_parts = 0;
    for (uint32_t i = 0; i < schema->num_tensors && status == FEDGE_OK; i++) {
        const fedge_tensor_spec *tensor = &schema->tensors[i];
        parts[num_parts++] =
            (fedge_step_part){.first = tensor->offset,
                              .count = tensor->count,
                              .bound_log2 = section->bounds_log2[i],
                              .rate = rate,
                              .values = values + (tensor->offset - schema->tensors[0].offset)};
        if (num_parts == PARTS || i + 1 == schema->num_tensors) {
            status = fedge_accumulator_step(sum->accumulator, parts, num_parts, err);
            num_parts = 0;
        }
    }
    return status;
}

fedge_status fedge_strategy_find(const char *name, const fedge_strategy_ops **ops, fedge_error *err)
{
    const fedge_strategy_ops *nearest = strategies[0];
    char known[FEDGE_ERROR_MESSAGE_SIZE] = "";
    size_t used = 0;
    for (size_t i = 0; i < NUM_STRATEGIES; i++) {
        if (strcmp(strategies[i]->name, name) == 0) {
            *ops = strategies[i];
            return FEDGE_OK;
        }
        if (distance(name, strategies[i]->name) < distance(name, nearest->name))
            nearest = strategies[i];
        int length = snprintf(known + used, sizeof known - used, "%s%s", i > 0 ? ", " : "",
                              strategies[i]->name);
        if (length > 0 && (size_t)length < sizeof known - used)
            used += (size_t)length;
    }
    return fedge_fail(err, FEDGE_NOT_FOUND,
                      "unknown strategy \"%.64s\"; did you mean \"%s\"? Known are: %s", name,
                      nearest->name, known);
}
