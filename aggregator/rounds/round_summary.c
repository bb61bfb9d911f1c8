#include "aggregator/rounds/round_summary.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static fedge_status put_number(fedge_buffer *line, const char *key, double value, fedge_error *err)
{
    return isfinite(value) ? fedge_buffer_printf(line, err, ",\"%s\":%.9g", key, value)
                           : fedge_buffer_printf(line, err, ",\"%s\":null", key);
}

/* Enough digits to read back the same number, so a resumed run sums and compares the same values.
 */
static const char *exact_text(double value, char text[32])
{
    if (!isfinite(value))
        return "null";
    for (int digits = 9; digits <= 17; digits += 4) {
        (void)snprintf(text, 32, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    return text;
}

static fedge_status put_exact(fedge_buffer *line, const char *key, double value, fedge_error *err)
{
    char text[32];
    return fedge_buffer_printf(line, err, ",\"%s\":%s", key, exact_text(value, text));
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
    for (size_t i = 0; i < sizeof(means) / sizeof(means[0]); i++)
        FEDGE_TRY(put_exact(line, means[i].key, means[i].value, err));
    /* Whole numbers, since --resume adds them up again. */
    FEDGE_TRY(fedge_buffer_printf(
        line, err, ",\"bytes_up\":%llu,\"bytes_down\":%llu,\"clamped\":%llu",
        (unsigned long long)summary->bytes_up, (unsigned long long)summary->bytes_down,
        (unsigned long long)summary->clamped));
    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++)
        FEDGE_TRY(put_number(line, times[i].key, times[i].value, err));
    return FEDGE_OK;
}

static fedge_status put_counts(fedge_buffer *line, const char *key,
                               const uint32_t counts[FEDGE_SPEED_QUANTILES], fedge_error *err)
{
    FEDGE_TRY(fedge_buffer_printf(line, err, ",\"%s\":[", key));
    for (uint32_t i = 0; i < FEDGE_SPEED_QUANTILES; i++)
        FEDGE_TRY(fedge_buffer_printf(line, err, i > 0 ? ",%u" : "%u", counts[i]));
    return fedge_buffer_printf(line, err, "]");
}

/* Times have microseconds: a resumed simulation continues from them. */
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
    for (uint32_t i = 0; i < summary->num_gpus; i++) {
        const fedge_gpu_stats *gpu = &summary->gpus[i];
        FEDGE_TRY(fedge_buffer_printf(
            line, err,
            "%s{\"gpu\":%u,\"memory_bytes\":%llu,\"decoded_bytes\":%llu,\"seconds_copy\":%.9g,"
            "\"seconds_decode\":%.9g,\"seconds_reduce\":%.9g,\"seconds_step\":%.9g}",
            i > 0 ? "," : ",\"gpus\":[", gpu->gpu, (unsigned long long)gpu->memory_bytes,
            (unsigned long long)gpu->decoded_bytes, gpu->seconds_copy, gpu->seconds_decode,
            gpu->seconds_reduce, gpu->seconds_step));
    }
    return summary->num_gpus > 0 ? fedge_buffer_printf(line, err, "]") : FEDGE_OK;
}

static fedge_status put_buffered(fedge_buffer *line, const fedge_round_summary *summary,
                                 fedge_error *err)
{
    for (uint32_t i = 0; i < summary->num_buffered; i++) {
        FEDGE_TRY(fedge_buffer_printf(line, err, "%s[%u,%u]", i > 0 ? "," : ",\"updates\":[",
                                      summary->buffered[i].client, summary->buffered[i].staleness));
    }
    return summary->num_buffered > 0 ? fedge_buffer_printf(line, err, "]") : FEDGE_OK;
}

static fedge_status put_devices(fedge_buffer *line, const fedge_round_summary *summary,
                                fedge_error *err)
{
    for (uint32_t i = 0; i < summary->num_devices; i++) {
        const fedge_device_part *device = &summary->devices[i];
        FEDGE_TRY(fedge_buffer_printf(line, err, "%s[%u,%llu,", i > 0 ? "," : ",\"devices\":[",
                                      device->client, (unsigned long long)device->examples));
        FEDGE_TRY(isfinite(device->loss) ? fedge_buffer_printf(line, err, "%.6g]", device->loss)
                                         : fedge_buffer_printf(line, err, "null]"));
    }
    return summary->num_devices > 0 ? fedge_buffer_printf(line, err, "]") : FEDGE_OK;
}

fedge_status fedge_round_summary_add_device(fedge_round_summary *summary,
                                            const fedge_device_part *device, fedge_error *err)
{
    if (summary->reported > FEDGE_ROUND_SUMMARY_MAX_DEVICES ||
        summary->num_devices >= summary->reported)
        return FEDGE_OK;
    if (!summary->devices)
        summary->devices = calloc(summary->reported, sizeof(*summary->devices));
    if (!summary->devices)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a line of a round");
    summary->devices[summary->num_devices++] = *device;
    return FEDGE_OK;
}

void fedge_round_summary_fini(fedge_round_summary *summary)
{
    free(summary->buffered);
    free(summary->devices);
    summary->buffered = NULL;
    summary->devices = NULL;
    summary->num_buffered = summary->num_devices = 0;
}

static fedge_status put_metrics(fedge_buffer *line, const char *key,
                                const fedge_metric_values *metrics, fedge_error *err)
{
    if (metrics->num == 0)
        return FEDGE_OK;
    FEDGE_TRY(fedge_buffer_printf(line, err, ",\"%s\":{", key));
    for (uint32_t i = 0; i < metrics->num; i++) {
        char text[32];
        const double value = metrics->values[i];
        const bool exact = metrics->names == fedge_error_metric_names || !isfinite(value);
        if (!exact)
            (void)snprintf(text, sizeof(text), "%.9g", value);
        FEDGE_TRY(fedge_buffer_printf(line, err, "%s\"%s\":%s", i > 0 ? "," : "", metrics->names[i],
                                      exact ? exact_text(value, text) : text));
    }
    return fedge_buffer_printf(line, err, "}");
}

static fedge_status put_quantiles(fedge_buffer *line, const fedge_accuracy_quantiles *quantiles,
                                  fedge_error *err)
{
    FEDGE_TRY(fedge_buffer_printf(line, err, ",\"accuracy_quantiles\":{"));
    for (unsigned i = 0; i < FEDGE_ACCURACY_QUANTILES; i++) {
        FEDGE_TRY(fedge_buffer_printf(line, err, "%s\"%s\":%.9g", i > 0 ? "," : "",
                                      fedge_accuracy_quantile_key(i), quantiles->values[i]));
    }
    return fedge_buffer_printf(line, err, "}");
}

fedge_status fedge_round_summary_write(const fedge_round_summary *summary, fedge_buffer *line,
                                       fedge_error *err)
{
    FEDGE_TRY(fedge_buffer_printf(
        line, err, "\"attempt\":%u,\"asked\":%u,\"clients\":%u,\"examples\":%llu", summary->attempt,
        summary->asked, summary->reported, (unsigned long long)summary->examples));
    if (summary->kind == FEDGE_TASK_TRAIN)
        FEDGE_TRY(fedge_buffer_printf(line, err, ",\"model_sha256\":\"%s\"", summary->model));
    FEDGE_TRY(put_numbers(line, summary, err));
    if (summary->quantiles.present)
        FEDGE_TRY(put_quantiles(line, &summary->quantiles, err));
    if (summary->validation.present) {
        FEDGE_TRY(put_exact(line, "validation_loss", summary->validation.loss, err));
        FEDGE_TRY(put_exact(line, "validation_accuracy", summary->validation.accuracy, err));
        FEDGE_TRY(put_metrics(line, "validation_metrics", &summary->validation.metrics, err));
    }
    FEDGE_TRY(fedge_metrics_write(&summary->metrics, line, err));
    FEDGE_TRY(put_buffered(line, summary, err));
    FEDGE_TRY(put_devices(line, summary, err));
    FEDGE_TRY(put_gpus(line, summary, err));
    return summary->virtual_phase.present ? put_virtual(line, &summary->virtual_phase, err)
                                          : FEDGE_OK;
}

/* ---- quantiles of clients' accuracies -------------------------------------------------------- */

static const struct {
    double at;
    const char *key;
} QUANTILES[FEDGE_ACCURACY_QUANTILES] = {{0.0, "0"},     {0.1, "0.1"}, {0.25, "0.25"}, {0.5, "0.5"},
                                         {0.75, "0.75"}, {0.9, "0.9"}, {1.0, "1"}};

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double quantile_of(const double *sorted, uint32_t count, double at)
{
    const double position = at * (double)(count - 1);
    const uint32_t below = (uint32_t)position;
    const uint32_t above = below + 1 < count ? below + 1 : below;
    return sorted[below] + (position - (double)below) * (sorted[above] - sorted[below]);
}

const char *fedge_accuracy_quantile_key(unsigned index)
{
    return QUANTILES[index].key;
}

void fedge_accuracy_quantiles_measure(fedge_accuracy_quantiles *to, double *accuracies,
                                      uint32_t count)
{
    *to = (fedge_accuracy_quantiles){.present = count > 0};
    qsort(accuracies, count, sizeof(*accuracies), by_value);
    for (int q = 0; q < FEDGE_ACCURACY_QUANTILES && count > 0; q++)
        to->values[q] = quantile_of(accuracies, count, QUANTILES[q].at);
}

/* ---- metrics of a plugin --------------------------------------------------------------------- */

bool fedge_metric_is_name(const char *name)
{
    const size_t size = name ? strlen(name) : 0;
    return size > 0 && size < FEDGE_METRIC_PLUGIN_MAX_NAME &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == size;
}

const char *fedge_metrics_wrong(const fedge_metric_plugin *table)
{
    if (table->num_metrics < 1 || table->num_metrics > FEDGE_METRIC_PLUGIN_MAX_METRICS ||
        !table->names)
        return "it has no metrics, or over 16, or no list of their names";
    for (uint32_t i = 0; i < table->num_metrics; i++) {
        if (!fedge_metric_is_name(table->names[i])) {
            return "a metric's name is missing, over 31 bytes, or not of lower case, digits and "
                   "\"_\"";
        }
        for (uint32_t j = 0; j < i; j++) {
            if (strcmp(table->names[i], table->names[j]) == 0)
                return "two metrics have one name";
        }
    }
    if (table->state_size > FEDGE_METRIC_PLUGIN_MAX_STATE)
        return "its metrics count in over 1 GiB";
    return !table->add || !table->finish ? "its metrics have no add or no finish" : NULL;
}

void fedge_metrics_set_errors(fedge_metric_values *metrics, const double *values)
{
    if (metrics->num > 0)
        return;
    metrics->num = FEDGE_ERROR_METRICS;
    metrics->names = fedge_error_metric_names;
    memcpy(metrics->values, values, FEDGE_ERROR_METRICS * sizeof(*values));
}

double fedge_metrics_error(const fedge_metric_values *metrics, fedge_error_metric metric)
{
    for (uint32_t i = 0; i < metrics->num; i++) {
        if (strcmp(metrics->names[i], fedge_error_metric_names[metric]) == 0)
            return metrics->values[i];
    }
    return NAN;
}

fedge_status fedge_metrics_write(const fedge_metric_values *metrics, fedge_buffer *line,
                                 fedge_error *err)
{
    return put_metrics(line, "metrics", metrics, err);
}
