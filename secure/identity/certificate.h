/* Contents of a device's certificate: id, role and names. */
#ifndef FEDGE_SECURE_IDENTITY_CERTIFICATE_H
#define FEDGE_SECURE_IDENTITY_CERTIFICATE_H

#include <stdbool.h>
#include <stdint.h>

#include "edge/core/status.h"

#define FEDGE_UUID_TEXT 37 /* canonical lower-case text and NUL */
#define FEDGE_FINGERPRINT_SIZE 32

typedef enum fedge_role {
    FEDGE_ROLE_DEVICE,
    FEDGE_ROLE_SERVER,
    FEDGE_ROLE_OPERATOR,
    FEDGE_ROLE_RELAY,
    FEDGE_ROLE_COUNT
} fedge_role;

/* "device", "server", …; NULL for an unknown one. */
const char *fedge_role_name(fedge_role role);
FEDGE_MUST_USE fedge_status fedge_role_from_name(const char *name, fedge_role *role,
                                                 fedge_error *err);

/* Names for people (common name, name in the registry): 1 to 63 letters, digits and " ._:@-",
 * without a space at either end, so they need no escapes in certificates, logs or JSON. */
#define FEDGE_NAME_SIZE 64
bool fedge_name_valid(const char *name);

/* A parsed certificate. Plain data. */
typedef struct fedge_certificate_info {
    char device_id[FEDGE_UUID_TEXT];
    fedge_role role;
    uint8_t fingerprint[FEDGE_FINGERPRINT_SIZE]; /* SHA-256 of the DER */
    uint64_t not_before_ms, not_after_ms;        /* Unix */
    char subject[128];                           /* text for people and logs only */
} fedge_certificate_info;

/* Converts between Unix milliseconds and the Gregorian calendar in UTC, which certificates use. */

#define FEDGE_DAY_MS UINT64_C(86400000)

typedef struct fedge_calendar {
    int year, month, day; /* month and day from 1 */
    int hour, minute, second;
} fedge_calendar;

fedge_calendar fedge_calendar_from_ms(uint64_t unix_ms);
/* Years before 1970 give 0. The fields must be within their ranges. */
uint64_t fedge_calendar_to_ms(const fedge_calendar *time);

/* "2027-05-01T12:00:00Z", for people. */
#define FEDGE_CALENDAR_TEXT 32
void fedge_calendar_text(uint64_t unix_ms, char text[FEDGE_CALENDAR_TEXT]);

#endif
