#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/os.h"
#include "secure/identity/ca.h"
#include "secure/identity/registry.h"
#include "secure/identity/x509.h"
#include "secure/keys/keys.h"

typedef struct options {
    const char *ca, *registry, *request, *out, *role;
    fedge_keys_hosts dns, ip;
    uint32_t days;
    bool accept_names, pending, renew;
} options;

/* Whether the certificate that [request] renews is good: a signature by any certificate of this
 * authority would do as proof if it were not also held against the registry. A revoked device must
 * not renew itself, nor one device another. */
static fedge_status check_renewed(const fedge_registry *registry, const fedge_key_request *request,
                                  fedge_error *err)
{
    fedge_registry_match match;
    fedge_status status = fedge_registry_find(registry, request->present.fingerprint, &match, err);
    if (status != FEDGE_OK)
        return fedge_error_prefix(err, status, "the certificate to renew is unknown");
    if (match.state != FEDGE_CERTIFICATE_ACTIVE ||
        strcmp(match.device_id, request->present.device_id) != 0) {
        return fedge_fail(err, FEDGE_REVOKED, "the certificate to renew, of '%s', is %s",
                          match.name, fedge_certificate_state_name(match.state));
    }
    return FEDGE_OK;
}

/* Whoever writes a request chooses its role and names, and a device that is taken for a server
 * would be trusted by all others: both are for who signs to give. A renewal that has been [proven]
 * has the names of the certificate before, or fewer. */
static fedge_status check_asked(const options *given, const fedge_key_request *request, bool proven,
                                fedge_error *err)
{
    const char *asked = fedge_role_name(request->names.role);
    if (strcmp(given->role, asked) != 0) {
        return fedge_fail(
            err, FEDGE_DENIED,
            "this request is for role %s, not %s: give --role %s if you mean to sign it", asked,
            given->role, asked);
    }
    if (given->accept_names || (proven && given->dns.num + given->ip.num == 0))
        return FEDGE_OK;
    const fedge_key_request_names granted = {.dns = given->dns.at,
                                             .num_dns = given->dns.num,
                                             .ip = given->ip.at,
                                             .num_ip = given->ip.num};
    return fedge_key_request_check_hosts(request, &granted, err);
}

/* The chain at --out, if it can be read. [chain] is freed by the caller in any case. */
static bool read_out(const char *path, mbedtls_x509_crt *chain, fedge_certificate_info *info)
{
    uint8_t *pem = NULL;
    size_t size = 0;
    mbedtls_x509_crt_init(chain);
    const bool read = fedge_os_read_file(path, FEDGE_X509_MAX_PEM, &pem, &size, NULL) == FEDGE_OK &&
                      fedge_x509_parse_chain((const char *)pem, path, chain, NULL) == FEDGE_OK &&
                      fedge_x509_info(chain, info, NULL) == FEDGE_OK;
    free(pem);
    return read;
}

static bool is_same_key(const mbedtls_pk_context *a, const mbedtls_pk_context *b)
{
    unsigned char text[2][256]; /* each at the end of its room */
    const int size = mbedtls_pk_write_pubkey_der(a, text[0], sizeof(text[0]));
    return size > 0 && mbedtls_pk_write_pubkey_der(b, text[1], sizeof(text[1])) == size &&
           memcmp(text[0] + sizeof(text[0]) - size, text[1] + sizeof(text[1]) - size,
                  (size_t)size) == 0;
}

/* A key may ask anew, for another role or other hosts. */
static bool has_names(const mbedtls_x509_crt *certificate, const fedge_x509_names *asked)
{
    fedge_x509_names names;
    return fedge_x509_names_read(&certificate->subject_alt_names, &names, NULL) == FEDGE_OK &&
           names.role == asked->role && fedge_x509_hosts_within(&names, asked) &&
           fedge_x509_hosts_within(asked, &names);
}

/* Whether just this request has been signed by this authority, into --out, and registered: by a
 * command that was killed when it had done so, or that is given again. One that has expired since
 * is no answer. */
static bool is_signed(const options *given, const fedge_ca *ca, const fedge_registry *registry,
                      const fedge_key_request *request, fedge_certificate_info *info,
                      fedge_registry_match *match)
{
    mbedtls_x509_crt chain;
    const bool same = read_out(given->out, &chain, info) && fedge_ca_is_of(ca, &chain) &&
                      is_same_key(&chain.pk, &request->csr.pk) &&
                      has_names(&chain, &request->names) &&
                      info->not_after_ms > fedge_os_unix_ms() &&
                      fedge_registry_find(registry, info->fingerprint, match, NULL) == FEDGE_OK &&
                      match->state != FEDGE_CERTIFICATE_REVOKED &&
                      strcmp(match->device_id, request->names.device_id) == 0;
    mbedtls_x509_crt_free(&chain);
    return same;
}

static void print_signed(const char *what, const fedge_registry_match *match,
                         const fedge_certificate_info *info, const fedge_key_request *request)
{
    printf("%s '%s', %s, index %u: ", what, match->name, fedge_certificate_state_name(match->state),
           match->index);
    fedge_keys_print_certificate(info);
    if (request->names.num_dns + request->names.num_ip > 0) {
        char hosts[FEDGE_X509_HOSTS_TEXT];
        printf("clients may connect to it at %s\n", fedge_x509_hosts_text(&request->names, hosts));
    }
}

/* What stands at --out already is replaced only when it is this device's, as in a renewal: all
 * devices' answers come by, and one name for two would lose the first's. */
static fedge_status check_out(const char *path, const fedge_certificate_info *info,
                              fedge_error *err)
{
    mbedtls_x509_crt chain;
    fedge_certificate_info found = {.device_id = ""};
    if (!fedge_os_exists(path))
        return FEDGE_OK;
    if (!read_out(path, &chain, &found))
        found.device_id[0] = '\0';
    mbedtls_x509_crt_free(&chain);
    if (strcmp(found.device_id, info->device_id) == 0)
        return FEDGE_OK;
    return fedge_fail(
        err, FEDGE_DENIED, "%s exists and %s%s: choose another --out for each device", path,
        found.device_id[0] ? "belongs to device " : "is no chain of this device", found.device_id);
}

static fedge_status sign(const options *given, const fedge_ca *ca, fedge_registry *registry,
                         const fedge_key_request *request, fedge_error *err)
{
    char *chain_pem = NULL;
    fedge_certificate_info info;
    fedge_registry_match match;
    fedge_status status = request->renews ? check_renewed(registry, request, err) : FEDGE_OK;
    const bool proven = request->renews && status == FEDGE_OK;
    const bool renewal = proven || given->renew;
    if (renewal || status == FEDGE_OK) {
        status = check_asked(given, request, proven, err);
        if (status != FEDGE_OK)
            return fedge_error_prefix(err, status, "%s", given->request);
    }
    if (status == FEDGE_OK && !renewal && is_signed(given, ca, registry, request, &info, &match)) {
        print_signed("signed", &match, &info, request);
        return FEDGE_OK;
    }
    if (status == FEDGE_OK) {
        status =
            fedge_ca_sign(ca, request, given->days, fedge_os_unix_ms(), &chain_pem, &info, err);
    }
    if (status == FEDGE_OK)
        status = check_out(given->out, &info, err);
    if (status == FEDGE_OK) {
        status = fedge_registry_add(registry, &info, request->name,
                                    given->pending ? FEDGE_CERTIFICATE_PENDING
                                                   : FEDGE_CERTIFICATE_ACTIVE,
                                    renewal, &match, err);
    }
    if (status == FEDGE_EXISTS) {
        status = fedge_error_prefix(err, status,
                                    "not a renewal ('fedge-keys renew' on the device makes one)");
    }
    /* The chain first. One that is not registered opens no door, and the command can be given
     * again; a device that is registered and has no chain would be refused from then on as known
     * already. */
    if (status == FEDGE_OK)
        status = fedge_os_write_file(given->out, chain_pem, strlen(chain_pem), 0644, err);
    if (status == FEDGE_OK) {
        status = fedge_registry_save(registry, given->registry, err);
        if (status != FEDGE_OK && fedge_os_remove(given->out, NULL) != FEDGE_OK) {
            status =
                fedge_error_prefix(err, status, "remove %s, which is not registered", given->out);
        }
    }
    free(chain_pem);
    if (status == FEDGE_OK)
        print_signed(renewal ? "renewed" : "signed", &match, &info, request);
    return status;
}

static fedge_status read_request(const options *given, fedge_key_request *request, fedge_error *err)
{
    uint8_t *pem = NULL;
    size_t size = 0;
    fedge_status status = fedge_os_read_file(given->request, FEDGE_X509_MAX_PEM, &pem, &size, err);
    if (status != FEDGE_OK)
        return status;
    status = fedge_key_request_read((const char *)pem, request, err);
    free(pem);
    return status == FEDGE_OK ? status : fedge_error_prefix(err, status, "%s", given->request);
}

static fedge_status run(const options *given, fedge_error *err)
{
    fedge_key_request request = {.renews = false};
    fedge_ca *ca = NULL;
    fedge_registry *registry = NULL;
    int lock = -1;
    mbedtls_x509_csr_init(&request.csr);
    fedge_status status = read_request(given, &request, err);
    if (status == FEDGE_OK)
        status = fedge_ca_load(given->ca, fedge_os_unix_ms(), &ca, err);
    if (status == FEDGE_OK)
        status = fedge_registry_lock(given->registry, &lock, err);
    if (status == FEDGE_OK) {
        status = fedge_registry_open(given->registry, &registry, err);
        if (status == FEDGE_OK)
            status = sign(given, ca, registry, &request, err);
        fedge_os_unlock(lock);
    }
    fedge_registry_free(registry);
    fedge_ca_free(ca);
    fedge_key_request_fini(&request);
    return status;
}

static fedge_status take_dns(void *settings, const char *option, const char *value,
                             fedge_error *err)
{
    return fedge_keys_add_host(&((options *)settings)->dns, option, value, err);
}

static fedge_status take_ip(void *settings, const char *option, const char *value, fedge_error *err)
{
    return fedge_keys_add_host(&((options *)settings)->ip, option, value, err);
}

#define OPTION(name, argument, help, type, field)                                                  \
    FEDGE_OPTION(name, argument, help, type, options, field)

static const fedge_option OPTIONS[] = {
    {OPTION("ca", "DIR", "the authority, made by 'fedge-keys ca'", TEXT, ca), .needed = true},
    {OPTION("registry", "DIR", "the registry, made when missing", TEXT, registry), .needed = true},
    {OPTION("request", "FILE", "what 'fedge-keys request' or 'renew' has written", TEXT, request),
     .needed = true},
    {OPTION("out", "FILE", "the chain to hand back; replaces the same device's chain only", TEXT,
            out),
     .needed = true},
    {OPTION("role", "ROLE", "the role to grant: device, server, operator or relay", TEXT, role),
     .preset = "device"},
    {OPTION("dns", "NAME", "a host name to grant; may be repeated", OTHER, dns), .take = take_dns},
    {OPTION("ip", "ADDRESS", "an IP address to grant; may be repeated", OTHER, ip),
     .take = take_ip},
    {OPTION("accept-names", NULL, "grant all host names and IP addresses that it asks for", FLAG,
            accept_names)},
    {OPTION("valid-days", "N", "validity, never beyond the intermediate's", U32, days),
     .preset = FEDGE_PRESET(FEDGE_CA_LEAF_DAYS), .min = 1, .max = FEDGE_CA_MAX_DAYS},
    {OPTION("pending", NULL, "register as pending: 'fedge-keys activate' lets it in", FLAG,
            pending)},
    {OPTION("renew", NULL,
            "accept a renewal without the present key's signature; first make sure by other means "
            "that the device has sent it",
            FLAG, renew)}};

static const fedge_command_line COMMAND_LINE = {
    .name = "fedge-keys sign",
    .command = true,
    .usage =
        "Usage: fedge-keys sign --ca DIR --registry DIR --request FILE --out FILE [OPTION...]\n"
        "\n"
        "Signs a request and registers the certificate. A renewal must be signed with the\n"
        "device's present key, and adds no names. Any other request for a registered\n"
        "device is refused.\n"
        "\n",
    .options = OPTIONS,
    .num_options = sizeof(OPTIONS) / sizeof(*OPTIONS),
    .notes = "",
    .short_help = true};

int fedge_keys_sign(int argc, char **argv)
{
    options given = {.ca = NULL};
    int exit_code;
    if (!fedge_keys_read(&COMMAND_LINE, argc, argv, &given, &exit_code))
        return exit_code;
    fedge_error err;
    fedge_role role;
    if (fedge_role_from_name(given.role, &role, &err) != FEDGE_OK)
        return fedge_keys_usage("sign", "%s", err.message);
    if (given.accept_names && given.dns.num + given.ip.num > 0)
        return fedge_keys_usage("sign", "--accept-names goes without --dns and --ip");
    fedge_status status = run(&given, &err);
    return fedge_keys_end("sign", status, &err);
}
