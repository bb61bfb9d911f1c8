#define _GNU_SOURCE /* fork */

#include "aggregator/simulate/output/results.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define POINTS_FILE "results-points.csv"
#include "aggregator/store/checkpoint.h"
#include "aggregator/store/model_file.h"
#include "aggregator/store/round_log.h"
#include "edge/core/os.h"
#include "tests/aggregator/simulate/run/fixture.h"
#include "tests/world/disk_stub.h"

#define OUT "simulate-results"
static const char *out = OUT; /* elsewhere where the power fails */
#define CLIENTS 7u
#define MAX_LINES 32
#define LAST_ROUND 3u /* of what the power fails in */

/* What a run is of. */
typedef struct trial {
    const char *rounds, *more; /* of the job */
    const char *compute;       /* of the profiles; NULL: time is not virtual */
    bool save_often;           /* a checkpoint with every line */
    double failure;            /* of the profiles */
    uint64_t profile_seed;
} trial;

/* When a run is to fail, by a callback. */
typedef enum moment {
    NEVER,
    BEFORE_THE_LINE,
    BEHIND_THE_LINE,
    INTERRUPTED,
    NO_ROOM /* for a checkpoint; for other files there is */
} moment;

typedef struct run {
    fedge_results results;
    fedge_simulation *simulation;
    bool save_often;
    moment moment;
    uint32_t fail_at; /* phase of this run, from 1 */
    uint32_t num_phases;
    bool told; /* a phase ended where the end of a run was told already */
    char resume_note[FEDGE_RESULTS_MAX_NOTE];
} run;

static fedge_status on_round(void *user, const fedge_round_summary *summary, fedge_error *err)
{
    run *self = user;
    const bool fails = ++self->num_phases == self->fail_at;
    if (fails && self->moment == BEFORE_THE_LINE)
        return fedge_fail(err, FEDGE_NO_SPACE, "full");
    if (fails && self->moment == NO_ROOM) {
        fedge_status status = fedge_os_remove_tree(OUT "/checkpoints", err);
        if (status == FEDGE_OK)
            status = fedge_os_write_file(OUT "/checkpoints", "", 0, 0644, err);
        assert_int_equal(status, FEDGE_OK);
    }
    self->results.interval_ms = self->save_often ? 0 : self->results.interval_ms;
    const fedge_status status = fedge_results_round(&self->results, self->simulation, summary, err);
    self->told =
        self->told || fedge_os_exists(OUT "/summary.json") || fedge_os_exists(OUT "/rounds.svg");
    return status == FEDGE_OK && fails && self->moment == BEHIND_THE_LINE
               ? fedge_fail(err, FEDGE_NO_SPACE, "full")
               : status;
}

static bool is_over(void *user)
{
    const run *self = user;
    return self->moment == INTERRUPTED && self->num_phases == self->fail_at;
}

static void must(fedge_status status, const fedge_error *err)
{
    if (status != FEDGE_OK)
        fail_msg("%s", err->message);
}

/* Begins or goes on in OUT, and runs to the end or to the failure. */
static fedge_status play(const trial *of, bool resume, moment when, uint32_t fail_at, run *self)
{
    fedge_error err;
    const uint32_t node = stub.node;
    stub.node = WORLD_ITSELF; /* the examples are in a real file */
    fedge_job *job = make_job(of->rounds, of->more);
    fedge_client_data *client_data = make_client_data(job, "dirichlet:0.5", CLIENTS,
                                                      job->rounds.fraction_evaluate > 0 ? 0.2 : 0);
    const fedge_client_profiles_settings profile_settings = {.compute = of->compute,
                                                             .failure = of->failure};
    const fedge_simulation_settings settings = {.num_clients = CLIENTS,
                                                .partition = "dirichlet:0.5",
                                                .num_rounds = job->rounds.num_server_rounds};
    stub.node = node;
    fedge_client_profiles *profiles = NULL;
    const fedge_final_evaluation final_evaluation = {0};
    *self = (run){.moment = when, .fail_at = fail_at, .save_often = of->save_often};
    if (of->compute) {
        must(fedge_client_profiles_new(&profile_settings, of->profile_seed, CLIENTS, &profiles,
                                       &err),
             &err);
    }
    const fedge_simulation_config config = {.job = job,
                                            .client_data = client_data,
                                            .test_set = client_data->dataset,
                                            .profiles = profiles,
                                            .num_threads = 2,
                                            .evaluate_every = 1,
                                            .cancel = is_over,
                                            .on_round = on_round,
                                            .user = self};
    must(fedge_simulation_new(&config, &self->simulation, &err), &err);
    const fedge_results_config results = {.dir = out,
                                          .resume = resume,
                                          .job = job,
                                          .job_text = "{}",
                                          .job_size = 2,
                                          .settings = &settings};
    must(fedge_results_open(&self->results, &results, &err), &err);
    const bool ended = fedge_os_exists(OUT "/summary.json");
    must(fedge_results_begin(&self->results, self->simulation, &err), &err);
    assert_int_equal(fedge_os_exists(OUT "/summary.json"), ended); /* until a phase follows */
    const fedge_status status = fedge_simulation_run(self->simulation, &err);
    assert_false(self->told);
    if (status == FEDGE_OK || status == FEDGE_CANCELLED) {
        must(fedge_results_finish(&self->results, self->simulation, &final_evaluation, "complete",
                                  &err),
             &err);
    } else {
        fedge_results_fail(&self->results, self->simulation, &final_evaluation, self->resume_note);
    }
    fedge_results_close(&self->results);
    fedge_simulation_free(self->simulation);
    fedge_client_profiles_free(profiles);
    fedge_client_data_free(client_data);
    fedge_job_free(job);
    return status;
}

typedef struct lines {
    fedge_round_summary at[MAX_LINES];
    uint32_t count;
} lines;

static fedge_status take_line(void *user, const fedge_round_summary *summary, fedge_error *err)
{
    lines *self = user;
    (void)err;
    assert_true(self->count < MAX_LINES);
    self->at[self->count++] = *summary;
    return FEDGE_OK;
}

static void read_lines(lines *to)
{
    fedge_error err;
    to->count = 0;
    must(fedge_round_lines_read(OUT "/rounds.jsonl", take_line, to, &err), &err);
}

static void read_file(const char *path, uint8_t **file, size_t *size)
{
    fedge_error err;
    must(fedge_os_read_file(path, 1 << 20, file, size, &err), &err);
}

static void clear(void)
{
    fedge_error err;
    must(fedge_os_remove_tree(OUT, &err), &err);
}

/* model.safetensors is that of this line. */
static void assert_model(const fedge_round_summary *line)
{
    fedge_model_report report;
    fedge_error err;
    char round[16];
    must(fedge_model_file_read(OUT "/model.safetensors", &report, &err), &err);
    assert_string_equal(report.model, line->model);
    (void)snprintf(round, sizeof(round), "%u", line->round);
    const cJSON *said = cJSON_GetObjectItem(report.metadata, "round");
    assert_string_equal(cJSON_GetStringValue(said), round);
    said = cJSON_GetObjectItem(report.metadata, "model_sha256");
    assert_string_equal(cJSON_GetStringValue(said), line->model);
    fedge_model_report_fini(&report);
}

static void assert_same(const lines *a, const lines *b)
{
    assert_int_equal(a->count, b->count);
    for (uint32_t i = 0; i < a->count; i++) {
        const fedge_round_summary *x = &a->at[i], *y = &b->at[i];
        assert_int_equal(x->round, y->round);
        assert_int_equal(x->kind, y->kind);
        assert_int_equal(x->examples, y->examples);
        assert_string_equal(x->model, y->model);
        assert_true(x->loss == y->loss && x->accuracy == y->accuracy);
        assert_true(x->virtual_phase.time == y->virtual_phase.time || !x->virtual_phase.present);
    }
}

/* What a run that fails at [fail_at] keeps, and that it goes on from there to the same end. */
static void fail_and_go_on(const trial *of, moment when, uint32_t fail_at, const lines *whole)
{
    run self;
    lines stored, all;
    const fedge_round_summary *last = &whole->at[fail_at - 1];
    clear();
    assert_int_equal(play(of, false, when, fail_at, &self), FEDGE_NO_SPACE);
    read_lines(&stored);
    assert_int_equal(stored.count, when == BEFORE_THE_LINE ? fail_at - 1 : fail_at);
    assert_int_equal(self.results.run_summary.rounds,
                     stored.count ? stored.at[stored.count - 1].round : 0);
    /* The model of a round without a line is gone with its round before. */
    const bool trains = last->kind == FEDGE_TASK_TRAIN;
    if (when == BEHIND_THE_LINE || !trains) {
        assert_int_equal(self.results.checkpoint, last->round);
        assert_non_null(strstr(self.resume_note, "--resume continues there"));
        assert_model(trains ? last : last - 1);
    } else {
        assert_int_equal(self.results.checkpoint, of->save_often ? last->round - 1 : 0);
        assert_non_null(
            strstr(self.resume_note, self.results.checkpoint ? "continues there" : "starts again"));
    }
    assert_int_equal(play(of, true, NEVER, 0, &self), FEDGE_OK);
    read_lines(&all);
    assert_same(&all, whole);
    assert_model(whole->at[whole->count - 1].kind == FEDGE_TASK_TRAIN
                     ? &whole->at[whole->count - 1]
                     : &whole->at[whole->count - 2]);
}

static void a_failed_run_goes_on_to_the_same_end(void **state)
{
    (void)state;
    static const char scaffold[] = ",\"strategy\":{\"type\":\"SCAFFOLD\",\"num-clients\":7}";
    static const char plain[] = "\"num-server-rounds\":3,\"fraction-train\":0.6";
    static const char tested[] = "\"num-server-rounds\":3,\"fraction-train\":0.6,"
                                 "\"fraction-evaluate\":0.5";
    static const trial trials[] = {{.rounds = plain, .more = scaffold, .save_often = true},
                                   {.rounds = tested, .more = scaffold},
                                   {.rounds = tested, .more = "", .compute = "uniform:1,99"}};
    for (size_t t = 0; t < sizeof(trials) / sizeof(trials[0]); t++) {
        run self;
        lines whole;
        clear();
        assert_int_equal(play(&trials[t], false, NEVER, 0, &self), FEDGE_OK);
        assert_string_equal(self.resume_note, "");
        read_lines(&whole);
        assert_int_equal(whole.count, trials[t].rounds == tested ? 6 : 3);
        for (uint32_t at = 1; at <= whole.count; at++) {
            fail_and_go_on(&trials[t], BEFORE_THE_LINE, at, &whole);
            fail_and_go_on(&trials[t], BEHIND_THE_LINE, at, &whole);
        }
    }
    clear();
}

/* Where a round's checkpoint finds no room, the model may. */
static void a_model_is_left_without_a_checkpoint(void **state)
{
    (void)state;
    static const trial of = {.rounds = "\"num-server-rounds\":3", .more = "", .save_often = true};
    run self;
    lines stored;
    clear();
    assert_int_not_equal(play(&of, false, NO_ROOM, 2, &self), FEDGE_OK);
    read_lines(&stored);
    assert_int_equal(stored.count, 2);
    assert_model(&stored.at[1]);
    assert_true(fedge_os_exists(OUT "/summary.json"));
    clear();
}

/* The line whose model is the best of these: of evaluations of [kind], the one with the least loss
 * or the first of the highest accuracy; or NULL. */
static const fedge_round_summary *best_of(const lines *all, fedge_task_kind kind, bool by_loss)
{
    const fedge_round_summary *best = NULL;
    for (uint32_t i = 0; i < all->count; i++) {
        const fedge_round_summary *at = &all->at[i];
        if (at->kind == kind &&
            (!best || (by_loss ? at->loss < best->loss : at->accuracy > best->accuracy)))
            best = at;
    }
    return best;
}

/* model-best.safetensors is that of the round of [line]. */
static void assert_best(const lines *all, const fedge_round_summary *line)
{
    fedge_model_report report;
    fedge_error err;
    char round[16];
    must(fedge_model_file_read(OUT "/model-best.safetensors", &report, &err), &err);
    for (uint32_t i = 0; i < all->count; i++) {
        if (all->at[i].kind == FEDGE_TASK_TRAIN && all->at[i].round == line->round)
            assert_string_equal(report.model, all->at[i].model);
    }
    (void)snprintf(round, sizeof(round), "%u", line->round);
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(report.metadata, "round")), round);
    fedge_model_report_fini(&report);
}

/* Nothing but [count] files of best models is in checkpoints/. */
static fedge_status count_best(void *user, const char *name, fedge_error *err)
{
    (void)err;
    *(uint32_t *)user += strncmp(name, "best-", 5) == 0;
    return FEDGE_OK;
}

/* The best round's model is there at the end, wherever the run was cut off. */
static void the_best_model_is_kept(void **state)
{
    (void)state;
    static const char rounds[] = "\"num-server-rounds\":7,\"fraction-train\":0.6";
    static const char both[] = "\"num-server-rounds\":5,\"fraction-train\":0.4,"
                               "\"fraction-evaluate\":0.5";
    static const char tested[] =
        ",\"strategy\":{\"server-learning-rate\":4},\"test-set\":{\"values\":\"x\"},"
        "\"keep-best\":{\"metric\":\"test-accuracy\"}";
    static const char validated[] = ",\"strategy\":{\"server-learning-rate\":4},"
                                    "\"keep-best\":{\"metric\":\"validation-loss\"}";
    static const trial trials[] = {{.rounds = rounds, .more = tested, .save_often = true},
                                   {.rounds = rounds, .more = tested},
                                   {.rounds = both, .more = validated, .save_often = true},
                                   {.rounds = both, .more = validated}};
    for (size_t t = 0; t < sizeof(trials) / sizeof(trials[0]); t++) {
        run self;
        lines whole, all;
        fedge_error err;
        const bool clients = trials[t].rounds == both;
        clear();
        assert_int_equal(play(&trials[t], false, NEVER, 0, &self), FEDGE_OK);
        read_lines(&whole);
        const fedge_round_summary *best =
            best_of(&whole, clients ? FEDGE_TASK_EVALUATE : FEDGE_TASK_TRAIN, clients);
        assert_in_range(best->round, 2, clients ? 4 : 6); /* neither the first nor the last */
        assert_best(&whole, best);
        for (uint32_t at = 1; at <= whole.count; at += trials[t].save_often ? 1 : 3) {
            uint32_t files = 0;
            clear();
            const moment when = (at + t) % 2 ? BEFORE_THE_LINE : BEHIND_THE_LINE;
            assert_int_equal(play(&trials[t], false, when, at, &self), FEDGE_NO_SPACE);
            assert_int_equal(play(&trials[t], true, NEVER, 0, &self), FEDGE_OK);
            read_lines(&all);
            assert_same(&all, &whole);
            assert_best(&all, best);
            must(fedge_os_list_dir(OUT "/checkpoints", count_best, &files, &err), &err);
            assert_int_equal(files, 1);
        }
    }
    clear();
}

/* A file that is not the best round's model is none to go on with. */
static void a_damaged_best_model_is_refused(void **state)
{
    (void)state;
    static const trial of = {.rounds = "\"num-server-rounds\":6",
                             .more = ",\"test-set\":{\"values\":\"x\"},\"keep-best\":{}",
                             .save_often = true};
    fedge_best_model best = {.values = NULL};
    fedge_selected selected = {.round = 1};
    fedge_error err;
    fedge_job *job = make_job(of.rounds, of.more);
    float *values = calloc(job->plan.schema.num_elements, sizeof(*values));
    clear();
    must(fedge_os_make_dirs(OUT "/checkpoints", &err), &err);
    must(fedge_best_model_take(&best, &job->plan, 1, values, &err), &err);
    must(fedge_best_model_save(&best, &job->plan, OUT, &err), &err);
    must(fedge_best_model_prune(&best, OUT, true, &err), &err);
    assert_int_equal(best.saved, 1);
    assert_int_equal(fedge_best_model_load(&best, &job->plan, OUT, &selected, &err), FEDGE_CORRUPT);
    selected.round = 2;
    assert_int_equal(fedge_best_model_load(&best, &job->plan, OUT, &selected, &err),
                     FEDGE_NOT_FOUND);
    assert_true(fedge_best_model_is_leftover("best-000002.safetensors", 1));
    assert_true(fedge_best_model_is_leftover("best-000001.safetensors.abcdef.tmp", 1));
    assert_false(fedge_best_model_is_leftover("best-000001.safetensors", 1));
    assert_false(fedge_best_model_is_leftover("best-000001.safe", 2));
    fedge_best_model_fini(&best);
    free(values);
    fedge_job_free(job);
    clear();
}

/* After [patience] evaluations without a better one no round follows, cut off or not; the clients'
 * evaluation of the last round does. */
static void a_run_stops_early(void **state)
{
    (void)state;
    static const char by_test[] =
        ",\"test-set\":{\"values\":\"x\"},\"keep-best\":{\"metric\":\"test-loss\"},"
        "\"early-stopping\":{\"metric\":\"test-accuracy\",\"patience\":2,\"min-delta\":2}";
    static const char by_clients[] =
        ",\"early-stopping\":{\"metric\":\"validation-accuracy\",\"patience\":2,"
        "\"min-delta\":2}";
    static const char plain[] = "\"num-server-rounds\":9,\"fraction-train\":0.6";
    static const char both[] = "\"num-server-rounds\":9,\"fraction-train\":0.6,"
                               "\"fraction-evaluate\":0.5";
    static const char scaffold[] =
        ",\"strategy\":{\"type\":\"SCAFFOLD\",\"num-clients\":7},"
        "\"early-stopping\":{\"metric\":\"validation-loss\",\"patience\":2,\"min-delta\":1e6}";
    static const trial trials[] = {{.rounds = plain, .more = by_test, .save_often = true},
                                   {.rounds = both, .more = by_test},
                                   {.rounds = both, .more = by_clients, .save_often = true},
                                   {.rounds = both, .more = by_clients, .compute = "uniform:1,99"},
                                   {.rounds = both, .more = scaffold, .save_often = true}};
    for (size_t t = 0; t < sizeof(trials) / sizeof(trials[0]); t++) {
        run self;
        lines whole, all;
        clear();
        assert_int_equal(play(&trials[t], false, NEVER, 0, &self), FEDGE_OK);
        read_lines(&whole);
        assert_int_equal(whole.count, trials[t].rounds == both ? 6 : 3);
        assert_int_equal(whole.at[whole.count - 1].round, 3);
        assert_true(fedge_selection_is_over(&self.results.run_summary.selection));
        for (uint32_t at = 1; at <= whole.count; at++) {
            static const moment MOMENTS[] = {BEFORE_THE_LINE, BEHIND_THE_LINE, INTERRUPTED};
            clear();
            (void)play(&trials[t], false, MOMENTS[(at + t) % 3], at, &self);
            assert_int_equal(play(&trials[t], true, NEVER, 0, &self), FEDGE_OK);
            read_lines(&all);
            assert_same(&all, &whole);
        }
        assert_int_equal(play(&trials[t], true, NEVER, 0, &self), FEDGE_OK); /* it is over */
        read_lines(&all);
        assert_same(&all, &whole);
    }
    clear();
}

/* Twice: what is kept the second time is of the second time. */
static void a_run_fails_again(void **state)
{
    (void)state;
    static const trial of = {.rounds = "\"num-server-rounds\":6", .more = ""};
    run self;
    lines whole, all;
    clear();
    assert_int_equal(play(&of, false, NEVER, 0, &self), FEDGE_OK);
    read_lines(&whole);
    clear();
    assert_int_equal(play(&of, false, BEHIND_THE_LINE, 2, &self), FEDGE_NO_SPACE);
    assert_int_equal(play(&of, true, BEFORE_THE_LINE, 2, &self), FEDGE_NO_SPACE);
    assert_int_equal(self.results.checkpoint, 2);
    assert_non_null(strstr(self.resume_note, OUT ": 3 rounds, checkpoint of round 2: "));
    assert_model(&whole.at[1]);
    assert_int_equal(play(&of, true, BEHIND_THE_LINE, 2, &self), FEDGE_NO_SPACE);
    assert_int_equal(self.results.checkpoint, 4);
    assert_int_equal(play(&of, true, NEVER, 0, &self), FEDGE_OK);
    read_lines(&all);
    assert_same(&all, &whole);
    clear();
}

/* A round that fails ten times moves the variates of those who trained in it: what is kept is as it
 * was before. */
static void attempts_that_failed_leave_nothing(void **state)
{
    (void)state;
    trial of = {.rounds = "\"num-server-rounds\":9,\"min-report-fraction\":1",
                .more = ",\"strategy\":{\"type\":\"SCAFFOLD\",\"num-clients\":7}",
                .compute = "uniform:1,99",
                .failure = 0.25};
    uint32_t compared = 0;
    for (; of.profile_seed < 40 && compared < 2; of.profile_seed++) {
        run self;
        uint8_t *variates[2], *models[2];
        size_t sizes[2][2];
        char path[64];
        clear();
        (void)play(&of, false, NEVER, 0, &self);
        const uint32_t rounds = self.results.run_summary.rounds;
        if (rounds == 0 || rounds == 9)
            continue;
        (void)snprintf(path, sizeof(path), OUT "/checkpoints/variates-%06u.bin", rounds);
        for (uint32_t i = 0; i < 2; i++) {
            read_file(path, &variates[i], &sizes[i][0]);
            read_file(OUT "/model.safetensors", &models[i], &sizes[i][1]);
            if (i == 0) {
                clear();
                assert_int_equal(play(&of, false, INTERRUPTED, rounds, &self), FEDGE_CANCELLED);
            }
        }
        assert_memory_equal(sizes[0], sizes[1], sizeof(sizes[0]));
        assert_memory_equal(variates[0], variates[1], sizes[0][0]);
        assert_memory_equal(models[0], models[1], sizes[0][1]);
        for (uint32_t i = 0; i < 2; i++) {
            free(variates[i]);
            free(models[i]);
        }
        compared++;
    }
    assert_int_equal(compared, 2);
    clear();
}

static void touch(const char *path)
{
    fedge_error err;
    must(fedge_os_write_file(path, "x", 1, 0600, &err), &err);
}

/* Three rounds whose checkpoints have variates beside them. */
static const trial SHORT = {.rounds = "\"num-server-rounds\":3",
                            .more = ",\"strategy\":{\"type\":\"SCAFFOLD\",\"num-clients\":7}"};

/* Stopped before the first round has closed, and killed at some other time. */
static void nothing_is_left_behind(void **state)
{
    (void)state;
    run self;
    fedge_error err;
    clear();
    assert_int_equal(play(&SHORT, false, INTERRUPTED, 0, &self), FEDGE_CANCELLED);
    assert_true(fedge_os_exists(OUT "/checkpoints/round-000000"));
    touch(OUT "/partition.svg.aB3dE6.tmp");
    touch(OUT "/simulation.json.aB3dE6.tmp");
    touch(OUT "/notes.svg.aB3dE6.tmp"); /* somebody else's */
    touch(OUT "/checkpoints/variates-000002.bin.new");
    touch(OUT "/checkpoints/best.new"); /* somebody else's too */
    must(fedge_os_make_dirs(OUT "/checkpoints/round-000002.new", &err), &err);
    assert_int_equal(play(&SHORT, true, NEVER, 0, &self), FEDGE_OK);
    assert_false(fedge_os_exists(OUT "/checkpoints/round-000000"));
    assert_false(fedge_os_exists(OUT "/checkpoints/round-000002.new"));
    assert_false(fedge_os_exists(OUT "/checkpoints/variates-000002.bin.new"));
    assert_true(fedge_os_exists(OUT "/checkpoints/round-000003"));
    assert_false(fedge_os_exists(OUT "/partition.svg.aB3dE6.tmp"));
    assert_false(fedge_os_exists(OUT "/simulation.json.aB3dE6.tmp"));
    assert_true(fedge_os_exists(OUT "/notes.svg.aB3dE6.tmp"));
    assert_true(fedge_os_exists(OUT "/checkpoints/best.new"));
}

/* Killed between a checkpoint and the removal of those before it. */
static void older_checkpoints_go(void **state)
{
    (void)state;
    run self;
    fedge_error err;
    clear();
    assert_int_equal(play(&SHORT, false, INTERRUPTED, 2, &self), FEDGE_CANCELLED);
    assert_true(fedge_os_exists(OUT "/checkpoints/variates-000002.bin"));
    must(fedge_os_make_dirs(OUT "/checkpoints/round-000001", &err), &err);
    touch(OUT "/checkpoints/variates-000001.bin");
    touch(OUT "/checkpoints/variates-000003.bin"); /* whose checkpoint did not come to be */
    touch(OUT "/checkpoints/round-000001.txt");    /* somebody else's */
    assert_int_equal(play(&SHORT, true, NEVER, 0, &self), FEDGE_OK);
    assert_false(fedge_os_exists(OUT "/checkpoints/round-000001"));
    assert_false(fedge_os_exists(OUT "/checkpoints/variates-000001.bin"));
    assert_false(fedge_os_exists(OUT "/checkpoints/variates-000003.bin"));
    assert_true(fedge_os_exists(OUT "/checkpoints/round-000001.txt"));
    assert_true(fedge_os_exists(OUT "/checkpoints/round-000003"));
}

/* Killed while a checkpoint took the place of the one of its round: that comes back. */
static void a_checkpoint_comes_back_to_its_place(void **state)
{
    (void)state;
    run self;
    fedge_error err;
    clear();
    assert_int_equal(play(&SHORT, false, NEVER, 0, &self), FEDGE_OK);
    must(
        fedge_os_rename(OUT "/checkpoints/round-000003", OUT "/checkpoints/round-000003.old", &err),
        &err);
    must(fedge_os_make_dirs(OUT "/checkpoints/round-000003.new", &err), &err);
    assert_int_equal(play(&SHORT, true, NEVER, 0, &self), FEDGE_OK);
    assert_int_equal(self.num_phases, 0); /* nothing was lost */
    assert_false(fedge_os_exists(OUT "/checkpoints/round-000003.old"));
    assert_false(fedge_os_exists(OUT "/checkpoints/round-000003.new"));
}

/* OUT, as the power failure has left it: the newest checkpoint's lines and variates are there. */
static void assert_goes_on_from(const char *image)
{
    char checkpoints[100], lines_path[100], variates[160], note[256];
    fedge_checkpoint_data data;
    fedge_round_log log;
    fedge_error err;
    snprintf(checkpoints, sizeof(checkpoints), "%s/checkpoints", image);
    snprintf(lines_path, sizeof(lines_path), "%s/rounds.jsonl", image);
    const fedge_status status =
        fedge_os_exists(checkpoints)
            ? fedge_checkpoint_load_newest(checkpoints, &data, note, sizeof(note), &err)
            : FEDGE_NOT_FOUND;
    if (status == FEDGE_NOT_FOUND)
        return;
    must(status, &err);
    assert_string_equal(note, "");
    const uint32_t round = data.checkpoint.round;
    snprintf(variates, sizeof(variates), "%s/variates-%06u.bin", checkpoints, (unsigned)round);
    assert_true(round == 0 || round == LAST_ROUND || fedge_os_exists(variates));
    must(fedge_round_log_open(&log, lines_path, round, &err), &err);
    assert_int_equal(log.last_round, round);
    fedge_round_log_close(&log);
    fedge_checkpoint_data_fini(&data);
}

/* The power fails at the call of this number, in a process of its own, whose threads end with it.
 * False: the run had ended before. */
static bool power_fails_at(uint64_t call)
{
    static const trial of = {.rounds = "\"num-server-rounds\":3", /* LAST_ROUND */
                             .more = ",\"strategy\":{\"type\":\"SCAFFOLD\",\"num-clients\":7}",
                             .save_often = true};
    run self;
    begin(call);
    out = WORLD_DISK_ROOT "/out";
    set_faults((world_disk_faults){.die_at = call});
    const bool fails = setjmp(stub.killed) != 0;
    if (!fails)
        assert_int_equal(play(&of, false, NEVER, 0, &self), FEDGE_OK);
    set_faults((world_disk_faults){0});
    power_off();
    assert_goes_on_from(out);
    return fails;
}

static void the_power_fails_at_any_call(void **state)
{
    (void)state;
    enum { POWER_FAILED = 42 };
    int code = POWER_FAILED;
    /* The thread sanitizer waits a second at the end of each process. */
#if defined(__SANITIZE_THREAD__)
    const uint64_t step = 40;
#else
    const uint64_t step = 1;
#endif
    for (uint64_t call = 1; code == POWER_FAILED; call += step) {
        int status;
        (void)fflush(NULL);
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            _exit(power_fails_at(call) ? POWER_FAILED : 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        code = WEXITSTATUS(status);
    }
    assert_int_equal(code, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_run_goes_on_to_the_same_end),
        cmocka_unit_test(a_model_is_left_without_a_checkpoint),
        cmocka_unit_test(the_best_model_is_kept),
        cmocka_unit_test(a_damaged_best_model_is_refused),
        cmocka_unit_test(a_run_stops_early),
        cmocka_unit_test(a_run_fails_again),
        cmocka_unit_test(attempts_that_failed_leave_nothing),
        cmocka_unit_test(nothing_is_left_behind),
        cmocka_unit_test(older_checkpoints_go),
        cmocka_unit_test(a_checkpoint_comes_back_to_its_place),
        cmocka_unit_test(the_power_fails_at_any_call),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
