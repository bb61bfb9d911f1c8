/* A checksum at the end of a JSON object: its last member, of all bytes before it.
 *
 *     {"format":1,"number":3}     becomes     {"format":1,"number":3,"crc32":"5f0a9c1e"}
 *
 * Whoever knows nothing of it reads one member more. For files that fedge reads back and trusts;
 * what older releases wrote has none and is taken as it is.
 */
#ifndef FEDGE_EDGE_JSON_SEAL_H
#define FEDGE_EDGE_JSON_SEAL_H

#include <stddef.h>

#include "edge/core/status.h"

#define FEDGE_SEAL_SIZE ((size_t)20) /* bytes: ,"crc32":"xxxxxxxx"} */

/* What takes the place of the last byte, a "}", of object[0, size), which is not empty. */
void fedge_seal_make(const char *object, size_t size, char seal[FEDGE_SEAL_SIZE + 1]);

/* [text] may have a line's end behind the object. FEDGE_CORRUPT: it has a seal that is not of these
 * bytes, or what is left of one: two of a seal's own bytes may be damaged and it is still known as
 * one. */
FEDGE_MUST_USE fedge_status fedge_seal_check(const char *text, size_t size, const char *name,
                                             fedge_error *err);

#endif
