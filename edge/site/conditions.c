#include "edge/site/conditions.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/os.h"
#include "edge/core/text.h"

#define DAY_MINUTES 1440u
#define MAX_FACT 4096 /* bytes read from a system file */

#define AT FEDGE_JSON_AT

const fedge_json_field fedge_conditions_fields[] = {
    {"mains-power", "mains_power", FEDGE_JSON_BOOL, AT(fedge_conditions, mains_power)},
    {"min-battery", "min_battery", FEDGE_JSON_U32, AT(fedge_conditions, min_battery), .min = 1,
     .max = 100},
    {"max-temperature", "max_temperature", FEDGE_JSON_F64, AT(fedge_conditions, max_temperature),
     .min = 1, .max = 150},
    {"unmetered-links", "unmetered_links", FEDGE_JSON_TEXT, FEDGE_JSON_LIST,
     FEDGE_JSON_ARRAY(fedge_conditions, links, num_links), .min = 1, .min_count = 1},
    {.key = "hours",
     .kind = FEDGE_JSON_TEXT,
     .flags = FEDGE_JSON_LIST,
     FEDGE_JSON_ARRAY(fedge_conditions, hours, num_hours),
     .min_count = 1},
    {"min-free-ram", "min_free_ram", FEDGE_JSON_U64, AT(fedge_conditions, min_free_ram), .min = 1,
     .max = (double)FEDGE_JSON_MAX_INTEGER},
    {"min-free-disk", "min_free_disk", FEDGE_JSON_U64, AT(fedge_conditions, min_free_disk),
     .min = 1, .max = (double)FEDGE_JSON_MAX_INTEGER},
    {.key = "root", .kind = FEDGE_JSON_TEXT, AT(fedge_conditions, root), .min = 1},
    FEDGE_JSON_END,
};

/* --- facts ------------------------------------------------------------------------------------ */

static bool path_of(char path[FEDGE_OS_MAX_PATH], const char *root, const char *folder,
                    const char *name, const char *file)
{
    const int size = snprintf(path, FEDGE_OS_MAX_PATH, "%s/%s/%s%s%s", root, folder, name,
                              name[0] != '\0' ? "/" : "", file);
    return size > 0 && size < FEDGE_OS_MAX_PATH;
}

/* A system file as text; "" if it cannot be read. */
static bool read_fact(char out[MAX_FACT], const char *root, const char *folder, const char *name,
                      const char *file)
{
    char path[FEDGE_OS_MAX_PATH];
    out[0] = '\0';
    return path_of(path, root, folder, name, file) && fedge_os_read_fact(path, out, MAX_FACT) &&
           out[0] != '\0';
}

static bool starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

typedef struct power {
    const char *root;
    bool on_mains;    /* supply of a type other than battery is on */
    bool has_mains;   /* there is a supply of a type other than battery */
    bool discharging; /* a battery is discharging */
    bool has_battery;
    long level; /* percent of the emptiest battery; −1: unknown */
} power;

#define SUPPLIES "sys/class/power_supply"

static fedge_status see_supply(void *user, const char *name, fedge_error *err)
{
    power *seen = user;
    char fact[MAX_FACT];
    (void)err;
    if (read_fact(fact, seen->root, SUPPLIES, name, "scope") && starts(fact, "Device"))
        return FEDGE_OK; /* the battery of a mouse or a headset */
    if (!read_fact(fact, seen->root, SUPPLIES, name, "type"))
        return FEDGE_OK;
    if (!starts(fact, "Battery")) {
        seen->has_mains = true;
        if (read_fact(fact, seen->root, SUPPLIES, name, "online") && atol(fact) > 0)
            seen->on_mains = true;
        return FEDGE_OK;
    }
    if (read_fact(fact, seen->root, SUPPLIES, name, "present") && atol(fact) == 0)
        return FEDGE_OK; /* an empty slot */
    seen->has_battery = true;
    if (read_fact(fact, seen->root, SUPPLIES, name, "status") && starts(fact, "Discharging"))
        seen->discharging = true;
    if (read_fact(fact, seen->root, SUPPLIES, name, "capacity")) {
        const long level = atol(fact);
        seen->level = seen->level < 0 || level < seen->level ? level : seen->level;
    }
    return FEDGE_OK;
}

typedef struct heat {
    const char *root;
    bool any;
    long most; /* maximum in 1/1000 °C */
} heat;

static fedge_status see_zone(void *user, const char *name, fedge_error *err)
{
    heat *seen = user;
    char fact[MAX_FACT];
    (void)err;
    if (starts(name, "thermal_zone") &&
        read_fact(fact, seen->root, "sys/class/thermal", name, "temp")) {
        const long now = atol(fact);
        seen->most = !seen->any || now > seen->most ? now : seen->most;
        seen->any = true;
    }
    return FEDGE_OK;
}

static void each_of(const char *root, const char *folder, fedge_os_visit visit, void *user)
{
    char path[FEDGE_OS_MAX_PATH];
    fedge_error err;
    const int size = snprintf(path, sizeof(path), "%s/%s", root, folder);
    if (size > 0 && size < (int)sizeof(path) && fedge_os_list_dir(path, visit, user, &err) != 0)
        return; /* as on a machine without it */
}

#define ROUTE_COLUMNS 11

/* Splits a line in at most ROUTE_COLUMNS columns; returns their number. */
static int split(char *at, char *columns[ROUTE_COLUMNS])
{
    static const char blank[] = " \t\n";
    int count = 0;
    for (;;) {
        at += strspn(at, blank);
        if (*at == '\0' || count == ROUTE_COLUMNS)
            return count;
        columns[count++] = at;
        at += strcspn(at, blank);
        if (*at != '\0')
            *at++ = '\0';
    }
}

static bool all_zero(const char *digits)
{
    return digits[strspn(digits, "0")] == '\0';
}

/* Columns of a table of routes. */
typedef struct route_columns {
    const char *file;
    int destination, length, flags, metric, name; /* length: of the prefix, or its mask */
    int base;                                     /* number base of the metric */
} route_columns;

/* The default route with the least metric. */
typedef struct best_route {
    const route_columns *at;
    char *link; /* FEDGE_CONDITIONS_MAX_LINK */
    unsigned long metric;
    bool found;
} best_route;

static void see_route(void *user, char *line)
{
    best_route *best = user;
    const route_columns *at = best->at;
    char *columns[ROUTE_COLUMNS];
    if (split(line, columns) < 10 || !all_zero(columns[at->destination]) ||
        !all_zero(columns[at->length]) || !(strtoul(columns[at->flags], NULL, 16) & 1u) ||
        strcmp(columns[at->name], "lo") == 0)
        return;
    const unsigned long metric = strtoul(columns[at->metric], NULL, at->base);
    if (best->found && metric >= best->metric)
        return;
    (void)snprintf(best->link, FEDGE_CONDITIONS_MAX_LINK, "%s", columns[at->name]);
    best->metric = metric;
    best->found = true;
}

/* A table of routes may be longer than a small system file. */
static bool default_of(const char *root, const route_columns *at, char *link)
{
    best_route best = {.at = at, .link = link};
    char path[FEDGE_OS_MAX_PATH];
    if (path_of(path, root, "proc/net", "", at->file))
        fedge_os_each_line(path, see_route, &best);
    return best.found;
}

/* The default route of IPv4, or else of IPv6. */
static bool default_link(const char *root, char link[FEDGE_CONDITIONS_MAX_LINK])
{
    static const route_columns tables[] = {
        {"route", .destination = 1, .length = 7, .flags = 3, .metric = 6, .name = 0, .base = 10},
        {"ipv6_route", .destination = 0, .length = 1, .flags = 8, .metric = 5, .name = 9,
         .base = 16}};
    return default_of(root, &tables[0], link) || default_of(root, &tables[1], link);
}

/* --- conditions ------------------------------------------------------------------------------- */

static bool obstacle_is(fedge_obstacle *o, fedge_reason reason, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Describes the obstacle. Returns false for the caller to return. */
static bool obstacle_is(fedge_obstacle *o, fedge_reason reason, const char *format, ...)
{
    va_list args;
    o->reason = reason;
    o->after_ms = FEDGE_CONDITIONS_RECHECK_MS;
    va_start(args, format);
    (void)vsnprintf(o->text, sizeof(o->text), format, args);
    va_end(args);
    return false;
}

static bool power_holds(const fedge_conditions *c, fedge_obstacle *o)
{
    power seen = {.root = c->root, .level = -1};
    char path[FEDGE_OS_MAX_PATH];
    if (!c->mains_power && c->min_battery == 0)
        return true;
    /* Otherwise a host whose /sys is not mounted at root would seem to have no battery. */
    if (!path_of(path, c->root, "sys", "", "") || !fedge_os_is_dir(path)) {
        return obstacle_is(o, FEDGE_REASON_ON_BATTERY,
                           "there is no %.100s, so the policy's power is not known to hold", path);
    }
    each_of(c->root, SUPPLIES, see_supply, &seen);
    /* A machine without a battery, or whose only battery is charging, is on mains power. */
    const bool mains = seen.has_mains && seen.has_battery ? seen.on_mains : !seen.discharging;
    if (c->mains_power && !mains) {
        return obstacle_is(o, FEDGE_REASON_ON_BATTERY,
                           "the device runs on its battery; policy wants mains-power");
    }
    if (c->min_battery > 0 && seen.has_battery && seen.level < 0) {
        return obstacle_is(o, FEDGE_REASON_BATTERY_LOW,
                           "no battery tells its charge, so min-battery is not known to hold");
    }
    if (c->min_battery > 0 && seen.has_battery && seen.level < (long)c->min_battery) {
        return obstacle_is(o, FEDGE_REASON_BATTERY_LOW,
                           "the battery is at %ld %%; policy's min-battery is %" PRIu32, seen.level,
                           c->min_battery);
    }
    return true;
}

static bool temperature_holds(const fedge_conditions *c, fedge_obstacle *o)
{
    heat seen = {.root = c->root};
    const long most = (long)(c->max_temperature * 1000 + 0.5);
    if (most == 0)
        return true;
    each_of(c->root, "sys/class/thermal", see_zone, &seen);
    if (!seen.any) {
        return obstacle_is(o, FEDGE_REASON_TOO_HOT,
                           "no thermal zone can be read, so max-temperature is not known to hold");
    }
    if (seen.most <= most)
        return true;
    return obstacle_is(o, FEDGE_REASON_TOO_HOT,
                       "the device is at %ld.%03ld degrees; policy's max-temperature is %ld.%03ld",
                       seen.most / 1000, seen.most % 1000, most / 1000, most % 1000);
}

static bool link_holds(const fedge_conditions *c, fedge_obstacle *o)
{
    char link[FEDGE_CONDITIONS_MAX_LINK];
    if (c->num_links == 0)
        return true;
    if (!default_link(c->root, link)) {
        return obstacle_is(o, FEDGE_REASON_METERED_LINK,
                           "no default route is known, so the link is not known to be unmetered");
    }
    for (uint32_t i = 0; i < c->num_links; i++) {
        if (fedge_glob_matches(c->links[i], link))
            return true;
    }
    return obstacle_is(o, FEDGE_REASON_METERED_LINK,
                       "the default route goes by %s, which is not among unmetered-links", link);
}

/* Parses "22:00-06:00" as minutes of the day. */
static bool hours_of(const char *text, unsigned *from, unsigned *to)
{
    static const char shape[] = "00:00-00:00";
    unsigned at[4] = {0};
    for (size_t i = 0; i < sizeof(shape); i++) {
        if (shape[i] != '0' ? text[i] != shape[i] : text[i] < '0' || text[i] > '9')
            return false;
        if (shape[i] == '0')
            at[i / 3] = at[i / 3] * 10 + (unsigned)(text[i] - '0');
    }
    *from = at[0] * 60 + at[1];
    *to = at[2] * 60 + at[3];
    return at[1] < 60 && at[3] < 60 && *from < DAY_MINUTES && *to <= DAY_MINUTES && *from != *to;
}

static bool hours_hold(const fedge_conditions *c, unsigned minute, fedge_obstacle *o)
{
    unsigned from, to, wait = DAY_MINUTES;
    for (uint32_t i = 0; i < c->num_hours; i++) {
        if (!hours_of(c->hours[i], &from, &to))
            continue;
        if (from < to ? minute >= from && minute < to : minute >= from || minute < to)
            return true;
        const unsigned until = (from + DAY_MINUTES - minute) % DAY_MINUTES;
        wait = until < wait ? until : wait;
    }
    if (c->num_hours == 0)
        return true;
    (void)obstacle_is(o, FEDGE_REASON_OUTSIDE_HOURS,
                      "it is %02u:%02u here; policy's hours begin in %u minutes", minute / 60,
                      minute % 60, wait);
    o->after_ms = (uint64_t)wait * 60000;
    return false;
}

static bool ram_holds(const fedge_conditions *c, fedge_obstacle *o)
{
    static const char key[] = "MemAvailable:";
    char fact[MAX_FACT];
    if (c->min_free_ram == 0)
        return true;
    const char *at = read_fact(fact, c->root, "proc", "", "meminfo") ? strstr(fact, key) : NULL;
    const uint64_t bytes = at ? strtoull(at + sizeof(key) - 1, NULL, 10) * 1024 : 0;
    if (bytes >= c->min_free_ram)
        return true;
    return obstacle_is(o, FEDGE_REASON_LOW_MEMORY,
                       "%" PRIu64 " bytes of RAM are free; policy's min-free-ram is %" PRIu64,
                       bytes, c->min_free_ram);
}

static bool disk_holds(const fedge_conditions *c, const char *state_dir, fedge_obstacle *o)
{
    uint64_t bytes = 0;
    fedge_error err;
    if (c->min_free_disk == 0 || !state_dir)
        return true;
    if (fedge_os_free_bytes(state_dir, &bytes, &err) == FEDGE_OK && bytes >= c->min_free_disk)
        return true;
    return obstacle_is(o, FEDGE_REASON_LOW_DISK,
                       "%" PRIu64 " bytes of disk are free; policy's min-free-disk is %" PRIu64,
                       bytes, c->min_free_disk);
}

fedge_status fedge_conditions_check(const fedge_conditions *conditions, fedge_error *err)
{
    unsigned from, to;
    for (uint32_t i = 0; i < conditions->num_hours; i++) {
        if (!hours_of(conditions->hours[i], &from, &to)) {
            return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                              "hours: \"%s\" must be a span of a day such as \"22:00-06:00\"",
                              conditions->hours[i]);
        }
    }
    return FEDGE_OK;
}

bool fedge_conditions_hold(const fedge_conditions *conditions, unsigned minute,
                           const char *state_dir, fedge_obstacle *obstacle)
{
    *obstacle = (fedge_obstacle){.reason = FEDGE_REASON_NONE};
    return !conditions->given ||
           (hours_hold(conditions, minute, obstacle) && power_holds(conditions, obstacle) &&
            temperature_holds(conditions, obstacle) && link_holds(conditions, obstacle) &&
            ram_holds(conditions, obstacle) && disk_holds(conditions, state_dir, obstacle));
}
