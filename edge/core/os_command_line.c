#include "edge/core/command_line.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/log.h"
#include "edge/core/text.h"

#define MAX_COLUMNS 80
#define MAX_LEFT                                                                                   \
    22 /* columns for an entry's names; the help of longer ones starts on the next line */

/* getopt_long's values of long options, above all characters: one of these, or FIRST + the option's
 * index. */
enum { HELP = 256, HELP_ALL, VERSION, FIRST };

/* --- reading --------------------------------------------------------------------------------- */

static fedge_status take_number(const fedge_option *option, void *field, const char *value,
                                fedge_error *err)
{
    uint64_t number = 0;
    FEDGE_TRY(fedge_option_number(option->name, value, option->min, option->max, &number, err));
    if (option->type == FEDGE_OPTION_U32)
        *(uint32_t *)field = (uint32_t)number;
    else
        *(uint64_t *)field = number;
    return FEDGE_OK;
}

static fedge_status take(const fedge_option *option, void *settings, const char *value,
                         fedge_error *err)
{
    void *field = (char *)settings + option->field;
    switch ((fedge_option_type)option->type) {
    case FEDGE_OPTION_TEXT:
        *(const char **)field = value;
        return FEDGE_OK;
    case FEDGE_OPTION_FLAG:
        *(bool *)field = true;
        return FEDGE_OK;
    case FEDGE_OPTION_ENUM:
        *(int *)field = (int)option->min;
        return FEDGE_OK;
    case FEDGE_OPTION_U32:
    case FEDGE_OPTION_U64:
        return take_number(option, field, value, err);
    case FEDGE_OPTION_LOG_LEVEL:
        return fedge_log_level_from_name(value, field, err);
    case FEDGE_OPTION_OTHER:
        return option->take(settings, option->name, value, err);
    }
    return fedge_fail(err, FEDGE_INTERNAL, "--%s has no type", option->name);
}

static fedge_status take_presets(const fedge_command_line *line, void *settings, fedge_error *err)
{
    fedge_status status = FEDGE_OK;
    for (size_t i = 0; i < line->num_options && status == FEDGE_OK; i++) {
        if (line->options[i].preset)
            status = take(&line->options[i], settings, line->options[i].preset, err);
    }
    return status;
}

static void make_long(const fedge_command_line *line, struct option *to)
{
    if (line->num_options + 4 > FEDGE_MAX_OPTIONS)
        abort();
    for (size_t i = 0; i < line->num_options; i++) {
        const fedge_option *option = &line->options[i];
        *to++ = (struct option){.name = option->name,
                                .has_arg = option->argument ? required_argument : no_argument,
                                .val = FIRST + (int)i};
    }
    *to++ = (struct option){.name = "help", .val = HELP};
    if (line->help_all)
        *to++ = (struct option){.name = "help-all", .val = HELP_ALL};
    if (!line->command)
        *to++ = (struct option){.name = "version", .val = VERSION};
    *to = (struct option){.name = NULL};
}

/* Reports an error of getopt_long. */
static fedge_status check(const fedge_command_line *line, int found, char **argv, fedge_error *err)
{
    if (found != ':' && found != '?')
        return FEDGE_OK;
    const char *what = found == ':'     ? "a value is missing for"
                       : optopt >= HELP ? "there is a value, but none is wanted, in"
                                        : "unknown option";
    /* In a group of short options, optind is at the same word until the last of them. */
    const char letter[] = {'-', (char)optopt, '\0'};
    return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "%s '%s' (see %s --help)", what,
                      optopt > 0 && optopt < HELP ? letter : argv[optind - 1], line->name);
}

static fedge_status read_options(const fedge_command_line *line, int argc, char **argv,
                                 void *settings, fedge_asked *asked, fedge_error *err)
{
    struct option table[FEDGE_MAX_OPTIONS];
    make_long(line, table);
    opterr = 0;
    optind = 0; /* restarts getopt, also in tests */
    for (;;) {
        const int found = getopt_long(argc, argv, line->short_help ? ":h" : ":", table, NULL);
        if (found == -1)
            return FEDGE_OK;
        if (found == 'h' || found == HELP || found == HELP_ALL || found == VERSION) {
            *asked = found == HELP_ALL  ? FEDGE_ASKED_HELP_ALL
                     : found == VERSION ? FEDGE_ASKED_VERSION
                                        : FEDGE_ASKED_HELP;
            return FEDGE_OK;
        }
        FEDGE_TRY(check(line, found, argv, err));
        FEDGE_TRY(take(&line->options[found - FIRST], settings, optarg, err));
        if (line->options[found - FIRST].given)
            *(bool *)((char *)settings + line->options[found - FIRST].given) = true;
    }
}

fedge_status fedge_command_line_read(const fedge_command_line *line, int argc, char **argv,
                                     void *settings, fedge_words *words, fedge_error *err)
{
    *words = (fedge_words){.asked = FEDGE_ASKED_RUN};
    FEDGE_TRY(take_presets(line, settings, err));
    FEDGE_TRY(read_options(line, argc, argv, settings, &words->asked, err));
    if (words->asked != FEDGE_ASKED_RUN)
        return FEDGE_OK;
    if (optind < argc && !line->arguments) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "'%s' is not an option (see %s --help)",
                          argv[optind], line->name);
    }
    words->at = argv + optind;
    words->num = (uint32_t)(argc - optind);
    return FEDGE_OK;
}

fedge_status fedge_command_line_check(const fedge_command_line *line, const void *settings,
                                      fedge_error *err)
{
    for (size_t i = 0; i < line->num_options; i++) {
        const fedge_option *option = &line->options[i];
        const void *field = (const char *)settings + option->field;
        if (!option->needed)
            continue;
        if (option->type == FEDGE_OPTION_TEXT ? !*(const char *const *)field
                                              : *(const uint32_t *)field == 0) {
            return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "--%s is missing (see %s --help)",
                              option->name, line->name);
        }
    }
    return FEDGE_OK;
}

/* --- help ------------------------------------------------------------------------------------ */

typedef struct writer {
    char *text; /* NULL: only count columns */
    size_t size, column;
    size_t indent; /* indent of continuation lines */
} writer;

static void put_some(writer *to, const char *text, size_t size)
{
    for (; size > 0; text++, size--) {
        to->column = *text == '\n' ? 0 : to->column + 1;
        if (to->text) {
            if (to->size + 1 == FEDGE_HELP_SIZE)
                abort(); /* the tables are constants, so any run of --help would find this */
            to->text[to->size++] = *text;
            to->text[to->size] = '\0';
        }
    }
}

static void put(writer *to, const char *text)
{
    put_some(to, text, strlen(text));
}

static void put_spaces(writer *to, size_t until)
{
    while (to->column < until)
        put(to, " ");
}

/* Words, each after a space or on a new line. */
static void put_words(writer *to, const char *text)
{
    while (*text) {
        const size_t size = strcspn(text, " ");
        if (to->column > to->indent && to->column + 1 + size > MAX_COLUMNS)
            put(to, "\n");
        put_spaces(to, to->column > to->indent ? to->column + 1 : to->indent);
        put_some(to, text, size);
        text += size + (text[size] != '\0');
    }
}

static void put_name(writer *to, const fedge_option *option)
{
    put(to, "--");
    put(to, option->name);
    if (option->argument) {
        put(to, " ");
        put(to, option->argument);
    }
}

static bool is_listed(const fedge_option *option, bool all)
{
    return option->help && (all || !option->advanced);
}

/* The column of help texts: after the longest name that has one beside it. */
static size_t find_indent(const fedge_command_line *line, bool all)
{
    size_t indent = 0;
    for (size_t i = 0; i < line->num_options; i++) {
        writer left = {.column = 4};
        if (!is_listed(&line->options[i], all))
            continue;
        put_name(&left, &line->options[i]);
        if (left.column > indent && left.column <= MAX_LEFT + 4)
            indent = left.column;
    }
    return indent;
}

const char *fedge_command_line_help(const fedge_command_line *line, bool all,
                                    char text[FEDGE_HELP_SIZE])
{
    writer to = {.text = text, .indent = find_indent(line, all)};
    put(&to, line->usage);
    for (size_t i = 0; i < line->num_options; i++) {
        const fedge_option *option = &line->options[i];
        if (!is_listed(option, all))
            continue;
        put(&to, "  ");
        put_name(&to, option);
        put(&to, to.column + 2 > to.indent ? " " : "");
        put_words(&to, option->help);
        if (option->preset) {
            char preset[MAX_COLUMNS];
            (void)snprintf(preset, sizeof(preset), "(%s)", option->preset);
            put_words(&to, preset);
        }
        put(&to, "\n");
    }
    put(&to, line->short_help ? "  -h, --help"
             : line->command  ? "  --help"
             : line->help_all ? "  --help, --help-all (every option), --version"
                              : "  --help, --version");
    put(&to, "\n");
    put(&to, line->notes);
    return text;
}
