/* What the commands of fedge-keys share. Each command parses its own options with getopt_long, does
 * its work through secure/identity and returns the program's exit code. */
#ifndef FEDGE_AGGREGATOR_KEYS_KEYS_H
#define FEDGE_AGGREGATOR_KEYS_KEYS_H

#include <stdbool.h>
#include <stdint.h>

#include "edge/core/status.h"
#include "secure/identity/identity.h"

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

/* The value of option --[name] as an integer in [min, max]; false after printing what is wrong. */
bool fedge_keys_number(const char *command, const char *name, const char *text, unsigned min,
                       unsigned max, unsigned *out);

/* Prints "role device, device UUID, expires 2027-…, SHA-256 …" and a newline on stdout. */
void fedge_keys_print_certificate(const fedge_certificate_info *info);

/* Writes DIR/NAME atomically. */
FEDGE_MUST_USE fedge_status fedge_keys_write(const char *dir, const char *name, const char *text,
                                             unsigned mode, fedge_error *err);

/* Copies CA/root.pem into the directory TRUST as root-HEX.pem, HEX being digits of its SHA-256. */
FEDGE_MUST_USE fedge_status fedge_keys_trust_root(const char *ca, const char *trust,
                                                  fedge_error *err);

#endif
