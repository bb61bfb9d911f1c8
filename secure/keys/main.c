/* fedge-keys: makes, signs, lists and revokes the identities of a federation. */
#include <stdio.h>
#include <string.h>

#include "edge/core/status.h"
#include "edge/core/version.h"
#include "secure/keys/keys.h"

static const char help[] =
    "Usage: fedge-keys COMMAND [OPTION...]\n"
    "\n"
    "Identities for fedge: an offline authority, keys made on the devices, requests signed\n"
    "where the authority is, and the registry of who may connect.\n"
    "\n"
    "  ca         make an authority: root and issuing intermediate\n"
    "  request    on a device: make a key and a request for its certificate\n"
    "  sign       at the authority: sign a request and register the certificate\n"
    "  install    on a device: put the signed chain beside its key\n"
    "  renew      on a device: request a new certificate for the same device\n"
    "  list       show the registry\n"
    "  revoke     revoke a device or a certificate\n"
    "  activate   admit a pending or revoked device or certificate\n"
    "  demo       do all of this at once, for a demonstration on one machine\n"
    "\n"
    "  -h, --help     this text; after a command: its options\n"
    "      --version  print the version\n"
    "\n"
    "Exit status: 0 done; 1 failed, stderr says why; 2 wrong options.\n"
    "Nothing is overwritten unless the command's help says so. Keys get mode 0600.\n";

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"ca", fedge_keys_ca},           {"request", fedge_keys_request},   {"sign", fedge_keys_sign},
    {"install", fedge_keys_install}, {"renew", fedge_keys_renew},       {"list", fedge_keys_list},
    {"revoke", fedge_keys_revoke},   {"activate", fedge_keys_activate}, {"demo", fedge_keys_demo},
};

int main(int argc, char **argv)
{
    if (argc < 2) {
        fputs(help, stderr);
        return FEDGE_KEYS_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        fputs(help, stdout);
        return FEDGE_KEYS_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        puts("fedge-keys " FEDGE_VERSION);
        return FEDGE_KEYS_OK;
    }
    for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    }
    fedge_error err;
    (void)fedge_fail(&err, FEDGE_INVALID_ARGUMENT,
                     "there is no command '%s' (see 'fedge-keys --help')", argv[1]);
    fprintf(stderr, "fedge-keys: %s\n", err.message);
    return FEDGE_KEYS_USAGE;
}
