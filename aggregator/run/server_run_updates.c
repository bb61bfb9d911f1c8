#include "aggregator/run/server_run.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/run/ingest/ingest.h"
#include "aggregator/run/ingest/upload.h"
#include "aggregator/store/checkpoint.h"
#include "edge/core/bytes.h"
#include "edge/plan/client_hooks.h"
#include "secure/identity/registry.h"

static fedge_status read_accepted(fedge_journal *journal, uint32_t slot, char *text,
                                  fedge_upload *upload, fedge_error *err)
{
    FEDGE_TRY(fedge_journal_metadata(journal, slot, text, FEDGE_JOURNAL_MAX_METADATA + 1, err));
    /* The journal has the message's JSON as received: a replay parses it as the connection did. */
    fedge_message message = {
        .type = FEDGE_MESSAGE_UPLOAD, .meta = text, .meta_size = (uint32_t)strlen(text)};
    return fedge_upload_read(&message, upload, err);
}

typedef fedge_status (*accepted_fn)(fedge_server_run *server, fedge_journal *journal, uint32_t slot,
                                    const fedge_upload *upload, void *user, fedge_error *err);
/* Called for an update whose record is damaged. FEDGE_OK continues without the update. */
typedef fedge_status (*damaged_fn)(fedge_server_run *server, fedge_journal *journal, uint32_t slot,
                                   const fedge_error *damage, void *user, fedge_error *err);

/* Fails as [damage] says. */
static fedge_status fail_damaged(fedge_server_run *server, fedge_journal *journal, uint32_t slot,
                                 const fedge_error *damage, void *user, fedge_error *err)
{
    (void)server, (void)journal, (void)slot, (void)user;
    return fedge_fail(err, damage->status, "%s", damage->message);
}

/* Visits the accepted updates in slot order, so that what is computed from them does not depend on
 * their order of arrival. */
static fedge_status each_accepted(fedge_server_run *server, fedge_journal *journal,
                                  accepted_fn visit, damaged_fn damaged, void *user,
                                  fedge_error *err)
{
    fedge_error damage;
    char *text = malloc(FEDGE_JOURNAL_MAX_METADATA + 1);
    fedge_upload *upload = malloc(sizeof(*upload));
    const uint32_t num_slots = fedge_journal_get_phase(journal)->num_tasks;
    fedge_status status = FEDGE_OK;
    if (!text || !upload) {
        status = fedge_fail(err, FEDGE_NO_MEMORY, "no memory to read the journal");
        goto done;
    }
    for (uint32_t slot = 0; slot < num_slots; slot++) {
        if (!fedge_journal_get_slot(journal, slot).accepted)
            continue;
        if (read_accepted(journal, slot, text, upload, &damage) == FEDGE_OK)
            FEDGE_TRY_OR(visit(server, journal, slot, upload, user, err), done);
        else
            FEDGE_TRY_OR(damaged(server, journal, slot, &damage, user, err), done);
    }
done:
    free(text);
    free(upload);
    return status;
}

/* ---- their facts, and the line of the round -------------------------------------------------- */

/* A weighted mean; NaN without values. */
typedef struct mean {
    double sum, weight;
} mean;

static void mean_add(mean *to, double value, double weight)
{
    /* Metrics are optional, and clients may send anything: other values are ignored. */
    if (isfinite(value)) {
        to->sum += value * weight;
        to->weight += weight;
    }
}

static double mean_get(const mean *of)
{
    return of->weight > 0.0 ? of->sum / of->weight : NAN;
}

typedef struct metrics {
    fedge_round_summary *summary;
    mean loss, accuracy, train, encode, upload;
    double clamped;
    fedge_gathered *gathered;
} metrics;

/* Opens the slot again, if the strategy reads updates one by one and the phase is not sealed. Other
 * strategies have the update in their sums. */
static fedge_status lose_damaged(fedge_server_run *server, fedge_journal *journal, uint32_t slot,
                                 const fedge_error *damage, void *user, fedge_error *err)
{
    metrics *to = user;
    const bool open = fedge_journal_get_state(journal) == FEDGE_JOURNAL_OPEN;
    if (damage->status != FEDGE_CORRUPT || !open || !server->model.strategy->collects)
        return fail_damaged(server, journal, slot, damage, user, err);
    to->gathered->num_damaged++;
    FEDGE_LOG(server->log, FEDGE_LOG_WARN, "update-damaged",
              fedge_log_int("round", fedge_journal_get_phase(journal)->round),
              fedge_log_int("client", fedge_journal_get_slot(journal, slot).task.client_index),
              fedge_log_str("error", damage->message),
              fedge_log_str("then", "it is asked for again"));
    return fedge_journal_lose(journal, slot, err);
}

static fedge_status gather(fedge_server_run *server, fedge_journal *journal, uint32_t slot,
                           const fedge_upload *upload, void *user, fedge_error *err)
{
    metrics *to = user;
    fedge_error damage;
    if (server->model.strategy->collects &&
        fedge_accepted_updates_add(&to->gathered->updates, slot, upload, &damage) != FEDGE_OK)
        return lose_damaged(server, journal, slot, &damage, user, err);
    /* Its weight follows from its examples, within the job's limit. */
    double weight = (double)fedge_report_weight(server->job, upload->num_examples);
    const fedge_journal_task task = fedge_journal_get_slot(journal, slot).task;
    to->gathered->facts[to->summary->reported++] =
        fedge_upload_facts(&server->model, upload, fedge_journal_get_phase(journal)->round,
                           task.client_index, task.base);
    to->summary->examples += upload->num_examples;
    mean_add(&to->loss, fedge_upload_metric(upload, "loss"), weight);
    mean_add(&to->accuracy, fedge_upload_metric(upload, "accuracy"), weight);
    /* Times depend on the machine, not on its examples. */
    mean_add(&to->train, fedge_upload_metric(upload, "seconds-train"), 1.0);
    mean_add(&to->encode, fedge_upload_metric(upload, "seconds-encode"), 1.0);
    double clamped = fedge_upload_metric(upload, "clamped");
    double most = (double)server->plan->sent.schema.num_elements;
    to->clamped += clamped > 0.0 ? fmin(clamped, most) : 0.0; /* clients may send any number */
    to->gathered->states_lost += fedge_upload_metric(upload, FEDGE_CLIENT_STATE_LOST) > 0.0;
    return FEDGE_OK;
}

/* Slots that have had a task. */
static uint32_t count_asked(fedge_journal *journal)
{
    const uint32_t num_slots = fedge_journal_get_phase(journal)->num_tasks;
    uint32_t asked = 0;
    for (uint32_t slot = 0; slot < num_slots; slot++)
        asked += fedge_journal_get_slot(journal, slot).task.task_id != 0;
    return asked;
}

fedge_status fedge_server_run_gather(fedge_server_run *server, fedge_journal *journal,
                                     fedge_round_summary *summary, fedge_gathered *gathered,
                                     fedge_error *err)
{
    const uint32_t num_slots = fedge_journal_get_phase(journal)->num_tasks;
    metrics all = {.summary = summary, .gathered = gathered};
    *gathered = (fedge_gathered){.facts = calloc(num_slots, sizeof(*gathered->facts))};
    if (!gathered->facts)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a cohort of %u", num_slots);
    /* The line is made from the journal alone, never from what this process remembers: a round that
     * is closed again after a crash writes the same line. */
    summary->asked = count_asked(journal);
    summary->reported = 0;
    summary->examples = 0;
    if (server->model.strategy->collects) {
        FEDGE_TRY(fedge_accepted_updates_init(&gathered->updates, server->plan, journal,
                                              &server->model.stored, summary->asked, err));
    }
    FEDGE_TRY(each_accepted(server, journal, gather, lose_damaged, &all, err));
    summary->train_loss = mean_get(&all.loss);
    summary->train_accuracy = fedge_has_accuracy(server->plan) ? mean_get(&all.accuracy) : NAN;
    summary->seconds_train = mean_get(&all.train);
    summary->seconds_encode = mean_get(&all.encode);
    summary->clamped = (uint64_t)all.clamped;
    return FEDGE_OK;
}

void fedge_gathered_fini(fedge_gathered *gathered)
{
    fedge_accepted_updates_fini(&gathered->updates);
    free(gathered->facts);
    *gathered = (fedge_gathered){0};
}

/* ---- into the sums --------------------------------------------------------------------------- */

static fedge_status replay(fedge_server_run *server, fedge_journal *journal, uint32_t slot,
                           const fedge_upload *upload, void *user, fedge_error *err)
{
    (void)user;
    const fedge_journal_phase *phase = fedge_journal_get_phase(journal);
    if (fedge_journal_get_slot(journal, slot).elsewhere)
        return FEDGE_OK; /* the sums have it already */
    fedge_upload_set_phase(&server->model, phase);
    const fedge_journal_task task = fedge_journal_get_slot(journal, slot).task;
    const fedge_update_facts facts =
        fedge_upload_facts(&server->model, upload, phase->round, task.client_index, task.base);
    return fedge_ingest_replay(server->plan, &server->model.accumulator, journal, slot, upload,
                               fedge_update_weight(&server->model, &facts), err);
}

fedge_status fedge_server_run_replay(fedge_server_run *server, fedge_journal *journal,
                                     fedge_error *err)
{
    return each_accepted(server, journal, replay, fail_damaged, NULL, err);
}

/* ---- which update of each client was accepted last ------------------------------------------- */

#define EACH sizeof(uint64_t)

static_assert(FEDGE_CHECKPOINT_MAX_LAST_ACCEPTED >= FEDGE_REGISTRY_MAX_DEVICES * EACH,
              "a checkpoint has room for every device");

void fedge_last_accepted_clear(fedge_last_accepted *last_accepted)
{
    free(last_accepted->task_ids);
    *last_accepted = (fedge_last_accepted){0};
}

uint64_t fedge_last_accepted_task(const fedge_last_accepted *last_accepted, uint32_t client_index)
{
    return client_index < last_accepted->num_clients ? last_accepted->task_ids[client_index] : 0;
}

static fedge_status no_memory(uint32_t num_clients, fedge_error *err)
{
    return fedge_fail(err, FEDGE_NO_MEMORY,
                      "no memory to keep the last accepted updates of %" PRIu32 " clients",
                      num_clients);
}

static fedge_status grow(fedge_last_accepted *last_accepted, uint32_t num_clients, fedge_error *err)
{
    if (num_clients <= last_accepted->num_clients)
        return FEDGE_OK;
    uint64_t *grown = realloc(last_accepted->task_ids, num_clients * EACH);
    if (!grown)
        return no_memory(num_clients, err);
    memset(grown + last_accepted->num_clients, 0,
           (num_clients - last_accepted->num_clients) * EACH);
    last_accepted->task_ids = grown;
    last_accepted->num_clients = num_clients;
    return FEDGE_OK;
}

fedge_status fedge_last_accepted_add(fedge_last_accepted *last_accepted, fedge_journal *journal,
                                     fedge_error *err)
{
    const uint32_t num_slots = fedge_journal_get_phase(journal)->num_tasks;
    for (uint32_t i = 0; i < num_slots; i++) {
        const fedge_journal_slot slot = fedge_journal_get_slot(journal, i);
        const uint32_t client = slot.task.client_index;
        if (!slot.accepted)
            continue;
        if (client >= FEDGE_REGISTRY_MAX_DEVICES) {
            return fedge_fail(err, FEDGE_CORRUPT,
                              "%s has an update of client %" PRIu32
                              ", and a registry has %u devices at most",
                              fedge_journal_path(journal), client, FEDGE_REGISTRY_MAX_DEVICES);
        }
        FEDGE_TRY(grow(last_accepted, client + 1, err));
        /* With a buffer a client may have several updates in a round: ids ascend with time, slots
         * need not. */
        if (slot.task.task_id > last_accepted->task_ids[client])
            last_accepted->task_ids[client] = slot.task.task_id;
    }
    return FEDGE_OK;
}

fedge_status fedge_last_accepted_write(const fedge_last_accepted *last_accepted, uint8_t **bytes,
                                       size_t *size, fedge_error *err)
{
    *size = last_accepted->num_clients * EACH;
    *bytes = *size > 0 ? malloc(*size) : NULL;
    if (*size > 0 && !*bytes)
        return no_memory(last_accepted->num_clients, err);
    for (uint32_t i = 0; i < last_accepted->num_clients; i++)
        fedge_put_u64(*bytes + i * EACH, last_accepted->task_ids[i]);
    return FEDGE_OK;
}

fedge_status fedge_last_accepted_read(fedge_last_accepted *last_accepted, const uint8_t *bytes,
                                      size_t size, fedge_error *err)
{
    fedge_last_accepted_clear(last_accepted);
    if (size % EACH != 0 || size > FEDGE_REGISTRY_MAX_DEVICES * EACH) {
        return fedge_fail(err, FEDGE_CORRUPT,
                          "%zu bytes, where task ids of %zu bytes for at most %u clients belong",
                          size, EACH, FEDGE_REGISTRY_MAX_DEVICES);
    }
    FEDGE_TRY(grow(last_accepted, (uint32_t)(size / EACH), err));
    for (uint32_t i = 0; i < last_accepted->num_clients; i++)
        last_accepted->task_ids[i] = fedge_get_u64(bytes + i * EACH);
    return FEDGE_OK;
}
