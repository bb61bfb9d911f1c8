#include "tests/edge/core/cmocka_all.h"

#include <stdalign.h>
#include <string.h>

#include "edge/core/arena.h"

static void pieces_are_aligned_and_exact(void **state)
{
    (void)state;
    static alignas(FEDGE_ARENA_ALIGN) uint8_t block[64 + 128 + 64];
    assert_int_equal(fedge_arena_round(1) + fedge_arena_round(65) + fedge_arena_round(64),
                     sizeof block);
    fedge_arena arena;
    fedge_arena_init(&arena, block, sizeof block);
    void *a, *b, *c, *d;
    assert_int_equal(fedge_arena_alloc(&arena, 1, 1, &a, NULL), FEDGE_OK);
    assert_int_equal(fedge_arena_alloc(&arena, 13, 5, &b, NULL), FEDGE_OK);
    assert_int_equal(fedge_arena_alloc(&arena, 16, 4, &c, NULL), FEDGE_OK);
    assert_ptr_equal(a, block);
    assert_ptr_equal(b, block + 64);
    assert_ptr_equal(c, block + 192);
    fedge_error err;
    assert_int_equal(fedge_arena_alloc(&arena, 1, 1, &d, &err), FEDGE_NO_MEMORY);
    assert_non_null(strstr(err.message, "0 of 256"));
    assert_int_equal(arena.used, sizeof block);
    assert_int_equal(fedge_arena_alloc(&arena, 0, 4, &d, NULL), FEDGE_OK);
}

static void reset_gives_back_and_high_water_stays(void **state)
{
    (void)state;
    static alignas(FEDGE_ARENA_ALIGN) uint8_t block[256];
    fedge_arena arena;
    fedge_arena_init(&arena, block, sizeof block);
    void *kept, *first, *second;
    assert_int_equal(fedge_arena_alloc(&arena, 64, 1, &kept, NULL), FEDGE_OK);
    size_t mark = arena.used;
    assert_int_equal(fedge_arena_alloc(&arena, 100, 1, &first, NULL), FEDGE_OK);
    fedge_arena_reset(&arena, mark);
    assert_int_equal(fedge_arena_alloc(&arena, 10, 1, &second, NULL), FEDGE_OK);
    assert_ptr_equal(first, second);
    assert_int_equal(arena.high_water, 192);
    fedge_arena_reset(&arena, 0);
    assert_int_equal(arena.used, 0);
    assert_int_equal(arena.high_water, 192);
}

static void an_unaligned_block_loses_its_start(void **state)
{
    (void)state;
    static alignas(FEDGE_ARENA_ALIGN) uint8_t block[192];
    fedge_arena arena;
    fedge_arena_init(&arena, block + 1, sizeof block - 1);
    void *a, *b;
    assert_int_equal(fedge_arena_alloc(&arena, 64, 1, &a, NULL), FEDGE_OK);
    assert_ptr_equal(a, block + 64);
    assert_int_equal(fedge_arena_alloc(&arena, 65, 1, &b, NULL), FEDGE_NO_MEMORY);
    assert_int_equal(fedge_arena_alloc(&arena, 64, 1, &b, NULL), FEDGE_OK);
    fedge_arena_init(&arena, block + 1, 10);
    assert_int_equal(fedge_arena_alloc(&arena, 1, 1, &a, NULL), FEDGE_NO_MEMORY);
}

static void sizes_do_not_overflow(void **state)
{
    (void)state;
    static alignas(FEDGE_ARENA_ALIGN) uint8_t block[64];
    fedge_arena arena;
    fedge_arena_init(&arena, block, sizeof block);
    void *a;
    assert_int_equal(fedge_arena_alloc(&arena, SIZE_MAX, SIZE_MAX, &a, NULL), FEDGE_NO_MEMORY);
    assert_int_equal(fedge_arena_alloc(&arena, SIZE_MAX, 1, &a, NULL), FEDGE_NO_MEMORY);
    assert_int_equal(fedge_arena_alloc(&arena, SIZE_MAX / 4 + 2, 4, &a, NULL), FEDGE_NO_MEMORY);
    assert_true(fedge_arena_round(SIZE_MAX - 10) == SIZE_MAX);
    const size_t last = SIZE_MAX - (FEDGE_ARENA_ALIGN - 1);
    assert_true(fedge_arena_round(last) == last);
    assert_true(fedge_arena_round(last + 1) == SIZE_MAX);
    assert_int_equal(arena.used, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_aligned_and_exact),
        cmocka_unit_test(reset_gives_back_and_high_water_stays),
        cmocka_unit_test(an_unaligned_block_loses_its_start),
        cmocka_unit_test(sizes_do_not_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
