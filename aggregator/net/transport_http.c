#define _GNU_SOURCE /* libwebsockets.h needs more than C11 */

#include <stdio.h>

#include "aggregator/net/transport_internal.h"
#include "edge/core/os.h"

static void gather_facts(fedge_transport *transport)
{
    fedge_http_facts *facts = &transport->facts;
    transport->run.status(transport->run.run, &facts->run);
    facts->connections = fedge_transport_num_connections(transport);
    facts->unauthenticated = fedge_door_num_guests(transport);
    facts->num_threads = transport->config.num_threads;
    for (uint32_t i = 0; i < facts->num_threads; i++)
        facts->thread_connections[i] = atomic_load(&transport->networks[i]->num_connections);
    facts->devices = fedge_peers_num_devices(transport->config.peers);
    facts->connections_refused = fedge_peers_num_refused(transport->config.peers);
    facts->uptime_seconds = (double)(fedge_os_monotonic_ms() - transport->started_ms) / 1000.0;
    facts->cpu_seconds = fedge_os_cpu_seconds();
    facts->resident_bytes = fedge_os_resident_bytes();
}

static int answer_http(fedge_peer *peer, struct lws *wsi, const char *uri, size_t uri_size)
{
    fedge_network *network = peer->network;
    fedge_transport *transport = network->transport;
    char host[FEDGE_HTTP_MAX_HOST];
    if (!fedge_http_host_of(wsi, host))
        return fedge_http_send_text(network, wsi, 400, "a request needs one Host, well-formed");
    if (!fedge_http_host_allowed(host, transport->config.http_host)) {
        return fedge_http_send_text(
            network, wsi, 403,
            "the Host must be an IP address, localhost, or the name that --http-host allows");
    }
    char path[32];
    snprintf(path, sizeof(path), "%.*s", uri_size < 1024 ? (int)uri_size : 0, uri);
    char *unused = NULL;
    int unused_size = 0;
    int method = lws_http_get_uri_and_method(wsi, &unused, &unused_size);
    bool head = method == LWSHUMETH_HEAD;
    gather_facts(transport);
    fedge_http_answer *answer = &transport->answer;
    fedge_error err;
    if (fedge_http_answer_make(head || method == LWSHUMETH_GET, path, &transport->facts, answer,
                               &err) != FEDGE_OK)
        return fedge_http_send_text(network, wsi, 503, err.message);
    return fedge_http_send(network, wsi, head, answer->status, answer->type, answer->body,
                           answer->size);
}

int fedge_http_callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                        size_t size)
{
    (void)user;
    fedge_peer *peer = lws_get_opaque_user_data(wsi);
    switch ((int)reason) {
    case LWS_CALLBACK_HTTP:
        return peer ? answer_http(peer, wsi, in, size) : -1;
    case LWS_CALLBACK_FILTER_PROTOCOL_CONNECTION:
        return -1; /* no websockets here */
    case LWS_CALLBACK_WSI_DESTROY:
        if (peer) {
            lws_set_opaque_user_data(wsi, NULL);
            fedge_peer_forget(peer);
        }
        return 0;
    default:
        return 0;
    }
}
