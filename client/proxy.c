#include "client/proxy.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "client/link.h"

static const char *variable(const char *lower, const char *upper)
{
    const char *value = getenv(lower);
    return value ? value : getenv(upper);
}

/* Does the comma-separated [list] have [host], or the end of its name? */
static bool lists(const char *list, const char *host)
{
    const size_t host_size = strlen(host);
    while (*list != '\0') {
        list += strspn(list, ", ");
        const char *word = list + (*list == '.');
        list += strcspn(list, ", ");
        const size_t size = list > word ? (size_t)(list - word) : 0;
        if (size == 1 && *word == '*')
            return true;
        if (size == 0 || size > host_size || strncasecmp(host + host_size - size, word, size) != 0)
            continue;
        if (size == host_size || host[host_size - size - 1] == '.')
            return true;
    }
    return false;
}

fedge_status fedge_proxy_for(const char *url, const char *given, char out[FEDGE_PROXY_TEXT],
                             fedge_error *err)
{
    char host[FEDGE_LINK_MAX_HOST];
    int port;
    const char *proxy = given;
    out[0] = '\0';
    if (!given) {
        const char *none = variable("no_proxy", "NO_PROXY");
        FEDGE_TRY(fedge_link_parse_url(url, host, &port, NULL, err));
        proxy = none && lists(none, host) ? NULL : variable("https_proxy", "HTTPS_PROXY");
    }
    if (!proxy || *proxy == '\0')
        return FEDGE_OK;
    /* First of all: what follows tells the address, and a password is none of the log's business.
     */
    if (strchr(proxy, '@')) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "the proxy's address has a user's name, but fedge cannot log in to a "
                          "proxy; give HOST:PORT");
    }
    if (strncasecmp(proxy, "http://", 7) == 0)
        proxy += 7;
    const size_t size = strcspn(proxy, "/");
    (void)snprintf(out, FEDGE_PROXY_TEXT, "%.*s", (int)size, proxy);
    const char *colon = strrchr(out, ':');
    const char *of_host = out[0] == '[' ? strchr(out, ']') : out;
    char *end = out;
    const long number = colon && of_host && colon > out && strchr(of_host, ':') == colon
                            ? strtol(colon + 1, &end, 10)
                            : 0;
    if (size >= FEDGE_PROXY_TEXT || number < 1 || number > 65535 || *end) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "'%.100s' is not a proxy's address: http://HOST:PORT, the only kind "
                          "supported",
                          proxy);
    }
    return FEDGE_OK;
}
