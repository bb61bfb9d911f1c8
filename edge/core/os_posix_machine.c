/* Formatting, clocks, randomness and facts about the machine, on POSIX systems. */
#define _GNU_SOURCE

#include "edge/core/os.h"

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#ifdef __linux__
#include <sys/auxv.h>
#include <sys/prctl.h>
#endif
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

int fedge_os_vformat(char *out, size_t size, const char *format, va_list arguments)
{
    return vsnprintf(out, size, format, arguments);
}

int fedge_os_format(char *out, size_t size, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = fedge_os_vformat(out, size, format, arguments);
    va_end(arguments);
    return length;
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    if (clock_gettime(clock, &now) != 0)
        return 0; /* these clocks exist on every system fedge runs on */
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t fedge_os_monotonic_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

uint64_t fedge_os_monotonic_ms(void)
{
    return fedge_os_monotonic_ns() / 1000000u;
}

uint64_t fedge_os_unix_ms(void)
{
    return clock_ns(CLOCK_REALTIME) / 1000000u;
}

fedge_status fedge_os_random(void *out, size_t size, fedge_error *err)
{
    uint8_t *at = out;
    while (size > 0) {
        ssize_t got = getrandom(at, size, 0);
        if (got < 0 && errno != EINTR)
            return fedge_fail_errno(err, errno, "cannot get randomness from the system");
        if (got > 0) {
            at += got;
            size -= (size_t)got;
        }
    }
    return FEDGE_OK;
}

void fedge_os_hold_streams(void)
{
    int fd;
    do { /* the lowest free descriptor */
        fd = open("/dev/null", O_RDWR);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO)
        (void)close(fd);
}

void fedge_os_end_with_parent(int64_t parent)
{
#ifdef PR_SET_PDEATHSIG
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
#endif
    if (getppid() != (pid_t)parent) { /* it has ended in between */
        (void)raise(SIGTERM);
    }
}

void fedge_os_name_thread(const char *name)
{
#ifdef PR_SET_NAME
    (void)prctl(PR_SET_NAME, name);
#else
    (void)name;
#endif
}

void fedge_os_bound_unsent(int socket, int size)
{
#ifdef TCP_NOTSENT_LOWAT
    (void)setsockopt(socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &size, sizeof(size));
#else
    (void)socket, (void)size;
#endif
}

void fedge_os_large_pages(void *block, size_t size)
{
#ifdef MADV_HUGEPAGE
    const size_t before =
        (FEDGE_LARGE_PAGE - (uintptr_t)block % FEDGE_LARGE_PAGE) % FEDGE_LARGE_PAGE;
    if (block && size >= before + FEDGE_LARGE_PAGE) {
        (void)madvise((char *)block + before, (size - before) / FEDGE_LARGE_PAGE * FEDGE_LARGE_PAGE,
                      MADV_HUGEPAGE);
    }
#else
    (void)block, (void)size;
#endif
}

void fedge_os_each_line(const char *path, void (*take)(void *user, char *line), void *user)
{
    char line[256];
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file))
        take(user, line);
    if (file)
        fclose(file);
}

unsigned fedge_os_local_minute(void)
{
    const time_t now = time(NULL);
#ifndef FEDGE_SMALL /* without the 4 KB of code that read time zones */
    struct tm local;
    if (localtime_r(&now, &local))
        return (unsigned)(local.tm_hour * 60 + local.tm_min);
#endif
    return (unsigned)(now / 60 % 1440);
}

uint64_t fedge_os_ram_bytes(void)
{
    long pages = sysconf(_SC_PHYS_PAGES);
    long page_size = sysconf(_SC_PAGESIZE);
    return pages > 0 && page_size > 0 ? (uint64_t)pages * (uint64_t)page_size : 0;
}

uint64_t fedge_os_resident_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "re");
    if (!file)
        return 0;
    char line[256]; /* total pages, then resident pages, … */
    const char *second = fgets(line, sizeof(line), file) ? strchr(line, ' ') : NULL;
    fclose(file);
    long page_size = sysconf(_SC_PAGESIZE);
    return second && page_size > 0 ? strtoull(second, NULL, 10) * (uint64_t)page_size : 0;
}

static double seconds(struct timeval time)
{
    return (double)time.tv_sec + 1e-6 * (double)time.tv_usec;
}

double fedge_os_cpu_seconds(void)
{
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0)
        return 0.0;
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

unsigned fedge_os_num_cpus(void)
{
    cpu_set_t allowed;
    /* Fails on machines with more CPUs than a cpu_set_t has. */
    long count = sched_getaffinity(0, sizeof(allowed), &allowed) == 0
                     ? CPU_COUNT(&allowed)
                     : sysconf(_SC_NPROCESSORS_ONLN);
    return count > 0 ? (unsigned)count : 1;
}

const char *fedge_os_arch(void)
{
#if defined(__x86_64__)
    return "x86_64";
#elif defined(__i386__)
    return "i686";
#elif defined(__aarch64__)
    return "aarch64";
#elif defined(__arm__) && __ARM_ARCH >= 7
    return "armv7l";
#elif defined(__arm__)
    return "armv6l";
#elif defined(__riscv) && __riscv_xlen == 64
    return "riscv64";
#else
    return "unknown";
#endif
}

#if defined(__x86_64__) || defined(__i386__)
/* Registers that the system saves: bits of XCR0. */
#define XCR0_YMM 0x06u
#define XCR0_ZMM 0xE6u

static unsigned saved_registers(void)
/* The intrinsic would require compiling the whole file for CPUs that have it. */
{
    unsigned low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static bool has(unsigned word, unsigned bits)
{
    return (word & bits) == bits;
}

/* By the instruction: __builtin_cpu_supports links a table of 5 KB. */
static unsigned x86_features(void)
{
    unsigned a, b, c = 0, d, b7, c7, features = 0;
    (void)__get_cpuid(1, &a, &b, &c, &d);
    if (has(c, bit_AES | bit_PCLMUL))
        features = FEDGE_CPU_AES;
    if (!has(c, bit_OSXSAVE | bit_FMA | bit_F16C) || !__get_cpuid_count(7, 0, &a, &b7, &c7, &d))
        return features;
    const unsigned saved = saved_registers();
    if (has(saved, XCR0_YMM) && has(b7, bit_AVX2))
        features |= FEDGE_CPU_AVX2;
    if (!has(saved, XCR0_ZMM) || !has(b7, bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL))
        return features;
    features |= FEDGE_CPU_AVX512;
    if (has(c7, bit_AVX512VNNI))
        features |= FEDGE_CPU_AVX512VNNI;
    if (__get_cpuid_count(7, 1, &a, &b, &c, &d) && has(a, bit_AVX512BF16))
        features |= FEDGE_CPU_AVX512BF16;
    return features;
}
#endif

static unsigned read_cpu_features(void)
{
    unsigned features = 0;
#if defined(__x86_64__) || defined(__i386__)
    features = x86_features();
#elif defined(__ARM_NEON)
    features = FEDGE_CPU_NEON;
#endif
#if defined(__aarch64__) && defined(HWCAP_AES)
    if ((getauxval(AT_HWCAP) & (HWCAP_AES | HWCAP_PMULL)) == (HWCAP_AES | HWCAP_PMULL))
        features |= FEDGE_CPU_AES;
#endif
    const char *level = getenv("FEDGE_CPU_LEVEL");
    if (level && strcmp(level, "scalar") == 0)
        features = 0;
    else if (level && strcmp(level, "avx2") == 0)
        features &= ~(FEDGE_CPU_AVX512 | FEDGE_CPU_AVX512BF16 | FEDGE_CPU_AVX512VNNI);
    else if (level && strcmp(level, "avx512") == 0)
        features &= ~(FEDGE_CPU_AVX512BF16 | FEDGE_CPU_AVX512VNNI);
    return features;
}

unsigned fedge_os_cpu_features(void)
{
    /* Concurrent threads store the same value. */
    static atomic_uint cached;
    const unsigned known = 0x80000000u;
    unsigned value = atomic_load_explicit(&cached, memory_order_relaxed);
    if (value == 0) {
        value = read_cpu_features() | known;
        atomic_store_explicit(&cached, value, memory_order_relaxed);
    }
    return value & ~known;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Linux's control groups, as of containers, may limit a process to less memory than the machine
 * has. */

#define PROC_SELF "/proc/self"
#define NO_LIMIT UINT64_MAX

static FILE *open_fact(const char *proc, const char *name)
{
    char path[FEDGE_OS_MAX_PATH];
    const int size = snprintf(path, sizeof(path), "%s/%s", proc, name);
    return size > 0 && size < (int)sizeof(path) ? fopen(path, "re") : NULL;
}

/* Whether [word] is in the comma-separated [list]. */
static bool lists(const char *list, const char *word)
{
    const size_t size = strlen(word);
    for (;; list++) {
        const size_t length = strcspn(list, ",");
        if (length == size && memcmp(list, word, size) == 0)
            return true;
        list += length;
        if (*list == '\0')
            return false;
    }
}

/* The process's path in the hierarchy of [controller], "" for cgroup v2: from lines such as
 * "4:memory:/a/b" and "0::/a/b". */
static bool find_group(const char *proc, const char *controller, char group[FEDGE_OS_MAX_PATH])
{
    FILE *file = open_fact(proc, "cgroup");
    char *line = NULL;
    size_t line_size = 0;
    bool found = false;
    while (file && !found && getline(&line, &line_size, file) > 0) {
        char *list = strchr(line, ':');
        char *path = list ? strchr(++list, ':') : NULL;
        if (!path)
            continue;
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        found = lists(list, controller) && strlen(path) < FEDGE_OS_MAX_PATH;
        if (found)
            memcpy(group, path, strlen(path) + 1);
    }
    free(line);
    if (file)
        fclose(file);
    return found;
}

/* The number in a control group's file; "max", or a missing file, means no limit. */
static uint64_t read_limit(const char *folder, const char *name)
{
    uint64_t limit = NO_LIMIT;
    FILE *file = open_fact(folder, name);
    if (!file)
        return NO_LIMIT;
    if (fscanf(file, "%" SCNu64, &limit) != 1)
        limit = NO_LIMIT;
    fclose(file);
    return limit;
}

/* The minimum limit of the group and its ancestors, as far as they are mounted: the mount shows
 * [root] and its descendants. */
static uint64_t least_limit(const char *mount, const char *root, const char *group,
                            const char *name)
{
    char folder[2 * FEDGE_OS_MAX_PATH];
    const size_t top = strlen(mount), above = strcmp(root, "/") == 0 ? 0 : strlen(root);
    const bool below = strncmp(group, root, above) == 0 &&
                       (group[above] == '/' || group[above] == '\0') && !strstr(group, "..");
    (void)snprintf(folder, sizeof(folder), "%s%s", mount, below ? group + above : "");
    uint64_t least = NO_LIMIT;
    for (;;) {
        const uint64_t limit = read_limit(folder, name);
        least = limit < least ? limit : least;
        char *slash = strrchr(folder, '/');
        if (strlen(folder) <= top || !slash)
            return least;
        *slash = '\0';
    }
}

/* Parses a line such as "36 31 0:35 /root /mount rw shared:1 - cgroup cgroup rw,memory". */
static uint64_t limit_of_mount(const char *proc, const char *line)
{
    char root[FEDGE_OS_MAX_PATH], mount[FEDGE_OS_MAX_PATH], group[FEDGE_OS_MAX_PATH];
    char type[16], options[256];
    const char *dash = strstr(line, " - ");
    if (!dash || sscanf(line, "%*s %*s %*s %511s %511s", root, mount) != 2 ||
        sscanf(dash + 3, "%15s %*s %255s", type, options) != 2)
        return NO_LIMIT;
    if (strcmp(type, "cgroup2") == 0 && find_group(proc, "", group))
        return least_limit(mount, root, group, "memory.max");
    if (strcmp(type, "cgroup") == 0 && lists(options, "memory") &&
        find_group(proc, "memory", group))
        return least_limit(mount, root, group, "memory.limit_in_bytes");
    return NO_LIMIT;
}

uint64_t fedge_os_usable_bytes(const char *proc)
{
    const uint64_t ram = fedge_os_ram_bytes();
    uint64_t least = ram > 0 ? ram : NO_LIMIT;
    char *line = NULL;
    size_t line_size = 0;
    proc = proc ? proc : PROC_SELF;
    FILE *file = open_fact(proc, "mountinfo");
    while (file && getline(&line, &line_size, file) > 0) {
        const uint64_t limit = limit_of_mount(proc, line);
        least = limit < least ? limit : least;
    }
    free(line);
    if (file)
        fclose(file);
    return least < NO_LIMIT ? least : 0;
}

void fedge_os_return_freed(void)
{
#ifdef __GLIBC__
    (void)malloc_trim(0);
#endif
}

void fedge_os_return_large_blocks(void)
{
#ifdef __GLIBC__
    (void)mallopt(M_MMAP_THRESHOLD, 1 << 20); /* the default threshold grows with freed blocks */
    (void)mallopt(M_TRIM_THRESHOLD,
                  8 << 20); /* otherwise messages' memory is returned and requested again */
#endif
}

#ifdef __SANITIZE_THREAD__
/* GCC 12's thread sanitizer allocates a thread's record of pending signals at the thread's first
 * blocking call, and loses a signal that arrives during that. The main thread, which takes all
 * signals, makes such a call before there are any. */
__attribute__((constructor)) static void allocate_pending_signals(void)
{
    const struct timespec now = {0};
    (void)nanosleep(&now, NULL);
}
#endif
