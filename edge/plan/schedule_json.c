/* Schedules of learning rates in jobs and plans. */
#include <stdio.h>
#include <string.h>

#include "edge/plan/plan_fields.h"

#define AT FEDGE_JSON_AT

static const char *schedule_name(unsigned type)
{
    return fedge_schedule_type_name((fedge_schedule_type)type);
}

const fedge_json_field fedge_schedule_fields[] = {
    {.key = "type",
     .kind = FEDGE_JSON_ENUM,
     AT(fedge_schedule, type),
     .name_of = schedule_name,
     .num_names = FEDGE_SCHEDULE_COUNT},
    {.key = "step_size",
     .kind = FEDGE_JSON_U32,
     .flags = FEDGE_JSON_SPARSE,
     AT(fedge_schedule, step_size),
     .min = 1,
     .max = 1e9,
     .fallback = 1},
    {.key = "gamma",
     .kind = FEDGE_JSON_F32,
     .flags = FEDGE_JSON_SPARSE,
     AT(fedge_schedule, gamma),
     .min = 0,
     .max = 1e6,
     .fallback = 0.1},
    {.key = "T_max",
     .kind = FEDGE_JSON_U32,
     .flags = FEDGE_JSON_SPARSE,
     AT(fedge_schedule, t_max),
     .min = 1,
     .max = 1e9,
     .fallback = 1},
    {.key = "eta_min",
     .kind = FEDGE_JSON_F32,
     .flags = FEDGE_JSON_SPARSE,
     AT(fedge_schedule, eta_min),
     .min = 0,
     .max = 1e6},
    {"warmup-rounds", "warmup_rounds", FEDGE_JSON_U32, FEDGE_JSON_SPARSE,
     AT(fedge_schedule, warmup_rounds), .min = 0, .max = 1e9},
    FEDGE_JSON_END,
};

/* The member of the root at a path such as "training.schedule"; NULL: there is none. */
static const cJSON *find_node(const fedge_json *json, const char *path)
{
    const cJSON *node = json->root;
    while (node && *path != '\0') {
        char key[64];
        const size_t length = strcspn(path, ".");
        (void)snprintf(key, sizeof(key), "%.*s", (int)length, path);
        node = fedge_json_get(node, key);
        path += length + (path[length] == '.');
    }
    return node;
}

fedge_status fedge_schedule_check(const fedge_json *json, const char *path,
                                  const fedge_schedule *schedule, fedge_error *err)
{
    enum { STEP = 1 << FEDGE_SCHEDULE_STEP, COSINE = 1 << FEDGE_SCHEDULE_COSINE };
    static const struct {
        const char *key;
        unsigned of; /* a bit for each type that has it */
    } keys[] = {{"step_size", STEP},
                {"gamma", STEP | 1 << FEDGE_SCHEDULE_EXPONENTIAL},
                {"T_max", COSINE},
                {"eta_min", COSINE}};
    static const char *const TAKES[] = {[FEDGE_SCHEDULE_CONSTANT] = "",
                                        [FEDGE_SCHEDULE_STEP] = "step_size, gamma and ",
                                        [FEDGE_SCHEDULE_EXPONENTIAL] = "gamma and ",
                                        [FEDGE_SCHEDULE_COSINE] = "T_max, eta_min and "};
    const cJSON *node = find_node(json, path);
    for (size_t i = 0; node && i < sizeof(keys) / sizeof(keys[0]); i++) {
        char at[FEDGE_JSON_MAX_PATH];
        (void)snprintf(at, sizeof(at), "%s.%s", path, keys[i].key);
        if (fedge_json_get(node, keys[i].key) && !(keys[i].of >> schedule->type & 1)) {
            return fedge_json_fail_at(json, at, err,
                                      "is not an argument of %s, which takes %swarmup-rounds; "
                                      "remove it, or change the type",
                                      schedule_name(schedule->type), TAKES[schedule->type]);
        }
    }
    return FEDGE_OK;
}
