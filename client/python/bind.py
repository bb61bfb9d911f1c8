#!/usr/bin/python3 -B
"""Writes the C source of fedge._fedge, the binding of libfedge_client: bind.py OUTPUT.c

The C compiler checks these declarations against client/fedge_client.h; "..." stands for members that Python does
not use. The extension uses the stable ABI, so that one serves every Python from 3.9.
"""

import sys

from cffi import FFI

DECLARATIONS = """
typedef enum { FEDGE_OK, FEDGE_UNSUPPORTED, FEDGE_NOT_FOUND, FEDGE_CORRUPT, FEDGE_CANCELLED, FEDGE_INTERNAL, ... }
    fedge_status;
typedef enum { FEDGE_EXIT_OK, FEDGE_EXIT_USAGE, FEDGE_EXIT_CONFIG, ... } fedge_exit;
#define FEDGE_ERROR_MESSAGE_SIZE ...
typedef struct { fedge_status status; char message[...]; ...; } fedge_error;

typedef struct { const char name[...]; int dtype; uint32_t rank; uint32_t shape[...]; size_t count, offset; ...; }
    fedge_tensor_spec;
typedef struct { fedge_tensor_spec *tensors; uint32_t num_tensors; size_t num_elements; ...; } fedge_schema;
typedef enum { FEDGE_F32, FEDGE_F16, FEDGE_BF16, FEDGE_I64, ... } fedge_dtype;
typedef struct { const fedge_tensor_spec *spec; void *data; ...; } fedge_client_tensor;

typedef struct { bool json; ...; } fedge_log;

typedef struct fedge_client fedge_client;
struct fedge_site;
typedef struct {
    const char *name, *run_id;
    bool external;
    const fedge_schema *schema;
    uint64_t seed;
    uint32_t local_epochs, local_steps, batch_size;
    float momentum, weight_decay;
    const char *config;
    size_t num_parameters;
    ...;
} fedge_client_plan;
typedef struct {
    uint64_t task_id;
    uint32_t round, client_index;
    double learning_rate;
    uint64_t deadline_ms;
    const fedge_client_plan *plan;
    const float *correction;
    uint32_t num_clients;
    float proximal_mu;
    const float *anchor;
    const bool *trained;
    bool personal_model;
    const fedge_client_tensor *tensors;
    ...;
} fedge_client_task;
typedef struct { uint64_t num_examples, num_steps; bool corrected; ...; } fedge_client_report;
fedge_status fedge_client_metric(fedge_client_report *, const char *, double, fedge_error *);

typedef struct {
    size_t struct_size;
    void *user;
    fedge_status (*plan)(void *, fedge_client *, const fedge_client_plan *, fedge_error *);
    fedge_status (*train)(void *, fedge_client *, const fedge_client_task *, float *, fedge_client_report *,
                          fedge_error *);
    fedge_status (*evaluate)(void *, fedge_client *, const fedge_client_task *, const float *,
                             fedge_client_report *, fedge_error *);
    fedge_status (*loss)(void *, fedge_client *, const fedge_client_task *, const float *, double *, fedge_error *);
    bool typed_tensors;
    ...;
} fedge_client_callbacks;
typedef struct {
    size_t struct_size;
    const char *server, *identity_dir, *trust_dir, *state_dir;
    const struct fedge_site *site;
    const fedge_log *log;
    ...;
} fedge_client_config;

fedge_status fedge_client_site_load(const char *, struct fedge_site **, fedge_error *);
const char *fedge_client_site_servers(const struct fedge_site *);
bool fedge_client_site_shows_errors(const struct fedge_site *);
void fedge_client_site_free(struct fedge_site *);
fedge_status fedge_client_new(const fedge_client_config *, const fedge_client_callbacks *, fedge_client **,
                              fedge_error *);
fedge_exit fedge_client_run(fedge_client *, fedge_error *);
void fedge_client_stop(fedge_client *);
bool fedge_client_busy(fedge_client *);
void fedge_client_free(fedge_client *);
bool fedge_client_cancelled(fedge_client *);
fedge_status fedge_client_put(fedge_client *, const char *, const void *, size_t, fedge_error *);
fedge_status fedge_client_get(fedge_client *, const char *, void **, size_t *, fedge_error *);
fedge_exit fedge_client_exit_code(fedge_status);

struct fedge_job;
fedge_status fedge_client_job_parse(const char *, size_t, struct fedge_job **, fedge_error *);
const fedge_schema *fedge_client_job_schema(const struct fedge_job *);
void fedge_client_job_free(struct fedge_job *);

void free(void *);
const char *fedge_python_version(void);
void fedge_python_log(fedge_log *log, int level, bool json);
void fedge_python_log_end(const fedge_log *log, const char *message, int exit_code);

extern "Python" {
    fedge_status on_plan(void *, fedge_client *, const fedge_client_plan *, fedge_error *);
    fedge_status on_train(void *, fedge_client *, const fedge_client_task *, float *, fedge_client_report *,
                          fedge_error *);
    fedge_status on_evaluate(void *, fedge_client *, const fedge_client_task *, const float *,
                             fedge_client_report *, fedge_error *);
    fedge_status on_loss(void *, fedge_client *, const fedge_client_task *, const float *, double *, fedge_error *);
}
"""

# Lines of the log come from threads of the library, which should not wait for Python.
SOURCE = """
#include <fedge/client.h>
#include <stdio.h>
#include <stdlib.h>

static void write_line(void *user, const char *line, size_t size)
{
    (void)user;
    (void)!fwrite(line, 1, size, stderr);
}

static const char *fedge_python_version(void)
{
    return FEDGE_VERSION;
}

static void fedge_python_log(fedge_log *log, int level, bool json)
{
    *log = (fedge_log){.level = (fedge_log_level)level, .json = json, .write = write_line};
}

static void fedge_python_log_end(const fedge_log *log, const char *message, int exit_code)
{
    FEDGE_LOG(log, exit_code == FEDGE_EXIT_OK ? FEDGE_LOG_INFO : FEDGE_LOG_ERROR, "end",
              fedge_log_str("message", message), fedge_log_int("exit", exit_code));
}
"""


def main():
    ffi = FFI()
    ffi.cdef(DECLARATIONS)
    ffi.set_source("fedge._fedge", SOURCE, py_limited_api=True)
    ffi.emit_c_code(sys.argv[1])


if __name__ == "__main__":
    main()
