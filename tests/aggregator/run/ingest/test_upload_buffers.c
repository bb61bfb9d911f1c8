/* No more rooms than the budget has, one at the least, and nobody's by two. */
#include "tests/edge/core/cmocka_all.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "aggregator/run/ingest/upload_buffers.h"

static fedge_upload_rooms rooms;
static atomic_int lent, most_lent;

static void there_are_as_many_as_fit(void **unused)
{
    (void)unused;
    static const struct {
        size_t size;
        uint32_t num_workers, count;
    } cases[] = {{0, 8, 8},
                 {1000, 8, 8},
                 {FEDGE_UPLOAD_ROOMS_BYTES / 3, 8, 3},
                 {FEDGE_UPLOAD_ROOMS_BYTES, 8, 1},
                 {FEDGE_UPLOAD_ROOMS_BYTES * 50, 64, 1}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        fedge_upload_rooms_init(&rooms, cases[i].size, cases[i].num_workers);
        assert_int_equal(rooms.count, cases[i].count);
        fedge_upload_rooms_fini(&rooms);
    }
}

static void *work(void *unused)
{
    (void)unused;
    for (int i = 0; i < 200; i++) {
        fedge_upload_room *room = fedge_upload_rooms_take(&rooms);
        const int now = atomic_fetch_add(&lent, 1) + 1;
        if (now > atomic_load(&most_lent))
            atomic_store(&most_lent, now);
        if (room->size == 0) {
            room->inflated = malloc(10);
            room->size = 10;
        }
        room->inflated[3]++; /* the thread sanitizer sees whose it is */
        sched_yield();
        atomic_fetch_sub(&lent, 1);
        fedge_upload_rooms_give_back(&rooms, room);
        if (i % 50 == 0)
            fedge_upload_rooms_empty(&rooms);
    }
    return NULL;
}

static void workers_wait_for_each_other(void **unused)
{
    (void)unused;
    pthread_t threads[6];
    fedge_upload_rooms_init(&rooms, FEDGE_UPLOAD_ROOMS_BYTES / 2, 6);
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, NULL), 0);
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_in_range(atomic_load(&most_lent), 1, 2);
    fedge_upload_rooms_empty(&rooms);
    assert_null(rooms.of[0].inflated);
    fedge_upload_rooms_fini(&rooms);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_are_as_many_as_fit),
        cmocka_unit_test(workers_wait_for_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
