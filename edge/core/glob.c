#include "edge/core/glob.h"

#include <stddef.h>
#include <string.h>

bool fedge_glob_matches(const char *pattern, const char *text)
{
    const char *star = NULL, *resume = NULL;
    while (*text) {
        if (*pattern == '*') {
            star = ++pattern;
            resume = text;
        } else if (*pattern == *text) {
            pattern++;
            text++;
        } else if (star) { /* the last '*' stands for one more */
            pattern = star;
            text = ++resume;
        } else {
            return false;
        }
    }
    return pattern[strspn(pattern, "*")] == '\0';
}
