/* The hosts in a request or certificate: names and addresses that clients connect to. */
#define _GNU_SOURCE /* inet_ntop is POSIX, not C11 */
#include <arpa/inet.h>
#include <assert.h>
#include <string.h>

#include "edge/core/os.h"
#include "secure/identity/x509.h"

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
    /* No wildcard, and nothing that reads as another name where it is shown. */
    for (size_t i = 0; i < names->num_dns; i++) {
        const mbedtls_x509_buf *dns = &names->dns[i];
        if (!fedge_x509_dns_valid((const char *)dns->p, dns->len)) {
            return fedge_fail(err, FEDGE_DENIED, "'%.*s' is not a DNS name",
                              (int)(dns->len < 80 ? dns->len : 80), (const char *)dns->p);
        }
    }
    return FEDGE_OK;
}

/* Puts those of [hosts] that are none of [of] into [out]; returns how many. */
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
