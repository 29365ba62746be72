// SPDX-License-Identifier: Apache-2.0
// A client of HTTP on the loopback, for tests of the server.
#pragma once

enum { HTTP_ANSWER_BYTES = 1 << 20 };

// A connection to `port` of this machine; what is received must come within a minute.
int http_connect(int port);

// Sends a request; `headers` are whole lines.
void http_send(int fd, const char *method, const char *path, const char *headers, const char *body);

// The status of the answer, or -1 if the connection ends; its body in `to` [HTTP_ANSWER_BYTES]. One
// in chunks still has their sizes.
int http_receive(int fd, char *to);
