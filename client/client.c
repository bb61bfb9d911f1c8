/* The client: carries out the session's actions with the link, the store and the worker. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/client_private.h"
#include "client/link.h"
#include "edge/core/os.h"
#include "edge/core/version.h"
#include "edge/plan/plan.h"
#include "edge/site/site.h"
#include "edge/wire/protocol.h"
#include "secure/crypto/ciphers.h"
#include "secure/identity/identity.h"

#define DEFAULT_BACKOFF_BASE_MS 500
#define DEFAULT_BACKOFF_CAP_MS 60000
#define DEFAULT_PROGRESS_TIMEOUT_MS 60000
#define DEFAULT_STOP_GRACE_MS 500
#define LOOK_MS 2000   /* interval of checks of the site's conditions */
#define GOODBYE_MS 300 /* time for the close frame, after the session has ended */

static uint64_t now(void)
{
    return fedge_os_monotonic_ms();
}

/* --- errors for the next HELLO --------------------------------------------------------------- */

/* A new run's state replaces the old run's last, when everything else of that run is removed. */
static fedge_status store_state(fedge_client *c, fedge_error *err)
{
    if (c->has_other_run)
        FEDGE_TRY(fedge_store_discard_run(c->store, err));
    FEDGE_TRY(fedge_store_write_state(c->store, &c->state, err));
    c->has_other_run = false;
    return FEDGE_OK;
}

static void save_state(fedge_client *c)
{
    fedge_error err;
    if (store_state(c, &err))
        fedge_log_failure(c->config.log, FEDGE_LOG_ERROR, "state", &err);
}

static void fill_errors(fedge_client *c)
{
    c->hello.num_errors = c->state.num_errors;
    memcpy(c->hello.errors, c->state.errors, sizeof(c->state.errors));
}

static void remember_error(fedge_client *c, const char *text)
{
    fedge_store_state *s = &c->state;
    memmove(s->errors[1], s->errors[0], sizeof(s->errors) - sizeof(s->errors[0]));
    snprintf(s->errors[0], sizeof(s->errors[0]), "%.*s", FEDGE_MAX_TEXT - 1, text);
    for (char *p = s->errors[0]; *p; p++) {
        if ((unsigned char)*p < ' ')
            *p = ' ';
    }
    if (s->num_errors < FEDGE_STORE_MAX_ERRORS)
        s->num_errors++;
    fill_errors(c);
    save_state(c);
}

/* --- carrying out ---------------------------------------------------------------------------- */

static void store_failed(fedge_client *c, const char *hash, const fedge_error *err)
{
    fedge_log_failure(c->config.log, FEDGE_LOG_ERROR, "store", err);
    fedge_session_store_failed(c->session, now(), hash,
                               err->status == FEDGE_NO_SPACE ? FEDGE_REASON_NO_SPACE
                                                             : FEDGE_REASON_INTERNAL,
                               err->message);
}

/* A time after the end of this device's certificate is not used: every server would refuse the
 * certificate then, so none could correct the time. */
static bool may_be_time(const fedge_client *c, uint64_t unix_ms)
{
    return unix_ms <= c->identity->certificate.not_after_ms;
}

/* A board without a clock uses the server's time for certificates, if both sides' certificates are
 * valid at it. The time may go back: another server corrects what one has set wrong. */
static void use_time(fedge_client *c, uint64_t unix_ms)
{
    fedge_error err;
    if (fedge_link_covers(c->link, unix_ms) && may_be_time(c, unix_ms)) {
        c->state.server_time_ms = unix_ms;
        fedge_clock_set_min(&c->clock, unix_ms);
        return;
    }
    (void)fedge_fail(&err, FEDGE_EXPIRED, "not used: no certificate is of the time that it tells");
    fedge_log_failure(c->config.log, FEDGE_LOG_WARN, "server-time", &err);
}

static void welcomed(fedge_client *c, const fedge_session_action *action)
{
    const fedge_welcome *welcome = action->welcome;
    c->has_other_run = c->has_other_run || action->flag;
    snprintf(c->state.run_id, sizeof(c->state.run_id), "%s", welcome->run_id);
    c->state.incarnation = welcome->incarnation;
    use_time(c, welcome->server_time_ms);
    c->state.num_errors = 0; /* HELLO contained them, and WELCOME shows that it was read */
    fill_errors(c);
    save_state(c);
    fedge_link_set_heartbeat(c->link, welcome->heartbeat_s);
    c->client_index = welcome->client_index;
    c->new_run = action->flag;
    snprintf(c->plan_hash, sizeof(c->plan_hash), "%s", welcome->plan);
    snprintf(c->initial_model, sizeof(c->initial_model), "%s", welcome->initial_model);
}

/* If the site's conditions are not met, declines the task and returns false. */
static bool may_work(fedge_client *c)
{
    const fedge_site *site = c->config.site;
    fedge_obstacle obstacle;
    c->look_at = now() + LOOK_MS;
    if (!site || fedge_conditions_hold(&site->conditions, fedge_os_local_minute(),
                                       c->config.state_dir, &obstacle))
        return true;
    fedge_session_task_declined(c->session, now(), obstacle.reason, obstacle.after_ms,
                                obstacle.text);
    return false;
}

/* Looks up what is stored of a blob, but only where it is stored which run it is for: the next
 * start would discard values and results of a run that state.json does not name. */
static fedge_status look_up(fedge_client *c, const fedge_session_action *action, fedge_error *err)
{
    FEDGE_TRY(c->has_other_run ? store_state(c, err) : FEDGE_OK);
    return fedge_client_look_up(c, action, err);
}

static void start_assignment(fedge_client *c, const fedge_session_action *action)
{
    fedge_assignment given = {.incarnation = c->state.incarnation, .client_index = c->client_index};
    snprintf(given.run_id, sizeof(given.run_id), "%s", c->state.run_id);
    if (action->type == FEDGE_SESSION_LOAD_PLAN) {
        given.kind = FEDGE_ASSIGNMENT_PLAN;
        memcpy(given.plan_hash, action->hash, sizeof(given.plan_hash));
        given.plan_size = action->size;
        given.new_run = c->new_run;
        memcpy(given.initial_model, c->initial_model, sizeof(given.initial_model));
    } else {
        given.kind = FEDGE_ASSIGNMENT_TASK;
        given.task = *action->task;
    }
    fedge_worker_start(c->worker, &given);
    /* The conditions may have changed during the fetch. */
    if (given.kind == FEDGE_ASSIGNMENT_TASK)
        (void)may_work(c);
}

static void end(fedge_client *c, const fedge_session_action *action)
{
    c->stopped = true;
    c->exit_code = action->exit_code;
    snprintf(c->exit_text, sizeof(c->exit_text), "%s", action->text);
}

/* Sets the next connection's server, by [server_index], and its proxy. */
static fedge_status use_server(fedge_client *c, uint32_t server_index, fedge_error *err)
{
    char proxy[FEDGE_PROXY_TEXT];
    c->server_index = server_index;
    c->server = fedge_link_use_address(c->link, server_index);
    FEDGE_TRY(fedge_proxy_for(c->server, c->config.proxy, proxy, err));
    return fedge_link_set_proxy(c->link, proxy, err);
}

static void close_link(fedge_client *c, const fedge_session_action *action)
{
    fedge_error err;
    fedge_link_close(c->link, action->text);
    uint32_t server_index = c->server_index + !action->flag;
    /* A server can redirect this client only to an address in the client's list. */
    for (uint32_t i = 0; action->server[0] && i < c->num_servers; i++) {
        if (strcmp(fedge_link_use_address(c->link, c->server_index + i), action->server) == 0)
            server_index = c->server_index + i;
    }
    (void)!use_server(c, server_index, &err); /* open_link has checked all of them */
}

static void perform(fedge_client *c, const fedge_session_action *action)
{
    fedge_error err;
    char ciphers[FEDGE_CIPHERS_TEXT];
    switch (action->type) {
    case FEDGE_SESSION_CONNECT:
        FEDGE_LOG(c->config.log, FEDGE_LOG_INFO, "connect", fedge_log_str("server", c->server),
                  fedge_log_str("ciphers", fedge_ciphers_text(ciphers)));
        fedge_link_connect(c->link);
        break;
    case FEDGE_SESSION_CLOSE:
        close_link(c, action);
        break;
    case FEDGE_SESSION_WELCOMED:
        welcomed(c, action);
        break;
    case FEDGE_SESSION_LOOKUP_BLOB:
        /* Conditions are checked before anything of a model is fetched; a plan is small. */
        if ((!action->task || may_work(c)) && look_up(c, action, &err))
            store_failed(c, action->hash, &err);
        break;
    case FEDGE_SESSION_STORE_CHUNK:
        if (fedge_client_store_chunk(c, action, &err))
            store_failed(c, action->hash, &err);
        break;
    case FEDGE_SESSION_LOAD_PLAN:
    case FEDGE_SESSION_WORK:
        start_assignment(c, action);
        break;
    case FEDGE_SESSION_CANCEL:
        fedge_worker_cancel(c->worker);
        break;
    case FEDGE_SESSION_DISCARD_RESULT:
        if (fedge_store_result_discard(c->store, &err))
            fedge_log_failure(c->config.log, FEDGE_LOG_ERROR, "store", &err);
        break;
    case FEDGE_SESSION_NOTE:
        FEDGE_LOG(c->config.log, action->level, action->event,
                  fedge_log_str("message", action->text));
        if (action->level == FEDGE_LOG_ERROR)
            remember_error(c, action->text);
        break;
    case FEDGE_SESSION_STOP:
        end(c, action);
        break;
    case FEDGE_SESSION_SEND: /* drain passes them to the link */
    case FEDGE_SESSION_SEND_PART:
        break;
    }
}

/* Whether there is a task, from the fetch of its model on, and the site has conditions. */
static bool watches(const fedge_client *c)
{
    return c->config.site && c->config.site->conditions.given && fedge_session_has_task(c->session);
}

static void drain(fedge_client *c)
{
    fedge_session_action action;
    /* An action may call back into here through the link: the outer loop handles its events. */
    if (c->draining)
        return;
    c->draining = true;
    while (!c->stopped && fedge_session_next(c->session, false, &action))
        perform(c, &action);
    c->draining = false;
    if (fedge_session_wants_write(c->session))
        fedge_link_want_write(c->link);
    uint64_t due = fedge_session_deadline(c->session), at = now();
    if (watches(c) && c->look_at < due)
        due = c->look_at;
    fedge_link_set_timer(c->link, due == FEDGE_SESSION_NEVER ? UINT64_MAX
                                  : due > at                 ? due - at
                                                             : 0);
}

/* --- the link's events ----------------------------------------------------------------------- */

static void on_connected(void *user)
{
    fedge_client *c = user;
    fedge_session_connected(c->session, now());
    drain(c);
}

static void on_disconnected(void *user, unsigned http_status, const char *why)
{
    fedge_client *c = user;
    fedge_error err;
    /* Another server may be available. */
    (void)!use_server(c, c->server_index + 1, &err); /* open_link has checked all of them */
    fedge_session_disconnected(c->session, now(), http_status, why);
    drain(c);
}

static void on_frame(void *user, const uint8_t *frame, size_t size)
{
    fedge_client *c = user;
    fedge_session_frame(c->session, now(), frame, size);
    drain(c);
}

static void on_garbage(void *user, const char *what)
{
    fedge_client *c = user;
    fedge_session_garbage(c->session, now(), what);
    drain(c);
}

static size_t pack_part(fedge_client *c, const fedge_session_action *action, uint8_t *out,
                        size_t out_size)
{
    const fedge_position position = {action->task_id, action->offset};
    size_t size = 0;
    fedge_error err;
    if (!fedge_store_result_read(c->store, action->offset, c->part, action->data_size, &err) &&
        !fedge_part_pack(&position, c->part, action->data_size, out, out_size, &size, &err))
        return size;
    /* The server expects the announced result, so it must learn that there is none. */
    fedge_session_result_lost(c->session, now(), err.message);
    return 0;
}

static size_t on_writeable(void *user, uint8_t *out, size_t out_size)
{
    fedge_client *c = user;
    fedge_session_action action;
    size_t size = 0;
    /* A writeable link is progress, and the session gets the time only from events. */
    fedge_session_tick(c->session, now());
    while (!c->stopped && size == 0 && fedge_session_next(c->session, true, &action)) {
        if (action.type == FEDGE_SESSION_SEND && action.data_size <= out_size) {
            memcpy(out, action.data, action.data_size);
            size = action.data_size;
        } else if (action.type == FEDGE_SESSION_SEND_PART) {
            size = pack_part(c, &action, out, out_size);
        } else {
            perform(c, &action);
        }
    }
    /* Actions added while the frame was made must not wait for the next event. */
    drain(c);
    return size;
}

/* --- the worker's results -------------------------------------------------------------------- */

static void plan_done(fedge_client *c, const fedge_worker_result *r)
{
    const char *hash = r->assignment.plan_hash;
    fedge_reason reason = FEDGE_REASON_UNSUPPORTED;
    fedge_exit exit_code = FEDGE_EXIT_DECLINED;
    if (!r->status) {
        fedge_session_plan_ready(c->session, now(), hash, r->max_model_size);
        return;
    }
    if (r->status == FEDGE_DENIED) {
        reason = FEDGE_REASON_POLICY;
    } else if (r->status == FEDGE_NOT_FOUND) {
        reason = FEDGE_REASON_NO_DATA;
    } else if (r->status == FEDGE_NO_MEMORY || r->status == FEDGE_IO ||
               r->status == FEDGE_INTERNAL) {
        reason = FEDGE_REASON_INTERNAL; /* the reason may be temporary */
        exit_code = FEDGE_EXIT_INTERNAL;
    }
    fedge_session_plan_failed(c->session, now(), hash, reason, exit_code, r->error.message);
}

/* Appends the metric, if it was reported. */
static fedge_log_field *put_metric(fedge_log_field *to, const char *key, const fedge_upload *upload,
                                   const char *name)
{
    for (uint32_t i = 0; i < upload->num_metrics; i++) {
        if (strcmp(upload->metrics[i].name, name) == 0) {
            *to = fedge_log_num(key, upload->metrics[i].value);
            return to + 1;
        }
    }
    return to;
}

static void task_done(fedge_client *c, const fedge_worker_result *r)
{
    const fedge_task *task = &r->assignment.task;
    if (r->status) {
        fedge_reason reason = FEDGE_REASON_INTERNAL;
        /* The server or the site has cancelled it and expects no answer. */
        if (r->status == FEDGE_CANCELLED)
            reason = FEDGE_REASON_NONE;
        else if (r->status == FEDGE_NO_SPACE)
            reason = FEDGE_REASON_NO_SPACE;
        else if (r->status == FEDGE_UNSUPPORTED)
            reason = FEDGE_REASON_UNSUPPORTED;
        else if (r->status == FEDGE_NOT_FOUND || r->status == FEDGE_TRUNCATED ||
                 r->status == FEDGE_CORRUPT)
            reason = FEDGE_REASON_NO_DATA; /* files that the client file names cannot be read */
        fedge_session_task_failed(c->session, now(), reason, r->error.message);
        return;
    }
    bool train = task->kind == FEDGE_TASK_TRAIN;
    fedge_log_field fields[7] = {fedge_log_int("task", (int64_t)task->task_id),
                                 fedge_log_int("round", task->round),
                                 fedge_log_int("examples", (int64_t)r->upload.num_examples)};
    fedge_log_field *to = fields + 3;
    to = put_metric(to, "loss", &r->upload, "loss");
    to = put_metric(to, "accuracy", &r->upload, "accuracy");
    to = put_metric(to, "seconds", &r->upload, train ? "seconds-train" : "seconds-evaluate");
    *to++ = fedge_log_int("bytes", (int64_t)r->upload.size);
    fedge_log_write(c->config.log, FEDGE_LOG_INFO, train ? "trained" : "evaluated", fields,
                    (size_t)(to - fields));
    fedge_session_task_done(c->session, now(), &r->upload);
}

static void on_woken(void *user)
{
    fedge_client *c = user;
    if (c->stopped)
        return;
    if (atomic_exchange(&c->stop_asked, false))
        fedge_session_stop(c->session, now(), FEDGE_EXIT_OK, "this client was asked to stop");
    while (fedge_worker_take(c->worker, &c->result)) {
        const fedge_worker_result *r = &c->result;
        const fedge_task *task = &r->assignment.task;
        bool plan = r->assignment.kind == FEDGE_ASSIGNMENT_PLAN;
        if (r->status && r->bad_blob) {
            fedge_session_blob_bad(c->session, now(),
                                   plan          ? r->assignment.plan_hash
                                   : task->delta ? task->deltas[task->delta - 1].hash
                                                 : task->model);
        } else if (plan) {
            plan_done(c, r);
        } else {
            task_done(c, r);
        }
        drain(c);
    }
    fedge_session_tick(c->session, now());
    if (watches(c) && now() >= c->look_at)
        (void)may_work(c);
    drain(c);
}

static void on_worker_done(void *user)
{
    fedge_client *c = user;
    fedge_link_wake(c->link);
}

/* --- life ------------------------------------------------------------------------------------ */

/* Copies a caller's struct of [size] bytes, perhaps of an older release, over zeros. */
static fedge_status copy_struct(void *out, size_t out_size, size_t min_size, const void *in,
                                size_t size, const char *what, fedge_error *err)
{
    if (size < min_size) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "%s.struct_size is %zu: set it to sizeof(%s)", what, size, what);
    }
    memset(out, 0, out_size);
    memcpy(out, in, size < out_size ? size : out_size);
    return FEDGE_OK;
}

static void fill_hello(fedge_client *c)
{
    fedge_hello *hello = &c->hello;
    hello->protocol_min = FEDGE_PROTOCOL_MIN;
    hello->protocol_max = FEDGE_PROTOCOL_MAX;
    snprintf(hello->release, sizeof(hello->release), "%s", FEDGE_VERSION);
    snprintf(hello->arch, sizeof(hello->arch), "%s", fedge_os_arch());
    hello->ram_bytes = fedge_os_ram_bytes();
    const char *name;
    for (uint32_t i = 0; (name = fedge_plan_feature(i)) != NULL; i++) {
        if (fedge_plan_lacks_feature(name))
            continue;
        char *word = hello->num_features < FEDGE_MAX_FIRST_FEATURES
                         ? hello->features[hello->num_features++]
                         : hello->more_features[hello->num_more_features++];
        snprintf(word, FEDGE_MAX_FEATURE, "%s", name);
    }
    const fedge_site *site = c->config.site;
    hello->hangs_up = site && site->hangs_up;
    for (uint32_t i = 0; site && i < site->num_data && i < FEDGE_MAX_NAMES; i++)
        snprintf(hello->data[hello->num_data++], sizeof(hello->data[0]), "%s", site->data[i].name);
    fill_errors(c);
}

static uint64_t or_default(uint64_t value, uint64_t fallback)
{
    return value ? value : fallback;
}

static fedge_status open_session(fedge_client *c, fedge_error *err)
{
    fedge_error failure;
    fedge_session_config config = {
        .backoff_base_ms = or_default(c->config.backoff_base_ms, DEFAULT_BACKOFF_BASE_MS),
        .backoff_cap_ms = or_default(c->config.backoff_cap_ms, DEFAULT_BACKOFF_CAP_MS),
        .progress_timeout_ms =
            or_default(c->config.progress_timeout_ms, DEFAULT_PROGRESS_TIMEOUT_MS),
        .num_servers = c->num_servers,
        .hello = &c->hello};
    FEDGE_TRY(fedge_os_random(&config.jitter_seed, sizeof(config.jitter_seed), err));
    FEDGE_TRY(fedge_session_new(&config, &c->session, err));
    const fedge_status status = fedge_store_result_find(c->store, &c->result.upload, &failure);
    /* The damaged result was removed; the run continues without it. */
    if (status == FEDGE_CORRUPT)
        fedge_log_failure(c->config.log, FEDGE_LOG_WARN, "store", &failure);
    else if (status != FEDGE_OK && status != FEDGE_NOT_FOUND)
        return fedge_fail(err, status, "%s", failure.message);
    fedge_session_restore(c->session, c->state.run_id, c->state.incarnation,
                          status ? NULL : &c->result.upload);
    return FEDGE_OK;
}

static fedge_status open_store(fedge_client *c, fedge_error *err)
{
    FEDGE_TRY(fedge_store_open(c->config.state_dir, c->config.max_store_bytes, &c->store, err));
    if (c->config.seed_blob) {
        const fedge_status status = fedge_store_seed(c->store, c->config.seed_blob, err);
        if (status != FEDGE_OK)
            return fedge_error_prefix(err, status, "seed blob");
    }
    return fedge_store_read_state(c->store, &c->state, err);
}

static fedge_status open_link(fedge_client *c, fedge_error *err)
{
    char *trust = NULL;
    FEDGE_TRY(fedge_identity_load(c->config.identity_dir, FEDGE_ROLE_DEVICE,
                                  fedge_clock_now_ms(&c->clock), &c->identity, err));
    if (may_be_time(c, c->state.server_time_ms))
        fedge_clock_set_min(&c->clock, c->state.server_time_ms);
    FEDGE_TRY(fedge_trust_load(c->config.trust_dir, &trust, err));
    const fedge_link_config config = {.urls = c->config.server,
                                      .identity = c->identity,
                                      .trust_pem = trust,
                                      .clock = &c->clock,
                                      .events = {.user = c,
                                                 .connected = on_connected,
                                                 .disconnected = on_disconnected,
                                                 .frame = on_frame,
                                                 .garbage = on_garbage,
                                                 .writeable = on_writeable,
                                                 .woken = on_woken}};
    fedge_status status;
    FEDGE_TRY_OR(fedge_ciphers_check(err), done);
    status = fedge_link_new(&config, &c->link, err);
done:
    free(trust);
    FEDGE_TRY(status);
    /* A wrong proxy setting of any server is reported at the start, not when that server is tried.
     */
    for (uint32_t i = 0; i < c->num_servers; i++)
        FEDGE_TRY(use_server(c, i, err));
    /* The first 32 bits of a random id distribute devices over the servers. */
    return use_server(c, (uint32_t)strtoul(c->identity->certificate.device_id, NULL, 16), err);
}

static fedge_status open_all(fedge_client *c, const fedge_client_config *config,
                             const fedge_client_callbacks *callbacks, fedge_error *err)
{
    FEDGE_TRY(copy_struct(&c->config, sizeof(c->config), offsetof(fedge_client_config, state_dir),
                          config, config->struct_size, "fedge_client_config", err));
    FEDGE_TRY(copy_struct(&c->callbacks, sizeof(c->callbacks),
                          offsetof(fedge_client_callbacks, evaluate), callbacks,
                          callbacks->struct_size, "fedge_client_callbacks", err));
    if (FEDGE_SIMULATES && fedge_simulated_wanted()) {
        return c->callbacks.train ? fedge_simulated_new(c, &c->callbacks, &c->simulated, err)
                                  : fedge_fail(err, FEDGE_INVALID_ARGUMENT, "train must be given");
    }
    if (!c->config.server || !c->config.identity_dir || !c->config.trust_dir ||
        !c->callbacks.train) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "server, identity_dir, trust_dir and train must be given");
    }
    FEDGE_TRY(fedge_link_check_urls(c->config.server, &c->num_servers, err));
    /* fedge_client_exit_code attributes DENIED to the identity, other failures to the store. */
    fedge_status status = open_store(c, err);
    if (status == FEDGE_DENIED)
        return fedge_error_prefix(err, FEDGE_IO, "store");
    FEDGE_TRY(status);
    status = open_link(c, err);
    if (status == FEDGE_NOT_FOUND || status == FEDGE_CORRUPT || status == FEDGE_MISMATCH)
        return fedge_error_prefix(err, FEDGE_DENIED, "identity");
    FEDGE_TRY(status);
    FEDGE_TRY(open_session(c, err));
    fill_hello(c);
    const fedge_worker_config worker = {.client = c,
                                        .callbacks = c->callbacks,
                                        .site = c->config.site,
                                        .store = c->store,
                                        .log = c->config.log,
                                        .done = on_worker_done,
                                        .user = c};
    return fedge_worker_new(&worker, &c->worker, err);
}

fedge_status fedge_client_site_load(const char *path, fedge_site **site, fedge_error *err)
{
    *site = NULL;
    return fedge_site_load(path, site, err);
}

void fedge_client_site_free(fedge_site *site)
{
    fedge_site_free(site);
}

const char *fedge_client_site_servers(const fedge_site *site)
{
    return site->servers;
}

bool fedge_client_site_shows_errors(const fedge_site *site)
{
    return site->shows_errors;
}

fedge_status fedge_client_new(const fedge_client_config *config,
                              const fedge_client_callbacks *callbacks, fedge_client **client,
                              fedge_error *err)
{
    *client = NULL;
    fedge_client *c = calloc(1, sizeof(*c));
    if (!c)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a client of %zu bytes", sizeof(*c));
    const fedge_status status = open_all(c, config, callbacks, err);
    if (status != FEDGE_OK)
        fedge_client_free(c);
    else
        *client = c;
    return status;
}

void fedge_client_free(fedge_client *client)
{
    if (!client)
        return;
    if (FEDGE_SIMULATES)
        fedge_simulated_free(client->simulated);
    /* First, because its thread wakes the link. */
    fedge_worker_free(client->worker);
    fedge_link_free(client->link);
    if (FEDGE_TAKES_PARTS)
        fedge_parts_free(client->parts);
    fedge_session_free(client->session);
    fedge_store_close(client->store);
    fedge_identity_free(client->identity);
    free(client);
}

fedge_exit fedge_client_run(fedge_client *client, fedge_error *err)
{
    if (FEDGE_SIMULATES && client->simulated)
        return fedge_simulated_run(client->simulated, err);
    fedge_session_start(client->session, now());
    drain(client);
    if (atomic_load(&client->stop_asked)) { /* requested before the link existed */
        on_woken(client);
    }
    while (!client->stopped)
        fedge_link_service(client->link);
    /* Before BYE, so that training ends while the link closes. */
    fedge_worker_cancel(client->worker);
    uint64_t end_ms = now() + GOODBYE_MS;
    fedge_link_set_timer(client->link, GOODBYE_MS);
    while (fedge_link_busy(client->link) && now() < end_ms)
        fedge_link_service(client->link);
    (void)fedge_worker_wait(client->worker,
                            or_default(client->config.stop_grace_ms, DEFAULT_STOP_GRACE_MS));
    if (client->exit_code != FEDGE_EXIT_OK)
        remember_error(client, client->exit_text);
    fedge_fail(err, client->exit_code == FEDGE_EXIT_OK ? FEDGE_OK : FEDGE_CLOSED, "%s",
               client->exit_text);
    return client->exit_code;
}

void fedge_client_stop(fedge_client *client)
{
    atomic_store(&client->stop_asked, true);
    if (FEDGE_SIMULATES && client->simulated) {
        fedge_simulated_stop(client->simulated);
        return;
    }
    fedge_link_wake(client->link);
}

bool fedge_client_busy(fedge_client *client)
{
    return (!FEDGE_SIMULATES || !client->simulated) && fedge_worker_busy(client->worker);
}

/* --- for callbacks --------------------------------------------------------------------------- */

bool fedge_client_cancelled(fedge_client *client)
{
    return FEDGE_SIMULATES && client->simulated ? fedge_simulated_cancelled(client->simulated)
                                                : fedge_worker_cancelled(client->worker);
}

const fedge_log *fedge_client_log(const fedge_client *client)
{
    return client->config.log;
}

fedge_status fedge_client_put(fedge_client *client, const char *key, const void *data, size_t size,
                              fedge_error *err)
{
    if (FEDGE_SIMULATES && client->simulated)
        return fedge_simulated_put(client->simulated, key, data, size, err);
    return fedge_store_put(client->store, fedge_worker_run_id(client->worker), key, data, size,
                           err);
}

fedge_status fedge_client_get(fedge_client *client, const char *key, void **data, size_t *size,
                              fedge_error *err)
{
    *data = NULL;
    uint8_t *bytes;
    if (FEDGE_SIMULATES && client->simulated)
        return fedge_simulated_get(client->simulated, key, data, size, err);
    FEDGE_TRY(fedge_store_get(client->store, fedge_worker_run_id(client->worker), key, &bytes, size,
                              err));
    *data = bytes;
    return FEDGE_OK;
}

fedge_exit fedge_client_exit_code(fedge_status status)
{
    switch (status) {
    case FEDGE_OK:
        return FEDGE_EXIT_OK;
    case FEDGE_INVALID_ARGUMENT:
        return FEDGE_EXIT_USAGE;
    case FEDGE_DENIED:
    case FEDGE_EXPIRED:
        return FEDGE_EXIT_IDENTITY;
    case FEDGE_NO_MEMORY:
    case FEDGE_INTERNAL:
        return FEDGE_EXIT_INTERNAL;
    default:
        return FEDGE_EXIT_STATE;
    }
}
