#define _POSIX_C_SOURCE 200809L /* setenv */
#include "edge/train/cuda/nccl_api.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY "libnccl.so.2"

/* Since 2.9 the minor version has two digits. */
void fedge_nccl_version_text(int version, char *text, size_t size)
{
    const int major = version < 10000 ? version / 1000 : version / 10000;
    const int minor = version < 10000 ? version / 100 % 10 : version / 100 % 100;
    (void)snprintf(text, size, "%d.%d.%d", major, minor, version % 100);
}

/* A function's address, which POSIX has dlsym return as one of data. */
static bool find(const fedge_nccl *nccl, const char *name, void *function, fedge_error *err)
{
    void *found = dlsym(nccl->library, name);
    memcpy(function, &found, sizeof(found));
    if (!found)
        (void)fedge_fail(err, FEDGE_UNSUPPORTED, LIBRARY " has no %s; install a newer NCCL", name);
    return found != NULL;
}

static fedge_status check_version(fedge_nccl *nccl, fedge_error *err)
{
    fedge_nccl_result (*get_version)(int *version) = NULL;
    if (!find(nccl, "ncclGetVersion", &get_version, err))
        return FEDGE_UNSUPPORTED;
    if (get_version(&nccl->version) != FEDGE_NCCL_SUCCESS || nccl->version < FEDGE_NCCL_OLDEST) {
        char has[32];
        char needs[32];
        fedge_nccl_version_text(nccl->version, has, sizeof(has));
        fedge_nccl_version_text(FEDGE_NCCL_OLDEST, needs, sizeof(needs));
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "NCCL is version %s; install %s or newer, or use one GPU", has, needs);
    }
    return FEDGE_OK;
}

static bool find_all(fedge_nccl *nccl, fedge_error *err)
{
    return find(nccl, "ncclGetErrorString", &nccl->get_error_string, err) &&
           find(nccl, "ncclCommInitAll", &nccl->comm_init_all, err) &&
           find(nccl, "ncclGetUniqueId", &nccl->get_unique_id, err) &&
           find(nccl, "ncclCommInitRank", &nccl->comm_init_rank, err) &&
           find(nccl, "ncclCommDestroy", &nccl->comm_destroy, err) &&
           find(nccl, "ncclCommAbort", &nccl->comm_abort, err) &&
           find(nccl, "ncclCommGetAsyncError", &nccl->comm_get_async_error, err) &&
           find(nccl, "ncclGroupStart", &nccl->group_start, err) &&
           find(nccl, "ncclGroupEnd", &nccl->group_end, err) &&
           find(nccl, "ncclReduceScatter", &nccl->reduce_scatter, err) &&
           find(nccl, "ncclAllGather", &nccl->all_gather, err);
}

fedge_status fedge_nccl_load(fedge_nccl *nccl, fedge_error *err)
{
    *nccl = (fedge_nccl){0};
    /* NCCL's RAS thread listens on sockets of its own, which a server does not offer unasked. */
    (void)setenv("NCCL_RAS_ENABLE", "0", 0);
    /* Its threads and exit handlers outlive the last communicator, so its code stays mapped. */
    nccl->library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!nccl->library) {
        return fedge_fail(err, FEDGE_NOT_FOUND,
                          "NCCL is not found (%s); install it, or use one GPU", dlerror());
    }
    fedge_status status = check_version(nccl, err);
    if (status == FEDGE_OK && !find_all(nccl, err))
        status = FEDGE_UNSUPPORTED;
    if (status != FEDGE_OK)
        fedge_nccl_unload(nccl);
    return status;
}

void fedge_nccl_unload(fedge_nccl *nccl)
{
    if (nccl->library)
        (void)dlclose(nccl->library);
    *nccl = (fedge_nccl){0};
}
