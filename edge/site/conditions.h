/* When a device may work: the conditions of its site's file ("policy": {"conditions": …}), checked
 * against the system's state.
 *
 *   {"mains-power": true, "min-battery": 40, "max-temperature": 70,
 *    "unmetered-links": ["eth*", "wlan0"], "hours": ["22:00-06:00"],
 *    "min-free-ram": 67108864, "min-free-disk": 134217728}
 *
 * Read are, below root: sys/class/power_supply, sys/class/thermal, proc/net/route,
 * proc/net/ipv6_route and proc/meminfo. A condition whose facts are unknown does not hold. */
#ifndef FEDGE_EDGE_SITE_CONDITIONS_H
#define FEDGE_EDGE_SITE_CONDITIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "edge/core/message.h"
#include "edge/core/status.h"
#include "edge/json/json.h"

#define FEDGE_CONDITIONS_MAX_LINKS 8
#define FEDGE_CONDITIONS_MAX_LINK 16 /* bytes of a name with NUL, as in the kernel */
#define FEDGE_CONDITIONS_MAX_HOURS 8
#define FEDGE_CONDITIONS_MAX_ROOT 256
/* Delay before an unmet condition is checked again; that of hours has a known time. */
#define FEDGE_CONDITIONS_RECHECK_MS 300000u

/* Plain data; 0, false or empty: no condition. */
typedef struct fedge_conditions {
    bool given; /* the site's file has the key */
    bool mains_power;
    uint32_t min_battery;   /* percent */
    double max_temperature; /* °C */
    uint32_t num_links;     /* interfaces that the default route may use */
    char links[FEDGE_CONDITIONS_MAX_LINKS]
              [FEDGE_CONDITIONS_MAX_LINK]; /* "*" at the end matches any characters */
    uint32_t num_hours;
    char hours[FEDGE_CONDITIONS_MAX_HOURS]
              [12];                       /* "HH:MM-HH:MM" in local time, also across midnight */
    uint64_t min_free_ram, min_free_disk; /* bytes */
    char root[FEDGE_CONDITIONS_MAX_ROOT]; /* prefix of /sys and /proc: a container's host */
} fedge_conditions;

/* An unmet condition. */
typedef struct fedge_obstacle {
    fedge_reason reason; /* ON_BATTERY … LOW_DISK; NONE: all are met */
    uint64_t after_ms;   /* time of the next check */
    char text[160];      /* text for people: the fact and the limit */
} fedge_obstacle;

extern const fedge_json_field fedge_conditions_fields[];

/* Checks the hours. Call it once after reading the fields. */
FEDGE_MUST_USE fedge_status fedge_conditions_check(const fedge_conditions *conditions,
                                                   fedge_error *err);

/* Whether all conditions are met. [minute]: of the local day, 0 … 1439. [state_dir]: directory of
 * results; NULL: in memory, and the disk is not checked. */
bool fedge_conditions_hold(const fedge_conditions *conditions, unsigned minute,
                           const char *state_dir, fedge_obstacle *obstacle);

#endif
