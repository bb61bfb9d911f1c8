/* Authorities, identities and crooked certificates for the tests of this folder. */
#ifndef FEDGE_TESTS_SECURE_IDENTITY_FORGE_H
#define FEDGE_TESTS_SECURE_IDENTITY_FORGE_H

#include <stdbool.h>
#include <stdint.h>

#include "secure/identity/ca.h"
#include "secure/identity/identity.h"

#define FORGE_ID "01234567-89ab-4def-8123-456789abcdef"
#define FORGE_OTHER_ID "11111111-2222-4333-8444-555555555555"

/* An authority in a fresh directory [dir]; any failure fails the test. */
void forge_ca(const char *dir);

/* An honest identity in [dir], signed by the authority in [ca_dir]; servers are named localhost and
 * 127.0.0.1. */
void forge_identity(const char *dir, const char *ca_dir, fedge_role role, const char *device_id,
                    const char *name);

/* Authorities DIR/ca and DIR/next; a server in DIR/server and a device in DIR/device, signed by the
 * first of them. */
void forge_identities(const char *dir);

/* A certificate that fedge's own code would not make. */
typedef struct forge_leaf {
    const char *cn;
    const char *uris[4]; /* up to the first NULL */
    int usage;           /* 0 none, 1 clientAuth, 2 serverAuth, 3 any */
    bool is_ca;
    int64_t from_days, to_days; /* validity, from now */
} forge_leaf;

/* Writes DIR/key.pem and DIR/chain.pem, signed by the intermediate of [ca_dir]. */
void forge_certificate(const char *dir, const char *ca_dir, const forge_leaf *leaf);

/* The first certificate of DIR/chain.pem as DER; returns its size. */
size_t forge_der(const char *dir, uint8_t out[4096]);

/* A whole file as text, to be freed. */
char *forge_read(const char *dir, const char *name);
void forge_write(const char *dir, const char *name, const char *text, unsigned mode);

#endif
