/* Starting threads that take no signals. */
#ifndef FEDGE_AGGREGATOR_THREADS_THREAD_H
#define FEDGE_AGGREGATOR_THREADS_THREAD_H

#include <pthread.h>

/* pthread_create for a thread that blocks all signals from its first instruction. Signals of the
 * process then reach its main thread, whose event loop waits for them. Returns 0 or an error
 * number, as pthread_create does. [attributes] may be NULL. */
int fedge_thread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                        void *user);

#endif
