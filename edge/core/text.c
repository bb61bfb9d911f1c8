#include "edge/core/text.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/os.h"

static const char HEX_DIGITS[] = "0123456789abcdef";

/* 0 to 15, or −1. */
static int digit_value(char c)
{
    const char *at = c == '\0' ? NULL : strchr(HEX_DIGITS, c);
    return !at ? -1 : (int)(at - HEX_DIGITS);
}

/* Two digits per byte; false if one is not a digit. Never reads beyond a NUL. */
static bool read_byte(const char *text, uint8_t *byte)
{
    int high = digit_value(text[0]);
    int low = high < 0 ? -1 : digit_value(text[1]);
    if (low < 0)
        return false;
    *byte = (uint8_t)(high << 4 | low);
    return true;
}

static bool dash_before(size_t byte)
{
    return byte == 4 || byte == 6 || byte == 8 || byte == 10;
}

char *fedge_device_id_format(const fedge_device_id *id, char text[FEDGE_DEVICE_ID_TEXT_SIZE])
{
    char *at = text;
    for (size_t i = 0; i < sizeof(id->bytes); i++) {
        if (dash_before(i))
            *at++ = '-';
        fedge_hex_encode(&id->bytes[i], 1, at);
        at += 2;
    }
    return text;
}

fedge_status fedge_device_id_parse(const char *text, fedge_device_id *id, fedge_error *err)
{
    fedge_device_id parsed;
    const char *at = text;
    bool valid = true;
    for (size_t i = 0; valid && i < sizeof(parsed.bytes); i++) {
        if (dash_before(i))
            valid = *at++ == '-';
        valid = valid && read_byte(at, &parsed.bytes[i]);
        at += 2;
    }
    if (!valid || *at != '\0') {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "\"%.60s\" is not a device id; one looks like "
                          "01234567-89ab-cdef-0123-456789abcdef, in lower case",
                          text);
    }
    *id = parsed;
    return FEDGE_OK;
}

fedge_status fedge_device_id_random(fedge_device_id *id, fedge_error *err)
{
    fedge_device_id fresh;
    FEDGE_TRY(fedge_os_random(fresh.bytes, sizeof(fresh.bytes), err));
    fresh.bytes[6] = (uint8_t)((fresh.bytes[6] & 0x0F) | 0x40); /* version 4 */
    fresh.bytes[8] = (uint8_t)((fresh.bytes[8] & 0x3F) | 0x80); /* RFC 9562's variant */
    *id = fresh;
    return FEDGE_OK;
}

char *fedge_hex_encode(const void *data, size_t size, char *text)
{
    const uint8_t *bytes = data;
    for (size_t i = 0; i < size; i++) {
        text[2 * i] = HEX_DIGITS[bytes[i] >> 4];
        text[2 * i + 1] = HEX_DIGITS[bytes[i] & 0x0F];
    }
    text[2 * size] = '\0';
    return text;
}

fedge_status fedge_hex_decode(const char *text, void *data, size_t size, fedge_error *err)
{
    uint8_t *bytes = data;
    size_t i = 0;
    while (i < size && read_byte(text + 2 * i, &bytes[i]))
        i++;
    if (i < size || text[2 * size] != '\0') {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "\"%.80s\" is not %zu lower-case hexadecimal digits", text, 2 * size);
    }
    return FEDGE_OK;
}

/* ---- options --------------------------------------------------------------------------------- */

#define MAX_DIGITS 17 /* more digits exceed every limit and may overflow */

fedge_status fedge_option_number(const char *option, const char *text, uint64_t min, uint64_t max,
                                 uint64_t *number, fedge_error *err)
{
    const size_t digits = strspn(text, "0123456789");
    const uint64_t value = strtoull(text, NULL, 10);
    if (digits == 0 || digits > MAX_DIGITS || text[digits] != '\0' || value < min || value > max) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "--%s must be a number from %llu to %llu, not '%s'", option,
                          (unsigned long long)min, (unsigned long long)max, text);
    }
    *number = value;
    return FEDGE_OK;
}

fedge_status fedge_option_count(const char *option, const char *text, uint32_t max, uint32_t *count,
                                fedge_error *err)
{
    uint64_t number = 0;
    FEDGE_TRY(fedge_option_number(option, text, 1, max, &number, err));
    *count = (uint32_t)number;
    return FEDGE_OK;
}

/* ---- patterns -------------------------------------------------------------------------------- */

bool fedge_glob_matches(const char *pattern, const char *text)
{
    const char *star = NULL, *resume = NULL;
    while (*text) {
        if (*pattern == '*') {
            star = ++pattern;
            resume = text;
        } else if (*pattern == *text) {
            pattern++;
            text++;
        } else if (star) { /* the last '*' matches one more character */
            pattern = star;
            text = ++resume;
        } else {
            return false;
        }
    }
    return pattern[strspn(pattern, "*")] == '\0';
}
