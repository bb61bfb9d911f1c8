/* Patterns with '*', as jobs and client files have them. */
#ifndef FEDGE_EDGE_CORE_GLOB_H
#define FEDGE_EDGE_CORE_GLOB_H

#include <stdbool.h>

/* Does [text] match [pattern], in which '*' stands for any characters? */
bool fedge_glob_matches(const char *pattern, const char *text);

#endif
