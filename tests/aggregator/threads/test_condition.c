#include "tests/edge/core/cmocka_all.h"

#include "aggregator/threads/waiting.h"
#include "edge/core/os.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static bool told;

static void *tell(void *user)
{
    pthread_mutex_lock(&mutex);
    told = true;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&mutex);
    return user;
}

/* 1.2 s: more than a second's nanoseconds. One that is woken by nobody may end earlier. */
static void wait_ends_by_itself(void **state)
{
    const uint64_t start = fedge_os_monotonic_ms();
    (void)state;
    fedge_condition_init(&changed);
    pthread_mutex_lock(&mutex);
    while (fedge_os_monotonic_ms() < start + 1200)
        fedge_condition_wait_us(&changed, &mutex, 1200000);
    pthread_mutex_unlock(&mutex);
    pthread_cond_destroy(&changed);
}

static void wait_ends_when_told(void **state)
{
    const uint64_t start = fedge_os_monotonic_ms();
    pthread_t other;
    (void)state;
    fedge_condition_init(&changed);
    pthread_mutex_lock(&mutex);
    assert_int_equal(pthread_create(&other, NULL, tell, NULL), 0);
    while (!told)
        fedge_condition_wait_us(&changed, &mutex, 3600000000u);
    pthread_mutex_unlock(&mutex);
    pthread_join(other, NULL);
    assert_true(fedge_os_monotonic_ms() - start < 3600000);
    pthread_cond_destroy(&changed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wait_ends_by_itself),
        cmocka_unit_test(wait_ends_when_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
