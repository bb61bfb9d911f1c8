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

/* FEDGE_EXISTS with [advice] if DIR/NAME exists. */
static fedge_status check_absent(const char *dir, const char *name, const char *advice,
                                 fedge_error *err)
{
    char path[FEDGE_OS_MAX_PATH];
    FEDGE_TRY(fedge_x509_path(path, sizeof(path), dir, name, err));
    if (fedge_os_exists(path))
        return fedge_fail(err, FEDGE_EXISTS, "%s exists: %s", path, advice);
    return FEDGE_OK;
}

/* Whether DIR has the key [key_name] and its request, so that a repeated command has nothing to do.
 * The caller frees *request in any case. */
static bool is_made(const char *dir, const char *key_name, fedge_key_request *request)
{
    char path[FEDGE_OS_MAX_PATH];
    char *pem;
    *request = (fedge_key_request){.renews = false};
    mbedtls_x509_csr_init(&request->csr);
    const bool made =
        fedge_x509_read_text(dir, "request.pem", path, &pem, NULL) == FEDGE_OK &&
        fedge_key_request_read(pem, request, NULL) == FEDGE_OK &&
        fedge_x509_compare_key(dir, key_name, &request->csr.pk, path, NULL) == FEDGE_OK;
    free(pem);
    return made;
}

static void print_request(const char *dir, const char *name, fedge_role role, const char *device_id)
{
    printf("request for '%s', role %s, device %s: have %s/request.pem signed\n", name,
           fedge_role_name(role), device_id, dir);
}

/* "device-01234567". */
static const char *default_name(fedge_role role, const char *device_id, char name[FEDGE_NAME_SIZE])
{
    snprintf(name, FEDGE_NAME_SIZE, "%s-%.8s", fedge_role_name(role), device_id);
    return name;
}

/* If DIR has the same request, prints it and returns true. */
static bool print_existing(const char *dir, const fedge_key_request_names *given)
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

typedef struct request_options {
    fedge_keys_hosts hosts;
    const char *identity, *role, *name, *device_id;
    fedge_role parsed_role;
} request_options;

static fedge_status check_request(void *settings, fedge_error *err)
{
    request_options *given = settings;
    return fedge_role_from_name(given->role, &given->parsed_role, err);
}

static fedge_status run_request(void *settings, fedge_error *err)
{
    const request_options *given = settings;
    const char *dir = given->identity;
    char id[FEDGE_UUID_TEXT];
    char name[FEDGE_NAME_SIZE];
    fedge_device_id random;
    fedge_key_request_names names = fedge_keys_names(&given->hosts);
    names.name = given->name;
    names.role = given->parsed_role;
    names.device_id = given->device_id;
    if (print_existing(dir, &names))
        return FEDGE_OK;
    FEDGE_TRY(check_absent(dir, "key.pem",
                           "to renew it run 'fedge-keys renew', else name another directory", err));
    if (!names.device_id) {
        FEDGE_TRY(fedge_device_id_random(&random, err));
        names.device_id = fedge_device_id_format(&random, id);
    }
    if (!names.name)
        names.name = default_name(names.role, names.device_id, name);
    char *key_pem = NULL;
    char *request_pem = NULL;
    FEDGE_TRY(fedge_key_request_make(&names, &key_pem, &request_pem, err));
    fedge_status status;
    FEDGE_TRY_OR(fedge_os_make_dirs(dir, err), done);
    FEDGE_TRY_OR(fedge_keys_write(dir, "request.pem", request_pem, 0644, err), done);
    /* The key is last, since its file marks a complete request: after a crash in between, the
     * command can be repeated. */
    FEDGE_TRY_OR(fedge_keys_write(dir, "key.pem", key_pem, 0600, err), done);
    print_request(dir, names.name, names.role, names.device_id);
done:
    fedge_key_request_wipe(key_pem);
    free(request_pem);
    return status;
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
             hosts.dns),
     .take = fedge_keys_take_dns},
    {REQUEST("ip", "ADDRESS",
             "an IP address that clients connect to; servers and relays only; may be repeated",
             OTHER, hosts.ip),
     .take = fedge_keys_take_ip},
    {REQUEST("device-id", "UUID", "the device's id (default: a new random one)", TEXT, device_id)}};

static const fedge_command_line REQUEST_LINE = FEDGE_KEYS_COMMAND(
    "request", REQUEST_OPTIONS,
    "Usage: fedge-keys request --identity DIR --role ROLE [OPTION...]\n"
    "\n"
    "Makes a key (DIR/key.pem, mode 0600) and a request for its certificate\n"
    "(DIR/request.pem). Only the request leaves the device. An existing key is never\n"
    "overwritten (use 'fedge-keys renew'); given again, the command changes nothing.\n"
    "\n");

int fedge_keys_request(int argc, char **argv)
{
    request_options given = {.identity = NULL};
    return fedge_keys_run(&REQUEST_LINE, argc, argv, &given, check_request, run_request);
}

/* Renewal works for any role, and does not check the end of validity (time 0): the signer decides
 * whether an expired certificate may be renewed. */
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

/* If DIR has the same renewal request, prints it and returns true. */
static bool print_pending_renewal(const char *dir, const fedge_certificate_info *present)
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

typedef struct renew_options {
    const char *identity;
    bool keep_key;
} renew_options;

static fedge_status renew(const renew_options *given, const fedge_identity *present,
                          fedge_error *err)
{
    const char *dir = given->identity;
    char *key_pem = NULL;
    char *request_pem = NULL;
    fedge_status status;
    if (!given->keep_key && print_pending_renewal(dir, &present->certificate))
        return FEDGE_OK;
    FEDGE_TRY(check_absent(
        dir, "next-key.pem",
        "a renewal is under way; install its answer, or remove that file to give it up", err));
    FEDGE_TRY(fedge_key_request_renew(present, !given->keep_key, &key_pem, &request_pem, err));
    FEDGE_TRY_OR(fedge_keys_write(dir, "request.pem", request_pem, 0644, err), done);
    if (key_pem)
        FEDGE_TRY_OR(fedge_keys_write(dir, "next-key.pem", key_pem, 0600, err), done);
    print_renewal(dir, &present->certificate);
done:
    fedge_key_request_wipe(key_pem);
    free(request_pem);
    return status;
}

static fedge_status run_renew(void *settings, fedge_error *err)
{
    const renew_options *given = settings;
    fedge_identity *present = NULL;
    FEDGE_TRY(load_any_role(given->identity, &present, err));
    const fedge_status status = renew(given, present, err);
    fedge_identity_free(present);
    return status;
}

#define RENEW(name, argument, help, type, field)                                                   \
    FEDGE_OPTION(name, argument, help, type, renew_options, field)

static const fedge_option RENEW_OPTIONS[] = {
    {RENEW("identity", "DIR", "the identity to renew", TEXT, identity), .needed = true},
    {RENEW("keep-key", NULL, "ask for a new certificate for the present key", FLAG, keep_key)}};

static const fedge_command_line RENEW_LINE = FEDGE_KEYS_COMMAND(
    "renew", RENEW_OPTIONS,
    "Usage: fedge-keys renew --identity DIR [--keep-key]\n"
    "\n"
    "Requests a new certificate for the same device, names and role: DIR/request.pem, with\n"
    "the present key's signature, and a new key in DIR/next-key.pem. The present key and\n"
    "chain stay in use until 'fedge-keys install' has put the answer in place.\n"
    "\n");

int fedge_keys_renew(int argc, char **argv)
{
    renew_options given = {.identity = NULL};
    return fedge_keys_run(&RENEW_LINE, argc, argv, &given, NULL, run_renew);
}

typedef struct install_options {
    const char *identity, *chain;
} install_options;

static fedge_status run_install(void *settings, fedge_error *err)
{
    const install_options *given = settings;
    fedge_certificate_info info;
    uint8_t *pem = NULL;
    size_t size = 0;
    FEDGE_TRY(fedge_os_read_file(given->chain, FEDGE_X509_MAX_PEM, &pem, &size, err));
    const fedge_status status =
        fedge_identity_install(given->identity, (const char *)pem, &info, err);
    free(pem);
    FEDGE_TRY(status);
    printf("installed in %s: ", given->identity);
    fedge_keys_print_certificate(&info);
    return FEDGE_OK;
}

#define INSTALL(name, argument, help, type, field)                                                 \
    FEDGE_OPTION(name, argument, help, type, install_options, field)

static const fedge_option INSTALL_OPTIONS[] = {
    {INSTALL("identity", "DIR", "the identity", TEXT, identity), .needed = true},
    {INSTALL("chain", "FILE", "what 'fedge-keys sign' has written", TEXT, chain), .needed = true}};

static const fedge_command_line INSTALL_LINE = FEDGE_KEYS_COMMAND(
    "install", INSTALL_OPTIONS,
    "Usage: fedge-keys install --identity DIR --chain FILE\n"
    "\n"
    "Checks that a chain belongs to DIR/next-key.pem or DIR/key.pem, and puts it into\n"
    "DIR/chain.pem, replacing the old one. After a renewal DIR/next-key.pem becomes\n"
    "DIR/key.pem.\n"
    "\n");

int fedge_keys_install(int argc, char **argv)
{
    install_options given = {.identity = NULL};
    return fedge_keys_run(&INSTALL_LINE, argc, argv, &given, NULL, run_install);
}
