/* source.c - see source.h */
#include "registry/source.h"

#include <ctype.h>
#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "registry/unpack.h"

enum { MAX_SOURCE = 4096 };

static int parse_digest(source *s, const char *fragment, err *e)
{
    static const char begin[] = "sha256=";
    size_t n = strlen(begin);
    if (strncmp(fragment, begin, n) != 0 || strlen(fragment + n) != DIGEST_HEX - 1)
        return err_set(e, "what stands behind # must be sha256= and 64 hexadecimal digits");
    for (int i = 0; i < DIGEST_HEX - 1; i++) {
        if (!isxdigit((unsigned char)fragment[n + (size_t)i]))
            return err_set(e, "what stands behind # must be sha256= and 64 hexadecimal digits");
        s->want[i] = (char)tolower((unsigned char)fragment[n + (size_t)i]);
    }
    return 0;
}

/* Returns the URL without user, password and query, and sets *path; the caller owns both. NULL: libcurl does not
 * understand it, or it has no host. */
static char *shown_url(const char *url, char **path)
{
    CURLU *u = curl_url();
    char *text = NULL, *shown = NULL, *part = NULL;
    CHECK(u);
    if (curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK && curl_url_get(u, CURLUPART_PATH, &part, 0) == CURLUE_OK) {
        curl_url_set(u, CURLUPART_USER, NULL, 0);
        curl_url_set(u, CURLUPART_PASSWORD, NULL, 0);
        curl_url_set(u, CURLUPART_QUERY, NULL, 0);
        if (curl_url_get(u, CURLUPART_URL, &text, 0) == CURLUE_OK) {
            shown = xstrdup(text);
            *path = xstrdup(part);
        }
    }
    curl_free(text);
    curl_free(part);
    curl_url_cleanup(u);
    return shown;
}

static int parse_http(source *s, err *e)
{
    char *path = NULL;
    s->shown = shown_url(s->url, &path);
    if (!s->shown)
        return err_set(e, "it is not a valid URL");
    s->is_archive = unpack_is_archive(path);
    free(path);
    return 0;
}

static bool is_name(const char *text, size_t n, const char *also)
{
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)text[i]) && !strchr(also, text[i]))
            return false;
    return n > 0 && text[0] != '.' && text[0] != '-';
}

static int parse_s3(source *s, err *e)
{
    const char *bucket = s->url + strlen("s3://"), *slash = strchr(bucket, '/');
    size_t n = slash ? (size_t)(slash - bucket) : strlen(bucket);
    if (!is_name(bucket, n, ".-_"))
        return err_set(e, "s3:// takes BUCKET/KEY");
    s->bucket = xstrndup(bucket, n);
    const char *key = bucket + n;
    key += strspn(key, "/");
    size_t len = strlen(key);
    while (len > 0 && key[len - 1] == '/')
        len--;
    s->key = xstrndup(key, len);
    s->is_archive = unpack_is_archive(s->key);
    s->shown = xstrdup(s->url);
    return 0;
}

static int parse_hub(source *s, err *e)
{
    const char *name = s->url + strlen("hf://"), *at = strchr(name, '@');
    size_t n = at ? (size_t)(at - name) : strlen(name);
    const char *slash = memchr(name, '/', n);
    size_t owner = slash ? (size_t)(slash - name) : 0;
    if (!slash || !is_name(name, owner, ".-_") || !is_name(slash + 1, n - owner - 1, ".-_"))
        return err_set(e, "hf:// takes OWNER/NAME or OWNER/NAME@REVISION");
    if (at && !is_name(at + 1, strlen(at + 1), ".-_/"))
        return err_set(e, "\"%s\" is no revision", at + 1);
    s->repository = xstrndup(name, n);
    s->revision = xstrdup(at ? at + 1 : "main");
    s->shown = xstrdup(s->url);
    return 0;
}

/* "file:/a", "file:///a", "file://localhost/a" and "file:a". */
static int parse_file(source *s, err *e)
{
    const char *path = s->url;
    if (strncmp(path, "file:", 5) == 0)
        path += 5;
    if (strncmp(path, "//localhost/", 12) == 0)
        path += 11;
    else if (strncmp(path, "///", 3) == 0)
        path += 2;
    else if (strncmp(path, "//", 2) == 0)
        return err_set(e, "file: of another host cannot be read");
    if (!*path)
        return err_set(e, "file: takes a path");
    char *plain = xstrdup(path);
    free(s->url);
    s->url = plain;
    s->is_archive = unpack_is_archive(plain);
    s->shown = xasprintf("file:%s", plain);
    return 0;
}

static int parse_kind(source *s, err *e)
{
    static const struct {
        const char *begin;
        source_kind kind;
        int (*parse)(source *, err *);
    } kinds[] = {
        {"http://", SOURCE_HTTP, parse_http}, {"https://", SOURCE_HTTP, parse_http}, {"s3://", SOURCE_S3, parse_s3},
        {"hf://", SOURCE_HUB, parse_hub},     {"file:", SOURCE_FILE, parse_file},    {"/", SOURCE_FILE, parse_file},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strncmp(s->url, kinds[i].begin, strlen(kinds[i].begin)) == 0) {
            s->kind = kinds[i].kind;
            return kinds[i].parse(s, e);
        }
    return err_set(e, "it must begin with file:, http://, https://, s3:// or hf://");
}

int source_parse(source *s, const char *text, err *e)
{
    *s = (source){0};
    int status = 0;
    if (strlen(text) > MAX_SOURCE)
        return err_set(e, "a source has at most %d characters", MAX_SOURCE);
    for (const char *p = text; *p && status == 0; p++)
        if ((unsigned char)*p < ' ' || *p == 0x7f)
            status = err_set(e, "a source has no control characters");
    const char *fragment = strchr(text, '#');
    s->url = xstrndup(text, fragment ? (size_t)(fragment - text) : strlen(text));
    if (status == 0 && fragment)
        status = parse_digest(s, fragment + 1, e);
    if (status == 0)
        status = parse_kind(s, e);
    if (status == 0)
        return 0;
    err_wrap(e, "source \"%.*s\"", (int)strcspn(text, "?#@"), text);
    source_deinit(s);
    return -1;
}

void source_deinit(source *s)
{
    free(s->url);
    free(s->shown);
    free(s->bucket);
    free(s->key);
    free(s->repository);
    free(s->revision);
    *s = (source){0};
}
