#include "aggregator/rounds/round_summary.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static fedge_status put_number(fedge_buffer *line, const char *key, double value, fedge_error *err)
{
    return isfinite(value) ? fedge_buffer_printf(line, err, ",\"%s\":%.9g", key, value)
                           : fedge_buffer_printf(line, err, ",\"%s\":null", key);
}

/* With as many digits as read back as the same number: who goes on sums as who was not cut short.
 */
static fedge_status put_exact(fedge_buffer *line, const char *key, double value, fedge_error *err)
{
    char text[32];
    if (!isfinite(value))
        return put_number(line, key, value, err);
    for (int digits = 9; digits <= 17; digits += 4) {
        (void)snprintf(text, sizeof(text), "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    return fedge_buffer_printf(line, err, ",\"%s\":%s", key, text);
}

static fedge_status put_numbers(fedge_buffer *line, const fedge_round_summary *summary,
                                fedge_error *err)
{
    const struct {
        const char *key;
        double value;
    } means[] = {{"loss", summary->loss},
                 {"accuracy", summary->accuracy},
                 {"train_loss", summary->train_loss},
                 {"train_accuracy", summary->train_accuracy}},
      times[] = {{"seconds", summary->seconds},
                 {"seconds_train", summary->seconds_train},
                 {"seconds_encode", summary->seconds_encode},
                 {"seconds_upload", summary->seconds_upload},
                 {"seconds_validate", summary->seconds_validate},
                 {"seconds_journal", summary->seconds_journal},
                 {"seconds_sum", summary->seconds_sum},
                 {"seconds_step", summary->seconds_step},
                 {"seconds_evaluate", summary->seconds_evaluate}};
    fedge_status status = FEDGE_OK;
    for (size_t i = 0; i < sizeof(means) / sizeof(means[0]) && status == FEDGE_OK; i++)
        status = put_exact(line, means[i].key, means[i].value, err);
    if (status == FEDGE_OK) { /* exact: --resume sums them up again */
        status = fedge_buffer_printf(
            line, err, ",\"bytes_up\":%llu,\"bytes_down\":%llu,\"clamped\":%llu",
            (unsigned long long)summary->bytes_up, (unsigned long long)summary->bytes_down,
            (unsigned long long)summary->clamped);
    }
    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]) && status == FEDGE_OK; i++)
        status = put_number(line, times[i].key, times[i].value, err);
    return status;
}

static fedge_status put_counts(fedge_buffer *line, const char *key,
                               const uint32_t counts[FEDGE_SPEED_QUANTILES], fedge_error *err)
{
    fedge_status status = fedge_buffer_printf(line, err, ",\"%s\":[", key);
    for (uint32_t i = 0; i < FEDGE_SPEED_QUANTILES && status == FEDGE_OK; i++)
        status = fedge_buffer_printf(line, err, i > 0 ? ",%u" : "%u", counts[i]);
    return status == FEDGE_OK ? fedge_buffer_printf(line, err, "]") : status;
}

/* Times to the microsecond, which a simulation goes on from. */
static fedge_status put_virtual(fedge_buffer *line, const fedge_virtual_phase *phase,
                                fedge_error *err)
{
    FEDGE_TRY(fedge_buffer_printf(line, err, ",\"virtual_seconds\":%.6f,\"virtual_time\":%.6f",
                                  phase->seconds, phase->time));
    FEDGE_TRY(put_counts(line, "asked_by_speed", phase->asked, err));
    return put_counts(line, "reported_by_speed", phase->reported, err);
}

static fedge_status put_gpus(fedge_buffer *line, const fedge_round_summary *summary,
                             fedge_error *err)
{
    fedge_status status = FEDGE_OK;
    for (uint32_t i = 0; i < summary->num_gpus && status == FEDGE_OK; i++) {
        const fedge_gpu_stats *gpu = &summary->gpus[i];
        status = fedge_buffer_printf(
            line, err,
            "%s{\"gpu\":%u,\"memory_bytes\":%llu,\"decoded_bytes\":%llu,\"seconds_copy\":%.9g,"
            "\"seconds_decode\":%.9g,\"seconds_reduce\":%.9g,\"seconds_step\":%.9g}",
            i > 0 ? "," : ",\"gpus\":[", gpu->gpu, (unsigned long long)gpu->memory_bytes,
            (unsigned long long)gpu->decoded_bytes, gpu->seconds_copy, gpu->seconds_decode,
            gpu->seconds_reduce, gpu->seconds_step);
    }
    return status == FEDGE_OK && summary->num_gpus > 0 ? fedge_buffer_printf(line, err, "]")
                                                       : status;
}

static fedge_status put_told(fedge_buffer *line, const fedge_round_summary *summary,
                             fedge_error *err)
{
    fedge_status status = FEDGE_OK;
    for (uint32_t i = 0; i < summary->num_told && status == FEDGE_OK; i++) {
        status = fedge_buffer_printf(line, err, "%s[%u,%u]", i > 0 ? "," : ",\"updates\":[",
                                     summary->told[i].client, summary->told[i].staleness);
    }
    return status == FEDGE_OK && summary->num_told > 0 ? fedge_buffer_printf(line, err, "]")
                                                       : status;
}

static fedge_status put_quantiles(fedge_buffer *line, const fedge_accuracy_quantiles *quantiles,
                                  fedge_error *err)
{
    fedge_status status = fedge_buffer_printf(line, err, ",\"accuracy_quantiles\":{");
    for (unsigned i = 0; i < FEDGE_ACCURACY_QUANTILES && status == FEDGE_OK; i++) {
        status = fedge_buffer_printf(line, err, "%s\"%s\":%.9g", i > 0 ? "," : "",
                                     fedge_accuracy_quantile_key(i), quantiles->values[i]);
    }
    return status == FEDGE_OK ? fedge_buffer_printf(line, err, "}") : status;
}

fedge_status fedge_round_summary_write(const fedge_round_summary *summary, fedge_buffer *line,
                                       fedge_error *err)
{
    fedge_status status = fedge_buffer_printf(
        line, err, "\"attempt\":%u,\"asked\":%u,\"clients\":%u,\"examples\":%llu", summary->attempt,
        summary->asked, summary->reported, (unsigned long long)summary->examples);
    if (status == FEDGE_OK && summary->kind == FEDGE_TASK_TRAIN)
        status = fedge_buffer_printf(line, err, ",\"model_sha256\":\"%s\"", summary->model);
    if (status == FEDGE_OK)
        status = put_numbers(line, summary, err);
    if (status == FEDGE_OK && summary->quantiles.present)
        status = put_quantiles(line, &summary->quantiles, err);
    if (status == FEDGE_OK && summary->validation.present) {
        status = put_exact(line, "validation_loss", summary->validation.loss, err);
        if (status == FEDGE_OK)
            status = put_exact(line, "validation_accuracy", summary->validation.accuracy, err);
    }
    if (status == FEDGE_OK)
        status = fedge_metrics_write(&summary->metrics, line, err);
    if (status == FEDGE_OK)
        status = put_told(line, summary, err);
    if (status == FEDGE_OK)
        status = put_gpus(line, summary, err);
    return status == FEDGE_OK && summary->virtual_phase.present
               ? put_virtual(line, &summary->virtual_phase, err)
               : status;
}
