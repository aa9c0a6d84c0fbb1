/* transfer.c - see transfer.h; libcurl's easy interface, one handle for each try */
#include "registry/transfer.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"

enum {
    MAX_REDIRECTS = 5,
    MAX_ETAG = 256,
    FRUITLESS_TRIES = 3,
    CONNECT_MS = 10000,
    SLOW_BYTES = 1024,
    MAX_HEADS = 1 << 20
};

/* The file, and the current try. */
typedef struct {
    const transfer_rules *rules;
    const char *url, *shown, *path;
    size_t max_bytes;
    char *part, *etag_path;
    int fd;              /* of the part */
    size_t at;           /* bytes that the part has */
    size_t most;         /* bytes that it ever had */
    char etag[MAX_ETAG]; /* of the version that the part is of; "": unknown, or weak */
    bool is_disk_full;   /* or writing failed otherwise: the part is removed */

    size_t heads; /* bytes of this try's heads and trailers, all of which libcurl keeps */

    /* Of the reply that is being read. */
    long status;
    bool is_final; /* its head has ended, and it is no redirect */
    char new_etag[MAX_ETAG];
    curl_off_t length, from, total; /* from Content-Length, Content-Range; -1: not said */
    char refused[INET6_ADDRSTRLEN]; /* the address that we may not connect to; "": none */
    bool has_why;                   /* we ended it ourselves, because of: */
    err why;
} transfer;

static void init_curl(void)
{
    CHECK(curl_global_init(CURL_GLOBAL_DEFAULT) == 0);
}

static int give_up(transfer *t, const char *why)
{
    t->has_why = true;
    return err_set(&t->why, "%s", why);
}

/* Gives up because of errno: this host's disk failed. */
static int give_up_here(transfer *t)
{
    t->has_why = true;
    return err_set_local(&t->why, "%s", strerror(errno));
}

static void forget_etag(transfer *t)
{
    t->etag[0] = 0;
    unlink(t->etag_path);
}

/* Stores the new ETag before the first byte of its version is written; atomically: a crash leaves either one. */
static int remember_etag(transfer *t)
{
    char *next = xasprintf("%s.new", t->etag_path);
    FILE *f = fopen(next, "w");
    bool good = f && fputs(t->new_etag, f) >= 0;
    good = (!f || fclose(f) == 0) && good && rename(next, t->etag_path) == 0;
    free(next);
    if (!good)
        return give_up_here(t);
    memcpy(t->etag, t->new_etag, sizeof t->etag);
    return 0;
}

static int restart_part(transfer *t)
{
    if (ftruncate(t->fd, 0) || lseek(t->fd, 0, SEEK_SET) < 0)
        return give_up_here(t);
    t->at = 0;
    forget_etag(t);
    return t->new_etag[0] ? remember_etag(t) : 0;
}

static int check_size(transfer *t, curl_off_t whole)
{
    if (whole < 0 || (size_t)whole <= t->max_bytes)
        return 0;
    t->has_why = true;
    return err_set(&t->why, "it is %lld bytes; at most %zu are accepted", (long long)whole, t->max_bytes);
}

/* At the end of a reply's head: checks that its body is what we want, and seeks to where it goes. 0, or -1. */
static int begin_body(transfer *t)
{
    if (t->status == 200)
        return check_size(t, t->length) ? -1 : restart_part(t);
    if (t->status != 206)
        return 0;
    if (t->from != (curl_off_t)t->at || t->total < 0)
        return give_up(t, "the server sent another range than was asked for");
    if (lseek(t->fd, (off_t)t->at, SEEK_SET) < 0)
        return give_up_here(t);
    return check_size(t, t->total);
}

static void copy_value(char *to, size_t n, const char *value, size_t len)
{
    len = len < n ? len : 0; /* a value that is too long is of no use */
    memcpy(to, value, len);
    to[len] = 0;
}

/* Returns whether line is the named field; then sets *value and *n to its value. */
static bool is_field(const char *line, size_t len, const char *name, const char **value, size_t *n)
{
    size_t k = strlen(name);
    if (len <= k || strncasecmp(line, name, k) != 0 || line[k] != ':')
        return false;
    const char *begin = line + k + 1, *end = line + len;
    while (begin < end && (*begin == ' ' || *begin == '\t'))
        begin++;
    while (end > begin && strchr(" \t\r\n", end[-1]))
        end--;
    *value = begin;
    *n = (size_t)(end - begin);
    return true;
}

static void begin_reply(transfer *t, const char *line, size_t len)
{
    char text[32];
    snprintf(text, sizeof text, "%.*s", (int)(len < sizeof text ? len : sizeof text - 1), line);
    if (sscanf(text, "HTTP/%*s %ld", &t->status) != 1)
        t->status = 0;
    t->is_final = false;
    t->new_etag[0] = 0;
    t->length = t->from = t->total = -1;
}

static void read_field(transfer *t, const char *line, size_t len)
{
    const char *value;
    size_t n;
    char text[96];
    if (is_field(line, len, "etag", &value, &n))
        copy_value(t->new_etag, sizeof t->new_etag, value, n > 0 && value[0] == '"' ? n : 0);
    else if (is_field(line, len, "content-length", &value, &n)) {
        copy_value(text, sizeof text, value, n);
        t->length = strtoll(text, NULL, 10);
    } else if (is_field(line, len, "content-range", &value, &n)) {
        long long from, to, total;
        copy_value(text, sizeof text, value, n);
        if (sscanf(text, "bytes %lld-%lld/%lld", &from, &to, &total) == 3) {
            t->from = from;
            t->total = total;
        }
    }
}

static size_t on_header(char *line, size_t size, size_t count, void *ctx)
{
    transfer *t = ctx;
    size_t len = size * count;
    t->heads += len;
    if (t->heads > MAX_HEADS) {
        give_up(t, "the server sends header fields without end");
        return 0;
    }
    if (len > 5 && strncmp(line, "HTTP/", 5) == 0)
        begin_reply(t, line, len);
    else if (len <= 2 && t->status >= 200 && (t->status < 300 || t->status >= 400)) {
        if (!t->is_final && begin_body(t))
            return 0;
        t->is_final = true; /* trailers are ignored */
    } else if (!t->is_final)
        read_field(t, line, len);
    return len;
}

static size_t on_body(char *data, size_t size, size_t count, void *ctx)
{
    transfer *t = ctx;
    size_t n = size * count;
    if (t->status != 200 && t->status != 206)
        return 0; /* the text of an error page does not matter */
    if (n > t->max_bytes - t->at) {
        t->has_why = true;
        err_set(&t->why, "it is larger than the %zu bytes that are accepted", t->max_bytes);
        return 0;
    }
    if (disk_cache_write(t->rules->cache, t->fd, data, n, &t->why)) {
        t->has_why = t->is_disk_full = true;
        return 0;
    }
    t->at += n;
    return n;
}

static int on_progress(void *ctx, curl_off_t dl_total, curl_off_t dl_now, curl_off_t ul_total, curl_off_t ul_now)
{
    const transfer *t = ctx;
    (void)dl_total;
    (void)dl_now;
    (void)ul_total;
    (void)ul_now;
    return t->rules->stop && atomic_load(t->rules->stop);
}

static void print_address(const struct sockaddr *a, char text[INET6_ADDRSTRLEN])
{
    const void *at = a->sa_family == AF_INET6 ? (const void *)&((const struct sockaddr_in6 *)a)->sin6_addr
                                              : (const void *)&((const struct sockaddr_in *)a)->sin_addr;
    if (!inet_ntop(a->sa_family, at, text, INET6_ADDRSTRLEN))
        snprintf(text, INET6_ADDRSTRLEN, "an address");
}

/* Makes the socket of every connection, redirects' too, if its address is permitted. */
static curl_socket_t open_socket(void *ctx, curlsocktype purpose, struct curl_sockaddr *a)
{
    transfer *t = ctx;
    (void)purpose;
    if (!networks_permit(t->rules->allowed, t->rules->n_allowed, &a->addr)) {
        print_address(&a->addr, t->refused);
        return CURL_SOCKET_BAD;
    }
    return socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
}

static struct curl_slist *add_line(struct curl_slist *list, const char *name, const char *value)
{
    char *line = xasprintf("%s: %s", name, value);
    struct curl_slist *more = curl_slist_append(list, line);
    CHECK(more);
    free(line);
    return more;
}

static struct curl_slist *make_headers(const transfer *t)
{
    static const char nothing[] =
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"; /* SHA-256 of no body */
    const transfer_signing *s = t->rules->signing;
    struct curl_slist *list = NULL;
    if (s)
        list = add_line(list, "x-amz-content-sha256", nothing);
    if (s && s->session)
        list = add_line(list, "x-amz-security-token", s->session);
    if (t->at > 0)
        list = add_line(list, "If-Range", t->etag);
    return list;
}

static void set_credentials(const transfer *t, CURL *c)
{
    const transfer_signing *s = t->rules->signing;
    if (s) {
        char *scheme = xasprintf("aws:amz:%s:s3", s->region);
        curl_easy_setopt(c, CURLOPT_AWS_SIGV4, scheme);
        curl_easy_setopt(c, CURLOPT_USERNAME, s->key);
        curl_easy_setopt(c, CURLOPT_PASSWORD, s->secret);
        free(scheme);
    } else if (t->rules->bearer) {
        curl_easy_setopt(c, CURLOPT_HTTPAUTH, (long)CURLAUTH_BEARER);
        curl_easy_setopt(c, CURLOPT_XOAUTH2_BEARER, t->rules->bearer); /* not sent to other hosts by redirects */
    }
}

/* No proxy of the environment is used: it would connect to addresses that we have not judged. */
static void set_where(const transfer *t, CURL *c)
{
    bool tls = strncasecmp(t->url, "https:", 6) == 0;
    curl_easy_setopt(c, CURLOPT_URL, t->url);
    curl_easy_setopt(c, CURLOPT_PROXY, "");
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(c, CURLOPT_REDIR_PROTOCOLS_STR, tls ? "https" : "http,https");
    curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, t->rules->signing ? 0L : 1L);
    curl_easy_setopt(c, CURLOPT_MAXREDIRS, (long)MAX_REDIRECTS);
    curl_easy_setopt(c, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    curl_easy_setopt(c, CURLOPT_OPENSOCKETDATA, (void *)t);
}

static void set_limits(const transfer *t, CURL *c, double left)
{
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, (long)(left * 1000) + 1);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, (long)SLOW_BYTES);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, t->rules->stall_s < 1 ? 1L : (long)t->rules->stall_s);
    curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(c, CURLOPT_XFERINFODATA, (void *)t);
}

static void set_receivers(transfer *t, CURL *c, char *problem)
{
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(c, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, problem);
    curl_easy_setopt(c, CURLOPT_USERAGENT, "punica/" PUNICA_VERSION);
}

/* Tries once to fetch the rest, from the end of the part. */
static CURLcode try_once(transfer *t, double left, char problem[CURL_ERROR_SIZE])
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, init_curl);
    CURL *c = curl_easy_init();
    CHECK(c);
    t->status = 0;
    t->heads = 0;
    t->is_final = t->has_why = false;
    t->refused[0] = problem[0] = 0;
    if (!t->etag[0])
        t->at = 0; /* of which version the part is, is unknown */
    char range[32];
    snprintf(range, sizeof range, "%zu-", t->at);
    struct curl_slist *headers = make_headers(t);
    set_where(t, c);
    set_credentials(t, c);
    set_limits(t, c, left);
    set_receivers(t, c, problem);
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
    if (t->at > 0)
        curl_easy_setopt(c, CURLOPT_RANGE, range); /* begin_body() judges the reply: 200 is as good */
    CURLcode code = curl_easy_perform(c);
    curl_slist_free_all(headers);
    curl_easy_cleanup(c);
    return code;
}

static bool is_whole(const transfer *t, CURLcode code)
{
    return code == CURLE_OK && (t->status == 200 || (t->status == 206 && t->total == (curl_off_t)t->at));
}

/* Returns whether the failure may pass, so that another try may succeed. */
static bool is_passing(const transfer *t, CURLcode code)
{
    static const long statuses[] = {408, 416, 429, 500, 502, 503, 504};
    static const CURLcode codes[] = {CURLE_PARTIAL_FILE, CURLE_RECV_ERROR,      CURLE_SEND_ERROR,
                                     CURLE_GOT_NOTHING,  CURLE_COULDNT_CONNECT, CURLE_OPERATION_TIMEDOUT,
                                     CURLE_HTTP2,        CURLE_HTTP2_STREAM};
    if (t->has_why || t->refused[0])
        return false;
    for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++)
        if (t->is_final && t->status == statuses[i])
            return true;
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
        if (code == codes[i])
            return true;
    return code == CURLE_OK && t->status == 206; /* it ended before its total */
}

static int tell_over(const transfer *t, err *e)
{
    return err_set(e, "%s: the time allowed for it was over after %zu bytes", t->shown, t->at);
}

static int describe(const transfer *t, CURLcode code, const char *problem, err *e)
{
    if (t->refused[0])
        return err_set(e, "%s: %s is not a public address, and its network is not allowed", t->shown, t->refused);
    if (t->has_why) {
        *e = t->why;
        return err_wrap(e, "%s", t->shown);
    }
    if (code == CURLE_ABORTED_BY_CALLBACK)
        return err_set(e, "%s: stopped", t->shown);
    if (t->is_final && t->status >= 400)
        return err_set(e, "%s: the server answered %ld", t->shown, t->status);
    if (t->status >= 300 && t->status < 400 && code == CURLE_OK)
        return err_set(e, "%s: the server answered %ld, a redirect, which is not followed here (is the region right?)",
                       t->shown, t->status);
    if (code == CURLE_PARTIAL_FILE || (code == CURLE_OK && t->status == 206))
        return err_set(e, "%s: the connection ended after %zu bytes, before all that the server had promised", t->shown,
                       t->at);
    if (code == CURLE_OK)
        return err_set(e, "%s: the server answered %ld", t->shown, t->status);
    if (code == CURLE_OPERATION_TIMEDOUT && clock_now() >= t->rules->deadline)
        return tell_over(t, e);
    if (code == CURLE_OPERATION_TIMEDOUT && t->status)
        return err_set(e, "%s: the server is too slow: less than %d bytes a second for %.0f s, after %zu bytes",
                       t->shown, SLOW_BYTES, t->rules->stall_s, t->at);
    return err_set(e, "%s: %s", t->shown, problem[0] ? problem : curl_easy_strerror(code));
}

static bool is_stopped(const transfer *t)
{
    return t->rules->stop && atomic_load(t->rules->stop);
}

/* Waits before the next try: exponential backoff, after n tries in a row that brought nothing. */
static void pause_before(int n)
{
    struct timespec t = {.tv_nsec = 100000000L << (n < 3 ? n : 3)};
    nanosleep(&t, NULL);
}

static transfer_result run_transfer(transfer *t, err *e)
{
    char problem[CURL_ERROR_SIZE];
    t->most = t->at;
    for (int fruitless = 0;;) {
        double left = t->rules->deadline - clock_now();
        if (left <= 0 || is_stopped(t)) {
            if (left <= 0)
                tell_over(t, e);
            else
                err_set(e, "%s: stopped after %zu bytes", t->shown, t->at);
            return TRANSFER_FAILED;
        }
        CURLcode code = try_once(t, left, problem);
        if (is_whole(t, code))
            return TRANSFER_DONE;
        describe(t, code, problem, e);
        if (!t->has_why && t->is_final && (t->status == 403 || t->status == 404 || t->status == 410))
            return TRANSFER_ABSENT;
        fruitless = t->at > t->most ? 0 : fruitless + 1;
        if (!is_passing(t, code) || fruitless == FRUITLESS_TRIES || (fruitless && code == CURLE_OPERATION_TIMEDOUT))
            return TRANSFER_FAILED;
        t->most = t->at > t->most ? t->at : t->most;
        if (t->is_final && t->status == 416)
            forget_etag(t); /* our part is no prefix of the resource */
        pause_before(fruitless);
    }
}

/* Opens the part, with what an earlier call, perhaps of another process, has left. */
static int open_part(transfer *t, err *e)
{
    struct stat st;
    buf etag = {0};
    err none;
    t->fd = open(t->part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (t->fd < 0 || fstat(t->fd, &st))
        return err_set_local(e, "%s: %s", t->part, strerror(errno));
    if (file_exists(t->etag_path) && file_read(&etag, t->etag_path, MAX_ETAG - 1, &none) == 0 && etag.len)
        copy_value(t->etag, sizeof t->etag, etag.data, etag.len);
    buf_free(&etag);
    t->at = (size_t)st.st_size <= t->max_bytes ? (size_t)st.st_size : 0;
    return 0;
}

transfer_result transfer_file(const transfer_rules *r, const char *url, const char *shown, size_t max_bytes,
                              const char *path, err *e)
{
    transfer t = {.rules = r,
                  .url = url,
                  .shown = shown,
                  .path = path,
                  .max_bytes = max_bytes,
                  .part = xasprintf("%s.part", path),
                  .etag_path = xasprintf("%s.etag", path),
                  .fd = -1};
    transfer_result result = open_part(&t, e) ? TRANSFER_FAILED : run_transfer(&t, e);
    if (t.fd >= 0)
        close(t.fd);
    if (result == TRANSFER_DONE && rename(t.part, path)) {
        err_set_local(e, "%s: %s", path, strerror(errno));
        result = TRANSFER_FAILED;
    }
    if (result != TRANSFER_FAILED || t.is_disk_full)
        unlink(t.etag_path);
    if (result == TRANSFER_ABSENT || t.is_disk_full)
        unlink(t.part);
    free(t.part);
    free(t.etag_path);
    return result;
}
