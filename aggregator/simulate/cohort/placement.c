#include "aggregator/simulate/cohort/placement.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/bytes.h"
#include "edge/core/os.h"
#include "edge/data/formats/file_list.h"
#include "edge/data/partitions/partition.h"

#define MAX_NAMES ((size_t)1 << 30) /* bytes of a rank's list of files */
#define MAX_PATHS FEDGE_OS_MAX_PATH /* bytes of a line */
#define MAX_RANKS_LISTED 4u         /* ranks that a message names */
#define MAX_RANKS_TEXT 320u

static fedge_status no_memory(fedge_error *err)
{
    return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the names of the clients' files");
}

/* ---- the files of this rank ------------------------------------------------------------------ */

typedef struct local_files {
    fedge_buffer list;           /* the host with its NUL, then each listed_file and its name */
    fedge_buffer values, labels; /* paths, a line each */
} local_files;

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Copies the first line; returns the start of the next. */
static const char *line_of(const char *lines, char line[MAX_PATHS])
{
    const size_t length = strcspn(lines, "\n");
    (void)snprintf(line, MAX_PATHS, "%.*s", (int)(length < MAX_PATHS ? length : MAX_PATHS), lines);
    return lines + length + (lines[length] == '\n');
}

/* The files that a line names; none where it does not exist. */
static fedge_status list_line(const char *line, fedge_file_list *list, fedge_error *err)
{
    const fedge_status status = fedge_file_list_open(list, line, err);
    return status == FEDGE_NOT_FOUND ? FEDGE_OK : status;
}

static fedge_status add_path(fedge_buffer *to, const char *path, fedge_error *err)
{
    FEDGE_TRY(fedge_buffer_append(to, path, strlen(path), err));
    return fedge_buffer_append(to, "\n", 1, err);
}

/* A file in a rank's list; its name follows, with its NUL. */
typedef struct listed_file {
    uint32_t line;
    bool alone; /* the line names the file itself, not a folder or pattern */
} listed_file;

static fedge_status add_file(local_files *local, const listed_file *file, const char *values,
                             const char *labels, fedge_error *err)
{
    const char *name = name_of(values);
    FEDGE_TRY(add_path(&local->values, values, err));
    if (labels)
        FEDGE_TRY(add_path(&local->labels, labels, err));
    FEDGE_TRY(fedge_buffer_append(&local->list, file, sizeof(*file), err));
    return fedge_buffer_append(&local->list, name, strlen(name) + 1, err);
}

/* Lists the files of a line of values, with its line of labels ("": none). */
static fedge_status list_pair(local_files *local, uint32_t line, const char *values_line,
                              const char *labels_line, fedge_error *err)
{
    fedge_file_list values = {.count = 0}, labels = {.count = 0};
    fedge_status status;
    FEDGE_TRY_OR(list_line(values_line, &values, err), done);
    if (labels_line[0])
        FEDGE_TRY_OR(list_line(labels_line, &labels, err), done);
    if (labels_line[0] && labels.count != values.count) {
        status = fedge_fail(err, FEDGE_MISMATCH,
                            "%.150s: %" PRIu32 " files of values, but %" PRIu32
                            " of labels in %.150s: have as many of both here",
                            values_line, values.count, labels.count, labels_line);
        goto done;
    }
    for (uint32_t i = 0; i < values.count; i++) {
        listed_file file;
        memset(&file, 0, sizeof(file)); /* its padding too, since it is sent */
        file.line = line;
        file.alone = strcmp(values.paths[i], values_line) == 0;
        FEDGE_TRY_OR(
            add_file(local, &file, values.paths[i], labels.count > 0 ? labels.paths[i] : NULL, err),
            done);
    }
done:
    fedge_file_list_close(&values);
    fedge_file_list_close(&labels);
    return status;
}

static uint32_t count_lines(const char *lines)
{
    uint32_t count = 0;
    for (; *lines; count++) {
        lines += strcspn(lines, "\n");
        lines += *lines == '\n';
    }
    return count;
}

static fedge_status list_local(local_files *local, const fedge_collective *collective,
                               const fedge_site_data *data, fedge_error *err)
{
    const uint32_t lines = count_lines(data->values), of_labels = count_lines(data->labels);
    char values_line[MAX_PATHS], labels_line[MAX_PATHS] = "";
    const char *values = data->values, *labels = data->labels;
    if (of_labels > 0 && of_labels != lines) {
        return fedge_fail(err, FEDGE_MISMATCH,
                          "%" PRIu32 " entries of values, but %" PRIu32
                          " of labels: where ranks have files of their own, entry N of the labels "
                          "goes with entry N of the values",
                          lines, of_labels);
    }
    FEDGE_TRY(
        fedge_buffer_append(&local->list, collective->host, strlen(collective->host) + 1, err));
    for (uint32_t line = 0; line < lines; line++) {
        values = line_of(values, values_line);
        labels = of_labels > 0 ? line_of(labels, labels_line) : labels;
        FEDGE_TRY(list_pair(local, line, values_line, labels_line, err));
    }
    return FEDGE_OK;
}

/* ---- all ranks' files ------------------------------------------------------------------------ */

/* A file that a rank has. */
typedef struct known_file {
    uint32_t line, rank;
    uint32_t client;  /* the owner */
    bool alone;       /* listed_file.alone */
    const char *name; /* points into the gathered lists */
} known_file;

typedef struct known_files {
    known_file *files; /* (count), sorted: client by client */
    size_t count;
    uint32_t num_clients;
    const char **hosts; /* (num_ranks) */
} known_files;

static int by_client(const void *left, const void *right)
{
    const known_file *a = left, *b = right;
    if (a->line != b->line)
        return a->line < b->line ? -1 : 1;
    const int order = fedge_file_list_compare(a->name, b->name);
    return order != 0 ? order : (a->rank > b->rank) - (a->rank < b->rank);
}

static bool is_same_client(const known_file *a, const known_file *b)
{
    return a->line == b->line && strcmp(a->name, b->name) == 0;
}

static fedge_status read_all(known_files *all, const fedge_collective_gathered *gathered,
                             uint32_t num_ranks, size_t count, fedge_error *err)
{
    *all = (known_files){.files = malloc((count + 1) * sizeof(*all->files)),
                         .hosts = calloc(num_ranks, sizeof(*all->hosts))};
    if (!all->files || !all->hosts)
        return no_memory(err);
    for (uint32_t rank = 0; rank < num_ranks; rank++) {
        const char *at = (const char *)gathered->bytes + gathered->starts[rank];
        const char *end = (const char *)gathered->bytes + gathered->starts[rank + 1];
        all->hosts[rank] = at;
        for (at += strlen(at) + 1; at < end; at += strlen(at) + 1) {
            listed_file file;
            memcpy(&file, at, sizeof(file));
            at += sizeof(file);
            all->files[all->count++] =
                (known_file){.line = file.line, .rank = rank, .alone = file.alone, .name = at};
        }
    }
    qsort(all->files, all->count, sizeof(*all->files), by_client);
    for (size_t i = 0; i < all->count; i++) {
        all->num_clients += i == 0 || !is_same_client(&all->files[i - 1], &all->files[i]);
        all->files[i].client = all->num_clients - 1;
    }
    return FEDGE_OK;
}

/* Writes "rank 0 on a has 3, rank 1 on b has 4" of the first ranks. */
static void list_ranks(const known_files *all, uint32_t num_ranks, char text[MAX_RANKS_TEXT])
{
    const uint32_t listed = num_ranks < MAX_RANKS_LISTED ? num_ranks : MAX_RANKS_LISTED;
    size_t length = 0;
    for (uint32_t rank = 0; rank < listed; rank++) {
        uint32_t has = 0;
        for (size_t i = 0; i < all->count; i++)
            has += all->files[i].rank == rank;
        (void)snprintf(text + length, MAX_RANKS_TEXT - length,
                       "%srank %" PRIu32 " on %.24s has %" PRIu32, rank > 0 ? ", " : "", rank,
                       all->hosts[rank], has);
        length += strlen(text + length);
    }
    (void)snprintf(text + length, MAX_RANKS_TEXT - length, "%s", listed < num_ranks ? ", …" : "");
}

/* ---- refusals -------------------------------------------------------------------------------- */

/* Each line must have a file on some rank, and a line that names a file must name the same on all.
 */
static fedge_status check_lines(const known_files *all, const char *lines, uint32_t num_ranks,
                                fedge_error *err)
{
    char line[MAX_PATHS], ranks[MAX_RANKS_TEXT];
    size_t at = 0;
    for (uint32_t number = 0; *lines; number++) {
        const size_t first = at;
        lines = line_of(lines, line);
        while (at < all->count && all->files[at].line == number)
            at++;
        if (at == first) {
            const uint32_t client = first > 0 ? all->files[first - 1].client + 1 : 0;
            list_ranks(all, num_ranks, ranks);
            return fedge_fail(err, FEDGE_NOT_FOUND,
                              "client %" PRIu32 ": no rank has its file %.150s (%s files): give it "
                              "to one of them",
                              client, line, ranks);
        }
        const known_file *a = &all->files[first], *b = &all->files[at - 1];
        if (a->alone && b->alone && a->client != b->client) {
            return fedge_fail(err, FEDGE_MISMATCH,
                              "file %" PRIu32 " of the values is %.80s on rank %" PRIu32
                              ", and %.80s on rank %" PRIu32
                              ": name all clients' files alike, in the same order",
                              number, a->name, a->rank, b->name, b->rank);
        }
    }
    return FEDGE_OK;
}

/* ---- holders --------------------------------------------------------------------------------- */

static size_t stride_of(uint32_t num_ranks)
{
    return (num_ranks + 7u) / 8u;
}

/* Assigns each client a home rank. */
static fedge_status choose_homes(fedge_placement *self, fedge_error *err)
{
    fedge_placement_work *work = calloc(self->num_clients, sizeof(*work));
    uint64_t *loads = calloc(self->num_ranks, sizeof(*loads));
    self->homes = calloc(self->num_clients, sizeof(*self->homes));
    const bool done = work && loads && self->homes;
    for (uint32_t c = 0; done && c < self->num_clients; c++)
        work[c] = (fedge_placement_work){.client = c, .size = 1};
    if (done)
        fedge_placement_deal(self, self->num_ranks, work, self->num_clients, loads, self->homes);
    free(work);
    free(loads);
    return done ? FEDGE_OK : no_memory(err);
}

static fedge_status set_holders(fedge_placement *self, const known_files *all, uint32_t this_rank,
                                fedge_error *err)
{
    const size_t stride = stride_of(self->num_ranks);
    self->holders = calloc((size_t)self->num_clients + 1, stride);
    self->local = calloc(all->count + 1, sizeof(*self->local));
    if (!self->holders || !self->local)
        return no_memory(err);
    for (size_t i = 0; i < all->count; i++) {
        const known_file *file = &all->files[i];
        self->holders[file->client * stride + file->rank / 8] |= (uint8_t)(1u << file->rank % 8);
        if (file->rank == this_rank)
            self->local[self->num_local++] = file->client;
    }
    return choose_homes(self, err);
}

static fedge_status set_placement(fedge_placement *placement, const fedge_collective *collective,
                                  const known_files *all, const fedge_site_data *data,
                                  uint32_t wanted, fedge_error *err)
{
    char ranks[MAX_RANKS_TEXT];
    fedge_placement fresh = {.num_ranks = collective->num_ranks, .num_clients = all->num_clients};
    FEDGE_TRY(check_lines(all, data->values, fresh.num_ranks, err));
    const fedge_status status =
        wanted > 0 ? fedge_partition_check_files(fresh.num_clients, wanted, err) : FEDGE_OK;
    if (status != FEDGE_OK) {
        list_ranks(all, fresh.num_ranks, ranks);
        return fedge_error_prefix(err, status, "all ranks together (%s)", ranks);
    }
    if (all->count == (size_t)fresh.num_clients * fresh.num_ranks)
        return FEDGE_OK;
    *placement = fresh;
    return set_holders(placement, all, collective->rank, err);
}

/* The same from all ranks' lists, [gathered]. Also ends the texts of paths in [local] with a NUL.
 */
static fedge_status place_files(fedge_placement *placement, const fedge_collective *collective,
                                const fedge_collective_gathered *gathered, local_files *local,
                                const fedge_site_data *data, uint32_t wanted, fedge_error *err)
{
    known_files all = {0};
    fedge_status status;
    FEDGE_TRY_OR(read_all(&all, gathered, collective->num_ranks,
                          gathered->starts[collective->num_ranks] / sizeof(listed_file), err),
                 done);
    FEDGE_TRY_OR(set_placement(placement, collective, &all, data, wanted, err), done);
    if (placement->holders) {
        FEDGE_TRY_OR(fedge_buffer_append(&local->values, "", 1, err), done);
        FEDGE_TRY_OR(fedge_buffer_append(&local->labels, "", 1, err), done);
    }
done:
    free(all.files);
    free(all.hosts);
    return status;
}

fedge_status fedge_placement_find(fedge_placement *placement, const fedge_collective *collective,
                                  const fedge_site_data *data, uint32_t wanted, fedge_error *err)
{
    local_files local;
    fedge_collective_gathered gathered = {0};
    *placement = (fedge_placement){0};
    fedge_buffer_init(&local.list, MAX_NAMES);
    fedge_buffer_init(&local.values, MAX_NAMES);
    fedge_buffer_init(&local.labels, MAX_NAMES);
    fedge_status status = list_local(&local, collective, data, err);
    FEDGE_TRY_OR(fedge_collective_agree(collective, status, NULL, 0, err), done);
    FEDGE_TRY_OR(
        fedge_collective_gather(collective, local.list.data, local.list.size, &gathered, err),
        done);
    status = place_files(placement, collective, &gathered, &local, data, wanted, err);
    FEDGE_TRY_OR(fedge_collective_agree(collective, status, NULL, 0, err), done);
    if (placement->holders) {
        placement->values = (char *)local.values.data;
        placement->labels = (char *)local.labels.data;
        local.values = local.labels = (fedge_buffer){0};
    }
done:
    fedge_collective_gathered_fini(&gathered);
    fedge_buffer_fini(&local.list);
    fedge_buffer_fini(&local.values);
    fedge_buffer_fini(&local.labels);
    if (status != FEDGE_OK)
        fedge_placement_fini(placement);
    return status;
}

fedge_status fedge_placement_find_tests(fedge_placement *placement,
                                        const fedge_collective *collective, bool has_test_set,
                                        fedge_error *err)
{
    const uint8_t has = has_test_set;
    fedge_collective_gathered gathered;
    fedge_status status;
    FEDGE_TRY_OR(fedge_collective_gather(collective, &has, sizeof(has), &gathered, err), done);
    bool alike = true;
    for (uint32_t rank = 0; rank < collective->num_ranks; rank++)
        alike = alike && gathered.bytes[rank] == gathered.bytes[0];
    if (!alike) {
        placement->tests = gathered.bytes;
        gathered.bytes = NULL;
    }
done:
    fedge_collective_gathered_fini(&gathered);
    return status;
}

void fedge_placement_fini(fedge_placement *placement)
{
    free(placement->holders);
    free(placement->tests);
    free(placement->homes);
    free(placement->local);
    free(placement->values);
    free(placement->labels);
    *placement = (fedge_placement){0};
}

bool fedge_placement_has(const fedge_placement *placement, uint32_t rank, uint32_t client)
{
    if (!placement->holders || client == FEDGE_PLACEMENT_ANYONE)
        return true;
    const uint8_t *holders = placement->holders + client * stride_of(placement->num_ranks);
    return (holders[rank / 8] & 1u << rank % 8) != 0;
}

uint32_t fedge_placement_first(const fedge_placement *placement, uint32_t client)
{
    uint32_t rank = 0;
    while (!fedge_placement_has(placement, rank, client))
        rank++;
    return rank;
}

uint32_t fedge_placement_home(const fedge_placement *placement, uint32_t num_ranks, uint32_t client)
{
    return placement->homes ? placement->homes[client] : client % num_ranks;
}

/* ---- dealing --------------------------------------------------------------------------------- */

static bool can_do(const fedge_placement *self, uint32_t num_ranks, uint32_t rank,
                   const fedge_placement_work *work)
{
    if (work->is_at_home)
        return fedge_placement_home(self, num_ranks, work->client) == rank;
    return (!work->tests || !self->tests || self->tests[rank]) &&
           fedge_placement_has(self, rank, work->client);
}

/* The least loaded of the ranks that can do [work]; *choice: are there several? */
static uint32_t choose(const fedge_placement *self, uint32_t num_ranks,
                       const fedge_placement_work *work, const uint64_t *loads, bool *choice)
{
    uint32_t best = 0, able = 0;
    for (uint32_t rank = 0; rank < num_ranks; rank++) {
        if (can_do(self, num_ranks, rank, work))
            best = able++ == 0 || loads[rank] < loads[best] ? rank : best;
    }
    *choice = able > 1;
    return best;
}

void fedge_placement_deal(const fedge_placement *placement, uint32_t num_ranks,
                          const fedge_placement_work *work, uint32_t num_work, uint64_t *loads,
                          uint32_t *rank_of)
{
    memset(loads, 0, num_ranks * sizeof(*loads));
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < num_work; i++) {
            bool choice = false;
            const uint32_t rank = choose(placement, num_ranks, &work[i], loads, &choice);
            if (choice == (pass == 1)) {
                rank_of[i] = rank;
                loads[rank] += work[i].size;
            }
        }
    }
}
