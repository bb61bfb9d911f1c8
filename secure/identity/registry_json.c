/* registry.json: reads it with all checks, and writes one line per device. */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "edge/core/bytes.h"
#include "edge/core/os.h"
#include "secure/identity/registry_table.h"
#include "secure/identity/x509.h"

#define FORMAT 1
#define MAX_BYTES (512u << 20) /* a million devices take about 250 MB */
#define MAX_INTEGER 9007199254740992.0

/* Keys of each kind of object; exactly these must be present. */
enum { ROOT_FORMAT, ROOT_DEVICES, ROOT_KEYS };
static const char *const root_keys[] = {"format", "devices"};
enum { DEVICE_ID, DEVICE_ROLE, DEVICE_INDEX, DEVICE_NAME, DEVICE_CERTIFICATES, DEVICE_KEYS };
static const char *const device_keys[] = {"device_id", "role", "index", "name", "certificates"};
enum { CERT_SHA256, CERT_STATE, CERT_NOT_AFTER, CERT_KEYS };
static const char *const certificate_keys[] = {"sha256", "state", "not_after_ms"};

#define MAX_KEYS 5
static_assert((int)DEVICE_KEYS == MAX_KEYS, "the object with most keys");

/* Sorts the members of [object] to [values] by [keys]. */
static fedge_status take(const cJSON *object, const char *const *keys, size_t count,
                         const cJSON *values[MAX_KEYS], fedge_error *err)
{
    memset(values, 0, MAX_KEYS * sizeof(*values));
    if (!cJSON_IsObject(object))
        return fedge_fail(err, FEDGE_CORRUPT, "it must be an object");
    const cJSON *member;
    cJSON_ArrayForEach(member, object)
    {
        size_t i = 0;
        while (i < count && strcmp(member->string, keys[i]) != 0)
            i++;
        if (i == count)
            return fedge_fail(err, FEDGE_CORRUPT, "unknown key '%.40s'", member->string);
        if (values[i])
            return fedge_fail(err, FEDGE_CORRUPT, "key '%s' is there twice", keys[i]);
        values[i] = member;
    }
    for (size_t i = 0; i < count; i++) {
        if (!values[i])
            return fedge_fail(err, FEDGE_CORRUPT, "key '%s' is missing", keys[i]);
    }
    return FEDGE_OK;
}

static fedge_status take_integer(const cJSON *value, const char *key, uint64_t *out,
                                 fedge_error *err)
{
    if (!cJSON_IsNumber(value) || !(value->valuedouble >= 0) || value->valuedouble > MAX_INTEGER ||
        value->valuedouble != (double)(uint64_t)value->valuedouble)
        return fedge_fail(err, FEDGE_CORRUPT, "'%s' must be an integer from 0", key);
    *out = (uint64_t)value->valuedouble;
    return FEDGE_OK;
}

static fedge_status take_string(const cJSON *value, const char *key, const char **out,
                                fedge_error *err)
{
    if (!cJSON_IsString(value))
        return fedge_fail(err, FEDGE_CORRUPT, "'%s' must be a string", key);
    *out = value->valuestring;
    return FEDGE_OK;
}

static fedge_status take_state(const cJSON *value, fedge_certificate_state *state, fedge_error *err)
{
    const char *text = "";
    FEDGE_TRY(take_string(value, "state", &text, err));
    const char *name;
    for (unsigned i = 0; (name = fedge_certificate_state_name((fedge_certificate_state)i)); i++) {
        if (strcmp(text, name) == 0) {
            *state = (fedge_certificate_state)i;
            return FEDGE_OK;
        }
    }
    return fedge_fail(err, FEDGE_CORRUPT, "state '%.40s' is none of pending, active and revoked",
                      text);
}

static fedge_status take_certificate(fedge_registry *registry, uint32_t device, const cJSON *object,
                                     fedge_error *err)
{
    const cJSON *values[MAX_KEYS];
    const char *hex = "";
    uint8_t fingerprint[FEDGE_FINGERPRINT_SIZE];
    fedge_certificate_state state = FEDGE_CERTIFICATE_REVOKED;
    uint64_t not_after_ms = 0;
    FEDGE_TRY(take(object, certificate_keys, CERT_KEYS, values, err));
    FEDGE_TRY(take_string(values[CERT_SHA256], "sha256", &hex, err));
    FEDGE_TRY(take_state(values[CERT_STATE], &state, err));
    FEDGE_TRY(take_integer(values[CERT_NOT_AFTER], "not_after_ms", &not_after_ms, err));
    if (fedge_hex_decode(hex, fingerprint, sizeof(fingerprint), NULL) != FEDGE_OK)
        return fedge_fail(err, FEDGE_CORRUPT, "'sha256' must be 64 lower-case hex digits");
    return fedge_registry_put_certificate(registry, device, fingerprint, state, not_after_ms, err);
}

/* Reads a device without its certificates. */
static fedge_status put_device(fedge_registry *registry, const cJSON *const values[MAX_KEYS],
                               uint32_t *device, fedge_error *err)
{
    const char *id_text = "";
    const char *role_text = "";
    const char *name = "";
    uint64_t index = 0;
    fedge_device_id id = {{0}};
    fedge_role role = FEDGE_ROLE_DEVICE;
    FEDGE_TRY(take_string(values[DEVICE_ID], "device_id", &id_text, err));
    FEDGE_TRY(fedge_device_id_parse(id_text, &id, err));
    FEDGE_TRY(take_string(values[DEVICE_ROLE], "role", &role_text, err));
    FEDGE_TRY(fedge_role_from_name(role_text, &role, err));
    FEDGE_TRY(take_integer(values[DEVICE_INDEX], "index", &index, err));
    FEDGE_TRY(take_string(values[DEVICE_NAME], "name", &name, err));
    if (!fedge_name_valid(name)) {
        return fedge_fail(err, FEDGE_CORRUPT, "'name' must be 1 to %d letters, digits and ' ._:@-'",
                          FEDGE_NAME_SIZE - 1);
    }
    if (index != registry->num_of_role[role]) {
        return fedge_fail(err, FEDGE_CORRUPT,
                          "index %" PRIu64 " of role %s, where %u follows: devices are never "
                          "removed or moved, only revoked",
                          index, role_text, registry->num_of_role[role]);
    }
    return fedge_registry_put_device(registry, &id, role, name, device, err);
}

static fedge_status take_device(fedge_registry *registry, const cJSON *object, fedge_error *err)
{
    const cJSON *values[MAX_KEYS];
    uint32_t device = 0;
    FEDGE_TRY(take(object, device_keys, DEVICE_KEYS, values, err));
    FEDGE_TRY(put_device(registry, values, &device, err));
    if (!cJSON_IsArray(values[DEVICE_CERTIFICATES]))
        return fedge_fail(err, FEDGE_CORRUPT, "'certificates' must be an array");
    unsigned number = 0;
    const cJSON *certificate;
    cJSON_ArrayForEach(certificate, values[DEVICE_CERTIFICATES])
    {
        const fedge_status status = take_certificate(registry, device, certificate, err);
        if (status != FEDGE_OK)
            return fedge_error_prefix(err, status, "certificate %u", number);
        number++;
    }
    return FEDGE_OK;
}

static fedge_status take_root(fedge_registry *registry, const cJSON *root, fedge_error *err)
{
    /* A later format may have other keys, so check its number first. */
    const cJSON *format_value = cJSON_GetObjectItemCaseSensitive(root, "format");
    uint64_t format = FORMAT;
    if (format_value)
        FEDGE_TRY(take_integer(format_value, "format", &format, err));
    if (format != FORMAT) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "format %" PRIu64 ", but this program knows only %d: use a newer one",
                          format, FORMAT);
    }
    const cJSON *values[MAX_KEYS];
    FEDGE_TRY(take(root, root_keys, ROOT_KEYS, values, err));
    if (!cJSON_IsArray(values[ROOT_DEVICES]))
        return fedge_fail(err, FEDGE_CORRUPT, "'devices' must be an array");
    unsigned number = 0;
    const cJSON *device;
    cJSON_ArrayForEach(device, values[ROOT_DEVICES])
    {
        const fedge_status status = take_device(registry, device, err);
        if (status != FEDGE_OK)
            return fedge_error_prefix(err, status, "device %u", number);
        number++;
    }
    return FEDGE_OK;
}

static unsigned line_of(const char *text, const char *at)
{
    unsigned line = 1;
    for (; text < at; text++)
        line += *text == '\n';
    return line;
}

static fedge_status parse(const char *text, size_t size, cJSON **root, fedge_error *err)
{
    const char *end = text;
    *root = NULL;
    if (memchr(text, '\0', size))
        return fedge_fail(err, FEDGE_CORRUPT, "it has a NUL byte, so it is not JSON text");
    *root = cJSON_ParseWithLengthOpts(text, size, &end, 0);
    if (!*root)
        return fedge_fail(err, FEDGE_CORRUPT, "line %u is not JSON", line_of(text, end));
    if (strspn(end, " \t\r\n") != size - (size_t)(end - text)) {
        return fedge_fail(err, FEDGE_CORRUPT, "line %u: something follows the JSON value",
                          line_of(text, end));
    }
    return FEDGE_OK;
}

/* Creates the registry from a text; NULL on failure. */
static fedge_status read_text(const char *text, size_t size, fedge_registry **registry,
                              fedge_error *err)
{
    cJSON *root = NULL;
    fedge_status status;
    FEDGE_TRY_OR(parse(text, size, &root, err), done);
    FEDGE_TRY_OR(fedge_registry_new(registry, err), done);
    status = take_root(*registry, root, err);
    if (status != FEDGE_OK) {
        fedge_registry_free(*registry);
        *registry = NULL;
    }
done:
    cJSON_Delete(root);
    return status;
}

/* Reads the file to a new registry. With [may_miss], a missing file is an empty registry. */
static fedge_status load(const char *dir, bool may_miss, fedge_registry **registry,
                         fedge_error *err)
{
    *registry = NULL;
    char path[FEDGE_OS_MAX_PATH];
    uint8_t *data = NULL;
    size_t size = 0;
    FEDGE_TRY(fedge_x509_path(path, sizeof(path), dir, "registry.json", err));
    fedge_status status = fedge_os_read_file(path, MAX_BYTES, &data, &size, err);
    if (status == FEDGE_NOT_FOUND && may_miss) {
        if (fedge_os_exists(dir))
            FEDGE_TRY(fedge_os_check_not_writable(dir, err));
        return fedge_registry_new(registry, err);
    }
    if (status == FEDGE_NOT_FOUND) {
        return fedge_fail(err, status,
                          "%s does not exist: 'fedge-keys sign --registry %s' makes it", path, dir);
    }
    FEDGE_TRY(status);
    FEDGE_TRY_OR(fedge_os_check_not_writable(dir, err), done);
    FEDGE_TRY_OR(fedge_os_check_not_writable(path, err), done);
    status = read_text((const char *)data, size, registry, err);
    if (status != FEDGE_OK) {
        /* Any error in its content means that the file is corrupt. */
        bool keep = status == FEDGE_UNSUPPORTED || status == FEDGE_NO_MEMORY;
        status = fedge_error_prefix(err, keep ? status : FEDGE_CORRUPT, "%s", path);
    }
done:
    free(data);
    return status;
}

fedge_status fedge_registry_load(const char *dir, fedge_registry **registry, fedge_error *err)
{
    *registry = NULL;
    return load(dir, false, registry, err);
}

fedge_status fedge_registry_open(const char *dir, fedge_registry **registry, fedge_error *err)
{
    *registry = NULL;
    return load(dir, true, registry, err);
}

/* Names, roles and states need no escapes: fedge_name_valid checks the only free text. */
static fedge_status write_device(const fedge_registry *registry,
                                 const fedge_registry_device *device, fedge_buffer *out,
                                 fedge_error *err)
{
    char id[FEDGE_DEVICE_ID_TEXT_SIZE];
    FEDGE_TRY(fedge_buffer_printf(
        out, err,
        "{\"device_id\":\"%s\",\"role\":\"%s\",\"index\":%u,\"name\":\"%s\",\"certificates\":[",
        fedge_device_id_format(&device->id, id), fedge_role_name(device->role), device->index,
        device->name));
    uint32_t at = device->first;
    for (; at != FEDGE_REGISTRY_NONE; at = registry->certificates[at].next) {
        const fedge_registry_certificate *certificate = &registry->certificates[at];
        char hex[2 * FEDGE_FINGERPRINT_SIZE + 1];
        fedge_hex_encode(certificate->fingerprint, FEDGE_FINGERPRINT_SIZE, hex);
        FEDGE_TRY(fedge_buffer_printf(
            out, err, "%s\n {\"sha256\":\"%s\",\"state\":\"%s\",\"not_after_ms\":%" PRIu64 "}",
            at == device->first ? "" : ",", hex, fedge_certificate_state_name(certificate->state),
            certificate->not_after_ms));
    }
    return fedge_buffer_append(out, "]}", 2, err);
}

static fedge_status write_all(const fedge_registry *registry, fedge_buffer *out, fedge_error *err)
{
    FEDGE_TRY(fedge_buffer_printf(out, err, "{\"format\":%d,\"devices\":[", FORMAT));
    for (uint32_t i = 0; i < registry->num_devices; i++) {
        FEDGE_TRY(fedge_buffer_printf(out, err, i == 0 ? "\n" : ",\n"));
        FEDGE_TRY(write_device(registry, &registry->devices[i], out, err));
    }
    return fedge_buffer_append(out, "\n]}\n", 4, err);
}

fedge_status fedge_registry_save(const fedge_registry *registry, const char *dir, fedge_error *err)
{
    char path[FEDGE_OS_MAX_PATH];
    fedge_buffer out;
    FEDGE_TRY(fedge_x509_path(path, sizeof(path), dir, "registry.json", err));
    fedge_buffer_init(&out, MAX_BYTES);
    fedge_status status;
    FEDGE_TRY_OR(write_all(registry, &out, err), done);
    status = fedge_os_write_file(path, out.data, out.size, 0600, err);
done:
    fedge_buffer_fini(&out);
    return status;
}
