/* Checks the server's journal when it acknowledges an update (aggregator/store/journal.h). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/message.h"
#include "tests/world/disk.h"
#include "tests/world/oracle_books.h"
#include "tests/world/ranks.h"
#include "tests/world/scheduler.h"

enum { PAGE = 4096, HEADER = 24 };
/* In OPEN: the base model's SHA-256; then bounds, tasks and the draw. */
enum { WANTED_AT = 44, BASE_AT = 48, NUM_TASKS_AT = 120, NUM_BOUNDS_AT = 124, OPEN_FIXED = 128 };
enum { TASK = 48, CLIENT_AT = 8 /* in a task */, DRAW = 32 };
enum { OPEN = 1, ASSIGN = 2, ACCEPT = 3, CLOSE = 4, ELSEWHERE = 6, LOSE = 7, ACCEPT_FIXED = 24 };
enum { DISK_AT = 64, RANK_AT = 72, ELSEWHERE_FIXED = 80 }; /* in ELSEWHERE: where the bytes are */

/* A whole record. */
typedef struct record {
    uint64_t at, size; /* position in the file */
    uint32_t type, number;
    const uint8_t *body; /* (body_size) */
    uint64_t body_size;
} record;

static uint64_t little(const uint8_t *at, size_t size)
{
    uint64_t value = 0;
    for (size_t i = size; i > 0; i--)
        value = value << 8 | at[i - 1];
    return value;
}

/* Where the slots begin; 0: it is no journal. */
static uint64_t end_of_log(const uint8_t *file, size_t size)
{
    const uint64_t end = size > PAGE ? little(file + 16, 8) : 0;
    return end <= size ? end : 0;
}

/* False: there is no whole record at this place of the file, whose log ends at [end]. */
static bool read_record(const uint8_t *file, uint64_t end, uint64_t at, record *out)
{
    if (at + HEADER >= end)
        return false;
    const uint8_t *head = file + at;
    *out = (record){.at = at,
                    .type = (uint32_t)little(head + 12, 4),
                    .number = (uint32_t)little(head + 8, 4),
                    .body = head + HEADER,
                    .body_size = little(head, 4)};
    out->size = (HEADER + out->body_size + 7) / 8 * 8;
    if (out->size > end - at)
        return false;
    const uint32_t crc = fedge_crc32(fedge_crc32(0, head, 4), head + 8, 16);
    return little(head + 4, 4) == fedge_crc32(crc, out->body, (size_t)out->body_size);
}

/* False: it is not the record of an accepted update. */
static bool read_accepted(const record *of, oracle_accepted *out)
{
    if ((of->type != ACCEPT && of->type != ELSEWHERE) || of->body_size < ACCEPT_FIXED)
        return false;
    *out = (oracle_accepted){.slot = (uint32_t)little(of->body, 4),
                             .crc32 = (uint32_t)little(of->body + 4, 4),
                             .id = little(of->body + 8, 8),
                             .size = little(of->body + 16, 8)};
    return true;
}

/* ---- acknowledgements ------------------------------------------------------------------------ */

/* Finds the last record of an accepted update of task [id]. False: there is none, or the update was
 * lost since. */
static bool find_record(const uint8_t *file, size_t size, uint64_t id, record *found,
                        oracle_accepted *update)
{
    const uint64_t end = end_of_log(file, size);
    bool any = false;
    record next;
    oracle_accepted read;
    for (uint64_t at = PAGE; read_record(file, end, at, &next); at += next.size) {
        if (read_accepted(&next, &read) && read.id == id) {
            *found = next;
            *update = read;
            any = true;
        }
        if (any && next.type == LOSE && next.body_size >= 4 && little(next.body, 4) == update->slot)
            any = false;
    }
    return any;
}

/* Returns what is wrong with an update's record and bytes on the node's disk; NULL: nothing. */
static const char *check_record(uint32_t node, const char *path, const uint8_t *file, size_t size,
                                const record *of, const oracle_accepted *update)
{
    const uint64_t stride = little(file + 24, 8);
    const uint64_t at = little(file + 16, 8) + update->slot * stride;
    if (!world_disk_is_synced(node, path, of->at, of->at + of->size))
        return "its record is not synced";
    if (at > size || update->size > size - at)
        return "its slot is outside the journal";
    if (fedge_crc32(0, file + at, (size_t)update->size) != update->crc32)
        return "its slot has other bytes";
    return world_disk_is_synced(node, path, at, at + update->size) ? NULL
                                                                   : "its bytes are not synced";
}

/* The number of a node's disk (aggregator/store/disk.h); 0: none. */
static uint64_t disk_of(uint32_t node)
{
    char text[17] = "";
    size_t size = 0;
    const uint8_t *file = world_disk_read(node, WORLD_DISK_ROOT "/state/disk", &size);
    if (file && size >= sizeof(text))
        memcpy(text, file, sizeof(text) - 1);
    return strtoull(text, NULL, 16);
}

/* Whether rank 0's record of another rank's update names this place. */
static bool is_place_of(const record *of, uint32_t node, uint32_t folder)
{
    return of->body_size >= ELSEWHERE_FIXED && little(of->body + DISK_AT, 8) == disk_of(node) &&
           little(of->body + RANK_AT, 4) == folder;
}

/* The same, of an update that another rank has: in a journal of the same [name], on the disk of one
 * of [num_ranks] ranks. The folder may be that of a rank that was on this disk before. [named]:
 * rank 0's record of it, which has to name the place; NULL: any place will do. */
static const char *check_elsewhere(const char *name, uint64_t id, uint32_t num_ranks,
                                   const record *named)
{
    const char *wrong = "no journal has a record of it";
    for (uint32_t i = 0; i < num_ranks * WORLD_MAX_RANKS && wrong; i++) {
        const uint32_t node = world_rank_node(i / WORLD_MAX_RANKS), folder = i % WORLD_MAX_RANKS;
        char path[256];
        size_t size = 0;
        record found;
        oracle_accepted update;
        snprintf(path, sizeof(path), WORLD_DISK_ROOT "/state/ranks/%s/%" PRIu32 "/%s",
                 oracle.run_id, folder, name);
        if (named && !is_place_of(named, node, folder))
            continue;
        const uint8_t *file = world_disk_read(node, path, &size);
        if (file && find_record(file, size, id, &found, &update) && found.type == ACCEPT)
            wrong = check_record(node, path, file, size, &found, &update);
    }
    return wrong;
}

/* Reads the journal that an update of the task has been in if it has counted in no round yet. */
static const uint8_t *read_journal_of(const oracle_task *task, char name[ORACLE_JOURNAL_NAME],
                                      size_t *size)
{
    /* Asynchronous updates are in the journal of the open round. */
    const uint32_t round = oracle.async ? oracle.decided : task->round;
    const uint32_t attempt = oracle.async ? oracle.rounds[round].attempt : task->attempt;
    return oracle_read_journal(round, attempt, name, size);
}

bool oracle_is_in_journal(const oracle_task *task, uint32_t num_ranks, bool named)
{
    char name[ORACLE_JOURNAL_NAME];
    size_t size = 0;
    record found;
    oracle_accepted update;
    const uint8_t *file = read_journal_of(task, name, &size);
    const bool is_named = file && find_record(file, size, task->id, &found, &update);
    if (is_named && found.type == ACCEPT)
        return true;
    return (is_named || !named) &&
           !check_elsewhere(strrchr(name, '/') + 1, task->id, num_ranks, named ? &found : NULL);
}

void oracle_check_durable(const oracle_task *task)
{
    char name[ORACLE_JOURNAL_NAME], path[256];
    size_t size = 0;
    record found;
    oracle_accepted update;
    const uint32_t round = oracle.async ? oracle.decided : task->round;
    if (oracle.damaged || task->used_in > 0 || round < oracle.decided || round == 0 ||
        round > ORACLE_MAX_ROUNDS)
        return;
    const uint8_t *file = read_journal_of(task, name, &size);
    if (!file)
        return; /* the attempt is over */
    oracle_path(name, path, sizeof(path));
    const bool is_there = find_record(file, size, task->id, &found, &update);
    const char *wrong = NULL;
    /* Rank 0 may have lost the record of another rank's update in a power failure meanwhile. */
    if (is_there && found.type == ACCEPT)
        wrong = check_record(WORLD_SERVER, path, file, size, &found, &update);
    else if (!oracle.async)
        wrong = check_elsewhere(strrchr(name, '/') + 1, task->id, WORLD_MAX_RANKS, NULL);
    if (wrong) {
        world_fail("oracle: client %u's update of task %" PRIu64 " is acknowledged: %s",
                   task->client, task->id, wrong);
    }
}

/* ---- what counts ----------------------------------------------------------------------------- */

const uint8_t *oracle_read_journal(uint32_t round, uint32_t attempt, char name[ORACLE_JOURNAL_NAME],
                                   size_t *size)
{
    snprintf(name, ORACLE_JOURNAL_NAME, "journal/round-%06" PRIu32 "-a%" PRIu32 ".fj", round,
             attempt);
    return oracle_read(name, size);
}

/* A slot's present update replaces what it had. */
static void put_accepted(oracle_round *round, const oracle_accepted *update)
{
    uint32_t at = 0;
    while (at < round->num_accepted && round->accepted[at].slot != update->slot)
        at++;
    if (at == ORACLE_MAX_ACCEPTED) {
        world_fail("oracle: a journal has more than %d updates", ORACLE_MAX_ACCEPTED);
        return;
    }
    round->num_accepted += at == round->num_accepted;
    round->accepted[at] = *update;
}

static void drop_accepted(oracle_round *round, uint32_t slot)
{
    for (uint32_t i = 0; i < round->num_accepted; i++) {
        if (round->accepted[i].slot == slot)
            round->accepted[i] = round->accepted[--round->num_accepted];
    }
}

/* Whose task each slot has. */
typedef struct slots {
    uint32_t num, wanted;
    uint32_t clients[ORACLE_MAX_ACCEPTED];
} slots;

static void miss(oracle_round *round, uint32_t client)
{
    if (client < ORACLE_MAX_CLIENTS)
        round->missed[client]++;
}

/* The slot's task goes to another client, or an update of another rank is of a later one. */
static void reassign(oracle_round *round, slots *all, const record *of)
{
    const uint64_t task_at = of->type == ASSIGN ? 4 : 8;
    const uint32_t slot = (uint32_t)little(of->body, 4);
    if (slot >= all->num || of->body_size < task_at + TASK)
        return;
    if (of->type == ASSIGN)
        miss(round, all->clients[slot]);
    all->clients[slot] = (uint32_t)little(of->body + task_at + CLIENT_AT, 4);
    if (of->type == ASSIGN)
        drop_accepted(round, slot);
}

static void note_record(oracle_round *round, slots *all, const record *of)
{
    oracle_accepted update;
    if (of->type == ASSIGN || of->type == ELSEWHERE)
        reassign(round, all, of);
    if (read_accepted(of, &update))
        put_accepted(round, &update);
    else if (of->type == LOSE && of->body_size >= 4)
        drop_accepted(round, (uint32_t)little(of->body, 4));
    round->closed = of->type == CLOSE;
}

/* At its deadline a round has fewer updates than it wants: who is asked still has missed it. */
static void note_late(oracle_round *round, const slots *all)
{
    for (uint32_t i = 0; i < all->num && round->num_accepted < all->wanted; i++) {
        bool has = false;
        for (uint32_t k = 0; k < round->num_accepted; k++)
            has = has || round->accepted[k].slot == i;
        if (!has)
            miss(round, all->clients[i]);
    }
}

static plain_draw read_draw(const uint8_t *at)
{
    return (plain_draw){.total = little(at, 8),
                        .count = (uint32_t)little(at + 8, 4),
                        .unknown = (uint32_t)little(at + 12, 4),
                        .floor = (uint32_t)little(at + 16, 4),
                        .asked = (uint32_t)little(at + 20, 4),
                        .available = (uint32_t)little(at + 24, 4)};
}

static void note_open(oracle_round *round, slots *all, const record *of)
{
    /* Its upper bits are flags. */
    const uint64_t num_bounds = little(of->body + NUM_BOUNDS_AT, 4) & 0xffff;
    const uint64_t tasks = OPEN_FIXED + num_bounds;
    *all = (slots){.num = (uint32_t)little(of->body + NUM_TASKS_AT, 4),
                   .wanted = (uint32_t)little(of->body + WANTED_AT, 4)};
    round->cohort = all->num;
    all->num = all->num < ORACLE_MAX_ACCEPTED ? all->num : ORACLE_MAX_ACCEPTED;
    const uint64_t end = tasks + (uint64_t)all->num * TASK;
    for (uint32_t i = 0; end <= of->body_size && i < all->num; i++)
        all->clients[i] = (uint32_t)little(of->body + tasks + i * TASK + CLIENT_AT, 4);
    round->draw = of->body_size == end + DRAW ? read_draw(of->body + end) : (plain_draw){0};
    memset(round->missed, 0, sizeof(round->missed));
    round->num_accepted = 0;
    round->closed = false;
}

/* Without a journal whose beginning is whole, what was known of the round stays. */
static void look_at_journal(uint32_t number)
{
    oracle_round *round = &oracle.rounds[number];
    char name[ORACLE_JOURNAL_NAME], base[FEDGE_HASH_TEXT] = "";
    size_t size = 0;
    record next;
    const uint8_t *file = oracle_read_journal(number, oracle_attempt_of(number), name, &size);
    const uint64_t end = file ? end_of_log(file, size) : 0;
    uint32_t records = 0;
    slots all;
    if (!read_record(file, end, PAGE, &next) || next.type != OPEN || next.body_size < OPEN_FIXED)
        return;
    memcpy(base, next.body + BASE_AT, FEDGE_HASH_TEXT - 1);
    if (!round->accepted)
        round->accepted = oracle_memory(ORACLE_MAX_ACCEPTED * sizeof(oracle_accepted));
    note_open(round, &all, &next);
    for (uint64_t at = PAGE; read_record(file, end, at, &next) && next.number == records;
         at += next.size) {
        note_record(round, &all, &next);
        records++;
    }
    note_late(round, &all);
    if (oracle.damaged && oracle.async)
        oracle_note_base(number, base);
}

bool oracle_needs_journals(void)
{
    return oracle.async || oracle.job->rounds.sampler.inverse_probability ||
           plain_needs_cohort(oracle.job) || plain_needs_slots(oracle.job);
}

void oracle_look_at_journals(void)
{
    const uint32_t first = oracle.decided > 0 ? oracle.decided : 1;
    const bool reads = oracle_needs_journals();
    for (uint32_t r = first; reads && r <= first + 2 && r <= ORACLE_MAX_ROUNDS; r++)
        look_at_journal(r);
}
