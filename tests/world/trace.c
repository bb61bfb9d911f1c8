#include "tests/world/trace.h"

#include <stdarg.h>
#include <stdio.h>

#include "tests/world/ranks.h"
#include "tests/world/scheduler.h"
#include "tests/world/threads.h"

static uint64_t hash;
static bool prints;

void world_trace_print(bool on)
{
    prints = on;
}

void world_trace_begin(void)
{
    hash = 14695981039346656037u;
}

bool world_trace_prints(void)
{
    return prints;
}

uint64_t world_trace_hash(void)
{
    return hash;
}

/* FNV-1a, 64 bits. */
static void add(const char *text)
{
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 1099511628211u;
}

void world_trace(const char *format, ...)
{
    char line[1200], name[32];
    const uint32_t node = world_node();
    const uint64_t now_ns = world_now_ns();
    hash = (hash ^ now_ns ^ node) * 1099511628211u;
    /* Formatting all lines would take a fifth of a world's time. */
    if (!prints) {
        add(format);
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    add(line);
    if (node >= WORLD_FIRST_RANK)
        (void)snprintf(name, sizeof(name), "rank %u", (unsigned)world_rank_of(node));
    else if (node >= WORLD_FIRST_CLIENT)
        (void)snprintf(name, sizeof(name), "client %u", (unsigned)(node - WORLD_FIRST_CLIENT));
    else
        (void)snprintf(name, sizeof(name), "%s", node == WORLD_SERVER ? "server" : "world");
    printf("%10.6f  %-8s  %-12s  %s\n", (double)now_ns * 1e-9, name, world_thread_name(), line);
}
