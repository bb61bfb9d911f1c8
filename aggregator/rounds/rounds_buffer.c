#include "aggregator/rounds/rounds_buffer.h"

#include <string.h>

bool fedge_rounds_has_buffer(const fedge_rounds *rounds)
{
    return rounds->spec.buffer_size > 0;
}

/* It has no task any more; one that has declined the job stays set aside. */
static void free_participant(fedge_rounds *rounds, participant *of)
{
    of->slot = FEDGE_ROUNDS_NO_SLOT;
    of->aside = of->declined;
    if (!of->declined)
        fedge_rounds_remove_participant(rounds, of);
}

void fedge_rounds_keep_carried(fedge_rounds *rounds, bool aside)
{
    fedge_rounds_keep_aside(rounds, aside);
    for (uint32_t slot = 0; fedge_rounds_has_buffer(rounds) && slot < rounds->num_tasks; slot++) {
        const uint32_t client_index = rounds->tasks[slot].client_index;
        participant *of = fedge_rounds_find_participant(rounds, client_index);
        if (of) {
            /* It declined the job while its result was on the way to the disk. */
            of->slot = slot;
            of->aside = false;
        } else {
            fedge_rounds_add_participant(rounds, client_index, slot);
        }
    }
}

void fedge_rounds_carry_over(fedge_rounds *rounds, uint32_t round,
                             void (*drop)(fedge_rounds *rounds, uint32_t slot))
{
    uint32_t kept = 0;
    for (uint32_t slot = 0; slot < rounds->num_tasks; slot++) {
        const fedge_rounds_task *task = &rounds->tasks[slot];
        if (task->state != FEDGE_TASK_OPEN)
            continue;
        /* The strategy has no model of that age: its update could not be weighed. */
        if (round - 1 - task->base > rounds->spec.max_staleness)
            drop(rounds, slot);
        else
            rounds->tasks[kept++] = *task;
    }
    rounds->num_tasks = rounds->num_open = kept;
    rounds->num_reported = 0;
}

void fedge_rounds_drop_carried(fedge_rounds *rounds, uint32_t slot)
{
    participant *of = fedge_rounds_find_participant(rounds, rounds->tasks[slot].client_index);
    if (of && of->slot == slot)
        free_participant(rounds, of);
    rounds->num_tasks--;
    rounds->num_open--;
    memmove(rounds->tasks + slot, rounds->tasks + slot + 1,
            (rounds->num_tasks - slot) * sizeof(rounds->tasks[0]));
    for (uint32_t p = 0; p < rounds->num_participants; p++) {
        uint32_t *own = &rounds->participants[p].slot;
        *own -= *own != FEDGE_ROUNDS_NO_SLOT && *own > slot;
    }
}

uint32_t fedge_rounds_num_at_work(const fedge_rounds *rounds)
{
    uint32_t count = 0;
    for (uint32_t p = 0; p < rounds->num_participants; p++) {
        const participant *one = &rounds->participants[p];
        /* Who is away may be so for long, and others are asked in its place. */
        count += one->connected && fedge_rounds_open_task(rounds, one);
    }
    return count;
}

uint32_t fedge_rounds_empty_slot(const fedge_rounds *rounds, uint32_t from)
{
    while (from < rounds->num_tasks && rounds->tasks[from].state != FEDGE_TASK_LOST)
        from++;
    return from;
}

/* The same model would bring the same update. */
static bool has_newest(const fedge_rounds *rounds, uint32_t slot)
{
    return rounds->tasks[slot].base + 1 == rounds->round;
}

void fedge_rounds_release(fedge_rounds *rounds, uint32_t slot)
{
    participant *of = fedge_rounds_find_participant(rounds, rounds->tasks[slot].client_index);
    if (of && of->slot == slot && !has_newest(rounds, slot))
        free_participant(rounds, of);
}

bool fedge_rounds_restore_participant(fedge_rounds *rounds, uint32_t slot)
{
    const fedge_rounds_task *task = &rounds->tasks[slot];
    if (task->state == FEDGE_TASK_REPORTED && !has_newest(rounds, slot))
        return true;
    if (fedge_rounds_find_participant(rounds, task->client_index))
        return false;
    fedge_rounds_add_participant(rounds, task->client_index, slot);
    return true;
}
