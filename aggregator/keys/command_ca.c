#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "aggregator/keys/keys.h"
#include "edge/core/os.h"
#include "secure/identity/ca.h"
#include "secure/identity/calendar.h"
#include "secure/identity/x509.h"

static const char help[] =
    "Usage: fedge-keys ca --ca DIR [OPTION...]\n"
    "\n"
    "Makes a root and an issuing intermediate (ECDSA P-256) in DIR: root.pem, root-key.pem,\n"
    "issuing.pem, issuing-key.pem. An existing authority is never overwritten.\n"
    "\n"
    "  --ca DIR             the authority's directory; never on a server\n"
    "  --name NAME          its name in certificates (default fedge)\n"
    "  --valid-days N       validity of the root (default 7305, 20 years)\n"
    "  --issuing-days N     validity of the intermediate (default 1826, 5 years)\n"
    "  --trust DIR          also copy the root into this trust directory\n"
    "  --next               make the next authority, in DIR/next: put its root into every\n"
    "                       trust directory, then sign with --ca DIR/next, and remove the old\n"
    "                       root when the last old certificate is gone\n"
    "  --renew-issuing      replace the intermediate by a new one, signed by DIR's root;\n"
    "                       certificates issued before stay good\n"
    "  -h, --help           this text\n";

typedef struct options {
    const char *ca, *name, *trust;
    unsigned root_days, issuing_days;
    bool next, renew_issuing;
} options;

static void print_end(const char *what, uint64_t end_ms)
{
    char end[FEDGE_CALENDAR_TEXT];
    fedge_calendar_text(end_ms, end);
    printf("%s: expires %s\n", what, end);
}

static fedge_status run(const options *given, fedge_error *err)
{
    char dir[FEDGE_OS_MAX_PATH];
    uint64_t now_ms = fedge_os_unix_ms();
    uint64_t root_end_ms = 0;
    uint64_t issuing_end_ms = 0;
    fedge_status status =
        fedge_x509_path(dir, sizeof dir, given->ca, given->next ? "next" : ".", err);
    const char *where = given->next ? dir : given->ca;
    if (status == FEDGE_OK && given->renew_issuing)
        status = fedge_ca_renew_issuing(where, given->name, given->issuing_days, now_ms,
                                        &issuing_end_ms, err);
    else if (status == FEDGE_OK)
        status = fedge_ca_create(where, given->name, given->root_days, given->issuing_days, now_ms,
                                 &root_end_ms, &issuing_end_ms, err);
    if (status != FEDGE_OK)
        return status;
    printf("authority in %s\n", where);
    if (root_end_ms != 0)
        print_end("root", root_end_ms);
    print_end("intermediate", issuing_end_ms);
    if (given->trust == NULL)
        return FEDGE_OK;
    return fedge_keys_trust_root(where, given->trust, err);
}

int fedge_keys_ca(int argc, char **argv)
{
    enum { CA = 256, NAME, DAYS, ISSUING_DAYS, TRUST, NEXT, RENEW };
    static const struct option long_options[] = {
        {"ca", required_argument, NULL, CA},
        {"name", required_argument, NULL, NAME},
        {"valid-days", required_argument, NULL, DAYS},
        {"issuing-days", required_argument, NULL, ISSUING_DAYS},
        {"trust", required_argument, NULL, TRUST},
        {"next", no_argument, NULL, NEXT},
        {"renew-issuing", no_argument, NULL, RENEW},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    options given = {
        .name = "fedge", .root_days = FEDGE_CA_ROOT_DAYS, .issuing_days = FEDGE_CA_ISSUING_DAYS};
    for (int option; (option = getopt_long(argc, argv, "h", long_options, NULL)) != -1;) {
        switch (option) {
        case CA:
            given.ca = optarg;
            break;
        case NAME:
            given.name = optarg;
            break;
        case DAYS:
            if (!fedge_keys_number("ca", "valid-days", optarg, 1, FEDGE_CA_MAX_DAYS,
                                   &given.root_days))
                return FEDGE_KEYS_USAGE;
            break;
        case ISSUING_DAYS:
            if (!fedge_keys_number("ca", "issuing-days", optarg, 1, FEDGE_CA_MAX_DAYS,
                                   &given.issuing_days))
                return FEDGE_KEYS_USAGE;
            break;
        case TRUST:
            given.trust = optarg;
            break;
        case NEXT:
            given.next = true;
            break;
        case RENEW:
            given.renew_issuing = true;
            break;
        case 'h':
            fputs(help, stdout);
            return FEDGE_KEYS_OK;
        default:
            return fedge_keys_usage("ca", "wrong option");
        }
    }
    if (given.ca == NULL || optind < argc)
        return fedge_keys_usage("ca", optind < argc ? "unexpected argument" : "--ca is needed");
    fedge_error err;
    fedge_status status = run(&given, &err);
    return fedge_keys_end("ca", status, &err);
}
