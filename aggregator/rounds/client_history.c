#include "aggregator/rounds/client_history.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void fedge_client_history_fini(fedge_client_history *history)
{
    free(history->of);
    *history = (fedge_client_history){0};
}

fedge_client_record fedge_client_history_get(const fedge_client_history *history, uint32_t client)
{
    return client < history->num ? history->of[client] : (fedge_client_record){0};
}

static fedge_status reserve(fedge_client_history *history, uint32_t num, fedge_error *err)
{
    if (num <= history->num)
        return FEDGE_OK;
    if (num > history->capacity) {
        const uint32_t capacity = num < UINT32_MAX / 2 ? num + num / 2 : num;
        fedge_client_record *grown = realloc(history->of, capacity * sizeof(*grown));
        if (!grown) {
            return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for what is known of %u clients",
                              (unsigned)num);
        }
        history->of = grown;
        history->capacity = capacity;
    }
    memset(history->of + history->num, 0, (num - history->num) * sizeof(*history->of));
    history->num = num;
    return FEDGE_OK;
}

fedge_status fedge_client_history_report(fedge_client_history *history, uint32_t client,
                                         uint32_t round, uint64_t examples, double loss,
                                         fedge_error *err)
{
    FEDGE_TRY(reserve(history, client + 1, err));
    fedge_client_record *record = &history->of[client];
    record->examples = examples;
    /* A client may report any loss; samplers treat 0 as unknown. */
    record->loss = isfinite(loss) && loss > 0.0 ? loss : 0.0;
    record->last_round = round;
    record->reported++;
    return FEDGE_OK;
}

fedge_status fedge_client_history_miss(fedge_client_history *history, uint32_t client,
                                       fedge_error *err)
{
    FEDGE_TRY(reserve(history, client + 1, err));
    history->of[client].missed++;
    return FEDGE_OK;
}

fedge_status fedge_client_history_save(const fedge_client_history *history, fedge_buffer *out,
                                       fedge_error *err)
{
    uint8_t *at = NULL;
    const size_t size = (size_t)history->num * FEDGE_CLIENT_HISTORY_RECORD + sizeof(uint32_t);
    FEDGE_TRY(fedge_buffer_reserve(out, size, &at, err));
    for (uint32_t i = 0; i < history->num; i++, at += FEDGE_CLIENT_HISTORY_RECORD) {
        const fedge_client_record *record = &history->of[i];
        uint64_t loss = 0;
        memcpy(&loss, &record->loss, sizeof(loss));
        fedge_put_u64(at, record->examples);
        fedge_put_u64(at + 8, loss);
        fedge_put_u32(at + 16, record->last_round);
        fedge_put_u32(at + 20, record->reported);
        fedge_put_u32(at + 24, record->missed);
        fedge_put_u32(at + 28, 0);
    }
    /* The count follows the records, because the reader starts from the end of the state. */
    fedge_put_u32(at, history->num);
    out->size += size;
    return FEDGE_OK;
}

fedge_status fedge_client_history_load(fedge_client_history *history, const uint8_t *bytes,
                                       size_t *size, fedge_error *err)
{
    const size_t records_size = *size < sizeof(uint32_t) ? 0 : *size - sizeof(uint32_t);
    const uint32_t num =
        *size < sizeof(uint32_t) ? UINT32_MAX : fedge_get_u32(bytes + records_size);
    if (num > records_size / FEDGE_CLIENT_HISTORY_RECORD) {
        return fedge_fail(
            err, FEDGE_TRUNCATED,
            "the checkpoint's %zu bytes of state do not hold what was seen of clients", *size);
    }
    fedge_client_history_fini(history);
    FEDGE_TRY(reserve(history, num, err));
    *size = records_size - (size_t)num * FEDGE_CLIENT_HISTORY_RECORD;
    const uint8_t *at = bytes + *size;
    for (uint32_t i = 0; i < num; i++, at += FEDGE_CLIENT_HISTORY_RECORD) {
        fedge_client_record *record = &history->of[i];
        const uint64_t loss = fedge_get_u64(at + 8);
        record->examples = fedge_get_u64(at);
        memcpy(&record->loss, &loss, sizeof(loss));
        record->last_round = fedge_get_u32(at + 16);
        record->reported = fedge_get_u32(at + 20);
        record->missed = fedge_get_u32(at + 24);
    }
    return FEDGE_OK;
}
