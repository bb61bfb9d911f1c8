#define _GNU_SOURCE /* sockets and resource limits are POSIX, not C11 */

#include "aggregator/net/listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define V6_PREFIX_BYTES 8 /* the /64 that one IPv6 subscriber gets */

fedge_status fedge_address_parse(const char *text, fedge_address *address, fedge_error *err)
{
    const char *colon = strrchr(text, ':');
    const char *host = text;
    size_t host_size = colon ? (size_t)(colon - text) : 0;
    if (host_size >= 2 && text[0] == '[' && text[host_size - 1] == ']') {
        host = text + 1;
        host_size -= 2;
    } else if (colon && memchr(text, ':', host_size)) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "'%s': an IPv6 address goes in brackets, as in [::1]:9092", text);
    }
    if (!colon || host_size == 0 || host_size >= sizeof(address->host)) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "'%s' is not ADDRESS:PORT, as in 0.0.0.0:9092", text);
    }
    size_t digits = strspn(colon + 1, "0123456789");
    unsigned long port = strtoul(colon + 1, NULL, 10);
    if (digits == 0 || digits > 5 || colon[1 + digits] != '\0' || port > 65535) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "'%s': the port must be a number from 0 to 65535", text);
    }
    memcpy(address->host, host, host_size);
    address->host[host_size] = '\0';
    address->port = (uint16_t)port;
    return FEDGE_OK;
}

static fedge_status bind_failed(int errnum, const fedge_address *address, const char *option,
                                fedge_error *err)
{
    switch (errnum) {
    case EADDRINUSE:
        return fedge_fail(err, FEDGE_BUSY,
                          "port %u of %s is in use by another program; stop it, or choose another "
                          "with %s",
                          address->port, address->host, option);
    case EADDRNOTAVAIL:
        return fedge_fail(err, FEDGE_NOT_FOUND,
                          "%s is not an address of this machine; change it with %s", address->host,
                          option);
    case EACCES:
        return fedge_fail(err, FEDGE_DENIED,
                          "port %u of %s needs privileges; choose one above 1023 with %s",
                          address->port, address->host, option);
    default:
        return fedge_fail_errno(err, errnum, "cannot listen on port %u of %s (%s)", address->port,
                                address->host, option);
    }
}

static uint16_t port_of(const struct sockaddr_storage *address)
{
    uint16_t port = 0;
    if (address->ss_family == AF_INET6) {
        struct sockaddr_in6 v6;
        memcpy(&v6, address, sizeof(v6));
        port = v6.sin6_port;
    } else {
        struct sockaddr_in v4;
        memcpy(&v4, address, sizeof(v4));
        port = v4.sin_port;
    }
    return ntohs(port);
}

fedge_status fedge_listener_open(const fedge_address *address, const char *option, int *listener,
                                 uint16_t *port, fedge_error *err)
{
    char service[8];
    snprintf(service, sizeof(service), "%u", address->port);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *info = NULL;
    int failed = getaddrinfo(address->host, service, &hints, &info);
    if (failed != 0) {
        return fedge_fail(err, FEDGE_NOT_FOUND,
                          "%s '%s': the name cannot be resolved (%s); give an address of this "
                          "machine, such as 0.0.0.0 for all",
                          option, address->host, gai_strerror(failed));
    }
    struct sockaddr_storage bound = {0};
    socklen_t bound_size = sizeof(bound);
    int one = 1;
    int fd = socket(info->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    bool ok = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) == 0 &&
              bind(fd, info->ai_addr, info->ai_addrlen) == 0 &&
              listen(fd, FEDGE_LISTEN_BACKLOG) == 0 &&
              getsockname(fd, (struct sockaddr *)&bound, &bound_size) == 0;
    int errnum = errno;
    freeaddrinfo(info);
    if (!ok) {
        fedge_listener_close(fd);
        return bind_failed(errnum, address, option, err);
    }
    *listener = fd;
    *port = port_of(&bound);
    return FEDGE_OK;
}

void fedge_listener_close(int listener)
{
    if (listener >= 0)
        close(listener);
}

static fedge_peer_address address_of(const struct sockaddr_storage *from)
{
    static const uint8_t MAPPED[12] = {[10] = 0xFF, [11] = 0xFF};
    fedge_peer_address address = {.port = port_of(from)};
    if (from->ss_family == AF_INET6) {
        struct sockaddr_in6 v6;
        memcpy(&v6, from, sizeof(v6));
        memcpy(address.host, &v6.sin6_addr, sizeof(address.host));
    } else {
        struct sockaddr_in v4;
        memcpy(&v4, from, sizeof(v4));
        memcpy(address.host, MAPPED, sizeof(MAPPED));
        memcpy(address.host + sizeof(MAPPED), &v4.sin_addr, sizeof(v4.sin_addr));
    }
    return address;
}

static bool is_v4(const fedge_peer_address *address)
{
    struct in6_addr host;
    memcpy(&host, address->host, sizeof(host));
    return IN6_IS_ADDR_V4MAPPED(&host);
}

char *fedge_peer_address_text(const fedge_peer_address *address, char text[FEDGE_ADDRESS_TEXT])
{
    char host[INET6_ADDRSTRLEN] = "";
    bool v4 = is_v4(address);
    inet_ntop(v4 ? AF_INET : AF_INET6, address->host + (v4 ? 12 : 0), host, sizeof(host));
    snprintf(text, FEDGE_ADDRESS_TEXT, v4 ? "%s:%u" : "[%s]:%u", host, address->port);
    return text;
}

bool fedge_peer_address_same_party(const fedge_peer_address *one, const fedge_peer_address *other)
{
    size_t size = is_v4(one) || is_v4(other) ? sizeof(one->host) : V6_PREFIX_BYTES;
    return memcmp(one->host, other->host, size) == 0;
}

uint64_t fedge_peer_address_key(const fedge_peer_address *address)
{
    const size_t size = is_v4(address) ? sizeof(address->host) : V6_PREFIX_BYTES;
    uint64_t key = 14695981039346656037u; /* FNV-1a */
    for (size_t i = 0; i < size; i++)
        key = (key ^ address->host[i]) * 1099511628211u;
    return key ? key : 1;
}

fedge_status fedge_listener_accept(int listener, int *socket, fedge_peer_address *from,
                                   fedge_error *err)
{
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof(address);
    int fd = accept4(listener, (struct sockaddr *)&address, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    int errnum = errno;
    *socket = fd;
    if (fd < 0) {
        bool short_of =
            errnum == EMFILE || errnum == ENFILE || errnum == ENOBUFS || errnum == ENOMEM;
        /* Any other error concerns one connection that has ended already. */
        return short_of ? fedge_fail(err, FEDGE_BUSY,
                                     "%s; raise the limit of open files (ulimit -n, LimitNOFILE=)",
                                     strerror(errnum))
                        : FEDGE_OK;
    }
    *from = address_of(&address);
    /* Messages are written whole: Nagle's algorithm would only delay them. */
    int one = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return FEDGE_OK;
}

fedge_first_bytes fedge_socket_first_bytes(int socket)
{
    /* RFC 8446: a record of type handshake, version 3.x, its length, a ClientHello. */
    uint8_t bytes[6];
    ssize_t size = recv(socket, bytes, sizeof(bytes), MSG_PEEK | MSG_DONTWAIT);
    if (size <= 0) {
        bool nothing = size < 0 && (errno == EAGAIN || errno == EINTR);
        return nothing ? FEDGE_FIRST_TOO_FEW : FEDGE_FIRST_CLOSED;
    }
    if (bytes[0] != 0x16 || (size > 1 && bytes[1] != 0x03) || (size > 5 && bytes[5] != 0x01))
        return FEDGE_FIRST_OTHER;
    return size == sizeof(bytes) ? FEDGE_FIRST_HELLO : FEDGE_FIRST_TOO_FEW;
}

bool fedge_socket_has_hung_up(int socket)
{
    struct pollfd look = {.fd = socket, .events = POLLRDHUP};
    return poll(&look, 1, 0) > 0;
}

uint64_t fedge_socket_silent_ms(int socket)
{
    struct tcp_info info = {0};
    socklen_t size = sizeof(info);
    int waiting = 0;
    if (ioctl(socket, FIONREAD, &waiting) != 0 || waiting > 0 ||
        getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0)
        return 0;
    return info.tcpi_last_data_recv;
}

fedge_status fedge_raise_file_limit(uint32_t wanted, uint32_t *granted, fedge_error *err)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return fedge_fail_errno(err, errno, "cannot read the limit of open files");
    /* The hard limit may be 10⁹, and libwebsockets allocates a table entry for each descriptor. */
    limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return fedge_fail_errno(err, errno, "cannot set the limit of open files to %llu",
                                (unsigned long long)limit.rlim_cur);
    }
    *granted = (uint32_t)limit.rlim_cur;
    return FEDGE_OK;
}
