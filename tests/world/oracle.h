/* An independent model of a federation, which checks what the server does.
 *
 * It sees all messages and the server's disk, and keeps its own records: what every device sent,
 * what the server acknowledged, and which model each round made. It uses fedge's readers of
 * messages and jobs but no other part of the product: plain code decodes, sums and applies updates,
 * one value after the other. Each violation is a world_fail. */
#ifndef FEDGE_TESTS_WORLD_ORACLE_H
#define FEDGE_TESTS_WORLD_ORACLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "aggregator/rounds/round_summary.h"
#include "edge/plan/plan.h"

/* Whether the oracle recomputes the models of a job. Of other jobs it checks only messages and
 * files. */
bool oracle_models(const fedge_job *job);

/* Begins a new world. [job] outlives it. */
void oracle_begin(const fedge_job *job, uint32_t num_clients);
void oracle_end(void);

/* A client's process has sent this whole message. Messages of hostile clients go to
 * oracle_hostile_sent. [client] counts from 0. */
void oracle_client_sent(uint32_t client, const uint8_t *frame, size_t size);
/* A hostile client has sent this message, which may be damaged. [bytes] are those of the result
 * that it may announce. A valid result may count once its last byte was sent, on whichever
 * connection. */
void oracle_hostile_sent(uint32_t client, const uint8_t *frame, size_t size, const uint8_t *bytes,
                         size_t num_bytes);
/* The server's process has sent this whole message to the client. [arrives] false: the client has
 * left the connection. */
void oracle_server_sent(uint32_t client, bool arrives, const uint8_t *frame, size_t size);
/* The server's state was replaced by a backup: all that was acknowledged since the backup may be
 * lost. [mark]: the value of oracle_mark when the backup was made. */
uint64_t oracle_mark(void);
void oracle_restored(uint64_t mark);
/* Bits on the server's disk have flipped. From now on acknowledged updates may be lost, files may
 * be damaged, and closed rounds may be closed again. */
void oracle_disk_damaged(void);
/* The server starts with [num_ranks] ranks, without some disks or after the loss of one:
 * acknowledged updates of the open round that are on no present disk may be lost. With [restored],
 * which means that rank 0's disk comes from a backup, so may those that it does not name. */
void oracle_disks_missing(uint32_t num_ranks, bool restored);
/* The server's disk may have lost all that was not synced. */
void oracle_forget_selection(void);
/* A power failure has torn what the server was writing. oracle_opened: a start has opened the run,
 * and so has repaired its files; it looks at them. */
void oracle_power_failed(void);
void oracle_opened(void);
/* A client's training for a task has changed the model from [before] to [after]
 * (plan->schema.num_elements). Its update must be the encoded change. */
void oracle_trained(uint32_t client, uint64_t task_id, const float *before, const float *after);
/* The server's training in [round] has changed the model from [before] to [after]
 * (plan->schema.num_elements). */
void oracle_root_trained(uint32_t round, const float *before, const float *after);
/* A client's store is lost, or may be damaged. */
void oracle_client_wiped(uint32_t client);

/* Reads what the server has written: models and lines of rounds, below WORLD_DISK_ROOT/state of
 * WORLD_SERVER (disk.h). Call it at every ROUND reply and after each start; more calls do no harm.
 */
void oracle_look(void);
/* The run is complete: checks every round and the final model. */
void oracle_complete(const char *final_model_sha256, uint32_t rounds_closed);

#endif
