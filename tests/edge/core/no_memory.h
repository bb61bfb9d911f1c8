/* Memory that runs out at a chosen allocation, for tests whose program is linked with
 * -Wl,--wrap=malloc, calloc, realloc and aligned_alloc. One thread. */
#ifndef FEDGE_TESTS_EDGE_CORE_NO_MEMORY_H
#define FEDGE_TESTS_EDGE_CORE_NO_MEMORY_H

#include "tests/edge/core/cmocka_all.h"

#include <stdbool.h>
#include <stdlib.h>

#include "edge/core/status.h"

static struct {
    long left;    /* allocations until the one that fails; −1: none does */
    bool run_out; /* it has failed */
} no_memory = {-1, false};

static inline bool no_memory_now(void)
{
    if (no_memory.left < 0 || no_memory.left-- > 0)
        return false;
    no_memory.run_out = true;
    return true;
}

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *at, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *at, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
/* NOLINTEND(bugprone-reserved-identifier) */

void *__wrap_malloc(size_t size)
{
    return no_memory_now() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return no_memory_now() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *at, size_t size)
{
    return no_memory_now() ? NULL : __real_realloc(at, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return no_memory_now() ? NULL : __real_aligned_alloc(alignment, size);
}

/* Makes one thing: *made, of whatever type, has no meaning before; frees it when it was made. */
typedef fedge_status (*no_memory_make)(void **made, fedge_error *err);
typedef void (*no_memory_free)(void *made);

/* Each allocation of [make] fails once: it returns FEDGE_NO_MEMORY (or does without that memory)
 * and leaves NULL; the sanitizers see what it leaks or frees twice. */
static inline void each_allocation_may_fail(no_memory_make make, no_memory_free give_back)
{
    bool run_out = true;
    for (long n = 0; run_out; n++) {
        void *made = &made;
        fedge_error err = {.message = ""};
        assert_in_range(n, 0, 10000);
        no_memory.left = n;
        no_memory.run_out = false;
        const fedge_status status = make(&made, &err);
        run_out = no_memory.run_out;
        no_memory.left = -1;
        if (status == FEDGE_OK) {
            assert_ptr_not_equal(made, NULL);
            give_back(made);
            continue;
        }
        if (status != FEDGE_NO_MEMORY || !run_out)
            fail_msg("allocation %ld: %s", n, err.message);
        assert_null(made);
    }
}

#endif
