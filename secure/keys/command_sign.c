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
    fedge_keys_hosts hosts;
    const char *ca, *registry, *request, *out, *role;
    uint32_t days;
    bool accept_names, pending, renew;
} options;

/* Checks the renewed certificate against the registry, beyond the proof's signature: a revoked
 * device must not renew itself, nor one device another. */
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

/* The signer grants role and names, whatever the request asks for: all devices would trust one that
 * passes for a server. A [proven] renewal has the names of the earlier certificate, or fewer. */
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
    if (given->accept_names || (proven && given->hosts.num_dns + given->hosts.num_ip == 0))
        return FEDGE_OK;
    const fedge_key_request_names granted = fedge_keys_names(&given->hosts);
    return fedge_key_request_check_hosts(request, &granted, err);
}

/* Reads the chain at --out, if possible. The caller frees [chain] in any case. */
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
    unsigned char text[2][256]; /* each at the end of its buffer */
    const int size = mbedtls_pk_write_pubkey_der(a, text[0], sizeof(text[0]));
    return size > 0 && mbedtls_pk_write_pubkey_der(b, text[1], sizeof(text[1])) == size &&
           memcmp(text[0] + sizeof(text[0]) - size, text[1] + sizeof(text[1]) - size,
                  (size_t)size) == 0;
}

/* The same key may have requested another role or other hosts before. */
static bool has_names(const mbedtls_x509_crt *certificate, const fedge_x509_names *asked)
{
    fedge_x509_names names;
    return fedge_x509_names_read(&certificate->subject_alt_names, &names, NULL) == FEDGE_OK &&
           names.role == asked->role && fedge_x509_hosts_within(&names, asked) &&
           fedge_x509_hosts_within(asked, &names);
}

/* Whether this authority has signed this request to --out and registered it, so that a repeated
 * command has nothing to do. An expired certificate does not count. */
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

/* Overwrite --out only with this device's own renewal: another device's chain would be lost. */
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

/* Writes the chain first: a chain that is not registered admits nobody, and the command can be
 * given again; a device registered without a chain would be refused as known from then on. */
static fedge_status write_signed(const options *given, const fedge_registry *registry,
                                 const char *chain_pem, fedge_error *err)
{
    FEDGE_TRY(fedge_os_write_file(given->out, chain_pem, strlen(chain_pem), 0644, err));
    const fedge_status status = fedge_registry_save(registry, given->registry, err);
    if (status != FEDGE_OK && fedge_os_remove(given->out, NULL) != FEDGE_OK)
        fedge_error_prefix(err, status, "remove %s, which is not registered", given->out);
    return status;
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
    if (!renewal)
        FEDGE_TRY(status);
    status = check_asked(given, request, proven, err);
    if (status != FEDGE_OK)
        return fedge_error_prefix(err, status, "%s", given->request);
    if (!renewal && is_signed(given, ca, registry, request, &info, &match)) {
        print_signed("signed", &match, &info, request);
        return FEDGE_OK;
    }
    FEDGE_TRY(fedge_ca_sign(ca, request, given->days, fedge_os_unix_ms(), &chain_pem, &info, err));
    FEDGE_TRY_OR(check_out(given->out, &info, err), done);
    status =
        fedge_registry_add(registry, &info, request->name,
                           given->pending ? FEDGE_CERTIFICATE_PENDING : FEDGE_CERTIFICATE_ACTIVE,
                           renewal, &match, err);
    if (status == FEDGE_EXISTS) {
        fedge_error_prefix(err, status,
                           "not a renewal ('fedge-keys renew' on the device makes one)");
    }
    FEDGE_TRY_OR(status, done);
    FEDGE_TRY_OR(write_signed(given, registry, chain_pem, err), done);
    print_signed(renewal ? "renewed" : "signed", &match, &info, request);
done:
    free(chain_pem);
    return status;
}

static fedge_status read_request(const options *given, fedge_key_request *request, fedge_error *err)
{
    uint8_t *pem = NULL;
    size_t size = 0;
    FEDGE_TRY(fedge_os_read_file(given->request, FEDGE_X509_MAX_PEM, &pem, &size, err));
    const fedge_status status = fedge_key_request_read((const char *)pem, request, err);
    free(pem);
    return status == FEDGE_OK ? status : fedge_error_prefix(err, status, "%s", given->request);
}

static fedge_status run(void *settings, fedge_error *err)
{
    const options *given = settings;
    fedge_key_request request = {.renews = false};
    fedge_ca *ca = NULL;
    fedge_registry *registry = NULL;
    int lock = -1;
    mbedtls_x509_csr_init(&request.csr);
    fedge_status status;
    FEDGE_TRY_OR(read_request(given, &request, err), done);
    FEDGE_TRY_OR(fedge_ca_load(given->ca, fedge_os_unix_ms(), &ca, err), done);
    FEDGE_TRY_OR(fedge_registry_lock(given->registry, &lock, err), done);
    FEDGE_TRY_OR(fedge_registry_open(given->registry, &registry, err), unlock);
    status = sign(given, ca, registry, &request, err);
unlock:
    fedge_os_unlock(lock);
done:
    fedge_registry_free(registry);
    fedge_ca_free(ca);
    fedge_key_request_fini(&request);
    return status;
}

static fedge_status check(void *settings, fedge_error *err)
{
    const options *given = settings;
    fedge_role role;
    FEDGE_TRY(fedge_role_from_name(given->role, &role, err));
    if (given->accept_names && given->hosts.num_dns + given->hosts.num_ip > 0) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "--accept-names goes without --dns and --ip");
    }
    return FEDGE_OK;
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
    {OPTION("dns", "NAME", "a host name to grant; may be repeated", OTHER, hosts.dns),
     .take = fedge_keys_take_dns},
    {OPTION("ip", "ADDRESS", "an IP address to grant; may be repeated", OTHER, hosts.ip),
     .take = fedge_keys_take_ip},
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

static const fedge_command_line COMMAND_LINE = FEDGE_KEYS_COMMAND(
    "sign", OPTIONS,
    "Usage: fedge-keys sign --ca DIR --registry DIR --request FILE --out FILE [OPTION...]\n"
    "\n"
    "Signs a request and registers the certificate. A renewal must be signed with the\n"
    "device's present key, and adds no names. Any other request for a registered\n"
    "device is refused.\n"
    "\n");

int fedge_keys_sign(int argc, char **argv)
{
    options given = {.ca = NULL};
    return fedge_keys_run(&COMMAND_LINE, argc, argv, &given, check, run);
}
