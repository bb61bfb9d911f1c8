#include "aggregator/run/recovery/recovered_updates.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/run/ingest/ingest.h"
#include "aggregator/store/disk.h"
#include "edge/core/os.h"

/* ---- whose ----------------------------------------------------------------------------------- */

bool fedge_found_is_mine(const fedge_rank_disks *ranks, uint32_t folder)
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

static fedge_found *add(fedge_findings *findings, fedge_error *err)
{
    if (findings->num == findings->capacity) {
        const uint32_t capacity = 2 * findings->capacity + 16;
        fedge_found *grown = realloc(findings->items, capacity * sizeof(*grown));
        if (!grown) {
            (void)fedge_fail(err, FEDGE_NO_MEMORY, "no memory for updates of other ranks");
            return NULL;
        }
        findings->items = grown;
        findings->capacity = capacity;
    }
    findings->items[findings->num] = (fedge_found){0};
    return &findings->items[findings->num];
}

static fedge_status take_meta(fedge_found *found, fedge_error *err)
{
    found->meta = malloc((size_t)found->facts.metadata_size + 1);
    return found->meta ? FEDGE_OK
                       : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for updates of other ranks");
}

static fedge_status add_accepted(fedge_findings *findings, fedge_journal *journal, uint64_t disk,
                                 uint32_t folder, fedge_error *err)
{
    const uint32_t num_slots = fedge_journal_get_phase(journal)->num_tasks;
    for (uint32_t slot = 0; slot < num_slots; slot++) {
        const fedge_journal_slot facts = fedge_journal_get_slot(journal, slot);
        if (!facts.accepted)
            continue;
        fedge_found *found = add(findings, err);
        if (!found)
            return FEDGE_NO_MEMORY;
        found->slot = slot;
        found->facts = facts;
        found->facts.place = (fedge_journal_place){.disk = disk, .rank = folder};
        fedge_status status = take_meta(found, err);
        if (status != FEDGE_OK)
            return status;
        findings->num++;
        status = fedge_journal_metadata(journal, slot, found->meta, facts.metadata_size + (size_t)1,
                                        err);
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

static fedge_status read_folder(fedge_findings *findings, const char *dir, uint64_t disk,
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
    findings->journals[folder] = journal;
    return add_accepted(findings, journal, disk, folder, err);
}

fedge_status fedge_found_read(fedge_findings *findings, const char *state_dir,
                              const fedge_rank_disks *ranks, const fedge_journal_phase *phase,
                              const fedge_log *log, fedge_error *err)
{
    char dir[FEDGE_MAX_PATH];
    fedge_status status =
        fedge_disk_folder(state_dir, phase->run_id, FEDGE_DISK_ALL_RANKS, dir, err);
    if (status != FEDGE_OK || !fedge_os_is_dir(dir))
        return status;
    for (uint32_t folder = 1; folder < FEDGE_RANKS_MAX && status == FEDGE_OK; folder++) {
        status = fedge_disk_folder(state_dir, phase->run_id, folder, dir, err);
        if (status == FEDGE_OK && fedge_found_is_mine(ranks, folder) && fedge_os_is_dir(dir))
            status = read_folder(findings, dir, ranks->disks[ranks->rank], folder, phase, log, err);
    }
    return status;
}

void fedge_found_free(fedge_findings *findings)
{
    for (uint32_t i = 0; i < findings->num; i++)
        free(findings->items[i].meta);
    free(findings->items);
    for (uint32_t i = 0; i < FEDGE_RANKS_MAX; i++)
        fedge_journal_free(findings->journals[i]);
    *findings = (fedge_findings){0};
}

/* ---- summing --------------------------------------------------------------------------------- */

static fedge_status sum_one(fedge_findings *findings, const fedge_found *found,
                            const fedge_plan *plan, fedge_accumulator *accumulator,
                            fedge_upload *upload, uint32_t own, fedge_error *err)
{
    fedge_journal *journal = findings->journals[found->facts.place.rank];
    if (found->weight == 0) {
        return found->facts.place.rank == own ? fedge_journal_lose(journal, found->slot, err)
                                              : FEDGE_OK;
    }
    const fedge_message message = {
        .type = FEDGE_MESSAGE_UPLOAD, .meta = found->meta, .meta_size = found->facts.metadata_size};
    FEDGE_TRY(fedge_upload_read(&message, upload, err));
    return fedge_ingest_replay(plan, accumulator, journal, found->slot, upload,
                               fedge_journal_get_phase(journal)->bounds_log2, found->weight, err);
}

fedge_status fedge_found_sum(fedge_findings *findings, const fedge_plan *plan,
                             fedge_accumulator *accumulator, uint32_t own, fedge_error *err)
{
    fedge_upload *upload = malloc(sizeof(*upload));
    fedge_status status =
        upload ? FEDGE_OK : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for an upload");
    for (uint32_t i = 0; i < findings->num && status == FEDGE_OK; i++)
        status = sum_one(findings, &findings->items[i], plan, accumulator, upload, own, err);
    free(upload);
    return status;
}

/* ---- between ranks --------------------------------------------------------------------------- */

fedge_status fedge_found_pack(const fedge_findings *findings, uint8_t **bytes, uint64_t *size,
                              fedge_error *err)
{
    *size = 0;
    for (uint32_t i = 0; i < findings->num; i++)
        *size += sizeof(fedge_found) + findings->items[i].facts.metadata_size;
    uint8_t *at = *bytes = malloc((size_t)*size + 1);
    if (!at)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for updates of other ranks");
    for (uint32_t i = 0; i < findings->num; i++) {
        fedge_found found = findings->items[i];
        const char *meta = found.meta;
        found.meta = NULL;
        memcpy(at, &found, sizeof(found));
        memcpy(at + sizeof(found), meta, found.facts.metadata_size);
        at += sizeof(found) + found.facts.metadata_size;
    }
    return FEDGE_OK;
}

fedge_status fedge_found_unpack(fedge_findings *findings, const uint8_t *bytes, uint64_t size,
                                fedge_error *err)
{
    uint64_t at = 0;
    while (at < size) {
        fedge_found *found = add(findings, err);
        if (!found)
            return FEDGE_NO_MEMORY;
        if (size - at >= sizeof(*found))
            memcpy(found, bytes + at, sizeof(*found));
        if (size - at < sizeof(*found) || found->facts.metadata_size > size - at - sizeof(*found) ||
            found->facts.place.rank >= FEDGE_RANKS_MAX)
            return fedge_fail(err, FEDGE_CORRUPT, "what another rank has found is not whole");
        FEDGE_TRY(take_meta(found, err));
        findings->num++;
        memcpy(found->meta, bytes + at + sizeof(*found), found->facts.metadata_size);
        found->meta[found->facts.metadata_size] = '\0';
        at += sizeof(*found) + found->facts.metadata_size;
    }
    return FEDGE_OK;
}
