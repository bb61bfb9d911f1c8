#include "edge/core/status.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "edge/core/os.h"
#include "edge/core/version.h"

/* The header's macros for the static analyser must not affect the definitions. */
#undef fedge_fail
#undef fedge_fail_errno
#undef fedge_error_prefix

const char *fedge_status_text(fedge_status status)
{
    static const char *const texts[] = {
#define STATUS_TEXT(code, text) [FEDGE_##code] = text,
        FEDGE_STATUS_MAP(STATUS_TEXT)
#undef STATUS_TEXT
    };
    return (unsigned)status < FEDGE_STATUS_COUNT ? texts[status] : "unknown status";
}

unsigned fedge_text_steering(const char *p)
{
    const unsigned char *at = (const unsigned char *)p;
    if (at[0] < 0x20 || at[0] == 0x7F)
        return at[0] != '\0';
    unsigned code = (unsigned)at[0] << 8 | at[1];
    if (code - 0xC280 < 0x20 || code == 0xD89C)
        return 2;
    code = code << 8 | (at[1] ? at[2] : 0);
    return code - 0xE280A8 < 7 || code - 0xE2808E < 2 || code - 0xE281A6 < 4 ? 3 : 0;
}

/* A message may quote a file or typed text: control characters become '?'. */
static void make_plain(char *text)
{
    while (*text) {
        const unsigned size = fedge_text_steering(text);
        memset(text, '?', size);
        text += size > 0 ? size : 1;
    }
}

/* Appends as much of [text] as fits after the [used] bytes of the message, without splitting a
 * UTF-8 character, since messages are sent in JSON. Returns the new length. */
static size_t append(fedge_error *err, size_t used, const char *text)
{
    size_t space = FEDGE_ERROR_MESSAGE_SIZE - 1 - used;
    size_t length = strlen(text);
    if (length > space) {
        length = space;
        while (length > 0 && ((unsigned char)text[length] & 0xC0) == 0x80)
            length--;
    }
    memcpy(err->message + used, text, length);
    err->message[used + length] = '\0';
    make_plain(err->message + used);
    return used + length;
}

/* Formats into a local block first, so that an argument may point into err->message. It is one byte
 * longer than a message, so that append() sees the character at the end. */
typedef struct message_text {
    char text[FEDGE_ERROR_MESSAGE_SIZE + 4];
} message_text;

__attribute__((format(printf, 2, 0))) static void format_text(message_text *out, const char *format,
                                                              va_list arguments)
{
    if (fedge_os_vformat(out->text, sizeof(out->text), format, arguments) < 0)
        out->text[0] = '\0';
}

fedge_status fedge_fail(fedge_error *err, fedge_status status, const char *format, ...)
{
    if (!err)
        return status;
    message_text body;
    va_list arguments;
    va_start(arguments, format);
    format_text(&body, format, arguments);
    va_end(arguments);
    err->status = status;
    append(err, 0, body.text);
    return status;
}

static fedge_status status_of_errno(int errnum)
{
    switch (errnum) {
    case ENOSPC:
    case EDQUOT:
        return FEDGE_NO_SPACE;
    case ENOENT:
        return FEDGE_NOT_FOUND;
    case EACCES:
    case EPERM:
        return FEDGE_DENIED;
    case EEXIST:
        return FEDGE_EXISTS;
    case ENOMEM:
    case EAGAIN: /* threads; like memory and descriptors they may become available */
    case EMFILE:
    case ENFILE:
        return FEDGE_NO_MEMORY;
    default:
        return FEDGE_IO;
    }
}

fedge_status fedge_fail_errno(fedge_error *err, int errnum, const char *format, ...)
{
    fedge_status status = status_of_errno(errnum);
    if (!err)
        return status;
    message_text body;
    va_list arguments;
    va_start(arguments, format);
    format_text(&body, format, arguments);
    va_end(arguments);
    err->status = status;
    size_t used = append(err, 0, body.text);
    used = append(err, used, ": ");
    /* Thread-safe in glibc (2.32 and later) and musl, which return constants for known numbers. */
    used = append(err, used, strerror(errnum));
    if (errnum == EMFILE)
        append(err, used, " (raise the limit: ulimit -n, LimitNOFILE=)");
    return status;
}

fedge_status fedge_error_prefix(fedge_error *err, fedge_status status, const char *format, ...)
{
    if (!err)
        return status;
    message_text body;
    va_list arguments;
    va_start(arguments, format);
    format_text(&body, format, arguments);
    va_end(arguments);
    char inner[FEDGE_ERROR_MESSAGE_SIZE];
    memcpy(inner, err->message, sizeof(inner));
    err->status = status;
    size_t used = append(err, 0, body.text);
    used = append(err, used, ": ");
    append(err, used, inner);
    return status;
}

const char *fedge_version(void)
{
    return FEDGE_VERSION;
}
