/* Status codes and error messages.
 *
 * A function that can fail returns a fedge_status and writes one sentence to the caller's
 * fedge_error, if there is one: what failed, where (file, line, name, numbers) and what to do about
 * it. Programming errors are asserts.
 *
 * Constructors (…_new, …_open, …_load, …_parse, …_create) first set the pointer that they fill to
 * NULL first: after a failure it is NULL, which every …_free and …_close takes. What is filled in
 * place may be given to its …_fini or …_close after a failure, too. tests/style looks for the
 * first.
 */
#ifndef FEDGE_EDGE_CORE_STATUS_H
#define FEDGE_EDGE_CORE_STATUS_H

/* X(code, text). The order is part of the library's ABI: add at the end only. */
#define FEDGE_STATUS_MAP(X)                                                                        \
    X(OK, "ok")                                                                                    \
    X(INVALID_ARGUMENT, "invalid argument")                                                        \
    X(TOO_BIG, "over a limit")                                                                     \
    X(TRUNCATED, "truncated")                                                                      \
    X(CORRUPT, "corrupt")                                                                          \
    X(MISMATCH, "does not match what was expected")                                                \
    X(OUT_OF_RANGE, "out of range")                                                                \
    X(NOT_FINITE, "not a finite number")                                                           \
    X(UNSUPPORTED, "not supported")                                                                \
    X(NO_MEMORY, "out of memory")                                                                  \
    X(NO_SPACE, "no space left")                                                                   \
    X(IO, "input/output error")                                                                    \
    X(NOT_FOUND, "not found")                                                                      \
    X(EXISTS, "already exists")                                                                    \
    X(BUSY, "in use")                                                                              \
    X(DENIED, "denied")                                                                            \
    X(EXPIRED, "expired")                                                                          \
    X(REVOKED, "revoked")                                                                          \
    X(STALE, "belongs to another run, incarnation, round or task")                                 \
    X(DUPLICATE, "duplicate")                                                                      \
    X(CANCELLED, "cancelled")                                                                      \
    X(TIMEOUT, "timed out")                                                                        \
    X(CLOSED, "closed")                                                                            \
    X(INTERNAL, "internal error")                                                                  \
    X(GPU_LOST, "a GPU failed or is missing")                                                      \
    X(GPU_MEMORY, "a GPU lacks memory")

typedef enum fedge_status {
#define FEDGE_STATUS_ENUM(code, text) FEDGE_##code,
    FEDGE_STATUS_MAP(FEDGE_STATUS_ENUM)
#undef FEDGE_STATUS_ENUM
        FEDGE_STATUS_COUNT
} fedge_status;

#define FEDGE_ERROR_MESSAGE_SIZE 512

/* A failure, described for people. Plain data on the caller's stack. */
typedef struct fedge_error {
    fedge_status status;
    char message[FEDGE_ERROR_MESSAGE_SIZE]; /* NUL-terminated and truncated if too long; bytes of
                                               fedge_text_steering are '?' */
} fedge_error;

#define FEDGE_MUST_USE __attribute__((warn_unused_result))

/* Length of the character at [p] (NUL-terminated UTF-8) if it could control a terminal, change the
 * text direction or start a line: ASCII's controls, U+0080 to U+009F, U+061C, U+200E and F, U+2028
 * to E, U+2066 to 9. 0 for others and at the end. */
unsigned fedge_text_steering(const char *p);

/* "no space left", …; "unknown status" for an unknown code. Static storage. */
const char *fedge_status_text(fedge_status status);

/* Writes the message and returns [status], for `return fedge_fail(err, …)`. If [err] is NULL, only
 * returns the status. */
fedge_status fedge_fail(fedge_error *err, fedge_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* As fedge_fail, and appends ": " and the text of errno value [errnum]. ENOSPC and EDQUOT become
 * FEDGE_NO_SPACE, ENOENT FEDGE_NOT_FOUND, EACCES and EPERM FEDGE_DENIED, EEXIST FEDGE_EXISTS,
 * ENOMEM, EAGAIN (no thread), EMFILE and ENFILE FEDGE_NO_MEMORY, others FEDGE_IO. */
fedge_status fedge_fail_errno(fedge_error *err, int errnum, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Prepends "context: " to the message in [err], sets its status to [status] (normally the same) and
 * returns [status]. [err] may be NULL. Arguments may point into err->message, here and above. */
fedge_status fedge_error_prefix(fedge_error *err, fedge_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns the status of [call] from the function unless it is FEDGE_OK. Use it where the function
 * owns nothing yet. */
#define FEDGE_TRY(call)                                                                            \
    do {                                                                                           \
        const fedge_status fedge_try_status = (call);                                              \
        if (fedge_try_status != FEDGE_OK)                                                          \
            return fedge_try_status;                                                               \
    } while (0)

/* Sets the variable `status` to that of [call] and, unless it is FEDGE_OK, jumps to [label], where
 * the function frees what it owns and returns `status`. */
#define FEDGE_TRY_OR(call, label)                                                                  \
    do {                                                                                           \
        status = (call);                                                                           \
        if (status != FEDGE_OK)                                                                    \
            goto label;                                                                            \
    } while (0)

#ifdef __clang_analyzer__
/* The static analyser does not see other files. Without this it assumes that a failed call may
 * return FEDGE_OK with its results unset. */
static inline fedge_status fedge_status_is(fedge_status status, fedge_status returned)
{
    (void)returned;
    return status;
}
#define fedge_fail(err, status, ...) fedge_status_is(status, fedge_fail(err, status, __VA_ARGS__))
#define fedge_fail_errno(err, errnum, ...)                                                         \
    fedge_status_is(FEDGE_IO, fedge_fail_errno(err, errnum, __VA_ARGS__))
#define fedge_error_prefix(err, status, ...)                                                       \
    fedge_status_is(status, fedge_error_prefix(err, status, __VA_ARGS__))
#endif

#endif
