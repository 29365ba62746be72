// SPDX-License-Identifier: Apache-2.0
// Requests over sockets, in plain text.
#include "support/http_client.h"

#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

int http_connect(int port) {
  const struct sockaddr_in address = {.sin_family = AF_INET,
                                      .sin_port = htons((uint16_t)port),
                                      .sin_addr = {htonl(INADDR_LOOPBACK)}};
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  const struct timeval limit = {.tv_sec = 60};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  if (connect(fd, (const struct sockaddr *)&address, sizeof address) != 0) abort();
  return fd;
}

static void send_text(int fd, const char *text, size_t length) {
  while (length > 0) {
    const ssize_t n = send(fd, text, length, MSG_NOSIGNAL);
    if (n <= 0) return;
    text += n;
    length -= (size_t)n;
  }
}

void http_send(int fd, const char *method, const char *path, const char *headers,
               const char *body) {
  const size_t size = strlen(body) + 1024;
  char *const text = malloc(size);
  const int n = snprintf(text, size,
                         "%s %s HTTP/1.1\r\nHost: localhost\r\n%sContent-Type: application/json\r\n"
                         "Content-Length: %zu\r\n\r\n%s",
                         method, path, headers, strlen(body), body);
  send_text(fd, text, (size_t)n);
  free(text);
}

// The answer on `fd`: its status, and its body in `to` without the frames of chunks.
int http_receive(int fd, char *to) {
  static _Thread_local char raw[HTTP_ANSWER_BYTES];
  size_t length = 0;
  char *end = NULL;
  while (!end && length < sizeof raw - 1) {
    const ssize_t n = recv(fd, raw + length, 1, 0);
    if (n <= 0) return -1;
    raw[++length] = '\0';
    end = strstr(raw, "\r\n\r\n");
  }
  const int status = atoi(raw + 9);
  const char *const sized = strstr(raw, "Content-Length: ");
  size_t left = sized ? (size_t)atol(sized + 16) : SIZE_MAX, at = 0;
  to[0] = '\0';
  while (at < left && at < HTTP_ANSWER_BYTES - 1) {
    const ssize_t n = recv(fd, to + at, left == SIZE_MAX ? 1 : left - at, 0);
    if (n <= 0) return -1;
    at += (size_t)n;
    to[at] = '\0';
    if (!sized && at >= 5 && strcmp(to + at - 5, "0\r\n\r\n") == 0) return status;
  }
  return status;
}
