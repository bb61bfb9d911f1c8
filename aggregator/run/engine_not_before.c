#include "aggregator/run/engine_not_before.h"

#include "aggregator/run/engine_reply.h"

void fedge_engine_note_round(fedge_engine *engine, uint64_t took_ms)
{
    /* Rather too little: who is back too soon waits, who is back too late misses the next round. */
    const bool less = engine->round_ms == 0 || took_ms < engine->round_ms;
    engine->round_ms = less ? took_ms : engine->round_ms + (took_ms - engine->round_ms) / 4;
}

/* For how long a device without a task may be away, 0: not at all. It is to be back when the
 * present phase is expected to end, for the next one is of those who are there when it opens. A
 * device comes up to an eighth later than it is told, so it is told that much less. */
static uint64_t not_before(const fedge_engine *engine, uint64_t now_ms)
{
    /* How long evaluations take is not known, and a round of training follows. */
    if (fedge_rounds_kind(engine->rounds) != FEDGE_TASK_TRAIN)
        return 0;
    const uint64_t passed = now_ms - engine->phase_started_ms;
    const uint64_t deadline_ms = fedge_rounds_deadline_ms(engine->rounds);
    const uint64_t most = deadline_ms > now_ms ? deadline_ms - now_ms : 0;
    uint64_t absence = FEDGE_ENGINE_FIRST_NOT_BEFORE_MS;
    if (engine->round_ms > 0)
        absence = engine->round_ms > passed ? engine->round_ms - passed : 0;
    absence = absence < most ? absence : most;
    /* Who has come back that much too soon stays. */
    return absence < FEDGE_ENGINE_MIN_NOT_BEFORE_MS || absence < engine->round_ms / 8
               ? 0
               : absence - absence / 9;
}

/* The rest of a device that has said until when it cannot work is that, if it is longer. */
static uint64_t not_before_of(const fedge_engine *engine, uint32_t index, uint64_t now_ms)
{
    const uint64_t absence = not_before(engine, now_ms);
    const uint64_t until = fedge_rounds_rests_until(engine->rounds, index);
    const bool away = until != UINT64_MAX && until >= now_ms + FEDGE_ENGINE_MIN_NOT_BEFORE_MS;
    return away && until - now_ms > absence ? until - now_ms : absence;
}

static void mark(fedge_engine *engine, bool at_work)
{
    uint32_t num_tasks = 0;
    const fedge_rounds_task *cohort = fedge_rounds_cohort(engine->rounds, &num_tasks);
    for (uint32_t i = 0; i < num_tasks; i++) {
        if (cohort[i].client_index < engine->num_devices && cohort[i].state == FEDGE_TASK_OPEN)
            engine->devices[cohort[i].client_index].at_work = at_work;
    }
}

void fedge_engine_send_not_before(fedge_engine *engine, uint64_t now_ms)
{
    if (fedge_rounds_get_state(engine->rounds) != FEDGE_ROUNDS_RUNNING ||
        now_ms < engine->not_before_checked_ms + FEDGE_ENGINE_NOT_BEFORE_CHECK_MS ||
        now_ms < engine->phase_started_ms + FEDGE_ENGINE_NOT_BEFORE_CHECK_MS)
        return;
    engine->not_before_checked_ms = now_ms;
    mark(engine, true);
    for (uint32_t i = 0; i < engine->num_devices; i++) {
        const fedge_engine_device *device = &engine->devices[i];
        if (device->conn_id == FEDGE_CONN_ALL || !device->hangs_up || device->at_work)
            continue;
        const uint64_t absence = not_before_of(engine, i, now_ms);
        if (absence > 0) {
            fedge_engine_close_conn(engine, device->conn_id, FEDGE_MESSAGE_BYE,
                                    FEDGE_REASON_COME_LATER, absence,
                                    "this round has no task for the client");
        }
    }
    mark(engine, false);
}
