/* Commands that show and change the registry: list, revoke, activate. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "edge/core/os.h"
#include "edge/core/text.h"
#include "secure/identity/certificate.h"
#include "secure/identity/registry.h"
#include "secure/keys/keys.h"

#define MIN_PREFIX 16 /* hex digits of a fingerprint that identify it well enough */

/* --- list ------------------------------------------------------------------------------------- */

typedef struct listing {
    const char *registry;
    bool json;
    unsigned count;
} listing;

static fedge_status print_row(void *user, fedge_registry_row *row, fedge_error *err)
{
    (void)err;
    listing *list = user;
    const fedge_registry_match *match = &row->match;
    char end[FEDGE_CALENDAR_TEXT];
    char hex[2 * FEDGE_FINGERPRINT_SIZE + 1];
    fedge_calendar_text(row->not_after_ms, end);
    fedge_hex_encode(row->fingerprint, FEDGE_FINGERPRINT_SIZE, hex);
    const char *role = fedge_role_name(match->role);
    const char *state = fedge_certificate_state_name(match->state);
    if (list->json) {
        printf("%s\n{\"role\":\"%s\",\"index\":%" PRIu32 ",\"state\":\"%s\",\"expires\":\"%s\","
               "\"device_id\":\"%s\",\"sha256\":\"%s\",\"name\":\"%s\"}",
               list->count == 0 ? "" : ",", role, match->index, state, end, match->device_id, hex,
               match->name);
    } else {
        printf("%-8s %6" PRIu32 " %-7s %s %s %.16s %s\n", role, match->index, state, end,
               match->device_id, hex, match->name);
    }
    list->count++;
    return FEDGE_OK;
}

static fedge_status run_list(void *settings, fedge_error *err)
{
    listing *list = settings;
    fedge_registry *registry = NULL;
    FEDGE_TRY(fedge_registry_load(list->registry, &registry, err));
    if (list->json)
        putchar('[');
    const fedge_status status = fedge_registry_visit(registry, print_row, list, err);
    if (list->json)
        puts("\n]");
    fedge_registry_free(registry);
    return status;
}

#define LIST(name, argument, help, type, field)                                                    \
    FEDGE_OPTION(name, argument, help, type, listing, field)

static const fedge_option LIST_OPTIONS[] = {
    {LIST("registry", "DIR", "the registry", TEXT, registry), .needed = true},
    {LIST("json", NULL, "one JSON array of objects", FLAG, json)}};

static const fedge_command_line LIST_LINE = FEDGE_KEYS_COMMAND(
    "list", LIST_OPTIONS,
    "Usage: fedge-keys list --registry DIR [--json]\n"
    "\n"
    "Shows every certificate: role, index, state, end of validity, device id, SHA-256, name.\n"
    "\n");

int fedge_keys_list(int argc, char **argv)
{
    listing given = {.registry = NULL};
    return fedge_keys_run(&LIST_LINE, argc, argv, &given, NULL, run_list);
}

/* --- revoke, activate ------------------------------------------------------------------------- */

/* Selection of certificates, by one of three members, and their new state. */
typedef struct change {
    const char *registry;
    const char *device_id, *name, *fingerprint;
    fedge_certificate_state state;
    bool apply;                        /* else only looked for */
    unsigned certificates, devices;    /* found */
    char last_device[FEDGE_UUID_TEXT]; /* found last */
} change;

static bool is_meant(const change *wanted, const fedge_registry_row *row)
{
    char hex[2 * FEDGE_FINGERPRINT_SIZE + 1];
    if (wanted->device_id)
        return strcmp(wanted->device_id, row->match.device_id) == 0;
    if (wanted->name)
        return strcmp(wanted->name, row->match.name) == 0;
    fedge_hex_encode(row->fingerprint, FEDGE_FINGERPRINT_SIZE, hex);
    return strncmp(hex, wanted->fingerprint, strlen(wanted->fingerprint)) == 0;
}

static fedge_status visit_row(void *user, fedge_registry_row *row, fedge_error *err)
{
    (void)err;
    change *wanted = user;
    if (!is_meant(wanted, row))
        return FEDGE_OK;
    wanted->certificates++;
    if (strcmp(wanted->last_device, row->match.device_id) != 0) {
        memcpy(wanted->last_device, row->match.device_id, sizeof(wanted->last_device));
        wanted->devices++;
    }
    if (wanted->apply) {
        row->match.state = wanted->state;
        printf("%s: '%s', role %s, device %s\n", fedge_certificate_state_name(wanted->state),
               row->match.name, fedge_role_name(row->match.role), row->match.device_id);
    }
    return FEDGE_OK;
}

static fedge_status change_loaded(fedge_registry *registry, change *wanted, fedge_error *err)
{
    FEDGE_TRY(fedge_registry_visit(registry, visit_row, wanted, err));
    if (wanted->certificates == 0)
        return fedge_fail(err, FEDGE_NOT_FOUND, "%s has no such certificate", wanted->registry);
    if (wanted->devices > 1) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "%u devices match: use --device-id ('fedge-keys list' shows them)",
                          wanted->devices);
    }
    wanted->apply = true;
    FEDGE_TRY(fedge_registry_visit(registry, visit_row, wanted, err));
    return fedge_registry_save(registry, wanted->registry, err);
}

static fedge_status run_change(void *settings, fedge_error *err)
{
    change *wanted = settings;
    int lock = -1;
    fedge_registry *registry = NULL;
    if (!fedge_os_exists(wanted->registry))
        return fedge_fail(err, FEDGE_NOT_FOUND, "%s does not exist", wanted->registry);
    FEDGE_TRY(fedge_registry_lock(wanted->registry, &lock, err));
    fedge_status status;
    FEDGE_TRY_OR(fedge_registry_load(wanted->registry, &registry, err), done);
    status = change_loaded(registry, wanted, err);
done:
    fedge_registry_free(registry);
    fedge_os_unlock(lock);
    return status;
}

#define CHANGE(name, argument, help, type, field)                                                  \
    FEDGE_OPTION(name, argument, help, type, change, field)

static const fedge_option CHANGE_OPTIONS[] = {
    {CHANGE("registry", "DIR", "the registry", TEXT, registry), .needed = true},
    {CHANGE("device-id", "UUID", "WHICH: the device with this id", TEXT, device_id)},
    {CHANGE("name", "NAME", "WHICH: the device with this name, if it is the only one", TEXT, name)},
    {CHANGE("fingerprint", "HEX", "WHICH: the certificate with this SHA-256 (16 digits or more)",
            TEXT, fingerprint)}};

static const fedge_command_line REVOKE_LINE = FEDGE_KEYS_COMMAND(
    "revoke", CHANGE_OPTIONS,
    "Usage: fedge-keys revoke --registry DIR WHICH\n"
    "\n"
    "Revokes every certificate of a device, or one certificate. Then send the aggregator\n"
    "SIGHUP: it drops the device's connections.\n"
    "\n");

static const fedge_command_line ACTIVATE_LINE = FEDGE_KEYS_COMMAND(
    "activate", CHANGE_OPTIONS,
    "Usage: fedge-keys activate --registry DIR WHICH\n"
    "\n"
    "Admits a device with all its certificates, or one certificate: pending and revoked ones\n"
    "become active. Then send the aggregator SIGHUP: it reads the registry again.\n"
    "\n");

static fedge_status check_change(void *settings, fedge_error *err)
{
    const change *wanted = settings;
    const char *hex = wanted->fingerprint;
    if ((wanted->device_id != NULL) + (wanted->name != NULL) + (hex != NULL) != 1) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "one of --device-id, --name and --fingerprint is needed");
    }
    if (hex && (strlen(hex) < MIN_PREFIX || strspn(hex, "0123456789abcdef") != strlen(hex))) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "--fingerprint must be %d or more lower-case hex digits", MIN_PREFIX);
    }
    return FEDGE_OK;
}

int fedge_keys_revoke(int argc, char **argv)
{
    change wanted = {.state = FEDGE_CERTIFICATE_REVOKED};
    return fedge_keys_run(&REVOKE_LINE, argc, argv, &wanted, check_change, run_change);
}

int fedge_keys_activate(int argc, char **argv)
{
    change wanted = {.state = FEDGE_CERTIFICATE_ACTIVE};
    return fedge_keys_run(&ACTIVATE_LINE, argc, argv, &wanted, check_change, run_change);
}
