#include "tests/edge/core/cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "edge/core/command_line.h"
#include "edge/core/log.h"

typedef enum mode { MODE_RUN, MODE_CHECK } mode;

typedef struct settings {
    mode action;
    const char *state, *name;
    uint32_t port, workers;
    uint64_t seed;
    bool has_seed, json;
    uint64_t share;
    fedge_log_level level;
    int calls;
    char last[16];
} settings;

static fedge_status take_word(void *to, const char *option, const char *value, fedge_error *err)
{
    settings *given = to;
    given->calls++;
    (void)snprintf(given->last, sizeof(given->last), "%s", value);
    return strcmp(value, "bad") == 0 ? fedge_fail(err, FEDGE_TOO_BIG, "--%s: no", option)
                                     : FEDGE_OK;
}

#define OPTION(name, argument, help, type, field)                                                  \
    FEDGE_OPTION(name, argument, help, type, settings, field)

static const fedge_option OPTIONS[] = {
    {OPTION("state", "DIR", NULL, TEXT, state), .needed = true},
    {OPTION("port", "N", "to listen on", U32, port), .min = 1, .max = 65535, .preset = "9092"},
    {OPTION("workers", "N", "threads", U32, workers), .max = 4, .needed = true},
    {OPTION("name", "TEXT",
            "a name of its own for whoever reads the log, which is much too long for one line",
            TEXT, name)},
    {OPTION("seed", "S", "of the draws", U64, seed), .max = UINT64_C(1) << 53,
     .given = offsetof(settings, has_seed)},
    {OPTION("share", "P", "of the examples", U64, share), .max = 9, .preset = "5"},
    {OPTION("log-level", "LEVEL", "how much to say", LOG_LEVEL, level), .preset = "info"},
    {OPTION("json", NULL, "as JSON", FLAG, json), .advanced = true},
    {OPTION("a-name-that-is-longer-than-the-column", "WORD", "a word", OTHER, last),
     .take = take_word},
    {OPTION("check", NULL, "look, and end", ENUM, action), .min = MODE_CHECK}};

static const fedge_command_line PROGRAM = {.name = "test",
                                           .usage = "Usage: test [OPTION...]\n",
                                           .options = OPTIONS,
                                           .num_options = sizeof(OPTIONS) / sizeof(*OPTIONS),
                                           .help_all = true,
                                           .notes = "Exit: 0\n"};
static const fedge_command_line COMMAND = {.name = "test make",
                                           .command = true,
                                           .usage = "Usage: test make WORD...\n",
                                           .options = OPTIONS,
                                           .num_options = sizeof(OPTIONS) / sizeof(*OPTIONS),
                                           .notes = "",
                                           .arguments = true,
                                           .short_help = true};

static fedge_words words;

/* Of up to 15 arguments with NULL behind them. */
static fedge_status read_line(const fedge_command_line *line, const char *const *arguments,
                              settings *to, fedge_error *err)
{
    static char copies[16][64];
    static char *argv[17];
    int argc = 1;
    argv[0] = copies[0];
    (void)snprintf(copies[0], sizeof(copies[0]), "test");
    for (; arguments[argc - 1]; argc++) {
        (void)snprintf(copies[argc], sizeof(copies[argc]), "%s", arguments[argc - 1]);
        argv[argc] = copies[argc];
    }
    argv[argc] = NULL;
    *to = (settings){.name = NULL};
    return fedge_command_line_read(line, argc, argv, to, &words, err);
}

#define READ(line, to, err, ...) read_line(line, (const char *const[]){__VA_ARGS__, NULL}, to, err)

static void presets_are_read_as_values(void **state)
{
    (void)state;
    settings given;
    fedge_error err;
    assert_int_equal(READ(&PROGRAM, &given, &err, "--json"), FEDGE_OK);
    assert_int_equal(given.port, 9092);
    assert_true(given.share == 5 && given.level == FEDGE_LOG_INFO && given.json);
    assert_true(!given.state && !given.name && !given.has_seed && given.calls == 0);
    assert_int_equal(given.action, MODE_RUN);
    assert_int_equal(words.asked, FEDGE_ASKED_RUN);
}

static void every_type_is_read(void **state)
{
    (void)state;
    settings given;
    fedge_error err;
    assert_int_equal(READ(&PROGRAM, &given, &err, "--state=s", "--port", "1", "--workers", "4",
                          "--seed", "0", "--share", "2", "--log-level", "debug", "--check",
                          "--a-name", "w"),
                     FEDGE_OK);
    assert_string_equal(given.state, "s");
    assert_true(given.port == 1 && given.workers == 4 && given.seed == 0 && given.has_seed);
    assert_true(given.share == 2 && given.level == FEDGE_LOG_DEBUG && !given.json);
    assert_int_equal(given.action, MODE_CHECK);
    assert_int_equal(given.calls, 1); /* the name is cut, and clear */
    assert_string_equal(given.last, "w");
}

static void mistakes_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *one, *two, *said;
    } cases[] = {{"--nonsense", NULL, "unknown option '--nonsense' (see test --help)"},
                 {"--port", NULL, "a value is missing for '--port' (see test --help)"},
                 {"--json=1", NULL, "there is a value, but none is wanted, in '--json=1'"},
                 {"--s", "1", "unknown option '--s'"}, /* state, seed or share */
                 {"word", NULL, "'word' is not an option (see test --help)"},
                 {"--port", "0", "--port must be a number from 1 to 65535, not '0'"},
                 {"--workers", "5", "--workers must be a number from 0 to 4, not '5'"},
                 {"--log-level", "loud", "log level 'loud' is not known"},
                 {"--help=1", NULL, "there is a value, but none is wanted, in '--help=1'"},
                 {"-h", NULL, "unknown option '-h'"},
                 {"-job", "x", "unknown option '-j'"}};
    settings given;
    fedge_error err;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        assert_int_equal(READ(&PROGRAM, &given, &err, cases[i].one, cases[i].two),
                         FEDGE_INVALID_ARGUMENT);
        if (!strstr(err.message, cases[i].said))
            fail_msg("'%s': \"%s\" has no \"%s\"", cases[i].one, err.message, cases[i].said);
    }
    assert_int_equal(READ(&PROGRAM, &given, &err, "--a-name", "bad"), FEDGE_TOO_BIG);
    assert_int_equal(READ(&COMMAND, &given, &err, "--nonsense"), FEDGE_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "(see test make --help)"));
}

static void what_is_needed_is_named(void **state)
{
    (void)state;
    settings given;
    fedge_error err;
    assert_int_equal(READ(&PROGRAM, &given, &err, "--workers", "1"), FEDGE_OK);
    assert_int_equal(fedge_command_line_check(&PROGRAM, &given, &err), FEDGE_INVALID_ARGUMENT);
    assert_string_equal(err.message, "--state is missing (see test --help)");
    assert_int_equal(READ(&PROGRAM, &given, &err, "--state", "s"), FEDGE_OK);
    assert_int_equal(fedge_command_line_check(&PROGRAM, &given, &err), FEDGE_INVALID_ARGUMENT);
    assert_string_equal(err.message, "--workers is missing (see test --help)");
    assert_int_equal(READ(&PROGRAM, &given, &err, "--state", "s", "--workers", "1"), FEDGE_OK);
    assert_int_equal(fedge_command_line_check(&PROGRAM, &given, &err), FEDGE_OK);
}

static void help_and_version_win(void **state)
{
    (void)state;
    settings given;
    fedge_error err;
    assert_int_equal(READ(&PROGRAM, &given, &err, "--help", "--nonsense"), FEDGE_OK);
    assert_int_equal(words.asked, FEDGE_ASKED_HELP);
    assert_int_equal(READ(&PROGRAM, &given, &err, "--help-all", "--nonsense"), FEDGE_OK);
    assert_int_equal(words.asked, FEDGE_ASKED_HELP_ALL);
    assert_int_equal(READ(&COMMAND, &given, &err, "--help-all"), FEDGE_INVALID_ARGUMENT);
    assert_int_equal(READ(&PROGRAM, &given, &err, "--version", "word"), FEDGE_OK);
    assert_int_equal(words.asked, FEDGE_ASKED_VERSION);
    assert_int_equal(READ(&COMMAND, &given, &err, "-h"), FEDGE_OK);
    assert_int_equal(words.asked, FEDGE_ASKED_HELP);
    assert_int_equal(READ(&COMMAND, &given, &err, "--version"), FEDGE_INVALID_ARGUMENT);
}

static void words_are_handed_out(void **state)
{
    (void)state;
    settings given;
    fedge_error err;
    assert_int_equal(READ(&COMMAND, &given, &err, "a", "--json", "b", "--", "--c"), FEDGE_OK);
    assert_int_equal(words.num, 3);
    assert_string_equal(words.at[0], "a");
    assert_string_equal(words.at[1], "b");
    assert_string_equal(words.at[2], "--c");
    assert_true(given.json);
    assert_int_equal(READ(&COMMAND, &given, &err, "--json"), FEDGE_OK);
    assert_int_equal(words.num, 0);
}

static void help_is_made_of_the_table(void **state)
{
    (void)state;
    char text[FEDGE_HELP_SIZE];
    assert_string_equal(
        fedge_command_line_help(&PROGRAM, true, text),
        "Usage: test [OPTION...]\n"
        "  --port N           to listen on (9092)\n"
        "  --workers N        threads\n"
        "  --name TEXT        a name of its own for whoever reads the log, which is much\n"
        "                     too long for one line\n"
        "  --seed S           of the draws\n"
        "  --share P          of the examples (5)\n"
        "  --log-level LEVEL  how much to say (info)\n"
        "  --json             as JSON\n"
        "  --a-name-that-is-longer-than-the-column WORD  a word\n"
        "  --check            look, and end\n"
        "  --help, --help-all (every option), --version\n"
        "Exit: 0\n");
    char brief[FEDGE_HELP_SIZE];
    const char *json = strstr(text, "  --json");
    fedge_command_line_help(&PROGRAM, false, brief);
    assert_null(strstr(brief, "--json"));
    assert_memory_equal(brief, text, (size_t)(json - text)); /* the rest is the same */
    assert_string_equal(brief + (json - text), strchr(json, '\n') + 1);
    const char *end = strstr(fedge_command_line_help(&COMMAND, true, text), "  --check");
    assert_string_equal(end, "  --check            look, and end\n"
                             "  -h, --help\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(presets_are_read_as_values), cmocka_unit_test(every_type_is_read),
        cmocka_unit_test(mistakes_are_named),         cmocka_unit_test(what_is_needed_is_named),
        cmocka_unit_test(help_and_version_win),       cmocka_unit_test(words_are_handed_out),
        cmocka_unit_test(help_is_made_of_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
