#include "aggregator/run/ingest/upload.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/message.h"
#include "edge/plan/client_hooks.h"
#include "edge/plan/update.h"

/* ---- what a client says of its update -------------------------------------------------------- */

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
    const double steps = fedge_upload_metric(upload, FEDGE_NUM_STEPS);
    const bool counts = fedge_plan_counts_steps(model->plan) && steps > 0.0; /* valid then */
    return (fedge_update_facts){.round = round,
                                .cluster = cluster > 0.0 ? (uint32_t)cluster : 0, /* valid */
                                .client = client,
                                .staleness = round - 1 - base,
                                .loss = isfinite(trained) ? trained : 0.0,
                                .cohort = model->cohort,
                                .ratio = fedge_update_ratio(model, round, client),
                                .num_examples = upload->num_examples,
                                .num_steps = counts ? (uint64_t)steps : 0,
                                .start_loss = isfinite(loss) ? loss : 0.0,
                                .squared_norm = isfinite(norm) ? norm : 0.0};
}

/* ---- buffers --------------------------------------------------------------------------------- */

void fedge_upload_buffer_fini(fedge_upload_buffer *buffer)
{
    free(buffer->inflated);
    *buffer = (fedge_upload_buffer){0};
}

static fedge_status buffer_grow(fedge_upload_buffer *buffer, size_t size, fedge_error *err)
{
    if (buffer->size >= size)
        return FEDGE_OK;
    fedge_upload_buffer_fini(buffer);
    buffer->inflated = malloc(size);
    if (!buffer->inflated)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to inflate updates of %zu bytes", size);
    buffer->size = size;
    return FEDGE_OK;
}

void fedge_upload_buffers_init(fedge_upload_buffers *buffers, size_t size, uint32_t num_workers)
{
    const size_t fitting = size > 0 ? FEDGE_UPLOAD_BUFFERS_BYTES / size : num_workers;
    *buffers = (fedge_upload_buffers){.count = fitting < 1             ? 1
                                               : fitting < num_workers ? (uint32_t)fitting
                                                                       : num_workers};
    pthread_mutex_init(&buffers->mutex, NULL);
    pthread_cond_init(&buffers->freed, NULL);
}

void fedge_upload_buffers_fini(fedge_upload_buffers *buffers)
{
    fedge_upload_buffers_empty(buffers);
    pthread_cond_destroy(&buffers->freed);
    pthread_mutex_destroy(&buffers->mutex);
}

/* NULL: all are taken. */
static fedge_upload_buffer *find_free(fedge_upload_buffers *buffers)
{
    for (uint32_t i = 0; i < buffers->count; i++) {
        if (!buffers->is_taken[i]) {
            buffers->is_taken[i] = true;
            return &buffers->of[i];
        }
    }
    return NULL;
}

fedge_upload_buffer *fedge_upload_buffers_take(fedge_upload_buffers *buffers)
{
    pthread_mutex_lock(&buffers->mutex);
    fedge_upload_buffer *taken = find_free(buffers);
    while (!taken) {
        pthread_cond_wait(&buffers->freed, &buffers->mutex);
        taken = find_free(buffers);
    }
    pthread_mutex_unlock(&buffers->mutex);
    return taken;
}

void fedge_upload_buffers_give_back(fedge_upload_buffers *buffers,
                                    const fedge_upload_buffer *buffer)
{
    pthread_mutex_lock(&buffers->mutex);
    buffers->is_taken[buffer - buffers->of] = false;
    pthread_cond_signal(&buffers->freed);
    pthread_mutex_unlock(&buffers->mutex);
}

void fedge_upload_buffers_empty(fedge_upload_buffers *buffers)
{
    pthread_mutex_lock(&buffers->mutex);
    for (uint32_t i = 0; i < buffers->count; i++) {
        if (!buffers->is_taken[i])
            fedge_upload_buffer_fini(&buffers->of[i]);
    }
    pthread_mutex_unlock(&buffers->mutex);
}

/* ---- an upload in its journal slot ----------------------------------------------------------- */

#define CHUNK_BYTES 16384 /* bytes read at a time for the checksum alone */

/* The first pass, for the validation, also computes the checksum. */
static fedge_status pull(void *user, uint64_t offset, uint8_t *bytes, size_t size, fedge_error *err)
{
    fedge_upload_source *source = user;
    FEDGE_TRY(fedge_journal_read(source->journal, source->slot, offset, bytes, size, err));
    /* A second pass reads what the first has checked. */
    if (offset == source->checked) {
        source->crc = fedge_crc32(source->crc, bytes, size);
        source->checked += size;
    }
    return FEDGE_OK;
}

bool fedge_upload_needs_buffer(const fedge_plan *plan, const fedge_upload *upload)
{
    for (uint32_t i = 0; i < plan->sent.num_sections; i++) {
        if (upload->sections[i].deflate || !fedge_codec_is_plain(&plan->sent.sections[i].codec))
            return true;
    }
    return false;
}

/* Reads the next bytes of the slot, for unpacking. */
static fedge_status read_on(void *user, uint8_t *bytes, size_t size, fedge_error *err)
{
    fedge_upload_source *source = user;
    fedge_status status =
        fedge_journal_read(source->journal, source->slot, source->checked, bytes, size, err);
    source->checked += size;
    return status;
}

fedge_status fedge_upload_source_open(fedge_upload_source *source, const fedge_plan *plan,
                                      fedge_journal *journal, uint32_t slot,
                                      const fedge_upload *upload, uint32_t weight,
                                      fedge_upload_buffer *buffer, fedge_error *err)
{
    *source = (fedge_upload_source){
        .encoded = {.read = pull,
                    .user = source,
                    .bounds_log2 = fedge_journal_get_phase(journal)->bounds_log2,
                    .weight = weight},
        .journal = journal,
        .slot = slot,
        .size = upload->size,
        .crc32 = upload->crc32};
    FEDGE_TRY(fedge_update_check(plan, upload, err));
    if (!fedge_upload_needs_buffer(plan, upload))
        return FEDGE_OK;
    FEDGE_TRY(buffer_grow(buffer, fedge_update_max_size(plan), err));
    FEDGE_TRY(fedge_update_unpack_read(plan, upload, read_on, source, buffer->inflated,
                                       buffer->size, err));
    for (uint32_t i = 0; i < plan->sent.num_sections; i++)
        source->sizes[i] = upload->sections[i].raw_size;
    source->encoded.bytes = buffer->inflated;
    source->encoded.sizes = source->sizes;
    source->checked = upload->size; /* unpacking checked all bytes */
    source->crc = upload->crc32;
    return FEDGE_OK;
}

/* Adds the bytes that no pass has read to the checksum, and compares it. */
static fedge_status check_remainder(fedge_upload_source *source, fedge_error *err)
{
    uint8_t bytes[CHUNK_BYTES];
    while (source->checked < source->size) {
        const uint64_t left = source->size - source->checked;
        FEDGE_TRY(pull(source, source->checked, bytes,
                       left < CHUNK_BYTES ? (size_t)left : CHUNK_BYTES, err));
    }
    return source->crc == source->crc32
               ? FEDGE_OK
               : fedge_update_fail_crc32(source->size, source->crc, source->crc32, err);
}

fedge_status fedge_upload_source_validate(fedge_upload_source *source,
                                          fedge_accumulator *accumulator, fedge_error *err)
{
    fedge_error damage;
    fedge_status status = fedge_accumulator_validate(accumulator, &source->encoded, err);
    /* These failures say nothing about the bytes, and end the process. */
    if (status == FEDGE_GPU_LOST || status == FEDGE_IO || status == FEDGE_NO_MEMORY)
        return status;
    /* After a bad value, too: damaged bytes are requested again, bad values are not. */
    const fedge_status intact = check_remainder(source, &damage);
    if (intact == FEDGE_OK)
        return status;
    if (status == FEDGE_OK)
        fedge_accumulator_drop(accumulator, &source->encoded);
    return fedge_fail(err, intact, "%s", damage.message);
}
