#include "aggregator/keys/keys.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/ids.h"
#include "edge/core/os.h"
#include "secure/hash/sha256.h"
#include "secure/identity/calendar.h"
#include "secure/identity/x509.h"

int fedge_keys_usage(const char *command, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "fedge-keys %s: ", command);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, " (see 'fedge-keys %s --help')\n", command);
    va_end(arguments);
    return FEDGE_KEYS_USAGE;
}

int fedge_keys_end(const char *command, fedge_status status, const fedge_error *err)
{
    if (status != FEDGE_OK) {
        fprintf(stderr, "fedge-keys %s: %s\n", command, err->message);
        return FEDGE_KEYS_FAILED;
    }
    if (fflush(stdout) != 0) {
        fprintf(stderr, "fedge-keys %s: cannot write to stdout: %s\n", command, strerror(errno));
        return FEDGE_KEYS_FAILED;
    }
    return FEDGE_KEYS_OK;
}

bool fedge_keys_number(const char *command, const char *name, const char *text, unsigned min,
                       unsigned max, unsigned *out)
{
    char *end = NULL;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || value < min ||
        value > max) {
        fedge_keys_usage(command, "--%s must be an integer from %u to %u, not '%s'", name, min, max,
                         text);
        return false;
    }
    *out = (unsigned)value;
    return true;
}

void fedge_keys_print_certificate(const fedge_certificate_info *info)
{
    char end[FEDGE_CALENDAR_TEXT];
    char hex[2 * FEDGE_FINGERPRINT_SIZE + 1];
    fedge_calendar_text(info->not_after_ms, end);
    printf("role %s, device %s, expires %s, SHA-256 %s\n", fedge_role_name(info->role),
           info->device_id, end, fedge_hex_encode(info->fingerprint, FEDGE_FINGERPRINT_SIZE, hex));
}

fedge_status fedge_keys_write(const char *dir, const char *name, const char *text, unsigned mode,
                              fedge_error *err)
{
    char path[FEDGE_OS_MAX_PATH];
    fedge_status status = fedge_x509_path(path, sizeof path, dir, name, err);
    return status == FEDGE_OK ? fedge_os_write_file(path, text, strlen(text), mode, err) : status;
}

fedge_status fedge_keys_trust_root(const char *ca, const char *trust, fedge_error *err)
{
    char path[FEDGE_OS_MAX_PATH];
    uint8_t *pem = NULL;
    size_t size = 0;
    fedge_status status = fedge_x509_path(path, sizeof path, ca, "root.pem", err);
    if (status == FEDGE_OK)
        status = fedge_os_read_file(path, FEDGE_X509_MAX_PEM, &pem, &size, err);
    if (status == FEDGE_OK)
        status = fedge_os_make_dirs(trust, err);
    if (status == FEDGE_OK) {
        char hex[65];
        char name[32];
        fedge_sha256_text(pem, size, hex);
        snprintf(name, sizeof name, "root-%.8s.pem", hex);
        status = fedge_keys_write(trust, name, (const char *)pem, 0644, err);
    }
    free(pem);
    return status;
}
