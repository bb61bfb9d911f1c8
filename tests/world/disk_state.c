/* Files and directories of the simulated disks, and the logs of their unsynced changes. */
#include "tests/world/disk_state.h"

#include <errno.h>
#include <string.h>

/* ---- inodes ---------------------------------------------------------------------------------- */

disk_inode *disk_new_inode(disk *of, bool is_dir, uint32_t mode)
{
    disk_inode *made = disk_take(sizeof(*made));
    *made = (disk_inode){.number = of->next_inode++,
                         .is_dir = is_dir,
                         .mode = mode,
                         .next = of->inodes,
                         .lock_fd = -1};
    if (of->inodes)
        of->inodes->previous = made;
    of->inodes = made;
    return made;
}

void disk_account(disk *of, disk_inode *inode)
{
    const uint64_t now = inode->parent || inode->num_open > 0 ? inode->size : 0;
    of->used += now - inode->counted;
    inode->counted = now;
}

void disk_free_inode(disk *of, disk_inode *inode)
{
    disk_forget_changes(inode);
    of->used -= inode->counted;
    if (inode->previous)
        inode->previous->next = inode->next;
    else
        of->inodes = inode->next;
    if (inode->next)
        inode->next->previous = inode->previous;
    disk_give_text(inode->name);
    disk_give(inode->data, inode->room);
    disk_give(inode->entries, inode->max_entries * sizeof(inode->entries[0]));
    disk_give(inode, sizeof(*inode));
}

void disk_release(disk *of, disk_inode *inode)
{
    if (!inode->parent && inode->num_open == 0 && inode->num_mentions == 0 && inode != of->root)
        disk_free_inode(of, inode);
}

/* The position of [name] in the directory, or the position at which to insert it. */
static uint32_t entry_place(const disk_inode *dir, const char *name)
{
    uint32_t low = 0, high = dir->num_entries;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (strcmp(dir->entries[middle]->name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

disk_inode *disk_find(const disk_inode *dir, const char *name)
{
    const uint32_t at = entry_place(dir, name);
    const bool found = at < dir->num_entries && strcmp(dir->entries[at]->name, name) == 0;
    return found ? dir->entries[at] : NULL;
}

bool disk_has_path(const char *path)
{
    const size_t length = strlen(WORLD_DISK_ROOT);
    return strncmp(path, WORLD_DISK_ROOT, length) == 0 &&
           (path[length] == '/' || path[length] == '\0');
}

int disk_look_up(disk *of, const char *path, disk_place *place)
{
    *place = (disk_place){.inode = of->root};
    for (const char *at = path + strlen(WORLD_DISK_ROOT);;) {
        size_t slashes = 0, length = 0;
        while (at[slashes] == '/')
            slashes++;
        while (at[slashes + length] != '\0' && at[slashes + length] != '/')
            length++;
        place->slash = slashes > 0;
        if (length == 0)
            break;
        if (!place->inode)
            return ENOENT;
        if (!place->inode->is_dir) {
            place->inode = NULL;
            return ENOTDIR;
        }
        if (length > DISK_MAX_NAME)
            return ENAMETOOLONG;
        memcpy(place->name, at + slashes, length);
        place->name[length] = '\0';
        at += slashes + length;
        place->dir = NULL;
        const bool dotted = place->name[0] == '.';
        if (dotted && strcmp(place->name, "..") == 0) {
            place->inode = place->inode->parent ? place->inode->parent : of->root;
        } else if (!dotted || strcmp(place->name, ".") != 0) {
            place->dir = place->inode;
            place->inode = disk_find(place->dir, place->name);
        }
    }
    return place->slash && place->inode && !place->inode->is_dir ? ENOTDIR : 0;
}

/* ---- changes without a log ------------------------------------------------------------------- */

static void make_room(disk_inode *file, uint64_t size)
{
    if (size > file->room) {
        size_t room = 64;
        while (room < size)
            room *= 2;
        uint8_t *data = disk_take(room);
        if (file->filled > 0)
            memcpy(data, file->data, (size_t)file->filled);
        disk_give(file->data, file->room);
        file->data = data;
        file->room = room;
    }
}

/* Stores the zeros up to [size] bytes. */
static void fill_to(disk_inode *file, uint64_t size)
{
    make_room(file, size);
    if (size > file->filled) {
        memset(file->data + file->filled, 0, (size_t)(size - file->filled));
        file->filled = size;
    }
}

uint8_t *disk_fill(disk_inode *file)
{
    make_room(file, file->size + 1);
    fill_to(file, file->size);
    return file->data;
}

void disk_put(disk_inode *file, uint64_t at, const uint8_t *data, size_t size)
{
    const uint64_t end = at + size;
    make_room(file, end);
    if (at > file->filled)
        fill_to(file, at);
    memcpy(file->data + at, data, size);
    file->filled = end > file->filled ? end : file->filled;
    file->size = end > file->size ? end : file->size;
}

void disk_set_size(disk_inode *file, uint64_t size)
{
    file->size = size;
    file->filled = size < file->filled ? size : file->filled;
}

static void unbind(disk *of, disk_inode *inode)
{
    disk_inode *dir = inode->parent;
    const uint32_t at = entry_place(dir, inode->name);
    memmove(dir->entries + at, dir->entries + at + 1,
            (dir->num_entries - at - 1) * sizeof(dir->entries[0]));
    dir->num_entries--;
    disk_give_text(inode->name);
    inode->name = NULL;
    inode->parent = NULL;
    disk_account(of, inode);
}

static void bind(disk *of, disk_inode *dir, const char *name, disk_inode *inode)
{
    if (dir->num_entries == dir->max_entries) {
        const uint32_t max = dir->max_entries > 0 ? 2 * dir->max_entries : 8;
        disk_inode **entries = disk_take(max * sizeof(entries[0]));
        if (dir->num_entries > 0)
            memcpy(entries, dir->entries, dir->num_entries * sizeof(entries[0]));
        disk_give(dir->entries, dir->max_entries * sizeof(entries[0]));
        dir->entries = entries;
        dir->max_entries = max;
    }
    const uint32_t at = entry_place(dir, name);
    memmove(dir->entries + at + 1, dir->entries + at,
            (dir->num_entries - at) * sizeof(dir->entries[0]));
    dir->entries[at] = inode;
    dir->num_entries++;
    inode->name = disk_take_text(name);
    inode->parent = dir;
    disk_account(of, inode);
}

void disk_set_name(disk *of, disk_inode *dir, const char *name, disk_inode *inode)
{
    disk_inode *present = disk_find(dir, name);
    if (present == inode)
        return;
    if (present)
        unbind(of, present);
    if (inode && inode->parent)
        unbind(of, inode);
    if (inode)
        bind(of, dir, name, inode);
}

/* ---- changes of content, logged -------------------------------------------------------------- */

/* Logs a change that is going to replace the bytes from [at] to [end]. */
static disk_change *log_change(disk *of, disk_inode *file, disk_change_kind kind, uint64_t at,
                               uint64_t end, size_t num_new)
{
    const uint64_t old_end = end < file->filled ? end : file->filled;
    const size_t num_old = old_end > at ? (size_t)(old_end - at) : 0;
    disk_change *made = disk_take(sizeof(*made) + num_new + num_old);
    *made = (disk_change){.previous = file->last,
                          .number = of->next_change++,
                          .kind = kind,
                          .at = at,
                          .old_size = file->size,
                          .old_filled = file->filled,
                          .num_new = num_new,
                          .num_old = num_old};
    if (num_old > 0)
        memcpy(made->bytes + num_new, file->data + at, num_old);
    if (file->last)
        file->last->next = made;
    else
        file->first = made;
    file->last = made;
    return made;
}

static void forget_first(disk_inode *file)
{
    disk_change *gone = file->first;
    file->first = gone->next;
    if (gone->next)
        gone->next->previous = NULL;
    else
        file->last = NULL;
    disk_give(gone, sizeof(*gone) + gone->num_new + gone->num_old);
}

void disk_forget_changes(disk_inode *file)
{
    while (file->first)
        forget_first(file);
}

void disk_write(disk *of, disk_inode *file, uint64_t at, const uint8_t *data, size_t size)
{
    disk_change *made = log_change(of, file, DISK_WRITE, at, at + size, size);
    memcpy(made->bytes, data, size);
    disk_put(file, at, data, size);
    disk_account(of, file);
}

void disk_resize(disk *of, disk_inode *file, uint64_t size)
{
    const disk_change_kind kind = size > file->size ? DISK_EXTEND : DISK_CUT;
    (void)log_change(of, file, kind, size, UINT64_MAX, 0);
    disk_set_size(file, size);
    disk_account(of, file);
}

/* ---- changes of names, logged ---------------------------------------------------------------- */

static disk_naming *log_naming(disk *of, disk_inode *synced_by)
{
    disk_naming *made = disk_take(sizeof(*made));
    *made =
        (disk_naming){.previous = of->last, .number = of->next_change++, .synced_by = synced_by};
    if (of->last)
        of->last->next = made;
    else
        of->first = made;
    of->last = made;
    return made;
}

static void mention(disk_inode *inode)
{
    if (inode)
        inode->num_mentions++;
}

static void unmention(disk *of, disk_inode *inode)
{
    if (inode) {
        inode->num_mentions--;
        disk_release(of, inode);
    }
}

/* Adds a name to the change and changes it in its directory. */
static void add_binding(disk *of, disk_naming *to, disk_inode *dir, const char *name,
                        disk_inode *after)
{
    disk_binding *added = &to->bindings[to->num_bindings++];
    *added = (disk_binding){dir, disk_find(dir, name), after, disk_take_text(name)};
    mention(dir);
    mention(added->before);
    mention(after);
    disk_set_name(of, dir, added->name, after);
}

void disk_name(disk *of, disk_inode *dir, const char *name, disk_inode *inode)
{
    add_binding(of, log_naming(of, dir), dir, name, inode);
}

void disk_rename(disk *of, disk_inode *moved, disk_inode *dir, const char *name)
{
    disk_naming *made = log_naming(of, dir);
    add_binding(of, made, moved->parent, moved->name, NULL);
    add_binding(of, made, dir, name, moved);
}

void disk_forget_naming(disk *of, disk_naming *made)
{
    if (made->previous)
        made->previous->next = made->next;
    else
        of->first = made->next;
    if (made->next)
        made->next->previous = made->previous;
    else
        of->last = made->previous;
    for (unsigned i = 0; i < made->num_bindings; i++) {
        unmention(of, made->bindings[i].dir);
        unmention(of, made->bindings[i].before);
        unmention(of, made->bindings[i].after);
        disk_give_text(made->bindings[i].name);
    }
    disk_give(made, sizeof(*made));
}

/* ---- syncs ----------------------------------------------------------------------------------- */

static bool same_name(const disk_naming *a, const disk_naming *b)
{
    for (unsigned i = 0; i < a->num_bindings; i++) {
        for (unsigned j = 0; j < b->num_bindings; j++) {
            if (a->bindings[i].dir == b->bindings[j].dir &&
                strcmp(a->bindings[i].name, b->bindings[j].name) == 0)
                return true;
        }
    }
    return false;
}

/* A durable change stays in the log while an earlier change of the same name is not durable:
 * undoing that one would undo this one, too. */
static bool is_settled(const disk_naming *made)
{
    if (made->certainty != DISK_CERTAIN)
        return false;
    for (const disk_naming *before = made->previous; before; before = before->previous) {
        if (same_name(before, made))
            return false;
    }
    return true;
}

static void mark_names(disk *of, const disk_inode *dir, uint64_t end, disk_certainty as)
{
    for (disk_naming *made = of->first; made && made->number < end; made = made->next) {
        if (made->synced_by == dir && made->certainty == DISK_PENDING)
            made->certainty = as;
    }
}

static void mark_content(const disk_inode *file, uint64_t end, disk_certainty as)
{
    for (disk_change *made = file->first; made && made->number < end; made = made->next) {
        if (made->certainty == DISK_PENDING)
            made->certainty = as;
    }
}

void disk_sync(disk *of, disk_inode *inode, uint64_t end)
{
    mark_content(inode, end, DISK_CERTAIN);
    while (inode->first && inode->first->certainty == DISK_CERTAIN)
        forget_first(inode);
    if (!inode->is_dir)
        return;
    mark_names(of, inode, end, DISK_CERTAIN);
    for (disk_naming *made = of->first, *next; made; made = next) {
        next = made->next;
        if (is_settled(made))
            disk_forget_naming(of, made);
    }
}

void disk_fail_sync(disk *of, disk_inode *inode, uint64_t end)
{
    mark_content(inode, end, DISK_DOUBTFUL);
    mark_names(of, inode, end, DISK_DOUBTFUL);
}

/* ---- descriptors ----------------------------------------------------------------------------- */

void disk_close(disk *of, disk_descriptor *descriptor)
{
    disk_inode *inode = descriptor->inode;
    const int fd = DISK_FIRST_FD + (int)(of->node * DISK_MAX_OPEN) + (int)(descriptor - of->open);
    if (inode->lock_fd == fd)
        inode->lock_fd = -1;
    disk_give(descriptor->listing, descriptor->listing_size);
    *descriptor = (disk_descriptor){0};
    of->num_open--;
    inode->num_open--;
    disk_account(of, inode);
    disk_release(of, inode);
}
