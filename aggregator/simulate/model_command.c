#include "aggregator/simulate/model_command.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/store/json_file.h"
#include "aggregator/store/model_file.h"

#define OPTION(name, argument, help, type, field)                                                  \
    FEDGE_OPTION(name, argument, help, type, fedge_model_command, field)

static const fedge_option OPTIONS[] = {{OPTION("json", NULL, "one object of JSON", FLAG, json)}};

static const fedge_command_line COMMAND_LINE = {
    .name = "fedge-simulate model",
    .command = true,
    .usage =
        "Usage: fedge-simulate model FILE [--json]\n"
        "Prints what a model file (model.safetensors, model-best.safetensors) says of itself,\n"
        "and the model_sha256 of the tensors in it: that of the file without its metadata.\n"
        "\n",
    .options = OPTIONS,
    .num_options = sizeof(OPTIONS) / sizeof(*OPTIONS),
    .notes = "\n"
             "Exit: 0 the tensors are those that the metadata names, or it names none; 1 they are\n"
             "others; 2 usage; 3 no such file, or no model\n",
    .arguments = true};

const char *fedge_model_command_help(char text[FEDGE_HELP_SIZE])
{
    return fedge_command_line_help(&COMMAND_LINE, false, text);
}

fedge_status fedge_model_command_parse(int argc, char **argv, fedge_model_command *command,
                                       fedge_error *err)
{
    fedge_words words;
    *command = (fedge_model_command){.path = NULL};
    const fedge_status status =
        fedge_command_line_read(&COMMAND_LINE, argc, argv, command, &words, err);
    command->help = words.asked == FEDGE_ASKED_HELP;
    if (status != FEDGE_OK || command->help)
        return status;
    if (words.num != 1) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "model needs one file, model.safetensors (see model --help)");
    }
    command->path = words.at[0];
    return FEDGE_OK;
}

/* What the metadata says that the tensors are; NULL: nothing. */
static const char *named(const fedge_model_report *report)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(report->metadata, "model_sha256");
    return cJSON_IsString(item) ? item->valuestring : NULL;
}

static void print_lines(const fedge_model_report *report, FILE *out)
{
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, report->metadata)
    {
        if (strcmp(item->string, "model_sha256") != 0) {
            fprintf(out, "%s: %.1000s%s\n", item->string, item->valuestring,
                    strlen(item->valuestring) > 1000 ? " … (--json has all)" : "");
        }
    }
    fprintf(out, "tensors: %u\nvalues: %zu\nmodel_sha256: %s\n", (unsigned)report->num_tensors,
            report->num_values, report->model);
}

static fedge_status print_json(fedge_model_report *report, const char *path, FILE *out,
                               fedge_error *err)
{
    cJSON *json = cJSON_CreateObject();
    const bool made =
        fedge_json_add_text(json, "file", path) &&
        (report->metadata ? cJSON_AddItemReferenceToObject(json, "metadata", report->metadata)
                          : cJSON_AddNullToObject(json, "metadata") != NULL) &&
        cJSON_AddNumberToObject(json, "tensors", report->num_tensors) &&
        cJSON_AddNumberToObject(json, "values", (double)report->num_values) &&
        cJSON_AddStringToObject(json, "model_sha256", report->model);
    char *text = made ? cJSON_PrintUnformatted(json) : NULL;
    cJSON_Delete(json);
    if (!text)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a report");
    fprintf(out, "%s\n", text);
    free(text);
    return FEDGE_OK;
}

fedge_status fedge_model_command_run(const fedge_model_command *command, FILE *out,
                                     fedge_error *err)
{
    fedge_model_report report;
    fedge_status status = FEDGE_OK;
    FEDGE_TRY(fedge_model_file_read(command->path, &report, err));
    if (command->json)
        status = print_json(&report, command->path, out, err);
    else
        print_lines(&report, out);
    if (status == FEDGE_OK && named(&report) && strcmp(named(&report), report.model) != 0) {
        status = fedge_fail(
            err, FEDGE_MISMATCH,
            "%s: its metadata is of model %.64s, but its tensors are not: they were changed later",
            command->path, named(&report));
    }
    fedge_model_report_fini(&report);
    return status;
}
