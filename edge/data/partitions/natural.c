#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/bytes.h"
#include "edge/data/formats/csv.h"
#include "edge/data/formats/data_file.h"
#include "edge/data/formats/file_list.h"
#include "edge/data/formats/leaf.h"
#include "edge/data/partitions/scheme.h"

#define FIRST_SLOTS ((uint32_t)1 << 10) /* initial slots; the table doubles when half full */
#define HASH_BASIS 14695981039346656037u
#define HASH_PRIME 1099511628211u

/* Names in the order of their first appearance, in an open-addressing table of FNV-1a hashes. */
typedef struct roster {
    fedge_buffer names; /* concatenated, each with NUL */
    size_t *at;         /* (capacity): start of each owner's name */
    uint32_t *slots;    /* (num_slots): owner + 1, or 0; a power of two */
    uint32_t count, num_slots;
} roster;

static void roster_fini(roster *r)
{
    fedge_buffer_fini(&r->names);
    free(r->at);
    free(r->slots);
}

/* The slot of the name, or an empty one for it. */
static uint32_t find_slot(const roster *r, const char *name)
{
    uint64_t hash = HASH_BASIS;
    for (const char *c = name; *c; c++)
        hash = (hash ^ (uint8_t)*c) * HASH_PRIME;
    uint32_t slot = (uint32_t)(hash ^ hash >> 32) & (r->num_slots - 1);
    while (r->slots[slot] > 0 &&
           strcmp((const char *)r->names.data + r->at[r->slots[slot] - 1], name) != 0)
        slot = (slot + 1) & (r->num_slots - 1);
    return slot;
}

/* Reserves space for one more name. */
static fedge_status grow(roster *r, fedge_error *err)
{
    if (r->count < r->num_slots / 2)
        return FEDGE_OK;
    const uint32_t num_slots = r->num_slots ? r->num_slots * 2 : FIRST_SLOTS;
    uint32_t *slots = calloc(num_slots, sizeof(*slots));
    size_t *at = realloc(r->at, num_slots / 2 * sizeof(*at));
    if (at)
        r->at = at;
    if (!slots || !at) {
        free(slots);
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for more than %" PRIu32 " owners",
                          r->count);
    }
    free(r->slots);
    r->slots = slots;
    r->num_slots = num_slots;
    for (uint32_t i = 0; i < r->count; i++)
        r->slots[find_slot(r, (const char *)r->names.data + r->at[i])] = i + 1;
    return FEDGE_OK;
}

static fedge_status owner_of(roster *r, const char *name, uint32_t *owner, fedge_error *err)
{
    FEDGE_TRY(grow(r, err));
    const uint32_t slot = find_slot(r, name);
    if (r->slots[slot] == 0) {
        const size_t at = r->names.size;
        const fedge_status status = fedge_buffer_append(&r->names, name, strlen(name) + 1, err);
        if (status != FEDGE_OK)
            return fedge_error_prefix(err, status, "the names of %" PRIu32 " owners", r->count);
        r->at[r->count] = at;
        r->slots[slot] = ++r->count;
    }
    *owner = r->slots[slot] - 1;
    return FEDGE_OK;
}

/* Only csv files have named columns, and LEAF files have users. */
static fedge_status check_format(const char *path, const char *column, bool *leaf, fedge_error *err)
{
    fedge_reader reader;
    FEDGE_TRY(fedge_reader_open(&reader, path, err));
    uint8_t head[FEDGE_TENSOR_DATA_HEAD_SIZE];
    size_t got = 0;
    fedge_status status = fedge_reader_peek(&reader, head, sizeof(head), &got, err);
    fedge_reader_close(&reader);
    if (status != FEDGE_OK)
        return status;
    *leaf = FEDGE_WITH_MORE_DATA && fedge_leaf_matches(head, got);
    const bool tensors = FEDGE_WITH_MORE_DATA && fedge_tensor_data_matches(head, got);
    /* No text begins like this: CIFAR, which has no magic number, or no data at all. */
    const bool binary = got > 0 && head[0] < ' ' && head[0] != '\n' && head[0] != '\r';
    if (fedge_npy_matches(head, got) || fedge_idx_matches(head, got) || tensors || binary) {
        return fedge_fail(
            err, FEDGE_UNSUPPORTED,
            "partition natural:%.64s: %.200s has no columns with names, as only csv with a header "
            "has; write who owns what to a csv file, \"example,client\", and use file:CSV, or "
            "divide by iid, dirichlet:0.5, …",
            column, path);
    }
    if (FEDGE_WITH_MORE_DATA && *leaf && strcmp(column, FEDGE_LEAF_USER) != 0) {
        return fedge_fail(err, FEDGE_NOT_FOUND,
                          "partition natural:%.64s: %.200s is LEAF's, which has users, not "
                          "columns: write natural:" FEDGE_LEAF_USER,
                          column, path);
    }
    return FEDGE_OK;
}

/* Reads the owners of all rows and advances *row; more rows than [num_examples] are refused. owner
 * NULL: only counts, without a limit. */
static fedge_status read_owners(fedge_csv *csv, roster *r, uint32_t num_examples, uint32_t *owner,
                                uint32_t *row, fedge_error *err)
{
    for (;; ++*row) {
        bool end = false;
        uint32_t who = 0;
        FEDGE_TRY(fedge_csv_next(csv, &end, err));
        if (end)
            return FEDGE_OK;
        if (csv->text[0] == '\0') {
            return fedge_fail(err, FEDGE_CORRUPT, "%s:%" PRIu64 ": column %" PRIu64 " is empty",
                              csv->reader.path, csv->number, csv->aside);
        }
        if (*row == num_examples) {
            return fedge_fail(err, FEDGE_MISMATCH,
                              "%s:%" PRIu64 ": more rows than the %" PRIu32 " examples",
                              csv->reader.path, csv->number, num_examples);
        }
        const fedge_status status = owner_of(r, csv->text, &who, err);
        if (status != FEDGE_OK)
            return fedge_error_prefix(err, status, "%s:%" PRIu64, csv->reader.path, csv->number);
        if (owner)
            owner[*row] = who;
    }
}

/* Reading users of a LEAF file. */
typedef struct leaf_owners {
    roster *r;
    const char *path;
    uint32_t num_examples, who;
    uint32_t *owner, *row;
} leaf_owners;

static fedge_status next_user(void *context, const char *name, fedge_error *err)
{
    leaf_owners *l = context;
    return owner_of(l->r, name, &l->who, err);
}

static fedge_status next_example(void *context, int64_t label, fedge_error *err)
{
    const leaf_owners *l = context;
    (void)label;
    if (*l->row == l->num_examples) {
        return fedge_fail(err, FEDGE_MISMATCH, "%s: more than the %" PRIu32 " examples", l->path,
                          l->num_examples);
    }
    if (l->owner)
        l->owner[*l->row] = l->who;
    ++*l->row;
    return FEDGE_OK;
}

static fedge_status read_file(const char *path, const char *column, roster *r,
                              uint32_t num_examples, uint32_t *owner, uint32_t *row,
                              fedge_error *err)
{
    bool leaf = false;
    FEDGE_TRY(check_format(path, column, &leaf, err));
    fedge_status status;
    fedge_csv csv;
    if (FEDGE_WITH_MORE_DATA && leaf) {
        leaf_owners l = {r, path, num_examples, 0, owner, row};
        const fedge_leaf_visitor visitor = {
            .context = &l, .user = next_user, .label = next_example};
        status = fedge_leaf_read(path, &visitor, err);
    } else {
        status = fedge_csv_open_aside(&csv, path, 0, column, err);
        if (status == FEDGE_OK) {
            status = read_owners(&csv, r, num_examples, owner, row, err);
            fedge_csv_close(&csv);
        }
    }
    return status ? fedge_error_prefix(err, status, "partition natural:%.64s", column) : FEDGE_OK;
}

/* An owner in several files is one owner. */
static fedge_status read_files(const char *paths, const char *column, uint32_t num_examples,
                               uint32_t *owner, uint32_t *num_owners, fedge_error *err)
{
    if (!paths || paths[0] == '\0') {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "partition natural:%.64s: there is no csv file with that column; write "
                          "who owns what to a file and use file:CSV",
                          column);
    }
    fedge_file_list list;
    FEDGE_TRY(fedge_file_list_open(&list, paths, err));
    fedge_status status = FEDGE_OK;
    uint32_t row = 0;
    roster r = {.count = 0};
    fedge_buffer_init(&r.names, FEDGE_PARTITION_MAX_NAMES);
    for (uint32_t f = 0; f < list.count && !status; f++)
        status = read_file(list.paths[f], column, &r, num_examples, owner, &row, err);
    *num_owners = r.count;
    roster_fini(&r);
    fedge_file_list_close(&list);
    if (status == FEDGE_OK && owner && row < num_examples) {
        return fedge_fail(err, FEDGE_MISMATCH,
                          "partition natural:%.64s: %.200s: %" PRIu32 " rows, but %" PRIu32
                          " examples",
                          column, paths, row, num_examples);
    }
    return status;
}

static fedge_status assign(const fedge_partition_spec *spec, const fedge_partition_data *data,
                           uint32_t num_parts, uint32_t *owner, fedge_error *err)
{
    uint32_t num_owners = 0;
    FEDGE_TRY(
        read_files(data->values_path, spec->source, data->num_examples, owner, &num_owners, err));
    if (num_owners != num_parts) {
        return fedge_fail(err, FEDGE_MISMATCH,
                          "partition natural:%.64s: the column has %" PRIu32
                          " owners, but there are to be %" PRIu32 " clients; ask for %" PRIu32,
                          spec->source, num_owners, num_parts, num_owners);
    }
    return FEDGE_OK;
}

static fedge_status count_owners(const fedge_partition_spec *spec, const char *values_path,
                                 uint32_t *num_parts, fedge_error *err)
{
    return read_files(values_path, spec->source, UINT32_MAX, NULL, num_parts, err);
}

const fedge_partition_ops fedge_partition_natural = {.name = "natural",
                                                     .usage = "natural:COLUMN",
                                                     .argument = FEDGE_PARTITION_SOURCE,
                                                     .min_examples = 1,
                                                     .assign = assign,
                                                     .num_parts = count_owners};
