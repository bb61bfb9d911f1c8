/* Everything fedge needs from an operating system. This is the only header with several
 * implementations (os_posix.c; a port adds another), and only they have #ifdef for systems. Paths
 * are UTF-8. Created files have mode 0600, directories 0700. */
#ifndef FEDGE_EDGE_CORE_OS_H
#define FEDGE_EDGE_CORE_OS_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"

/* Bytes of a path with NUL; longer ones get FEDGE_TOO_BIG. */
#define FEDGE_OS_MAX_PATH 512

/* snprintf and vsnprintf for messages: at most [size] bytes with NUL, always terminated if size >
 * 0; returns the untruncated length. Without an operating system this is a small formatter (no
 * stdio, no malloc): %s %c %d %u %x %g %%, with h, l, ll and z, a width, 0 and a precision of %s;
 * %g has six digits, as 1.25e-03. */
int fedge_os_format(char *out, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int fedge_os_vformat(char *out, size_t size, const char *format, va_list arguments)
    __attribute__((format(printf, 3, 0)));

/* Monotonic milliseconds since an arbitrary start; nanoseconds for measurements. */
uint64_t fedge_os_monotonic_ms(void);
uint64_t fedge_os_monotonic_ns(void);
/* Wall clock: milliseconds since 1970-01-01 UTC. */
uint64_t fedge_os_unix_ms(void);

/* Fills [out] by the system's CSPRNG. */
FEDGE_MUST_USE fedge_status fedge_os_random(void *out, size_t size, fedge_error *err);

/* Reads a whole file of at most [limit] bytes into a block with a NUL after it (not counted in
 * *size), which the caller frees with free(). FEDGE_TOO_BIG names the size and the limit. */
FEDGE_MUST_USE fedge_status fedge_os_read_file(const char *path, size_t limit, uint8_t **data,
                                               size_t *size, fedge_error *err);

/* Replaces [path] atomically and durably: temporary file in its directory, write, fsync, rename,
 * fsync of the directory. [mode] e.g. 0600. FEDGE_IO if [path] is a device or pipe. On failure
 * [path] is unchanged (or new, if only the directory's fsync failed), and the temporary file is
 * removed. A crash may leave one: [path], a dot, six characters and FEDGE_OS_TEMPORARY_SUFFIX. */
#define FEDGE_OS_TEMPORARY_SUFFIX ".tmp"
FEDGE_MUST_USE fedge_status fedge_os_write_file(const char *path, const void *data, size_t size,
                                                unsigned mode, fedge_error *err);

/* Does the same with the concatenation of several parts. */
typedef struct fedge_os_part {
    const void *data;
    size_t size;
} fedge_os_part;
FEDGE_MUST_USE fedge_status fedge_os_write_parts(const char *path, const fedge_os_part *parts,
                                                 size_t num_parts, unsigned mode, fedge_error *err);

/* Creates a directory; its parent must exist. It is durable once the parent is synced. */
FEDGE_MUST_USE fedge_status fedge_os_make_dir(const char *path, fedge_error *err);
/* Creates the directory and its parents, durably. Also syncs existing ones, since the process that
 * created them may have been killed before its sync. */
FEDGE_MUST_USE fedge_status fedge_os_make_dirs(const char *path, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_os_sync_dir(const char *path, fedge_error *err);
bool fedge_os_exists(const char *path);
/* For what must not be taken for missing: fails where the system cannot tell. */
FEDGE_MUST_USE fedge_status fedge_os_find(const char *path, bool *exists, fedge_error *err);
bool fedge_os_is_dir(const char *path);
/* For keys: FEDGE_DENIED, with the command that fixes it, if anyone but the owner can read, write
 * or enter [path]. */
FEDGE_MUST_USE fedge_status fedge_os_check_private(const char *path, fedge_error *err);
/* For trusted certificates: FEDGE_DENIED if others can write [path]. */
FEDGE_MUST_USE fedge_status fedge_os_check_not_writable(const char *path, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_os_remove(const char *path, fedge_error *err);
/* Removes a directory with all its contents; a missing one is no error. */
FEDGE_MUST_USE fedge_status fedge_os_remove_tree(const char *path, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_os_rename(const char *from, const char *to, fedge_error *err);
/* Renames the synced file [temporary] to [path] in the same directory, durably. */
FEDGE_MUST_USE fedge_status fedge_os_publish(const char *temporary, const char *path,
                                             fedge_error *err);

/* Visits the names in a directory, without "." and "..", sorted by bytes. The visitor returns
 * FEDGE_OK to continue. */
typedef fedge_status (*fedge_os_visit)(void *user, const char *name, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_os_list_dir(const char *path, fedge_os_visit visit, void *user,
                                              fedge_error *err);

/* Takes an exclusive advisory lock on [path], which is created if missing, without waiting.
 * FEDGE_BUSY, with the holder's pid, if a process (this one included) holds it. fedge_os_unlock or
 * the end of the process releases it, also by kill -9; child programs do not inherit it. The file
 * remains. */
FEDGE_MUST_USE fedge_status fedge_os_lock(const char *path, int *lock, fedge_error *err);
void fedge_os_unlock(int lock);

/* A file opened for positioned reads and writes. */
typedef struct fedge_os_file {
    int fd;                       /* −1 if closed */
    char path[FEDGE_OS_MAX_PATH]; /* path for messages */
} fedge_os_file;
typedef enum fedge_os_mode { FEDGE_OS_READ, FEDGE_OS_READ_WRITE, FEDGE_OS_CREATE } fedge_os_mode;
/* FEDGE_OS_CREATE: read and write; created empty if missing, otherwise unchanged. */
FEDGE_MUST_USE fedge_status fedge_os_open(fedge_os_file *file, const char *path, fedge_os_mode mode,
                                          fedge_error *err);
/* Opens an unnamed file of [size] bytes of 0 in memory (or as fedge_os_open_temporary does), which
 * processes share by mapping its descriptor. */
FEDGE_MUST_USE fedge_status fedge_os_open_shared(fedge_os_file *file, uint64_t size,
                                                 fedge_error *err);
/* Opens an unnamed file in [folder] (NULL: TMPDIR, or /var/tmp), which disappears when the program
 * ends for any reason. chosen: the folder, for messages. */
FEDGE_MUST_USE fedge_status fedge_os_open_temporary(fedge_os_file *file, const char *folder,
                                                    char chosen[FEDGE_OS_MAX_PATH],
                                                    fedge_error *err);
/* Reads exactly [size] bytes at [offset]; FEDGE_TRUNCATED if the file ends before. */
FEDGE_MUST_USE fedge_status fedge_os_read_at(const fedge_os_file *file, uint64_t offset, void *out,
                                             size_t size, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_os_write_at(const fedge_os_file *file, uint64_t offset,
                                              const void *data, size_t size, fedge_error *err);
/* Syncs data and size. An error is final: do not retry. The system takes the bytes for stored from
 * then on: every process still reads them, and a later sync succeeds without them. So a process
 * that goes on with a file which an earlier one wrote in place writes what it relies on again. */
FEDGE_MUST_USE fedge_status fedge_os_sync(const fedge_os_file *file, fedge_error *err);
/* Reserves [size] bytes on the disk (posix_fallocate), so that later writes below [size] do not
 * fail for lack of space. The file is at least that long afterwards. FEDGE_NO_SPACE. A file system
 * that cannot reserve gets the length and a check of its free space. */
FEDGE_MUST_USE fedge_status fedge_os_reserve(const fedge_os_file *file, uint64_t size,
                                             fedge_error *err);
/* Truncates the file to [size] bytes. */
FEDGE_MUST_USE fedge_status fedge_os_cut(const fedge_os_file *file, uint64_t size,
                                         fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_os_file_size(const fedge_os_file *file, uint64_t *size,
                                               fedge_error *err);
void fedge_os_close(fedge_os_file *file);

/* Bytes free for this user on the file system of [path]. */
FEDGE_MUST_USE fedge_status fedge_os_free_bytes(const char *path, uint64_t *bytes,
                                                fedge_error *err);

/* Opens closed standard streams on /dev/null. Call at the start of a program, so that no other file
 * becomes a standard stream. */
void fedge_os_hold_streams(void);

/* Makes this process end (SIGTERM) with [parent], which has just forked it. */
void fedge_os_end_with_parent(int64_t parent);

/* Channels between two processes of this machine: the ends of a socketpair, on which bytes and
 * shared memory go. Closing or ending one end is seen at the other. */

/* Child programs inherit neither: a child that is to have ends[1] calls _inherit between fork and
 * exec, so that the program which another thread starts meanwhile does not hold the channel open.
 */
FEDGE_MUST_USE fedge_status fedge_os_channel_new(int ends[2], fedge_error *err);
void fedge_os_channel_inherit(int channel);
/* Sends all bytes, and with them the descriptor [share] (−1: none), which stays open here.
 * FEDGE_CLOSED: the other end is closed. */
FEDGE_MUST_USE fedge_status fedge_os_channel_send(int channel, const void *data, size_t size,
                                                  int share, fedge_error *err);
/* Receives exactly [size] bytes, and into *share (NULL: closed) a descriptor that came with them,
 * or −1. FEDGE_CLOSED: the other end is closed. */
FEDGE_MUST_USE fedge_status fedge_os_channel_receive(int channel, void *data, size_t size,
                                                     int *share, fedge_error *err);
/* Waits at most [ms] until bytes or the end can be received. */
bool fedge_os_channel_wait(int channel, uint64_t ms);
/* Has the other end closed, or ended its sending? */
bool fedge_os_channel_ended(int channel);
/* Ends the sending of this end, or of both. From any thread, and from signal handlers. */
void fedge_os_channel_end(int channel, bool both);
void fedge_os_channel_close(int channel); /* −1 is allowed */

/* Memory of [size] zero bytes that other processes can map by *fd. Close it after use. */
FEDGE_MUST_USE fedge_status fedge_os_shared_new(size_t size, int *fd, fedge_error *err);
/* Maps all of it; FEDGE_TRUNCATED: it is smaller than [size]. */
FEDGE_MUST_USE fedge_status fedge_os_shared_map(int fd, size_t size, void **at, fedge_error *err);
void fedge_os_shared_unmap(void *at, size_t size); /* NULL is allowed */

/* Names this thread for tools (ps -T, top -H, perf), which show at most 15 bytes. */
void fedge_os_name_thread(const char *name);

/* Makes a TCP socket unwritable while [size] unsent bytes are queued. Otherwise the system buffers
 * megabytes, and the writer cannot see progress. Linux only. */
void fedge_os_bound_unsent(int socket, int size);

#define FEDGE_LARGE_PAGE ((size_t)2 << 20)

/* Requests pages of FEDGE_LARGE_PAGE bytes for the aligned part of [block], preferably before its
 * first use; this reduces TLB misses of repeated passes. Only a hint: no error, and no effect
 * outside the block. */
void fedge_os_large_pages(void *block, size_t size);

/* Reads up to size − 1 bytes of a small system file (/proc, /sys), NUL-terminated. False if it
 * cannot be read. */
bool fedge_os_read_fact(const char *path, char *out, size_t size);
/* Passes each line of such a file, which may be long, with its end to [take]; lines over 255 bytes
 * in parts. Passes nothing if it cannot be read. */
void fedge_os_each_line(const char *path, void (*take)(void *user, char *line), void *user);
/* Minute of the day, 0 … 1439, in the local time zone (UTC with FEDGE_SMALL). */
unsigned fedge_os_local_minute(void);

/* Facts about the machine, for HELLO and logs. */
uint64_t fedge_os_ram_bytes(void); /* 0 when unknown */
/* RAM that this process may use, which its control groups (of a container) may limit; 0 when
 * unknown. [proc]: NULL, or /proc's replacement in tests. */
uint64_t fedge_os_usable_bytes(const char *proc);
uint64_t fedge_os_resident_bytes(void); /* resident memory of this process; 0 when unknown */
/* Returns freed memory from the allocator to the system, where possible. Call before
 * fedge_os_resident_bytes. */
void fedge_os_return_freed(void);
/* Makes freed blocks of 1 MiB or more go back to the system, where the allocator allows it, for
 * programs that load models in succession. Smaller ones are cached up to 8 MiB. Call before there
 * are threads. */
void fedge_os_return_large_blocks(void);
double fedge_os_cpu_seconds(void); /* user + system time of this process */
unsigned fedge_os_num_cpus(void);  /* CPUs that this process may run on, as in taskset; ≥ 1 */
const char *fedge_os_arch(void);   /* "x86_64", "aarch64", "armv7l", … */

/* Features of the CPU, read once. The environment variable FEDGE_CPU_LEVEL ("scalar", "avx2", or
 * "avx512" without its extensions) reduces them, to reproduce another machine's results and for
 * tests. */
#define FEDGE_CPU_AVX2 0x1u   /* AVX2 with FMA and F16C */
#define FEDGE_CPU_AVX512 0x2u /* F, BW, DQ, VL */
#define FEDGE_CPU_NEON 0x4u
#define FEDGE_CPU_AVX512BF16 0x8u  /* sums of products of two bf16 numbers */
#define FEDGE_CPU_AVX512VNNI 0x10u /* sums of products of four bytes */
#define FEDGE_CPU_AES 0x20u        /* an AES round, and GCM's carry-less product */
unsigned fedge_os_cpu_features(void);

#endif
