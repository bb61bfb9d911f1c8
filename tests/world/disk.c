/* The world's functions of the simulated disks: begin, power failures, backups and queries. */
#include "tests/world/disk.h"

#include <stdio.h>
#include <string.h>

#include "tests/world/disk_state.h"
#include "tests/world/scheduler.h"

#define DEFAULT_CAPACITY ((uint64_t)64 << 20)

static struct {
    bool on;
    uint64_t seed;
    disk disks[WORLD_MAX_NODES];
    uint32_t shared[WORLD_MAX_NODES]; /* ≠ 0: the node uses the disk of this node */
} all;

/* Purposes of random streams. */
enum { DRAW_CALLS, DRAW_POWER };

static fedge_rng stream(uint32_t node, uint32_t number, uint16_t purpose)
{
    return fedge_rng_stream(all.seed, FEDGE_PURPOSE_TEST, node, number, purpose);
}

disk *disk_of(uint32_t node)
{
    disk_must(all.on && node < WORLD_MAX_NODES, "there are no disks now");
    node = all.shared[node] ? all.shared[node] : node;
    disk *of = &all.disks[node];
    if (!of->exists) {
        memset(of, 0, sizeof(*of));
        of->exists = true;
        of->node = node;
        of->next_inode = 1;
        of->rng = stream(node, 0, DRAW_CALLS);
        of->faults.capacity = DEFAULT_CAPACITY;
        of->root = disk_new_inode(of, true, 0700);
    }
    return of;
}

void world_disk_begin(uint64_t seed)
{
    world_disk_end();
    all.on = true;
    all.seed = seed;
}

void world_disk_end(void)
{
    for (uint32_t i = 0; i < WORLD_MAX_NODES; i++)
        all.disks[i].exists = false;
    memset(all.shared, 0, sizeof(all.shared));
    disk_forget_memory();
    all.on = false;
}

void world_disk_share(uint32_t node, uint32_t with)
{
    all.shared[node] = with;
}

void world_disk_set_faults(uint32_t node, const world_disk_faults *faults)
{
    disk *of = disk_of(node);
    of->faults = *faults;
    if (faults->capacity == 0)
        of->faults.capacity = DEFAULT_CAPACITY;
}

void world_disk_drop(uint32_t node)
{
    disk *of = disk_of(node);
    for (disk_descriptor *i = of->open; i < of->open + DISK_MAX_OPEN; i++) {
        if (i->inode)
            disk_close(of, i);
    }
}

/* ---- a power failure ------------------------------------------------------------------------- */

/* Each unsynced change survives with a probability of [eighths] / 8. */
typedef struct survival {
    fedge_rng rng;
    uint32_t eighths;
} survival;

static bool survives(survival *draw, disk_certainty certainty)
{
    return certainty == DISK_CERTAIN || fedge_rng_below(&draw->rng, 8) < draw->eighths;
}

static bool is_torn(survival *draw, const disk_change *made)
{
    return made->kind == DISK_WRITE && made->certainty != DISK_CERTAIN && draw->eighths % 8 != 0 &&
           fedge_rng_below(&draw->rng, 4) == 0;
}

static void take_back(disk_inode *file, const disk_change *made)
{
    if (made->num_old > 0)
        disk_put(file, made->at, made->bytes + made->num_new, made->num_old);
    file->size = made->old_size;
    file->filled = made->old_filled;
}

static void put_sectors(disk_inode *file, const disk_change *made, survival *draw)
{
    for (size_t done = 0; done < made->num_new;) {
        const uint64_t at = made->at + done;
        const size_t room = DISK_SECTOR - (size_t)(at % DISK_SECTOR);
        const size_t size = made->num_new - done < room ? made->num_new - done : room;
        if (fedge_rng_below(&draw->rng, 2) == 0)
            disk_put(file, at, made->bytes + done, size);
        done += size;
    }
}

static void make_again(disk_inode *file, const disk_change *made)
{
    if (made->kind == DISK_WRITE)
        disk_put(file, made->at, made->bytes, made->num_new);
    else if (made->kind == DISK_CUT || made->at > file->size)
        disk_set_size(file, made->at);
}

static void lose_content(disk_inode *file, survival *draw)
{
    for (const disk_change *made = file->last; made; made = made->previous)
        take_back(file, made);
    for (const disk_change *made = file->first; made; made = made->next) {
        if (is_torn(draw, made))
            put_sectors(file, made, draw);
        else if (survives(draw, made->certainty))
            make_again(file, made);
    }
    disk_forget_changes(file);
}

static void lose_names(disk *of, survival *draw)
{
    for (const disk_naming *made = of->last; made; made = made->previous) {
        for (unsigned i = made->num_bindings; i-- > 0;) {
            const disk_binding *at = &made->bindings[i];
            disk_set_name(of, at->dir, at->name, at->before);
        }
    }
    for (const disk_naming *made = of->first; made; made = made->next) {
        if (!survives(draw, made->certainty))
            continue;
        for (unsigned i = 0; i < made->num_bindings; i++) {
            const disk_binding *at = &made->bindings[i];
            disk_set_name(of, at->dir, at->name, at->after);
        }
    }
    while (of->first)
        disk_forget_naming(of, of->first);
}

static void reach(disk_inode *inode)
{
    inode->reached = true;
    for (uint32_t i = 0; i < inode->num_entries; i++)
        reach(inode->entries[i]);
}

/* Frees all inodes that no path reaches, such as the content of a directory whose name was lost. */
static void free_unreached(disk *of)
{
    for (disk_inode *i = of->inodes; i; i = i->next)
        i->reached = false;
    reach(of->root);
    for (disk_inode *i = of->inodes, *next; i; i = next) {
        next = i->next;
        if (i->reached)
            disk_account(of, i);
        else
            disk_free_inode(of, i);
    }
}

void world_disk_power_off(uint32_t node)
{
    static const uint32_t eighths[] = {0, 8, 4, 1, 7, 4};
    disk *of = disk_of(node);
    disk_must(of->num_open == 0, "a power failure of a process that goes on");
    survival draw = {.rng = stream(node, fedge_rng_u32(world_draw()), DRAW_POWER)};
    draw.eighths = eighths[fedge_rng_below(&draw.rng, sizeof(eighths) / sizeof(eighths[0]))];
    for (disk_inode *i = of->inodes; i; i = i->next)
        lose_content(i, &draw);
    lose_names(of, &draw);
    free_unreached(of);
    world_trace("power off: %u of 8 unsynced changes stay", draw.eighths);
}

/* ---- backups --------------------------------------------------------------------------------- */

struct world_disk_copy {
    disk tree; /* only with inodes */
};

/* Copies the content of one directory into another, as synced. */
static void copy_entries(disk *to, disk_inode *dir, const disk_inode *from)
{
    for (uint32_t i = 0; i < from->num_entries; i++) {
        const disk_inode *old = from->entries[i];
        disk_inode *made = disk_new_inode(to, old->is_dir, old->mode);
        disk_set_name(to, dir, old->name, made);
        if (old->filled > 0)
            disk_put(made, 0, old->data, (size_t)old->filled);
        disk_set_size(made, old->size);
        disk_account(to, made);
        copy_entries(to, made, old);
    }
}

static void forget_files(disk *of)
{
    while (of->first)
        disk_forget_naming(of, of->first);
    while (of->inodes)
        disk_free_inode(of, of->inodes);
    of->root = NULL;
}

world_disk_copy *world_disk_copy_of(uint32_t node)
{
    const disk *of = disk_of(node);
    disk_must(of->num_open == 0, "a backup of open files");
    world_disk_copy *copy = disk_take(sizeof(*copy));
    memset(copy, 0, sizeof(*copy));
    copy->tree.root = disk_new_inode(&copy->tree, true, of->root->mode);
    copy_entries(&copy->tree, copy->tree.root, of->root);
    return copy;
}

void world_disk_restore(uint32_t node, const world_disk_copy *copy)
{
    disk *of = disk_of(node);
    disk_must(of->num_open == 0, "a backup over open files");
    forget_files(of);
    of->root = disk_new_inode(of, true, copy->tree.root->mode);
    copy_entries(of, of->root, copy->tree.root);
}

void world_disk_free_copy(world_disk_copy *copy)
{
    if (copy) {
        forget_files(&copy->tree);
        disk_give(copy, sizeof(*copy));
    }
}

/* ---- looks ----------------------------------------------------------------------------------- */

typedef struct walk {
    void (*visit)(void *user, const char *path, disk_inode *file);
    void *user;
    char path[DISK_MAX_PATH];
} walk;

static void walk_below(walk *on, const disk_inode *dir, size_t length)
{
    for (uint32_t i = 0; i < dir->num_entries; i++) {
        disk_inode *inode = dir->entries[i];
        const size_t size = strlen(inode->name) + 1;
        disk_must(size < sizeof(on->path) - length, "a path is too long");
        on->path[length] = '/';
        memcpy(on->path + length + 1, inode->name, size);
        if (inode->is_dir)
            walk_below(on, inode, length + size);
        else
            on->visit(on->user, on->path, inode);
    }
}

static void walk_all(uint32_t node, void (*visit)(void *user, const char *path, disk_inode *file),
                     void *user)
{
    walk on = {.visit = visit, .user = user, .path = WORLD_DISK_ROOT};
    walk_below(&on, disk_of(node)->root, strlen(WORLD_DISK_ROOT));
}

typedef struct visitor {
    void (*visit)(void *user, const char *path);
    void *user;
} visitor;

static void visit_path(void *user, const char *path, disk_inode *file)
{
    (void)file;
    const visitor *to = user;
    to->visit(to->user, path);
}

void world_disk_each(uint32_t node, void (*visit)(void *user, const char *path), void *user)
{
    visitor to = {visit, user};
    walk_all(node, visit_path, &to);
}

/* Counts the files in which a bit may flip, and finds the one numbered [wanted]. */
typedef struct flip_search {
    const char *part;
    uint32_t count, wanted;
    disk_inode *found;
} flip_search;

static char flipped_path[DISK_MAX_PATH];

static void visit_flip(void *user, const char *path, disk_inode *file)
{
    flip_search *search = user;
    if (file->size == 0 || !strstr(path, search->part))
        return;
    if (search->count++ == search->wanted) {
        search->found = file;
        memcpy(flipped_path, path, strlen(path) + 1);
    }
}

bool world_disk_flip(uint32_t node, const char *part, const char **path)
{
    fedge_rng *rng = &disk_of(node)->rng;
    flip_search search = {.part = part, .wanted = UINT32_MAX};
    walk_all(node, visit_flip, &search);
    if (search.count == 0)
        return false;
    search = (flip_search){.part = part, .wanted = fedge_rng_below(rng, search.count)};
    walk_all(node, visit_flip, &search);
    disk_inode *file = search.found;
    const uint64_t at = fedge_rng_u64(rng) % file->size;
    const unsigned bit = fedge_rng_below(rng, 8);
    disk_fill(file)[at] ^= (uint8_t)(1u << bit);
    *path = flipped_path;
    world_trace("bit %u of byte %llu flips in %s", bit, (unsigned long long)at, flipped_path);
    return true;
}

const uint8_t *world_disk_read(uint32_t node, const char *path, size_t *size)
{
    disk_place place;
    disk_must(disk_has_path(path), path);
    if (disk_look_up(disk_of(node), path, &place) != 0 || !place.inode || place.inode->is_dir)
        return NULL;
    *size = (size_t)place.inode->size;
    return disk_fill(place.inode);
}

/* Whether all names on the path to the inode are synced. */
static bool has_synced_name(const disk *of, const disk_inode *inode)
{
    for (const disk_inode *at = inode; at; at = at->parent) {
        for (const disk_naming *made = of->first; made; made = made->next) {
            for (unsigned i = 0; i < made->num_bindings; i++) {
                if (made->certainty == DISK_PENDING && made->bindings[i].after == at)
                    return false;
            }
        }
    }
    return true;
}

/* Whether certain writes after [made] have put other bytes in all of [from, end). */
static bool is_overwritten(const disk_change *made, uint64_t from, uint64_t end)
{
    for (bool any = true; any && from < end;) {
        any = false;
        for (const disk_change *later = made->next; later; later = later->next) {
            const uint64_t to = later->at + later->num_new;
            if (later->kind == DISK_WRITE && later->certainty == DISK_CERTAIN &&
                later->at <= from && to > from) {
                from = to;
                any = true;
            }
        }
    }
    return from >= end;
}

bool world_disk_is_synced(uint32_t node, const char *path, uint64_t begin, uint64_t end)
{
    disk_place place;
    const disk *of = disk_of(node);
    if (disk_look_up(disk_of(node), path, &place) != 0 || !place.inode || place.inode->is_dir)
        return false;
    for (const disk_change *made = place.inode->first; made; made = made->next) {
        const uint64_t at = made->kind == DISK_EXTEND ? made->old_size : made->at;
        const uint64_t ends = made->kind == DISK_WRITE ? made->at + made->num_new : end;
        const uint64_t from = at > begin ? at : begin, to = ends < end ? ends : end;
        if (made->certainty != DISK_CERTAIN && from < to && !is_overwritten(made, from, to))
            return false;
    }
    return end <= place.inode->size && has_synced_name(of, place.inode);
}

/* Makes an inode at [path], with its name synced. */
static disk_inode *make_synced(disk *of, const char *path, bool is_dir)
{
    disk_place place;
    disk_must(disk_look_up(of, path, &place) == 0, path);
    if (!place.inode) {
        disk_must(place.dir != NULL, path);
        place.inode = disk_new_inode(of, is_dir, is_dir ? 0700 : 0600);
        disk_name(of, place.dir, place.name, place.inode);
        disk_sync(of, place.dir, of->next_change);
    }
    disk_must(place.inode->is_dir == is_dir, path);
    return place.inode;
}

void world_disk_write(uint32_t node, const char *path, const void *data, size_t size)
{
    disk *of = disk_of(node);
    char part[DISK_MAX_PATH];
    const size_t length = strlen(path);
    disk_must(disk_has_path(path) && length < sizeof(part), path);
    for (size_t i = strlen(WORLD_DISK_ROOT) + 1; i < length; i++) {
        if (path[i] == '/') {
            memcpy(part, path, i);
            part[i] = '\0';
            (void)make_synced(of, part, true);
        }
    }
    disk_inode *file = make_synced(of, path, false);
    disk_resize(of, file, 0);
    if (size > 0)
        disk_write(of, file, 0, data, size);
    disk_sync(of, file, of->next_change);
}

uint32_t world_disk_num_open(uint32_t node)
{
    return disk_of(node)->num_open;
}

uint64_t world_disk_used(uint32_t node)
{
    return disk_of(node)->used;
}

uint64_t world_disk_num_calls(uint32_t node)
{
    return disk_of(node)->num_calls;
}
