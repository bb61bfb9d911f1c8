#include "tests/world/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/client_private.h"
#include "edge/data/formats/safetensors.h"
#include "secure/identity/identity.h"
#include "tests/world/disk.h"
#include "tests/world/observer.h"
#include "tests/world/scheduler.h"
#include "tests/world/stub_trainer.h"

/* Upper limit of a plan's or model's size: worlds' models are smaller than the largest header. */
#define MAX_FILE (FEDGE_SAFETENSORS_MAX_HEADER + 65536)

/* ---- who a device is: certificates would take milliseconds each ------------------------------ */

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */
fedge_status __wrap_fedge_identity_load(const char *dir, fedge_role role, uint64_t now_ms,
                                        fedge_identity **identity, fedge_error *err);
void __wrap_fedge_identity_free(fedge_identity *identity);
fedge_status __wrap_fedge_trust_load(const char *dir, char **pem, fedge_error *err);

fedge_status __wrap_fedge_identity_load(const char *dir, fedge_role role, uint64_t now_ms,
                                        fedge_identity **identity, fedge_error *err)
{
    (void)dir, (void)role, (void)now_ms;
    *identity = calloc(1, sizeof(**identity));
    if (!*identity)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for an identity");
    fedge_certificate_info *certificate = &(*identity)->certificate;
    certificate->not_after_ms = UINT64_MAX;
    (void)snprintf(certificate->device_id, sizeof(certificate->device_id),
                   "00000000-0000-4000-8000-%012u", (unsigned)(world_node() - WORLD_FIRST_CLIENT));
    return FEDGE_OK;
}

void __wrap_fedge_identity_free(fedge_identity *identity)
{
    free(identity);
}

fedge_status __wrap_fedge_trust_load(const char *dir, char **pem, fedge_error *err)
{
    (void)dir;
    *pem = calloc(1, 1);
    return *pem ? FEDGE_OK : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the roots");
}
/* NOLINTEND(bugprone-reserved-identifier) */

/* ---- the process ----------------------------------------------------------------------------- */

static void check_file(void *client, const char *path)
{
    size_t size = 0;
    (void)world_disk_read(WORLD_FIRST_CLIENT + *(const uint32_t *)client, path, &size);
    if (size > MAX_FILE)
        world_fail("client %u stores %zu bytes in one file", *(const uint32_t *)client, size);
}

static void check_disk(uint32_t client)
{
    const uint64_t used = world_disk_used(WORLD_FIRST_CLIENT + client);
    if (used > FEDGE_CLIENT_MAX_BLOBS * MAX_FILE)
        world_fail("client %u fills its disk with what the server sends", (unsigned)client);
    else if (used > MAX_FILE)
        world_disk_each(WORLD_FIRST_CLIENT + client, check_file, &client);
}

void world_client_check(const world_client *client)
{
    if (!client->strict)
        return;
    /* The grace period, the time of the last message, and a few syncs. */
    if (client->running && client->stop_ns > 0 &&
        world_now_ns() > client->stop_ns + (uint64_t)1500000000)
        world_fail("client %u was stopped, and runs on", (unsigned)client->index);
    check_disk(client->index);
}

void world_client_main(void *client)
{
    world_client *self = client;
    fedge_error err = {0};
    struct fedge_site *site = NULL;
    fedge_exit code = FEDGE_EXIT_CONFIG;
    fedge_client *made = NULL;
    if (!self->site_file || fedge_client_site_load(self->site_file, &site, &err) == FEDGE_OK) {
        const fedge_client_config config = {.struct_size = sizeof(config),
                                            .server = "wss://server",
                                            .identity_dir = WORLD_DISK_ROOT "/identity",
                                            .trust_dir = WORLD_DISK_ROOT "/trust",
                                            .state_dir = WORLD_DISK_ROOT "/state",
                                            .site = site,
                                            .log = world_observed_log(),
                                            .backoff_base_ms = 100,
                                            .backoff_cap_ms = self->backoff_cap_ms};
        ((stub_trainer *)self->callbacks->user)->site = site;
        const fedge_status status = fedge_client_new(&config, self->callbacks, &made, &err);
        code = fedge_client_exit_code(status);
        if (status == FEDGE_OK) {
            self->running = made;
            self->stop_ns = self->stop ? world_now_ns() : 0;
            if (self->stop)
                fedge_client_stop(made);
            code = fedge_client_run(made, &err);
            world_client_check(self);
            self->running = NULL;
        }
        fedge_client_free(made);
        fedge_client_site_free(site);
    }
    world_observe_exit(world_node(), (int)code, err.message);
}

void world_client_stop(world_client *client)
{
    client->stop = !client->running;
    client->stop_ns = world_now_ns();
    if (client->running)
        fedge_client_stop(client->running);
}
