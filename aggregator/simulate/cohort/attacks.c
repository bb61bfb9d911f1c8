#include "aggregator/simulate/cohort/attacks.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/simulate/time/availability.h"

#define LARGEST 1073741824.0 /* 2^30: the bound in fixed point */
#define MAX_STRENGTH 1e6

struct fedge_attack_kind {
    const char *name;
    double strength;     /* default */
    double max_strength; /* the highest strength */
    bool needs_moments;  /* [forge] needs mean and deviation of the honest updates */
    double (*forge)(double strength, double value, double mean, double deviation);
    /* Set instead of [forge] by attacks on data; changes one example. */
    void (*poison)(fedge_dataset *dataset, uint32_t example, uint32_t num_labels);
};

/* −factor · Δ_i, the client's own update reversed. */
static double flip_sign(double strength, double value, double mean, double deviation)
{
    (void)mean;
    (void)deviation;
    return -strength * value;
}

/* −ε · mean of the others (Xie, Koyejo, Gupta, "Fall of empires: breaking Byzantine-tolerant SGD by
 * inner product manipulation", UAI 2019). */
static double reverse_mean(double strength, double value, double mean, double deviation)
{
    (void)value;
    (void)deviation;
    return -strength * mean;
}

/* mean − z · standard deviation of the others (Baruch, Baruch, Goldberg, "A little is enough:
 * circumventing defenses for distributed learning", NeurIPS 2019). */
static double shift(double strength, double value, double mean, double deviation)
{
    (void)value;
    return mean - strength * deviation;
}

/* y becomes L − 1 − y (Fang, Cao, Jia, Gong, "Local model poisoning attacks to Byzantine-robust
 * federated learning", USENIX Security 2020). */
static void flip_label(fedge_dataset *dataset, uint32_t example, uint32_t num_labels)
{
    const int32_t label = fedge_dataset_labels(dataset)[example];
    fedge_dataset_set_label(dataset, example, (int32_t)num_labels - 1 - label);
}

/* Adds a mark in a corner and sets the label (Gu, Dolan-Gavitt, Garg, "BadNets: identifying
 * vulnerabilities in the machine learning model supply chain", 2017). */
static void add_backdoor(fedge_dataset *dataset, uint32_t example, uint32_t num_labels)
{
    (void)num_labels;
    fedge_dataset_stamp(dataset, example);
    fedge_dataset_set_label(dataset, example, FEDGE_BACKDOOR_LABEL);
}

static const fedge_attack_kind KINDS[] = {
    {"sign-flip", 4.0, MAX_STRENGTH, false, flip_sign, NULL},
    {"ipm", 0.5, MAX_STRENGTH, true, reverse_mean, NULL},
    {"alie", 1.5, MAX_STRENGTH, true, shift, NULL},
    {"label-flip", 1.0, 1.0, false, NULL, flip_label},
    {"backdoor", 0.5, 1.0, false, NULL, add_backdoor},
};
#define NUM_KINDS (sizeof(KINDS) / sizeof(KINDS[0]))

fedge_status fedge_attack_parse(const char *text, fedge_attack *attack, fedge_error *err)
{
    const size_t length = strcspn(text, ":");
    *attack = (fedge_attack){0};
    for (size_t i = 0; i < NUM_KINDS; i++) {
        if (strlen(KINDS[i].name) == length && strncmp(KINDS[i].name, text, length) == 0)
            attack->kind = &KINDS[i];
    }
    char *end = NULL;
    const unsigned long num =
        attack->kind && text[length] == ':' && text[length + 1] >= '0' && text[length + 1] <= '9'
            ? strtoul(text + length + 1, &end, 10)
            : 0;
    attack->strength = attack->kind ? attack->kind->strength : 0.0;
    if (num > 0 && *end == ':')
        attack->strength = end[1] != '\0' ? strtod(end + 1, &end) : -1.0;
    if (num < 1 || num > FEDGE_SIMULATE_MAX_CLIENTS || *end != '\0' ||
        !(attack->strength >= 0.0 && attack->strength <= attack->kind->max_strength)) {
        *attack = (fedge_attack){0};
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "--attack %.64s: must be KIND:N or KIND:N:STRENGTH with N malicious "
                          "clients; KIND is sign-flip, ipm or alie with a strength of 0 to "
                          "1000000, or label-flip or backdoor with a strength of 0 to 1",
                          text);
    }
    attack->num = (uint32_t)num;
    return FEDGE_OK;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Σ v and Σ v² of the honest updates' values, in the order of the slots. */
typedef struct moments {
    double sum[FEDGE_UPDATES_CHUNK], squares[FEDGE_UPDATES_CHUNK];
    int32_t v[FEDGE_UPDATES_CHUNK];
} moments;

static fedge_status count_moments(const fedge_attacked *self, uint32_t tensor, size_t at,
                                  size_t count, moments *of, double *num, fedge_error *err)
{
    memset(of, 0, sizeof(*of));
    *num = 0.0;
    for (uint32_t i = 0; i < self->honest.num; i++) {
        if (self->malicious[i])
            continue;
        FEDGE_TRY(self->honest.read(self->honest.user, i, tensor, at, count, of->v, err));
        for (size_t j = 0; j < count; j++) {
            const double value = of->v[j];
            of->sum[j] += value;
            of->squares[j] += value * value;
        }
        *num += 1.0;
    }
    return FEDGE_OK;
}

static int32_t clamp(double value)
{
    return value >= LARGEST    ? (int32_t)LARGEST
           : value <= -LARGEST ? (int32_t)-LARGEST
                               : (int32_t)nearbyint(value);
}

static fedge_status read(void *user, uint32_t index, uint32_t tensor, size_t at, size_t count,
                         int32_t *v, fedge_error *err)
{
    const fedge_attacked *self = user;
    const fedge_attack *attack = &self->attack;
    double num = 0.0;
    FEDGE_TRY(self->honest.read(self->honest.user, index, tensor, at, count, v, err));
    if (!self->malicious[index])
        return FEDGE_OK;
    moments *of = calloc(1, sizeof(*of));
    if (!of)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for what malicious clients send");
    fedge_status status = FEDGE_OK;
    if (attack->kind->needs_moments)
        FEDGE_TRY_OR(count_moments(self, tensor, at, count, of, &num, err), done);
    for (size_t j = 0; j < count; j++) {
        const double mean = num > 0.0 ? of->sum[j] / num : 0.0;
        const double spread = num > 0.0 ? of->squares[j] / num - mean * mean : 0.0;
        const double deviation = spread > 0.0 ? sqrt(spread) : 0.0;
        v[j] = clamp(attack->kind->forge(attack->strength, v[j], mean, deviation));
    }
done:
    free(of);
    return status;
}

fedge_updates fedge_attack_updates(fedge_attacked *attacked)
{
    return (fedge_updates){.num = attacked->honest.num, .read = read, .user = attacked};
}

/* ---- data ------------------------------------------------------------------------------------ */

bool fedge_attack_forges_updates(const fedge_attack *attack)
{
    return attack->kind && attack->kind->forge;
}

bool fedge_attack_is_backdoor(const fedge_attack *attack)
{
    return attack->kind && attack->kind->poison == add_backdoor;
}

fedge_status fedge_attack_poison_data(const fedge_attack *attack, const fedge_plan *plan,
                                      fedge_client_data *client_data, fedge_error *err)
{
    const uint32_t num_labels = plan->data.num_labels;
    if (!attack->kind || !attack->kind->poison)
        return FEDGE_OK;
    if (num_labels < 2) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "--attack %s: it changes labels, but the labels of this job are not "
                          "classes (data.labels); use sign-flip, ipm or alie",
                          attack->kind->name);
    }
    if (client_data->placement && client_data->placement->holders) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "--attack %s: it changes data, so give every rank all clients' files",
                          attack->kind->name);
    }
    for (uint32_t c = 0; c < attack->num && c < client_data->num_clients; c++) {
        const fedge_view view = fedge_client_data_train(client_data, c);
        for (uint32_t i = 0; i < view.count; i++) { /* spread evenly */
            if (floor((i + 1.0) * attack->strength) > floor(i * attack->strength))
                attack->kind->poison(client_data->dataset, view.indices[i], num_labels);
        }
    }
    return FEDGE_OK;
}
