#include "aggregator/run/recovery/recovered_updates.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/run/ingest/ingest.h"
#include "aggregator/store/disk.h"
#include "edge/core/os.h"

/* ---- whose ----------------------------------------------------------------------------------- */

bool fedge_rank_disks_reads(const fedge_rank_disks *ranks, uint32_t folder)
{
    const uint64_t disk = ranks->disks[ranks->rank];
    if (folder < ranks->num_ranks && ranks->disks[folder] == disk)
        return folder == ranks->rank;
    for (uint32_t lower = 0; lower < ranks->rank; lower++) {
        if (ranks->disks[lower] == disk)
            return false;
    }
    return true;
}

/* ---- finding --------------------------------------------------------------------------------- */

static fedge_recovered_update *add(fedge_recovered_updates *recovered, fedge_error *err)
{
    if (recovered->num == recovered->capacity) {
        const uint32_t capacity = 2 * recovered->capacity + 16;
        fedge_recovered_update *grown = realloc(recovered->items, capacity * sizeof(*grown));
        if (!grown) {
            (void)fedge_fail(err, FEDGE_NO_MEMORY, "no memory for updates of other ranks");
            return NULL;
        }
        recovered->items = grown;
        recovered->capacity = capacity;
    }
    recovered->items[recovered->num] = (fedge_recovered_update){0};
    return &recovered->items[recovered->num];
}

static fedge_status take_meta(fedge_recovered_update *update, fedge_error *err)
{
    update->meta = malloc((size_t)update->facts.metadata_size + 1);
    return update->meta ? FEDGE_OK
                        : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for updates of other ranks");
}

static fedge_status add_accepted(fedge_recovered_updates *recovered, fedge_journal *journal,
                                 uint64_t disk, uint32_t folder, fedge_error *err)
{
    const uint32_t num_slots = fedge_journal_get_phase(journal)->num_tasks;
    for (uint32_t slot = 0; slot < num_slots; slot++) {
        const fedge_journal_slot facts = fedge_journal_get_slot(journal, slot);
        if (!facts.accepted)
            continue;
        fedge_recovered_update *update = add(recovered, err);
        if (!update)
            return FEDGE_NO_MEMORY;
        update->slot = slot;
        update->facts = facts;
        update->facts.place = (fedge_journal_place){.disk = disk, .rank = folder};
        fedge_status status = take_meta(update, err);
        if (status != FEDGE_OK)
            return status;
        recovered->num++;
        status = fedge_journal_metadata(journal, slot, update->meta,
                                        facts.metadata_size + (size_t)1, err);
        if (status != FEDGE_OK)
            return status;
    }
    return FEDGE_OK;
}

static bool is_of_phase(const fedge_journal *journal, const fedge_journal_phase *phase)
{
    const fedge_journal_phase *has = fedge_journal_get_phase(journal);
    return strcmp(has->run_id, phase->run_id) == 0 && strcmp(has->model, phase->model) == 0 &&
           has->incarnation == phase->incarnation && has->num_tasks == phase->num_tasks &&
           has->slot_size == phase->slot_size;
}

static fedge_status read_folder(fedge_recovered_updates *recovered, const char *dir, uint64_t disk,
                                uint32_t folder, const fedge_journal_phase *phase,
                                const fedge_log *log, fedge_error *err)
{
    char path[FEDGE_MAX_PATH];
    fedge_journal *journal = NULL;
    fedge_status status = fedge_journal_make_path(dir, phase->round, phase->attempt, path, err);
    if (status != FEDGE_OK || !fedge_os_exists(path))
        return status;
    status = fedge_journal_recover(path, &journal, err);
    if (status != FEDGE_OK)
        return status;
    if (fedge_journal_note(journal)[0]) {
        FEDGE_LOG(log, FEDGE_LOG_WARN, "recovered",
                  fedge_log_str("note", fedge_journal_note(journal)));
    }
    if (!is_of_phase(journal, phase)) {
        fedge_journal_free(journal);
        return FEDGE_OK;
    }
    recovered->journals[folder] = journal;
    return add_accepted(recovered, journal, disk, folder, err);
}

fedge_status fedge_recovered_updates_read(fedge_recovered_updates *recovered, const char *state_dir,
                                          const fedge_rank_disks *ranks,
                                          const fedge_journal_phase *phase, const fedge_log *log,
                                          fedge_error *err)
{
    char dir[FEDGE_MAX_PATH];
    const uint64_t disk = ranks->disks[ranks->rank];
    FEDGE_TRY(fedge_disk_folder(state_dir, phase->run_id, FEDGE_DISK_ALL_RANKS, dir, err));
    if (!fedge_os_is_dir(dir))
        return FEDGE_OK;
    for (uint32_t folder = 1; folder < FEDGE_RANKS_MAX; folder++) {
        FEDGE_TRY(fedge_disk_folder(state_dir, phase->run_id, folder, dir, err));
        if (fedge_rank_disks_reads(ranks, folder) && fedge_os_is_dir(dir))
            FEDGE_TRY(read_folder(recovered, dir, disk, folder, phase, log, err));
    }
    return FEDGE_OK;
}

void fedge_recovered_updates_free(fedge_recovered_updates *recovered)
{
    for (uint32_t i = 0; i < recovered->num; i++)
        free(recovered->items[i].meta);
    free(recovered->items);
    for (uint32_t i = 0; i < FEDGE_RANKS_MAX; i++)
        fedge_journal_free(recovered->journals[i]);
    *recovered = (fedge_recovered_updates){0};
}

/* ---- summing --------------------------------------------------------------------------------- */

static fedge_status sum_one(fedge_recovered_updates *recovered,
                            const fedge_recovered_update *update, const fedge_plan *plan,
                            fedge_accumulator *accumulator, fedge_upload *upload, uint32_t own,
                            fedge_error *err)
{
    fedge_journal *journal = recovered->journals[update->facts.place.rank];
    if (update->weight == 0) {
        return update->facts.place.rank == own ? fedge_journal_lose(journal, update->slot, err)
                                               : FEDGE_OK;
    }
    const fedge_message message = {.type = FEDGE_MESSAGE_UPLOAD,
                                   .meta = update->meta,
                                   .meta_size = update->facts.metadata_size};
    FEDGE_TRY(fedge_upload_read(&message, upload, err));
    return fedge_ingest_replay(plan, accumulator, journal, update->slot, upload,
                               fedge_journal_get_phase(journal)->bounds_log2, update->weight, err);
}

fedge_status fedge_recovered_updates_sum(fedge_recovered_updates *recovered, const fedge_plan *plan,
                                         fedge_accumulator *accumulator, uint32_t own,
                                         fedge_error *err)
{
    fedge_upload *upload = malloc(sizeof(*upload));
    fedge_status status =
        upload ? FEDGE_OK : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for an upload");
    for (uint32_t i = 0; i < recovered->num && status == FEDGE_OK; i++)
        status = sum_one(recovered, &recovered->items[i], plan, accumulator, upload, own, err);
    free(upload);
    return status;
}

/* ---- between ranks --------------------------------------------------------------------------- */

fedge_status fedge_recovered_updates_pack(const fedge_recovered_updates *recovered, uint8_t **bytes,
                                          uint64_t *size, fedge_error *err)
{
    *size = 0;
    for (uint32_t i = 0; i < recovered->num; i++)
        *size += sizeof(fedge_recovered_update) + recovered->items[i].facts.metadata_size;
    uint8_t *at = *bytes = malloc((size_t)*size + 1);
    if (!at)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for updates of other ranks");
    for (uint32_t i = 0; i < recovered->num; i++) {
        fedge_recovered_update update = recovered->items[i];
        const char *meta = update.meta;
        update.meta = NULL;
        memcpy(at, &update, sizeof(update));
        memcpy(at + sizeof(update), meta, update.facts.metadata_size);
        at += sizeof(update) + update.facts.metadata_size;
    }
    return FEDGE_OK;
}

fedge_status fedge_recovered_updates_unpack(fedge_recovered_updates *recovered,
                                            const uint8_t *bytes, uint64_t size, fedge_error *err)
{
    uint64_t at = 0;
    while (at < size) {
        fedge_recovered_update *update = add(recovered, err);
        if (!update)
            return FEDGE_NO_MEMORY;
        if (size - at >= sizeof(*update))
            memcpy(update, bytes + at, sizeof(*update));
        if (size - at < sizeof(*update) ||
            update->facts.metadata_size > size - at - sizeof(*update) ||
            update->facts.place.rank >= FEDGE_RANKS_MAX)
            return fedge_fail(err, FEDGE_CORRUPT, "what another rank has found is not whole");
        FEDGE_TRY(take_meta(update, err));
        recovered->num++;
        memcpy(update->meta, bytes + at + sizeof(*update), update->facts.metadata_size);
        update->meta[update->facts.metadata_size] = '\0';
        at += sizeof(*update) + update->facts.metadata_size;
    }
    return FEDGE_OK;
}
