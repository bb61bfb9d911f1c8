/* The HTTP proxy by which the server is reached: CONNECT, then TLS to the server through it. */
#ifndef FEDGE_CLIENT_PROXY_H
#define FEDGE_CLIENT_PROXY_H

#include "edge/core/status.h"

#define FEDGE_PROXY_TEXT 256

/* Writes HOST:PORT of the proxy for the server [url] into [out], "" for none: [given]
 * ("[http://]HOST:PORT"; "" says none), or with NULL what https_proxy or HTTPS_PROXY says, unless
 * no_proxy or NO_PROXY lists the server's host or the end of its name ("*": all).
 * FEDGE_INVALID_ARGUMENT: it is not such an address, or wants TLS or a password. */
FEDGE_MUST_USE fedge_status fedge_proxy_for(const char *url, const char *given,
                                            char out[FEDGE_PROXY_TEXT], fedge_error *err);

#endif
