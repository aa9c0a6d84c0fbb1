/* fetch.c - see fetch.h
 *
 * The work's folder has the files that transfer.c fetches, and tree/, which becomes the adapter. */
#include "registry/fetch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "model/adapter.h"
#include "registry/local_source.h"
#include "registry/places.h"
#include "registry/transfer.h"
#include "registry/unpack.h"

#define MAX_LISTING ((size_t)8 << 20) /* bytes of the hub's answer: the files of a repository */

typedef struct {
    const source *s;
    const fetch_options *o;
    double deadline;
    const disk_cache *cache;
    char *dir, *tree; /* of the work */
    char revision[64];
} fetching;

static const char *from_environment(const char *name, const char *other)
{
    const char *value = getenv(name);
    if (value && *value)
        return value;
    return other ? from_environment(other, NULL) : NULL;
}

fetch_options fetch_options_default(void)
{
    const char *hub = from_environment("HF_ENDPOINT", NULL);
    return (fetch_options){
        .max_bytes = (size_t)4 << 30,
        .seconds = 3600,
        .stall_seconds = 30,
        .s3_endpoint = from_environment("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
        .s3_region = from_environment("AWS_REGION", "AWS_DEFAULT_REGION"),
        .s3_key = from_environment("AWS_ACCESS_KEY_ID", NULL),
        .s3_secret = from_environment("AWS_SECRET_ACCESS_KEY", NULL),
        .s3_session = from_environment("AWS_SESSION_TOKEN", NULL),
        .hub_endpoint = hub ? hub : "https://huggingface.co",
        .hub_token = from_environment("HF_TOKEN", NULL),
    };
}

fetch_options fetch_options_of_strangers(const fetch_options *o)
{
    fetch_options theirs = *o;
    theirs.files_under = theirs.s3_key = theirs.s3_secret = theirs.s3_session = theirs.hub_token = NULL;
    return theirs;
}

static const char *region_of(const fetch_options *o)
{
    return o->s3_region ? o->s3_region : "us-east-1";
}

static unpack_limits limits_of(const fetching *f)
{
    return (unpack_limits){
        .max_bytes = f->o->max_bytes, .deadline = f->deadline, .stop = f->o->stop, .cache = f->cache};
}

static transfer_result get(const fetching *f, const char *url, const char *name, size_t max_bytes, const char *path,
                           err *e)
{
    const fetch_options *o = f->o;
    transfer_signing signing = {
        .key = o->s3_key, .secret = o->s3_secret, .session = o->s3_session, .region = region_of(o)};
    transfer_rules rules = {.cache = f->cache,
                            .allowed = o->allowed,
                            .n_allowed = o->n_allowed,
                            .deadline = f->deadline,
                            .stall_s = o->stall_seconds,
                            .stop = o->stop,
                            .bearer = f->s->kind == SOURCE_HUB ? o->hub_token : NULL,
                            .signing = f->s->kind == SOURCE_S3 && o->s3_key && o->s3_secret ? &signing : NULL};
    char *shown = name ? xasprintf("%s: %s", f->s->shown, name) : xstrdup(f->s->shown);
    transfer_result result = transfer_file(&rules, url, shown, max_bytes, path, e);
    free(shown);
    return result;
}

/* Asks the hub which files a revision of a repository has; anew each time, as a branch moves. */
static int list_hub(fetching *f, places *p, err *e)
{
    char *url = places_hub_listing(f->o->hub_endpoint, f->s), *path = path_join(f->dir, "listing.json");
    buf text = {0};
    int status = -1;
    if (get(f, url, NULL, MAX_LISTING, path, e) == TRANSFER_DONE && file_read(&text, path, MAX_LISTING, e) == 0)
        status = places_of_hub(p, f->s, f->o->hub_endpoint, text.data ? text.data : "", text.len, f->revision, e);
    unlink(path);
    buf_free(&text);
    free(path);
    free(url);
    return status;
}

static int find_places(fetching *f, places *p, err *e)
{
    *p = (places){0};
    switch (f->s->kind) {
    case SOURCE_HTTP: return places_of_http(p, f->s, e);
    case SOURCE_S3: return places_of_s3(p, f->s, f->o->s3_endpoint, region_of(f->o), e);
    case SOURCE_HUB: return list_hub(f, p, e);
    case SOURCE_FILE: break;
    }
    CHECK(!"a source of files has no URLs");
    return -1;
}

static int fetch_archive(fetching *f, const char *url, err *e)
{
    char *path = path_join(f->dir, "archive");
    unpack_limits l = limits_of(f);
    int status =
        get(f, url, NULL, f->o->max_bytes, path, e) == TRANSFER_DONE ? unpack_adapter(path, f->tree, &l, e) : -1;
    if (status && file_exists(path))
        err_wrap(e, "%s", f->s->shown);
    unlink(path);
    free(path);
    return status;
}

/* Fetches a file beside the tree, where it can be continued, and then moves it into the tree. */
static int fetch_file(fetching *f, const char *url, int file, err *e)
{
    char *path = xasprintf("%s/%d", f->dir, file), *place = path_join(f->tree, adapter_file_name[file]);
    transfer_result got = get(f, url, adapter_file_name[file], adapter_file_limit(file, f->o->max_bytes), path, e);
    int status = got == TRANSFER_DONE || (got == TRANSFER_ABSENT && file >= N_NEEDED) ? 0 : -1;
    if (got == TRANSFER_DONE && adapter_file_make_folder(place, e))
        status = -1;
    else if (got == TRANSFER_DONE && rename(path, place))
        status = err_set_local(e, "cannot rename %s: %s", path, strerror(errno));
    free(path);
    free(place);
    return status;
}

/* Fetches the files, the weights last: they are the large file, which may break off. */
static int fetch_files(fetching *f, const places *p, err *e)
{
    for (int i = 0; i < N_NEEDED; i++)
        if (!p->url[i])
            return err_set(e, "%s has no %s", f->s->shown, adapter_file_name[i]);
    for (int i = N_ADAPTER_FILES - 1; i >= 0; i--)
        if (i != FILE_WEIGHTS && p->url[i] && fetch_file(f, p->url[i], i, e))
            return -1;
    return fetch_file(f, p->url[FILE_WEIGHTS], FILE_WEIGHTS, e);
}

static int fetch_remote(fetching *f, err *e)
{
    places p;
    int status = find_places(f, &p, e);
    if (status == 0)
        status = p.archive ? fetch_archive(f, p.archive, e) : fetch_files(f, &p, e);
    places_deinit(&p);
    return status;
}

/* Makes an empty tree. What an earlier try has left in it is of no use: only parts beside it are continued. */
static int empty_tree(const fetching *f, err *e)
{
    for (int i = 0; i < N_ADAPTER_FILES; i++) {
        char *path = path_join(f->tree, adapter_file_name[i]);
        unlink(path);
        free(path);
    }
    return mkdir(f->tree, 0700) && errno != EEXIST ? err_set_local(e, "cannot make %s: %s", f->tree, strerror(errno))
                                                   : 0;
}

static int fetch_tree(fetching *f, err *e)
{
    unpack_limits l = limits_of(f);
    if (empty_tree(f, e))
        return -1;
    return f->s->kind == SOURCE_FILE ? local_source_copy(f->s, f->o->files_under, f->tree, &l, e) : fetch_remote(f, e);
}

/* Checks that the tree is an adapter of this base, and the one that is wanted; describes it in *out. */
static int check_tree(const fetching *f, const model_config *base, fetched *out, err *e)
{
    size_t bytes = adapter_files_bytes(f->tree);
    if (bytes > f->o->max_bytes)
        return err_set(e, "%s: it is %zu bytes; at most %zu are accepted", f->s->shown, bytes, f->o->max_bytes);
    adapter *a = adapter_open(f->tree, base, e);
    if (!a) {
        err_hide_folder(e, f->tree);
        return err_wrap(e, "%s", f->s->shown);
    }
    const adapter_info *info = adapter_describe(a);
    *out = (fetched){.bytes = bytes, .rank = info->rank_max};
    memcpy(out->digest, info->digest, sizeof out->digest);
    memcpy(out->revision, f->revision, sizeof out->revision);
    adapter_close(a);
    if (f->s->want[0] && strcmp(f->s->want, out->digest) != 0)
        return err_set(e, "%s: its digest is sha256:%s, not the sha256:%s that was asked for", f->s->shown, out->digest,
                       f->s->want);
    return adapter_id_make(out->id, f->tree, out->digest, e);
}

/* Returns whether the folder has a part that another fetch can continue. */
static bool has_part(const fetching *f)
{
    bool has = false;
    for (int i = -1; i < N_ADAPTER_FILES && !has; i++) {
        char *etag = i < 0 ? path_join(f->dir, "archive.etag") : xasprintf("%s/%d.etag", f->dir, i);
        has = file_exists(etag);
        free(etag);
    }
    return has;
}

/* A source is fetched even if the cache has an adapter of the digest that is asked for: knowing a digest is no right to
 * its content. */
int fetch_adapter(disk_cache *c, const source *s, const fetch_options *o, const model_config *base, fetched *out,
                  disk_pin *pin, err *e)
{
    fetching f = {.s = s, .o = o, .deadline = clock_now() + o->seconds, .cache = c};
    disk_work work;
    digest d;
    char key[DIGEST_HEX];
    digest_of_parts(&d, (const digest_part[]){{s->url, strlen(s->url)}}, 1);
    digest_to_hex(&d, key);
    if (disk_cache_begin(c, key, f.deadline, o->stop, &work, e))
        return err_wrap(e, "%s", s->shown);
    f.dir = xstrdup(work.dir);
    f.tree = path_join(f.dir, "tree");
    int got = fetch_tree(&f, e), status = got ? -1 : check_tree(&f, base, out, e);
    if (status == 0)
        status = disk_cache_keep(c, &work, f.tree, out->id, pin, e);
    if (status)
        err_hide_folder(e, f.dir); /* tenants are told */
    if (status)
        disk_cache_leave(c, &work, got == 0 || !has_part(&f)); /* complete but bad: nothing to continue */
    free(f.tree);
    free(f.dir);
    return status;
}

/* The digest is checked by check_tree(), as the text asks for it; the rest of the id is the chat template's. */
int fetch_registered(disk_cache *c, const char *source_text, const char *id, bool trusted, const fetch_options *o,
                     const model_config *base, disk_pin *pin, err *e)
{
    source s;
    fetched got;
    const fetch_options theirs = fetch_options_of_strangers(o);
    char *text = xasprintf("%s#sha256=%.*s", source_text, DIGEST_HEX - 1, id);
    int status = source_parse(&s, text, e);
    free(text);
    if (status)
        return -1;
    status = fetch_adapter(c, &s, trusted ? o : &theirs, base, &got, pin, e);
    if (status == 0 && strcmp(got.id, id) != 0) {
        disk_cache_unpin(pin);
        status = err_set(e, "%s: its chat template is another than when it was registered", s.shown);
    }
    source_deinit(&s);
    return status;
}
