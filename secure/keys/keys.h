/* What the commands of fedge-keys share. Each command has its own table of options, does its work
 * through secure/identity and returns the program's exit code. */
#ifndef FEDGE_SECURE_KEYS_KEYS_H
#define FEDGE_SECURE_KEYS_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/command_line.h"
#include "edge/core/status.h"
#include "secure/identity/identity.h"
#include "secure/identity/x509.h"

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

/* Prints "fedge-keys COMMAND: message" on stderr and returns FEDGE_KEYS_USAGE. */
int fedge_keys_usage(const char *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* FEDGE_KEYS_OK, or prints the error on stderr and returns FEDGE_KEYS_FAILED. */
int fedge_keys_end(const char *command, fedge_status status, const fedge_error *err);

/* Reads the command's options (the needed ones must be there) into [settings], zeroed by the
 * caller. True when it is to run; else *exit_code, after --help or what is wrong has been printed.
 */
bool fedge_keys_read(const fedge_command_line *line, int argc, char **argv, void *settings,
                     int *exit_code);

/* Host names or addresses, in the order in which they were given. */
typedef struct fedge_keys_hosts {
    const char *at[FEDGE_X509_MAX_HOSTS];
    size_t num;
} fedge_keys_hosts;

/* One more, of option --[option]. FEDGE_TOO_BIG. */
FEDGE_MUST_USE fedge_status fedge_keys_add_host(fedge_keys_hosts *hosts, const char *option,
                                                const char *value, fedge_error *err);

/* Prints "role device, device UUID, expires 2027-…, SHA-256 …" and a newline on stdout. */
void fedge_keys_print_certificate(const fedge_certificate_info *info);

/* Writes DIR/NAME atomically. */
FEDGE_MUST_USE fedge_status fedge_keys_write(const char *dir, const char *name, const char *text,
                                             unsigned mode, fedge_error *err);

/* Copies CA/root.pem into the directory TRUST as root-HEX.pem, HEX being digits of its SHA-256. */
FEDGE_MUST_USE fedge_status fedge_keys_trust_root(const char *ca, const char *trust,
                                                  fedge_error *err);

#endif
