#include "aggregator/simulate/run/replay.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/store/round_log.h"

void fedge_replay_fini(fedge_replay *replay)
{
    free(replay->updates);
    free(replay->ends);
    *replay = (fedge_replay){0};
}

static fedge_status grow(fedge_replay *self, uint32_t more, fedge_error *err)
{
    if (more > FEDGE_REPLAY_MAX_UPDATES - self->num_updates)
        return fedge_fail(err, FEDGE_TOO_BIG, "more than %u updates", FEDGE_REPLAY_MAX_UPDATES);
    const size_t updates = self->num_updates + (size_t)more, rounds = self->num_rounds + (size_t)1;
    fedge_told_update *grown = realloc(self->updates, updates * sizeof(*grown));
    self->updates = grown ? grown : self->updates;
    uint32_t *ends = grown ? realloc(self->ends, rounds * sizeof(*ends)) : NULL;
    self->ends = ends ? ends : self->ends;
    return ends ? FEDGE_OK : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %zu updates", updates);
}

static fedge_status add(void *user, const fedge_round_summary *summary, fedge_error *err)
{
    fedge_replay *self = user;
    if (summary->kind != FEDGE_TASK_TRAIN)
        return FEDGE_OK;
    if (summary->round != self->num_rounds + 1) {
        return fedge_fail(err, FEDGE_MISMATCH, "round %" PRIu32 " where %" PRIu32 " comes next",
                          summary->round, self->num_rounds + 1);
    }
    if (summary->num_told == 0 || summary->num_told != summary->reported) {
        return fedge_fail(err, FEDGE_MISMATCH,
                          "round %" PRIu32
                          " does not name its updates: only rounds that close while "
                          "clients train, of at most %u updates, do",
                          summary->round, FEDGE_ROUND_SUMMARY_MAX_TOLD);
    }
    FEDGE_TRY(grow(self, summary->num_told, err));
    memcpy(self->updates + self->num_updates, summary->told,
           summary->num_told * sizeof(*summary->told));
    self->num_updates += summary->num_told;
    self->ends[self->num_rounds++] = self->num_updates;
    self->most = summary->num_told > self->most ? summary->num_told : self->most;
    return FEDGE_OK;
}

fedge_status fedge_replay_read(const char *path, fedge_replay *replay, fedge_error *err)
{
    *replay = (fedge_replay){0};
    const fedge_status status = fedge_round_lines_read(path, add, replay, err);
    if (status != FEDGE_OK) {
        fedge_replay_fini(replay);
        return fedge_error_prefix(err, status, "--replay %s", path);
    }
    return FEDGE_OK;
}

fedge_status fedge_replay_round(const fedge_replay *replay, uint32_t round,
                                const fedge_told_update **updates, uint32_t *num, fedge_error *err)
{
    *num = 0;
    if (round == 0 || round > replay->num_rounds) {
        return fedge_fail(err, FEDGE_MISMATCH,
                          "--replay: the file has %" PRIu32 " rounds, and round %" PRIu32
                          " is to be run: lower rounds.num-server-rounds",
                          replay->num_rounds, round);
    }
    const uint32_t first = round > 1 ? replay->ends[round - 2] : 0;
    *updates = replay->updates + first;
    *num = replay->ends[round - 1] - first;
    return FEDGE_OK;
}
