#define _GNU_SOURCE /* signals are POSIX, not C11 */

#include "aggregator/program/service.h"

#include <ev.h>
#include <signal.h>
#include <stdlib.h>

#include "edge/core/os.h"

#define NUM_SIGNALS 4
#define SAME_SIGNAL_MS 250u /* two reloads closer than this are one */

static const int SIGNALS[NUM_SIGNALS] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};

struct fedge_service {
    fedge_service_config config;
    struct ev_loop *loop;
    ev_async reply_watcher;
    ev_timer tick_watcher;
    ev_signal signal_watchers[NUM_SIGNALS];

    fedge_transport *transport;
    fedge_engine_thread *engine;
    uint64_t next_second_ms;
    bool ending;
    uint64_t ending_since_ms;
    uint64_t end_ms; /* time of its end even if clients are connected */
    fedge_ending how;
    fedge_error failure;
};

static void begin_end(fedge_service *service, fedge_ending how, uint64_t timeout_ms,
                      fedge_reason reason, const char *text)
{
    service->ending = true;
    service->ending_since_ms = fedge_os_monotonic_ms();
    service->how = how;
    service->end_ms = fedge_os_monotonic_ms() + timeout_ms;
    fedge_transport_close_all(service->transport, FEDGE_MESSAGE_BYE, reason,
                              reason == FEDGE_REASON_RUN_COMPLETE ? 0
                              : service->config.away_ms           ? service->config.away_ms
                                                                  : FEDGE_SERVICE_AWAY_MS,
                              text);
}

static void take_replies(fedge_service *service)
{
    fedge_reply *reply = fedge_engine_thread_take(service->engine);
    for (fedge_reply *next; reply; reply = next) {
        next = (fedge_reply *)reply->item.next;
        if (reply->type == FEDGE_REPLY_ROUND && service->config.on_round)
            service->config.on_round(service->config.user, &reply->summary);
        fedge_reply_free(reply);
    }
}

/* Carries out the engine's replies, and ends with the engine. */
static void look(fedge_service *service, uint64_t now_ms)
{
    fedge_error failure;
    const bool done = fedge_engine_thread_done(service->engine, &failure);
    take_replies(service); /* all replies sent before it ended */
    if (service->ending) {
        if (now_ms >= service->end_ms || fedge_transport_num_connections(service->transport) == 0)
            ev_break(service->loop, EVBREAK_ALL);
        return;
    }
    if (!done)
        return;
    service->failure = failure;
    fedge_run_status status;
    fedge_engine_thread_status(service->engine, &status);
    if (service->failure.status != FEDGE_OK) {
        fedge_log_failure(service->config.log, FEDGE_LOG_ERROR, "run-failed", &service->failure);
        begin_end(service, FEDGE_ENDING_FAILED, FEDGE_SERVICE_STOP_MS, FEDGE_REASON_INTERNAL,
                  "the aggregator failed and must be restarted");
    } else if (status.complete) {
        begin_end(service, FEDGE_ENDING_COMPLETE, FEDGE_SERVICE_FINISH_MS,
                  FEDGE_REASON_RUN_COMPLETE, "all rounds are done");
    } else {
        begin_end(service, FEDGE_ENDING_DRAINED, FEDGE_SERVICE_FINISH_MS,
                  FEDGE_REASON_SHUTTING_DOWN, "the aggregator has ended after a round");
    }
}

static void on_reply(struct ev_loop *loop, ev_async *watcher, int events)
{
    (void)loop, (void)events;
    look(watcher->data, fedge_os_monotonic_ms());
}

static void tick(struct ev_loop *loop, ev_timer *watcher, int events)
{
    (void)loop, (void)events;
    fedge_service *service = watcher->data;
    uint64_t now_ms = fedge_os_monotonic_ms();
    if (now_ms >= service->next_second_ms) {
        service->next_second_ms = now_ms + 1000;
        fedge_transport_tick(service->transport, now_ms);
    }
    /* After the transport's, which the engine may wait for. */
    if (service->config.on_tick)
        service->config.on_tick(service->config.user);
    look(service, now_ms);
}

static void drain(fedge_service *service)
{
    fedge_request *request = calloc(1, sizeof(*request));
    if (request) {
        request->type = FEDGE_REQUEST_DRAIN;
        (void)fedge_engine_thread_post(service->engine, request);
    } else {
        FEDGE_LOG(service->config.log, FEDGE_LOG_ERROR, "not-drained",
                  fedge_log_str("error", "out of memory: ask again"));
    }
}

static void on_signal(struct ev_loop *loop, ev_signal *watcher, int events)
{
    (void)events;
    fedge_service *service = watcher->data;
    FEDGE_LOG(service->config.log, FEDGE_LOG_INFO, "signal",
              fedge_log_str("name", sigabbrev_np(watcher->signum)));
    if (watcher->signum == SIGHUP) {
        fedge_transport_reload(service->transport);
        if (service->config.on_reload)
            service->config.on_reload(service->config.user);
    } else if (watcher->signum == SIGUSR1) {
        drain(service);
    } else if (service->ending) {
        /* A terminal or systemd signals the whole group, and the supervisor forwards its signals.
         */
        if (fedge_os_monotonic_ms() - service->ending_since_ms >= SAME_SIGNAL_MS)
            ev_break(loop, EVBREAK_ALL);
    } else {
        begin_end(service, FEDGE_ENDING_STOPPED, FEDGE_SERVICE_STOP_MS, FEDGE_REASON_SHUTTING_DOWN,
                  "the aggregator stops; the run goes on when it starts again");
    }
}

static void start_signal(fedge_service *service, int number)
{
    for (int i = 0; i < NUM_SIGNALS; i++) {
        if (SIGNALS[i] == number)
            ev_signal_start(service->loop, &service->signal_watchers[i]);
    }
}

fedge_status fedge_service_new(const fedge_service_config *config, fedge_service **service,
                               fedge_error *err)
{
    *service = NULL;
    fedge_service *fresh = calloc(1, sizeof(*fresh));
    struct ev_loop *loop = fresh ? ev_loop_new(EVFLAG_AUTO) : NULL;
    if (!loop) {
        free(fresh);
        return fedge_fail(err, FEDGE_NO_MEMORY, "the event loop could not be set up");
    }
    fresh->config = *config;
    fresh->loop = loop;
    ev_async_init(&fresh->reply_watcher, on_reply);
    fresh->reply_watcher.data = fresh;
    ev_timer_init(&fresh->tick_watcher, tick, FEDGE_SERVICE_TICK_MS / 1000.0,
                  FEDGE_SERVICE_TICK_MS / 1000.0);
    fresh->tick_watcher.data = fresh;
    for (int i = 0; i < NUM_SIGNALS; i++) {
        ev_signal_init(&fresh->signal_watchers[i], on_signal, SIGNALS[i]);
        fresh->signal_watchers[i].data = fresh;
    }
    /* The watcher keeps an early wake until the loop runs; likewise a reload or drain requested
     * during recovery. */
    ev_async_start(loop, &fresh->reply_watcher);
    start_signal(fresh, SIGHUP);
    start_signal(fresh, SIGUSR1);
    *service = fresh;
    return FEDGE_OK;
}

void fedge_service_free(fedge_service *service)
{
    if (!service)
        return;
    /* A late reload or drain must not kill the program by the signal's default action: its exit
     * code states how the run ended. */
    sigset_t late;
    sigemptyset(&late);
    sigaddset(&late, SIGHUP);
    sigaddset(&late, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &late, NULL);
    ev_async_stop(service->loop, &service->reply_watcher);
    ev_timer_stop(service->loop, &service->tick_watcher);
    for (int i = 0; i < NUM_SIGNALS; i++)
        ev_signal_stop(service->loop, &service->signal_watchers[i]);
    ev_loop_destroy(service->loop);
    free(service);
}

struct ev_loop *fedge_service_loop(fedge_service *service)
{
    return service->loop;
}

void fedge_service_wake(void *service)
{
    fedge_service *self = service;
    ev_async_send(self->loop, &self->reply_watcher);
}

void fedge_service_catch_signals(fedge_service *service)
{
    /* A lost peer makes a write fail, and must not kill the program. */
    signal(SIGPIPE, SIG_IGN);
    start_signal(service, SIGTERM);
    start_signal(service, SIGINT);
}

fedge_ending fedge_service_run(fedge_service *service, fedge_transport *transport,
                               fedge_engine_thread *engine, fedge_error *failure)
{
    service->transport = transport;
    service->engine = engine;
    fedge_service_catch_signals(service);
    /* Recovery may have taken minutes since the loop was created, and timers start from the loop's
     * time. */
    ev_now_update(service->loop);
    ev_timer_start(service->loop, &service->tick_watcher);
    const fedge_run_link link = fedge_engine_thread_link(engine);
    fedge_transport_start(transport, &link);
    ev_run(service->loop, 0);
    *failure = service->failure;
    return service->how;
}
