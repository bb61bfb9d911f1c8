#define _GNU_SOURCE /* signals are POSIX, not C11 */

#include "aggregator/threads/thread.h"

#include <signal.h>

int fedge_thread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                        void *user)
{
    sigset_t all, before;
    (void)sigfillset(&all);
    /* A thread inherits the mask of its creator. */
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(thread, attributes, run, user);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}
