#include "aggregator/run/server_run.h"

#include <stdlib.h>
#include <string.h>

#include "aggregator/reduce/distributed_accumulator.h"

static const fedge_collective *others(const fedge_server_run *server)
{
    return server->ranks ? server->ranks->collective : NULL;
}

fedge_status fedge_server_run_rendezvous(fedge_server_run *server, const char *state_dir,
                                         fedge_status status, fedge_error *err)
{
    fedge_state none = {.lock = -1};
    server->state_dir = state_dir;
    server->starting = true;
    return fedge_rendezvous(others(server), status, state_dir, server->run.run_id, &server->disks,
                            &none, err);
}

void fedge_server_run_end_rendezvous(fedge_server_run *server)
{
    fedge_rendezvous_command command = {.kind = FEDGE_RENDEZVOUS_END};
    fedge_collective_broadcast(others(server), &command, sizeof(command), 0);
    server->starting = false;
}

/* ---- the sums -------------------------------------------------------------------------------- */

/* A fedge_distributed_together_fn. */
static fedge_status together(void *user, fedge_accumulator *accumulator, fedge_error *err)
{
    const fedge_server_run *server = user;
    fedge_rendezvous_command command = {.kind = FEDGE_RENDEZVOUS_SUMS};
    if (!server->starting)
        return server->ranks->join_sums(server->ranks->user, accumulator, err);
    fedge_collective_broadcast(others(server), &command, sizeof(command), 0);
    return fedge_distributed_lead(accumulator, err);
}

fedge_status fedge_server_run_wrap_sums(fedge_server_run *server, fedge_error *err)
{
    if (!server->ranks)
        return FEDGE_OK;
    FEDGE_TRY(fedge_distributed_wrap(&server->model.accumulator, others(server),
                                     server->plan->sent.schema.num_elements, &server->sums, err));
    fedge_distributed_on_shards(&server->model.accumulator, together, server);
    return FEDGE_OK;
}

fedge_status fedge_server_run_agree_on_sums(fedge_server_run *server, fedge_error *err)
{
    return server->ranks ? fedge_distributed_agree(&server->model.accumulator, err) : FEDGE_OK;
}

fedge_status fedge_server_run_join_sums(fedge_server_run *server, fedge_error *err)
{
    return server->ranks ? together(server, &server->model.accumulator, err) : FEDGE_OK;
}

/* ---- updates --------------------------------------------------------------------------------- */

/* The recovered update that a slot gets; NULL: none. */
typedef struct choice {
    fedge_recovered_update *update;
    uint32_t weight;
    bool exact; /* true for the update that the journal names */
} choice;

static bool is_named(const fedge_journal_slot *mine, const fedge_journal_slot *theirs)
{
    return mine->elsewhere && mine->location.disk == theirs->location.disk &&
           mine->location.rank == theirs->location.rank &&
           mine->task.task_id == theirs->task.task_id;
}

static fedge_status read_upload(const fedge_recovered_update *update, fedge_upload *upload,
                                fedge_error *err)
{
    const fedge_message message = {.type = FEDGE_MESSAGE_UPLOAD,
                                   .meta = update->meta,
                                   .meta_size = update->facts.metadata_size};
    return fedge_upload_read(&message, upload, err);
}

/* Where rank 0's disk comes from a backup, other disks may have updates from after it, of an
 * earlier incarnation. True: the update is none of them. */
static bool is_current(const fedge_server_run *server, const fedge_recovered_update *update,
                       const fedge_upload *upload)
{
    return upload->incarnation == server->run.incarnation ||
           update->facts.location.disk == server->disks.disks[0];
}

static uint32_t weigh(const fedge_server_run *server, uint32_t round, uint32_t client_index,
                      const fedge_upload *upload)
{
    const fedge_update_facts facts =
        fedge_upload_facts(&server->model, upload, round, client_index, round - 1);
    return fedge_update_weight(&server->model, &facts);
}

/* A disk that has come back may have updates that were sent again to other ranks since. */
static fedge_status consider(const fedge_server_run *server, fedge_journal *journal,
                             fedge_recovered_update *update, choice *choices, fedge_upload *upload,
                             fedge_error *err)
{
    const fedge_journal_slot mine = fedge_journal_get_slot(journal, update->slot);
    const bool closed = fedge_journal_get_state(journal) == FEDGE_JOURNAL_CLOSED;
    const bool exact = is_named(&mine, &update->facts);
    choice *present = &choices[update->slot];
    if ((mine.accepted && !mine.elsewhere) || (closed && !mine.accepted))
        return FEDGE_OK;
    if (!exact && (present->update || closed || update->facts.task.task_id < mine.task.task_id))
        return FEDGE_OK;
    FEDGE_TRY(read_upload(update, upload, err));
    if (exact || is_current(server, update, upload)) {
        const uint32_t weight = weigh(server, fedge_journal_get_phase(journal)->round,
                                      update->facts.task.client_index, upload);
        *present = (choice){update, weight, exact};
    }
    return FEDGE_OK;
}

/* Records in the journal what was chosen for a slot. */
static fedge_status note(fedge_journal *journal, uint32_t slot, const choice *chosen,
                         fedge_error *err)
{
    const fedge_recovered_update *update = chosen->update;
    if (chosen->exact)
        return FEDGE_OK;
    if (fedge_journal_get_slot(journal, slot).elsewhere)
        FEDGE_TRY(fedge_journal_lose(journal, slot, err));
    return update ? fedge_journal_accept_elsewhere(journal, slot, &update->facts,
                                                   &update->facts.location, update->meta, err)
                  : FEDGE_OK;
}

static uint32_t count_lost(fedge_journal *journal, const choice *choices)
{
    const uint32_t num_slots = fedge_journal_get_phase(journal)->num_tasks;
    uint32_t count = 0;
    for (uint32_t i = 0; i < num_slots; i++)
        count += !choices[i].update && fedge_journal_get_slot(journal, i).elsewhere;
    return count;
}

static fedge_status take_choices(fedge_server_run *server, fedge_recovery *recovery,
                                 const choice *choices, fedge_error *err)
{
    fedge_journal *journal = recovery->journal;
    const fedge_journal_phase *phase = fedge_journal_get_phase(journal);
    const uint32_t lost = count_lost(journal, choices);
    if (lost > 0) {
        FEDGE_LOG(server->log, FEDGE_LOG_WARN, "updates-gone", fedge_log_int("updates", lost),
                  fedge_log_int("round", phase->round),
                  fedge_log_str("why", "they were acknowledged by ranks whose disk is not there"),
                  fedge_log_str("then", "they are asked for again"));
    }
    if (lost > 0 && recovery->reclose) {
        FEDGE_LOG(server->log, FEDGE_LOG_WARN, "round-reopened",
                  fedge_log_int("round", phase->round),
                  fedge_log_str("why", "it had closed, its checkpoint is damaged"),
                  fedge_log_str("then", "what came for rounds after it is asked for again"));
        FEDGE_TRY(fedge_recovery_reopen(&server->run, recovery, err));
    }
    for (uint32_t i = 0; i < phase->num_tasks; i++) {
        if (choices[i].update)
            choices[i].update->weight = choices[i].weight;
        FEDGE_TRY(note(journal, i, &choices[i], err));
    }
    return FEDGE_OK;
}

static fedge_status choose(fedge_server_run *server, fedge_recovery *recovery,
                           fedge_recovered_updates *recovered, fedge_error *err)
{
    const uint32_t num_slots = recovery->num_tasks;
    choice *choices = calloc(num_slots, sizeof(*choices));
    fedge_upload *upload = malloc(sizeof(*upload));
    fedge_status status;
    if (!choices || !upload) {
        status = fedge_fail(err, FEDGE_NO_MEMORY, "no memory for other ranks");
        goto done;
    }
    fedge_upload_set_phase(&server->model, fedge_journal_get_phase(recovery->journal));
    for (uint32_t rank = 0; rank < server->disks.num_ranks; rank++) {
        for (uint32_t i = 0; i < recovered[rank].num; i++) {
            if (recovered[rank].items[i].slot < num_slots) {
                FEDGE_TRY_OR(consider(server, recovery->journal, &recovered[rank].items[i], choices,
                                      upload, err),
                             done);
            }
        }
    }
    FEDGE_TRY_OR(take_choices(server, recovery, choices, err), done);
    status = fedge_recovery_take_tasks(recovery, err);
done:
    free(choices);
    free(upload);
    return status;
}

/* Rank 0 broadcasts the phase of its journal. */
static fedge_status broadcast_phase(const fedge_server_run *server, fedge_recovery *recovery,
                                    fedge_error *err)
{
    fedge_journal_phase phase = *fedge_journal_get_phase(recovery->journal);
    fedge_rendezvous_command command = {.kind = FEDGE_RENDEZVOUS_RECOVER,
                                        .num_tasks = phase.num_tasks};
    fedge_journal_task *tasks = calloc(phase.num_tasks, sizeof(*tasks));
    if (!tasks)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a cohort of %u", phase.num_tasks);
    for (uint32_t i = 0; i < phase.num_tasks; i++)
        tasks[i] = fedge_journal_get_slot(recovery->journal, i).task;
    fedge_collective_broadcast(others(server), &command, sizeof(command), 0);
    fedge_rendezvous_broadcast_phase(others(server), &phase, tasks, phase.num_tasks);
    free(tasks);
    return FEDGE_OK;
}

static fedge_status find_all(fedge_server_run *server, fedge_recovery *recovery,
                             fedge_recovered_updates *recovered, fedge_error *err)
{
    const fedge_collective *all = others(server);
    fedge_error why;
    bool other_failed = false;
    fedge_status status =
        fedge_recovered_updates_read(&recovered[0], server->state_dir, &server->disks,
                                     fedge_journal_get_phase(recovery->journal), server->log, err);
    for (uint32_t rank = 1; rank < server->disks.num_ranks; rank++) {
        const fedge_status got =
            fedge_rendezvous_receive_updates(all, rank, &recovered[rank], &why);
        other_failed = other_failed || got == FEDGE_CLOSED;
        if (status == FEDGE_OK && got != FEDGE_OK && got != FEDGE_CLOSED)
            status = fedge_fail(err, got, "%s", why.message);
    }
    const bool goes_on = status == FEDGE_OK && !other_failed;
    if (goes_on)
        status = choose(server, recovery, recovered, err);
    for (uint32_t rank = 1; rank < server->disks.num_ranks; rank++) {
        fedge_rendezvous_send_weights(all, rank, &recovered[rank],
                                      goes_on && status == FEDGE_OK ? FEDGE_OK : FEDGE_CLOSED);
    }
    if (goes_on && status == FEDGE_OK) {
        status = fedge_recovered_updates_sum(&recovered[0], server->plan,
                                             &server->model.accumulator, 0, err);
    }
    return fedge_collective_agree(all, status, NULL, 0, err); /* may be another rank's failure */
}

fedge_status fedge_server_run_recover_updates(fedge_server_run *server, fedge_recovery *recovery,
                                              fedge_error *err)
{
    fedge_recovered_updates *recovered = calloc(server->disks.num_ranks, sizeof(*recovered));
    if (!recovered)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for what other ranks have");
    fedge_status status;
    if (server->ranks)
        FEDGE_TRY_OR(broadcast_phase(server, recovery, err), done);
    status = find_all(server, recovery, recovered, err);
done:
    for (uint32_t rank = 0; rank < server->disks.num_ranks; rank++)
        fedge_recovered_updates_free(&recovered[rank]);
    free(recovered);
    return status;
}
