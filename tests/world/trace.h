/* The trace of a world and its hash: two runs of one seed must have the same. Lines that are not
 * printed enter the hash by time, node and format only. */
#ifndef FEDGE_TESTS_WORLD_TRACE_H
#define FEDGE_TESTS_WORLD_TRACE_H

#include <stdbool.h>
#include <stdint.h>

/* Prints the lines to stdout from now on. */
void world_trace_print(bool on);
bool world_trace_prints(void);
void world_trace_begin(void);    /* begins a new world's hash */
uint64_t world_trace_hash(void); /* hash of all lines since then */

#endif
