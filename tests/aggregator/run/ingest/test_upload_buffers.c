/* No more buffers than the budget has, one at the least, and nobody's by two. */
#include "tests/edge/core/cmocka_all.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "aggregator/run/ingest/upload.h"

static fedge_upload_buffers buffers;
static atomic_int lent, most_lent;

static void there_are_as_many_as_fit(void **unused)
{
    (void)unused;
    static const struct {
        size_t size;
        uint32_t num_workers, count;
    } cases[] = {{0, 8, 8},
                 {1000, 8, 8},
                 {FEDGE_UPLOAD_BUFFERS_BYTES / 3, 8, 3},
                 {FEDGE_UPLOAD_BUFFERS_BYTES, 8, 1},
                 {FEDGE_UPLOAD_BUFFERS_BYTES * 50, 64, 1}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        fedge_upload_buffers_init(&buffers, cases[i].size, cases[i].num_workers);
        assert_int_equal(buffers.count, cases[i].count);
        fedge_upload_buffers_fini(&buffers);
    }
}

static void *work(void *unused)
{
    (void)unused;
    for (int i = 0; i < 200; i++) {
        fedge_upload_buffer *buffer = fedge_upload_buffers_take(&buffers);
        const int now = atomic_fetch_add(&lent, 1) + 1;
        if (now > atomic_load(&most_lent))
            atomic_store(&most_lent, now);
        if (buffer->size == 0) {
            buffer->inflated = malloc(10);
            buffer->size = 10;
        }
        buffer->inflated[3]++; /* the thread sanitizer sees whose it is */
        sched_yield();
        atomic_fetch_sub(&lent, 1);
        fedge_upload_buffers_give_back(&buffers, buffer);
        if (i % 50 == 0)
            fedge_upload_buffers_empty(&buffers);
    }
    return NULL;
}

static void workers_wait_for_each_other(void **unused)
{
    (void)unused;
    pthread_t threads[6];
    fedge_upload_buffers_init(&buffers, FEDGE_UPLOAD_BUFFERS_BYTES / 2, 6);
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, NULL), 0);
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_in_range(atomic_load(&most_lent), 1, 2);
    fedge_upload_buffers_empty(&buffers);
    assert_null(buffers.of[0].inflated);
    fedge_upload_buffers_fini(&buffers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_are_as_many_as_fit),
        cmocka_unit_test(workers_wait_for_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
