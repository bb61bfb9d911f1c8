/* The keys of a client's file; a part of site.c, here for its tests. */
#ifndef FEDGE_EDGE_SITE_SITE_FIELDS_H
#define FEDGE_EDGE_SITE_SITE_FIELDS_H

#include "edge/json/json.h"

extern const fedge_json_field fedge_site_fields[];      /* of a fedge_site */
extern const fedge_json_field fedge_site_data_fields[]; /* of a fedge_site_data */
extern const fedge_json_field fedge_policy_fields[];    /* of a fedge_site */

#endif
