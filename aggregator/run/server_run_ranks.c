#include "aggregator/run/server_run_ranks.h"

#include <stdlib.h>
#include <string.h>

#include "aggregator/reduce/distributed_accumulator.h"

static const fedge_collective *others(const fedge_global *global)
{
    return global->ranks ? global->ranks->collective : NULL;
}

fedge_status fedge_global_meet(fedge_global *global, const char *state_dir, fedge_status status,
                               fedge_error *err)
{
    fedge_state none = {.lock = -1};
    global->state_dir = state_dir;
    global->starting = true;
    return fedge_meet(others(global), status, state_dir, global->run.run_id, &global->disks, &none,
                      err);
}

void fedge_global_part(fedge_global *global)
{
    fedge_meet_word word = {.kind = FEDGE_MEET_END};
    fedge_meet_say(others(global), &word);
    global->starting = false;
}

/* ---- the sums -------------------------------------------------------------------------------- */

/* As fedge_joined_together_fn. */
static fedge_status together(void *user, fedge_accumulator *accumulator, fedge_error *err)
{
    const fedge_global *global = user;
    fedge_meet_word word = {.kind = FEDGE_MEET_SUMS};
    if (!global->starting)
        return global->ranks->together(global->ranks->user, accumulator, err);
    fedge_meet_say(others(global), &word);
    return fedge_joined_lead(accumulator, err);
}

fedge_status fedge_global_wrap_sums(fedge_global *global, fedge_error *err)
{
    if (!global->ranks)
        return FEDGE_OK;
    const fedge_status status =
        fedge_joined_wrap(&global->model.accumulator, others(global),
                          global->plan->sent.schema.num_elements, &global->sums, err);
    if (status == FEDGE_OK)
        fedge_joined_on_shards(&global->model.accumulator, together, global);
    return status;
}

fedge_status fedge_global_agree_on_sums(fedge_global *global, fedge_error *err)
{
    return global->ranks ? fedge_joined_agree(&global->model.accumulator, err) : FEDGE_OK;
}

fedge_status fedge_global_join_sums(fedge_global *global, fedge_error *err)
{
    return global->ranks ? together(global, &global->model.accumulator, err) : FEDGE_OK;
}

/* ---- updates --------------------------------------------------------------------------------- */

/* Which update of all that were found a slot has; NULL: none. */
typedef struct choice {
    fedge_found *found;
    bool exact; /* the one that the journal names */
} choice;

static bool is_named(const fedge_journal_slot *mine, const fedge_journal_slot *theirs)
{
    return mine->elsewhere && mine->place.disk == theirs->place.disk &&
           mine->place.rank == theirs->place.rank && mine->task.task_id == theirs->task.task_id;
}

/* A disk that has come back may hold what others have sent again since. */
static void consider(fedge_journal *journal, fedge_found *found, choice *choices)
{
    const fedge_journal_slot mine = fedge_journal_get_slot(journal, found->slot);
    const bool closed = fedge_journal_get_state(journal) == FEDGE_JOURNAL_CLOSED;
    choice *present = &choices[found->slot];
    if ((mine.accepted && !mine.elsewhere) || (closed && !mine.accepted))
        return;
    if (is_named(&mine, &found->facts))
        *present = (choice){found, true};
    else if (!present->found && !closed && found->facts.task.task_id >= mine.task.task_id)
        *present = (choice){found, false};
}

static fedge_status weigh(fedge_global *global, const fedge_journal_phase *phase,
                          fedge_found *found, fedge_upload *upload, fedge_error *err)
{
    const fedge_message message = {
        .type = FEDGE_MESSAGE_UPLOAD, .meta = found->meta, .meta_size = found->facts.metadata_size};
    const fedge_status status = fedge_upload_read(&message, upload, err);
    if (status == FEDGE_OK) {
        const fedge_update_facts facts = fedge_upload_facts(
            &global->model, upload, phase->round, found->facts.task.client_index, phase->round - 1);
        found->weight = fedge_update_weight(&global->model, &facts);
    }
    return status;
}

/* Brings the journal to what was chosen for a slot. */
static fedge_status note(fedge_journal *journal, uint32_t slot, const choice *chosen,
                         fedge_error *err)
{
    fedge_status status = FEDGE_OK;
    if (chosen->exact)
        return FEDGE_OK;
    if (fedge_journal_get_slot(journal, slot).elsewhere)
        status = fedge_journal_lose(journal, slot, err);
    if (status == FEDGE_OK && chosen->found) {
        const fedge_found *found = chosen->found;
        status = fedge_journal_accept_elsewhere(journal, slot, &found->facts, &found->facts.place,
                                                found->meta, err);
    }
    return status;
}

static uint32_t count_lost(fedge_journal *journal, const choice *choices)
{
    const uint32_t num_slots = fedge_journal_get_phase(journal)->num_tasks;
    uint32_t count = 0;
    for (uint32_t i = 0; i < num_slots; i++)
        count += !choices[i].found && fedge_journal_get_slot(journal, i).elsewhere;
    return count;
}

static fedge_status take_choices(fedge_global *global, fedge_recovery *recovery,
                                 const choice *choices, fedge_upload *upload, fedge_error *err)
{
    fedge_journal *journal = recovery->journal;
    const fedge_journal_phase *phase = fedge_journal_get_phase(journal);
    const uint32_t lost = count_lost(journal, choices);
    fedge_status status = FEDGE_OK;
    if (lost > 0) {
        FEDGE_LOG(global->log, FEDGE_LOG_WARN, "updates-gone", fedge_log_int("updates", lost),
                  fedge_log_int("round", phase->round),
                  fedge_log_str("why", "they were acknowledged by ranks whose disk is not there"),
                  fedge_log_str("then", "they are asked for again"));
    }
    if (lost > 0 && recovery->reclose) {
        FEDGE_LOG(global->log, FEDGE_LOG_WARN, "round-reopened",
                  fedge_log_int("round", phase->round),
                  fedge_log_str("why", "it had closed, its checkpoint is damaged"),
                  fedge_log_str("then", "what came for rounds after it is asked for again"));
        status = fedge_recovery_reopen(&global->run, recovery, err);
    }
    fedge_upload_set_phase(&global->model, phase);
    for (uint32_t i = 0; i < phase->num_tasks && status == FEDGE_OK; i++) {
        if (choices[i].found)
            status = weigh(global, phase, choices[i].found, upload, err);
        if (status == FEDGE_OK)
            status = note(journal, i, &choices[i], err);
    }
    return status;
}

static fedge_status choose(fedge_global *global, fedge_recovery *recovery, fedge_findings *findings,
                           fedge_error *err)
{
    const uint32_t num_slots = recovery->num_tasks;
    choice *choices = calloc(num_slots, sizeof(*choices));
    fedge_upload *upload = malloc(sizeof(*upload));
    fedge_status status = choices && upload
                              ? FEDGE_OK
                              : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for other ranks");
    for (uint32_t rank = 0; rank < global->disks.num_ranks && status == FEDGE_OK; rank++) {
        for (uint32_t i = 0; i < findings[rank].num; i++) {
            if (findings[rank].items[i].slot < num_slots)
                consider(recovery->journal, &findings[rank].items[i], choices);
        }
    }
    if (status == FEDGE_OK)
        status = take_choices(global, recovery, choices, upload, err);
    free(choices);
    free(upload);
    return status == FEDGE_OK ? fedge_recovery_take_tasks(recovery, err) : status;
}

/* Rank 0 tells the others of the phase, as its journal has it. */
static fedge_status tell_phase(const fedge_global *global, fedge_recovery *recovery,
                               fedge_error *err)
{
    fedge_journal_phase phase = *fedge_journal_get_phase(recovery->journal);
    fedge_meet_word word = {.kind = FEDGE_MEET_FIND, .num_tasks = phase.num_tasks};
    fedge_journal_task *tasks = calloc(phase.num_tasks, sizeof(*tasks));
    if (!tasks)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a cohort of %u", phase.num_tasks);
    for (uint32_t i = 0; i < phase.num_tasks; i++)
        tasks[i] = fedge_journal_get_slot(recovery->journal, i).task;
    fedge_meet_say(others(global), &word);
    fedge_meet_phase(others(global), &phase, tasks, phase.num_tasks);
    free(tasks);
    return FEDGE_OK;
}

static fedge_status find_all(fedge_global *global, fedge_recovery *recovery,
                             fedge_findings *findings, fedge_error *err)
{
    const fedge_collective *all = others(global);
    fedge_error why;
    bool other_failed = false;
    fedge_status status =
        fedge_found_read(&findings[0], global->state_dir, &global->disks,
                         fedge_journal_get_phase(recovery->journal), global->log, err);
    for (uint32_t rank = 1; rank < global->disks.num_ranks; rank++) {
        const fedge_status got = fedge_meet_get_findings(all, rank, &findings[rank], &why);
        other_failed = other_failed || got == FEDGE_CLOSED;
        if (status == FEDGE_OK && got != FEDGE_OK && got != FEDGE_CLOSED)
            status = fedge_fail(err, got, "%s", why.message);
    }
    const bool goes_on = status == FEDGE_OK && !other_failed;
    if (goes_on)
        status = choose(global, recovery, findings, err);
    for (uint32_t rank = 1; rank < global->disks.num_ranks; rank++) {
        fedge_meet_send_weights(all, rank, &findings[rank],
                                goes_on && status == FEDGE_OK ? FEDGE_OK : FEDGE_CLOSED);
    }
    if (goes_on && status == FEDGE_OK)
        status = fedge_found_sum(&findings[0], global->plan, &global->model.accumulator, 0, err);
    return fedge_collective_agree(all, status, NULL, 0, err); /* and then it is the other's */
}

fedge_status fedge_global_find_updates(fedge_global *global, fedge_recovery *recovery,
                                       fedge_error *err)
{
    fedge_findings *findings = calloc(global->disks.num_ranks, sizeof(*findings));
    if (!findings)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for what other ranks have");
    fedge_status status = global->ranks ? tell_phase(global, recovery, err) : FEDGE_OK;
    if (status == FEDGE_OK)
        status = find_all(global, recovery, findings, err);
    for (uint32_t rank = 0; rank < global->disks.num_ranks; rank++)
        fedge_found_free(&findings[rank]);
    free(findings);
    return status;
}
