/* Channels and shared memory between processes, on POSIX systems. */
#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "edge/core/os.h"

/* A descriptor that goes with bytes. */
typedef union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int))];
} control;

fedge_status fedge_os_channel_new(int ends[2], fedge_error *err)
{
    ends[0] = ends[1] = -1;
    return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0
               ? FEDGE_OK
               : fedge_fail_errno(err, errno, "cannot make a channel to another process");
}

void fedge_os_channel_inherit(int channel)
{
    (void)fcntl(channel, F_SETFD, 0);
}

static fedge_status fail_closed(fedge_error *err)
{
    return fedge_fail(err, FEDGE_CLOSED, "the other process has closed the channel");
}

fedge_status fedge_os_channel_send(int channel, const void *data, size_t size, int share,
                                   fedge_error *err)
{
    const uint8_t *at = data;
    while (size > 0) {
        struct iovec part = {(void *)(uintptr_t)at, size};
        control space;
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
        if (share >= 0) {
            memset(&space, 0, sizeof(space));
            message.msg_control = space.bytes;
            message.msg_controllen = sizeof(space.bytes);
            struct cmsghdr *header = CMSG_FIRSTHDR(&message);
            header->cmsg_level = SOL_SOCKET;
            header->cmsg_type = SCM_RIGHTS;
            header->cmsg_len = CMSG_LEN(sizeof(int));
            memcpy(CMSG_DATA(header), &share, sizeof(share));
        }
        const ssize_t sent = sendmsg(channel, &message, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && (errno == EPIPE || errno == ECONNRESET))
            return fail_closed(err);
        if (sent < 0)
            return fedge_fail_errno(err, errno, "cannot send to another process");
        share = -1; /* it goes with the first byte */
        at += sent;
        size -= (size_t)sent;
    }
    return FEDGE_OK;
}

/* Keeps the first descriptor for *share, and closes others. */
static void take_shared(struct msghdr *message, int *share)
{
    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header;
         header = CMSG_NXTHDR(message, header)) {
        int fd = -1;
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
            continue;
        memcpy(&fd, CMSG_DATA(header), sizeof(fd));
        if (share && *share < 0)
            *share = fd;
        else
            (void)close(fd);
    }
}

fedge_status fedge_os_channel_receive(int channel, void *data, size_t size, int *share,
                                      fedge_error *err)
{
    uint8_t *at = data;
    if (share)
        *share = -1;
    while (size > 0) {
        struct iovec part = {at, size};
        control space;
        struct msghdr message = {.msg_iov = &part,
                                 .msg_iovlen = 1,
                                 .msg_control = space.bytes,
                                 .msg_controllen = sizeof(space.bytes)};
        const ssize_t got = recvmsg(channel, &message, MSG_CMSG_CLOEXEC);
        if (got < 0 && errno == EINTR)
            continue;
        if (got == 0 || (got < 0 && errno == ECONNRESET))
            return fail_closed(err);
        if (got < 0)
            return fedge_fail_errno(err, errno, "cannot receive from another process");
        take_shared(&message, share);
        at += got;
        size -= (size_t)got;
    }
    return FEDGE_OK;
}

bool fedge_os_channel_wait(int channel, uint64_t ms)
{
    struct pollfd wanted = {.fd = channel, .events = POLLIN};
    return poll(&wanted, 1, ms < 60000 ? (int)ms : 60000) > 0;
}

bool fedge_os_channel_ended(int channel)
{
    struct pollfd wanted = {.fd = channel, .events = POLLRDHUP};
    return poll(&wanted, 1, 0) > 0 && (wanted.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

void fedge_os_channel_end(int channel, bool both)
{
    (void)shutdown(channel, both ? SHUT_RDWR : SHUT_WR);
}

void fedge_os_channel_close(int channel)
{
    if (channel >= 0)
        (void)close(channel);
}

fedge_status fedge_os_shared_new(size_t size, int *fd, fedge_error *err)
{
    *fd = memfd_create("fedge", MFD_CLOEXEC);
    if (*fd < 0)
        return fedge_fail_errno(err, errno, "cannot make memory to share");
    if (ftruncate(*fd, (off_t)size) != 0) {
        const fedge_status status =
            fedge_fail_errno(err, errno, "cannot make %zu bytes of memory to share", size);
        (void)close(*fd);
        *fd = -1;
        return status;
    }
    return FEDGE_OK;
}

fedge_status fedge_os_shared_map(int fd, size_t size, void **at, fedge_error *err)
{
    struct stat facts;
    *at = NULL;
    if (fstat(fd, &facts) != 0)
        return fedge_fail_errno(err, errno, "cannot look at shared memory");
    if ((uint64_t)facts.st_size < size) {
        return fedge_fail(err, FEDGE_TRUNCATED, "shared memory has %lld bytes, and %zu are needed",
                          (long long)facts.st_size, size);
    }
    void *mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED)
        return fedge_fail_errno(err, errno, "cannot map %zu bytes of shared memory", size);
    *at = mapped;
    return FEDGE_OK;
}

void fedge_os_shared_unmap(void *at, size_t size)
{
    if (at)
        (void)munmap(at, size);
}
