/* A client of fedge-simulate: the program's callbacks serve virtual clients instead of a server
 * (edge/plan/simulated.h). There are no link, store and identity; values of put and get are in the
 * simulator. Everything happens on the thread of fedge_client_run. */
#ifndef FEDGE_CLIENT_SIMULATED_H
#define FEDGE_CLIENT_SIMULATED_H

#include <stdbool.h>
#include <stddef.h>

#include "client/fedge_client.h"
#include "edge/core/status.h"

#ifdef FEDGE_SMALL
#define FEDGE_SIMULATES false /* small clients have no trainer of one's own */
#else
#define FEDGE_SIMULATES true
#endif

typedef struct fedge_simulated fedge_simulated;

/* Did fedge-simulate start this process (FEDGE_SIMULATED_CHANNEL)? */
bool fedge_simulated_wanted(void);

/* Says hello to the simulator. [client] goes to the callbacks. FEDGE_INVALID_ARGUMENT: the
 * environment variable names no channel. */
FEDGE_MUST_USE fedge_status fedge_simulated_new(fedge_client *client,
                                                const fedge_client_callbacks *callbacks,
                                                fedge_simulated **simulated, fedge_error *err);
void fedge_simulated_free(fedge_simulated *simulated); /* NULL is fine */

/* As fedge_client_run, until the simulation ends. */
FEDGE_MUST_USE fedge_exit fedge_simulated_run(fedge_simulated *simulated, fedge_error *err);
/* As those of fedge_client.h. */
void fedge_simulated_stop(fedge_simulated *simulated);
bool fedge_simulated_cancelled(const fedge_simulated *simulated);
FEDGE_MUST_USE fedge_status fedge_simulated_put(fedge_simulated *simulated, const char *key,
                                                const void *data, size_t size, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_simulated_get(fedge_simulated *simulated, const char *key,
                                                void **data, size_t *size, fedge_error *err);

#endif
