#include "aggregator/run/last_accepted.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/store/checkpoint.h"
#include "edge/core/bytes.h"
#include "secure/identity/registry.h"

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

static fedge_status hold(fedge_last_accepted *last_accepted, uint32_t num_clients, fedge_error *err)
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
        FEDGE_TRY(hold(last_accepted, client + 1, err));
        /* A client may have several in a round that does not wait: ids ascend with time, and slots
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
    const fedge_status status = hold(last_accepted, (uint32_t)(size / EACH), err);
    for (uint32_t i = 0; status == FEDGE_OK && i < last_accepted->num_clients; i++)
        last_accepted->task_ids[i] = fedge_get_u64(bytes + i * EACH);
    return status;
}
