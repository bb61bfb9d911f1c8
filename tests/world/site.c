#include "tests/world/site.h"

#include <stdio.h>
#include <string.h>

#include "tests/world/scheduler.h"

#define FACTS WORLD_DISK_ROOT "/host"
#define SUPPLIES FACTS "/sys/class/power_supply"

/* ---- the client file ------------------------------------------------------------------------- */

/* The codecs that a policy allows: all, or one that the job does not use. */
static const char *codecs(const world_plan *plan, const plan_site *site)
{
    if (site->kind != PLAN_SITE_CODECS)
        return "\"none\",\"int8\",\"f16\",\"bf16\",\"int4\",\"topk\",\"randk\",\"ternary\"";
    return strstr(plan->job.up, "bf16") ? "\"int4\"" : "\"bf16\"";
}

static const char *condition(const plan_site *site)
{
    static const char *const TEXTS[] = {[PLAN_NO_CONDITION] = "",
                                        [PLAN_ON_MAINS] = "\"mains-power\":true,",
                                        [PLAN_CHARGED] = "\"min-battery\":50,",
                                        [PLAN_COOL] = "\"max-temperature\":60.5,",
                                        [PLAN_FREE_RAM] = "\"min-free-ram\":65536,"};
    return TEXTS[site->condition];
}

static void write_file(const world_plan *plan, uint32_t client)
{
    const plan_site *site = &plan->sites[client];
    char text[2048], conditions[256] = "";
    if (site->condition != PLAN_NO_CONDITION) {
        (void)snprintf(conditions, sizeof(conditions), ",\"conditions\":{%s\"root\":\"%s\"}",
                       condition(site), FACTS);
    }
    const int size = snprintf(
        text, sizeof(text),
        "{\"data\":{\"%s\":{\"values\":\"more.csv\"}%s},\"policy\":{\"jobs\":[\"another\"%s],"
        "\"codecs\":[%s],\"max-local-epochs\":%u,\"max-ram\":%u,\"hang-up\":%s%s}}",
        SITE_DATA, site->kind == PLAN_SITE_DATA ? "" : ",\"points\":{\"values\":\"points.csv\"}",
        site->kind == PLAN_SITE_JOBS ? "" : ",\"world\"", codecs(plan, site),
        site->kind == PLAN_SITE_EPOCHS ? 1u : 3u, site->kind == PLAN_SITE_RAM ? 1u : 1u << 26,
        site->hangs_up ? "true" : "false", conditions);
    world_disk_write(WORLD_FIRST_CLIENT + client, SITE_FILE, text, (size_t)size);
}

/* ---- facts ----------------------------------------------------------------------------------- */

static void fact(uint32_t client, const char *path, const char *text)
{
    world_disk_write(WORLD_FIRST_CLIENT + client, path, text, strlen(text));
}

static void write_facts(const world_plan *plan, uint32_t client, bool unmet)
{
    const plan_site *site = &plan->sites[client];
    switch (site->condition) {
    case PLAN_NO_CONDITION:
    case PLAN_NUM_CONDITIONS:
        break;
    case PLAN_ON_MAINS:
    case PLAN_CHARGED:
        fact(client, SUPPLIES "/AC/type", "Mains\n");
        fact(client, SUPPLIES "/AC/online", unmet ? "0\n" : "1\n");
        fact(client, SUPPLIES "/BAT0/type", "Battery\n");
        fact(client, SUPPLIES "/BAT0/status", unmet ? "Discharging\n" : "Charging\n");
        fact(client, SUPPLIES "/BAT0/capacity", unmet ? "49\n" : "50\n");
        break;
    case PLAN_COOL:
        fact(client, FACTS "/sys/class/thermal/thermal_zone0/temp", "20000\n");
        fact(client, FACTS "/sys/class/thermal/thermal_zone1/temp", unmet ? "60501\n" : "60500\n");
        break;
    case PLAN_FREE_RAM:
        fact(client, FACTS "/proc/meminfo",
             unmet ? "MemTotal: 200 kB\nMemAvailable: 63 kB\n"
                   : "MemTotal: 200 kB\nMemAvailable: 64 kB\n");
        break;
    }
}

bool site_is_unmet(const plan_site *site, uint64_t now_ns)
{
    return now_ns >= site->unmet_from_ns && now_ns < site->unmet_until_ns;
}

void site_write(const world_plan *plan, uint32_t client, uint64_t now_ns)
{
    if (plan->sites[client].kind == PLAN_SITE_NONE)
        return;
    write_file(plan, client);
    write_facts(plan, client, site_is_unmet(&plan->sites[client], now_ns));
}

uint64_t site_pass(const world_plan *plan, uint64_t then_ns, uint64_t now_ns)
{
    uint64_t next_ns = WORLD_NEVER;
    for (uint32_t i = 0; i < plan->job.num_clients; i++) {
        const plan_site *site = &plan->sites[i];
        const bool is_unmet = site_is_unmet(site, now_ns);
        if (site->unmet_until_ns == 0)
            continue;
        if (is_unmet != site_is_unmet(site, then_ns)) {
            world_trace("the condition of client %u's site is %s", (unsigned)i,
                        is_unmet ? "not met" : "met");
            write_facts(plan, i, is_unmet);
        }
        if (now_ns < site->unmet_from_ns && site->unmet_from_ns < next_ns)
            next_ns = site->unmet_from_ns;
        if (now_ns < site->unmet_until_ns && site->unmet_until_ns < next_ns)
            next_ns = site->unmet_until_ns;
    }
    return next_ns;
}
