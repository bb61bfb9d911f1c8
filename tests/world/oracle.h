/* An independent model of a federation, which says what must hold.
 *
 * It sees what goes over the wire and what stands on the server's disk, and keeps its own books:
 * what every device sent, what the server acknowledged, and which model each round made. It uses
 * fedge's readers of messages and jobs, and nothing else of the product: updates are decoded,
 * summed and applied in plain code, one value after the other. Everything that does not hold is a
 * world_fail.
 */
#ifndef FEDGE_TESTS_WORLD_ORACLE_H
#define FEDGE_TESTS_WORLD_ORACLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "aggregator/rounds/round_summary.h"
#include "edge/plan/plan.h"

/* Whether it recomputes the models of a job. Of others it checks what messages and disk say. */
bool oracle_models(const fedge_job *job);

/* A new world. [job] outlives it. */
void oracle_begin(const fedge_job *job, uint32_t num_clients);
void oracle_end(void);

/* A whole message that the client's process gave to its network; those of
 * hostile clients are told to oracle_hostile_sent. [client] from 0. */
void oracle_client_sent(uint32_t client, const uint8_t *frame, size_t size);
/* A message of a hostile client, damaged or not, and the bytes of the result that it may announce.
 * Whatever it sends of them, and on which connection: once its last byte was sent, the result may
 * count, if it is valid. */
void oracle_hostile_sent(uint32_t client, const uint8_t *frame, size_t size, const uint8_t *bytes,
                         size_t num_bytes);
/* A whole message that the server's process gave to its network for this client. */
void oracle_server_sent(uint32_t client, const uint8_t *frame, size_t size);
/* The server lost its state to a restored backup: what was acknowledged since that backup was made
 * may be lost. [mark]: what oracle_mark returned when the backup was made. */
uint64_t oracle_mark(void);
void oracle_restored(uint64_t mark);
/* Bits of the server's disk have flipped: from now on what was acknowledged may be lost, its files
 * may be damaged, and closed rounds may be closed again. */
void oracle_disk_damaged(void);
/* The server starts without a rank's disk: what was acknowledged of the open round may be lost. */
void oracle_disk_missing(void);
/* The server's disk may have gone back to what was synced. */
void oracle_forget_selection(void);
/* A client's training has made [after] of the model [before] of a task
 * (plan->schema.num_elements): its update has to be the encoded change. */
void oracle_trained(uint32_t client, uint64_t task_id, const float *before, const float *after);
/* A client lost its store, or it may be damaged. */
void oracle_client_wiped(uint32_t client);

/* The server's disk has a new model of a round, or a start found one. Reads below
 * WORLD_DISK_ROOT/state of WORLD_SERVER (disk.h). Call it at every ROUND reply and after each
 * start; called too often it does no harm. */
void oracle_look(void);
/* The run is complete. Compares every round and the final model. */
void oracle_complete(const char *final_model_sha256, uint32_t rounds_closed);

#endif
