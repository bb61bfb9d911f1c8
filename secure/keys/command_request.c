/* The commands that run where the key lives: request, renew, install. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/os.h"
#include "edge/core/text.h"
#include "secure/identity/certificate.h"
#include "secure/identity/request.h"
#include "secure/keys/keys.h"

/* FEDGE_EXISTS with [advice] when DIR/NAME is there. */
static fedge_status check_absent(const char *dir, const char *name, const char *advice,
                                 fedge_error *err)
{
    char path[FEDGE_OS_MAX_PATH];
    FEDGE_TRY(fedge_x509_path(path, sizeof(path), dir, name, err));
    if (fedge_os_exists(path))
        return fedge_fail(err, FEDGE_EXISTS, "%s exists: %s", path, advice);
    return FEDGE_OK;
}

/* Whether DIR holds the key [key_name] and its request: as after a command that was killed once it
 * had done all, or that is given again. The caller frees *request either way. */
static bool is_made(const char *dir, const char *key_name, fedge_key_request *request)
{
    char path[FEDGE_OS_MAX_PATH];
    uint8_t *pem = NULL;
    size_t size = 0;
    *request = (fedge_key_request){.renews = false};
    mbedtls_x509_csr_init(&request->csr);
    fedge_status status = fedge_x509_path(path, sizeof(path), dir, "request.pem", NULL);
    if (status == FEDGE_OK)
        status = fedge_os_read_file(path, FEDGE_X509_MAX_PEM, &pem, &size, NULL);
    if (status == FEDGE_OK)
        status = fedge_key_request_read((const char *)pem, request, NULL);
    if (status == FEDGE_OK)
        status = fedge_x509_compare_key(dir, key_name, &request->csr.pk, path, NULL);
    free(pem);
    return status == FEDGE_OK;
}

static void print_request(const char *dir, const char *name, fedge_role role, const char *device_id)
{
    printf("request for '%s', role %s, device %s: have %s/request.pem signed\n", name,
           fedge_role_name(role), device_id, dir);
}

/* "device-01234567": of one that was given no name. */
static const char *default_name(fedge_role role, const char *device_id, char name[FEDGE_NAME_SIZE])
{
    snprintf(name, FEDGE_NAME_SIZE, "%s-%.8s", fedge_role_name(role), device_id);
    return name;
}

/* Whether just this request has been made in DIR already; then it is told again. */
static bool tell_again(const char *dir, const fedge_key_request_names *given)
{
    fedge_key_request made;
    char name[FEDGE_NAME_SIZE];
    bool same = is_made(dir, "key.pem", &made) && !made.renews && made.names.role == given->role;
    const char *id = made.names.device_id;
    const char *wanted = given->name ? given->name : default_name(given->role, id, name);
    same = same && (!given->device_id || strcmp(id, given->device_id) == 0) &&
           strcmp(made.name, wanted) == 0 &&
           fedge_key_request_check_hosts(&made, given, NULL) == FEDGE_OK;
    if (same)
        print_request(dir, made.name, made.names.role, id);
    fedge_key_request_fini(&made);
    return same;
}

static fedge_status run_request(const char *dir, const fedge_key_request_names *given,
                                fedge_error *err)
{
    if (tell_again(dir, given))
        return FEDGE_OK;
    fedge_key_request_names filled = *given; /* what was not given is made up here */
    fedge_key_request_names *names = &filled;
    char id[FEDGE_UUID_TEXT];
    char name[FEDGE_NAME_SIZE];
    fedge_device_id random;
    fedge_status status = check_absent(
        dir, "key.pem", "to renew it run 'fedge-keys renew', else name another directory", err);
    if (status == FEDGE_OK && !names->device_id) {
        status = fedge_device_id_random(&random, err);
        if (status == FEDGE_OK)
            names->device_id = fedge_device_id_format(&random, id);
    }
    if (status != FEDGE_OK)
        return status;
    if (!names->name)
        names->name = default_name(names->role, names->device_id, name);
    char *key_pem = NULL;
    char *request_pem = NULL;
    status = fedge_key_request_make(names, &key_pem, &request_pem, err);
    /* The key is last: its file is what says that a request has been made, so after a crash between
     * the two the command can be given again. */
    if (status == FEDGE_OK)
        status = fedge_os_make_dirs(dir, err);
    if (status == FEDGE_OK)
        status = fedge_keys_write(dir, "request.pem", request_pem, 0644, err);
    if (status == FEDGE_OK)
        status = fedge_keys_write(dir, "key.pem", key_pem, 0600, err);
    fedge_key_request_wipe(key_pem);
    free(request_pem);
    if (status == FEDGE_OK)
        print_request(dir, names->name, names->role, names->device_id);
    return status;
}

typedef struct request_options {
    const char *identity, *role, *name, *device_id;
    fedge_keys_hosts dns, ip;
} request_options;

static fedge_status take_dns(void *settings, const char *option, const char *value,
                             fedge_error *err)
{
    return fedge_keys_add_host(&((request_options *)settings)->dns, option, value, err);
}

static fedge_status take_ip(void *settings, const char *option, const char *value, fedge_error *err)
{
    return fedge_keys_add_host(&((request_options *)settings)->ip, option, value, err);
}

#define REQUEST(name, argument, help, type, field)                                                 \
    FEDGE_OPTION(name, argument, help, type, request_options, field)

static const fedge_option REQUEST_OPTIONS[] = {
    {REQUEST("identity", "DIR", "the identity's directory, made when missing", TEXT, identity),
     .needed = true},
    {REQUEST("role", "ROLE", "device, server, operator or relay", TEXT, role), .needed = true},
    {REQUEST("name", "NAME", "a name for people (default: the start of the device id)", TEXT,
             name)},
    {REQUEST("dns", "NAME",
             "a host name that clients connect to; servers and relays only; may be repeated", OTHER,
             dns),
     .take = take_dns},
    {REQUEST("ip", "ADDRESS",
             "an IP address that clients connect to; servers and relays only; may be repeated",
             OTHER, ip),
     .take = take_ip},
    {REQUEST("device-id", "UUID", "the device's id (default: a new random one)", TEXT, device_id)}};

static const fedge_command_line REQUEST_LINE = {
    .name = "fedge-keys request",
    .command = true,
    .usage = "Usage: fedge-keys request --identity DIR --role ROLE [OPTION...]\n"
             "\n"
             "Makes a key (DIR/key.pem, mode 0600) and a request for its certificate\n"
             "(DIR/request.pem). Only the request leaves the device. An existing key is never\n"
             "overwritten (use 'fedge-keys renew'); given again, the command changes nothing.\n"
             "\n",
    .options = REQUEST_OPTIONS,
    .num_options = sizeof(REQUEST_OPTIONS) / sizeof(*REQUEST_OPTIONS),
    .notes = "",
    .short_help = true};

int fedge_keys_request(int argc, char **argv)
{
    request_options given = {.identity = NULL};
    int exit_code;
    if (!fedge_keys_read(&REQUEST_LINE, argc, argv, &given, &exit_code))
        return exit_code;
    fedge_key_request_names names = {.name = given.name,
                                     .device_id = given.device_id,
                                     .dns = given.dns.at,
                                     .num_dns = given.dns.num,
                                     .ip = given.ip.at,
                                     .num_ip = given.ip.num};
    fedge_error err;
    if (fedge_role_from_name(given.role, &names.role, &err) != FEDGE_OK)
        return fedge_keys_usage("request", "%s", err.message);
    fedge_status status = run_request(given.identity, &names, &err);
    return fedge_keys_end("request", status, &err);
}

/* Renewal works for whatever role the present certificate has, and at time 0, for which none has
 * expired: whether an expired certificate may still renew is for who signs to say. */
static fedge_status load_any_role(const char *dir, fedge_identity **identity, fedge_error *err)
{
    fedge_status status = FEDGE_DENIED;
    for (unsigned role = 0; role < FEDGE_ROLE_COUNT && status == FEDGE_DENIED; role++)
        status = fedge_identity_load(dir, (fedge_role)role, 0, identity, err);
    return status;
}

static void print_renewal(const char *dir, const fedge_certificate_info *present)
{
    char end[FEDGE_CALENDAR_TEXT];
    fedge_calendar_text(present->not_after_ms, end);
    printf("renewal for device %s, whose certificate expires %s: have %s/request.pem signed\n",
           present->device_id, end, dir);
}

/* Whether the same renewal has been requested already; then it is told again. */
static bool tell_renewal_again(const char *dir, const fedge_certificate_info *present)
{
    fedge_key_request made;
    const bool same =
        is_made(dir, "next-key.pem", &made) && made.renews &&
        memcmp(made.present.fingerprint, present->fingerprint, FEDGE_FINGERPRINT_SIZE) == 0;
    if (same)
        print_renewal(dir, present);
    fedge_key_request_fini(&made);
    return same;
}

static fedge_status run_renew(const char *dir, bool keep_key, fedge_error *err)
{
    fedge_identity *present = NULL;
    fedge_status status = load_any_role(dir, &present, err);
    if (status != FEDGE_OK)
        return status;
    if (!keep_key && tell_renewal_again(dir, &present->certificate)) {
        fedge_identity_free(present);
        return FEDGE_OK;
    }
    status = check_absent(
        dir, "next-key.pem",
        "a renewal is under way; install its answer, or remove that file to give it up", err);
    if (status != FEDGE_OK) {
        fedge_identity_free(present);
        return status;
    }
    char *key_pem = NULL;
    char *request_pem = NULL;
    status = fedge_key_request_renew(present, !keep_key, &key_pem, &request_pem, err);
    if (status == FEDGE_OK)
        status = fedge_keys_write(dir, "request.pem", request_pem, 0644, err);
    if (status == FEDGE_OK && key_pem)
        status = fedge_keys_write(dir, "next-key.pem", key_pem, 0600, err);
    if (status == FEDGE_OK)
        print_renewal(dir, &present->certificate);
    fedge_key_request_wipe(key_pem);
    free(request_pem);
    fedge_identity_free(present);
    return status;
}

typedef struct renew_options {
    const char *identity;
    bool keep_key;
} renew_options;

#define RENEW(name, argument, help, type, field)                                                   \
    FEDGE_OPTION(name, argument, help, type, renew_options, field)

static const fedge_option RENEW_OPTIONS[] = {
    {RENEW("identity", "DIR", "the identity to renew", TEXT, identity), .needed = true},
    {RENEW("keep-key", NULL, "ask for a new certificate for the present key", FLAG, keep_key)}};

static const fedge_command_line RENEW_LINE = {
    .name = "fedge-keys renew",
    .command = true,
    .usage =
        "Usage: fedge-keys renew --identity DIR [--keep-key]\n"
        "\n"
        "Requests a new certificate for the same device, names and role: DIR/request.pem, with\n"
        "the present key's signature, and a new key in DIR/next-key.pem. The present key and\n"
        "chain stay in use until 'fedge-keys install' has put the answer in place.\n"
        "\n",
    .options = RENEW_OPTIONS,
    .num_options = sizeof(RENEW_OPTIONS) / sizeof(*RENEW_OPTIONS),
    .notes = "",
    .short_help = true};

int fedge_keys_renew(int argc, char **argv)
{
    renew_options given = {.identity = NULL};
    int exit_code;
    if (!fedge_keys_read(&RENEW_LINE, argc, argv, &given, &exit_code))
        return exit_code;
    fedge_error err;
    fedge_status status = run_renew(given.identity, given.keep_key, &err);
    return fedge_keys_end("renew", status, &err);
}

static fedge_status run_install(const char *dir, const char *chain, fedge_error *err)
{
    fedge_certificate_info info;
    uint8_t *pem = NULL;
    size_t size = 0;
    fedge_status status = fedge_os_read_file(chain, FEDGE_X509_MAX_PEM, &pem, &size, err);
    if (status != FEDGE_OK)
        return status;
    status = fedge_identity_install(dir, (const char *)pem, &info, err);
    free(pem);
    if (status == FEDGE_OK) {
        printf("installed in %s: ", dir);
        fedge_keys_print_certificate(&info);
    }
    return status;
}

typedef struct install_options {
    const char *identity, *chain;
} install_options;

#define INSTALL(name, argument, help, type, field)                                                 \
    FEDGE_OPTION(name, argument, help, type, install_options, field)

static const fedge_option INSTALL_OPTIONS[] = {
    {INSTALL("identity", "DIR", "the identity", TEXT, identity), .needed = true},
    {INSTALL("chain", "FILE", "what 'fedge-keys sign' has written", TEXT, chain), .needed = true}};

static const fedge_command_line INSTALL_LINE = {
    .name = "fedge-keys install",
    .command = true,
    .usage = "Usage: fedge-keys install --identity DIR --chain FILE\n"
             "\n"
             "Checks that a chain belongs to DIR/next-key.pem or DIR/key.pem, and puts it into\n"
             "DIR/chain.pem, replacing the old one. After a renewal DIR/next-key.pem becomes\n"
             "DIR/key.pem.\n"
             "\n",
    .options = INSTALL_OPTIONS,
    .num_options = sizeof(INSTALL_OPTIONS) / sizeof(*INSTALL_OPTIONS),
    .notes = "",
    .short_help = true};

int fedge_keys_install(int argc, char **argv)
{
    install_options given = {.identity = NULL};
    int exit_code;
    if (!fedge_keys_read(&INSTALL_LINE, argc, argv, &given, &exit_code))
        return exit_code;
    fedge_error err;
    fedge_status status = run_install(given.identity, given.chain, &err);
    return fedge_keys_end("install", status, &err);
}
