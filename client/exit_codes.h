/* Exit codes of fedge-client, for supervisors. docs/reference/exit-codes.md repeats this table. */
#ifndef FEDGE_CLIENT_EXIT_CODES_H
#define FEDGE_CLIENT_EXIT_CODES_H

/* X(code, value, restart, text). [restart]: whether a restart without a change can help. */
#define FEDGE_EXIT_MAP(X)                                                                          \
    X(OK, 0, false, "the run is complete, or SIGTERM or SIGINT asked for the end")                 \
    X(INTERNAL, 1, true, "out of memory or an error in fedge itself")                              \
    X(USAGE, 2, false, "the command line is wrong")                                                \
    X(CONFIG, 3, false, "the client file is missing or wrong")                                     \
    X(IDENTITY, 4, false, "identity or trust directory missing, unsafe, wrong or expired")         \
    X(STATE, 5, false,                                                                             \
      "the state directory is in use, damaged, not writable or of a newer format")                 \
    X(REFUSED, 6, false, "the server refused this client for good; the log has its reason")        \
    X(NOT_ADMITTED, 7, false, "the server does not admit this device (revoked or not registered)") \
    X(DECLINED, 8, false, "this device declined the job: policy, data or a missing feature")       \
    X(GPU_LOST, 9, true, "a GPU failed: started again, the client trains on those that are left")

typedef enum fedge_exit {
#define FEDGE_EXIT_ENUM(code, value, restart, text) FEDGE_EXIT_##code = value,
    FEDGE_EXIT_MAP(FEDGE_EXIT_ENUM)
#undef FEDGE_EXIT_ENUM
} fedge_exit;

#endif
