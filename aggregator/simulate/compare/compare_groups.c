/* Groups runs that differ only in their seeds, and names the groups. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/simulate/compare/compare_internal.h"
#include "aggregator/simulate/output/results.h"
#include "aggregator/store/disk.h"
#include "aggregator/store/json_file.h"
#include "edge/plan/plan.h"

#define MAX_LISTED 3u /* names of a group without a pattern */

/* ---- settings -------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp((*(cJSON *const *)a)->string, (*(cJSON *const *)b)->string);
}

/* Sorts members by name, so that equal settings have equal texts. */
static bool sort(cJSON *object)
{
    const int count = cJSON_IsObject(object) ? cJSON_GetArraySize(object) : 0;
    bool sorted = true;
    for (cJSON *child = object->child; child && sorted; child = child->next)
        sorted = sort(child);
    cJSON **members = count > 1 && sorted ? malloc((size_t)count * sizeof(cJSON *)) : NULL;
    if (!members)
        return sorted && count <= 1;
    for (int i = 0; i < count; i++)
        members[i] = cJSON_DetachItemViaPointer(object, object->child);
    qsort(members, (size_t)count, sizeof(cJSON *), by_name);
    for (int i = 0; i < count; i++)
        (void)cJSON_AddItemToArray(object, members[i]); /* it keeps its name */
    free(members);
    return true;
}

fedge_status fedge_compare_read(const char *dir, const char *name, size_t max_size, cJSON **json,
                                fedge_error *err)
{
    char path[FEDGE_MAX_PATH];
    *json = NULL;
    FEDGE_TRY(fedge_path_join(dir, name, path, err));
    return fedge_json_file_read(path, max_size, json, err);
}

/* Reads a file of the folder without its seeds, sorted; *text is NULL when it does not exist. */
static fedge_status read_file(const char *dir, const char *name, char **text, fedge_error *err)
{
    cJSON *json = NULL;
    *text = NULL;
    const fedge_status status = fedge_compare_read(dir, name, FEDGE_JOB_MAX_SIZE, &json, err);
    if (status != FEDGE_OK)
        return status == FEDGE_NO_MEMORY ? status : FEDGE_OK;
    cJSON_DeleteItemFromObjectCaseSensitive(json, "seed");
    cJSON_DeleteItemFromObjectCaseSensitive(json, "partition_seed");
    *text = sort(json) ? cJSON_PrintUnformatted(json) : NULL;
    cJSON_Delete(json);
    return *text ? FEDGE_OK : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for settings");
}

fedge_status fedge_compare_settings(const char *dir, char **settings, fedge_error *err)
{
    char *job = NULL, *simulation = NULL;
    *settings = NULL;
    fedge_status status;
    FEDGE_TRY_OR(read_file(dir, "job.json", &job, err), done);
    FEDGE_TRY_OR(read_file(dir, "simulation.json", &simulation, err), done);
    if (job && simulation) {
        const size_t size = strlen(job) + strlen(simulation) + 1;
        *settings = malloc(size);
        if (*settings)
            (void)snprintf(*settings, size, "%s%s", job, simulation);
        else
            status = fedge_fail(err, FEDGE_NO_MEMORY, "no memory for settings");
    }
done:
    cJSON_free(job);
    cJSON_free(simulation);
    return status;
}

/* ---- names ----------------------------------------------------------------------------------- */

/* The group's next run after [at]; num_runs: none. */
static uint32_t next_of(const comparison *of, uint32_t group, uint32_t at)
{
    do {
        at++;
    } while (at < of->num_runs && of->runs[at].group != group);
    return at;
}

static bool is_digits(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (!isdigit((unsigned char)text[i]))
            return false;
    }
    return true;
}

/* The lengths of the common begin and end of the group's names, without digits at the seam; false
 * when more than a number between them differs. */
static bool find_common_ends(const comparison *of, uint32_t group, size_t *prefix, size_t *suffix)
{
    const uint32_t begin = of->groups[group].first;
    const char *first = of->runs[begin].dir;
    const size_t length = strlen(first);
    *prefix = *suffix = length;
    for (uint32_t i = begin; i < of->num_runs; i = next_of(of, group, i)) {
        const char *dir = of->runs[i].dir;
        const size_t size = strlen(dir);
        size_t same = 0;
        while (same < *prefix && same < size && dir[same] == first[same])
            same++;
        *prefix = same;
        same = 0;
        while (same < *suffix && same < size && dir[size - 1 - same] == first[length - 1 - same])
            same++;
        *suffix = same;
    }
    while (*prefix > 0 && isdigit((unsigned char)first[*prefix - 1]))
        --*prefix;
    while (*suffix > 0 && isdigit((unsigned char)first[length - *suffix]))
        --*suffix;
    for (uint32_t i = begin; i < of->num_runs; i = next_of(of, group, i)) {
        const size_t size = strlen(of->runs[i].dir);
        if (size <= *prefix + *suffix ||
            !is_digits(of->runs[i].dir + *prefix, size - *prefix - *suffix))
            return false;
    }
    return true;
}

/* Names a group "grid/lr=0.1,seed=*" where only a number differs, else by a few of its runs. */
static void name_group(const comparison *of, uint32_t group)
{
    compared_group *to = &of->groups[group];
    const char *first = of->runs[to->first].dir;
    size_t prefix = 0, suffix = 0, size = 0;
    if (to->num_runs == 1) {
        (void)snprintf(to->name, sizeof(to->name), "%s", first);
        return;
    }
    if (find_common_ends(of, group, &prefix, &suffix)) {
        (void)snprintf(to->name, sizeof(to->name), "%.*s*%s", (int)prefix, first,
                       first + strlen(first) - suffix);
        return;
    }
    uint32_t listed = 0;
    for (uint32_t i = to->first; i < of->num_runs && listed < MAX_LISTED && size < sizeof(to->name);
         i = next_of(of, group, i), listed++) {
        size += (size_t)snprintf(to->name + size, sizeof(to->name) - size, "%s%s",
                                 listed > 0 ? ", " : "", of->runs[i].dir);
    }
    if (listed < to->num_runs && size < sizeof(to->name)) {
        (void)snprintf(to->name + size, sizeof(to->name) - size, " and %u more",
                       to->num_runs - listed);
    }
}

/* ---- groups ---------------------------------------------------------------------------------- */

static bool has_failed(const compared_run *run)
{
    const cJSON *ending = cJSON_GetObjectItemCaseSensitive(run->summary, "ending");
    return cJSON_IsString(ending) && strcmp(ending->valuestring, "failed") == 0;
}

/* What the runs of a group must share: settings, then also the folder; NEVER: each is alone. */
enum { BY_SETTINGS, BY_FOLDER, NEVER };

static bool same_folder(const char *a, const char *b)
{
    const char *end = strrchr(a, '/'), *other = strrchr(b, '/');
    const size_t size = end ? (size_t)(end - a) + 1 : 0;
    return size == (other ? (size_t)(other - b) + 1 : 0) && memcmp(a, b, size) == 0;
}

static bool are_alike(const compared_run *a, const compared_run *b, int closeness)
{
    return closeness != NEVER && a->settings && b->settings &&
           strcmp(a->settings, b->settings) == 0 &&
           (closeness != BY_FOLDER || same_folder(a->dir, b->dir));
}

static bool have_same_seeds(const compared_run *a, const compared_run *b)
{
    static const char *const KEYS[] = {"seed", "partition_seed"};
    bool same = true;
    for (int k = 0; k < 2; k++) {
        const cJSON *seed = cJSON_GetObjectItemCaseSensitive(a->summary, KEYS[k]);
        const cJSON *other = cJSON_GetObjectItemCaseSensitive(b->summary, KEYS[k]);
        same = same && ((!seed && !other) || cJSON_Compare(seed, other, true));
    }
    return same;
}

/* Where two similar runs have the same seeds, their group must be closer. */
static void separate_duplicates(comparison *of, int closeness)
{
    compared_run *runs = of->runs;
    for (uint32_t i = 0; i < of->num_runs; i++) {
        for (uint32_t k = 0; k < i; k++) {
            if (runs[i].closeness == closeness && runs[k].closeness == closeness &&
                are_alike(&runs[i], &runs[k], closeness) && have_same_seeds(&runs[i], &runs[k]))
                runs[i].has_duplicate = runs[k].has_duplicate = true;
        }
    }
    for (uint32_t i = 0; i < of->num_runs; i++) {
        for (uint32_t k = 0; k < of->num_runs && runs[i].has_duplicate; k++) {
            if (runs[k].closeness == closeness && are_alike(&runs[i], &runs[k], closeness))
                runs[k].closeness = closeness + 1;
        }
    }
    for (uint32_t i = 0; i < of->num_runs; i++)
        runs[i].has_duplicate = false;
}

/* The group of an earlier similar run; num_groups: none. */
static uint32_t find_group(const comparison *of, uint32_t run)
{
    const compared_run *self = &of->runs[run];
    for (uint32_t i = 0; i < run; i++) {
        if (of->runs[i].closeness == self->closeness &&
            are_alike(&of->runs[i], self, self->closeness))
            return of->runs[i].group;
    }
    return of->num_groups;
}

fedge_status fedge_compare_group(comparison *of, bool each, fedge_error *err)
{
    of->groups = calloc(of->num_runs, sizeof(*of->groups));
    if (!of->groups)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %u runs", of->num_runs);
    for (int closeness = BY_SETTINGS; closeness < NEVER; closeness++)
        separate_duplicates(of, closeness);
    for (uint32_t i = 0; i < of->num_runs; i++) {
        compared_run *run = &of->runs[i];
        run->group = each ? of->num_groups : find_group(of, i);
        compared_group *to = &of->groups[run->group];
        if (run->group == of->num_groups) {
            to->first = i;
            of->num_groups++;
        }
        to->num_runs++;
        to->counted += !has_failed(run);
    }
    for (uint32_t i = 0; i < of->num_runs; i++) {
        compared_group *to = &of->groups[of->runs[i].group];
        of->runs[i].counts = to->counted == 0 || !has_failed(&of->runs[i]);
    }
    for (uint32_t g = 0; g < of->num_groups; g++) {
        compared_group *to = &of->groups[g];
        to->counted = to->counted > 0 ? to->counted : to->num_runs;
        name_group(of, g);
    }
    return FEDGE_OK;
}
