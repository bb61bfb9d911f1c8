#define _GNU_SOURCE /* stat is POSIX, not C11 */

#include "aggregator/program/checks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "aggregator/rounds/global_model.h"
#include "aggregator/rounds/selection.h"
#include "edge/core/os.h"

fedge_status fedge_check_initial_model(const fedge_job *job, fedge_error *err)
{
    if (job->initial_model[0] == '\0')
        return FEDGE_OK;
    size_t count = job->plan.schema.num_elements;
    float *values = malloc(count * sizeof(*values));
    if (!values)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a model of %zu parameters", count);
    fedge_status status = fedge_initial_values(job, values, err);
    free(values);
    return status;
}

fedge_status fedge_check_selection(const fedge_job *job, const char *name, const fedge_log *log,
                                   fedge_error *err)
{
    fedge_selection selection;
    fedge_status status = fedge_selection_init(&selection, job, false, err);
    if (status != FEDGE_OK)
        return fedge_error_prefix(err, status, "%s", name);
    if (fedge_criterion_is_of_test_set(selection.keep.metric) ||
        fedge_criterion_is_of_test_set(selection.stop.metric)) {
        FEDGE_LOG(log, FEDGE_LOG_WARN, "test-set-selects",
                  fedge_log_str("advice", "the best model's figures on the test set are too good: "
                                          "validate on clients (fraction-evaluate, and "
                                          "validation-fraction in their files)"));
    }
    return FEDGE_OK;
}

fedge_status fedge_check_result_path(const char *path, fedge_error *err)
{
    const char *slash = strrchr(path, '/');
    const int size = slash ? (int)(slash - path) + 1 : 2;
    char place[FEDGE_MAX_PATH];
    struct stat info;
    if (snprintf(place, sizeof(place), "%.*s", size, slash ? path : "./") >= (int)sizeof(place))
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "--result: the path is too long");
    if (fedge_os_is_dir(path)) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "--result: %s is a directory; name a file in it", path);
    }
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "--result: %s is not a regular file, which would be replaced; name "
                          "another, or take --json to have the summary on the standard output",
                          path);
    }
    if (!fedge_os_is_dir(place)) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "--result %s: there is no directory %s; make it", path, place);
    }
    if (access(place, W_OK | X_OK) != 0) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "--result %s: files cannot be made in %s",
                          path, place);
    }
    return FEDGE_OK;
}

bool fedge_check_paths(const fedge_options *options)
{
    const char *gpus = options->gpus_file ? options->gpus_file : options->job;
    const struct {
        const char *path;
        mode_t kind;
    } paths[] = {{options->job, S_IFREG},
                 {gpus, S_IFREG},
                 {options->identity, S_IFDIR},
                 {options->trust, S_IFDIR},
                 {options->registry, S_IFDIR}};
    struct stat info;
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        if (stat(paths[i].path, &info) != 0 || (info.st_mode & S_IFMT) != paths[i].kind)
            return false;
    }
    return true;
}
