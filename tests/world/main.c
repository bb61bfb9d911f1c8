/* Runs simulated federations by their seeds. tests/world.sh builds and runs it; --help describes
 * it. */
#define _XOPEN_SOURCE 700 /* clock_gettime, sigaltstack */

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/world/plan.h"
#include "tests/world/shrink.h"
#include "tests/world/trace.h"
#include "tests/world/world.h"

static const char HELP[] =
    "world: simulates whole federations with faults, one for each seed\n"
    "\n"
    "  --seeds N     the number of worlds (default 100)\n"
    "  --from S      the first seed (default 1)\n"
    "  --minutes M   begins no world after this time; may be a fraction\n"
    "  --seed S      only this world\n"
    "  --trace       prints what happens, line by line\n"
    "  --job         prints the world's job and its faults, and ends\n"
    "  --skip S      leaves this seed out; may be repeated\n"
    "  --go-on       continues after a world that fails\n"
    "  --shrink      removes what a failing world does not need, and prints the options for the "
    "rest\n"
    "  --twice       runs each world twice: both runs must be equal\n"
    "  --ranks       only worlds whose server has several ranks; --seeds counts only these\n"
    "  --strategy T  only worlds with this strategy; --seeds counts all\n"
    "\n"
    "Removed from the world of each seed (--shrink finds what can be removed):\n"
    "  --without B   faults, as a number with a bit for each\n"
    "  --rounds R, --clients C   rounds and clients above this number and what a run needs\n"
    "  --peaceful    hostile clients\n"
    "  --order K     the order of steps: K selects another one\n"
    "\n"
    "Exit code 0: no world failed; 1: a world failed, and its seed is printed; 2: wrong "
    "arguments.\n";

enum {
    MAX_SKIPPED = 64,
    LONGEST_S = 600 /* time limit of a world, which takes some milliseconds */
};

typedef struct options {
    uint64_t from, count;
    double minutes;       /* 0: no limit */
    const char *strategy; /* NULL: any */
    bool trace, job, twice, go_on, shrinks, ranks;
    shrink_cuts cuts;
    uint64_t skipped[MAX_SKIPPED];
    uint32_t num_skipped;
} options;

static double now_s(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int wrong(const char *what)
{
    fprintf(stderr, "world: %s: see --help\n", what);
    return 2;
}

/* Returns the value after an option; exits if there is none. */
static const char *value(char **argv, int *at)
{
    const char *option = argv[(*at)++];
    if (!argv[*at]) {
        (void)wrong(option);
        exit(2);
    }
    return argv[*at];
}

static uint64_t number(char **argv, int *at)
{
    return strtoull(value(argv, at), NULL, 10);
}

/* Parses an option without a value; false: it is none. */
static bool parse_flag(const char *option, options *out)
{
    const struct {
        const char *name;
        bool *flag;
    } flags[] = {{"--trace", &out->trace}, {"--job", &out->job},
                 {"--go-on", &out->go_on}, {"--shrink", &out->shrinks},
                 {"--twice", &out->twice}, {"--peaceful", &out->cuts.peaceful},
                 {"--ranks", &out->ranks}};
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        if (strcmp(option, flags[i].name) == 0) {
            *flags[i].flag = true;
            return true;
        }
    }
    return false;
}

static int parse(char **argv, options *out)
{
    *out = (options){.from = 1, .count = 100};
    for (int i = 1; argv[i]; i++) {
        if (parse_flag(argv[i], out)) {
            continue;
        } else if (strcmp(argv[i], "--seeds") == 0) {
            out->count = number(argv, &i);
        } else if (strcmp(argv[i], "--from") == 0) {
            out->from = number(argv, &i);
        } else if (strcmp(argv[i], "--minutes") == 0) {
            out->minutes = strtod(value(argv, &i), NULL);
        } else if (strcmp(argv[i], "--seed") == 0) {
            out->from = number(argv, &i);
            out->count = 1;
        } else if (strcmp(argv[i], "--skip") == 0 && out->num_skipped < MAX_SKIPPED) {
            out->skipped[out->num_skipped++] = number(argv, &i);
        } else if (strcmp(argv[i], "--strategy") == 0) {
            out->strategy = value(argv, &i);
        } else if (strcmp(argv[i], "--without") == 0) {
            out->cuts.without = (uint32_t)number(argv, &i);
        } else if (strcmp(argv[i], "--rounds") == 0) {
            out->cuts.rounds = (uint32_t)number(argv, &i);
        } else if (strcmp(argv[i], "--clients") == 0) {
            out->cuts.clients = (uint32_t)number(argv, &i);
        } else if (strcmp(argv[i], "--order") == 0) {
            out->cuts.order = (uint32_t)number(argv, &i);
        } else if (strcmp(argv[i], "--help") == 0) {
            fputs(HELP, stdout);
            exit(0);
        } else {
            return wrong(argv[i]);
        }
    }
    return 0;
}

static void print_plan(const world_plan *of)
{
    printf("%s\n%u clients, %u workers, %u GPUs, %u hostile clients for %.3f s\n", of->job.text,
           (unsigned)of->job.num_clients, (unsigned)of->num_workers, (unsigned)of->num_gpus,
           (unsigned)of->num_hostile, (double)of->hostile_until_ns * 1e-9);
    for (uint32_t i = 0; i < of->job.num_clients; i++) {
        const plan_site *site = &of->sites[i];
        if (site->kind != PLAN_SITE_NONE) {
            printf("client %u has a site of kind %d, condition %d, not met from %.3f s to %.3f s\n",
                   (unsigned)i, (int)site->kind, (int)site->condition,
                   (double)site->unmet_from_ns * 1e-9, (double)site->unmet_until_ns * 1e-9);
        }
    }
    if (of->num_ranks > 1) {
        printf("%u ranks%s%s\n", (unsigned)of->num_ranks, of->ranks_vary ? ", or fewer" : "",
               of->shares_disk ? ", on one disk" : "");
    }
    for (uint32_t i = 0; i < of->num_faults; i++) {
        const plan_fault *fault = &of->faults[i];
        printf("fault %u: node %u, %s at %.3f s or step %llu for %.3f s, number %llu, error %d\n",
               (unsigned)i, (unsigned)fault->node, plan_fault_text(fault->kind),
               (double)fault->at_ns * 1e-9, (unsigned long long)fault->at_step,
               (double)fault->lasts_ns * 1e-9, (unsigned long long)fault->number, fault->error);
    }
}

static bool run_one(const options *how, uint64_t seed, world_outcome *outcome)
{
    static world_plan drawn;
    shrink_plan(seed, &how->cuts, &drawn);
    if (how->job) {
        print_plan(&drawn);
        return true;
    }
    (void)alarm(LONGEST_S);
    world_run(&drawn, outcome);
    if (how->twice && !outcome->failed) {
        const uint64_t hash = outcome->hash;
        world_run(&drawn, outcome);
        if (hash != outcome->hash) {
            outcome->failed = true;
            (void)snprintf(outcome->why, sizeof(outcome->why), "a second run went another way");
        }
    }
    (void)alarm(0);
    return !outcome->failed;
}

static void report(const options *how, uint64_t seed, const world_outcome *outcome)
{
    printf("world: seed %llu failed: %s\n", (unsigned long long)seed, outcome->why);
    if (how->shrinks) {
        shrink_cuts cuts = how->cuts;
        world_trace_print(false);
        shrink(seed, &cuts);
        world_trace_print(how->trace);
        printf("world: smaller: --seed %llu --without %u --rounds %u --clients %u --order %u%s\n",
               (unsigned long long)seed, (unsigned)cuts.without, (unsigned)cuts.rounds,
               (unsigned)cuts.clients, (unsigned)cuts.order, cuts.peaceful ? " --peaceful" : "");
    }
    fflush(stdout);
}

/* Sums over the worlds of one call. */
typedef struct tally {
    uint64_t hash; /* hash of all worlds' traces: it stays the same if a change alters no world */
    uint64_t worlds, complete, kills, steps, failed, server_bytes, client_bytes;
} tally;

static uint64_t greater(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void add(tally *to, const world_outcome *outcome)
{
    to->worlds++;
    to->hash = (to->hash ^ outcome->hash) * 1099511628211u;
    to->complete += outcome->complete;
    to->kills += outcome->num_kills;
    to->steps += outcome->steps;
    to->failed += outcome->failed;
    to->server_bytes = greater(to->server_bytes, outcome->server_bytes);
    to->client_bytes = greater(to->client_bytes, outcome->client_bytes);
}

static void print_tally(const tally *of, double seconds)
{
    printf("world: %llu worlds (%llu complete, %llu kills) in %.1f s: %.0f a second, %.0f steps "
           "each, hash %016llx; at most %.1f MB of memory in a server, %.1f MB in a client\n",
           (unsigned long long)of->worlds, (unsigned long long)of->complete,
           (unsigned long long)of->kills, seconds, (double)of->worlds / seconds,
           of->worlds > 0 ? (double)of->steps / (double)of->worlds : 0.0,
           (unsigned long long)of->hash, (double)of->server_bytes * 1e-6,
           (double)of->client_bytes * 1e-6);
}

/* ---- crashes --------------------------------------------------------------------------------- */

/* Read by the signal handler, which gets no argument. */
static volatile uint64_t running_seed;

/* Prints the seed when an assertion of the product fails, when it uses invalid memory, or when a
 * fiber loops for ever. */
static void on_crash(int signal)
{
    char line[96];
    const int size =
        snprintf(line, sizeof(line), "world: seed %llu failed: the program ends by signal %d\n",
                 (unsigned long long)running_seed, signal);
    if (write(STDOUT_FILENO, line, (size_t)size) >= 0)
        (void)raise(signal); /* without a handler it ends the program */
}

/* A fiber's stack may be exhausted, so the handler has its own. */
static void watch_for_crashes(void)
{
    static const int SIGNALS[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGALRM};
    static char stack[65536];
    const stack_t other = {.ss_sp = stack, .ss_size = sizeof(stack)};
    (void)sigaltstack(&other, NULL);
    for (size_t i = 0; i < sizeof(SIGNALS) / sizeof(SIGNALS[0]); i++) {
        struct sigaction action = {.sa_handler = on_crash, .sa_flags = SA_ONSTACK}, present;
        sigemptyset(&action.sa_mask);
        action.sa_flags |= (int)SA_RESETHAND;
        /* A sanitizer's own handlers stay. */
        if (sigaction(SIGNALS[i], NULL, &present) == 0 && present.sa_handler == SIG_DFL)
            (void)sigaction(SIGNALS[i], &action, NULL);
    }
}

static bool is_skipped(const options *how, uint64_t seed)
{
    static world_plan drawn;
    if (how->ranks || how->strategy) {
        plan_draw(seed, &drawn);
        if ((how->ranks && drawn.num_ranks == 1) ||
            (how->strategy && strcmp(drawn.job.strategy, how->strategy) != 0))
            return true;
    }
    for (uint32_t i = 0; i < how->num_skipped; i++) {
        if (how->skipped[i] == seed)
            return true;
    }
    return false;
}

int main(int argc, char **argv)
{
    options how;
    tally all = {0};
    (void)argc;
    const int code = parse(argv, &how);
    if (code != 0)
        return code;
    world_set_up();
    watch_for_crashes();
    world_trace_print(how.trace);
    const double begin_s = now_s();
    uint64_t next = how.from;
    const bool counts_worlds = how.ranks && !how.strategy;
    while ((counts_worlds ? all.worlds < how.count : next < how.from + how.count) &&
           (how.go_on || all.failed == 0) &&
           (how.minutes <= 0 || now_s() - begin_s <= 60 * how.minutes)) {
        world_outcome outcome = {0};
        const uint64_t seed = running_seed = next++;
        if (is_skipped(&how, seed))
            continue;
        if (!run_one(&how, seed, &outcome))
            report(&how, seed, &outcome);
        add(&all, &outcome);
    }
    if (!how.job)
        print_tally(&all, now_s() - begin_s);
    return all.failed > 0 ? 1 : 0;
}
