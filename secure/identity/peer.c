/* The decision about a connected peer. */
#include <stdio.h>
#include <string.h>

#include "edge/core/text.h"
#include "secure/identity/calendar.h"
#include "secure/identity/registry.h"

static fedge_status check_time(const fedge_certificate_info *info, uint64_t now_ms,
                               fedge_error *err)
{
    char at[FEDGE_CALENDAR_TEXT];
    char now[FEDGE_CALENDAR_TEXT];
    fedge_calendar_text(now_ms, now);
    if (now_ms < info->not_before_ms) {
        fedge_calendar_text(info->not_before_ms, at);
        return fedge_fail(err, FEDGE_EXPIRED,
                          "certificate of %s is valid from %s only, and it is %s here: check both "
                          "clocks",
                          info->subject, at, now);
    }
    if (now_ms > info->not_after_ms) {
        fedge_calendar_text(info->not_after_ms, at);
        return fedge_fail(err, FEDGE_EXPIRED,
                          "certificate of %s expired at %s, and it is %s here: renew it "
                          "('fedge-keys renew')",
                          info->subject, at, now);
    }
    return FEDGE_OK;
}

static fedge_status check_registered(const fedge_certificate_info *info,
                                     const fedge_registry *registry, fedge_registry_match *match,
                                     fedge_error *err)
{
    char text[2 * FEDGE_FINGERPRINT_SIZE + 1];
    fedge_status status = fedge_registry_find(registry, info->fingerprint, match, err);
    if (status != FEDGE_OK) {
        return fedge_error_prefix(err, status, "certificate of %s (device %s)", info->subject,
                                  info->device_id);
    }
    fedge_hex_encode(info->fingerprint, FEDGE_FINGERPRINT_SIZE, text);
    if (strcmp(match->device_id, info->device_id) != 0 || match->role != info->role) {
        return fedge_fail(err, FEDGE_DENIED,
                          "certificate %.16s... says device %s, role %s; the registry says %s, %s",
                          text, info->device_id, fedge_role_name(info->role), match->device_id,
                          fedge_role_name(match->role));
    }
    if (match->state == FEDGE_CERTIFICATE_REVOKED) {
        return fedge_fail(err, FEDGE_REVOKED, "certificate %.16s... of '%s' (device %s) is revoked",
                          text, match->name, match->device_id);
    }
    if (match->state != FEDGE_CERTIFICATE_ACTIVE) {
        return fedge_fail(err, FEDGE_DENIED,
                          "certificate %.16s... of '%s' (device %s) is pending: let it in with "
                          "'fedge-keys activate'",
                          text, match->name, match->device_id);
    }
    return FEDGE_OK;
}

fedge_status fedge_peer_check(const uint8_t *der, size_t der_size, fedge_role role, uint64_t now_ms,
                              const fedge_registry *registry, fedge_registry_match *match,
                              fedge_error *err)
{
    memset(match, 0, sizeof(*match));
    fedge_certificate_info info;
    fedge_status status = fedge_certificate_read(der, der_size, &info, err);
    if (status != FEDGE_OK)
        return status;
    memcpy(match->device_id, info.device_id, sizeof(match->device_id));
    match->role = info.role;
    match->state = FEDGE_CERTIFICATE_ACTIVE;
    snprintf(match->name, sizeof(match->name), "%.63s", info.subject);
    if (info.role != role) {
        return fedge_fail(err, FEDGE_DENIED, "certificate of %s (device %s) has role %s, not %s",
                          info.subject, info.device_id, fedge_role_name(info.role),
                          fedge_role_name(role));
    }
    status = check_time(&info, now_ms, err);
    if (status == FEDGE_OK && registry)
        status = check_registered(&info, registry, match, err);
    return status;
}

fedge_status fedge_peer_check_again(const fedge_certificate_info *known, fedge_role role,
                                    const fedge_registry *registry, fedge_registry_match *match,
                                    fedge_error *err)
{
    memset(match, 0, sizeof(*match));
    memcpy(match->device_id, known->device_id, sizeof(match->device_id));
    if (known->role != role) {
        return fedge_fail(err, FEDGE_DENIED, "the session of device %s has role %s, not %s",
                          known->device_id, fedge_role_name(known->role), fedge_role_name(role));
    }
    return check_registered(known, registry, match, err);
}
