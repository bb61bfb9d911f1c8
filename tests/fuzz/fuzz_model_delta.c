/* Model deltas: any chain is refused, or leaves every value of the model finite. The first byte
 * chooses the codec and whether it is deflated. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "edge/plan/update.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A matrix, statistics and a layer that is frozen. */
static const char PLAN[] =
    "{\"fedge-plan\":1,\"name\":\"d\",\"seed\":3,\"model\":{\"input-shape\":[1,5,5],\"layers\":["
    "{\"type\":\"Conv2d\",\"in_channels\":1,\"out_channels\":4,\"kernel_size\":3},"
    "{\"type\":\"BatchNorm2d\",\"num_features\":4},{\"type\":\"Flatten\"},"
    "{\"type\":\"Linear\",\"in_features\":36,\"out_features\":9},"
    "{\"type\":\"Linear\",\"in_features\":9,\"out_features\":5,\"train\":\"none\"}],"
    "\"loss\":{\"type\":\"CrossEntropyLoss\"}},"
    "\"data\":{\"name\":\"d\",\"shape\":[1,5,5],\"dtype\":\"f32\",\"labels\":5},"
    "\"training\":{\"learning-rate\":0.1},\"update\":{}}";

static const char *const DOWN[] = {"none", "f16",           "bf16",      "int8",
                                   "int4", "topk:0.1+int8", "randk:0.2", "ternary:0.05"};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static fedge_plan *plan;
    fedge_error err;
    if (size == 0)
        return 0;
    if (!plan && fedge_plan_parse(PLAN, sizeof(PLAN) - 1, &plan, &err) != FEDGE_OK)
        abort();
    float *values = calloc(plan->schema.num_elements, sizeof(*values));
    if (!values || fedge_codec_parse(DOWN[data[0] % (sizeof(DOWN) / sizeof(DOWN[0]))],
                                     &plan->update.down, &err) != FEDGE_OK)
        abort();
    plan->update.down_deflate = data[0] >= 128;
    const bool applied =
        fedge_model_delta_apply(plan, data + 1, size - 1, values, &err) == FEDGE_OK;
    for (size_t i = 0; applied && i < plan->schema.num_elements; i++) {
        if (!isfinite(values[i]))
            abort();
    }
    free(values);
    return 0;
}
