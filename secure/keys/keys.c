#include "secure/keys/keys.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/os.h"
#include "edge/core/text.h"
#include "secure/crypto/sha256.h"
#include "secure/identity/certificate.h"
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

bool fedge_keys_read(const fedge_command_line *line, int argc, char **argv, void *settings,
                     int *exit_code)
{
    char help[FEDGE_HELP_SIZE];
    fedge_words words;
    fedge_error err;
    *exit_code = FEDGE_KEYS_OK;
    fedge_status status = fedge_command_line_read(line, argc, argv, settings, &words, &err);
    if (status == FEDGE_OK && words.asked == FEDGE_ASKED_HELP)
        fputs(fedge_command_line_help(line, false, help), stdout);
    else if (status == FEDGE_OK)
        status = fedge_command_line_check(line, settings, &err);
    if (status != FEDGE_OK) {
        fprintf(stderr, "%s: %s\n", line->name, err.message);
        *exit_code = FEDGE_KEYS_USAGE;
    }
    return status == FEDGE_OK && words.asked == FEDGE_ASKED_RUN;
}

fedge_status fedge_keys_add_host(fedge_keys_hosts *hosts, const char *option, const char *value,
                                 fedge_error *err)
{
    if (hosts->num == FEDGE_X509_MAX_HOSTS) {
        return fedge_fail(err, FEDGE_TOO_BIG, "at most %d times --%s", FEDGE_X509_MAX_HOSTS,
                          option);
    }
    hosts->at[hosts->num++] = value;
    return FEDGE_OK;
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
    FEDGE_TRY(fedge_x509_path(path, sizeof(path), dir, name, err));
    return fedge_os_write_file(path, text, strlen(text), mode, err);
}

fedge_status fedge_keys_trust_root(const char *ca, const char *trust, fedge_error *err)
{
    char path[FEDGE_OS_MAX_PATH];
    uint8_t *pem = NULL;
    size_t size = 0;
    fedge_status status = fedge_x509_path(path, sizeof(path), ca, "root.pem", err);
    if (status == FEDGE_OK)
        status = fedge_os_read_file(path, FEDGE_X509_MAX_PEM, &pem, &size, err);
    if (status == FEDGE_OK)
        status = fedge_os_make_dirs(trust, err);
    if (status == FEDGE_OK) {
        char hex[65];
        char name[32];
        fedge_sha256_text(pem, size, hex);
        snprintf(name, sizeof(name), "root-%.8s.pem", hex);
        status = fedge_keys_write(trust, name, (const char *)pem, 0644, err);
    }
    free(pem);
    return status;
}
