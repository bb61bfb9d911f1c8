/* Command lines: one table of options serves reading, defaults and --help.
 *
 *   #define OPTION(name, argument, help, type, field) \
 *       FEDGE_OPTION(name, argument, help, type, settings, field)
 *   static const fedge_option OPTIONS[] = {
 *       {OPTION("state", "DIR", "keeps results over restarts", TEXT, state)},
 *       {OPTION("port", "N", "to listen on", U32, port), .max = 65535, .preset = "9092"},
 *       {OPTION("json", NULL, "as JSON", FLAG, json)}};
 *
 * Options are GNU's: --name VALUE or --name=VALUE, anywhere on the line, names cut as long as they
 * are clear; "--" ends them. --help and --version are every program's and need no entry, nor does
 * --help-all where a table has options that are [advanced].
 */
#ifndef FEDGE_EDGE_CORE_COMMAND_LINE_H
#define FEDGE_EDGE_CORE_COMMAND_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"

#define FEDGE_HELP_SIZE 8192 /* bytes of a --help text with NUL */
#define FEDGE_MAX_OPTIONS                                                                          \
    64 /* options of one command, including --help, --help-all and --version */

/* What an option sets, in [field] of the settings. */
typedef enum fedge_option_type {
    FEDGE_OPTION_TEXT,      /* const char *: from argv or the preset */
    FEDGE_OPTION_FLAG,      /* bool: true; takes no value */
    FEDGE_OPTION_ENUM,      /* an enum: [min]; takes no value */
    FEDGE_OPTION_U32,       /* uint32_t: decimal digits, from min to max */
    FEDGE_OPTION_U64,       /* uint64_t: as U32 */
    FEDGE_OPTION_LOG_LEVEL, /* fedge_log_level */
    FEDGE_OPTION_OTHER      /* [take] handles it */
} fedge_option_type;

typedef struct fedge_option {
    const char *name; /* name without hyphens */
    const char
        *argument;      /* name of the value in --help; NULL exactly for options without a value */
    const char *help;   /* NULL: not listed */
    const char *preset; /* default value, parsed and shown like one; NULL: none */
    /* For OTHER: handles the value of --[option], or NULL without an argument. */
    fedge_status (*take)(void *settings, const char *option, const char *value, fedge_error *err);
    uint64_t max;          /* maximum of numbers */
    uint16_t min;          /* minimum of numbers */
    uint16_t field, given; /* offset of a bool that is set if the option is given; 0: none */
    uint8_t type;          /* fedge_option_type */
    bool needed : 1;       /* text and numbers that stay NULL or 0 fail fedge_command_line_check */
    bool advanced : 1;     /* listed only by --help-all, so that --help fits a screen */
} fedge_option;

typedef struct fedge_command_line {
    const char *name;  /* "fedge-simulate generate", for messages */
    const char *usage; /* --help before the options, with newlines */
    const char *notes; /* --help after the options; "": nothing */
    const fedge_option *options;
    size_t num_options;
    bool command;    /* it is a command of a program: no --version */
    bool help_all;   /* some options are advanced */
    bool arguments;  /* words that are not options are allowed */
    bool short_help; /* -h means --help */
} fedge_command_line;

/* An option that sets [member] of the settings' type [settings_type]. */
#define FEDGE_OPTION(name_, argument_, help_, type_, settings_type, member)                        \
    .name = (name_), .argument = (argument_), .help = (help_), .type = FEDGE_OPTION_##type_,       \
    .field = offsetof(settings_type, member)
/* The text of a number in a macro, for a preset. */
#define FEDGE_PRESET(number) FEDGE_PRESET_TEXT(number)
#define FEDGE_PRESET_TEXT(number) #number

typedef enum fedge_asked {
    FEDGE_ASKED_RUN,
    FEDGE_ASKED_HELP,
    FEDGE_ASKED_HELP_ALL,
    FEDGE_ASKED_VERSION
} fedge_asked;

/* The words of a command line that are not options. */
typedef struct fedge_words {
    fedge_asked asked;
    uint32_t num;
    char **at; /* (num), in order, from argv */
} fedge_words;

/* Fills [settings], which the caller has zeroed, from presets and then from argv[1] on. Stops at
 * --help, --help-all or --version. Words need line->arguments. FEDGE_INVALID_ARGUMENT with a
 * message for the user, or the failure of an option's [take]. Not thread-safe; it permutes argv. */
FEDGE_MUST_USE fedge_status fedge_command_line_read(const fedge_command_line *line, int argc,
                                                    char **argv, void *settings, fedge_words *words,
                                                    fedge_error *err);

/* FEDGE_INVALID_ARGUMENT names the first needed option that is missing. */
FEDGE_MUST_USE fedge_status fedge_command_line_check(const fedge_command_line *line,
                                                     const void *settings, fedge_error *err);

/* The text of --help or, with [all], of --help-all, in lines of at most 80 columns; returns [text].
 */
const char *fedge_command_line_help(const fedge_command_line *line, bool all,
                                    char text[FEDGE_HELP_SIZE]);

#endif
