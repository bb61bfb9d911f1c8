/* The commands that show and change the registry: list, revoke, activate. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "edge/core/os.h"
#include "edge/core/text.h"
#include "secure/identity/certificate.h"
#include "secure/identity/registry.h"
#include "secure/keys/keys.h"

#define MIN_PREFIX 16 /* hex digits of a fingerprint that name it well enough */

/* --- list ------------------------------------------------------------------------------------- */

typedef struct listing {
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

static fedge_status run_list(const char *dir, bool json, fedge_error *err)
{
    listing list = {.json = json};
    fedge_registry *registry = NULL;
    fedge_status status = fedge_registry_load(dir, &registry, err);
    if (status != FEDGE_OK)
        return status;
    if (json)
        putchar('[');
    status = fedge_registry_visit(registry, print_row, &list, err);
    if (json)
        puts("\n]");
    fedge_registry_free(registry);
    return status;
}

typedef struct list_options {
    const char *registry;
    bool json;
} list_options;

#define LIST(name, argument, help, type, field)                                                    \
    FEDGE_OPTION(name, argument, help, type, list_options, field)

static const fedge_option LIST_OPTIONS[] = {
    {LIST("registry", "DIR", "the registry", TEXT, registry), .needed = true},
    {LIST("json", NULL, "one JSON array of objects", FLAG, json)}};

static const fedge_command_line LIST_LINE = {
    .name = "fedge-keys list",
    .command = true,
    .usage =
        "Usage: fedge-keys list --registry DIR [--json]\n"
        "\n"
        "Shows every certificate: role, index, state, end of validity, device id, SHA-256, name.\n"
        "\n",
    .options = LIST_OPTIONS,
    .num_options = sizeof(LIST_OPTIONS) / sizeof(*LIST_OPTIONS),
    .notes = "",
    .short_help = true};

int fedge_keys_list(int argc, char **argv)
{
    list_options given = {.registry = NULL};
    int exit_code;
    if (!fedge_keys_read(&LIST_LINE, argc, argv, &given, &exit_code))
        return exit_code;
    fedge_error err;
    fedge_status status = run_list(given.registry, given.json, &err);
    return fedge_keys_end("list", status, &err);
}

/* --- revoke, activate ------------------------------------------------------------------------- */

/* Which certificates are meant (one of the three is set), and what becomes of them. */
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

static fedge_status change_loaded(const char *dir, fedge_registry *registry, change *wanted,
                                  fedge_error *err)
{
    fedge_status status = fedge_registry_visit(registry, visit_row, wanted, err);
    if (status != FEDGE_OK)
        return status;
    if (wanted->certificates == 0)
        return fedge_fail(err, FEDGE_NOT_FOUND, "%s has no such certificate", dir);
    if (wanted->devices > 1) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "%u devices match: use --device-id ('fedge-keys list' shows them)",
                          wanted->devices);
    }
    wanted->apply = true;
    status = fedge_registry_visit(registry, visit_row, wanted, err);
    return status == FEDGE_OK ? fedge_registry_save(registry, dir, err) : status;
}

static fedge_status run_change(const char *dir, change *wanted, fedge_error *err)
{
    int lock = -1;
    fedge_registry *registry = NULL;
    if (!fedge_os_exists(dir))
        return fedge_fail(err, FEDGE_NOT_FOUND, "%s does not exist", dir);
    fedge_status status = fedge_registry_lock(dir, &lock, err);
    if (status != FEDGE_OK)
        return status;
    status = fedge_registry_load(dir, &registry, err);
    if (status == FEDGE_OK)
        status = change_loaded(dir, registry, wanted, err);
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

static const fedge_command_line REVOKE_LINE = {
    .name = "fedge-keys revoke",
    .command = true,
    .usage = "Usage: fedge-keys revoke --registry DIR WHICH\n"
             "\n"
             "Revokes every certificate of a device, or one certificate. Then send the aggregator\n"
             "SIGHUP: it drops the device's connections.\n"
             "\n",
    .options = CHANGE_OPTIONS,
    .num_options = sizeof(CHANGE_OPTIONS) / sizeof(*CHANGE_OPTIONS),
    .notes = "",
    .short_help = true};

static const fedge_command_line ACTIVATE_LINE = {
    .name = "fedge-keys activate",
    .command = true,
    .usage =
        "Usage: fedge-keys activate --registry DIR WHICH\n"
        "\n"
        "Admits a device with all its certificates, or one certificate: pending and revoked ones\n"
        "become active. Then send the aggregator SIGHUP: it reads the registry again.\n"
        "\n",
    .options = CHANGE_OPTIONS,
    .num_options = sizeof(CHANGE_OPTIONS) / sizeof(*CHANGE_OPTIONS),
    .notes = "",
    .short_help = true};

static int change_command(const fedge_command_line *line, int argc, char **argv,
                          fedge_certificate_state state)
{
    const char *command = argv[0];
    change wanted = {.state = state};
    int exit_code;
    if (!fedge_keys_read(line, argc, argv, &wanted, &exit_code))
        return exit_code;
    int given = (wanted.device_id != NULL) + (wanted.name != NULL) + (wanted.fingerprint != NULL);
    if (given != 1)
        return fedge_keys_usage(command, "one of --device-id, --name and --fingerprint is needed");
    if (wanted.fingerprint &&
        (strlen(wanted.fingerprint) < MIN_PREFIX ||
         strspn(wanted.fingerprint, "0123456789abcdef") != strlen(wanted.fingerprint))) {
        return fedge_keys_usage(command, "--fingerprint must be %d or more lower-case hex digits",
                                MIN_PREFIX);
    }
    fedge_error err;
    fedge_status status = run_change(wanted.registry, &wanted, &err);
    return fedge_keys_end(command, status, &err);
}

int fedge_keys_revoke(int argc, char **argv)
{
    return change_command(&REVOKE_LINE, argc, argv, FEDGE_CERTIFICATE_REVOKED);
}

int fedge_keys_activate(int argc, char **argv)
{
    return change_command(&ACTIVATE_LINE, argc, argv, FEDGE_CERTIFICATE_ACTIVE);
}
