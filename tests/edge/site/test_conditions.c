/* The conditions of a site's policy, on machines that are made up of files. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/os.h"
#include "edge/site/conditions.h"
#include "edge/site/site.h"

static char root[] = "test_conditions.XXXXXX";

static int set_up(void **state)
{
    (void)state;
    memcpy(root, "test_conditions.XXXXXX", sizeof(root));
    return !mkdtemp(root) ? -1 : 0;
}

static int tear_down(void **state)
{
    (void)state;
    return fedge_os_remove_tree(root, NULL) == FEDGE_OK ? 0 : -1;
}

static const char *path_in(const char *folder)
{
    static char path[256];
    snprintf(path, sizeof(path), "%s/%s", root, folder);
    return path;
}

static void fact(const char *folder, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", root, folder);
    assert_int_equal(fedge_os_make_dirs(path, NULL), FEDGE_OK);
    snprintf(path, sizeof(path), "%s/%s/%s", root, folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static fedge_conditions conditions(void)
{
    fedge_conditions c = {.given = true};
    snprintf(c.root, sizeof(c.root), "%s", root);
    return c;
}

static fedge_reason reason_at(const fedge_conditions *c, unsigned minute)
{
    fedge_obstacle obstacle;
    const bool holds = fedge_conditions_hold(c, minute, ".", &obstacle);
    assert_true(holds == (obstacle.reason == FEDGE_REASON_NONE));
    if (!holds) {
        assert_string_equal(fedge_reason_class(obstacle.reason), "later");
        assert_true(obstacle.text[0] != '\0' && obstacle.after_ms > 0);
    }
    return obstacle.reason;
}

static fedge_reason reason(const fedge_conditions *c)
{
    return reason_at(c, 0);
}

#define BATTERY "sys/class/power_supply/BAT0"
#define MAINS "sys/class/power_supply/AC"

static void mains_power(void **state)
{
    (void)state;
    fedge_conditions c = conditions();
    c.mains_power = true;
    assert_int_equal(reason(&c), FEDGE_REASON_ON_BATTERY); /* a host that is not mounted there */
    fact("sys/class/net", "eth0", "");
    assert_int_equal(reason(&c), FEDGE_REASON_NONE); /* a board that knows of no supply */
    fact("sys/class/power_supply/usbc", "type", "USB\n");
    fact("sys/class/power_supply/usbc", "online", "0\n");
    assert_int_equal(reason(&c), FEDGE_REASON_NONE); /* whose port feeds others */
    assert_int_equal(fedge_os_remove_tree(path_in("sys/class/power_supply/usbc"), NULL), FEDGE_OK);
    fact(BATTERY, "type", "Battery\n");
    fact(BATTERY, "status", "Discharging\n");
    assert_int_equal(reason(&c), FEDGE_REASON_ON_BATTERY);
    fact(BATTERY, "status", "Charging\n");
    assert_int_equal(reason(&c), FEDGE_REASON_NONE);
    fact(BATTERY, "status", "Full\n");
    assert_int_equal(reason(&c), FEDGE_REASON_NONE);
    fact("sys/class/power_supply/BAT1", "type", "Battery\n");
    fact("sys/class/power_supply/BAT1", "status", "Discharging\n");
    assert_int_equal(reason(&c), FEDGE_REASON_ON_BATTERY);
    fact("sys/class/power_supply/BAT1", "present", "0\n");
    assert_int_equal(reason(&c), FEDGE_REASON_NONE); /* nor is it there */
    fact(MAINS, "type", "Mains\n");
    fact(MAINS, "online", "0\n");
    assert_int_equal(reason(&c), FEDGE_REASON_ON_BATTERY);
    fact(MAINS, "online", "1\n");
    assert_int_equal(reason(&c), FEDGE_REASON_NONE);
}

static void battery_level(void **state)
{
    (void)state;
    fedge_conditions c = conditions();
    fedge_obstacle obstacle;
    c.min_battery = 40;
    assert_int_equal(reason(&c), FEDGE_REASON_ON_BATTERY); /* a host that is not mounted there */
    fact(BATTERY, "type", "Battery\n");
    fact(BATTERY, "present", "0\n");
    assert_int_equal(reason(&c), FEDGE_REASON_NONE); /* no battery */
    fact(BATTERY, "present", "1\n");
    assert_int_equal(reason(&c), FEDGE_REASON_BATTERY_LOW); /* one that does not tell */
    assert_false(fedge_conditions_hold(&c, 0, ".", &obstacle));
    assert_null(strchr(obstacle.text, '%'));
    fact(BATTERY, "capacity", "39\n");
    assert_int_equal(reason(&c), FEDGE_REASON_BATTERY_LOW);
    fact(BATTERY, "capacity", "40\n");
    assert_int_equal(reason(&c), FEDGE_REASON_NONE);
    fact("sys/class/power_supply/BAT1", "type", "Battery\n");
    fact("sys/class/power_supply/BAT1", "capacity", "39\n");
    assert_int_equal(reason(&c), FEDGE_REASON_BATTERY_LOW); /* the emptiest of both counts */
    fact("sys/class/power_supply/BAT1", "capacity", "100\n");
    fact("sys/class/power_supply/mouse", "type", "Battery\n");
    fact("sys/class/power_supply/mouse", "scope", "Device\n");
    fact("sys/class/power_supply/mouse", "capacity", "5\n");
    assert_int_equal(reason(&c), FEDGE_REASON_NONE);
}

static void temperature(void **state)
{
    (void)state;
    fedge_conditions c = conditions();
    fedge_obstacle obstacle;
    c.max_temperature = 70;
    assert_int_equal(reason(&c), FEDGE_REASON_TOO_HOT); /* not known */
    fact("sys/class/thermal/thermal_zone0", "temp", "45000\n");
    fact("sys/class/thermal/cooling_device0", "temp", "99000\n");
    assert_int_equal(reason(&c), FEDGE_REASON_NONE);
    fact("sys/class/thermal/thermal_zone1", "temp", "70100\n");
    assert_false(fedge_conditions_hold(&c, 0, NULL, &obstacle));
    assert_int_equal(obstacle.reason, FEDGE_REASON_TOO_HOT);
    assert_string_equal(obstacle.text,
                        "the device is at 70.100 degrees; policy's max-temperature is 70.000");
    c.max_temperature = 70.1;
    assert_int_equal(reason(&c), FEDGE_REASON_NONE);
    fact("sys/class/thermal/thermal_zone0", "temp", "-20000\n");
    fact("sys/class/thermal/thermal_zone1", "temp", ""); /* one that does not answer */
    assert_int_equal(reason(&c), FEDGE_REASON_NONE);
}

#define ROUTES                                                                                     \
    "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
#define LAN "eth0\t0011A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
#define MODEM "wwan0\t00000000\t0101A8C0\t0003\t0\t0\t700\t00000000\t0\t0\t0\n"
#define WIFI "wlan0\t00000000\t0101A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0\n"
#define ZEROS "00000000000000000000000000000000"

static void unmetered_links(void **state)
{
    (void)state;
    fedge_conditions c = conditions();
    c.num_links = 2;
    snprintf(c.links[0], sizeof(c.links[0]), "eth*");
    snprintf(c.links[1], sizeof(c.links[1]), "wlan0");
    assert_int_equal(reason(&c), FEDGE_REASON_METERED_LINK); /* not known */
    fact("proc/net", "route", ROUTES LAN MODEM);
    assert_int_equal(reason(&c), FEDGE_REASON_METERED_LINK);
    fact("proc/net", "route", ROUTES LAN MODEM WIFI);
    assert_int_equal(reason(&c), FEDGE_REASON_NONE);
    fact("proc/net", "route", ROUTES LAN);
    fact("proc/net", "ipv6_route",
         ZEROS " 00 " ZEROS " 00 " ZEROS " ffffffff 00000001 00000000 00200200       lo\n" ZEROS
               " 00 " ZEROS " 00 fe800000000000000000000000000001 00000400 00000001 00000000"
               " 00000003     eth1\n");
    assert_int_equal(reason(&c), FEDGE_REASON_NONE);
    snprintf(c.links[0], sizeof(c.links[0]), "eth0");
    assert_int_equal(reason(&c), FEDGE_REASON_METERED_LINK);
}

/* The kernel lists the prefixes before ::/0, and a router knows many. */
static void links_of_many_routes(void **state)
{
    (void)state;
    static char text[16384];
    fedge_conditions c = conditions();
    int size = 0;
    c.num_links = 1;
    snprintf(c.links[0], sizeof(c.links[0]), "wlan0");
    for (int i = 0; i < 40; i++) {
        size += snprintf(text + size, sizeof(text) - (size_t)size,
                         "20010db8%04x00000000000000000000 30 " ZEROS " 00 " ZEROS
                         " 00000100 00000001 00000000 00000001     eth0\n",
                         (unsigned)i);
    }
    fact("proc/net", "ipv6_route", text);
    assert_int_equal(reason(&c), FEDGE_REASON_METERED_LINK);
    (void)snprintf(text + size, sizeof(text) - (size_t)size,
                   ZEROS " 00 " ZEROS " 00 fe800000000000000000000000000001 00000400 00000001"
                         " 00000000 00000003    wlan0\n");
    fact("proc/net", "ipv6_route", text);
    assert_int_equal(reason(&c), FEDGE_REASON_NONE);
    size = 0;
    for (unsigned i = 0; i < 60; i++) {
        size +=
            snprintf(text + size, sizeof(text) - (size_t)size,
                     "eth0\t%08X\t00000000\t0001\t0\t0\t100\tFFFFFFFF\t0\t0\t0%40s\n", i + 1, "");
    }
    (void)snprintf(text + size, sizeof(text) - (size_t)size,
                   "usb0\t00000000\t0100000A\t0003\t0\t0\t100\t00000000\t0\t0\t0%40s\n", "");
    fact("proc/net", "route", text);
    assert_int_equal(reason(&c), FEDGE_REASON_METERED_LINK); /* IPv4's comes first */
    snprintf(c.links[0], sizeof(c.links[0]), "usb0");
    assert_int_equal(reason(&c), FEDGE_REASON_NONE);
}

static void hours(void **state)
{
    (void)state;
    fedge_obstacle obstacle;
    fedge_conditions c = conditions();
    c.num_hours = 2;
    snprintf(c.hours[0], sizeof(c.hours[0]), "22:00-06:30");
    snprintf(c.hours[1], sizeof(c.hours[1]), "12:00-13:00");
    assert_int_equal(fedge_conditions_check(&c, NULL), FEDGE_OK);
    assert_int_equal(reason_at(&c, 22 * 60), FEDGE_REASON_NONE);
    assert_int_equal(reason_at(&c, 0), FEDGE_REASON_NONE);
    assert_int_equal(reason_at(&c, 6 * 60 + 29), FEDGE_REASON_NONE);
    assert_int_equal(reason_at(&c, 12 * 60 + 5), FEDGE_REASON_NONE);
    assert_int_equal(reason_at(&c, 6 * 60 + 30), FEDGE_REASON_OUTSIDE_HOURS);
    assert_false(fedge_conditions_hold(&c, 11 * 60, NULL, &obstacle));
    assert_int_equal(obstacle.after_ms, 3600000);
    assert_false(fedge_conditions_hold(&c, 13 * 60, NULL, &obstacle));
    assert_int_equal(obstacle.after_ms, 9 * 3600000);
    static const char *const wrong[] = {"22:00-22:00", "24:00-06:00", "22:60-06:00", "2x:00-06:00"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        snprintf(c.hours[1], sizeof(c.hours[1]), "%s", wrong[i]);
        assert_int_equal(fedge_conditions_check(&c, NULL), FEDGE_INVALID_ARGUMENT);
    }
}

static void room(void **state)
{
    (void)state;
    fedge_conditions c = conditions();
    c.min_free_ram = 64 << 10;
    assert_int_equal(reason(&c), FEDGE_REASON_LOW_MEMORY);
    fact("proc", "meminfo", "MemTotal:  2000 kB\nMemFree: 1 kB\nMemAvailable:     64 kB\n");
    assert_int_equal(reason(&c), FEDGE_REASON_NONE);
    c.min_free_ram++;
    assert_int_equal(reason(&c), FEDGE_REASON_LOW_MEMORY);
    c.min_free_ram = 0;
    c.min_free_disk = 1;
    assert_int_equal(reason(&c), FEDGE_REASON_NONE);
    c.min_free_disk = (uint64_t)1 << 62;
    assert_int_equal(reason(&c), FEDGE_REASON_LOW_DISK);
    fedge_obstacle obstacle;
    assert_true(fedge_conditions_hold(&c, 0, NULL, &obstacle)); /* nothing is kept on a disk */
}

/* The files of this machine's own /proc have no size; what is read of them must be there. */
static void facts_of_this_machine(void **state)
{
    (void)state;
    fedge_conditions c = {.given = true, .min_free_ram = 1};
    assert_int_equal(reason(&c), FEDGE_REASON_NONE);
    assert_in_range(fedge_os_local_minute(), 0, 1439);
}

static void in_the_site_file(void **state)
{
    (void)state;
    static const char text[] =
        "{\"policy\": {\"conditions\": {\"mains-power\": true, \"min-battery\": 40,\n"
        " \"max-temperature\": 70.5, \"unmetered-links\": [\"eth*\"], \"hours\": "
        "[\"22:00-06:00\"],\n"
        " \"min-free-ram\": 5, \"min-free-disk\": 6, \"root\": \"/host\"}}}";
    static const struct {
        const char *text, *part;
    } wrong[] = {
        {"\"hours\": [\"22:00-26:00\"]", "\"22:00-26:00\" must be a span of a day such as"},
        {"\"hours\": [\"9:00-17:00\"]", "\"9:00-17:00\" must be a span of a day such as"},
        {"\"hours\": [\"22:00 - 06:00\"]", "hours[0]: must have 0 to 11 bytes"},
        {"\"hours\": []", "hours: must have 1 to 8 elements"},
        {"\"unmetered-links\": []", "unmetered-links: must have 1 to 8 elements"}};
    fedge_site *site;
    fedge_error err = {0};
    assert_int_equal(fedge_site_parse(text, sizeof(text) - 1, "site", &site, &err), FEDGE_OK);
    const fedge_conditions *c = &site->conditions;
    assert_true(c->given && c->mains_power && c->min_battery == 40 && c->max_temperature == 70.5);
    assert_true(c->num_links == 1 && c->num_hours == 1 && c->min_free_ram == 5);
    assert_int_equal(c->min_free_disk, 6);
    assert_string_equal(c->root, "/host");
    fedge_site_free(site);
    assert_int_equal(fedge_site_parse("{}", 2, "site", &site, &err), FEDGE_OK);
    assert_int_equal(reason(&site->conditions), FEDGE_REASON_NONE);
    fedge_site_free(site);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        char policy[200];
        const int size =
            snprintf(policy, sizeof(policy), "{\"policy\": {\"conditions\": {%s}}}", wrong[i].text);
        assert_int_equal(fedge_site_parse(policy, (size_t)size, "site", &site, &err),
                         FEDGE_INVALID_ARGUMENT);
        if (!strstr(err.message, wrong[i].part))
            fail_msg("%s: %s", wrong[i].text, err.message);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(mains_power),
                                       TEST(battery_level),
                                       TEST(temperature),
                                       TEST(unmetered_links),
                                       TEST(links_of_many_routes),
                                       TEST(hours),
                                       TEST(room),
                                       TEST(facts_of_this_machine),
                                       TEST(in_the_site_file)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
