#include "edge/core/words.h"

#include <stddef.h>
#include <string.h>

const char *fedge_word_at(const char *words, unsigned index)
{
    for (; index > 0 && *words != '\0'; index--)
        words += strlen(words) + 1;
    return *words == '\0' ? NULL : words;
}
