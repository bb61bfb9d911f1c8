/* Makes an identity such as fedge-keys would not, for tests of who is refused:
 *
 *   odd_identity CA DIR ROLE OFFSET_DAYS [REGISTRY]
 *
 * DIR/key.pem and DIR/chain.pem, signed by the authority in CA as if it were OFFSET_DAYS from now
 * (a fraction, too), good for one day from then on; registered as active when REGISTRY is given. */
#include <stdio.h>
#include <stdlib.h>

#include "edge/core/os.h"
#include "edge/core/text.h"
#include "secure/identity/ca.h"
#include "secure/identity/registry.h"
#include "secure/identity/request.h"

#define DAY_MS 86400000

typedef struct odd {
    const char *ca, *dir, *registry; /* registry: may be NULL */
    fedge_role role;
    double offset_days;
} odd;

static fedge_status write_text(const char *dir, const char *name, const char *text,
                               fedge_error *err)
{
    char path[FEDGE_OS_MAX_PATH];
    size_t size = 0;
    while (text[size])
        size++;
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return fedge_os_write_file(path, text, size, 0600, err);
}

static fedge_status enrol(const char *dir, const fedge_certificate_info *info, fedge_error *err)
{
    fedge_registry *registry = NULL;
    fedge_registry_match match;
    fedge_status status = fedge_registry_open(dir, &registry, err);
    if (status == FEDGE_OK) {
        status =
            fedge_registry_add(registry, info, "odd", FEDGE_CERTIFICATE_ACTIVE, false, &match, err);
    }
    if (status == FEDGE_OK)
        status = fedge_registry_save(registry, dir, err);
    fedge_registry_free(registry);
    return status;
}

static fedge_status sign(const odd *wanted, const char *request_pem, char **chain_pem,
                         fedge_certificate_info *info, fedge_error *err)
{
    uint64_t now_ms = fedge_os_unix_ms();
    uint64_t then_ms = (uint64_t)((int64_t)now_ms + (int64_t)(wanted->offset_days * DAY_MS));
    fedge_ca *ca = NULL;
    fedge_key_request request;
    fedge_status status = fedge_key_request_read(request_pem, &request, err);
    if (status != FEDGE_OK)
        return status;
    status = fedge_ca_load(wanted->ca, now_ms, &ca, err);
    if (status == FEDGE_OK)
        status = fedge_ca_sign(ca, &request, 1, then_ms, chain_pem, info, err);
    fedge_ca_free(ca);
    fedge_key_request_fini(&request);
    return status;
}

static fedge_status make(const odd *wanted, fedge_error *err)
{
    static const char *const dns[] = {"localhost"};
    char id_text[FEDGE_UUID_TEXT];
    fedge_device_id id;
    fedge_certificate_info info;
    char *key_pem = NULL, *request_pem = NULL, *chain_pem = NULL;
    fedge_status status = fedge_device_id_random(&id, err);
    if (status != FEDGE_OK)
        return status;
    bool server = wanted->role == FEDGE_ROLE_SERVER;
    const fedge_key_request_names names = {.name = "odd",
                                           .role = wanted->role,
                                           .device_id = fedge_device_id_format(&id, id_text),
                                           .dns = server ? dns : NULL,
                                           .num_dns = server ? 1 : 0};
    status = fedge_key_request_make(&names, &key_pem, &request_pem, err);
    if (status == FEDGE_OK)
        status = sign(wanted, request_pem, &chain_pem, &info, err);
    if (status == FEDGE_OK)
        status = fedge_os_make_dirs(wanted->dir, err);
    if (status == FEDGE_OK)
        status = write_text(wanted->dir, "key.pem", key_pem, err);
    if (status == FEDGE_OK)
        status = write_text(wanted->dir, "chain.pem", chain_pem, err);
    if (status == FEDGE_OK && wanted->registry)
        status = enrol(wanted->registry, &info, err);
    fedge_key_request_wipe(key_pem);
    free(request_pem);
    free(chain_pem);
    return status;
}

int main(int argc, char **argv)
{
    fedge_error err;
    odd wanted = {0};
    if (argc != 5 && argc != 6) {
        fprintf(stderr, "usage: odd_identity CA DIR ROLE OFFSET_DAYS [REGISTRY]\n");
        return 2;
    }
    wanted.ca = argv[1];
    wanted.dir = argv[2];
    wanted.offset_days = strtod(argv[4], NULL);
    wanted.registry = argc == 6 ? argv[5] : NULL;
    fedge_status status = fedge_role_from_name(argv[3], &wanted.role, &err);
    if (status == FEDGE_OK)
        status = make(&wanted, &err);
    if (status != FEDGE_OK)
        fprintf(stderr, "odd_identity: %s\n", err.message);
    return status != FEDGE_OK;
}
