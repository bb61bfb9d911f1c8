#include "secure/keys/keys.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/os.h"
#include "edge/core/text.h"
#include "secure/crypto/sha256.h"
#include "secure/identity/certificate.h"
#include "secure/identity/x509.h"

static int fail(const fedge_command_line *line, const char *message, int exit_code)
{
    fprintf(stderr, "%s: %s\n", line->name, message);
    return exit_code;
}

int fedge_keys_run(const fedge_command_line *line, int argc, char **argv, void *settings,
                   fedge_keys_fn check, fedge_keys_fn run)
{
    char help[FEDGE_HELP_SIZE];
    fedge_words words;
    fedge_error err;
    if (fedge_command_line_read(line, argc, argv, settings, &words, &err) != FEDGE_OK)
        return fail(line, err.message, FEDGE_KEYS_USAGE);
    if (words.asked == FEDGE_ASKED_HELP) {
        fputs(fedge_command_line_help(line, false, help), stdout);
        return FEDGE_KEYS_OK;
    }
    if (fedge_command_line_check(line, settings, &err) != FEDGE_OK)
        return fail(line, err.message, FEDGE_KEYS_USAGE);
    if (check && check(settings, &err) != FEDGE_OK) {
        fprintf(stderr, "%s: %s (see '%s --help')\n", line->name, err.message, line->name);
        return FEDGE_KEYS_USAGE;
    }
    if (run(settings, &err) != FEDGE_OK)
        return fail(line, err.message, FEDGE_KEYS_FAILED);
    if (fflush(stdout) != 0) {
        (void)fedge_fail_errno(&err, errno, "cannot write to stdout");
        return fail(line, err.message, FEDGE_KEYS_FAILED);
    }
    return FEDGE_KEYS_OK;
}

static fedge_status add_host(const char **hosts, size_t *count, const char *option,
                             const char *value, fedge_error *err)
{
    if (*count == FEDGE_X509_MAX_HOSTS) {
        return fedge_fail(err, FEDGE_TOO_BIG, "at most %d times --%s", FEDGE_X509_MAX_HOSTS,
                          option);
    }
    hosts[(*count)++] = value;
    return FEDGE_OK;
}

fedge_status fedge_keys_take_dns(void *settings, const char *option, const char *value,
                                 fedge_error *err)
{
    fedge_keys_hosts *hosts = settings;
    return add_host(hosts->dns, &hosts->num_dns, option, value, err);
}

fedge_status fedge_keys_take_ip(void *settings, const char *option, const char *value,
                                fedge_error *err)
{
    fedge_keys_hosts *hosts = settings;
    return add_host(hosts->ip, &hosts->num_ip, option, value, err);
}

fedge_key_request_names fedge_keys_names(const fedge_keys_hosts *hosts)
{
    return (fedge_key_request_names){
        .dns = hosts->dns, .num_dns = hosts->num_dns, .ip = hosts->ip, .num_ip = hosts->num_ip};
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
    char hex[65];
    char name[32];
    char *pem = NULL;
    FEDGE_TRY(fedge_x509_read_text(ca, "root.pem", path, &pem, err));
    fedge_sha256_text(pem, strlen(pem), hex);
    snprintf(name, sizeof(name), "root-%.8s.pem", hex);
    fedge_status status;
    FEDGE_TRY_OR(fedge_os_make_dirs(trust, err), done);
    status = fedge_keys_write(trust, name, pem, 0644, err);
done:
    free(pem);
    return status;
}
