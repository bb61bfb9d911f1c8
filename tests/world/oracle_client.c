/* Checks what clients send: their results belong to their tasks, and an update is the encoded
 * change of its training plus the residual of the update that counted last. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "edge/plan/client_hooks.h"
#include "tests/world/oracle_books.h"
#include "tests/world/scheduler.h"

/* A device keeps what two trainings have left: the newest one, and the one that it went on from.
 * When the server has lost the end of a round, it may ask the device to go on from an older one. */
static void note_replaced(oracle_task *trained)
{
    for (uint32_t i = 0; i < oracle.num_tasks; i++) {
        oracle_task *task = &oracle.tasks[i];
        if (task->client == trained->client && task->id != trained->last_counted)
            task->replaced = true;
    }
    trained->replaced = false;
}

/* changes: (values of all sections) */
static void note_changes(float *changes, const float *before, const float *after)
{
    const fedge_sent *sent = &oracle.job->plan.sent;
    for (uint32_t t = 0; t < sent->schema.num_tensors; t++) {
        const fedge_tensor_spec *spec = &sent->schema.tensors[t];
        const size_t at = sent->model_offsets[t];
        if (at + spec->count > oracle.job->plan.schema.num_elements)
            continue; /* a part of the strategy's state, not of the model */
        for (size_t i = 0; i < spec->count; i++)
            changes[spec->offset + i] = after[at + i] - before[at + i];
    }
}

void oracle_root_trained(uint32_t number, const float *before, const float *after)
{
    static float changes[PLAIN_MAX_VALUES];
    if (!oracle.job || !oracle.models || number == 0 || number > ORACLE_MAX_ROUNDS)
        return;
    oracle_round *round = &oracle.rounds[number];
    const size_t base_size = oracle.job->plan.schema.num_elements * sizeof(float);
    const size_t size = oracle.job->plan.sent.schema.num_elements * sizeof(float);
    note_changes(changes, before, after);
    if (round->root_base && memcmp(round->root_base, before, base_size) == 0 &&
        memcmp(round->root_change, changes, size) != 0)
        world_fail("oracle: the server trains for round %u again, with another result", number);
    if (!round->root_base) {
        round->root_base = oracle_memory(base_size);
        round->root_change = oracle_memory(size);
    }
    memcpy(round->root_base, before, base_size);
    memcpy(round->root_change, changes, size);
}

void oracle_trained(uint32_t client, uint64_t task_id, const float *before, const float *after)
{
    if (!oracle.job || client >= ORACLE_MAX_CLIENTS)
        return;
    const fedge_sent *sent = &oracle.job->plan.sent;
    oracle_task *task = oracle_find_task(client, task_id);
    if (!task || task->client != client)
        return;
    note_replaced(task);
    if (!oracle.models)
        return;
    if (!task->changes)
        task->changes = oracle_memory(sent->schema.num_elements * sizeof(float));
    note_changes(task->changes, before, after);
}

/* The part of a residual that remains after the rounds between two tasks. */
static float left_of(const oracle_task *residual_of, uint32_t round)
{
    const uint32_t half_life = oracle.job->plan.update.residual_half_life;
    const uint32_t last = residual_of->round;
    if (half_life == 0 || round <= last + 1)
        return 1.0f;
    const uint32_t age = round - last - 1, halvings = age / half_life;
    const float part = (float)(age % half_life) / (float)half_life;
    return ldexpf(1.0f - 0.5f * part, -(int)(halvings < 256 ? halvings : 256));
}

/* Encodes one tensor of a section. [rest]: the part that is not sent; NULL: there is no residual.
 */
static bool encodes_tensor(const oracle_task *task, const oracle_version *version,
                           const fedge_section *section, uint32_t t, float *rest)
{
    static float x[PLAIN_MAX_VALUES];
    static int32_t v[PLAIN_MAX_VALUES];
    const fedge_plan *plan = &oracle.job->plan;
    const fedge_tensor_spec *spec = &section->schema.tensors[t];
    const fedge_codec *codec = section->codec.tensors ? section->codec.tensors[t] : &section->codec;
    const int bound_log2 = task->bounds_log2[section->first + t];
    const float bound = ldexpf(1.0f, bound_log2), unit = ldexpf(1.0f, bound_log2 - 30);
    for (size_t i = 0; i < spec->count; i++) {
        const float change = task->changes[spec->offset + i];
        const float sum = rest ? rest[spec->offset + i] + change : change;
        x[i] = sum > bound ? bound : sum < -bound ? -bound : sum;
    }
    plain_encode(codec, spec->rank, bound_log2, plain_key(plan, task->round, t), x, spec->count, v);
    for (size_t i = 0; rest && i < spec->count; i++)
        rest[spec->offset + i] = x[i] - (float)v[i] * unit;
    return memcmp(v, version->v + spec->offset, spec->count * sizeof(*v)) == 0;
}

/* Whether the update encodes the training's change plus the residual of [residual_of]; NULL:
 * without one. */
static bool encodes(oracle_task *task, const oracle_version *version,
                    const oracle_task *residual_of)
{
    const fedge_plan *plan = &oracle.job->plan;
    const fedge_section *delta = &plan->sent.sections[0];
    float *rest = fedge_plan_makes_residual(plan) ? task->residual : NULL;
    bool same = true;
    for (size_t i = 0; rest && i < delta->schema.num_elements; i++)
        rest[i] = residual_of ? residual_of->residual[i] * left_of(residual_of, task->round) : 0.0f;
    for (uint32_t s = 0; s < plan->sent.num_sections; s++) {
        const fedge_section *section = &plan->sent.sections[s];
        const bool is_model = section->kind != FEDGE_SECTION_HOOKS;
        for (uint32_t t = 0; is_model && t < section->schema.num_tensors; t++)
            same &= encodes_tensor(task, version, section, t, s == 0 ? rest : NULL);
    }
    return same;
}

void oracle_check_encoded(oracle_task *task, oracle_version *version)
{
    const fedge_plan *plan = &oracle.job->plan;
    const oracle_client *client = &oracle.clients[task->client];
    if (!oracle.models || !task->changes)
        return;
    const char *wrong = oracle_check(task, version);
    if (wrong) {
        world_fail("oracle: client %u sends a wrong update of task %" PRIu64 ": %s", task->client,
                   task->id, wrong);
        return;
    }
    const size_t num = plan->sent.sections[0].schema.num_elements;
    task->residual = task->residual ? task->residual : oracle_memory(num * sizeof(float));
    const oracle_task *last = task->last_counted > 0 && fedge_plan_retains_residual(plan)
                                  ? oracle_find_task(task->client, task->last_counted)
                                  : NULL;
    /* A device has no residual after it has lost its store, discarded it because of a new
     * incarnation, or replaced it. */
    const bool may_lack = client->may_lose || !last || last->replaced;
    const bool known = !last || last->residual;
    const bool lacks = may_lack && encodes(task, version, NULL);
    const bool has = known && last && encodes(task, version, last);
    if (known && !has && !lacks) {
        world_fail("oracle: client %u's update of task %" PRIu64
                   " is not what its training makes with what is left of task %" PRIu64,
                   task->client, task->id, task->last_counted);
    }
    if (lacks && !has)
        (void)encodes(task, version, NULL);
    if ((lacks && (has || !known)) || !(lacks || has))
        task->residual = NULL; /* the remainder is unknown */
}

void oracle_check_offered(uint32_t number, const fedge_upload *upload)
{
    const oracle_client *client = &oracle.clients[number];
    const oracle_task *task = oracle_find_task(number, upload->task_id), *last = NULL;
    if (client->incarnation != upload->incarnation) {
        world_fail("oracle: client %u offers task %" PRIu64 " of incarnation %u in incarnation %u",
                   number, upload->task_id, upload->incarnation, client->incarnation);
        return;
    }
    if (!task || task->client != number) {
        world_fail("oracle: client %u offers task %" PRIu64 ", which it never had", number,
                   upload->task_id);
        return;
    }
    if (task->last_counted > 0)
        last = oracle_find_task(number, task->last_counted);
    for (uint32_t i = 0; i < upload->num_metrics; i++) {
        if (strcmp(upload->metrics[i].name, FEDGE_CLIENT_STATE_LOST) == 0 && !client->may_lose &&
            last && !last->replaced) {
            world_fail("oracle: client %u has lost its state of task %" PRIu64
                       ", and its store is whole",
                       number, task->last_counted);
        }
    }
}
