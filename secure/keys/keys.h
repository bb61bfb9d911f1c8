/* The commands of fedge-keys. Each has its own table of options, does its work through
 * secure/identity and returns the program's exit code. */
#ifndef FEDGE_SECURE_KEYS_KEYS_H
#define FEDGE_SECURE_KEYS_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/command_line.h"
#include "edge/core/status.h"
#include "secure/identity/identity.h"
#include "secure/identity/request.h"

enum { FEDGE_KEYS_OK = 0, FEDGE_KEYS_FAILED = 1, FEDGE_KEYS_USAGE = 2 };

int fedge_keys_ca(int argc, char **argv);
int fedge_keys_request(int argc, char **argv);
int fedge_keys_renew(int argc, char **argv);
int fedge_keys_install(int argc, char **argv);
int fedge_keys_sign(int argc, char **argv);
int fedge_keys_list(int argc, char **argv);
int fedge_keys_revoke(int argc, char **argv);
int fedge_keys_activate(int argc, char **argv);
int fedge_keys_demo(int argc, char **argv);

/* Initialises the fedge_command_line of "fedge-keys COMMAND" with an array of options. */
#define FEDGE_KEYS_COMMAND(command_, options_, usage_)                                             \
    {                                                                                              \
        .name = "fedge-keys " command_, .command = true, .usage = (usage_), .options = (options_), \
        .num_options = sizeof(options_) / sizeof(*(options_)), .notes = "", .short_help = true     \
    }

/* A step of a command; [settings] is the command's struct. */
typedef fedge_status (*fedge_keys_fn)(void *settings, fedge_error *err);

/* Reads the options to [settings], which the caller has zeroed, then calls [check] (NULL: none),
 * whose failure means a wrong option, then [run]. Prints failures on stderr. Returns the exit code.
 */
int fedge_keys_run(const fedge_command_line *line, int argc, char **argv, void *settings,
                   fedge_keys_fn check, fedge_keys_fn run);

/* Host names and addresses from repeated options, in the order given. */
typedef struct fedge_keys_hosts {
    const char *dns[FEDGE_X509_MAX_HOSTS], *ip[FEDGE_X509_MAX_HOSTS];
    size_t num_dns, num_ip;
} fedge_keys_hosts;

/* The `take` of such options (edge/core/command_line.h). The settings begin with a
 * fedge_keys_hosts. FEDGE_TOO_BIG: too many. */
fedge_status fedge_keys_take_dns(void *settings, const char *option, const char *value,
                                 fedge_error *err);
fedge_status fedge_keys_take_ip(void *settings, const char *option, const char *value,
                                fedge_error *err);

/* The hosts of a request; other members are 0. Points into [hosts]. */
fedge_key_request_names fedge_keys_names(const fedge_keys_hosts *hosts);

/* Prints "role device, device UUID, expires 2027-…, SHA-256 …" with a newline on stdout. */
void fedge_keys_print_certificate(const fedge_certificate_info *info);

/* Writes DIR/NAME atomically. */
FEDGE_MUST_USE fedge_status fedge_keys_write(const char *dir, const char *name, const char *text,
                                             unsigned mode, fedge_error *err);

/* Copies CA/root.pem to the directory TRUST as root-HEX.pem; HEX are digits of its SHA-256. */
FEDGE_MUST_USE fedge_status fedge_keys_trust_root(const char *ca, const char *trust,
                                                  fedge_error *err);

#endif
