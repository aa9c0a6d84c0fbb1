/* http_client.c - see http_client.h */
#include "support/http_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "support/test.h"

static char server_address[64];

void http_client_set_server(const char *address)
{
    snprintf(server_address, sizeof server_address, "%s", address);
}

int http_client_dial(int receive_buffer)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons((uint16_t)atoi(strrchr(server_address, ':') + 1))};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct timeval patience = {.tv_sec = 20};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (receive_buffer)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

void http_client_say(int fd, const char *text, size_t n)
{
    while (n > 0) {
        ssize_t k = send(fd, text, n, MSG_NOSIGNAL);
        if (k <= 0)
            return;
        text += k;
        n -= (size_t)k;
    }
}

void http_client_post(int fd, const char *path, const char *body, const char *headers)
{
    buf request = {0};
    buf_printf(&request, "POST %s HTTP/1.1\r\nHost: x\r\n%sContent-Length: %zu\r\n\r\n%s", path, headers, strlen(body),
               body);
    http_client_say(fd, request.data, request.len);
    buf_free(&request);
}

void http_client_read_all(int fd, buf *out)
{
    char piece[4096];
    buf_add(out, "", 0);
    for (ssize_t n; (n = recv(fd, piece, sizeof piece, 0)) > 0;)
        buf_add(out, piece, (size_t)n);
    close(fd);
}

void http_client_read_many(const int *fd, buf *out, int n)
{
    struct pollfd *p = XNEW_ARRAY(struct pollfd, (size_t)n);
    for (int i = 0; i < n; i++) {
        p[i] = (struct pollfd){.fd = fd[i], .events = POLLIN};
        buf_add(&out[i], "", 0);
    }
    for (int left = n; left > 0;) {
        assert_true(poll(p, (nfds_t)n, 20000) > 0);
        for (int i = 0; i < n; i++) {
            char piece[4096];
            ssize_t k = p[i].revents ? recv(fd[i], piece, sizeof piece, MSG_DONTWAIT) : -1;
            if (k > 0)
                buf_add(&out[i], piece, (size_t)k);
            if (k != 0)
                continue;
            close(fd[i]);
            p[i].fd = -1;
            left--;
        }
    }
    free(p);
}

buf http_client_ask(const char *path, const char *body)
{
    buf answer = {0};
    int fd = http_client_dial(0);
    http_client_post(fd, path, body, "Connection: close\r\n");
    http_client_read_all(fd, &answer);
    return answer;
}

buf http_client_get(const char *path)
{
    buf answer = {0}, request = {0};
    int fd = http_client_dial(0);
    buf_printf(&request, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", path);
    http_client_say(fd, request.data, request.len);
    buf_free(&request);
    http_client_read_all(fd, &answer);
    return answer;
}

int http_client_status(const buf *answer)
{
    return answer->len > 12 ? atoi(answer->data + 9) : -1;
}

bool http_client_has(const buf *answer, const char *text)
{
    return strstr(answer->data, text) != NULL;
}
