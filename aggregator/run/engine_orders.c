#include "aggregator/run/engine_orders.h"

#include <stdlib.h>
#include <string.h>

#include "aggregator/cluster/protocol/order.h"
#include "aggregator/exchange/slots.h"

static void say(const fedge_engine *engine, uint32_t to, const fedge_order *order,
                const void *bytes)
{
    engine->config.ranks->say(engine->config.ranks->user, to, order, bytes);
}

uint32_t fedge_engine_rank_of(const fedge_engine *engine, uint64_t conn_id)
{
    /* Ranks number the network's threads one behind the other, each from a multiple of this. */
    return engine->other_ranks.num > 0 ? fedge_slots_tag(conn_id) / FEDGE_RANKS_TAGS : 0;
}

void fedge_engine_grant(fedge_engine *engine, uint32_t rank, const fedge_grant *grant)
{
    const fedge_order order = {.kind = FEDGE_ORDER_GRANT,
                               .slot = grant->slot,
                               .phase = engine->other_ranks.phase,
                               .conn_id = grant->conn_id,
                               .number = grant->number,
                               .task = grant->task,
                               .weight = grant->incoming->weight,
                               .size = grant->incoming->meta_size};
    say(engine, rank, &order, grant->incoming->meta);
}

void fedge_engine_recall(fedge_engine *engine, uint32_t slot)
{
    const fedge_order order = {
        .kind = FEDGE_ORDER_RECALL, .slot = slot, .phase = engine->other_ranks.phase};
    say(engine, engine->slots[slot].lease.rank, &order, NULL);
}

static bool say_to_all(fedge_engine *engine, const fedge_order *order, const void *bytes)
{
    fedge_engine_other_ranks *others = &engine->other_ranks;
    for (uint32_t to = 1; to <= others->num; to++)
        say(engine, to, order, bytes);
    others->waiting = others->num;
    return others->num > 0;
}

bool fedge_engine_open_other_ranks(fedge_engine *engine)
{
    fedge_engine_other_ranks *others = &engine->other_ranks;
    const size_t size = engine->phase.num_tasks * sizeof(*others->tasks);
    /* Journals go when the checkpoint that they led to goes. */
    const uint32_t keep = engine->config.job->keep_checkpoints, round = engine->phase.round;
    fedge_error err;
    others->phase++;
    others->worst = (fedge_error){.status = FEDGE_OK};
    if (others->num == 0)
        return false;
    uint8_t *bytes = malloc(sizeof(engine->phase) + size);
    if (!bytes) {
        (void)fedge_fail(&err, FEDGE_NO_MEMORY, "no memory to tell other ranks of a round");
        fedge_engine_fail(engine, &err);
        return true;
    }
    memcpy(bytes, &engine->phase, sizeof(engine->phase));
    memcpy(bytes + sizeof(engine->phase), others->tasks, size);
    const fedge_order order = {.kind = FEDGE_ORDER_OPEN,
                               .phase = others->phase,
                               .oldest = round > keep ? round - keep : 0,
                               .size = (uint32_t)(sizeof(engine->phase) + size)};
    const bool any = say_to_all(engine, &order, bytes);
    free(bytes);
    return any;
}

bool fedge_engine_close_other_ranks(fedge_engine *engine, bool dropped)
{
    const fedge_order order = {
        .kind = FEDGE_ORDER_CLOSE, .phase = engine->other_ranks.phase, .dropped = dropped};
    return say_to_all(engine, &order, NULL);
}
