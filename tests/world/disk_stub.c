/* A scheduler of one fiber with its disk. */
#define _GNU_SOURCE

#include "tests/world/disk_stub.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

disk_stub stub;

uint32_t world_node(void)
{
    return stub.node;
}

/* Another fiber may have changed errno before this one goes on. */
void world_yield(void)
{
    stub.yields++;
    errno = ENOTTY;
}

void world_sleep(uint64_t ns)
{
    void (*others)(void) = stub.while_asleep;
    stub.now_ns += ns;
    stub.while_asleep = NULL;
    if (others)
        others();
    errno = ENOTTY;
}

/* Another fiber has to wake this one meanwhile. */
bool world_wait(const void *address, uint64_t ns)
{
    stub.woken = NULL;
    world_sleep(ns == WORLD_NEVER ? 1 : ns);
    assert_ptr_equal(stub.woken, address);
    return true;
}

void world_wake_all(const void *address)
{
    stub.woken = address;
}

fedge_rng *world_draw(void)
{
    return &stub.rng;
}

void world_die(void)
{
    longjmp(stub.killed, 1);
}

void world_fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(stub.failure, sizeof(stub.failure), format, arguments);
    va_end(arguments);
}

void world_trace(const char *format, ...)
{
    (void)format;
}

/* ---- what the tests share -------------------------------------------------------------------- */

void begin(uint64_t seed)
{
    memset(&stub, 0, sizeof(stub));
    stub.rng = fedge_rng_stream(seed, FEDGE_PURPOSE_TEST, 0, 0, 7);
    world_disk_begin(seed);
    stub.node = NODE;
}

int setup(void **state)
{
    (void)state;
    begin(1);
    return 0;
}

int teardown(void **state)
{
    (void)state;
    stub.node = WORLD_ITSELF;
    world_disk_end();
    return stub.failure[0] != '\0';
}

void power_off(void)
{
    world_disk_drop(NODE);
    world_disk_power_off(NODE);
}

void set_faults(world_disk_faults faults)
{
    world_disk_set_faults(NODE, &faults);
}

static void add_to_tree(void *user, const char *path)
{
    char *tree = user;
    size_t size;
    const uint8_t *data = world_disk_read(NODE, path, &size);
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ data[i]) * 1099511628211u;
    const size_t length = strlen(tree);
    (void)snprintf(tree + length, 20000 - length, "%s %zu %llx\n", path, size,
                   (unsigned long long)hash);
}

char *tree(void)
{
    char *text = calloc(1, 20000);
    assert_non_null(text);
    world_disk_each(NODE, add_to_tree, text);
    return text;
}

static void add_size(void *user, const char *path)
{
    size_t size;
    assert_non_null(world_disk_read(NODE, path, &size));
    *(uint64_t *)user += size;
}

uint64_t bytes_of_files(void)
{
    uint64_t bytes = 0;
    world_disk_each(NODE, add_size, &bytes);
    return bytes;
}
