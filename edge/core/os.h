/* Everything fedge asks of an operating system. The only header with more than one implementation
 * (os_posix.c; a port supplies another) and the only place for #ifdef on systems.
 *
 * Paths are UTF-8. Functions that create files use mode 0600 and directories 0700.
 */
#ifndef FEDGE_EDGE_CORE_OS_H
#define FEDGE_EDGE_CORE_OS_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"

/* Bytes of a path with its NUL; longer ones get FEDGE_TOO_BIG. */
#define FEDGE_OS_MAX_PATH 512

/* snprintf and vsnprintf, for messages: at most [size] bytes with the NUL, always terminated when
 * size > 0; returns the length without the cut. Where there is no operating system this is a small
 * formatter of its own (no stdio, no malloc) for what messages use: %s %c %d %u %x %g %%, with h,
 * l, ll and z, a width, 0 and the precision of %s; %g shows six digits, as 1.25e-03. */
int fedge_os_format(char *out, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int fedge_os_vformat(char *out, size_t size, const char *format, va_list arguments)
    __attribute__((format(printf, 3, 0)));

/* Monotonic milliseconds since an arbitrary start; nanoseconds for measurements. */
uint64_t fedge_os_monotonic_ms(void);
uint64_t fedge_os_monotonic_ns(void);
/* Wall clock: milliseconds since 1970-01-01 UTC. */
uint64_t fedge_os_unix_ms(void);

/* Fills [out] from the system's CSPRNG. */
FEDGE_MUST_USE fedge_status fedge_os_random(void *out, size_t size, fedge_error *err);

/* Reads a whole file of at most [limit] bytes into a fresh block with one NUL behind it (not
 * counted in *size); the caller frees it with free(). FEDGE_TOO_BIG names the size and the limit.
 */
FEDGE_MUST_USE fedge_status fedge_os_read_file(const char *path, size_t limit, uint8_t **data,
                                               size_t *size, fedge_error *err);

/* Replaces [path] atomically and durably: temporary file beside it, write, fsync, rename, fsync of
 * the directory. [mode] e.g. 0600. A device or pipe at [path] stays: FEDGE_IO. On an error [path]
 * is what it was (only when the directory's fsync fails it may be either) and the temporary file is
 * gone. A crash may leave one behind: its name is that of [path], a dot, six characters and
 * FEDGE_OS_TEMPORARY_SUFFIX. */
#define FEDGE_OS_TEMPORARY_SUFFIX ".tmp"
FEDGE_MUST_USE fedge_status fedge_os_write_file(const char *path, const void *data, size_t size,
                                                unsigned mode, fedge_error *err);

/* The same of bytes that lie apart, one part behind the other. */
typedef struct fedge_os_part {
    const void *data;
    size_t size;
} fedge_os_part;
FEDGE_MUST_USE fedge_status fedge_os_write_parts(const char *path, const fedge_os_part *parts,
                                                 size_t num_parts, unsigned mode, fedge_error *err);

/* Creates a directory in an existing one. It is durable once the parent has been synced. */
FEDGE_MUST_USE fedge_status fedge_os_make_dir(const char *path, fedge_error *err);
/* Creates the directory and its parents, durably. An existing one is made durable too, since the
 * process that created it may have been killed; this costs a sync each time. */
FEDGE_MUST_USE fedge_status fedge_os_make_dirs(const char *path, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_os_sync_dir(const char *path, fedge_error *err);
bool fedge_os_exists(const char *path);
bool fedge_os_is_dir(const char *path);
/* FEDGE_DENIED, with the command that mends it, when anyone but the owner may read, write or enter
 * [path]: for keys. */
FEDGE_MUST_USE fedge_status fedge_os_check_private(const char *path, fedge_error *err);
/* The same when anyone may write [path]: for files that name trusted certificates. */
FEDGE_MUST_USE fedge_status fedge_os_check_not_writable(const char *path, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_os_remove(const char *path, fedge_error *err);
/* Removes a directory with all its contents; a missing one is fine. */
FEDGE_MUST_USE fedge_status fedge_os_remove_tree(const char *path, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_os_rename(const char *from, const char *to, fedge_error *err);
/* Gives the synced file [temporary] the name [path] beside it, durably: rename, fsync of the
 * directory. */
FEDGE_MUST_USE fedge_status fedge_os_publish(const char *temporary, const char *path,
                                             fedge_error *err);

/* Names of the entries of a directory, without "." and "..", sorted by bytes. The visitor returns
 * FEDGE_OK to go on. */
typedef fedge_status (*fedge_os_visit)(void *user, const char *name, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_os_list_dir(const char *path, fedge_os_visit visit, void *user,
                                              fedge_error *err);

/* Takes an exclusive advisory lock on [path] (created when missing) without waiting.
 * FEDGE_BUSY when another process holds it, or this one already does; the message names its pid.
 * *lock is released by fedge_os_unlock or the end of the process, kill -9 included; child programs
 * do not inherit it. The file stays. */
FEDGE_MUST_USE fedge_status fedge_os_lock(const char *path, int *lock, fedge_error *err);
void fedge_os_unlock(int lock);

/* A file opened for positioned reads and writes. */
typedef struct fedge_os_file {
    int fd;                       /* −1 when closed */
    char path[FEDGE_OS_MAX_PATH]; /* path for messages */
} fedge_os_file;
typedef enum fedge_os_mode { FEDGE_OS_READ, FEDGE_OS_READ_WRITE, FEDGE_OS_CREATE } fedge_os_mode;
/* FEDGE_OS_CREATE: read and write, created empty when missing, an existing one is kept as it is. */
FEDGE_MUST_USE fedge_status fedge_os_open(fedge_os_file *file, const char *path, fedge_os_mode mode,
                                          fedge_error *err);
/* Reads exactly [size] bytes at [offset]; FEDGE_TRUNCATED when the file ends before. */
/* A file in [folder] (NULL: that in TMPDIR, or /var/tmp) that has no name any more: it ends with
 * the program, however that ends. chosen: the folder, for people. */
FEDGE_MUST_USE fedge_status fedge_os_open_temporary(fedge_os_file *file, const char *folder,
                                                    char chosen[FEDGE_OS_MAX_PATH],
                                                    fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_os_read_at(const fedge_os_file *file, uint64_t offset, void *out,
                                             size_t size, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_os_write_at(const fedge_os_file *file, uint64_t offset,
                                              const void *data, size_t size, fedge_error *err);
/* Data (and size) to the disk. An error is final: the caller must not retry. */
FEDGE_MUST_USE fedge_status fedge_os_sync(const fedge_os_file *file, fedge_error *err);
/* Reserves [size] bytes on the disk (posix_fallocate): the file is then at least so long and writes
 * below [size] find room. FEDGE_NO_SPACE when there is none. A file system that cannot reserve gets
 * the length and a check of the free space. */
FEDGE_MUST_USE fedge_status fedge_os_reserve(const fedge_os_file *file, uint64_t size,
                                             fedge_error *err);
/* Cuts the file off behind [size] bytes. */
FEDGE_MUST_USE fedge_status fedge_os_cut(const fedge_os_file *file, uint64_t size,
                                         fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_os_file_size(const fedge_os_file *file, uint64_t *size,
                                               fedge_error *err);
void fedge_os_close(fedge_os_file *file);

/* Bytes free for this user on the file system that holds [path]. */
FEDGE_MUST_USE fedge_status fedge_os_free_bytes(const char *path, uint64_t *bytes,
                                                fedge_error *err);

/* Opens what of the standard streams is closed on nothing, at the start of a program: else the
 * first files that it opens would be taken for them. */
void fedge_os_hold_streams(void);

/* This process ends (SIGTERM) when [parent], which has just forked it, does. */
void fedge_os_end_with_parent(int64_t parent);

/* Names this thread for the system's tools (ps -T, top -H, perf), which show 15 bytes at most. */
void fedge_os_name_thread(const char *name);

/* The TCP socket takes no more once [size] bytes wait that were not yet sent: without it the system
 * takes megabytes, and the writer cannot tell whether any of them moves. No effect outside Linux.
 */
void fedge_os_bound_unsent(int socket, int size);

#define FEDGE_LARGE_PAGE ((size_t)2 << 20)

/* Asks for pages of FEDGE_LARGE_PAGE bytes where whole ones lie inside of [block], best before its
 * first use: what goes through many megabytes again and again then waits less for addresses. A
 * hint: no error, and no memory outside of the block. */
void fedge_os_large_pages(void *block, size_t size);

/* What of a small file of the system (/proc, /sys) fits: at most size − 1 bytes and NUL. False when
 * it is not there or does not answer. */
bool fedge_os_read_fact(const char *path, char *out, size_t size);
/* Gives each line of such a file, which may be long, its end with it; lines of over 255 bytes in
 * pieces. None when it is not there. */
void fedge_os_each_line(const char *path, void (*take)(void *user, char *line), void *user);
/* Of the day, 0 … 1439: by this machine's time zone, of UTC where FEDGE_SMALL is built. */
unsigned fedge_os_local_minute(void);

/* Facts about the machine, for HELLO and logs. */
uint64_t fedge_os_ram_bytes(void); /* 0 when unknown */
/* Of these what this process may take: fewer where its control groups, as a container's, limit it.
 * 0 when unknown. [proc]: where the system tells of the process; NULL but in tests. */
uint64_t fedge_os_usable_bytes(const char *proc);
uint64_t fedge_os_resident_bytes(void); /* resident memory of this process; 0 when unknown */
/* Gives back what the process has freed and its allocator kept, where it can: before
 * fedge_os_resident_bytes is asked what is in use. */
void fedge_os_return_freed(void);
/* Blocks of a megabyte and more go back to the system when they are freed, where the allocator can
 * be told so: for a program that takes models' files in turn. Of smaller ones up to 8 MiB are kept
 * for the next. Before there are threads. */
void fedge_os_return_large_blocks(void);
double fedge_os_cpu_seconds(void); /* user + system time of this process */
unsigned fedge_os_num_cpus(void);  /* CPUs that this process may run on, as in taskset; ≥ 1 */
const char *fedge_os_arch(void);   /* "x86_64", "aarch64", "armv7l", … */

/* Bits of what the CPU can do, read once. The environment variable FEDGE_CPU_LEVEL, "scalar",
 * "avx2" or "avx512" (without its extensions), makes it less: to repeat on one machine what another
 * computed, and to test. */
#define FEDGE_CPU_AVX2 0x1u   /* AVX2 with FMA and F16C */
#define FEDGE_CPU_AVX512 0x2u /* F, BW, DQ, VL */
#define FEDGE_CPU_NEON 0x4u
#define FEDGE_CPU_AVX512BF16 0x8u  /* sums of products of two bf16 numbers */
#define FEDGE_CPU_AVX512VNNI 0x10u /* sums of products of four bytes */
#define FEDGE_CPU_AES 0x20u        /* a round of AES, and the product that GCM needs */
unsigned fedge_os_cpu_features(void);

#endif
