/* A Python interpreter in a child process, which answers requests one at a time.
 *
 * The child runs `python3 -m fedge.strategy_worker SCRIPT`, or the interpreter in the environment
 * variable FEDGE_PYTHON. Requests and answers are lines of JSON on a socket, its standard input.
 * Arrays lie in memory that both processes map. What it prints goes to this program's standard
 * error.
 *
 * A child that dies, or does not answer in time, is killed with its own children and started again,
 * and the request is repeated from the same inputs; the third failure of a request is final. An
 * exception in Python is final at once, since it would come again. The child ends with this
 * process, however that ends.
 */
#ifndef FEDGE_AGGREGATOR_ROUNDS_PYTHON_PROCESS_H
#define FEDGE_AGGREGATOR_ROUNDS_PYTHON_PROCESS_H

#include <stddef.h>
#include <stdint.h>

#include "edge/core/os.h"
#include "edge/core/status.h"
#include "edge/json/json.h"

#define FEDGE_PYTHON_ATTEMPTS 3 /* attempts of a request */

typedef struct fedge_python fedge_python;

/* Starts the child and reads what the script describes. timeout_s: of a request; a start has at
 * least two minutes. FEDGE_NOT_FOUND: there is no interpreter, package or script.
 * FEDGE_INVALID_ARGUMENT: the script fails. Messages begin with
 * --strategy-plugin and the script. */
FEDGE_MUST_USE fedge_status fedge_python_new(const char *script, uint32_t timeout_s,
                                             fedge_python **python, fedge_error *err);
void fedge_python_free(fedge_python *python); /* kills the child; NULL is fine */

/* The script's description, an object. Lives as long as [python]. */
const cJSON *fedge_python_description(const fedge_python *python);

/* ---- memory of both processes ---------------------------------------------------------------- */

/* A block that the child maps, too. Plain data. */
typedef struct fedge_python_memory {
    fedge_os_file file;
    uint8_t *data; /* NULL: none */
    size_t size;
    uint64_t number;     /* its name in requests */
    uint64_t mapped_by;  /* number of the start whose child has mapped it; 0: none */
    char *layout;        /* JSON: what lies where in it; malloc'ed, owned */
    fedge_python *owner; /* NULL: none */
} fedge_python_memory;

/* [layout]: malloc'ed JSON, which the memory owns, also after a failure. All bytes are 0. Pages
 * take memory once they are written. */
FEDGE_MUST_USE fedge_status fedge_python_memory_init(fedge_python_memory *memory,
                                                     fedge_python *python, size_t size,
                                                     char *layout, fedge_error *err);
void fedge_python_memory_fini(fedge_python_memory *memory); /* all 0 is fine */

/* ---- requests -------------------------------------------------------------------------------- */

typedef struct fedge_python_request {
    const char *name; /* in messages: "the step of round 3" */
    const char *text; /* a JSON object, without a line's end */
    fedge_python_memory *memory;
    void (*give)(void *user); /* writes the inputs to the memory; called before each attempt */
    /* Takes the results of an answer without "error". */
    fedge_status (*take)(void *user, const cJSON *answer, fedge_error *err);
    void *user;
} fedge_python_request;

/* Any thread may ask; one request is answered at a time, and give and take run for one request at
 * a time. FEDGE_INTERNAL: Python raised an exception, or the attempts are used up. */
FEDGE_MUST_USE fedge_status fedge_python_ask(fedge_python *python,
                                             const fedge_python_request *request, fedge_error *err);

#endif
