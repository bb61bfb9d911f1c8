#include <inttypes.h>
#include <mbedtls/sha256.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/text.h"
#include "tests/world/disk.h"
#include "tests/world/oracle_books.h"
#include "tests/world/scheduler.h"

#define RUNS WORLD_DISK_ROOT "/state/runs/"
#define MAX_SETS 4096u         /* most sets of updates whose model is computed */
#define MAX_COUNTED (1u << 22) /* most sets that are enumerated */
#define LARGEST_FILE ((size_t)1 << 20)

/* ---- the server's disk ----------------------------------------------------------------------- */

static void find_run(void *user, const char *path)
{
    (void)user;
    if (strncmp(path, RUNS, sizeof(RUNS) - 1) == 0 && !oracle.run_id[0])
        snprintf(oracle.run_id, sizeof(oracle.run_id), "%.32s", path + sizeof(RUNS) - 1);
}

void oracle_path(const char *name, char *path, size_t size)
{
    snprintf(path, size, RUNS "%s/%s", oracle.run_id, name);
}

const uint8_t *oracle_read(const char *name, size_t *size)
{
    char path[256];
    if (!oracle.run_id[0])
        world_disk_each(WORLD_SERVER, find_run, NULL);
    oracle_path(name, path, sizeof(path));
    return oracle.run_id[0] ? world_disk_read(WORLD_SERVER, path, size) : NULL;
}

/* Returns the values of a model's file, which begin after *head bytes; NULL: there is no such file.
 */
static const uint8_t *read_model(const char *name, size_t *head, const uint8_t **file)
{
    const size_t bytes = oracle.job->plan.schema.num_elements * sizeof(float);
    size_t size = 0;
    *file = oracle_read(name, &size);
    if (!*file)
        return NULL;
    uint64_t header = 0;
    for (size_t i = 8; size >= 8 && i > 0; i--)
        header = header << 8 | (*file)[i - 1];
    if (size > LARGEST_FILE || header > size || 8 + header + bytes != size) {
        if (!oracle.damaged)
            world_fail("oracle: %s has %zu bytes", name, size);
        return NULL;
    }
    *head = 8 + (size_t)header;
    return *file + *head;
}

static const uint8_t *read_checkpoint(uint32_t round, size_t *head, const uint8_t **file)
{
    char name[64];
    snprintf(name, sizeof(name), "checkpoints/round-%06" PRIu32 "/model.safetensors", round);
    return read_model(name, head, file);
}

/* ---- models ---------------------------------------------------------------------------------- */

static void new_model(plain_model *model)
{
    const fedge_plan *plan = &oracle.job->plan;
    if (model->values)
        return;
    model->values = oracle_memory(plan->schema.num_elements * sizeof(float));
    model->residual = oracle_memory(plan->sent.sections[0].schema.num_elements * sizeof(float));
    for (int k = 0; k < 2; k++) {
        model->moments[k] =
            oracle_memory(plan->sent.sections[0].schema.num_elements * sizeof(float));
    }
}

/* Computes the SHA-256 of the model's file with these values. */
static void hash_model(const float *values, char hash[FEDGE_HASH_TEXT])
{
    const size_t bytes = oracle.job->plan.schema.num_elements * sizeof(float);
    uint8_t sum[32];
    memcpy(oracle.file + oracle.file_head, values, bytes);
    if (mbedtls_sha256(oracle.file, oracle.file_head + bytes, sum, 0) != 0)
        world_fail("oracle: no SHA-256");
    (void)fedge_hex_encode(sum, sizeof(sum), hash);
}

static void note_decided(uint32_t number)
{
    oracle_round *round = &oracle.rounds[number];
    round->decided = true;
    round->when = oracle.now++;
    oracle.decided = number + 1;
}

/* Reads the model before the first round. */
static void look_at_first(void)
{
    size_t head = 0;
    const uint8_t *file = NULL, *values = read_checkpoint(0, &head, &file);
    const size_t bytes = oracle.job->plan.schema.num_elements * sizeof(float);
    oracle_round *round = &oracle.rounds[0];
    char hash[FEDGE_HASH_TEXT];
    if (!values || (oracle.damaged && !round->hash[0]))
        return;
    new_model(&round->model);
    memcpy(round->model.values, values, bytes);
    plain_step_begin(oracle.job, &round->model);
    if (!oracle.file) {
        oracle.file = oracle_memory(head + bytes);
        oracle.file_head = head;
        memcpy(oracle.file, file, head);
    }
    hash_model(round->model.values, hash);
    if (round->hash[0] && strcmp(round->hash, hash) != 0) {
        if (!oracle.damaged) {
            world_fail("oracle: the first model is %.8s, and the server says %.8s", hash,
                       round->hash);
        }
        return;
    }
    memcpy(round->hash, hash, sizeof(hash));
    note_decided(0);
}

/* ---- sets of updates ------------------------------------------------------------------------- */

/* Results of which at most one counts: those of one client, or in asynchronous rounds those of one
 * task. */
typedef struct choice {
    uint32_t client;
    bool must;           /* exactly one of them counts */
    uint32_t num, taken; /* taken = num: none */
    struct {
        oracle_task *task;
        oracle_version *version;
    } of[ORACLE_MAX_VERSIONS];
} choice;

typedef struct sets {
    plain_history clients[ORACLE_MAX_CLIENTS]; /* before the round */
    uint32_t round;
    uint32_t num;
    choice choices[PLAIN_MAX_UPDATES];
    const uint8_t *values; /* values of the round's model; NULL: only its hash is known */
    plain_round with;
} sets;

static choice *choice_of(sets *all, const oracle_task *task)
{
    uint32_t at = 0;
    while (at < all->num && all->choices[at].client < task->client)
        at++;
    if (at < all->num && all->choices[at].client == task->client)
        return &all->choices[at];
    if (all->num == PLAIN_MAX_UPDATES) {
        world_fail("oracle: more than %d updates may be in round %u", PLAIN_MAX_UPDATES,
                   all->round);
        return NULL;
    }
    memmove(&all->choices[at + 1], &all->choices[at], (all->num - at) * sizeof(choice));
    all->num++;
    all->choices[at] = (choice){.client = task->client};
    return &all->choices[at];
}

/* Adds those results of a task that may count. */
static void add_task(sets *all, oracle_task *task)
{
    const bool must = task->acked > 0 && !oracle.damaged;
    choice *to = NULL;
    for (oracle_version *version = task->versions; version; version = version->next) {
        if (version->complete == 0 || oracle_check(task, version))
            continue;
        to = to ? to : choice_of(all, task);
        if (!to)
            return;
        if (must && !to->must)
            to->num = 0; /* results of the other tasks of the client do not count */
        if ((must || !to->must) && to->num < ORACLE_MAX_VERSIONS) {
            to->of[to->num].task = task;
            to->of[to->num++].version = version;
        }
        to->must = to->must || must;
    }
}

/* Adds the results that an update of the round's journal may be: they have the same bytes, but may
 * say other things of them. */
static void add_accepted(sets *all, const oracle_accepted *update)
{
    choice *to = &all->choices[all->num++];
    *to = (choice){.must = true};
    for (uint32_t i = 0; i < oracle.num_tasks; i++) {
        oracle_task *task = &oracle.tasks[i];
        oracle_version *version =
            task->id == update->id && task->kind == FEDGE_TASK_TRAIN ? task->versions : NULL;
        for (; version && to->num < ORACLE_MAX_VERSIONS; version = version->next) {
            if (version->complete == 0 || version->bytes.size != update->size ||
                version->crc32 != update->crc32 || oracle_check(task, version))
                continue;
            to->of[to->num].task = task;
            to->of[to->num++].version = version;
        }
    }
}

/* Why an update that the journal has cannot count; NULL: it can. */
static const char *check_accepted(const sets *all, const choice *of)
{
    const oracle_task *task = of->num > 0 ? of->of[0].task : NULL;
    if (!task)
        return "which nobody has sent, or which is not valid";
    if (task->used_in > 0 && task->used_in != all->round)
        return "which has counted before";
    return task->round > all->round || all->round - task->round > oracle.job->rounds.max_staleness
               ? "which is too old"
               : NULL;
}

/* Those of a round with a buffer are in its journal. */
static void collect_accepted(sets *all)
{
    const oracle_round *round = &oracle.rounds[all->round];
    for (uint32_t i = 0; i < round->num_accepted; i++) {
        add_accepted(all, &round->accepted[i]);
        const char *wrong = check_accepted(all, &all->choices[i]);
        if (wrong) {
            world_fail("oracle: round %u has an update of task %" PRIu64 ", %s", all->round,
                       round->accepted[i].id, wrong);
        }
    }
}

static void collect(sets *all)
{
    const oracle_round *round = &oracle.rounds[all->round];
    if (oracle.async)
        collect_accepted(all);
    for (oracle_task *task = round->tasks; task && !oracle.async; task = task->next) {
        if (task->attempt == round->attempt)
            add_task(all, task);
    }
}

/* What the sampler knows of clients when the round is drawn. */
static void recall_clients(sets *all)
{
    memset(all->clients, 0, sizeof(all->clients));
    for (uint32_t i = 0; i < oracle.num_tasks; i++) {
        const oracle_task *task = &oracle.tasks[i];
        plain_history *of = &all->clients[task->client];
        if (task->used_in == 0 || task->used_in >= all->round)
            continue;
        of->reported++;
        if (task->used_in < of->last_round)
            continue;
        of->last_round = task->used_in;
        of->examples = task->used->said.num_examples;
        of->loss = task->used->said.loss > 0.0 ? task->used->said.loss : 0.0;
    }
    for (uint32_t r = 1; r < all->round; r++) {
        for (uint32_t i = 0; i < ORACLE_MAX_CLIENTS; i++)
            all->clients[i].missed += oracle.rounds[r].missed[i];
    }
}

static double ratio_of(const sets *all, uint32_t client)
{
    return oracle.job->rounds.sampler.inverse_probability
               ? plain_ratio(oracle.job, &oracle.rounds[all->round].draw, &all->clients[client],
                             all->round)
               : 0.0;
}

static int by_slot(const void *a, const void *b)
{
    const plain_update *x = a, *y = b;
    return (x->slot > y->slot) - (x->slot < y->slot);
}

/* The slot that a journal which was closed gives to a task's update. False: none. */
static bool find_slot(const oracle_round *round, const oracle_task *task, uint32_t *slot)
{
    for (uint32_t i = 0; round->closed && i < round->num_accepted; i++) {
        if (round->accepted[i].id == task->id) {
            *slot = round->accepted[i].slot;
            return true;
        }
    }
    return false;
}

/* Lists the updates of the selected results. False: the round's line in rounds.jsonl has other
 * numbers. */
static bool take(sets *all)
{
    const oracle_round *round = &oracle.rounds[all->round];
    plain_round *with = &all->with;
    uint64_t examples = 0;
    with->num_updates = 0;
    with->in_slots = plain_needs_slots(oracle.job);
    for (uint32_t i = 0; i < all->num; i++) {
        const choice *one = &all->choices[i];
        if (one->taken == one->num)
            continue;
        const oracle_task *task = one->of[one->taken].task;
        const oracle_version *version = one->of[one->taken].version;
        examples += version->said.num_examples;
        with->updates[with->num_updates++] =
            (plain_update){.v = version->v,
                           .bounds_log2 = task->bounds_log2,
                           .said = version->said,
                           .base = oracle.rounds[task->round - 1].model.values,
                           .ratio = ratio_of(all, task->client),
                           .staleness = all->round - task->round};
        with->in_slots =
            with->in_slots && find_slot(round, task, &with->updates[with->num_updates - 1].slot);
    }
    if (with->in_slots)
        qsort(with->updates, with->num_updates, sizeof(with->updates[0]), by_slot);
    if (oracle.async && with->num_updates > oracle.job->rounds.buffer_size)
        return false;
    return round->num_counted == 0 ||
           (round->num_counted == with->num_updates && round->num_examples == examples);
}

static bool makes_model(sets *all)
{
    const size_t bytes = oracle.job->plan.schema.num_elements * sizeof(float);
    oracle_round *round = &oracle.rounds[all->round];
    const plain_model *before = &oracle.rounds[all->round - 1].model;
    char hash[FEDGE_HASH_TEXT];
    const uint32_t variants = plain_step_variants(&all->with);
    for (uint32_t i = 0; i < variants; i++) {
        all->with.variant = i;
        if (!plain_step(&all->with, before, &round->model) ||
            (all->values &&
             !plain_step_is(oracle.job, before->values, round->model.values, all->values)))
            continue;
        if (all->values)
            memcpy(round->model.values, all->values, bytes);
        hash_model(round->model.values, hash);
        if (!round->hash[0])
            memcpy(round->hash, hash, sizeof(hash));
        if (strcmp(round->hash, hash) == 0)
            return true;
    }
    return false;
}

static void note_used(const sets *all)
{
    oracle_round *round = &oracle.rounds[all->round];
    round->forgot = false;
    for (uint32_t u = 0; u < all->with.num_updates; u++) {
        round->forgot = round->forgot || (all->with.updates[u].said.state_lost > 0.0 &&
                                          plain_is_one_of(oracle.job, " SCAFFOLD FedDyn "));
    }
    for (uint32_t i = 0; i < all->num; i++) {
        const choice *one = &all->choices[i];
        for (uint32_t k = 0; k < one->num; k++) {
            oracle_task *task = one->of[k].task;
            /* After a restored backup two incarnations may have a task of that id. */
            if (k == one->taken || oracle.async) {
                task->used = one->of[k].version;
                task->used_in = all->round;
            } else if (task->used_in == all->round &&
                       (one->taken == one->num || one->of[one->taken].task != task)) {
                task->used_in = 0;
            }
        }
    }
}

/* Whether a journal of the next rounds has it. */
static bool is_in_later(const oracle_task *task, uint32_t number)
{
    for (uint32_t r = number + 1; r <= number + 2 && r <= ORACLE_MAX_ROUNDS; r++) {
        const oracle_round *round = &oracle.rounds[r];
        for (uint32_t i = 0; i < round->num_accepted; i++) {
            if (round->accepted[i].id == task->id)
                return true;
        }
    }
    return false;
}

/* What was acknowledged while a round with a buffer was open is in its journal. */
static void check_acknowledged(uint32_t number)
{
    for (uint32_t i = 0; i < oracle.num_tasks && !oracle.damaged; i++) {
        const oracle_task *task = &oracle.tasks[i];
        if (task->kind != FEDGE_TASK_TRAIN || task->acked == 0 || task->used_in > 0)
            continue;
        oracle_look_at_journals();
        if (!is_in_later(task, number)) {
            world_fail("oracle: client %u's update of task %" PRIu64
                       " is acknowledged, and not in the journal of round %u",
                       task->client, task->id, number);
        }
    }
}

/* Selects the next set; false after the last one. */
static bool next_set(sets *all)
{
    for (uint32_t i = 0; i < all->num; i++) {
        choice *one = &all->choices[i];
        const uint32_t last = one->must ? one->num - 1 : one->num;
        if (one->taken < last) {
            one->taken++;
            return true;
        }
        one->taken = 0;
    }
    return false;
}

/* Whether no later set fits. */
static bool is_last(sets *all)
{
    uint32_t counted = 0;
    while (next_set(all)) {
        if (take(all) || counted++ == MAX_SETS)
            return false;
    }
    return true;
}

/* A damaged disk may have lost a round's journal before anybody could read it: that model is the
 * server's, as its hash says, and not recomputed. "": that is not there either. */
static const char *take_over(uint32_t number)
{
    oracle_round *round = &oracle.rounds[number];
    const size_t bytes = oracle.job->plan.schema.num_elements * sizeof(float);
    char hash[FEDGE_HASH_TEXT];
    size_t head = 0;
    const uint8_t *file = NULL, *values = read_checkpoint(number, &head, &file);
    if (!oracle.damaged)
        return "it has no journal that was closed";
    if (!values)
        return "";
    memcpy(round->model.values, values, bytes);
    hash_model(round->model.values, hash);
    if (strcmp(round->hash, hash) != 0)
        return "";
    round->sure = false;
    world_trace("oracle: round %u: its journal was lost", number);
    return NULL;
}

/* What the server's training has changed in the model that a round begins with. */
static const float *root_of(uint32_t number)
{
    const oracle_round *round = &oracle.rounds[number];
    const size_t bytes = oracle.job->plan.schema.num_elements * sizeof(float);
    const bool is_of_model =
        round->root_base &&
        memcmp(round->root_base, oracle.rounds[number - 1].model.values, bytes) == 0;
    return is_of_model ? round->root_change : NULL;
}

/* Finds the updates that counted in a round. Returns why there are none; "": the round's model is
 * unknown; NULL: found. */
static const char *find_set(uint32_t number)
{
    static sets all;
    static char why[160];
    oracle_round *round = &oracle.rounds[number];
    size_t head = 0;
    const uint8_t *file = NULL;
    all.round = number;
    all.num = 0;
    all.with = (plain_round){.job = oracle.job, .round = number, .num_clients = oracle.num_clients};
    all.values = oracle.damaged ? NULL : read_checkpoint(number, &head, &file);
    if (!all.values && !round->hash[0])
        return "";
    new_model(&round->model);
    if (oracle_needs_journals() && !round->closed)
        oracle_look_at_journals();
    if (oracle.async && !round->closed)
        return take_over(number);
    if (oracle.job->rounds.sampler.inverse_probability && !round->closed)
        return oracle.damaged ? "" : "it has no journal that was closed";
    all.with.root = plain_needs_root(oracle.job) ? root_of(number) : NULL;
    if (plain_needs_root(oracle.job) && !all.with.root)
        return oracle.damaged ? "" : "the server has not trained the model that it begins with";
    recall_clients(&all);
    all.with.cohort = round->cohort;
    collect(&all);
    uint32_t tried = 0, counted = 0, musts = 0;
    for (bool more = true; more && tried < MAX_SETS && counted < MAX_COUNTED; counted++) {
        const bool fits = take(&all);
        tried += fits;
        if (fits && makes_model(&all)) {
            note_used(&all);
            if (oracle.async)
                check_acknowledged(number);
            world_trace("oracle: round %u: %u updates make %.8s", number, all.with.num_updates,
                        round->hash);
            round->sure = tried == 1 && is_last(&all);
            return NULL;
        }
        more = next_set(&all);
    }
    /* A hash shows no model that rounds otherwise; its checkpoint will. */
    if (!all.values && plain_rounds_otherwise(oracle.job))
        return "";
    for (uint32_t i = 0; i < all.num; i++)
        musts += all.choices[i].must;
    snprintf(why, sizeof(why),
             "no set of updates makes model %.8s: %u acknowledged, %u others sent, %u sets tried",
             round->hash[0] ? round->hash : "on disk", musts, all.num - musts, tried);
    return why;
}

void oracle_decide(void)
{
    if (!oracle.models || world_failure())
        return;
    if (oracle.decided == 0)
        look_at_first();
    while (oracle.decided > 0 && oracle.decided <= ORACLE_MAX_ROUNDS) {
        const char *why = find_set(oracle.decided);
        if (why && why[0])
            world_fail("oracle: round %u: %s", oracle.decided, why);
        if (why)
            return;
        note_decided(oracle.decided);
    }
}

void oracle_acked_late(const oracle_task *task)
{
    /* A later asynchronous round may count it. And a model that rounds otherwise is found by its
     * checkpoint only, which may be gone. */
    if (oracle.async || plain_rounds_otherwise(oracle.job) || task->round >= oracle.decided ||
        oracle.damaged || task->attempt != oracle.rounds[task->round].attempt ||
        task->used_in == task->round)
        return;
    const char *why = find_set(task->round);
    if (why) {
        world_fail("oracle: client %u's update of task %" PRIu64
                   " is acknowledged, but does not count in round %u: %s",
                   task->client, task->id, task->round, why);
    }
}

void oracle_name(uint32_t number, const char *hash, const char *who)
{
    oracle_round *round = &oracle.rounds[number];
    if (round->hash[0] && strcmp(round->hash, hash) != 0 && !oracle.damaged) {
        world_fail("oracle: %s names the model of round %u %.8s, which was %.8s", who, number, hash,
                   round->hash);
        return;
    }
    if (!round->hash[0]) {
        memcpy(round->hash, hash, sizeof(round->hash));
        round->named = oracle.now;
    }
    oracle_decide();
}

/* ---- rounds.jsonl ---------------------------------------------------------------------------- */

/* The text after "key": in a line. */
static const char *member(const char *line, const char *key)
{
    const size_t length = strlen(key);
    const char *found = line;
    while ((found = strstr(found + 1, key))) {
        if (found[-1] == '"' && strncmp(found + length, "\":", 2) == 0)
            return found + length + 2;
    }
    return "";
}

static void take_line(const char *line)
{
    const uint32_t number = (uint32_t)strtoul(member(line, "round"), NULL, 10);
    char hash[FEDGE_HASH_TEXT];
    if (strncmp(member(line, "phase"), "\"train\"", 7) != 0)
        return;
    if (number == 0 || number > ORACLE_MAX_ROUNDS) {
        world_fail("oracle: rounds.jsonl has round %u", number);
        return;
    }
    oracle_round *round = &oracle.rounds[number];
    const uint32_t counted = (uint32_t)strtoul(member(line, "clients"), NULL, 10);
    const uint64_t examples = strtoull(member(line, "examples"), NULL, 10);
    if (strtoul(member(line, "asked"), NULL, 10) < counted || counted == 0)
        world_fail("oracle: rounds.jsonl has %u clients in round %u", counted, number);
    const bool known = round->num_counted > 0;
    if (known && (round->num_counted != counted || round->num_examples != examples))
        world_fail("oracle: rounds.jsonl has another line of round %u than before", number);
    if (oracle.async && strtoul(member(line, "attempt"), NULL, 10) > round->attempt)
        oracle_begin_attempt(number, (uint32_t)strtoul(member(line, "attempt"), NULL, 10));
    round->num_counted = counted;
    round->num_examples = examples;
    snprintf(hash, sizeof(hash), "%.64s", member(line, "model_sha256") + 1);
    oracle_name(number, hash, "rounds.jsonl");
    if (oracle.models && !oracle.async && round->decided &&
        strtoul(member(line, "attempt"), NULL, 10) != round->attempt) {
        world_fail("oracle: rounds.jsonl has another attempt at round %u than %u", number,
                   round->attempt);
    }
    const char *why = !known && oracle.models && number < oracle.decided ? find_set(number) : NULL;
    if (why) {
        world_fail("oracle: rounds.jsonl has %u clients and %" PRIu64 " examples in round %u: %s",
                   counted, examples, number, why);
    }
}

static bool evaluates(void)
{
    return oracle.job->rounds.fraction_evaluate > 0.0;
}

/* The phase of a line by its number, as read_lines returns it. */
static const char *phase_of(uint64_t line)
{
    return line % 2 == 0 ? "the training" : "the evaluation";
}

/* Checks the order of lines. Each round has a line and, if clients evaluate, a second one of the
 * evaluation, which is repeated after a kill. Returns the line's number; [last]: that of the line
 * before. */
static uint64_t check_order(const char *line, uint64_t last)
{
    const bool trains = strncmp(member(line, "phase"), "\"train\"", 7) == 0;
    const uint64_t at = 2 * strtoull(member(line, "round"), NULL, 10) + (trains ? 0 : 1);
    const uint64_t expected = last == 0 ? 2 : last + (evaluates() ? 1 : 2);
    if (at != expected) {
        world_fail("oracle: rounds.jsonl has no line of %s of round %" PRIu64 " before that of %s "
                   "of round %" PRIu64,
                   phase_of(expected), expected / 2, phase_of(at), at / 2);
    }
    return at;
}

/* Reads all lines. Returns the number of the last one: twice the round, plus 1 for an evaluation.
 */
static uint64_t read_lines(void)
{
    static char line[1 << 14];
    uint64_t last = 0;
    size_t size = 0;
    const uint8_t *at = oracle_read("rounds.jsonl", &size);
    const uint8_t *end = at + size;
    /* A last line without a newline is still being written. */
    for (const uint8_t *next; at && (next = memchr(at, '\n', (size_t)(end - at))); at = next + 1) {
        const size_t length = (size_t)(next - at), kept = sizeof(line) - 1;
        if (oracle.torn && memchr(at, '\0', length))
            break; /* sectors of it were never written */
        memcpy(line, at, length < kept ? length : kept);
        line[length < kept ? length : kept] = '\0';
        last = check_order(line, last);
        take_line(line);
    }
    return last;
}

static void check_last_line(uint32_t rounds_closed)
{
    const uint64_t last = read_lines();
    if (last != 2 * (uint64_t)rounds_closed + (evaluates() ? 1 : 0)) {
        world_fail("oracle: %u rounds have closed, and rounds.jsonl ends with %s of round %" PRIu64,
                   rounds_closed, phase_of(last), last / 2);
    }
}

/* ---- looks ----------------------------------------------------------------------------------- */

/* Checks that the newest checkpoints contain the models of their rounds. */
static void check_checkpoints(void)
{
    const size_t bytes = oracle.job->plan.schema.num_elements * sizeof(float);
    for (uint32_t r = oracle.decided > 2 ? oracle.decided - 2 : 0; r < oracle.decided; r++) {
        size_t head = 0;
        const uint8_t *file = NULL, *values = read_checkpoint(r, &head, &file);
        if (values && memcmp(values, oracle.rounds[r].model.values, bytes) != 0)
            world_fail("oracle: the checkpoint of round %u has another model", r);
    }
}

void oracle_look(void)
{
    if (!oracle.job || world_failure())
        return;
    oracle_look_at_journals();
    if (!oracle.damaged)
        (void)read_lines();
    oracle_decide();
    if (!oracle.damaged && oracle.models)
        check_checkpoints();
    if (!oracle.damaged)
        oracle_look_at_selection();
}

void oracle_opened(void)
{
    oracle.torn = false;
    oracle_look();
}

void oracle_complete(const char *final_model_sha256, uint32_t rounds_closed)
{
    oracle_look();
    if (!oracle.job || world_failure())
        return;
    if (rounds_closed > ORACLE_MAX_ROUNDS) {
        world_fail("oracle: %u rounds", rounds_closed);
        return;
    }
    if (!oracle.damaged)
        check_last_line(rounds_closed);
    oracle_name(rounds_closed, final_model_sha256, "the end");
    /* If tasks do not name a model, only the disk shows it, which may be damaged. */
    if (oracle.models && !oracle.damaged && oracle.decided != rounds_closed + 1 &&
        !world_failure()) {
        world_fail("oracle: %u rounds have closed, and %u are known", rounds_closed,
                   oracle.decided > 0 ? oracle.decided - 1 : 0);
    }
    for (uint32_t i = 0; i < oracle.num_tasks && oracle.async && oracle.models && !oracle.damaged;
         i++) {
        const oracle_task *task = &oracle.tasks[i];
        if (task->kind == FEDGE_TASK_TRAIN && task->acked > 0 && task->used_in == 0) {
            world_fail("oracle: client %u's update of task %" PRIu64
                       " is acknowledged, and in no round",
                       task->client, task->id);
        }
    }
}
