/* A disk that loses power, for unit tests: what a program writes below one directory is recorded,
 * and for any moment of the recording there is made what a real disk could hold had the power
 * failed then.
 *
 * Of a file is certain what was written before its last fsync or fdatasync, of a directory the
 * entries that were made before its own last fsync. Of everything since, any part may have reached
 * the disk: whole writes or single sectors of them, in any order; a rename always as a whole.
 *
 * fedge_lossy_disk(TEST) in tests/edge/core/CMakeLists.txt puts it under a test: the linker gives
 * it the calls of edge/core/os_posix.c. Syncs are recorded and not carried out. Thread-safe. What
 * goes wrong in here ends the process.
 */
#ifndef FEDGE_TESTS_EDGE_CORE_LOSSY_DISK_H
#define FEDGE_TESTS_EDGE_CORE_LOSSY_DISK_H

#include <stdint.h>

#define LOSSY_DISK_PLACE 64

/* The path of a folder for a test, named for the process: in memory where the system has such a
 * place, since images are made by the thousand. */
void lossy_disk_place(const char *name, char path[LOSSY_DISK_PLACE]);

/* Records from here on. [root], a directory, with all that is in it, is on the disk. A recording
 * that was under way is forgotten. */
void lossy_disk_begin(const char *root);
void lossy_disk_end(void);

/* How many changes and syncs were recorded: a moment. */
uint32_t lossy_disk_now(void);

/* Makes [path] (replaced) what the disk may hold of the root when the power fails at [moment].
 * [seed] draws what survives of what was not synced: of every sixth seed nothing and of the next
 * one all of it. Not recorded, wherever [path] is. */
void lossy_disk_image(uint32_t moment, uint64_t seed, const char *path);

/* The process was killed at [moment]: the root becomes what it had written until then, of which no
 * more is on the disk than before. The recording goes on from there; later moments are forgotten.
 * No file below the root may be open. */
void lossy_disk_kill(uint32_t moment);

/* The power fails now: the root becomes such an image. Nobody writes any more: the calling thread
 * is to end the process; all others hang in their next call. */
void lossy_disk_power_off(uint64_t seed);

#endif
