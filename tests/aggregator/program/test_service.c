#include "tests/edge/core/cmocka_all.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "aggregator/program/service.h"

#define SURVIVED 7

/* How a process ends that is told to stop before its service runs. */
static int status_after(bool caught, int number)
{
    const pid_t child = fork();
    if (child == 0) {
        const fedge_service_config config = {0};
        fedge_service *service = NULL;
        fedge_error err;
        (void)signal(number, SIG_DFL); /* one that a shell has put in the background ignores INT */
        if (fedge_service_new(&config, &service, &err) == FEDGE_OK) {
            if (caught)
                fedge_service_catch_signals(service);
            (void)raise(number);
            _exit(SURVIVED);
        }
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void stops_wait_for_the_service(void **state)
{
    (void)state;
    static const int NUMBERS[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGPIPE};
    for (size_t i = 0; i < sizeof(NUMBERS) / sizeof(NUMBERS[0]); i++) {
        const int status = status_after(true, NUMBERS[i]);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), SURVIVED);
    }
}

/* While a run is recovered nothing waits for it; what a run shall do later is kept. */
static void before_it_is_there(void **state)
{
    (void)state;
    static const int END[] = {SIGTERM, SIGINT}, KEPT[] = {SIGHUP, SIGUSR1};
    for (size_t i = 0; i < 2; i++) {
        const int ended = status_after(false, END[i]), kept = status_after(false, KEPT[i]);
        assert_true(WIFSIGNALED(ended));
        assert_int_equal(WTERMSIG(ended), END[i]);
        assert_true(WIFEXITED(kept));
        assert_int_equal(WEXITSTATUS(kept), SURVIVED);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(stops_wait_for_the_service),
                                       cmocka_unit_test(before_it_is_there)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
