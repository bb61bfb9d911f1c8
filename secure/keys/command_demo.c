#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/os.h"
#include "edge/core/text.h"
#include "secure/identity/ca.h"
#include "secure/identity/certificate.h"
#include "secure/identity/registry.h"
#include "secure/keys/keys.h"

#define MAX_CLIENTS 10000

typedef struct options {
    fedge_keys_hosts hosts;
    const char *out;
    uint32_t clients, days;
} options;

/* State of a demonstration being created. */
typedef struct demo {
    const options *given;
    char registry_dir[FEDGE_OS_MAX_PATH];
    fedge_ca *ca;
    fedge_registry *registry;
    uint64_t not_after_ms; /* end of the server's certificate */
} demo;

/* Writes DIR/NAME, mode 0600, without syncing: thousands of syncs would take minutes, and after a
 * crash a demonstration is created again. */
static fedge_status write_quickly(const char *dir, const char *name, const char *text,
                                  fedge_error *err)
{
    char path[FEDGE_OS_MAX_PATH];
    fedge_os_file file;
    FEDGE_TRY(fedge_x509_path(path, sizeof(path), dir, name, err));
    /* An interrupted command may have left a longer one. */
    if (fedge_os_exists(path))
        FEDGE_TRY(fedge_os_remove(path, err));
    FEDGE_TRY(fedge_os_open(&file, path, FEDGE_OS_CREATE, err));
    const fedge_status status = fedge_os_write_at(&file, 0, text, strlen(text), err);
    fedge_os_close(&file);
    return status;
}

static fedge_status sign(demo *all, const char *request_pem, char **chain_pem, fedge_error *err)
{
    fedge_certificate_info info;
    fedge_registry_match match;
    fedge_key_request request;
    fedge_status status;
    FEDGE_TRY_OR(fedge_key_request_read(request_pem, &request, err), done);
    FEDGE_TRY_OR(fedge_ca_sign(all->ca, &request, all->given->days, fedge_os_unix_ms(), chain_pem,
                               &info, err),
                 done);
    all->not_after_ms = info.not_after_ms; /* the server's comes last */
    status = fedge_registry_add(all->registry, &info, request.name, FEDGE_CERTIFICATE_ACTIVE, false,
                                &match, err);
done:
    fedge_key_request_fini(&request);
    return status;
}

/* Makes OUT/[folder] with a key and a chain. */
static fedge_status make_identity(demo *all, const char *folder, fedge_key_request_names *names,
                                  fedge_error *err)
{
    char dir[FEDGE_OS_MAX_PATH];
    char id_text[FEDGE_UUID_TEXT];
    fedge_device_id id;
    char *key_pem = NULL;
    char *request_pem = NULL;
    char *chain_pem = NULL;
    fedge_status status;
    FEDGE_TRY(fedge_x509_path(dir, sizeof(dir), all->given->out, folder, err));
    FEDGE_TRY(fedge_os_make_dirs(dir, err));
    FEDGE_TRY(fedge_device_id_random(&id, err));
    names->device_id = fedge_device_id_format(&id, id_text);
    FEDGE_TRY(fedge_key_request_make(names, &key_pem, &request_pem, err));
    FEDGE_TRY_OR(sign(all, request_pem, &chain_pem, err), done);
    FEDGE_TRY_OR(write_quickly(dir, "key.pem", key_pem, err), done);
    status = write_quickly(dir, "chain.pem", chain_pem, err);
done:
    fedge_key_request_wipe(key_pem);
    free(request_pem);
    free(chain_pem);
    return status;
}

static fedge_status make_identities(demo *all, fedge_error *err)
{
    for (unsigned i = 0; i < all->given->clients; i++) {
        char folder[32];
        char name[32];
        snprintf(folder, sizeof(folder), "clients/%04u", i);
        snprintf(name, sizeof(name), "client-%04u", i);
        fedge_key_request_names names = {.name = name, .role = FEDGE_ROLE_DEVICE};
        FEDGE_TRY(make_identity(all, folder, &names, err));
    }
    fedge_key_request_names operator_names = {.name = "operator", .role = FEDGE_ROLE_OPERATOR};
    FEDGE_TRY(make_identity(all, "operator", &operator_names, err));
    fedge_key_request_names server_names = fedge_keys_names(&all->given->hosts);
    server_names.name = "server";
    server_names.role = FEDGE_ROLE_SERVER;
    return make_identity(all, "server", &server_names, err);
}

static fedge_status make_authority(demo *all, fedge_error *err)
{
    char ca_dir[FEDGE_OS_MAX_PATH];
    char trust_dir[FEDGE_OS_MAX_PATH];
    uint64_t root_end_ms;
    uint64_t issuing_end_ms;
    const char *out = all->given->out;
    uint64_t now_ms = fedge_os_unix_ms();
    FEDGE_TRY(fedge_x509_path(ca_dir, sizeof(ca_dir), out, "ca", err));
    FEDGE_TRY(fedge_x509_path(trust_dir, sizeof(trust_dir), out, "trust", err));
    FEDGE_TRY(fedge_x509_path(all->registry_dir, sizeof(all->registry_dir), out, "registry", err));
    FEDGE_TRY(fedge_ca_create(ca_dir, "fedge demo", FEDGE_CA_ROOT_DAYS, FEDGE_CA_ISSUING_DAYS,
                              now_ms, &root_end_ms, &issuing_end_ms, err));
    FEDGE_TRY(fedge_keys_trust_root(ca_dir, trust_dir, err));
    return fedge_ca_load(ca_dir, now_ms, &all->ca, err);
}

static fedge_status fail_another(const options *given, const char *why, fedge_error *err)
{
    return fedge_fail(err, FEDGE_EXISTS,
                      "%s holds %s, which is never overwritten: name another directory", given->out,
                      why);
}

static bool has_text(const char *dir, const char *name)
{
    char path[FEDGE_OS_MAX_PATH];
    char *text;
    const bool has =
        fedge_x509_read_text(dir, name, path, &text, NULL) == FEDGE_OK && text[0] != '\0';
    fedge_key_request_wipe(text);
    return has;
}

/* The registry is written last, so an interrupted command has left all or nothing. But clients'
 * files are not synced and may be lost in a power failure, and a folder may have been removed
 * since. */
static fedge_status check_clients(const options *given, fedge_error *err)
{
    for (unsigned i = 0; i < given->clients; i++) {
        char key[32], chain[32];
        snprintf(key, sizeof(key), "clients/%04u/key.pem", i);
        snprintf(chain, sizeof(chain), "clients/%04u/chain.pem", i);
        if (!has_text(given->out, key) || !has_text(given->out, chain))
            return fail_another(given, "a demonstration that lacks a client", err);
    }
    return FEDGE_OK;
}

static fedge_status check_server(demo *all, const mbedtls_x509_crt *chain, fedge_error *err)
{
    const options *given = all->given;
    fedge_certificate_info server;
    fedge_key_request made = {.renews = false}; /* only its names are used */
    const fedge_key_request_names names = fedge_keys_names(&given->hosts);
    FEDGE_TRY(fedge_x509_info(chain, &server, err));
    FEDGE_TRY(fedge_x509_names_read(&chain->subject_alt_names, &made.names, err));
    if (fedge_registry_num_devices(all->registry) != given->clients ||
        fedge_key_request_check_hosts(&made, &names, NULL) != FEDGE_OK)
        return fail_another(given, "another demonstration", err);
    if (server.not_after_ms <= fedge_os_unix_ms())
        return fail_another(given, "a demonstration whose certificates have expired", err);
    all->not_after_ms = server.not_after_ms;
    return FEDGE_OK;
}

/* FEDGE_EXISTS unless the existing demonstration is the one asked for. */
static fedge_status check_whole(demo *all, fedge_error *err)
{
    const options *given = all->given;
    char path[FEDGE_OS_MAX_PATH];
    char *pem;
    mbedtls_x509_crt chain;
    FEDGE_TRY(fedge_x509_read_text(given->out, "server/chain.pem", path, &pem, err));
    mbedtls_x509_crt_init(&chain);
    fedge_status status;
    FEDGE_TRY_OR(fedge_x509_parse_chain(pem, path, &chain, err), done);
    status = check_server(all, &chain, err);
done:
    mbedtls_x509_crt_free(&chain);
    free(pem);
    FEDGE_TRY(status);
    return check_clients(given, err);
}

static void print_made(const demo *all)
{
    char end[FEDGE_CALENDAR_TEXT];
    fedge_calendar_text(all->not_after_ms, end);
    printf("%s: authority, server, operator and %u clients; certificates expire %s\n",
           all->given->out, all->given->clients, end);
}

static fedge_status fill_registry(demo *all, fedge_error *err)
{
    FEDGE_TRY(fedge_registry_open(all->registry_dir, &all->registry, err));
    if (fedge_registry_num_devices(all->registry) != 0)
        return check_whole(all, err);
    FEDGE_TRY(make_identities(all, err));
    return fedge_registry_save(all->registry, all->registry_dir, err);
}

static fedge_status run(void *settings, fedge_error *err)
{
    options *given = settings;
    if (given->hosts.num_dns == 0)
        given->hosts.dns[given->hosts.num_dns++] = "localhost";
    if (given->hosts.num_ip == 0)
        given->hosts.ip[given->hosts.num_ip++] = "127.0.0.1";
    demo all = {.given = given};
    int lock = -1;
    fedge_status status;
    FEDGE_TRY_OR(make_authority(&all, err), done);
    FEDGE_TRY_OR(fedge_registry_lock(all.registry_dir, &lock, err), done);
    status = fill_registry(&all, err);
    fedge_os_unlock(lock);
    if (status == FEDGE_OK)
        print_made(&all);
done:
    fedge_registry_free(all.registry);
    fedge_ca_free(all.ca);
    return status;
}

#define OPTION(name, argument, help, type, field)                                                  \
    FEDGE_OPTION(name, argument, help, type, options, field)

static const fedge_option OPTIONS[] = {
    {OPTION("out", "DIR", "must not hold another authority yet", TEXT, out), .needed = true},
    {OPTION("clients", "N", "1 to 10000", U32, clients), .min = 1, .max = MAX_CLIENTS,
     .needed = true},
    {OPTION("server-name", "NAME", "the server's host name (localhost); may be repeated", OTHER,
            hosts.dns),
     .take = fedge_keys_take_dns},
    {OPTION("ip", "ADDRESS", "the server's address (127.0.0.1); may be repeated", OTHER, hosts.ip),
     .take = fedge_keys_take_ip},
    {OPTION("valid-days", "N", "validity of all certificates", U32, days),
     .preset = FEDGE_PRESET(FEDGE_CA_LEAF_DAYS), .min = 1, .max = FEDGE_CA_MAX_DAYS}};

static const fedge_command_line COMMAND_LINE = FEDGE_KEYS_COMMAND(
    "demo", OPTIONS,
    "Usage: fedge-keys demo --out DIR --clients N [OPTION...]\n"
    "\n"
    "Makes everything for a demonstration on one machine: DIR/ca, DIR/trust, DIR/registry,\n"
    "DIR/server, DIR/operator and DIR/clients/0000, 0001, ... (client I has index I). All "
    "keys\n"
    "are made in one place, so this is not how to deploy.\n"
    "\n");

int fedge_keys_demo(int argc, char **argv)
{
    options given = {.out = NULL};
    return fedge_keys_run(&COMMAND_LINE, argc, argv, &given, NULL, run);
}
