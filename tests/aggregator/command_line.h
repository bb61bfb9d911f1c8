/* Command lines for the tests of options. */
#ifndef FEDGE_TESTS_AGGREGATOR_COMMAND_LINE_H
#define FEDGE_TESTS_AGGREGATOR_COMMAND_LINE_H

/* argv of [program] with [words], which are separated by spaces; NULL behind the last. It lasts
 * until the next call. */
char **command_line(const char *program, const char *words, int *argc);

#endif
