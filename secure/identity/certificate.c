#include "secure/identity/certificate.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static const char *const role_names[] = {
    [FEDGE_ROLE_DEVICE] = "device",
    [FEDGE_ROLE_SERVER] = "server",
    [FEDGE_ROLE_OPERATOR] = "operator",
    [FEDGE_ROLE_RELAY] = "relay",
};
static_assert(sizeof(role_names) / sizeof(*role_names) == FEDGE_ROLE_COUNT,
              "every role has a name");

const char *fedge_role_name(fedge_role role)
{
    return (unsigned)role < FEDGE_ROLE_COUNT ? role_names[role] : NULL;
}

fedge_status fedge_role_from_name(const char *name, fedge_role *role, fedge_error *err)
{
    for (unsigned i = 0; i < FEDGE_ROLE_COUNT; i++) {
        if (strcmp(name, role_names[i]) == 0) {
            *role = (fedge_role)i;
            return FEDGE_OK;
        }
    }
    return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                      "unknown role '%.40s'; it must be device, server, operator or relay", name);
}

bool fedge_name_valid(const char *name)
{
    size_t length = strlen(name);
    if (length == 0 || length >= FEDGE_NAME_SIZE || name[0] == ' ' || name[length - 1] == ' ')
        return false;
    return strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                        " ._:@-") == length;
}

/* --- the calendar -------------------------------------------------------------------------------
 */

#define DAYS_OF_400_YEARS 146097
#define DAYS_TO_1970 719468 /* counted from 0000-03-01 */

/* Both conversions count years from 1 March, so that the leap day is a year's last: Hinnant,
 * "chrono-Compatible Low-Level Date Algorithms". */
fedge_calendar fedge_calendar_from_ms(uint64_t unix_ms)
{
    uint64_t seconds = unix_ms / 1000;
    int64_t days = (int64_t)(seconds / 86400) + DAYS_TO_1970;
    int of_day = (int)(seconds % 86400);
    int64_t era = days / DAYS_OF_400_YEARS;
    int64_t of_era = days % DAYS_OF_400_YEARS;
    int64_t year_of_era =
        (of_era - of_era / 1460 + of_era / 36524 - of_era / (DAYS_OF_400_YEARS - 1)) / 365;
    int64_t of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int64_t from_march = (5 * of_year + 2) / 153;
    int month = (int)(from_march < 10 ? from_march + 3 : from_march - 9);
    return (fedge_calendar){
        .year = (int)(era * 400 + year_of_era) + (month <= 2 ? 1 : 0),
        .month = month,
        .day = (int)(of_year - (153 * from_march + 2) / 5) + 1,
        .hour = of_day / 3600,
        .minute = of_day / 60 % 60,
        .second = of_day % 60,
    };
}

uint64_t fedge_calendar_to_ms(const fedge_calendar *time)
{
    if (time->year < 1970)
        return 0;
    int64_t year = time->year - (time->month <= 2 ? 1 : 0);
    int64_t era = year / 400;
    int64_t year_of_era = year % 400;
    int64_t from_march = time->month > 2 ? time->month - 3 : time->month + 9;
    int64_t of_year = (153 * from_march + 2) / 5 + time->day - 1;
    int64_t of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year;
    int64_t days = era * DAYS_OF_400_YEARS + of_era - DAYS_TO_1970;
    int64_t seconds = days * 86400 + time->hour * 3600 + time->minute * 60 + time->second;
    return (uint64_t)seconds * 1000;
}

void fedge_calendar_text(uint64_t unix_ms, char text[FEDGE_CALENDAR_TEXT])
{
    fedge_calendar at = fedge_calendar_from_ms(unix_ms);
    snprintf(text, FEDGE_CALENDAR_TEXT, "%04d-%02d-%02dT%02d:%02d:%02dZ", at.year % 10000,
             at.month % 100, at.day % 100, at.hour % 100, at.minute % 100, at.second % 100);
}
