/* Status codes and error messages.
 *
 * Every function that can fail returns a fedge_status and, when the caller passes a
 * fedge_error, writes one sentence there: what failed, where (file, line, name, numbers) and what
 * to do about it. Programmer's errors are asserts; the world's errors are statuses.
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

/* A failure, described for people. Plain data on the caller's stack; owns nothing. */
typedef struct fedge_error {
    fedge_status status;
    char message[FEDGE_ERROR_MESSAGE_SIZE]; /* NUL-terminated, cut (never overrun) when too long;
                                               a '?' for each byte of fedge_text_steering */
} fedge_error;

#define FEDGE_MUST_USE __attribute__((warn_unused_result))

/* Bytes of the character at [p], NUL-terminated UTF-8, if it would steer a terminal, change the
 * direction of what follows or begin a line where the text is shown: ASCII's controls, U+0080 to
 * U+009F, U+061C, U+200E and F, U+2028 to E, U+2066 to 9. 0: another one, or the end. */
unsigned fedge_text_steering(const char *p);

/* "no space left", … ; for an unknown code "unknown status". Static storage. */
const char *fedge_status_text(fedge_status status);

/* Writes the message and returns [status], so that `return fedge_fail(err, …)` is one line.
 * [err] may be NULL: then only the status is returned. */
fedge_status fedge_fail(fedge_error *err, fedge_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* As fedge_fail, and appends ": " and the text of the errno value [errnum]. ENOSPC and EDQUOT
 * become FEDGE_NO_SPACE, ENOENT FEDGE_NOT_FOUND, EACCES and EPERM FEDGE_DENIED, EEXIST
 * FEDGE_EXISTS, ENOMEM, EAGAIN (no thread), EMFILE and ENFILE FEDGE_NO_MEMORY, anything else
 * FEDGE_IO. */
fedge_status fedge_fail_errno(fedge_error *err, int errnum, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts "context: " before the message that [err] holds (where the failure was, from a caller that
 * knows), gives it [status] (normally the one it already has) and returns [status]. [err] may be
 * NULL. The arguments may point into err->message, here and in the two functions above. */
fedge_status fedge_error_prefix(fedge_error *err, fedge_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns from the function the status of [call] unless it is FEDGE_OK. For functions that own
 * nothing yet. */
#define FEDGE_TRY(call)                                                                            \
    do {                                                                                           \
        const fedge_status fedge_try_status = (call);                                              \
        if (fedge_try_status != FEDGE_OK)                                                          \
            return fedge_try_status;                                                               \
    } while (0)

/* Sets the function's variable `status` to that of [call] and, unless it is FEDGE_OK, goes to
 * [label], where the function frees what it owns and returns `status`. */
#define FEDGE_TRY_OR(call, label)                                                                  \
    do {                                                                                           \
        status = (call);                                                                           \
        if (status != FEDGE_OK)                                                                    \
            goto label;                                                                            \
    } while (0)

#ifdef __clang_analyzer__
/* The static analyser does not look into other files: without being told that a failure is not
 * FEDGE_OK it follows paths on which a failed call has left its results unset. */
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
