#include "tests/world/hostile_result.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "edge/plan/client_hooks.h"
#include "edge/plan/update.h"

#define BOMB_BYTES ((size_t)1 << 17)

static uint32_t below(fedge_rng *draw, uint32_t bound)
{
    return fedge_rng_below(draw, bound);
}

void hostile_result_free(hostile_result *result)
{
    free(result->bytes);
    *result = (hostile_result){0};
}

static void add_metric(hostile_result *result, const char *name, double value)
{
    fedge_upload *upload = &result->upload;
    if (upload->num_metrics == FEDGE_MAX_METRICS)
        return;
    fedge_metric *metric = &upload->metrics[upload->num_metrics++];
    (void)snprintf(metric->name, sizeof(metric->name), "%s", name);
    metric->value = value;
}

/* ---- results that count ---------------------------------------------------------------------- */

static bool encode(fedge_rng *draw, const fedge_plan *plan, const fedge_task *task,
                   hostile_result *out)
{
    const size_t sent = plan->sent.schema.num_elements;
    int8_t bounds[FEDGE_MAX_TENSORS];
    fedge_error err;
    memset(bounds, plan->update.bound_log2, sizeof(bounds));
    if (task->num_bounds > 0)
        memcpy(bounds, task->bounds_log2, task->num_bounds);
    float *changes = calloc(sent, sizeof(*changes));
    float *residual = fedge_plan_makes_residual(plan) ? calloc(sent + 1, sizeof(*residual)) : NULL;
    for (size_t i = 0; i < sent; i++)
        changes[i] = (float)((int32_t)below(draw, 2048) - 1024) * 0x1p-12f;
    const fedge_update update = {.plan = plan,
                                 .bounds_log2 = bounds,
                                 .changes = changes,
                                 .residual = residual,
                                 .round = task->round};
    const bool made = fedge_update_encode(&update, &out->upload, &out->bytes, &err) == FEDGE_OK;
    out->size = made ? (size_t)out->upload.size : 0;
    free(residual);
    free(changes);
    return made;
}

bool hostile_result_make(fedge_rng *draw, const fedge_plan *plan, const fedge_task *task,
                         const fedge_welcome *welcome, hostile_result *out)
{
    fedge_upload *upload = &out->upload;
    upload->num_examples = 1 + below(draw, 50);
    add_metric(out, "loss", 0.01 * below(draw, 400));
    add_metric(out, "accuracy", 0.01 * below(draw, 100));
    if (task->kind == FEDGE_TASK_TRAIN) {
        if (fedge_plan_measures(plan)) {
            add_metric(out, FEDGE_START_LOSS, 0.01 * below(draw, 400));
            add_metric(out, FEDGE_SQUARED_NORM, 0.01 * below(draw, 400));
        }
        if (fedge_plan_is_clustered(plan))
            add_metric(out, FEDGE_CLUSTER, 0);
        if (!encode(draw, plan, task, out)) {
            hostile_result_free(out);
            return false;
        }
    }
    upload->task_id = task->task_id;
    upload->incarnation = welcome->incarnation;
    memcpy(upload->run_id, welcome->run_id, sizeof(upload->run_id));
    return true;
}

/* ---- results that do not --------------------------------------------------------------------- */

/* Announces the right checksum of the bytes. */
static void sum_up(hostile_result *result)
{
    result->upload.crc32 = fedge_crc32(0, result->bytes, result->size);
}

static void change_bytes(fedge_rng *draw, hostile_result *result)
{
    const uint32_t count = 1 + below(draw, 8), kind = below(draw, 4);
    static const uint8_t VALUES[] = {0, 0x7f, 0x80, 0xff};
    for (uint32_t i = 0; i < count && result->size > 0; i++) {
        const uint32_t at = below(draw, (uint32_t)result->size);
        result->bytes[at] = kind == 0 ? (uint8_t)below(draw, 256) : VALUES[below(draw, 4)];
    }
    sum_up(result);
}

/* Float values that no bound admits. */
static void put_float(fedge_rng *draw, hostile_result *result)
{
    static const float VALUES[] = {1e30f, -1e30f, 4.0f, -4.0000005f, NAN, INFINITY, 1e-45f, -0.0f};
    if (result->size >= sizeof(float)) {
        const float value = VALUES[below(draw, 8)];
        const uint32_t at = below(draw, (uint32_t)(result->size / sizeof(float)));
        memcpy(result->bytes + at * sizeof(float), &value, sizeof(value));
        sum_up(result);
    }
}

static void change_all(fedge_rng *draw, hostile_result *result)
{
    for (size_t i = 0; i < result->size; i++)
        result->bytes[i] = (uint8_t)below(draw, 256);
    sum_up(result);
}

static void change_crc(fedge_rng *draw, hostile_result *result)
{
    result->upload.crc32 ^= 1u << below(draw, 32);
}

/* Changes the number of bytes, with or without announcing it. */
static void change_size(fedge_rng *draw, hostile_result *result)
{
    const size_t size = result->size + below(draw, 40);
    const size_t kept = size > 20 ? size - 20 : 0;
    uint8_t *bytes = calloc(kept + 1, 1);
    if (result->size > 0)
        memcpy(bytes, result->bytes, kept < result->size ? kept : result->size);
    free(result->bytes);
    result->bytes = bytes;
    result->size = kept;
    if (below(draw, 2) == 0) {
        result->upload.size = kept;
        if (result->upload.num_sections > 0 && below(draw, 2) == 0)
            result->upload.sections[0].size = kept;
    }
    sum_up(result);
}

static void change_announced(fedge_rng *draw, hostile_result *result)
{
    static const uint64_t SIZES[] = {
        0, 1, (uint64_t)1 << 20, (uint64_t)1 << 31, (uint64_t)1 << 32, ((uint64_t)1 << 53) - 1};
    const uint64_t size = SIZES[below(draw, 6)];
    fedge_section_info *section = &result->upload.sections[0];
    switch (below(draw, 3)) {
    case 0:
        result->upload.size = size;
        break;
    case 1:
        section->raw_size = size;
        break;
    default:
        section->size = result->upload.size = size;
        break;
    }
}

static void change_codec(fedge_rng *draw, hostile_result *result)
{
    static const fedge_codec_ops *const VALUES[] = {&fedge_codec_none, &fedge_codec_int8,
                                                    &fedge_codec_f16, &fedge_codec_int4};
    fedge_section_info *section = &result->upload.sections[0];
    section->codec = (fedge_codec){.values = VALUES[below(draw, 4)]};
    if (below(draw, 3) == 0) {
        section->codec.sparsifier = &fedge_codec_topk;
        section->codec.fraction = 1 + below(draw, FEDGE_CODEC_WHOLE);
    }
}

static void change_sections(fedge_rng *draw, hostile_result *result)
{
    fedge_upload *upload = &result->upload;
    if (below(draw, 3) == 0) { /* a result of an evaluation */
        upload->num_sections = 0;
        upload->size = 0;
    } else if (below(draw, 2) == 0 && upload->num_sections > 0) {
        upload->sections[0].deflate = !upload->sections[0].deflate;
    } else {
        fedge_section_info *more = &upload->sections[upload->num_sections++];
        *more = upload->sections[0];
        if (below(draw, 2) == 0)
            (void)snprintf(more->name, sizeof(more->name), "another");
        if (!more->codec.values)
            more->codec.values = &fedge_codec_none;
    }
}

/* A deflated stream that inflates to far more bytes than announced, complete or cut. */
static void put_bomb(fedge_rng *draw, hostile_result *result)
{
    uLongf size = compressBound(BOMB_BYTES);
    uint8_t *zeros = calloc(BOMB_BYTES, 1);
    uint8_t *bomb = calloc(size, 1);
    if (compress(bomb, &size, zeros, BOMB_BYTES) == Z_OK && result->upload.num_sections > 0) {
        free(result->bytes);
        result->bytes = bomb;
        result->size = below(draw, 2) == 0 ? size : size / 2;
        result->upload.size = result->upload.sections[0].size = result->size;
        result->upload.sections[0].deflate = true;
        sum_up(result);
        bomb = NULL;
    }
    free(bomb);
    free(zeros);
}

static void change_weight(fedge_rng *draw, hostile_result *result)
{
    static const uint64_t WEIGHTS[] = {0, 1, UINT32_MAX, (uint64_t)1 << 40,
                                       ((uint64_t)1 << 53) - 1};
    result->upload.num_examples = WEIGHTS[below(draw, 5)];
}

static void change_metrics(fedge_rng *draw, hostile_result *result)
{
    static const double VALUES[] = {-1.0, 7.0, 1e308, -1e308, 5e-324, 0.0, 1e18};
    fedge_upload *upload = &result->upload;
    const double value = VALUES[below(draw, 7)];
    if (below(draw, 3) == 0) {
        while (upload->num_metrics < 40)
            add_metric(result, "one-of-many", value);
    } else if (below(draw, 3) == 0) {
        upload->num_metrics = 0;
    } else if (upload->num_metrics > 0) {
        upload->metrics[below(draw, upload->num_metrics)].value = value;
    }
}

/* The task of another client, round, incarnation or run. */
static void change_task(fedge_rng *draw, hostile_result *result)
{
    fedge_upload *upload = &result->upload;
    switch (below(draw, 4)) {
    case 0:
        upload->task_id += (uint64_t)below(draw, 9) + 1 - 5;
        break;
    case 1:
        upload->incarnation += below(draw, 2) == 0 ? 1 : (uint32_t)-1;
        break;
    case 2:
        upload->run_id[below(draw, FEDGE_RUN_ID_TEXT - 1)] = 'a';
        break;
    default:
        upload->task_id = below(draw, 2) == 0 ? ((uint64_t)1 << 53) - 1 : below(draw, 40);
        break;
    }
    if (upload->task_id >= (uint64_t)1 << 53)
        upload->task_id = 1;
}

void hostile_result_spoil(fedge_rng *draw, hostile_result *result)
{
    static void (*const KINDS[])(fedge_rng * draw, hostile_result * result) = {
        change_bytes, change_all,       put_float,      change_crc,
        change_size,  change_codec,     put_bomb,       change_weight,
        change_task,  change_announced, change_metrics, change_sections};
    KINDS[below(draw, sizeof(KINDS) / sizeof(KINDS[0]))](draw, result);
}
