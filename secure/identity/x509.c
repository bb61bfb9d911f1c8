#define _GNU_SOURCE /* inet_ntop is POSIX, not C11 */
#include "secure/identity/x509.h"

#include <arpa/inet.h>
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mbedtls/ecp.h>
#include <mbedtls/error.h>
#include <mbedtls/oid.h>
#include <mbedtls/pem.h>
#include <mbedtls/pk.h>
#include <mbedtls/platform_util.h>
#include <mbedtls/sha256.h>

#include "edge/core/os.h"
#include "edge/core/text.h"
#include "secure/crypto/sha256.h"
#include "secure/identity/certificate.h"

int fedge_x509_random(void *unused, unsigned char *out, size_t size)
{
    (void)unused;
    return fedge_os_random(out, size, NULL) == FEDGE_OK ? 0 : MBEDTLS_ERR_ERROR_GENERIC_ERROR;
}

void fedge_x509_error_text(int code, char *out, size_t size)
{
    out[0] = '\0';
    mbedtls_strerror(code, out, size);
    if (out[0] == '\0')
        (void)fedge_os_format(out, size, "mbedTLS error -0x%04x", (unsigned)-code);
}

/* An error of mbedTLS has a high-level code (0xFF80), a low-level code (0x7F), or both. */
static bool is_no_memory(int code)
{
    int lower = code % 0x80;
    switch (code - lower) {
    case MBEDTLS_ERR_X509_ALLOC_FAILED:
    case MBEDTLS_ERR_PK_ALLOC_FAILED:
    case MBEDTLS_ERR_PEM_ALLOC_FAILED:
        return true;
    default:
        return lower == MBEDTLS_ERR_ASN1_ALLOC_FAILED || lower == MBEDTLS_ERR_MPI_ALLOC_FAILED;
    }
}

fedge_status fedge_x509_fail(fedge_error *err, fedge_status status, int code, const char *what)
{
    char text[160];
    fedge_x509_error_text(code, text, sizeof(text));
    return fedge_fail(err, is_no_memory(code) ? FEDGE_NO_MEMORY : status, "%s: %s", what, text);
}

uint64_t fedge_x509_ms(const mbedtls_x509_time *time)
{
    fedge_calendar at = {
        .year = time->year,
        .month = time->mon,
        .day = time->day,
        .hour = time->hour,
        .minute = time->min,
        .second = time->sec,
    };
    return fedge_calendar_to_ms(&at);
}

fedge_status fedge_x509_path(char *out, size_t size, const char *dir, const char *name,
                             fedge_error *err)
{
    int length = snprintf(out, size, "%s/%s", dir, name);
    if (length < 0 || (size_t)length >= size) {
        return fedge_fail(err, FEDGE_TOO_BIG, "path %.80s.../%s is longer than %zu bytes", dir,
                          name, size - 1);
    }
    return FEDGE_OK;
}

fedge_status fedge_x509_read_text(const char *dir, const char *name, char path[FEDGE_OS_MAX_PATH],
                                  char **text, fedge_error *err)
{
    uint8_t *data = NULL;
    size_t size = 0;
    *text = NULL;
    FEDGE_TRY(fedge_x509_path(path, FEDGE_OS_MAX_PATH, dir, name, err));
    FEDGE_TRY(fedge_os_read_file(path, FEDGE_X509_MAX_PEM, &data, &size, err));
    *text = (char *)data;
    return FEDGE_OK;
}

void fedge_x509_subject(const mbedtls_x509_name *name, char *out, size_t size)
{
    char whole[FEDGE_X509_MAX_SUBJECT];
    if (mbedtls_x509_dn_gets(whole, sizeof(whole), name) < 0)
        snprintf(whole, sizeof(whole), "(a very long name)");
    snprintf(out, size, "%s", whole);
}

/* If the URI begins with [prefix], its remainder goes to [out] as a string. A URI with a NUL is
 * foreign, since readers could see different names. */
static bool strip_prefix(const mbedtls_x509_buf *uri, const char *prefix,
                         char out[FEDGE_X509_URN_SIZE])
{
    size_t length = strlen(prefix);
    if (uri->len < length || uri->len - length >= FEDGE_X509_URN_SIZE ||
        memcmp(uri->p, prefix, length) != 0 || memchr(uri->p, '\0', uri->len))
        return false;
    memcpy(out, uri->p + length, uri->len - length);
    out[uri->len - length] = '\0';
    return true;
}

static fedge_status read_uri(const mbedtls_x509_buf *uri, fedge_x509_names *out, bool *has_role,
                             fedge_error *err)
{
    char text[FEDGE_X509_URN_SIZE];
    if (strip_prefix(uri, FEDGE_URN_DEVICE, text)) {
        if (out->device_id[0] != '\0')
            return fedge_fail(err, FEDGE_DENIED, "it names more than one device");
        fedge_device_id id;
        if (fedge_device_id_parse(text, &id, NULL) != FEDGE_OK)
            return fedge_fail(err, FEDGE_DENIED, "its device id is not a lower-case UUID");
        memcpy(out->device_id, text, FEDGE_UUID_TEXT);
        return FEDGE_OK;
    }
    if (strip_prefix(uri, FEDGE_URN_ROLE, text)) {
        if (*has_role)
            return fedge_fail(err, FEDGE_DENIED, "it names more than one role");
        if (fedge_role_from_name(text, &out->role, NULL) != FEDGE_OK) {
            return fedge_fail(err, FEDGE_DENIED,
                              "its role is none of device, server, operator and relay");
        }
        *has_role = true;
        return FEDGE_OK;
    }
    return fedge_fail(err, FEDGE_DENIED, "it has a URI name that is neither %s... nor %s...",
                      FEDGE_URN_DEVICE, FEDGE_URN_ROLE);
}

static fedge_status add_host(mbedtls_x509_buf *hosts, size_t *count, const mbedtls_x509_buf *host,
                             fedge_error *err)
{
    if (*count == FEDGE_X509_MAX_HOSTS) {
        return fedge_fail(err, FEDGE_DENIED, "it has more than %d DNS names or IP addresses",
                          FEDGE_X509_MAX_HOSTS);
    }
    hosts[(*count)++] = *host;
    return FEDGE_OK;
}

/* An unknown kind of name is refused, not skipped: a check of names must understand all that a
 * certificate claims. */
static fedge_status read_name(const mbedtls_x509_buf *name, fedge_x509_names *out, bool *has_role,
                              fedge_error *err)
{
    switch (name->tag & MBEDTLS_ASN1_TAG_VALUE_MASK) {
    case MBEDTLS_X509_SAN_UNIFORM_RESOURCE_IDENTIFIER:
        return read_uri(name, out, has_role, err);
    case MBEDTLS_X509_SAN_DNS_NAME:
        return add_host(out->dns, &out->num_dns, name, err);
    case MBEDTLS_X509_SAN_IP_ADDRESS:
        if (name->len != 4 && name->len != 16)
            return fedge_fail(err, FEDGE_DENIED, "it has an IP address of %zu bytes", name->len);
        return add_host(out->ip, &out->num_ip, name, err);
    default:
        return fedge_fail(err, FEDGE_DENIED, "it has an alternative name of type %d",
                          name->tag & MBEDTLS_ASN1_TAG_VALUE_MASK);
    }
}

fedge_status fedge_x509_names_read(const mbedtls_x509_sequence *names, fedge_x509_names *out,
                                   fedge_error *err)
{
    memset(out, 0, sizeof(*out));
    bool has_role = false;
    for (; names && names->buf.p; names = names->next)
        FEDGE_TRY(read_name(&names->buf, out, &has_role, err));
    if (out->device_id[0] == '\0')
        return fedge_fail(err, FEDGE_DENIED, "it names no device (URI %s...)", FEDGE_URN_DEVICE);
    if (!has_role)
        return fedge_fail(err, FEDGE_DENIED, "it names no role (URI %s...)", FEDGE_URN_ROLE);
    return FEDGE_OK;
}

/* mbedTLS accepts a missing extended key usage, and "any", for every usage; fedge does not. */
static fedge_status check_usage(const mbedtls_x509_crt *certificate, fedge_role role,
                                fedge_error *err)
{
    if (certificate->MBEDTLS_PRIVATE(ca_istrue))
        return fedge_fail(err, FEDGE_DENIED, "it is a certificate authority's");
    if (!mbedtls_x509_crt_has_ext_type(certificate, MBEDTLS_X509_EXT_EXTENDED_KEY_USAGE))
        return fedge_fail(err, FEDGE_DENIED, "it has no extended key usage");
    const mbedtls_x509_buf wanted = {
        .p = (unsigned char *)(uintptr_t)(role == FEDGE_ROLE_SERVER ? MBEDTLS_OID_SERVER_AUTH
                                                                    : MBEDTLS_OID_CLIENT_AUTH),
        .len = role == FEDGE_ROLE_SERVER ? MBEDTLS_OID_SIZE(MBEDTLS_OID_SERVER_AUTH)
                                         : MBEDTLS_OID_SIZE(MBEDTLS_OID_CLIENT_AUTH)};
    const mbedtls_x509_sequence *usage = &certificate->ext_key_usage;
    for (; usage != NULL; usage = usage->next) {
        if (usage->buf.len == wanted.len && memcmp(usage->buf.p, wanted.p, wanted.len) == 0)
            return FEDGE_OK;
    }
    return fedge_fail(err, FEDGE_DENIED, "its extended key usage is not %s, which role %s needs",
                      role == FEDGE_ROLE_SERVER ? "serverAuth" : "clientAuth",
                      fedge_role_name(role));
}

fedge_status fedge_x509_info(const mbedtls_x509_crt *certificate, fedge_certificate_info *info,
                             fedge_error *err)
{
    memset(info, 0, sizeof(*info));
    fedge_x509_subject(&certificate->subject, info->subject, sizeof(info->subject));
    fedge_sha256(certificate->raw.p, certificate->raw.len, info->fingerprint);
    info->not_before_ms = fedge_x509_ms(&certificate->valid_from);
    info->not_after_ms = fedge_x509_ms(&certificate->valid_to);
    fedge_x509_names names;
    fedge_status status;
    FEDGE_TRY_OR(fedge_x509_names_read(&certificate->subject_alt_names, &names, err), refused);
    FEDGE_TRY_OR(check_usage(certificate, names.role, err), refused);
    memcpy(info->device_id, names.device_id, sizeof(info->device_id));
    info->role = names.role;
    return FEDGE_OK;
refused:
    return fedge_error_prefix(err, status, "certificate of %s", info->subject);
}

fedge_status fedge_x509_parse_chain(const char *pem, const char *what, mbedtls_x509_crt *chain,
                                    fedge_error *err)
{
    int code = mbedtls_x509_crt_parse(chain, (const unsigned char *)pem, strlen(pem) + 1);
    if (code > 0) {
        return fedge_fail(err, FEDGE_CORRUPT, "%s: %d of its certificates cannot be read", what,
                          code);
    }
    if (code < 0)
        return fedge_x509_fail(err, FEDGE_CORRUPT, code, what);
    return FEDGE_OK;
}

/* --- hosts --------------------------------------------------------------------------------------
 */

#define MAX_DNS_NAME 253

static_assert(FEDGE_X509_HOSTS_TEXT >=
                  FEDGE_X509_MAX_HOSTS * (2 * sizeof(", ") + MAX_DNS_NAME + INET6_ADDRSTRLEN),
              "all hosts fit");

bool fedge_x509_dns_valid(const char *name, size_t length)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-";
    if (length == 0 || length > MAX_DNS_NAME || name[0] == '.' || name[0] == '-')
        return false;
    for (size_t i = 0; i < length; i++) {
        if (!memchr(allowed, name[i], sizeof(allowed) - 1))
            return false;
    }
    return true;
}

fedge_status fedge_x509_check_hosts(const fedge_x509_names *names, fedge_error *err)
{
    size_t hosts = names->num_dns + names->num_ip;
    if (names->role == FEDGE_ROLE_SERVER && hosts == 0) {
        return fedge_fail(err, FEDGE_DENIED,
                          "a server needs the names that clients connect to: give --dns or --ip");
    }
    if (names->role != FEDGE_ROLE_SERVER && names->role != FEDGE_ROLE_RELAY && hosts != 0) {
        return fedge_fail(err, FEDGE_DENIED,
                          "role %s takes no DNS names or IP addresses; only servers and relays do",
                          fedge_role_name(names->role));
    }
    /* No wildcard, and nothing that looks like another name when shown. */
    for (size_t i = 0; i < names->num_dns; i++) {
        const mbedtls_x509_buf *dns = &names->dns[i];
        if (!fedge_x509_dns_valid((const char *)dns->p, dns->len)) {
            return fedge_fail(err, FEDGE_DENIED, "'%.*s' is not a DNS name",
                              (int)(dns->len < 80 ? dns->len : 80), (const char *)dns->p);
        }
    }
    return FEDGE_OK;
}

/* Copies those of [hosts] that are not in [of] to [out]; returns their number. */
static size_t put_others(const mbedtls_x509_buf *hosts, size_t num, const mbedtls_x509_buf *of,
                         size_t num_of, mbedtls_x509_buf *out)
{
    size_t count = 0;
    for (size_t i = 0; i < num; i++) {
        size_t j = 0;
        while (j < num_of &&
               (of[j].len != hosts[i].len || memcmp(of[j].p, hosts[i].p, hosts[i].len) != 0))
            j++;
        if (j == num_of)
            out[count++] = hosts[i];
    }
    return count;
}

size_t fedge_x509_hosts_beyond(const fedge_x509_names *names, const fedge_x509_names *of,
                               fedge_x509_names *out)
{
    out->num_dns = put_others(names->dns, names->num_dns, of->dns, of->num_dns, out->dns);
    out->num_ip = put_others(names->ip, names->num_ip, of->ip, of->num_ip, out->ip);
    return out->num_dns + out->num_ip;
}

bool fedge_x509_hosts_within(const fedge_x509_names *names, const fedge_x509_names *of)
{
    fedge_x509_names others;
    return fedge_x509_hosts_beyond(names, of, &others) == 0;
}

const char *fedge_x509_hosts_text(const fedge_x509_names *names, char out[FEDGE_X509_HOSTS_TEXT])
{
    size_t at = 0;
    (void)fedge_os_format(out, FEDGE_X509_HOSTS_TEXT, "no DNS names or IP addresses");
    for (size_t i = 0; i < names->num_dns; i++) {
        at += (size_t)fedge_os_format(out + at, FEDGE_X509_HOSTS_TEXT - at, "%s%.*s",
                                      at > 0 ? ", " : "", (int)names->dns[i].len,
                                      (const char *)names->dns[i].p);
    }
    for (size_t i = 0; i < names->num_ip; i++) {
        char text[INET6_ADDRSTRLEN] = "";
        (void)inet_ntop(names->ip[i].len == 4 ? AF_INET : AF_INET6, names->ip[i].p, text,
                        sizeof(text));
        at += (size_t)fedge_os_format(out + at, FEDGE_X509_HOSTS_TEXT - at, "%s%s",
                                      at > 0 ? ", " : "", text);
    }
    return out;
}

/* --- the parts of requests and certificates -----------------------------------------------------
 */

static void add_node(fedge_x509_san_nodes *list, size_t *count, int type, const unsigned char *data,
                     size_t size)
{
    mbedtls_x509_san_list *node = &list->nodes[*count];
    *node = (mbedtls_x509_san_list){0};
    node->node.type = type;
    node->node.san.unstructured_name.p = (unsigned char *)(uintptr_t)data; /* it is only read */
    node->node.san.unstructured_name.len = size;
    if (*count > 0)
        list->nodes[*count - 1].next = node;
    (*count)++;
}

void fedge_x509_names_list(const fedge_x509_names *names, fedge_x509_san_nodes *list)
{
    size_t count = 0;
    snprintf(list->device, sizeof(list->device), "%s%s", FEDGE_URN_DEVICE, names->device_id);
    snprintf(list->role, sizeof(list->role), "%s%s", FEDGE_URN_ROLE, fedge_role_name(names->role));
    add_node(list, &count, MBEDTLS_X509_SAN_UNIFORM_RESOURCE_IDENTIFIER,
             (const unsigned char *)list->device, strlen(list->device));
    add_node(list, &count, MBEDTLS_X509_SAN_UNIFORM_RESOURCE_IDENTIFIER,
             (const unsigned char *)list->role, strlen(list->role));
    for (size_t i = 0; i < names->num_dns; i++)
        add_node(list, &count, MBEDTLS_X509_SAN_DNS_NAME, names->dns[i].p, names->dns[i].len);
    for (size_t i = 0; i < names->num_ip; i++)
        add_node(list, &count, MBEDTLS_X509_SAN_IP_ADDRESS, names->ip[i].p, names->ip[i].len);
}

fedge_status fedge_x509_make_key(mbedtls_pk_context *key, fedge_error *err)
{
    int code = mbedtls_pk_setup(key, mbedtls_pk_info_from_type(MBEDTLS_PK_ECKEY));
    if (code == 0) {
        code = mbedtls_ecp_gen_key(MBEDTLS_ECP_DP_SECP256R1, mbedtls_pk_ec(*key), fedge_x509_random,
                                   NULL);
    }
    return code == 0 ? FEDGE_OK : fedge_x509_fail(err, FEDGE_INTERNAL, code, "cannot make a key");
}

fedge_status fedge_x509_key_text(const mbedtls_pk_context *key, char **pem, fedge_error *err)
{
    unsigned char text[1024];
    int code = mbedtls_pk_write_key_pem(key, text, sizeof(text));
    *pem = NULL;
    if (code != 0)
        return fedge_x509_fail(err, FEDGE_INTERNAL, code, "cannot write a key");
    size_t size = strlen((const char *)text) + 1;
    *pem = malloc(size);
    if (*pem)
        memcpy(*pem, text, size);
    mbedtls_platform_zeroize(text, sizeof(text));
    return *pem ? FEDGE_OK : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a key");
}

fedge_status fedge_x509_parse_key(const char *pem, const char *what, mbedtls_pk_context *key,
                                  fedge_error *err)
{
    const int code = mbedtls_pk_parse_key(key, (const unsigned char *)pem, strlen(pem) + 1, NULL, 0,
                                          fedge_x509_random, NULL);
    return code == 0 ? FEDGE_OK : fedge_x509_fail(err, FEDGE_CORRUPT, code, what);
}

fedge_status fedge_x509_check_curve(const mbedtls_pk_context *key, fedge_error *err)
{
    if (mbedtls_pk_get_type(key) != MBEDTLS_PK_ECKEY ||
        mbedtls_ecp_keypair_get_group_id(mbedtls_pk_ec(*key)) != MBEDTLS_ECP_DP_SECP256R1)
        return fedge_fail(err, FEDGE_DENIED, "its key is not an elliptic-curve key on P-256");
    return FEDGE_OK;
}
