/* What the engine sends: all to connection [conn_id]; without memory the engine fails. */
#ifndef FEDGE_AGGREGATOR_RUN_ENGINE_REPLY_H
#define FEDGE_AGGREGATOR_RUN_ENGINE_REPLY_H

#include "aggregator/run/engine_state.h"

/* The connection of a client; FEDGE_CONN_ALL: it has none. */
uint64_t fedge_engine_conn_of(const fedge_engine *engine, uint32_t client_index);
/* A message, with the member of [content] that belongs to it. */
void fedge_engine_send(fedge_engine *engine, uint64_t conn_id, fedge_message_type message,
                       const fedge_reply *content);
void fedge_engine_send_notice(fedge_engine *engine, uint64_t conn_id, fedge_message_type message,
                              const fedge_notice *notice);
void fedge_engine_send_blob(fedge_engine *engine, uint64_t conn_id, fedge_blob *blob,
                            uint64_t offset, uint64_t size);
/* A last message, and the end of the connection. */
void fedge_engine_close_conn(fedge_engine *engine, uint64_t conn_id, fedge_message_type message,
                             fedge_reason reason, uint64_t after_ms, const char *text);
void fedge_engine_withdraw(fedge_engine *engine, fedge_blob *blob); /* to all */
void fedge_engine_tell_round(fedge_engine *engine, const fedge_round_summary *summary);

#endif
