/* The commands that run where the key lives: request, renew, install. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/keys/keys.h"
#include "edge/core/ids.h"
#include "edge/core/os.h"
#include "secure/identity/calendar.h"
#include "secure/identity/request.h"

static const char request_help[] =
    "Usage: fedge-keys request --identity DIR --role ROLE [OPTION...]\n"
    "\n"
    "Makes a key (DIR/key.pem, mode 0600) and a request for its certificate\n"
    "(DIR/request.pem). Only the request leaves the device. An existing key is never\n"
    "overwritten: use 'fedge-keys renew'.\n"
    "\n"
    "  --identity DIR    the identity's directory, made when missing\n"
    "  --role ROLE       device, server, operator or relay\n"
    "  --name NAME       a name for people (default: the start of the device id)\n"
    "  --dns NAME        a host name that clients connect to; servers and relays only;\n"
    "                    may be repeated\n"
    "  --ip ADDRESS      an IP address likewise\n"
    "  --device-id UUID  the device's id (default: a new random one)\n"
    "  -h, --help        this text\n";

static const char renew_help[] =
    "Usage: fedge-keys renew --identity DIR [--keep-key]\n"
    "\n"
    "Requests a new certificate for the same device, names and role: DIR/request.pem, with\n"
    "the present key's signature, and a new key in DIR/next-key.pem. The present key and\n"
    "chain stay in use until 'fedge-keys install' has put the answer in place.\n"
    "\n"
    "  --identity DIR  the identity to renew\n"
    "  --keep-key      ask for a new certificate for the present key\n"
    "  -h, --help      this text\n";

static const char install_help[] =
    "Usage: fedge-keys install --identity DIR --chain FILE\n"
    "\n"
    "Puts the answer to a request into DIR/chain.pem (replacing it) once it is known to\n"
    "belong to DIR/next-key.pem, which then becomes DIR/key.pem, or to DIR/key.pem.\n"
    "\n"
    "  --identity DIR  the identity\n"
    "  --chain FILE    what 'fedge-keys sign' has written\n"
    "  -h, --help      this text\n";

/* FEDGE_EXISTS with [advice] when DIR/NAME is there. */
static fedge_status check_absent(const char *dir, const char *name, const char *advice,
                                 fedge_error *err)
{
    char path[FEDGE_OS_MAX_PATH];
    fedge_status status = fedge_x509_path(path, sizeof path, dir, name, err);
    if (status == FEDGE_OK && fedge_os_exists(path))
        status = fedge_fail(err, FEDGE_EXISTS, "%s exists: %s", path, advice);
    return status;
}

static fedge_status run_request(const char *dir, const fedge_request_names *given, fedge_error *err)
{
    fedge_request_names filled = *given; /* what was not given is made up here */
    fedge_request_names *names = &filled;
    char id[FEDGE_UUID_TEXT];
    char name[FEDGE_NAME_SIZE];
    fedge_device_id random;
    fedge_status status = check_absent(
        dir, "key.pem", "to renew it run 'fedge-keys renew', else name another directory", err);
    if (status == FEDGE_OK && names->device_id == NULL) {
        status = fedge_device_id_random(&random, err);
        if (status == FEDGE_OK)
            names->device_id = fedge_device_id_format(&random, id);
    }
    if (status != FEDGE_OK)
        return status;
    if (names->name == NULL) {
        snprintf(name, sizeof name, "%s-%.8s", fedge_role_name(names->role), names->device_id);
        names->name = name;
    }
    char *key_pem = NULL;
    char *request_pem = NULL;
    status = fedge_request_make(names, &key_pem, &request_pem, err);
    if (status == FEDGE_OK)
        status = fedge_os_make_dirs(dir, err);
    if (status == FEDGE_OK)
        status = fedge_keys_write(dir, "request.pem", request_pem, 0644, err);
    if (status == FEDGE_OK)
        status = fedge_keys_write(dir, "key.pem", key_pem, 0600, err);
    fedge_request_wipe(key_pem);
    free(request_pem);
    if (status == FEDGE_OK)
        printf("request for '%s', role %s, device %s: have %s/request.pem signed\n", names->name,
               fedge_role_name(names->role), names->device_id, dir);
    return status;
}

int fedge_keys_request(int argc, char **argv)
{
    enum { IDENTITY = 256, ROLE, NAME, DNS, IP, DEVICE_ID };
    static const struct option long_options[] = {
        {"identity", required_argument, NULL, IDENTITY},
        {"role", required_argument, NULL, ROLE},
        {"name", required_argument, NULL, NAME},
        {"dns", required_argument, NULL, DNS},
        {"ip", required_argument, NULL, IP},
        {"device-id", required_argument, NULL, DEVICE_ID},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    const char *dir = NULL;
    const char *role = NULL;
    const char *dns[FEDGE_X509_MAX_HOSTS + 1];
    const char *ip[FEDGE_X509_MAX_HOSTS + 1];
    fedge_request_names names = {.dns = dns, .ip = ip};
    for (int option; (option = getopt_long(argc, argv, "h", long_options, NULL)) != -1;) {
        if (names.num_dns > FEDGE_X509_MAX_HOSTS || names.num_ip > FEDGE_X509_MAX_HOSTS)
            return fedge_keys_usage("request", "at most %d --dns and --ip each",
                                    FEDGE_X509_MAX_HOSTS);
        switch (option) {
        case IDENTITY:
            dir = optarg;
            break;
        case ROLE:
            role = optarg;
            break;
        case NAME:
            names.name = optarg;
            break;
        case DNS:
            dns[names.num_dns++] = optarg;
            break;
        case IP:
            ip[names.num_ip++] = optarg;
            break;
        case DEVICE_ID:
            names.device_id = optarg;
            break;
        case 'h':
            fputs(request_help, stdout);
            return FEDGE_KEYS_OK;
        default:
            return fedge_keys_usage("request", "wrong option");
        }
    }
    if (dir == NULL || role == NULL || optind < argc)
        return fedge_keys_usage("request", optind < argc ? "unexpected argument"
                                                         : "--identity and --role are needed");
    fedge_error err;
    if (fedge_role_from_name(role, &names.role, &err) != FEDGE_OK)
        return fedge_keys_usage("request", "%s", err.message);
    fedge_status status = run_request(dir, &names, &err);
    return fedge_keys_end("request", status, &err);
}

/* Renewal works for whatever role the present certificate has. */
static fedge_status load_any_role(const char *dir, fedge_identity **identity, fedge_error *err)
{
    fedge_status status = FEDGE_DENIED;
    for (unsigned role = 0; role < FEDGE_ROLE_COUNT && status == FEDGE_DENIED; role++)
        status = fedge_identity_load(dir, (fedge_role)role, 0, identity, err);
    return status;
}

static fedge_status run_renew(const char *dir, bool keep_key, fedge_error *err)
{
    fedge_identity *present = NULL;
    fedge_status status = check_absent(
        dir, "next-key.pem",
        "a renewal is under way; install its answer, or remove that file to give it up", err);
    if (status == FEDGE_OK)
        status = load_any_role(dir, &present, err);
    if (status != FEDGE_OK)
        return status;
    char *key_pem = NULL;
    char *request_pem = NULL;
    status = fedge_request_renew(present, !keep_key, &key_pem, &request_pem, err);
    if (status == FEDGE_OK)
        status = fedge_keys_write(dir, "request.pem", request_pem, 0644, err);
    if (status == FEDGE_OK && key_pem != NULL)
        status = fedge_keys_write(dir, "next-key.pem", key_pem, 0600, err);
    if (status == FEDGE_OK) {
        char end[FEDGE_CALENDAR_TEXT];
        fedge_calendar_text(present->certificate.not_after_ms, end);
        printf("renewal for device %s, whose certificate expires %s: have %s/request.pem signed\n",
               present->certificate.device_id, end, dir);
    }
    fedge_request_wipe(key_pem);
    free(request_pem);
    fedge_identity_free(present);
    return status;
}

int fedge_keys_renew(int argc, char **argv)
{
    enum { IDENTITY = 256, KEEP_KEY };
    static const struct option long_options[] = {
        {"identity", required_argument, NULL, IDENTITY},
        {"keep-key", no_argument, NULL, KEEP_KEY},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    const char *dir = NULL;
    bool keep_key = false;
    for (int option; (option = getopt_long(argc, argv, "h", long_options, NULL)) != -1;) {
        switch (option) {
        case IDENTITY:
            dir = optarg;
            break;
        case KEEP_KEY:
            keep_key = true;
            break;
        case 'h':
            fputs(renew_help, stdout);
            return FEDGE_KEYS_OK;
        default:
            return fedge_keys_usage("renew", "wrong option");
        }
    }
    if (dir == NULL || optind < argc)
        return fedge_keys_usage("renew",
                                optind < argc ? "unexpected argument" : "--identity is needed");
    fedge_error err;
    fedge_status status = run_renew(dir, keep_key, &err);
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

int fedge_keys_install(int argc, char **argv)
{
    enum { IDENTITY = 256, CHAIN };
    static const struct option long_options[] = {
        {"identity", required_argument, NULL, IDENTITY},
        {"chain", required_argument, NULL, CHAIN},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    const char *dir = NULL;
    const char *chain = NULL;
    for (int option; (option = getopt_long(argc, argv, "h", long_options, NULL)) != -1;) {
        switch (option) {
        case IDENTITY:
            dir = optarg;
            break;
        case CHAIN:
            chain = optarg;
            break;
        case 'h':
            fputs(install_help, stdout);
            return FEDGE_KEYS_OK;
        default:
            return fedge_keys_usage("install", "wrong option");
        }
    }
    if (dir == NULL || chain == NULL || optind < argc)
        return fedge_keys_usage("install", optind < argc ? "unexpected argument"
                                                         : "--identity and --chain are needed");
    fedge_error err;
    fedge_status status = run_install(dir, chain, &err);
    return fedge_keys_end("install", status, &err);
}
