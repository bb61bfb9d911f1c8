/* The journal's bytes: layout, header, records and their bodies, without I/O. journal.h describes
 * the file; journal.c explains the order in which its parts reach the disk and what each crash
 * leaves. The whole file is reserved before the round opens, so a full disk delays a round but
 * never breaks one in progress. */
#include "aggregator/store/journal_file.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/bytes.h"
#include "edge/core/message.h"

#define RUN_ID_BYTES (FEDGE_RUN_ID_TEXT - 1)
#define HASH_BYTES (FEDGE_HASH_TEXT - 1)
#define DEVICE_ID_BYTES (FEDGE_JOURNAL_DEVICE_ID - 1)

static uint64_t round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

uint64_t fedge_journal_record_size(uint64_t body_size)
{
    return JOURNAL_RECORD_HEADER + round_up(body_size, 8);
}

uint64_t fedge_journal_max_accept(void)
{
    return fedge_journal_record_size(JOURNAL_ACCEPT_FIXED + FEDGE_JOURNAL_MAX_METADATA);
}

/* --- header ----------------------------------------------------------------------------------- */

fedge_status fedge_journal_make_layout(const fedge_journal_phase *phase, journal_layout *layout,
                                       fedge_error *err)
{
    if (phase->num_tasks == 0 || phase->num_tasks > FEDGE_JOURNAL_MAX_SLOTS) {
        return fedge_fail(err, FEDGE_TOO_BIG,
                          "round %" PRIu32 " has %" PRIu32
                          " tasks; a journal has 1 to %u slots: set a smaller cohort",
                          phase->round, phase->num_tasks, FEDGE_JOURNAL_MAX_SLOTS);
    }
    uint64_t stride = round_up(phase->slot_size, JOURNAL_PAGE);
    uint64_t slots = phase->num_tasks;
    /* Upper limit of a phase's log: OPEN, an ACCEPT with the longest metadata per slot,
     * FEDGE_JOURNAL_ASSIGNS_PER_SLOT reassignments per slot on average, and the end. LOSE and
     * ELSEWHERE use the space of ASSIGNs (journal_file.h). */
    uint64_t log =
        fedge_journal_record_size(fedge_journal_open_body(phase)) +
        slots * fedge_journal_max_accept() +
        slots * FEDGE_JOURNAL_ASSIGNS_PER_SLOT * fedge_journal_record_size(JOURNAL_ASSIGN_BODY) +
        fedge_journal_record_size(JOURNAL_END_BODY);
    layout->slots_offset = round_up(JOURNAL_PAGE + log, JOURNAL_PAGE);
    if (phase->slot_size > INT64_MAX / 2 || stride > (INT64_MAX - layout->slots_offset) / slots) {
        return fedge_fail(err, FEDGE_TOO_BIG,
                          "%" PRIu32 " updates of %" PRIu64 " bytes are over what a file can hold",
                          phase->num_tasks, phase->slot_size);
    }
    layout->slot_stride = stride;
    layout->file_size = layout->slots_offset + slots * stride;
    return FEDGE_OK;
}

void fedge_journal_pack_header(const fedge_journal_phase *phase, const journal_layout *layout,
                               uint8_t page[4096])
{
    memset(page, 0, JOURNAL_PAGE);
    memcpy(page, JOURNAL_MAGIC, 8);
    fedge_put_u32(page + 8, JOURNAL_VERSION);
    fedge_put_u32(page + 12, phase->num_tasks);
    fedge_put_u64(page + 16, layout->slots_offset);
    fedge_put_u64(page + 24, layout->slot_stride);
    fedge_put_u64(page + 32, phase->slot_size);
    fedge_put_u64(page + 40, layout->file_size);
    fedge_put_u32(page + 48, fedge_crc32(0, page, 48));
}

fedge_status fedge_journal_unpack_header(const uint8_t page[4096], uint64_t true_size,
                                         const char *path, journal_layout *layout,
                                         uint32_t *num_slots, uint64_t *slot_size, fedge_error *err)
{
    if (memcmp(page, JOURNAL_MAGIC, 8) != 0)
        return fedge_fail(err, FEDGE_CORRUPT, "%s at byte 0: this is not a journal", path);
    if (fedge_get_u32(page + 8) != JOURNAL_VERSION) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "%s has journal format %" PRIu32 ", this release knows %u", path,
                          fedge_get_u32(page + 8), JOURNAL_VERSION);
    }
    if (fedge_get_u32(page + 48) != fedge_crc32(0, page, 48)) {
        return fedge_fail(err, FEDGE_CORRUPT, "%s at byte 48: the header's checksum is wrong",
                          path);
    }
    *num_slots = fedge_get_u32(page + 12);
    layout->slots_offset = fedge_get_u64(page + 16);
    layout->slot_stride = fedge_get_u64(page + 24);
    *slot_size = fedge_get_u64(page + 32);
    layout->file_size = fedge_get_u64(page + 40);
    /* The checksum detects damage, not forgery, so the offsets must also agree with each other and,
     * below, with the file. Dividing the stride instead of multiplying avoids overflow. */
    uint64_t slots = *num_slots;
    bool consistent = slots >= 1 && slots <= FEDGE_JOURNAL_MAX_SLOTS &&
                      layout->slots_offset > JOURNAL_PAGE &&
                      layout->slots_offset % JOURNAL_PAGE == 0 && layout->file_size <= INT64_MAX &&
                      layout->slots_offset <= layout->file_size &&
                      (layout->file_size - layout->slots_offset) % slots == 0 &&
                      (layout->file_size - layout->slots_offset) / slots == layout->slot_stride &&
                      *slot_size <= layout->slot_stride;
    if (!consistent)
        return fedge_fail(err, FEDGE_CORRUPT, "%s at byte 12: the header contradicts itself", path);
    if (true_size != layout->file_size) {
        return fedge_fail(err, FEDGE_CORRUPT,
                          "%s has %" PRIu64 " bytes, its header says %" PRIu64
                          ": the file was cut or replaced",
                          path, true_size, layout->file_size);
    }
    return FEDGE_OK;
}

/* --- records ---------------------------------------------------------------------------------- */

/* CRC of the size, of the fields after the CRC, and of the body. It covers the size because that
 * determines the body's end. */
static uint32_t record_crc(const uint8_t *header, const uint8_t *body, uint32_t body_size)
{
    uint32_t crc = fedge_crc32(0, header, 4);
    crc = fedge_crc32(crc, header + 8, JOURNAL_RECORD_HEADER - 8);
    return fedge_crc32(crc, body, body_size);
}

size_t fedge_journal_seal_record(uint8_t *out, uint32_t body_size, uint32_t number, uint32_t type,
                                 uint64_t durable)
{
    size_t total = (size_t)fedge_journal_record_size(body_size);
    memset(out + JOURNAL_RECORD_HEADER + body_size, 0, total - JOURNAL_RECORD_HEADER - body_size);
    fedge_put_u32(out, body_size);
    fedge_put_u32(out + 8, number);
    fedge_put_u32(out + 12, type);
    fedge_put_u64(out + 16, durable);
    fedge_put_u32(out + 4, record_crc(out, out + JOURNAL_RECORD_HEADER, body_size));
    return total;
}

bool fedge_journal_peek_record(const uint8_t *in, uint64_t available, journal_record *record)
{
    record->body_size = fedge_get_u32(in);
    record->number = fedge_get_u32(in + 8);
    record->type = fedge_get_u32(in + 12);
    record->durable = fedge_get_u64(in + 16);
    /* Bytes that were never written read as a record of size 0, which does not exist. */
    record->total = fedge_journal_record_size(record->body_size);
    return record->body_size > 0 && record->body_size <= JOURNAL_MAX_BODY &&
           record->total <= available;
}

bool fedge_journal_check_record(const uint8_t *header, const uint8_t *body, uint32_t body_size)
{
    return fedge_get_u32(header + 4) == record_crc(header, body, body_size);
}

/* --- bodies ----------------------------------------------------------------------------------- */

/* Texts are stored without their NUL and padded with zeros. */
static void pack_text(const char *text, size_t size, uint8_t *out)
{
    size_t length = strlen(text);
    assert(length <= size);
    memset(out, 0, size);
    memcpy(out, text, length);
}

static void unpack_text(const uint8_t *in, size_t size, char *text)
{
    memcpy(text, in, size);
    text[size] = '\0';
}

uint32_t fedge_journal_open_body(const fedge_journal_phase *phase)
{
    const uint32_t draw = phase->draw.available > 0 ? JOURNAL_OPEN_DRAW : 0;
    const uint32_t task = JOURNAL_OPEN_TASK + (phase->buffered ? JOURNAL_OPEN_BASE : 0);
    return JOURNAL_OPEN_FIXED + phase->num_bounds + task * phase->num_tasks + draw;
}

void fedge_journal_pack_task(const fedge_journal_task *task, uint8_t out[JOURNAL_OPEN_TASK])
{
    fedge_put_u64(out, task->task_id);
    fedge_put_u32(out + 8, task->client_index);
    pack_text(task->device_id, DEVICE_ID_BYTES, out + 12);
}

void fedge_journal_unpack_task(const uint8_t in[JOURNAL_OPEN_TASK], fedge_journal_task *task)
{
    task->task_id = fedge_get_u64(in);
    task->client_index = fedge_get_u32(in + 8);
    unpack_text(in + 12, DEVICE_ID_BYTES, task->device_id);
}

void fedge_journal_pack_open(const fedge_journal_phase *phase, const fedge_journal_task *tasks,
                             uint8_t *out)
{
    pack_text(phase->run_id, RUN_ID_BYTES, out);
    fedge_put_u32(out + 32, phase->incarnation);
    fedge_put_u32(out + 36, phase->round);
    fedge_put_u32(out + 40, phase->attempt);
    fedge_put_u32(out + 44, phase->wanted);
    pack_text(phase->model, HASH_BYTES, out + 48);
    fedge_put_u64(out + 112, phase->slot_size);
    fedge_put_u32(out + 120, phase->num_tasks);
    fedge_put_u32(out + 124, phase->num_bounds | (phase->buffered ? JOURNAL_BUFFERED : 0) |
                                 (phase->by_cohort ? JOURNAL_BY_COHORT : 0));
    memcpy(out + JOURNAL_OPEN_FIXED, phase->bounds_log2, phase->num_bounds);
    uint8_t *at = out + JOURNAL_OPEN_FIXED + phase->num_bounds;
    for (uint32_t i = 0; i < phase->num_tasks; i++)
        fedge_journal_pack_task(&tasks[i], at + (size_t)i * JOURNAL_OPEN_TASK);
    at += (size_t)phase->num_tasks * JOURNAL_OPEN_TASK;
    for (uint32_t i = 0; phase->buffered && i < phase->num_tasks; i++)
        fedge_put_u32(at + (size_t)i * JOURNAL_OPEN_BASE, tasks[i].base);
    if (phase->buffered || phase->draw.available == 0)
        return;
    fedge_put_u64(at, phase->draw.total);
    fedge_put_u32(at + 8, phase->draw.count);
    fedge_put_u32(at + 12, phase->draw.unknown);
    fedge_put_u32(at + 16, phase->draw.floor);
    fedge_put_u32(at + 20, phase->draw.asked);
    fedge_put_u32(at + 24, phase->draw.available);
    fedge_put_u32(at + 28, 0);
}

static fedge_draw unpack_draw(const uint8_t *in)
{
    return (fedge_draw){.total = fedge_get_u64(in),
                        .count = fedge_get_u32(in + 8),
                        .unknown = fedge_get_u32(in + 12),
                        .floor = fedge_get_u32(in + 16),
                        .asked = fedge_get_u32(in + 20),
                        .available = fedge_get_u32(in + 24)};
}

fedge_status fedge_journal_unpack_open(const uint8_t *in, uint32_t size, fedge_journal_phase *phase,
                                       size_t *tasks_offset, const char *path, fedge_error *err)
{
    *phase = (fedge_journal_phase){0};
    if (size >= JOURNAL_OPEN_FIXED) {
        unpack_text(in, RUN_ID_BYTES, phase->run_id);
        phase->incarnation = fedge_get_u32(in + 32);
        phase->round = fedge_get_u32(in + 36);
        phase->attempt = fedge_get_u32(in + 40);
        phase->wanted = fedge_get_u32(in + 44);
        unpack_text(in + 48, HASH_BYTES, phase->model);
        phase->slot_size = fedge_get_u64(in + 112);
        phase->num_tasks = fedge_get_u32(in + 120);
        const uint32_t bounds = fedge_get_u32(in + 124);
        phase->num_bounds = bounds & ~(JOURNAL_BUFFERED | JOURNAL_BY_COHORT);
        phase->buffered = (bounds & JOURNAL_BUFFERED) != 0;
        phase->by_cohort = (bounds & JOURNAL_BY_COHORT) != 0;
    }
    bool sane = phase->num_tasks >= 1 && phase->num_tasks <= FEDGE_JOURNAL_MAX_SLOTS &&
                phase->num_bounds <= FEDGE_MAX_TENSORS && phase->wanted >= 1 &&
                phase->wanted <= phase->num_tasks;
    /* [phase] has no draw yet, so this is the size without one; the record's size tells whether it
     * has one. Journals of releases that only drew uniformly have none. */
    const uint32_t plain = sane ? fedge_journal_open_body(phase) : 0;
    if (sane && !phase->buffered && size == plain + JOURNAL_OPEN_DRAW)
        phase->draw = unpack_draw(in + plain);
    if (!sane || size != fedge_journal_open_body(phase)) {
        return fedge_fail(err, FEDGE_CORRUPT,
                          "%s at byte %" PRIu64 ": the record of the phase contradicts itself",
                          path, JOURNAL_PAGE);
    }
    memcpy(phase->bounds_log2, in + JOURNAL_OPEN_FIXED, phase->num_bounds);
    *tasks_offset = (size_t)JOURNAL_OPEN_FIXED + phase->num_bounds;
    return FEDGE_OK;
}

/* --- the handle ------------------------------------------------------------------------------- */

fedge_status fedge_journal_allocate(const fedge_journal_phase *phase, fedge_journal **journal,
                                    fedge_error *err)
{
    *journal = NULL;
    fedge_journal *made = calloc(1, sizeof(*made));
    if (!made)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a journal");
    made->file.fd = -1;
    made->phase = *phase;
    made->state = FEDGE_JOURNAL_OPEN;
    made->slots = calloc(phase->num_tasks, sizeof(made->slots[0]));
    /* The longest record after OPEN, so that accepting an update allocates nothing and cannot fail
     * for lack of memory. */
    made->record = malloc(
        (size_t)fedge_journal_record_size(JOURNAL_ELSEWHERE_FIXED + FEDGE_JOURNAL_MAX_METADATA));
    if (!made->slots || !made->record) {
        fedge_journal_free(made);
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a journal of %" PRIu32 " slots",
                          phase->num_tasks);
    }
    int error = pthread_mutex_init(&made->lock, NULL);
    if (error == 0) {
        error = pthread_cond_init(&made->synced_more, NULL);
        if (error != 0)
            pthread_mutex_destroy(&made->lock);
    }
    if (error != 0) {
        fedge_journal_free(made);
        return fedge_fail_errno(err, error, "cannot make the journal's lock");
    }
    made->lock_made = true;
    *journal = made;
    return FEDGE_OK;
}

void fedge_journal_free(fedge_journal *journal)
{
    if (!journal)
        return;
    fedge_os_close(&journal->file);
    if (journal->lock_made) {
        pthread_cond_destroy(&journal->synced_more);
        pthread_mutex_destroy(&journal->lock);
    }
    free(journal->slots);
    free(journal->replaced);
    free(journal->record);
    free(journal);
}
