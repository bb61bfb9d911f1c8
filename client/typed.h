/* A model's tensors in types of their own, for trainers with typed_tensors. Private to client. */
#ifndef FEDGE_CLIENT_TYPED_H
#define FEDGE_CLIENT_TYPED_H

#include "client/fedge_client.h"
#include "edge/core/status.h"
#include "edge/core/tensor.h"

/* Plain data; all 0: none. */
typedef struct fedge_typed {
    const fedge_schema *schema;
    float *values;                /* the worker's */
    fedge_client_tensor *tensors; /* (schema->num_tensors) */
    uint64_t *copies;             /* room for tensors other than FEDGE_F32; NULL: there are none */
} fedge_typed;

/* [schema] and values (schema->num_elements) outlive it. FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_typed_init(fedge_typed *typed, const fedge_schema *schema,
                                             float *values, fedge_error *err);
void fedge_typed_fini(fedge_typed *typed);

void fedge_typed_load(const fedge_typed *typed);  /* from the values to the copies */
void fedge_typed_store(const fedge_typed *typed); /* and back, except what is frozen */

#endif
