#include "aggregator/server/accepted_updates.h"

#include <stdlib.h>

#include "edge/core/codec.h"
#include "edge/io/update.h"

fedge_status fedge_accepted_updates_init(fedge_accepted_updates *updates, const fedge_plan *plan,
                                         fedge_journal *journal, fedge_kept_updates *kept,
                                         uint32_t most, fedge_error *err)
{
    const fedge_section *delta = &plan->sent.sections[0];
    *updates = (fedge_accepted_updates){
        .plan = plan,
        .journal = journal,
        .bounds_log2 = fedge_journal_get_phase(journal)->bounds_log2,
        .kept = kept,
        .places = calloc((size_t)most + 1, sizeof(*updates->places)),
        .offsets = calloc(delta->schema.num_tensors, sizeof(*updates->offsets))};
    if (!updates->places || !updates->offsets) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the updates of %u clients",
                          (unsigned)most);
    }
    size_t offset = 0;
    for (uint32_t t = 0; fedge_codec_is_plain(&delta->codec) && t < delta->schema.num_tensors;
         t++) {
        updates->offsets[t] = offset;
        offset += fedge_codec_run_size(&delta->codec, delta->schema.tensors[t].count);
    }
    return FEDGE_OK;
}

static void free_room(fedge_accepted_updates *self)
{
    free(self->bytes);
    free(self->raw);
    free(self->v);
    self->bytes = self->raw = NULL;
    self->v = NULL;
}

void fedge_accepted_updates_fini(fedge_accepted_updates *updates)
{
    free_room(updates);
    free(updates->places);
    free(updates->offsets);
    *updates = (fedge_accepted_updates){0};
}

/* Can any of its values be decoded alone? The delta is the first section. */
static bool lies_open(const fedge_accepted_updates *self, const fedge_upload *upload)
{
    return fedge_codec_is_plain(&self->plan->sent.sections[0].codec) &&
           !upload->sections[0].deflate;
}

static fedge_status take_room(fedge_accepted_updates *self, fedge_error *err)
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

static fedge_status keep(fedge_accepted_updates *self, uint32_t slot, const fedge_upload *upload,
                         uint32_t *place, fedge_error *err)
{
    fedge_status status = take_room(self, err);
    if (status == FEDGE_OK)
        status = fedge_kept_updates_reserve(self->kept, 1, place, err);
    if (status == FEDGE_OK)
        status = fedge_journal_read(self->journal, slot, 0, self->bytes, (size_t)upload->size, err);
    if (status == FEDGE_OK) {
        status = fedge_update_decode(self->plan, self->bounds_log2, upload, self->bytes, self->raw,
                                     fedge_update_max_size(self->plan), self->v, err);
    }
    return status == FEDGE_OK ? fedge_kept_updates_put(self->kept, *place, self->v, err) : status;
}

fedge_status fedge_accepted_updates_add(fedge_accepted_updates *updates, uint32_t slot,
                                        const fedge_upload *upload, fedge_error *err)
{
    struct fedge_accepted_place *added = &updates->places[updates->num];
    added->slot = slot;
    added->is_kept = !lies_open(updates, upload);
    const fedge_status status =
        added->is_kept ? keep(updates, slot, upload, &added->place, err) : FEDGE_OK;
    updates->num += status == FEDGE_OK;
    return status;
}

static fedge_status read_one(void *user, uint32_t index, uint32_t tensor, size_t at, size_t count,
                             int32_t *v, fedge_error *err)
{
    const fedge_accepted_updates *self = user;
    const struct fedge_accepted_place *of = &self->places[index];
    const fedge_section *delta = &self->plan->sent.sections[0];
    uint8_t bytes[FEDGE_UPDATES_PIECE * sizeof(float)];
    if (of->is_kept)
        return fedge_kept_updates_read(self->kept, of->place, tensor, at, count, v, err);
    const size_t size = fedge_codec_run_size(&delta->codec, count);
    if (size > sizeof(bytes))
        return fedge_fail(err, FEDGE_INTERNAL, "a codec of %zu bytes for %zu values", size, count);
    const fedge_status status = fedge_journal_read(
        self->journal, of->slot, self->offsets[tensor] + fedge_codec_run_size(&delta->codec, at),
        bytes, size, err);
    return status == FEDGE_OK
               ? fedge_codec_decode_run(&delta->codec, &delta->schema.tensors[tensor],
                                        self->bounds_log2[tensor], at, count, bytes, v, err)
               : status;
}

fedge_updates fedge_accepted_updates_get(fedge_accepted_updates *updates)
{
    /* The step wants the memory now. */
    free_room(updates);
    return (fedge_updates){.num = updates->num, .read = read_one, .user = updates};
}
