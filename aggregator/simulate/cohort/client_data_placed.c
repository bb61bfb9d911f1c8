/* The clients' data where each rank has local files. Each rank loads its files; then the ranks
 * exchange the numbers of examples, all labels, and the examples for validation. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "aggregator/simulate/cohort/client_data.h"
#include "aggregator/simulate/time/availability.h"
#include "edge/core/message.h"
#include "edge/data/formats/csv.h"
#include "edge/plan/plan.h"

/* A rank's description of one client's file. It has no padding, since it is compared. */
typedef struct file_facts {
    uint32_t count;        /* examples */
    uint32_t crc32_values; /* CRC-32 of the values as stored */
    uint32_t crc32_labels;
} file_facts;

typedef struct loading {
    const fedge_plan *plan;
    const fedge_site_data *data;
    const fedge_placement *placement;
    const fedge_collective *collective;
    fedge_client_data *fresh;
    file_facts *local; /* (placement->num_local + 1); the last has header_of as its [count] */
    file_facts *files; /* (num_clients) */
    uint32_t *ends;    /* (num_clients): examples of all files up to and including this one */
} loading;

static fedge_status no_memory(fedge_error *err)
{
    return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the data of the ranks' clients");
}

static fedge_status agree(const loading *self, fedge_status status, fedge_error *err)
{
    return fedge_collective_agree(self->collective, status, NULL, 0, err);
}

/* ---- the files of this rank ------------------------------------------------------------------ */

/* A checksum of the column names in this rank's csv files (fedge_csv.names); 0: none. Loading has
 * checked that all its files have the same. */
static uint32_t header_of(const loading *self)
{
    char path[FEDGE_MAX_PATH];
    bool end = false;
    uint32_t names = 0;
    fedge_csv csv;
    const char *values = self->placement->values;
    (void)snprintf(path, sizeof(path), "%.*s", (int)strcspn(values, "\n"), values);
    if (path[0] == '\0' ||
        fedge_csv_open_aside(&csv, path, 0, self->plan->data.aside, NULL) != FEDGE_OK)
        return 0;
    if (fedge_csv_next(&csv, &end, NULL) == FEDGE_OK)
        names = csv.names;
    fedge_csv_close(&csv);
    return names;
}

static fedge_status load_local(loading *self, fedge_error *err)
{
    const uint32_t num_local = self->placement->num_local;
    const fedge_division division = {&self->data->partition, num_local, 0};
    uint32_t *owner = NULL;
    FEDGE_TRY(fedge_dataset_load_divided(&self->plan->data, self->placement->values,
                                         self->placement->labels, &division, &self->fresh->dataset,
                                         &owner, err));
    const fedge_dataset *dataset = self->fresh->dataset;
    const uint32_t count = fedge_dataset_size(dataset);
    const size_t size = fedge_dataset_example_size(dataset);
    const uint8_t *values = fedge_dataset_values(dataset);
    const int32_t *labels = fedge_dataset_labels(dataset);
    for (uint32_t i = 0, end = 0; i < num_local; i++) {
        const uint32_t first = end;
        while (end < count && owner[end] == i)
            end++;
        const uint32_t n = end - first;
        self->local[i] = (file_facts){n, fedge_crc32(0, values + first * size, n * size),
                                      fedge_crc32(0, labels + first, n * sizeof(*labels))};
    }
    free(owner);
    self->local[num_local] = (file_facts){.count = header_of(self)};
    return FEDGE_OK;
}

/* ---- all ranks' files ------------------------------------------------------------------------ */

/* FEDGE_MISMATCH where [rank] describes a client's file differently from another rank. */
static fedge_status compare_files(loading *self, uint32_t rank, const uint8_t *gathered,
                                  fedge_error *err)
{
    const fedge_placement *placement = self->placement;
    for (uint32_t c = 0; c < placement->num_clients; c++) {
        if (!fedge_placement_has(placement, rank, c))
            continue;
        const uint32_t first = fedge_placement_first(placement, c);
        file_facts theirs;
        memcpy(&theirs, gathered, sizeof(theirs));
        gathered += sizeof(theirs);
        if (rank == first)
            self->files[c] = theirs;
        if (memcmp(&theirs, &self->files[c], sizeof(theirs)) != 0) {
            return fedge_fail(err, FEDGE_MISMATCH,
                              "the data of client %" PRIu32 " is another on rank %" PRIu32
                              " than on rank %" PRIu32
                              ": give both the same file, or only one of them",
                              c, rank, first);
        }
    }
    return FEDGE_OK;
}

static fedge_status compare(loading *self, const fedge_collective_gathered *gathered,
                            fedge_error *err)
{
    uint32_t names = 0, named_by = 0;
    for (uint32_t rank = 0; rank < self->placement->num_ranks; rank++) {
        file_facts header;
        FEDGE_TRY(compare_files(self, rank, gathered->bytes + gathered->starts[rank], err));
        memcpy(&header, gathered->bytes + gathered->starts[rank + 1] - sizeof(header),
               sizeof(header));
        if (names == 0) {
            names = header.count;
            named_by = rank;
        }
        if (header.count != 0 && header.count != names) {
            return fedge_fail(err, FEDGE_MISMATCH,
                              "the files of rank %" PRIu32 " have a header that names other "
                              "columns than those of rank %" PRIu32
                              ", or in another order: bring them into one order",
                              rank, named_by);
        }
    }
    return FEDGE_OK;
}

static fedge_status count(loading *self, fedge_error *err)
{
    const size_t size = fedge_dataset_example_size(self->fresh->dataset);
    uint64_t end = 0;
    uLong crc = 0;
    for (uint32_t c = 0; c < self->placement->num_clients; c++) {
        const file_facts *file = &self->files[c];
        end += file->count;
        if (end > FEDGE_DATASET_MAX_EXAMPLES) {
            return fedge_fail(err, FEDGE_TOO_BIG,
                              "the clients of all ranks have more than %" PRIu32 " examples",
                              FEDGE_DATASET_MAX_EXAMPLES);
        }
        self->ends[c] = (uint32_t)end;
        crc = crc32_combine(crc, file->crc32_values, (z_off_t)(file->count * size));
    }
    self->fresh->crc32 = (uint32_t)crc;
    return FEDGE_OK;
}

static fedge_status divide(loading *self, double validation_split, fedge_error *err)
{
    const uint32_t clients = self->placement->num_clients, examples = self->ends[clients - 1];
    const fedge_partition_data data = {.num_examples = examples,
                                       .num_labels = self->plan->data.num_labels,
                                       .num_files = clients,
                                       .file_ends = self->ends};
    uint32_t *owner = malloc(((size_t)examples + 1) * sizeof(*owner));
    self->fresh->labels = malloc(((size_t)examples + 1) * sizeof(*self->fresh->labels));
    const fedge_status status =
        owner && self->fresh->labels
            ? fedge_partition_assign_with_validation(&self->data->partition, &data,
                                                     validation_split, clients, owner, err)
            : no_memory(err);
    if (status != FEDGE_OK) {
        free(owner);
        return status;
    }
    return fedge_client_data_divide(self->fresh, owner, examples, self->data->validation_fraction,
                                    self->plan->seed, err);
}

/* ---- other ranks' data ----------------------------------------------------------------------- */

/* A client's examples among those of all ranks and in this rank's data set. */
typedef struct client_range {
    uint32_t first, end; /* among all */
    uint32_t local;      /* the first among this rank's, if it has them */
    bool is_local;
} client_range;

/* The range of [client]; [before] is that of the client before it, or all 0. */
static client_range range_of(const loading *self, uint32_t client, const client_range *before)
{
    return (client_range){
        .first = before->end,
        .end = self->ends[client],
        .local = before->local + (before->is_local ? before->end - before->first : 0),
        .is_local = fedge_placement_has(self->placement, self->collective->rank, client)};
}

static void exchange_labels(loading *self)
{
    fedge_client_data *fresh = self->fresh;
    client_range at = {0};
    for (uint32_t c = 0; c < fresh->num_clients; c++) {
        at = range_of(self, c, &at);
        const uint32_t n = at.end - at.first;
        if (at.is_local) {
            memcpy(fresh->labels + at.first, fedge_dataset_labels(fresh->dataset) + at.local,
                   n * sizeof(*fresh->labels));
        }
        fedge_collective_broadcast(self->collective, fresh->labels + at.first,
                                   n * sizeof(*fresh->labels),
                                   fedge_placement_first(self->placement, c));
    }
    fresh->crc32 =
        fedge_crc32(fresh->crc32, fresh->labels, fresh->num_examples * sizeof(*fresh->labels));
}

/* Counts the examples for validation that this rank lacks. */
static uint32_t count_lacking(const loading *self)
{
    uint32_t lacking = 0;
    client_range at = {0};
    for (uint32_t c = 0; c < self->fresh->num_clients; c++) {
        at = range_of(self, c, &at);
        for (uint32_t e = at.first; e < at.end && !at.is_local; e++)
            lacking += self->fresh->owner[e] == FEDGE_PARTITION_VALIDATION;
    }
    return lacking;
}

/* Sends the examples for validation to all ranks, and sets each example's index in this rank's data
 * set. [values], [labels]: filled with the examples that this rank lacks. */
static void exchange_validation(loading *self, uint32_t *indices, uint8_t *values, int32_t *labels,
                                uint8_t *buffer)
{
    const fedge_client_data *fresh = self->fresh;
    const size_t size = fedge_dataset_example_size(fresh->dataset);
    const uint8_t *stored = fedge_dataset_values(fresh->dataset);
    client_range at = {0};
    for (uint32_t c = 0; c < fresh->num_clients; c++) {
        at = range_of(self, c, &at);
        const uint32_t from = fedge_placement_first(self->placement, c);
        for (uint32_t e = at.first; e < at.end; e++) {
            const uint32_t local_index = at.local + (e - at.first);
            indices[e] = at.is_local ? local_index : UINT32_MAX;
            if (fresh->owner[e] != FEDGE_PARTITION_VALIDATION)
                continue;
            if (from == self->collective->rank)
                memcpy(buffer, stored + local_index * size, size);
            fedge_collective_broadcast(self->collective, buffer, size, from);
            if (!at.is_local) {
                memcpy(values, buffer, size);
                *labels++ = fresh->labels[e];
                indices[e] = (uint32_t)((size_t)(values - stored) / size);
                values += size;
            }
        }
    }
}

static fedge_status exchange(loading *self, fedge_error *err)
{
    fedge_client_data *fresh = self->fresh;
    exchange_labels(self);
    const uint32_t lacking = count_lacking(self);
    void *values = NULL;
    int32_t *labels = NULL;
    uint32_t *indices = malloc(((size_t)fresh->num_examples + 1) * sizeof(*indices));
    uint8_t *buffer = malloc(fedge_dataset_example_size(fresh->dataset));
    fedge_status status = indices && buffer
                              ? fedge_dataset_extend(fresh->dataset, lacking, &values, &labels, err)
                              : no_memory(err);
    FEDGE_TRY_OR(agree(self, status, err), done);
    assert(indices && buffer);
    exchange_validation(self, indices, values, labels, buffer);
    const uint32_t listed = fresh->first[fresh->num_clients] + fresh->num_validation;
    for (uint32_t i = 0; i < listed; i++)
        fresh->examples[i] = indices[fresh->examples[i]];
done:
    free(indices);
    free(buffer);
    return status;
}

/* ---- loading --------------------------------------------------------------------------------- */

/* [gathered]: all ranks' local files. Ranks can differ only in a lack of memory. */
static fedge_status divide_gathered(loading *self, const fedge_collective_gathered *gathered,
                                    double validation_split, fedge_error *err)
{
    FEDGE_TRY(compare(self, gathered, err));
    FEDGE_TRY(count(self, err));
    return divide(self, validation_split, err);
}

static fedge_status load(loading *self, double validation_split, fedge_error *err)
{
    const fedge_placement *placement = self->placement;
    fedge_collective_gathered gathered = {0};
    self->fresh->num_clients = placement->num_clients;
    self->fresh->placement = placement;
    self->local = calloc((size_t)placement->num_local + 1, sizeof(*self->local));
    self->files = calloc(placement->num_clients, sizeof(*self->files));
    self->ends = calloc(placement->num_clients, sizeof(*self->ends));
    fedge_status status =
        self->local && self->files && self->ends ? load_local(self, err) : no_memory(err);
    FEDGE_TRY(agree(self, status, err));
    assert(self->local && self->files && self->ends);
    FEDGE_TRY_OR(fedge_collective_gather(self->collective, self->local,
                                         (placement->num_local + 1) * sizeof(*self->local),
                                         &gathered, err),
                 done);
    status = agree(self, divide_gathered(self, &gathered, validation_split, err), err);
done:
    fedge_collective_gathered_fini(&gathered);
    FEDGE_TRY(status);
    return exchange(self, err);
}

fedge_status fedge_client_data_new_placed(const fedge_plan *plan, const fedge_site_data *data,
                                          double validation_split, const fedge_placement *placement,
                                          const fedge_collective *collective,
                                          fedge_client_data **client_data, fedge_error *err)
{
    *client_data = NULL;
    loading self = {.plan = plan,
                    .data = data,
                    .placement = placement,
                    .collective = collective,
                    .fresh = calloc(1, sizeof(*self.fresh))};
    fedge_status status;
    FEDGE_TRY_OR(agree(&self, self.fresh ? FEDGE_OK : no_memory(err), err), done);
    assert(self.fresh);
    FEDGE_TRY_OR(load(&self, validation_split, err), done);
    *client_data = self.fresh;
    self.fresh = NULL;
done:
    fedge_client_data_free(self.fresh);
    free(self.local);
    free(self.files);
    free(self.ends);
    return status;
}
