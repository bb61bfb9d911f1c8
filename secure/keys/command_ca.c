#include <stddef.h>
#include <stdio.h>

#include "edge/core/os.h"
#include "secure/identity/ca.h"
#include "secure/identity/certificate.h"
#include "secure/identity/x509.h"
#include "secure/keys/keys.h"

typedef struct options {
    const char *ca, *name, *trust;
    uint32_t root_days, issuing_days;
    bool next, renew_issuing;
} options;

static void print_end(const char *what, uint64_t end_ms)
{
    char end[FEDGE_CALENDAR_TEXT];
    fedge_calendar_text(end_ms, end);
    printf("%s: expires %s\n", what, end);
}

static fedge_status run(void *settings, fedge_error *err)
{
    const options *given = settings;
    char dir[FEDGE_OS_MAX_PATH];
    uint64_t now_ms = fedge_os_unix_ms();
    uint64_t root_end_ms = 0;
    uint64_t issuing_end_ms = 0;
    FEDGE_TRY(fedge_x509_path(dir, sizeof(dir), given->ca, given->next ? "next" : ".", err));
    const char *where = given->next ? dir : given->ca;
    FEDGE_TRY(given->renew_issuing
                  ? fedge_ca_renew_issuing(where, given->name, given->issuing_days, now_ms,
                                           &issuing_end_ms, err)
                  : fedge_ca_create(where, given->name, given->root_days, given->issuing_days,
                                    now_ms, &root_end_ms, &issuing_end_ms, err));
    printf("authority in %s\n", where);
    if (root_end_ms != 0)
        print_end("root", root_end_ms);
    print_end("intermediate", issuing_end_ms);
    return given->trust ? fedge_keys_trust_root(where, given->trust, err) : FEDGE_OK;
}

#define OPTION(name, argument, help, type, field)                                                  \
    FEDGE_OPTION(name, argument, help, type, options, field)

static const fedge_option OPTIONS[] = {
    {OPTION("ca", "DIR", "the authority's directory; never on a server", TEXT, ca), .needed = true},
    {OPTION("name", "NAME", "its name in certificates", TEXT, name), .preset = "fedge"},
    {OPTION("valid-days", "N", "validity of the root, 20 years", U32, root_days),
     .preset = FEDGE_PRESET(FEDGE_CA_ROOT_DAYS), .min = 1, .max = FEDGE_CA_MAX_DAYS},
    {OPTION("issuing-days", "N", "validity of the intermediate, 5 years", U32, issuing_days),
     .preset = FEDGE_PRESET(FEDGE_CA_ISSUING_DAYS), .min = 1, .max = FEDGE_CA_MAX_DAYS},
    {OPTION("trust", "DIR", "also copy the root into this trust directory", TEXT, trust)},
    {OPTION(
        "next", NULL,
        "make the next authority, in DIR/next: put its root into every trust directory, then sign "
        "with --ca DIR/next, and remove the old root when the last old certificate is gone",
        FLAG, next)},
    {OPTION("renew-issuing", NULL,
            "replace the intermediate with a new one, signed by DIR's root; earlier "
            "certificates stay valid",
            FLAG, renew_issuing)}};

static const fedge_command_line COMMAND_LINE = FEDGE_KEYS_COMMAND(
    "ca", OPTIONS,
    "Usage: fedge-keys ca --ca DIR [OPTION...]\n"
    "\n"
    "Makes a root and an issuing intermediate (ECDSA P-256) in DIR: root.pem, root-key.pem,\n"
    "issuing.pem, issuing-key.pem. An existing authority is never overwritten; one that was\n"
    "left half made is completed.\n"
    "\n");

int fedge_keys_ca(int argc, char **argv)
{
    options given = {.ca = NULL};
    return fedge_keys_run(&COMMAND_LINE, argc, argv, &given, NULL, run);
}
