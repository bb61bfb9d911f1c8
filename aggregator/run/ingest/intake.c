#include "aggregator/run/ingest/intake.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void fedge_grant_free(fedge_grant *grant)
{
    if (grant) {
        free(grant->incoming);
        free(grant);
    }
}

fedge_status fedge_intake_begin(fedge_intake *intake, fedge_journal *journal, fedge_error *err)
{
    const uint32_t num_slots = fedge_journal_get_phase(journal)->num_tasks;
    /* After a restart the journal says which slots are done; uploads that were under way begin
     * again at byte 0, since only whole ones are in it. */
    fedge_intake_end(intake);
    intake->slots = calloc(num_slots, sizeof(*intake->slots));
    if (!intake->slots)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a cohort of %u", num_slots);
    intake->num_slots = num_slots;
    intake->journal = journal;
    for (uint32_t i = 0; i < num_slots; i++) {
        const fedge_journal_slot facts = fedge_journal_get_slot(journal, i);
        intake->slots[i].assigned = facts.task.task_id;
        intake->slots[i].holder.accepted = facts.accepted;
        intake->slots[i].carried = !facts.accepted && facts.written > 0;
    }
    return FEDGE_OK;
}

void fedge_intake_end(fedge_intake *intake)
{
    for (uint32_t i = 0; i < intake->num_slots; i++)
        free(intake->slots[i].incoming);
    free(intake->slots);
    intake->slots = NULL;
    intake->num_slots = 0;
    intake->journal = NULL;
}

fedge_status fedge_intake_assign(fedge_intake *intake, uint32_t slot,
                                 const fedge_journal_task *task, fedge_error *err)
{
    assert(slot < intake->num_slots);
    fedge_intake_slot *state = &intake->slots[slot];
    /* A task that is sent again to its client has its record already. */
    if (state->assigned == task->task_id)
        return FEDGE_OK;
    FEDGE_TRY(fedge_ingest_assign(intake->ingest, intake->journal, slot, task, err));
    state->assigned = task->task_id;
    return FEDGE_OK;
}

/* ---- answers --------------------------------------------------------------------------------- */

static fedge_status send_reply(fedge_intake *self, const fedge_reply *content, fedge_error *err)
{
    fedge_reply *reply = malloc(sizeof(*reply));
    if (!reply)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to answer a client");
    *reply = *content;
    self->reply(self->user, reply);
    return FEDGE_OK;
}

static fedge_status close_conn(fedge_intake *self, uint64_t conn_id, fedge_reason reason,
                               uint64_t after_ms, const char *text, fedge_error *err)
{
    fedge_reply reply = {.type = FEDGE_REPLY_CLOSE,
                         .conn_id = conn_id,
                         .message = FEDGE_MESSAGE_REFUSE,
                         .notice = {.reason = reason, .after_ms = after_ms}};
    snprintf(reply.notice.text, sizeof(reply.notice.text), "%s", text);
    return send_reply(self, &reply, err);
}

/* ---- an upload ------------------------------------------------------------------------------- */

static bool same_upload(const fedge_intake_slot *slot, const fedge_upload *upload)
{
    return slot->incoming && slot->incoming->upload.size == upload->size &&
           slot->incoming->upload.crc32 == upload->crc32;
}

/* Where an upload with bytes from the phase before continues. At least one byte is sent again,
 * which ends the upload. The CRC over the whole update shows whether all bytes belong to it. */
static uint64_t carried_bytes(const fedge_intake *self, const fedge_grant *grant, uint64_t size)
{
    const uint64_t written = fedge_journal_get_slot(self->journal, grant->slot).written;
    return written > size ? 0 : written == size ? size - 1 : written;
}

fedge_status fedge_intake_grant(fedge_intake *intake, fedge_grant *grant, uint64_t now_ms,
                                fedge_error *err)
{
    assert(grant->slot < intake->num_slots);
    fedge_intake_slot *slot = &intake->slots[grant->slot];
    fedge_ingest_upload *incoming = grant->incoming;
    grant->incoming = NULL;
    const fedge_slot_holder_answer answer =
        fedge_slot_holder_grant(&slot->holder, grant->task.task_id, grant->number);
    if (answer == FEDGE_HOLDER_IGNORE) {
        free(incoming);
        return FEDGE_OK;
    }
    const bool same_task = slot->assigned == grant->task.task_id;
    fedge_status status = fedge_intake_assign(intake, grant->slot, &grant->task, err);
    const uint64_t there =
        slot->carried && same_task ? carried_bytes(intake, grant, incoming->upload.size) : 0;
    /* A client that comes back continues where it stopped, but only with the update that it
     * announced before: one that has trained again since has other bytes. */
    const bool resumes =
        there > 0 || (answer == FEDGE_HOLDER_RESUME && same_upload(slot, &incoming->upload));
    slot->next = there > 0 ? there : slot->next;
    slot->started_ms = there > 0 ? now_ms : slot->started_ms;
    slot->carried = false;
    slot->reannounced = same_task && slot->conn_id == grant->conn_id;
    free(slot->incoming);
    slot->incoming = incoming;
    slot->conn_id = grant->conn_id;
    if (status == FEDGE_OK && !resumes) {
        slot->next = 0;
        slot->started_ms = now_ms;
        status = fedge_ingest_rewind(intake->ingest, intake->journal, grant->slot,
                                     grant->task.task_id, err);
    }
    if (status != FEDGE_OK) {
        slot->holder.uploading = false; /* the next announcement begins again */
        return close_conn(intake, grant->conn_id, FEDGE_REASON_BUSY, 1000, "out of memory", err);
    }
    return send_reply(
        intake,
        &(fedge_reply){.type = FEDGE_REPLY_MESSAGE,
                       .conn_id = grant->conn_id,
                       .message = FEDGE_MESSAGE_RESUME,
                       .position = {.task_id = grant->task.task_id, .offset = slot->next}},
        err);
}

bool fedge_intake_find(const fedge_intake *intake, uint64_t task_id, uint32_t *slot)
{
    /* Ids count up with the slots, except where a slot was reassigned. */
    const uint64_t first = intake->num_slots > 0 ? intake->slots[0].assigned : 0;
    if (task_id >= first && task_id - first < intake->num_slots &&
        intake->slots[task_id - first].holder.task_id == task_id) {
        *slot = (uint32_t)(task_id - first);
        return true;
    }
    for (uint32_t i = 0; i < intake->num_slots; i++) {
        if (intake->slots[i].holder.task_id == task_id) {
            *slot = i;
            return true;
        }
    }
    return false;
}

static fedge_status finish(fedge_intake *self, uint32_t index, uint64_t now_ms, fedge_error *err)
{
    fedge_intake_slot *slot = &self->slots[index];
    fedge_ingest_upload *incoming = slot->incoming;
    slot->incoming = NULL;
    /* With a buffer the phase may be full before this update is counted: then it is announced to
     * the next. */
    if (self->skips) {
        slot->incoming = malloc(sizeof(*incoming)); /* NULL: it is announced again */
        if (slot->incoming)
            *slot->incoming = *incoming;
    }
    fedge_slot_holder_finish(&slot->holder);
    slot->seconds_upload = (double)(now_ms - slot->started_ms) * 1e-3;
    return fedge_ingest_finish(self->ingest, self->journal, index, incoming, err);
}

fedge_status fedge_intake_part(fedge_intake *intake, uint32_t slot, fedge_request *from,
                               uint64_t now_ms, fedge_error *err)
{
    assert(slot < intake->num_slots);
    fedge_intake_slot *state = &intake->slots[slot];
    assert(!state->holder.uploading || state->incoming);
    const fedge_position *position = &from->message.position;
    const uint32_t size = from->payload_size;
    /* The part was sent to the phase before, or in answer to an earlier RESUME: a refusal of
     * damaged bytes may cross the client's announcement on a new connection, and then it announces
     * the update once more. The latest RESUME says where to continue. */
    if ((intake->skips || state->reannounced) &&
        (!state->holder.uploading || position->offset != state->next))
        return FEDGE_OK;
    if (!state->holder.uploading || position->offset != state->next || size == 0 ||
        size > state->incoming->upload.size - state->next) {
        char text[160];
        snprintf(text, sizeof(text),
                 "PART at byte %llu of %u bytes does not continue the upload at byte %llu",
                 (unsigned long long)position->offset, size, (unsigned long long)state->next);
        return close_conn(intake, from->conn_id, FEDGE_REASON_BAD_STATE, 0, text, err);
    }
    bool full = false;
    const fedge_ingest_part part = {.task_id = position->task_id,
                                    .offset = position->offset,
                                    .data = from->payload,
                                    .size = size};
    if (fedge_ingest_write(intake->ingest, intake->journal, slot, &part, &from->frame, &full,
                           err) != FEDGE_OK)
        return close_conn(intake, from->conn_id, FEDGE_REASON_BUSY, 1000, err->message, err);
    /* [full]: the workers lag behind the network. The connection is not read until they have caught
     * up, so that TCP slows the client and memory does not grow. */
    state->next += size;
    if (full) {
        FEDGE_TRY(send_reply(
            intake, &(fedge_reply){.type = FEDGE_REPLY_PAUSE, .conn_id = from->conn_id}, err));
    }
    return state->next == state->incoming->upload.size ? finish(intake, slot, now_ms, err)
                                                       : FEDGE_OK;
}

bool fedge_intake_recall(fedge_intake *intake, uint32_t slot)
{
    assert(slot < intake->num_slots);
    return fedge_slot_holder_recall(&intake->slots[slot].holder);
}

bool fedge_intake_validated(fedge_intake *intake, uint32_t slot, bool valid)
{
    assert(slot < intake->num_slots);
    /* A refused update may be announced again, and starts at its first byte. */
    intake->slots[slot].next = 0;
    return fedge_slot_holder_validated(&intake->slots[slot].holder, valid);
}
