/* Unix milliseconds to and from the Gregorian calendar in UTC, as certificates write it. */
#ifndef FEDGE_SECURE_IDENTITY_CALENDAR_H
#define FEDGE_SECURE_IDENTITY_CALENDAR_H

#include <stdint.h>

#define FEDGE_DAY_MS UINT64_C(86400000)

typedef struct fedge_calendar {
    int year, month, day; /* month and day from 1 */
    int hour, minute, second;
} fedge_calendar;

fedge_calendar fedge_calendar_from_ms(uint64_t unix_ms);
/* Years before 1970 give 0. The fields must be in their ranges. */
uint64_t fedge_calendar_to_ms(const fedge_calendar *time);

/* "2027-05-01T12:00:00Z", for people. */
#define FEDGE_CALENDAR_TEXT 32
void fedge_calendar_text(uint64_t unix_ms, char text[FEDGE_CALENDAR_TEXT]);

#endif
