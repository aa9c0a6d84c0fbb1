/* adapter_record.c - see adapter_record.h */
#include "registry/adapter_record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

int adapter_name_check(const char *name, err *e)
{
    if (!*name || strlen(name) > ADAPTER_MAX_NAME)
        return err_set(e, "an adapter's name has 1 to %d bytes", ADAPTER_MAX_NAME);
    if (*name == '.')
        return err_set(e, "an adapter's name does not begin with a dot");
    for (const char *p = name; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 0x7f || *p == '/')
            return err_set(e, "an adapter's name has no slashes and no control characters");
    return 0;
}

static void free_version(adapter_version *v)
{
    free(v->source);
    free(v->url);
    free(v->revision);
    free(v->by);
}

/* Forgets the oldest version that is not the current one. */
static void forget_one(adapter_record *r)
{
    size_t i = r->current == 0;
    free_version(&r->version[i]);
    memmove(&r->version[i], &r->version[i + 1], (r->n - i - 1) * sizeof *r->version);
    r->n--;
    r->current -= r->current > i;
}

static adapter_version copy_version(const adapter_version *v, int number)
{
    adapter_version to = *v;
    to.number = number;
    to.source = xstrdup(v->source);
    to.url = xstrdup(v->url ? v->url : "");
    to.revision = xstrdup(v->revision);
    to.by = xstrdup(v->by);
    return to;
}

static void append(adapter_record *r, const adapter_version *v, int number)
{
    r->version = xgrow(r->version, &r->cap, r->n + 1, sizeof *r->version);
    r->version[r->n++] = copy_version(v, number);
}

void adapter_record_add(adapter_record *r, const adapter_version *v)
{
    adapter_version *now = r->n ? &r->version[r->current] : NULL;
    if (now && strcmp(now->id, v->id) == 0) {
        adapter_version same = copy_version(v, now->number);
        free_version(now);
        *now = same;
        return;
    }
    append(r, v, r->n ? r->version[r->n - 1].number + 1 : 1);
    r->current = r->n - 1;
    while (r->n > RECORD_VERSIONS)
        forget_one(r);
}

int adapter_record_rollback(adapter_record *r, int number, err *e)
{
    if (number == 0) {
        if (r->current == 0)
            return err_set(e, "there is no version before number %d", r->version[0].number);
        r->current--;
        return 0;
    }
    for (size_t i = 0; i < r->n; i++)
        if (r->version[i].number == number) {
            r->current = i;
            return 0;
        }
    return err_set(e, "there is no version number %d", number);
}

int64_t adapter_record_bytes(const adapter_record *r)
{
    int64_t sum = 0;
    for (size_t i = 0; i < r->n; i++)
        sum += r->version[i].bytes;
    return sum;
}

bool adapter_record_forget(adapter_record *r)
{
    if (r->n < 2)
        return false;
    forget_one(r);
    return true;
}

static json_t *version_to_json(const adapter_version *v, bool to_keep)
{
    json_t *o = json_pack("{s:i, s:s, s:s, s:s, s:s, s:I, s:I, s:i}", "version", v->number, "id", v->id, "source",
                          v->source, "revision", v->revision, "by", v->by, "at", (json_int_t)v->at, "bytes",
                          (json_int_t)v->bytes, "rank", v->rank);
    CHECK(o);
    if (to_keep && v->url[0]) {
        json_object_set_new(o, "url", json_string(v->url));
        json_object_set_new(o, "trusted", json_boolean(v->trusted));
    }
    return o;
}

json_t *adapter_record_to_json(const adapter_record *r, bool to_keep)
{
    json_t *all = json_array();
    for (size_t i = 0; i < r->n; i++)
        json_array_append_new(all, version_to_json(&r->version[i], to_keep));
    json_t *o = json_pack("{s:i, s:o}", "current", r->version[r->current].number, "versions", all);
    CHECK(o);
    return o;
}

static int add_json(adapter_record *r, const json_t *o, err *e)
{
    const char *id = "", *source = "", *revision = "", *by = "", *url = "";
    bool trusted = false;
    long number = 0, at = 0, bytes = 0, rank = 0, last = r->n ? r->version[r->n - 1].number : 0;
    if (json_get_string(o, "id", &id, e) || json_get_string(o, "source", &source, e) ||
        json_get_string(o, "revision", &revision, e) || json_get_string(o, "by", &by, e) ||
        json_get_int(o, "version", 1, INT32_MAX - 1, &number, e) || json_get_int(o, "at", 0, INT64_MAX, &at, e) ||
        json_get_int(o, "bytes", 0, INT64_MAX, &bytes, e) || json_get_int(o, "rank", 0, INT32_MAX, &rank, e) ||
        json_get_string(o, "url", &url, e) || json_get_bool(o, "trusted", &trusted, e))
        return -1;
    if (!adapter_id_is_valid(id) || number <= last)
        return err_set(e, "version %ld is not valid", number);
    adapter_version v = {.number = (int)number,
                         .source = (char *)source,
                         .url = (char *)url,
                         .trusted = trusted,
                         .revision = (char *)revision,
                         .by = (char *)by,
                         .at = at,
                         .bytes = bytes,
                         .rank = (int)rank};
    snprintf(v.id, sizeof v.id, "%s", id);
    append(r, &v, v.number);
    return 0;
}

int adapter_record_from_json(adapter_record *r, const json_t *o, err *e)
{
    const json_t *one, *all = json_member(o, "versions");
    long current = 0;
    size_t i;
    *r = (adapter_record){0};
    int status = json_get_int(o, "current", 1, INT32_MAX - 1, &current, e);
    if (status == 0 && (!json_is_array(all) || !json_array_size(all) || !current))
        status = err_set(e, "it has no versions");
    json_array_foreach(all, i, one) if (status == 0) status = add_json(r, one, e);
    if (status == 0)
        status = adapter_record_rollback(r, (int)current, e);
    if (status)
        adapter_record_deinit(r);
    return status;
}

void adapter_record_deinit(adapter_record *r)
{
    for (size_t i = 0; i < r->n; i++)
        free_version(&r->version[i]);
    free(r->version);
    *r = (adapter_record){0};
}
