/* A small websocket server with mutual TLS for tests of the link, in a process of its own.
 *
 * What it does is chosen by the path of the URL: /echo sends every binary message back, /text sends
 * a text frame, /huge a message whose header says too much, /endless fragments without an end,
 * /short a binary message of five bytes, /refuse answers 403, /redirect 302 to
 * this server's /echo, /bye closes with a reason.
 */
#ifndef FEDGE_TESTS_CLIENT_TEST_SERVER_H
#define FEDGE_TESTS_CLIENT_TEST_SERVER_H

#include <sys/types.h>

/* Starts the server with the identity in [identity_dir], trusting [trust_dir]; *port gets its port.
 * Ended by test_server_stop. */
pid_t test_server_start(const char *identity_dir, const char *trust_dir, int *port);
void test_server_stop(pid_t pid);

#endif
