#include "aggregator/store/checkpoint.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/store/json_file.h"
#include "edge/core/os.h"
#include "edge/data/formats/safetensors.h"
#include "edge/plan/plan.h"
#include "secure/crypto/sha256.h"

/* Format 1 is still written for checkpoints without last-accepted.bin. Format 2 called that file
 * counted.bin. */
#define CHECKPOINT_FORMAT 3
#define MODEL_FILE "model.safetensors"
#define STATE_FILE "state.json"
#define STRATEGY_FILE "strategy.bin"
#define LAST_ACCEPTED_FILE "last-accepted.bin"
#define OLD_LAST_ACCEPTED_FILE "counted.bin"

/* --- names ------------------------------------------------------------------------------------ */

/* DIR/round-RRRRRR[SUFFIX][/NAME]. A suffix marks a directory that is not, or no longer, a
 * checkpoint. */
static fedge_status make_path(const char *dir, uint32_t round, const char *suffix, const char *name,
                              char path[FEDGE_MAX_PATH], fedge_error *err)
{
    int length = snprintf(path, FEDGE_MAX_PATH, "%s/round-%06" PRIu32 "%s%s%s", dir, round, suffix,
                          name[0] != '\0' ? "/" : "", name);
    if (length < 0 || length >= FEDGE_MAX_PATH) {
        return fedge_fail(err, FEDGE_TOO_BIG, "path of a checkpoint in %.200s... is over %d bytes",
                          dir, FEDGE_MAX_PATH - 1);
    }
    return FEDGE_OK;
}

static bool parse_name(const char *name, uint32_t *round)
{
    char canonical[32];
    if (sscanf(name, "round-%10" SCNu32, round) != 1)
        return false;
    snprintf(canonical, sizeof(canonical), "round-%06" PRIu32, *round);
    return strcmp(name, canonical) == 0;
}

typedef struct newest_visit {
    uint32_t highest, round;
    bool exists;
} newest_visit;

static fedge_status visit_newest(void *user, const char *name, fedge_error *err)
{
    (void)err;
    newest_visit *visit = user;
    uint32_t round;
    if (parse_name(name, &round) && round <= visit->highest &&
        (!visit->exists || round > visit->round)) {
        visit->round = round;
        visit->exists = true;
    }
    return FEDGE_OK;
}

fedge_status fedge_checkpoint_find(const char *dir, uint32_t highest, uint32_t *round,
                                   fedge_error *err)
{
    newest_visit visit = {.highest = highest};
    FEDGE_TRY(fedge_os_list_dir(dir, visit_newest, &visit, err));
    if (!visit.exists)
        return fedge_fail(err, FEDGE_NOT_FOUND, "%s has no checkpoint", dir);
    *round = visit.round;
    return FEDGE_OK;
}

fedge_status fedge_checkpoint_remove(const char *dir, uint32_t round, fedge_error *err)
{
    char path[FEDGE_MAX_PATH];
    FEDGE_TRY(make_path(dir, round, "", "", path, err));
    return fedge_os_remove_tree(path, err);
}

/* --- saving ----------------------------------------------------------------------------------- */

/* 17 digits read back as the same double. */
static void print_number(char text[32], double value)
{
    if (isfinite(value))
        snprintf(text, 32, "%.17g", value);
    else
        snprintf(text, 32, "null");
}

static void print_watch(char *text, size_t size, const char *key, const fedge_watch_state *watch)
{
    char best[32];
    print_number(best, watch->best);
    snprintf(text, size,
             ",\"%s\":{\"best_round\":%" PRIu32 ",\"best\":%s,\"waited\":%" PRIu32
             ",\"seen\":%" PRIu32 "}",
             key, watch->best_round, best, watch->waited, watch->seen);
}

/* State of "keep-best" and early stopping; empty before the first evaluation and in runs without
 * either. */
static void print_selection(char text[1024], const fedge_selection_state *state)
{
    char keep[192] = "", stop[192] = "", numbers[4][32];
    const fedge_selected *best = &state->best;
    const double values[4] = {best->loss, best->accuracy, best->validation_loss,
                              best->validation_accuracy};
    for (int i = 0; i < 4; i++)
        print_number(numbers[i], values[i]);
    if (state->keep.seen > 0)
        print_watch(keep, sizeof(keep), "keep", &state->keep);
    if (state->stop.seen > 0)
        print_watch(stop, sizeof(stop), "stop", &state->stop);
    int size = snprintf(text, 1024, "%s%s", keep, stop);
    if (best->round > 0) {
        snprintf(text + size, 1024 - (size_t)size,
                 ",\"best\":{\"round\":%" PRIu32
                 ",\"model\":\"%s\",\"loss\":%s,\"accuracy\":%s,\"validation_loss\":%s,"
                 "\"validation_accuracy\":%s}",
                 best->round, best->model, numbers[0], numbers[1], numbers[2], numbers[3]);
    }
}

/* All strings are hex or a strategy's name, so none needs escaping. */
static fedge_status write_state(const char *path, const fedge_checkpoint *checkpoint,
                                fedge_error *err)
{
    char text[2048], loss[32], accuracy[32], selection[1024];
    print_selection(selection, &checkpoint->selection);
    print_number(loss, checkpoint->loss);
    print_number(accuracy, checkpoint->accuracy);
    int size = snprintf(
        text, sizeof(text),
        "{\"format\":%d,\"round\":%" PRIu32 ",\"run_id\":\"%s\",\"incarnation\":%" PRIu32
        ",\"model\":\"%s\",\"strategy\":\"%s\",\"strategy_state\":\"%s\","
        "\"last_accepted\":\"%s\",\"next_task_id\":%" PRIu64 ",\"bytes_up\":%" PRIu64
        ",\"bytes_down\":%" PRIu64 ",\"elapsed_ms\":%" PRIu64 ",\"loss\":%s,\"accuracy\":%s%s}",
        checkpoint->last_accepted[0] ? CHECKPOINT_FORMAT : 1, checkpoint->round, checkpoint->run_id,
        checkpoint->incarnation, checkpoint->model, checkpoint->strategy,
        checkpoint->strategy_state, checkpoint->last_accepted, checkpoint->next_task_id,
        checkpoint->bytes_up, checkpoint->bytes_down, checkpoint->elapsed_ms, loss, accuracy,
        selection);
    assert(size > 0 && (size_t)size < sizeof(text));
    return fedge_json_file_write(path, text, (size_t)size, err);
}

/* Writes a file of the checkpoint that is being built. [hash] receives its SHA-256, computed unless
 * the caller has it in [known]. Writes no file for 0 bytes and sets [hash] to "". */
static fedge_status write_part(const char *dir, uint32_t round, const char *name,
                               const uint8_t *bytes, size_t size, const char *known,
                               char hash[FEDGE_HASH_TEXT], fedge_error *err)
{
    char path[FEDGE_MAX_PATH];
    hash[0] = '\0';
    if (size == 0)
        return FEDGE_OK;
    if (known)
        memcpy(hash, known, FEDGE_HASH_TEXT);
    else
        fedge_sha256_text(bytes, size, hash);
    /* A crash here leaves a .new directory, which readers ignore and the next save of this round
     * removes. */
    FEDGE_TRY(make_path(dir, round, ".new", name, path, err));
    return fedge_os_write_file(path, bytes, size, 0600, err);
}

/* Renames the built directory to its final name. An existing one, which must be damaged to be
 * written again, is moved aside and moved back if the rename fails. */
static fedge_status publish(const char *dir, uint32_t round, fedge_error *err)
{
    char built[FEDGE_MAX_PATH], path[FEDGE_MAX_PATH], old[FEDGE_MAX_PATH];
    FEDGE_TRY(make_path(dir, round, ".new", "", built, err));
    FEDGE_TRY(make_path(dir, round, "", "", path, err));
    FEDGE_TRY(make_path(dir, round, ".old", "", old, err));
    const bool replace = fedge_os_exists(path);
    if (replace) {
        FEDGE_TRY(fedge_os_remove_tree(old, err));
        /* Otherwise a crash could leave a half-removed earlier .old under that name. */
        FEDGE_TRY(fedge_os_sync_dir(dir, err));
        FEDGE_TRY(fedge_os_rename(path, old, err));
    }
    /* The commit point: readers see nothing of this round before it and all of it after. The files
     * were synced as they were written. */
    const fedge_status status = fedge_os_rename(built, path, err);
    if (status != FEDGE_OK && replace && fedge_os_rename(old, path, NULL) != FEDGE_OK)
        return fedge_error_prefix(err, status, "%s is at %s now", path, old);
    FEDGE_TRY(status);
    /* The name must be on the disk before the old one is removed, and before the caller removes the
     * journal that could recreate it. */
    FEDGE_TRY(fedge_os_sync_dir(dir, err));
    return replace ? fedge_os_remove_tree(old, err) : FEDGE_OK;
}

fedge_status fedge_checkpoint_save(const char *dir, fedge_checkpoint *checkpoint,
                                   const fedge_checkpoint_files *files, fedge_error *err)
{
    char built[FEDGE_MAX_PATH], state[FEDGE_MAX_PATH];
    uint32_t round = checkpoint->round;
    assert(files->model_size > 0);
    FEDGE_TRY(make_path(dir, round, ".new", "", built, err));
    FEDGE_TRY(make_path(dir, round, ".new", STATE_FILE, state, err));
    FEDGE_TRY(fedge_os_remove_tree(built, err));
    FEDGE_TRY(fedge_os_make_dir(built, err));
    FEDGE_TRY(write_part(dir, round, MODEL_FILE, files->model, files->model_size,
                         files->model_sha256, checkpoint->model, err));
    FEDGE_TRY(write_part(dir, round, STRATEGY_FILE, files->strategy_state,
                         files->strategy_state_size, NULL, checkpoint->strategy_state, err));
    FEDGE_TRY(write_part(dir, round, LAST_ACCEPTED_FILE, files->last_accepted,
                         files->last_accepted_size, NULL, checkpoint->last_accepted, err));
    /* Last, since it holds the hashes of the others. Writing it also syncs their directory. */
    FEDGE_TRY(write_state(state, checkpoint, err));
    return publish(dir, round, err);
}

fedge_status fedge_checkpoint_model_path(const char *dir, uint32_t round, char path[FEDGE_MAX_PATH],
                                         fedge_error *err)
{
    return make_path(dir, round, "", MODEL_FILE, path, err);
}

/* --- loading ---------------------------------------------------------------------------------- */

static fedge_status read_watch(const cJSON *json, const char *key, const char *path,
                               fedge_watch_state *watch, fedge_error *err)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, key);
    if (!item)
        return FEDGE_OK;
    const struct {
        const char *key;
        uint32_t *number;
    } numbers[] = {
        {"best_round", &watch->best_round}, {"waited", &watch->waited}, {"seen", &watch->seen}};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        FEDGE_TRY(fedge_json_get_u32(item, numbers[i].key, path, numbers[i].number, err));
    watch->best = fedge_json_number(item, "best");
    return FEDGE_OK;
}

static fedge_status read_selection(const cJSON *json, const char *path,
                                   fedge_selection_state *state, fedge_error *err)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, "best");
    fedge_selected *best = &state->best;
    FEDGE_TRY(read_watch(json, "keep", path, &state->keep, err));
    FEDGE_TRY(read_watch(json, "stop", path, &state->stop, err));
    if (!item)
        return FEDGE_OK;
    best->loss = fedge_json_number(item, "loss");
    best->accuracy = fedge_json_number(item, "accuracy");
    best->validation_loss = fedge_json_number(item, "validation_loss");
    best->validation_accuracy = fedge_json_number(item, "validation_accuracy");
    FEDGE_TRY(fedge_json_get_u32(item, "round", path, &best->round, err));
    return fedge_json_get_text(item, "model", path, best->model, sizeof(best->model), err);
}

static fedge_status parse_state(const cJSON *json, const char *path, fedge_checkpoint *checkpoint,
                                bool *old_names, fedge_error *err)
{
    uint64_t format = 0;
    FEDGE_TRY(fedge_json_get_u64(json, "format", path, &format, err));
    if (format > CHECKPOINT_FORMAT) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "%s has format %" PRIu64 ", this release knows up to %d", path, format,
                          CHECKPOINT_FORMAT);
    }
    const struct {
        const char *key;
        char *text;
        size_t size;
    } texts[] = {
        {"run_id", checkpoint->run_id, sizeof(checkpoint->run_id)},
        {"model", checkpoint->model, sizeof(checkpoint->model)},
        {"strategy", checkpoint->strategy, sizeof(checkpoint->strategy)},
        {"strategy_state", checkpoint->strategy_state, sizeof(checkpoint->strategy_state)},
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        FEDGE_TRY(fedge_json_get_text(json, texts[i].key, path, texts[i].text, texts[i].size, err));
    *old_names = format == 2;
    if (format >= 2) {
        FEDGE_TRY(fedge_json_get_text(json, *old_names ? "counted" : "last_accepted", path,
                                      checkpoint->last_accepted, sizeof(checkpoint->last_accepted),
                                      err));
    }
    const struct {
        const char *key;
        uint64_t *number;
    } numbers[] = {
        {"next_task_id", &checkpoint->next_task_id},
        {"bytes_up", &checkpoint->bytes_up},
        {"bytes_down", &checkpoint->bytes_down},
        {"elapsed_ms", &checkpoint->elapsed_ms},
    };
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        FEDGE_TRY(fedge_json_get_u64(json, numbers[i].key, path, numbers[i].number, err));
    FEDGE_TRY(fedge_json_get_u32(json, "round", path, &checkpoint->round, err));
    FEDGE_TRY(fedge_json_get_u32(json, "incarnation", path, &checkpoint->incarnation, err));
    checkpoint->loss = fedge_json_number(json, "loss");
    checkpoint->accuracy = fedge_json_number(json, "accuracy");
    return read_selection(json, path, &checkpoint->selection, err);
}

static fedge_status read_state(const char *path, fedge_checkpoint *checkpoint, bool *old_names,
                               fedge_error *err)
{
    cJSON *json = NULL;
    FEDGE_TRY(fedge_json_file_read(path, FEDGE_CHECKPOINT_MAX_STATE, &json, err));
    const fedge_status status = parse_state(json, path, checkpoint, old_names, err);
    cJSON_Delete(json);
    return status;
}

fedge_status fedge_checkpoint_update(const char *dir, const fedge_checkpoint *checkpoint,
                                     fedge_error *err)
{
    char path[FEDGE_MAX_PATH];
    FEDGE_TRY(make_path(dir, checkpoint->round, "", STATE_FILE, path, err));
    return write_state(path, checkpoint, err);
}

/* Reads a file of the checkpoint and checks its SHA-256. An empty [hash] means that the checkpoint
 * has no such file. */
static fedge_status read_part(const char *dir, uint32_t round, const char *name, size_t limit,
                              const char *hash, uint8_t **bytes, size_t *size, fedge_error *err)
{
    char path[FEDGE_MAX_PATH], actual[FEDGE_HASH_TEXT];
    uint8_t *read = NULL;
    size_t read_size = 0;
    if (hash[0] == '\0')
        return FEDGE_OK;
    FEDGE_TRY(make_path(dir, round, "", name, path, err));
    FEDGE_TRY(fedge_os_read_file(path, limit, &read, &read_size, err));
    fedge_sha256_text(read, read_size, actual);
    if (strcmp(actual, hash) != 0) {
        free(read);
        return fedge_fail(err, FEDGE_CORRUPT,
                          "%s is damaged: its %zu bytes have SHA-256 %s, not %s", path, read_size,
                          actual, hash);
    }
    *bytes = read;
    *size = read_size;
    return FEDGE_OK;
}

/* Reads state.json of the checkpoint of [round] into *checkpoint, which must be zero. */
static fedge_status read_facts(const char *dir, uint32_t round, fedge_checkpoint *checkpoint,
                               bool *old_names, fedge_error *err)
{
    char path[FEDGE_MAX_PATH];
    FEDGE_TRY(make_path(dir, round, "", STATE_FILE, path, err));
    FEDGE_TRY(read_state(path, checkpoint, old_names, err));
    /* A directory copied or renamed by hand must not pass for a later round. */
    if (checkpoint->round != round)
        return fedge_fail(err, FEDGE_CORRUPT, "%s is of round %" PRIu32, path, checkpoint->round);
    if (checkpoint->model[0] == '\0')
        return fedge_fail(err, FEDGE_CORRUPT, "%s names no model", path);
    return FEDGE_OK;
}

fedge_status fedge_checkpoint_read_state(const char *dir, uint32_t round,
                                         fedge_checkpoint *checkpoint, fedge_error *err)
{
    bool old_names = false;
    *checkpoint = (fedge_checkpoint){0};
    return read_facts(dir, round, checkpoint, &old_names, err);
}

fedge_status fedge_checkpoint_load(const char *dir, uint32_t round, fedge_checkpoint_data *data,
                                   fedge_error *err)
{
    bool old_names = false;
    memset(data, 0, sizeof(*data));
    const fedge_checkpoint *checkpoint = &data->checkpoint;
    fedge_status status;
    FEDGE_TRY_OR(read_facts(dir, round, &data->checkpoint, &old_names, err), failed);
    FEDGE_TRY_OR(read_part(dir, round, MODEL_FILE, FEDGE_SAFETENSORS_MAX_SIZE, checkpoint->model,
                           &data->model, &data->model_size, err),
                 failed);
    FEDGE_TRY_OR(read_part(dir, round, STRATEGY_FILE, FEDGE_STRATEGY_MAX_STATE,
                           checkpoint->strategy_state, &data->strategy_state,
                           &data->strategy_state_size, err),
                 failed);
    FEDGE_TRY_OR(read_part(dir, round, old_names ? OLD_LAST_ACCEPTED_FILE : LAST_ACCEPTED_FILE,
                           FEDGE_CHECKPOINT_MAX_LAST_ACCEPTED, checkpoint->last_accepted,
                           &data->last_accepted, &data->last_accepted_size, err),
                 failed);
    return FEDGE_OK;
failed:
    fedge_checkpoint_data_fini(data);
    return status;
}

bool fedge_checkpoint_is_damaged(fedge_status status)
{
    return status == FEDGE_CORRUPT || status == FEDGE_NOT_FOUND || status == FEDGE_TOO_BIG ||
           status == FEDGE_TRUNCATED;
}

fedge_status fedge_checkpoint_load_newest(const char *dir, fedge_checkpoint_data *data, char *note,
                                          size_t note_size, fedge_error *err)
{
    fedge_error damage;
    uint32_t highest = UINT32_MAX, round = 0;
    size_t used = 0;
    bool any = false;
    assert(note_size > 0);
    note[0] = '\0';
    for (;;) {
        fedge_status status = fedge_checkpoint_find(dir, highest, &round, err);
        if (status == FEDGE_NOT_FOUND && any)
            break;
        if (status != FEDGE_OK)
            return status;
        any = true;
        status = fedge_checkpoint_load(dir, round, data, &damage);
        if (status == FEDGE_OK)
            return FEDGE_OK;
        /* Lack of memory or an unreadable disk says nothing about this checkpoint. Skipping it
         * would lose rounds for a cause that may be temporary. */
        if (!fedge_checkpoint_is_damaged(status))
            return fedge_fail(err, status, "%s", damage.message);
        int length =
            snprintf(note + used, note_size - used,
                     "Checkpoint of round %" PRIu32 " passed over: %s. ", round, damage.message);
        if (length > 0)
            used = (size_t)length < note_size - used ? used + (size_t)length : note_size - 1;
        if (round == 0)
            break;
        highest = round - 1;
    }
    return fedge_fail(
        err, FEDGE_CORRUPT,
        "no checkpoint in %s is whole (restore a backup, or start again: fedge-aggregator with "
        "--new-run, fedge-simulate with another --out); the oldest: %s",
        dir, damage.message);
}

void fedge_checkpoint_data_fini(fedge_checkpoint_data *data)
{
    free(data->model);
    free(data->strategy_state);
    free(data->last_accepted);
    data->model = data->strategy_state = data->last_accepted = NULL;
    data->model_size = data->strategy_state_size = data->last_accepted_size = 0;
}
