#include "edge/core/command_line.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/log.h"
#include "edge/core/number.h"

#define MAX_COLUMNS 80
#define MAX_LEFT 22 /* an entry's names; longer ones have no column beside them */

/* What getopt_long returns: FIRST + the option's place in the table, or one of these. */
enum { HELP = 'h', VERSION = 'v', FIRST = 256 };

/* --- reading --------------------------------------------------------------------------------- */

static fedge_status take_number(const fedge_option *option, void *field, const char *value,
                                fedge_error *err)
{
    uint64_t number = 0;
    const fedge_status status =
        fedge_option_number(option->name, value, option->min, option->max, &number, err);
    if (status == FEDGE_OK && option->type == FEDGE_OPTION_U32)
        *(uint32_t *)field = (uint32_t)number;
    else if (status == FEDGE_OK)
        *(uint64_t *)field = number;
    return status;
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
    if (line->num_options + 3 > FEDGE_MAX_OPTIONS)
        abort();
    for (size_t i = 0; i < line->num_options; i++) {
        const fedge_option *option = &line->options[i];
        *to++ = (struct option){.name = option->name,
                                .has_arg = option->argument ? required_argument : no_argument,
                                .val = FIRST + (int)i};
    }
    *to++ = (struct option){.name = "help", .val = HELP};
    if (!line->command)
        *to++ = (struct option){.name = "version", .val = VERSION};
    *to = (struct option){.name = NULL};
}

/* What getopt_long has found, if it is a mistake. */
static fedge_status check(const fedge_command_line *line, int found, char **argv, fedge_error *err)
{
    if (found != ':' && found != '?')
        return FEDGE_OK;
    const char *what = found == ':'      ? "a value is missing for"
                       : optopt >= FIRST ? "there is a value, but none is wanted, in"
                                         : "unknown option";
    return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "%s '%s' (see %s --help)", what,
                      argv[optind - 1], line->name);
}

static fedge_status read_options(const fedge_command_line *line, int argc, char **argv,
                                 void *settings, fedge_asked *asked, fedge_error *err)
{
    struct option table[FEDGE_MAX_OPTIONS];
    make_long(line, table);
    opterr = 0;
    optind = 0; /* starts anew, also within tests */
    for (;;) {
        const int found = getopt_long(argc, argv, line->short_help ? ":h" : ":", table, NULL);
        if (found == -1)
            return FEDGE_OK;
        if (found == HELP || found == VERSION) {
            *asked = found == HELP ? FEDGE_ASKED_HELP : FEDGE_ASKED_VERSION;
            return FEDGE_OK;
        }
        fedge_status status = check(line, found, argv, err);
        if (status == FEDGE_OK)
            status = take(&line->options[found - FIRST], settings, optarg, err);
        if (status != FEDGE_OK)
            return status;
        if (line->options[found - FIRST].given)
            *(bool *)((char *)settings + line->options[found - FIRST].given) = true;
    }
}

fedge_status fedge_command_line_read(const fedge_command_line *line, int argc, char **argv,
                                     void *settings, fedge_words *words, fedge_error *err)
{
    *words = (fedge_words){.asked = FEDGE_ASKED_RUN};
    fedge_status status = take_presets(line, settings, err);
    if (status == FEDGE_OK)
        status = read_options(line, argc, argv, settings, &words->asked, err);
    if (status != FEDGE_OK || words->asked != FEDGE_ASKED_RUN)
        return status;
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
    char *text; /* NULL: only counts columns */
    size_t size, column;
    size_t indent; /* of what does not fit on a line */
} writer;

static void put_some(writer *to, const char *text, size_t size)
{
    for (; size > 0; text++, size--) {
        to->column = *text == '\n' ? 0 : to->column + 1;
        if (to->text) {
            if (to->size + 1 == FEDGE_HELP_SIZE)
                abort(); /* the tables are constants: whoever asks for --help first finds it */
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

/* Words, each behind a space or on a new line. */
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

/* The names of the entry that begins with [option]; the last of its options. */
static const fedge_option *put_names(writer *to, const fedge_option *option)
{
    for (put_name(to, option); option->joined; put_name(to, option)) {
        put(to, ", ");
        option++;
    }
    return option;
}

/* Behind the help of options [first] to [last]: " (1, 2)". */
static void put_presets(writer *to, const fedge_option *first, const fedge_option *last)
{
    const char *before = " (";
    for (; first <= last; first++) {
        if (first->preset) {
            put(to, before);
            put(to, first->preset);
            before = ", ";
        }
    }
    put(to, before[0] == ',' ? ")" : "");
}

const char *fedge_command_line_help(const fedge_command_line *line, char text[FEDGE_HELP_SIZE])
{
    const fedge_option *const end = line->options + line->num_options;
    writer to = {.text = text};
    for (const fedge_option *at = line->options; at < end; at++) {
        writer left = {.column = 4};
        if (at->help || at->joined) {
            at = put_names(&left, at);
            to.indent =
                left.column > to.indent && left.column <= MAX_LEFT + 4 ? left.column : to.indent;
        }
    }
    put(&to, line->usage);
    for (const fedge_option *at = line->options; at < end; at++) {
        const fedge_option *const first = at;
        if (!at->help && !at->joined)
            continue;
        put(&to, "  ");
        at = put_names(&to, at);
        put(&to, to.column + 2 > to.indent ? " " : "");
        put_words(&to, at->help);
        put_presets(&to, first, at);
        while (at + 1 < end && at[1].appended) {
            at++;
            put(&to, "; ");
            put_name(&to, at);
            put(&to, ":");
            put_words(&to, at->help);
        }
        put(&to, "\n");
    }
    put(&to, line->short_help ? "  -h, --help"
             : line->command  ? "  --help"
                              : "  --help, --version");
    put(&to, "\n");
    put(&to, line->notes);
    return text;
}
