#include "tests/aggregator/command_line.h"

#include <stdio.h>
#include <string.h>

#include "tests/edge/core/cmocka_all.h"

#define MAX_SIZE 1024
#define MAX_WORDS 60

char **command_line(const char *program, const char *words, int *argc)
{
    static char text[MAX_SIZE];
    static char *argv[MAX_WORDS + 1];
    assert_true(snprintf(text, sizeof(text), "%s %s", program, words) < MAX_SIZE);
    *argc = 0;
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) {
        assert_true(*argc < MAX_WORDS);
        argv[(*argc)++] = word;
    }
    argv[*argc] = NULL;
    return argv;
}
