#include "aggregator/run/ingest/accepted_updates.h"

#include <inttypes.h>
#include <stdlib.h>

#include "edge/core/codec/codec.h"
#include "edge/core/message.h"
#include "edge/plan/update.h"

#define CHUNK ((size_t)16384) /* bytes read at a time for the checksum alone */

fedge_status fedge_accepted_updates_init(fedge_accepted_updates *updates, const fedge_plan *plan,
                                         fedge_journal *journal, fedge_stored_updates *stored,
                                         uint32_t most, fedge_error *err)
{
    const fedge_section *delta = &plan->sent.sections[0];
    *updates = (fedge_accepted_updates){
        .plan = plan,
        .journal = journal,
        .bounds_log2 = fedge_journal_get_phase(journal)->bounds_log2,
        .stored = stored,
        .items = calloc((size_t)most + 1, sizeof(*updates->items)),
        .offsets = calloc(delta->schema.num_tensors, sizeof(*updates->offsets))};
    if (!updates->items || !updates->offsets) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the updates of %u clients",
                          (unsigned)most);
    }
    size_t offset = 0;
    for (uint32_t t = 0; fedge_codec_is_plain(&delta->codec) && t < delta->schema.num_tensors;
         t++) {
        updates->offsets[t] = offset;
        offset += fedge_codec_run_size(&delta->codec, delta->schema.tensors[t].count);
    }
    return fedge_update_chunks_init(&updates->chunks, &delta->schema, err);
}

static void free_buffers(fedge_accepted_updates *self)
{
    free(self->bytes);
    free(self->raw);
    free(self->v);
    self->bytes = self->raw = NULL;
    self->v = NULL;
}

void fedge_accepted_updates_fini(fedge_accepted_updates *updates)
{
    free_buffers(updates);
    for (uint32_t i = 0; i < updates->num; i++)
        free(updates->items[i].sums);
    free(updates->items);
    free(updates->offsets);
    fedge_update_chunks_fini(&updates->chunks);
    *updates = (fedge_accepted_updates){0};
}

/* True when each value can be decoded alone. The delta is the first section. */
static bool is_plain(const fedge_accepted_updates *self, const fedge_upload *upload)
{
    return fedge_codec_is_plain(&self->plan->sent.sections[0].codec) &&
           !upload->sections[0].deflate;
}

static fedge_status take_buffers(fedge_accepted_updates *self, fedge_error *err)
{
    const size_t size = fedge_update_max_size(self->plan);
    if (self->bytes)
        return FEDGE_OK;
    self->bytes = malloc(size);
    self->raw = malloc(size);
    self->v = malloc(self->plan->sent.schema.num_elements * sizeof(*self->v));
    return self->bytes && self->raw && self->v
               ? FEDGE_OK
               : fedge_fail(err, FEDGE_NO_MEMORY, "no memory to inflate updates of %zu bytes",
                            size);
}

/* The bytes in the journal are not those that were accepted. */
static fedge_status fail_damaged(const fedge_accepted_updates *self, uint32_t slot,
                                 fedge_error *err)
{
    return fedge_fail(err, FEDGE_CORRUPT, "%s: the disk has damaged the update of task %" PRIu64,
                      fedge_journal_path(self->journal),
                      fedge_journal_get_slot(self->journal, slot).task.task_id);
}

static fedge_status keep(fedge_accepted_updates *self, uint32_t slot, const fedge_upload *upload,
                         uint32_t *index, fedge_error *err)
{
    FEDGE_TRY(take_buffers(self, err));
    FEDGE_TRY(fedge_journal_read(self->journal, slot, 0, self->bytes, (size_t)upload->size, err));
    if (fedge_crc32(0, self->bytes, (size_t)upload->size) !=
        fedge_journal_get_slot(self->journal, slot).crc32)
        return fail_damaged(self, slot, err);
    FEDGE_TRY(fedge_stored_updates_reserve(self->stored, 1, index, err));
    FEDGE_TRY(fedge_update_decode(self->plan, self->bounds_log2, upload, self->bytes, self->raw,
                                  fedge_update_max_size(self->plan), self->v, err));
    return fedge_stored_updates_put(self->stored, *index, self->v, err);
}

/* Bytes of a whole chunk of the delta, as it is encoded. */
static size_t chunk_bytes(const fedge_accepted_updates *self, const fedge_chunk *chunk)
{
    return fedge_codec_run_size(&self->plan->sent.sections[0].codec, chunk->count);
}

/* Reads a whole chunk of the delta, as it is encoded. */
static fedge_status read_chunk(const fedge_accepted_updates *self, uint32_t slot, uint32_t tensor,
                               const fedge_chunk *chunk, uint8_t *bytes, fedge_error *err)
{
    const fedge_codec *codec = &self->plan->sent.sections[0].codec;
    return fedge_journal_read(self->journal, slot,
                              self->offsets[tensor] + fedge_codec_run_size(codec, chunk->first),
                              bytes, chunk_bytes(self, chunk), err);
}

/* Computes the checksum of each chunk of the delta, which comes first, and checks that of the whole
 * upload. */
static fedge_status check_chunks(const fedge_accepted_updates *self, uint32_t slot,
                                 const fedge_upload *upload, uint32_t *sums, fedge_error *err)
{
    const fedge_schema *schema = &self->plan->sent.sections[0].schema;
    uint8_t bytes[FEDGE_UPDATES_CHUNK * sizeof(float)];
    uint64_t done = 0;
    uint32_t crc = 0;
    for (uint32_t t = 0; t < schema->num_tensors; t++) {
        const size_t count = schema->tensors[t].count;
        for (size_t at = 0; at < count;) {
            const fedge_chunk chunk = fedge_update_chunks_at(&self->chunks, t, at, count);
            const size_t size = chunk_bytes(self, &chunk);
            FEDGE_TRY(read_chunk(self, slot, t, &chunk, bytes, err));
            sums[chunk.number] = fedge_crc32(0, bytes, size);
            crc = fedge_crc32(crc, bytes, size);
            at += chunk.count;
            done += size;
        }
    }
    while (done < upload->size) {
        const size_t size = upload->size - done < CHUNK ? (size_t)(upload->size - done) : CHUNK;
        FEDGE_TRY(fedge_journal_read(self->journal, slot, done, bytes, size, err));
        crc = fedge_crc32(crc, bytes, size);
        done += size;
    }
    return crc == fedge_journal_get_slot(self->journal, slot).crc32 ? FEDGE_OK
                                                                    : fail_damaged(self, slot, err);
}

fedge_status fedge_accepted_updates_add(fedge_accepted_updates *updates, uint32_t slot,
                                        const fedge_upload *upload, fedge_error *err)
{
    struct fedge_accepted_update *added = &updates->items[updates->num];
    *added = (struct fedge_accepted_update){.slot = slot, .is_stored = !is_plain(updates, upload)};
    if (added->is_stored) {
        FEDGE_TRY(keep(updates, slot, upload, &added->index, err));
        updates->num++;
        return FEDGE_OK;
    }
    added->sums = calloc(updates->chunks.num, sizeof(*added->sums));
    if (!added->sums)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the checksums of an update");
    const fedge_status status = check_chunks(updates, slot, upload, added->sums, err);
    if (status != FEDGE_OK)
        free(added->sums);
    else
        updates->num++;
    return status;
}

/* Reads values of a plain update from their chunks. */
static fedge_status read_plain(const fedge_accepted_updates *self,
                               const struct fedge_accepted_update *of, uint32_t tensor, size_t at,
                               size_t count, int32_t *v, fedge_error *err)
{
    const fedge_section *delta = &self->plan->sent.sections[0];
    uint8_t bytes[FEDGE_UPDATES_CHUNK * sizeof(float)];
    for (size_t done = 0; done < count;) {
        const fedge_chunk chunk =
            fedge_update_chunks_at(&self->chunks, tensor, at + done, count - done);
        FEDGE_TRY(read_chunk(self, of->slot, tensor, &chunk, bytes, err));
        if (fedge_crc32(0, bytes, chunk_bytes(self, &chunk)) != of->sums[chunk.number])
            return fail_damaged(self, of->slot, err);
        FEDGE_TRY(fedge_codec_decode_run(
            &delta->codec, &delta->schema.tensors[tensor], self->bounds_log2[tensor], at + done,
            chunk.taken, bytes + fedge_codec_run_size(&delta->codec, chunk.skip), v + done, err));
        done += chunk.taken;
    }
    return FEDGE_OK;
}

static fedge_status read_one(void *user, uint32_t index, uint32_t tensor, size_t at, size_t count,
                             int32_t *v, fedge_error *err)
{
    const fedge_accepted_updates *self = user;
    const struct fedge_accepted_update *of = &self->items[index];
    return of->is_stored
               ? fedge_stored_updates_read(self->stored, of->index, tensor, at, count, v, err)
               : read_plain(self, of, tensor, at, count, v, err);
}

fedge_updates fedge_accepted_updates_get(fedge_accepted_updates *updates)
{
    /* The step needs the memory. */
    free_buffers(updates);
    return (fedge_updates){.num = updates->num, .read = read_one, .user = updates};
}
