/* places.c - see places.h */
#include "registry/places.h"

#include <ctype.h>
#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"

/* Percent-encodes all but unreserved characters, and slashes if they are to be kept. */
static void add_encoded(buf *out, const char *text, bool keep_slashes)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (isalnum(c) || strchr("-._~", c) || (keep_slashes && c == '/'))
            buf_add_char(out, (char)c);
        else
            buf_printf(out, "%%%02X", c);
    }
}

/* Returns the URL with a name appended to its path, before its query; owned by the caller. NULL: it is no URL. */
static char *url_in(const char *url, const char *name)
{
    CURLU *u = curl_url();
    char *path = NULL, *text = NULL, *result = NULL;
    CHECK(u);
    if (curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK && curl_url_get(u, CURLUPART_PATH, &path, 0) == CURLUE_OK) {
        size_t n = strlen(path);
        char *longer = xasprintf("%s%s%s", path, n && path[n - 1] == '/' ? "" : "/", name);
        if (curl_url_set(u, CURLUPART_PATH, longer, 0) == CURLUE_OK &&
            curl_url_get(u, CURLUPART_URL, &text, 0) == CURLUE_OK)
            result = xstrdup(text);
        free(longer);
    }
    curl_free(path);
    curl_free(text);
    curl_url_cleanup(u);
    return result;
}

int places_of_http(places *p, const source *s, err *e)
{
    *p = (places){.archive = s->is_archive ? xstrdup(s->url) : NULL};
    for (int i = 0; i < N_ADAPTER_FILES && !s->is_archive; i++)
        if (!(p->url[i] = url_in(s->url, adapter_file_name[i])))
            return err_set(e, "%s: it is not a valid URL", s->shown);
    return 0;
}

int places_of_s3(places *p, const source *s, const char *endpoint, const char *region, err *e)
{
    buf url = {0};
    (void)e;
    *p = (places){0};
    if (endpoint)
        buf_printf(&url, "%s%s%s/", endpoint, endpoint[strlen(endpoint) - 1] == '/' ? "" : "/", s->bucket);
    else if (strchr(s->bucket, '.'))
        buf_printf(&url, "https://s3.%s.amazonaws.com/%s/", region,
                   s->bucket); /* a dot in the bucket would not match AWS's wildcard certificate */
    else
        buf_printf(&url, "https://%s.s3.%s.amazonaws.com/", s->bucket, region);
    add_encoded(&url, s->key, true);
    if (s->is_archive) {
        p->archive = buf_take(&url);
        return 0;
    }
    for (int i = 0; i < N_ADAPTER_FILES; i++)
        p->url[i] = xasprintf("%s%s%s", url.data, *s->key ? "/" : "", adapter_file_name[i]);
    buf_free(&url);
    return 0;
}

static char *hub_url(const char *endpoint, const char *before, const char *repository, const char *between,
                     const char *revision, const char *file)
{
    buf url = {0};
    size_t n = strlen(endpoint);
    buf_printf(&url, "%.*s/%s%s%s", (int)(n && endpoint[n - 1] == '/' ? n - 1 : n), endpoint, before, repository,
               between);
    add_encoded(&url, revision, false);
    if (file)
        buf_printf(&url, "/%s", file);
    return buf_take(&url);
}

char *places_hub_listing(const char *endpoint, const source *s)
{
    return hub_url(endpoint, "api/models/", s->repository, "/revision/", s->revision, NULL);
}

/* Reads the commit, by which files are asked for: all are of the same one, whatever happens to a branch meanwhile. */
static int read_commit(const json_t *o, char revision[64], err *e)
{
    const char *sha = NULL;
    if (json_get_string(o, "sha", &sha, e))
        return -1;
    if (!sha || strlen(sha) >= 64 || !*sha || strspn(sha, "0123456789abcdefABCDEF") != strlen(sha))
        return err_set(e, "the hub's answer names no commit");
    snprintf(revision, 64, "%s", sha);
    return 0;
}

static int read_listing(places *p, const source *s, const char *endpoint, const json_t *o, char revision[64], err *e)
{
    const json_t *file, *all = json_member(o, "siblings");
    size_t i;
    if (read_commit(o, revision, e))
        return -1;
    if (!json_is_array(all))
        return err_set(e, "the hub's answer lists no files");
    json_array_foreach(all, i, file)
    {
        const char *name = json_string_value(json_object_get(file, "rfilename"));
        int which = name ? adapter_file_find(name) : -1;
        if (which >= 0 && !p->url[which])
            p->url[which] = hub_url(endpoint, "", s->repository, "/resolve/", revision, adapter_file_name[which]);
    }
    return 0;
}

int places_of_hub(places *p, const source *s, const char *endpoint, const char *listing, size_t n, char revision[64],
                  err *e)
{
    *p = (places){0};
    json_t *o = json_read_text(listing, n, e);
    int status = o ? read_listing(p, s, endpoint, o, revision, e) : -1;
    json_decref(o);
    if (status)
        err_wrap(e, "%s", s->shown);
    return status;
}

void places_deinit(places *p)
{
    free(p->archive);
    for (int i = 0; i < N_ADAPTER_FILES; i++)
        free(p->url[i]);
    *p = (places){0};
}
