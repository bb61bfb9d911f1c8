/* What the engine tells connections and the service: replies, posted for the network's thread. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/run/engine_reply.h"

uint64_t fedge_engine_conn_of(const fedge_engine *engine, uint32_t client_index)
{
    return client_index < engine->num_devices ? engine->devices[client_index].conn_id
                                              : FEDGE_CONN_ALL;
}

static fedge_reply *new_reply(fedge_engine *engine, uint64_t conn_id, fedge_reply_type type)
{
    fedge_reply *reply = calloc(1, sizeof(*reply));
    if (!reply) { /* a client that waits for it would wait for ever */
        fedge_error err;
        (void)fedge_fail(&err, FEDGE_NO_MEMORY, "no memory to answer a client");
        fedge_engine_fail(engine, &err);
        return NULL;
    }
    reply->type = type;
    reply->conn_id = conn_id;
    return reply;
}

static void post(fedge_engine *engine, fedge_reply *reply)
{
    fedge_mailbox_post(engine->config.replies, &reply->item);
}

void fedge_engine_send(fedge_engine *engine, uint64_t conn_id, fedge_message_type message,
                       const fedge_reply *content)
{
    assert(conn_id != FEDGE_CONN_ALL);
    fedge_reply *reply = new_reply(engine, conn_id, FEDGE_REPLY_MESSAGE);
    if (reply) {
        *reply = *content;
        reply->type = FEDGE_REPLY_MESSAGE;
        reply->conn_id = conn_id;
        reply->message = message;
        post(engine, reply);
    }
}

void fedge_engine_send_notice(fedge_engine *engine, uint64_t conn_id, fedge_message_type message,
                              const fedge_notice *notice)
{
    fedge_engine_send(engine, conn_id, message, &(fedge_reply){.notice = *notice});
}

void fedge_engine_send_blob(fedge_engine *engine, uint64_t conn_id, fedge_blob *blob,
                            uint64_t offset, uint64_t size)
{
    fedge_reply *reply = new_reply(engine, conn_id, FEDGE_REPLY_BLOB);
    if (reply) {
        reply->blob = fedge_blob_retain(blob);
        reply->offset = offset;
        reply->size = size;
        post(engine, reply);
    }
}

void fedge_engine_close_conn(fedge_engine *engine, uint64_t conn_id, fedge_message_type message,
                             fedge_reason reason, uint64_t after_ms, const char *text)
{
    fedge_reply *reply = new_reply(engine, conn_id, FEDGE_REPLY_CLOSE);
    if (reply) {
        reply->message = message;
        reply->notice.reason = reason;
        reply->notice.after_ms = after_ms;
        snprintf(reply->notice.text, sizeof(reply->notice.text), "%s", text);
        post(engine, reply);
    }
}

void fedge_engine_resume_all(fedge_engine *engine)
{
    fedge_reply *reply = new_reply(engine, FEDGE_CONN_ALL, FEDGE_REPLY_RESUME);
    if (reply)
        post(engine, reply);
}

static void withdraw(fedge_engine *engine, fedge_blob *blob)
{
    fedge_reply *reply = new_reply(engine, FEDGE_CONN_ALL, FEDGE_REPLY_WITHDRAW);
    if (reply) {
        reply->blob = fedge_blob_retain(blob);
        post(engine, reply);
    }
}

void fedge_engine_withdraw(fedge_engine *engine, fedge_blob *blob)
{
    withdraw(engine, blob);
    if (blob->parts)
        withdraw(engine, blob->parts);
}

void fedge_engine_tell_round(fedge_engine *engine, const fedge_round_summary *summary)
{
    fedge_reply *reply = new_reply(engine, FEDGE_CONN_ALL, FEDGE_REPLY_ROUND);
    if (reply) {
        reply->summary = *summary;
        post(engine, reply);
    }
}
