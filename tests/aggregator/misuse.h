/* What headers forbid their callers is asserted; a test tries it in a process of its own. */
#ifndef FEDGE_TESTS_AGGREGATOR_MISUSE_H
#define FEDGE_TESTS_AGGREGATOR_MISUSE_H

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* An assertion ends [misuse]. */
static inline void assert_misuse(void (*misuse)(void *user), void *user)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)fclose(stderr); /* the assertion's words are expected */
        (void)alarm(20);      /* misuse may wait for ever */
        misuse(user);
        _exit(0);
    }
    int how = 0;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFSIGNALED(how));
    assert_int_equal(WTERMSIG(how), SIGABRT);
}

#endif
