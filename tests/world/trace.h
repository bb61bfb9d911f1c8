/* The story of a world, line by line, and its hash: two runs of one seed must tell the same. Lines
 * that are not printed enter the hash by their time, node and format alone. */
#ifndef FEDGE_TESTS_WORLD_TRACE_H
#define FEDGE_TESTS_WORLD_TRACE_H

#include <stdbool.h>
#include <stdint.h>

/* Prints the lines to stdout from now on. */
void world_trace_print(bool on);
bool world_trace_prints(void);
void world_trace_begin(void);    /* of a new world */
uint64_t world_trace_hash(void); /* of all lines since then */

#endif
