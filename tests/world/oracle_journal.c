/* What stands in the server's journal when it acknowledges an update (aggregator/store/journal.h).
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "edge/core/message.h"
#include "tests/world/disk.h"
#include "tests/world/oracle_books.h"
#include "tests/world/ranks.h"
#include "tests/world/scheduler.h"

enum { PAGE = 4096, HEADER = 24, ACCEPT = 3, ACCEPT_FIXED = 24, ELSEWHERE = 6 };

/* A record of an accepted update. */
typedef struct record {
    uint64_t at, size; /* in the file */
    uint32_t type, slot, crc32;
    uint64_t num_bytes; /* of the update */
} record;

static uint64_t little(const uint8_t *at, size_t size)
{
    uint64_t value = 0;
    for (size_t i = size; i > 0; i--)
        value = value << 8 | at[i - 1];
    return value;
}

/* The last record of an accepted update of [id]. False: there is none. */
static bool find_record(const uint8_t *file, size_t size, uint64_t id, record *found)
{
    const uint64_t end = size > PAGE ? little(file + 16, 8) : 0; /* where the slots begin */
    bool any = false;
    for (uint64_t at = PAGE; at + HEADER < end && end <= size;) {
        const uint8_t *body = file + at + HEADER;
        const uint64_t num = little(file + at, 4), whole = (HEADER + num + 7) / 8 * 8;
        const uint32_t type = (uint32_t)little(file + at + 12, 4);
        if (num == 0 || whole > end - at)
            break;
        if ((type == ACCEPT || type == ELSEWHERE) && num >= ACCEPT_FIXED &&
            little(body + 8, 8) == id) {
            *found = (record){.at = at,
                              .size = whole,
                              .type = type,
                              .slot = (uint32_t)little(body, 4),
                              .crc32 = (uint32_t)little(body + 4, 4),
                              .num_bytes = little(body + 16, 8)};
            any = true;
        }
        at += whole;
    }
    return any;
}

/* What is wrong with the record and the bytes of an update on the node's disk; NULL: nothing. */
static const char *check_record(uint32_t node, const char *path, const uint8_t *file, size_t size,
                                const record *of)
{
    const uint64_t stride = little(file + 24, 8);
    const uint64_t at = little(file + 16, 8) + of->slot * stride;
    if (!world_disk_is_synced(node, path, of->at, of->at + of->size))
        return "its record is not synced";
    if (at > size || of->num_bytes > size - at)
        return "its slot is outside the journal";
    if (fedge_crc32(0, file + at, (size_t)of->num_bytes) != of->crc32)
        return "its slot has other bytes";
    return world_disk_is_synced(node, path, at, at + of->num_bytes) ? NULL
                                                                    : "its bytes are not synced";
}

/* The same, of an update that another rank has: in its own journal, of the same [name]. */
static const char *check_elsewhere(const char *name, uint64_t id)
{
    const char *wrong = "no journal has a record of it";
    for (uint32_t rank = 1; rank < WORLD_MAX_RANKS && wrong; rank++) {
        char path[256];
        size_t size = 0;
        record found;
        snprintf(path, sizeof(path), WORLD_DISK_ROOT "/state/ranks/%s/%" PRIu32 "/%s",
                 oracle.run_id, rank, name);
        const uint8_t *file = world_disk_read(world_rank_node(rank), path, &size);
        if (file && find_record(file, size, id, &found) && found.type == ACCEPT)
            wrong = check_record(world_rank_node(rank), path, file, size, &found);
    }
    return wrong;
}

void oracle_check_durable(const oracle_task *task)
{
    char name[64], path[256];
    size_t size = 0;
    record found;
    /* With a buffer the round is the open one. */
    const uint32_t round = oracle.async ? oracle.decided : task->round;
    if (oracle.damaged || task->used_in > 0 || round < oracle.decided || round == 0 ||
        round > ORACLE_MAX_ROUNDS)
        return;
    const uint32_t attempt = oracle.async ? oracle.rounds[round].attempt : task->attempt;
    snprintf(name, sizeof(name), "journal/round-%06" PRIu32 "-a%" PRIu32 ".fj", round, attempt);
    const uint8_t *file = oracle_read(name, &size);
    if (!file)
        return; /* the attempt is over */
    oracle_path(name, path, sizeof(path));
    const bool is_there = find_record(file, size, task->id, &found);
    const char *wrong = NULL;
    /* Of another rank's update the first one may have lost the record, with its power, meanwhile.
     */
    if (is_there && found.type == ACCEPT)
        wrong = check_record(WORLD_SERVER, path, file, size, &found);
    else if (!oracle.async)
        wrong = check_elsewhere(strrchr(name, '/') + 1, task->id);
    if (wrong) {
        world_fail("oracle: client %u's update of task %" PRIu64 " is acknowledged: %s",
                   task->client, task->id, wrong);
    }
}
