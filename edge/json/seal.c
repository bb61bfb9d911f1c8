#include "edge/json/seal.h"

#include <stdio.h>
#include <string.h>

#include "edge/core/message.h"

#define MAX_DAMAGED 2

void fedge_seal_make(const char *object, size_t size, char seal[FEDGE_SEAL_SIZE + 1])
{
    (void)snprintf(seal, FEDGE_SEAL_SIZE + 1, ",\"crc32\":\"%08lx\"}",
                   (unsigned long)fedge_crc32(0, object, size - 1));
}

fedge_status fedge_seal_check(const char *text, size_t size, const char *name, fedge_error *err)
{
    char seal[FEDGE_SEAL_SIZE + 1];
    unsigned damaged = 0;
    if (size > 0 && text[size - 1] == '\n')
        size--;
    if (size <= FEDGE_SEAL_SIZE)
        return FEDGE_OK;
    size -= FEDGE_SEAL_SIZE;
    fedge_seal_make(text, size + 1, seal);
    if (memcmp(text + size, seal, FEDGE_SEAL_SIZE) == 0)
        return FEDGE_OK;
    for (size_t i = 0; i < FEDGE_SEAL_SIZE; i++)
        damaged += (i < 10 || i >= 18) && text[size + i] != seal[i];
    return damaged > MAX_DAMAGED
               ? FEDGE_OK
               : fedge_fail(
                     err, FEDGE_CORRUPT,
                     "%s is damaged: its checksum is another (after a change by hand, remove its "
                     "member crc32)",
                     name);
}
