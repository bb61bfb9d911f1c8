#include "secure/identity/certificate.h"

#include <assert.h>
#include <string.h>

static const char *const role_names[] = {
    [FEDGE_ROLE_DEVICE] = "device",
    [FEDGE_ROLE_SERVER] = "server",
    [FEDGE_ROLE_OPERATOR] = "operator",
    [FEDGE_ROLE_RELAY] = "relay",
};
static_assert(sizeof(role_names) / sizeof(*role_names) == FEDGE_ROLE_COUNT,
              "every role has a name");

const char *fedge_role_name(fedge_role role)
{
    return (unsigned)role < FEDGE_ROLE_COUNT ? role_names[role] : NULL;
}

fedge_status fedge_role_from_name(const char *name, fedge_role *role, fedge_error *err)
{
    for (unsigned i = 0; i < FEDGE_ROLE_COUNT; i++) {
        if (strcmp(name, role_names[i]) == 0) {
            *role = (fedge_role)i;
            return FEDGE_OK;
        }
    }
    return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                      "unknown role '%.40s'; it must be device, server, operator or relay", name);
}

bool fedge_name_valid(const char *name)
{
    size_t length = strlen(name);
    if (length == 0 || length >= FEDGE_NAME_SIZE || name[0] == ' ' || name[length - 1] == ' ')
        return false;
    return strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                        " ._:@-") == length;
}
