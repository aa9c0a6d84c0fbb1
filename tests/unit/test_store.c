/* test_store.c - the store, the same tests on SQLite and on PostgreSQL (tests/postgres.sh) */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "store/sql.h"
#include "store/store_json.h"
#include "support/test.h"

static char folder[] = "/tmp/punica-store-XXXXXX";
static char *url; /* of the store that the tests are about */
static bool is_postgres;
static err e;

static store *open_store(void)
{
    store *s = store_open(url, &e);
    if (!s)
        fail_msg("%s", e.msg);
    return s;
}

static void has(const char *part)
{
    if (!strstr(e.msg, part))
        fail_msg("\"%s\" does not say \"%s\"", e.msg, part);
}

static store_tenant tenant_of(const char *name)
{
    return (store_tenant){.name = name, .weight = 1, .base = true};
}

/* Everything as lines, without times and digests. */
static char *described(store *s)
{
    buf out = {0};
    store_directory *d = store_read_directory(s, &e);
    assert_non_null(d);
    buf_printf(&out, "change %lld\n", (long long)d->change);
    for (size_t i = 0; i < d->n_tenants; i++)
        buf_printf(&out, "tenant %s base %d weight %lld limits %lld %lld %lld %lld\n", d->tenant[i].name,
                   d->tenant[i].base, (long long)d->tenant[i].weight, (long long)d->tenant[i].in_flight,
                   (long long)d->tenant[i].waiting, (long long)d->tenant[i].requests_per_minute,
                   (long long)d->tenant[i].tokens_per_minute);
    for (size_t i = 0; i < d->n_keys; i++)
        buf_printf(&out, "key %s %s expires %lld\n", d->key[i].tenant, d->key[i].name, (long long)d->key[i].expires);
    for (size_t i = 0; i < d->n_grants; i++)
        buf_printf(&out, "grant %s %s\n", d->grant[i].tenant, d->grant[i].adapter);
    store_directory_free(d);
    return buf_take(&out);
}

static void expect(store *s, const char *wanted)
{
    char *got = described(s);
    assert_string_equal(got, wanted);
    free(got);
}

/* What an edit of the test makes of a name: n bytes more than there were, or nothing. */
typedef struct {
    int64_t bytes;
    bool remove;
    store_adapter_now seen;
    char record[64];
} adapter_edit;

static store_result edit_adapter(void *ctx, const store_adapter_now *now, store_adapter_next *next, err *why)
{
    adapter_edit *a = ctx;
    a->seen = *now;
    snprintf(a->record, sizeof a->record, "%s", now->record ? now->record : "");
    if (a->bytes > now->room || (!now->record && !now->may_add)) {
        err_set(why, "no room");
        return STORE_TOO_LARGE;
    }
    if (a->remove)
        return STORE_OK;
    *next = (store_adapter_next){.record = xasprintf("{%lld}", (long long)a->bytes),
                                 .id = xstrdup("id"),
                                 .source = xstrdup("http://x"),
                                 .detail = xstrdup("detail"),
                                 .trusted = true,
                                 .bytes = a->bytes};
    return STORE_OK;
}

static void count_records(void *ctx, const store_adapter *a, const char *record)
{
    (void)record;
    buf_printf(ctx, "%s/%s %lld;", a->owner, a->name, (long long)a->bytes);
}

static void expect_records(store *s, const char *owner, const char *wanted)
{
    buf out = {0};
    buf_add_str(&out, "");
    assert_int_equal(store_read_records(s, owner, NULL, count_records, &out, &e), 0);
    assert_string_equal(out.data, wanted);
    buf_free(&out);
}

static store_result put(store *s, const char *owner, const char *name, adapter_edit *a)
{
    return store_change_adapter(s, "test", "adapter add", owner, name, edit_adapter, a, &e);
}

static void test_adapters(void **state)
{
    (void)state;
    store *s = open_store();
    store_tenant owner = tenant_of("owner");
    int64_t before, after;
    owner.max_adapters = 2;
    owner.max_adapter_bytes = 100;
    assert_int_equal(store_add_tenant(s, "test", &owner, &e), STORE_OK);
    assert_int_equal(put(s, "nobody", "x", &(adapter_edit){.bytes = 1}), STORE_ABSENT);
    assert_int_equal(put(s, "", "x", &(adapter_edit){.bytes = 1000}), STORE_OK);
    assert_int_equal(put(s, "owner", "x", &(adapter_edit){.bytes = 101}), STORE_TOO_LARGE);
    assert_int_equal(put(s, "owner", "x", &(adapter_edit){.bytes = 60}), STORE_OK);
    adapter_edit again = {.bytes = 100}; /* its own bytes are not in its way */
    assert_int_equal(put(s, "owner", "x", &again), STORE_OK);
    assert_string_equal(again.record, "{60}");
    assert_int_equal(put(s, "owner", "y", &(adapter_edit){.bytes = 1}), STORE_TOO_LARGE);
    assert_int_equal(put(s, "owner", "x", &(adapter_edit){.bytes = 50}), STORE_OK);
    assert_int_equal(put(s, "owner", "y", &(adapter_edit){.bytes = 50}), STORE_OK);
    store_read_change(s, &before, &e);
    assert_int_equal(put(s, "owner", "z", &(adapter_edit){.bytes = 0}), STORE_TOO_LARGE); /* the third */
    store_read_change(s, &after, &e);
    assert_int_equal(before, after);
    expect_records(s, NULL, "/x 1000;owner/x 50;owner/y 50;");
    expect_records(s, "owner", "owner/x 50;owner/y 50;");
    store_directory *d = store_read_directory(s, &e);
    assert_int_equal(d->n_adapters, 3);
    assert_string_equal(d->adapter[1].source, "http://x");
    const store_tenant *t = store_find_tenant(d, "owner");
    assert_true(d->adapter[1].trusted && t && t->max_adapters == 2 && t->max_adapter_bytes == 100);
    store_directory_free(d);
    assert_int_equal(put(s, "owner", "y", &(adapter_edit){.remove = true}), STORE_OK);
    expect_records(s, "owner", "owner/x 50;");
    assert_int_equal(store_remove_tenant(s, "test", "owner", &e), STORE_OK);
    expect_records(s, NULL, "/x 1000;");
    assert_int_equal(put(s, "", "x", &(adapter_edit){.remove = true}), STORE_OK);
    store_close(s);
    assert_true(store_grant_covers("a*", "ab") && !store_grant_covers("a*", "ab/c") &&
                store_grant_covers("ab/*", "ab/c") && !store_grant_covers("*", "ab/c"));
}

/* Becomes what ctx is, but for its name. */
static int become(void *ctx, store_tenant *t, err *why)
{
    (void)why;
    const char *name = t->name;
    *t = *(const store_tenant *)ctx;
    t->name = name;
    return 0;
}

static int refuse_change(void *ctx, store_tenant *t, err *why)
{
    (void)ctx;
    t->weight = 7;
    return err_set(why, "not like this");
}

/* One of those that change one thing each at the same time. */
static int count_up(void *ctx, store_tenant *t, err *why)
{
    (void)why;
    if (ctx)
        t->in_flight++;
    else
        t->waiting++;
    return 0;
}

static void *change_often(void *ctx)
{
    err why;
    store *s = store_open(url, &why);
    CHECK(s);
    for (int i = 0; i < 50; i++)
        CHECK(store_change_tenant(s, "test", "both", count_up, ctx, &why) == STORE_OK);
    store_close(s);
    return NULL;
}

static void test_changes_at_the_same_time(void **state)
{
    (void)state;
    store *s = open_store();
    store_tenant both = {.name = "both", .weight = 1};
    pthread_t other;
    assert_int_equal(store_add_tenant(s, "test", &both, &e), STORE_OK);
    assert_int_equal(pthread_create(&other, NULL, change_often, s), 0);
    change_often(NULL);
    pthread_join(other, NULL);
    store_directory *d = store_read_directory(s, &e);
    const store_tenant *t = store_find_tenant(d, "both");
    assert_true(t && t->in_flight == 50 && t->waiting == 50);
    store_directory_free(d);
    assert_int_equal(store_remove_tenant(s, "test", "both", &e), STORE_OK);
    store_close(s);
}

static void test_tenants(void **state)
{
    (void)state;
    store *s = open_store(), *other = open_store();
    store_tenant acme = tenant_of("acme"), zeta = tenant_of("zeta");
    acme.requests_per_minute = 60;
    assert_int_equal(store_add_tenant(s, "test", &acme, &e), STORE_OK);
    assert_int_equal(store_add_tenant(other, "test", &zeta, &e), STORE_OK);
    expect(s, "change 2\ntenant acme base 1 weight 1 limits 0 0 60 0\ntenant zeta base 1 weight 1 limits 0 0 0 0\n");
    assert_int_equal(store_add_tenant(s, "test", &acme, &e), STORE_TAKEN);
    has("there is a tenant \"acme\" already");
    acme =
        (store_tenant){.name = "acme", .weight = 3, .in_flight = 4, .waiting = 5, .tokens_per_minute = 1000000000000};
    assert_int_equal(store_change_tenant(s, "test", "acme", become, &acme, &e), STORE_OK);
    assert_int_equal(store_remove_tenant(other, "test", "zeta", &e), STORE_OK);
    assert_int_equal(store_remove_tenant(other, "test", "zeta", &e), STORE_ABSENT);
    has("there is no tenant \"zeta\"");
    assert_int_equal(store_change_tenant(s, "test", "zeta", become, &zeta, &e), STORE_ABSENT);
    assert_int_equal(store_change_tenant(s, "test", "acme", refuse_change, NULL, &e), STORE_BAD);
    has("not like this");
    zeta.weight = 0;
    assert_int_equal(store_change_tenant(s, "test", "acme", become, &zeta, &e), STORE_BAD);
    expect(other, "change 4\ntenant acme base 0 weight 3 limits 4 5 0 1000000000000\n");
    int64_t change;
    assert_int_equal(store_read_change(s, &change, &e), 0);
    assert_int_equal(change, 4);
    store_close(s);
    store_close(other);
}

static void test_names(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "", ".x", "-x", "a b", "a/b", "a'b", "ä", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
    store *s = open_store();
    char text[STORE_KEY_TEXT];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        store_tenant t = tenant_of(bad[i]);
        assert_int_equal(store_add_tenant(s, "test", &t, &e), STORE_BAD);
        has("a tenant's name");
        assert_int_equal(store_add_key(s, "test", &(store_key){.tenant = "acme", .name = bad[i]}, text, &e), STORE_BAD);
        has("a key's name");
    }
    static const char *const bad_patterns[] = {"", "*x", "a*b*", "a\nb"};
    for (size_t i = 0; i < sizeof bad_patterns / sizeof *bad_patterns; i++)
        assert_int_equal(store_add_grant(s, "test", &(store_grant){"acme", bad_patterns[i]}, &e), STORE_BAD);
    store_tenant t = tenant_of("x");
    t.weight = 0;
    assert_int_equal(store_add_tenant(s, "test", &t, &e), STORE_BAD);
    has("a weight is");
    t.weight = 1;
    t.waiting = -1;
    assert_int_equal(store_add_tenant(s, "test", &t, &e), STORE_BAD);
    has("a limit is");
    store_close(s);
    assert_true(store_grant_covers("a", "a") && !store_grant_covers("a", "ab") && store_grant_covers("a*", "ab") &&
                store_grant_covers("*", "x"));
    assert_false(store_grant_covers("a/*", "a"));
}

static void test_keys(void **state)
{
    (void)state;
    store *s = open_store();
    char one[STORE_KEY_TEXT], two[STORE_KEY_TEXT];
    assert_int_equal(store_add_key(s, "test", &(store_key){.tenant = "acme", .name = "one"}, one, &e), STORE_OK);
    assert_int_equal(store_add_key(s, "test", &(store_key){.tenant = "acme", .name = "two", .expires = 99}, two, &e),
                     STORE_OK);
    assert_true(strncmp(one, "pk-", 3) == 0 && strlen(one) == STORE_KEY_TEXT - 1 && strcmp(one, two) != 0);
    assert_int_equal(store_add_key(s, "test", &(store_key){.tenant = "acme", .name = "two"}, two, &e), STORE_TAKEN);
    has("it has a key \"two\" already");
    assert_int_equal(store_add_key(s, "test", &(store_key){.tenant = "nobody", .name = "two"}, two, &e), STORE_ABSENT);
    has("there is no tenant \"nobody\"");
    assert_int_equal(store_expire_key(s, "test", "acme", "one", 77, &e), STORE_OK);
    assert_int_equal(store_expire_key(s, "test", "acme", "three", 77, &e), STORE_ABSENT);
    has("no such key: \"three\"");
    store_directory *d = store_read_directory(s, &e);
    digest of;
    digest_of_parts(&of, &(digest_part){one, strlen(one)}, 1);
    assert_true(d->n_keys == 2 && d->key[0].expires == 77 && d->key[1].expires == 99 && d->key[0].created > 0);
    assert_memory_equal(&d->key[0].of, &of, sizeof of);
    store_directory_free(d);
    assert_int_equal(store_remove_key(s, "test", "acme", "two", &e), STORE_OK);
    assert_int_equal(store_remove_key(s, "test", "acme", "two", &e), STORE_ABSENT);
    expect(s, "change 8\ntenant acme base 0 weight 3 limits 4 5 0 1000000000000\nkey acme one expires 77\n");
    store_close(s);
}

static void test_grants(void **state)
{
    (void)state;
    store *s = open_store();
    assert_int_equal(store_add_grant(s, "test", &(store_grant){"acme", "it's \"odd\" ä"}, &e), STORE_OK);
    assert_int_equal(store_add_grant(s, "test", &(store_grant){"acme", "acme/*"}, &e), STORE_OK);
    assert_int_equal(store_add_grant(s, "test", &(store_grant){"acme", "acme/*"}, &e), STORE_TAKEN);
    has("granted \"acme/*\" already");
    assert_int_equal(store_add_grant(s, "test", &(store_grant){"nobody", "x"}, &e), STORE_ABSENT);
    assert_int_equal(store_remove_grant(s, "test", &(store_grant){"acme", "x"}, &e), STORE_ABSENT);
    expect(s, "change 10\ntenant acme base 0 weight 3 limits 4 5 0 1000000000000\nkey acme one expires 77\n"
              "grant acme acme/*\ngrant acme it's \"odd\" ä\n");
    assert_int_equal(store_remove_tenant(s, "test", "acme", &e), STORE_OK);
    expect(s, "change 11\n");
    store_close(s);
}

static void test_longest_grant(void **state)
{
    (void)state;
    store *s = open_store();
    store_tenant t = tenant_of("long");
    char name[64 + 1 + 200 + 2]; /* TENANT/NAME, and one byte more */
    memset(name, 'a', sizeof name - 1);
    name[64] = '/';
    name[sizeof name - 1] = '\0';
    assert_int_equal(store_add_tenant(s, "test", &t, &e), STORE_OK);
    assert_int_equal(store_add_grant(s, "test", &(store_grant){"long", name}, &e), STORE_BAD);
    name[sizeof name - 2] = '\0';
    assert_int_equal(store_add_grant(s, "test", &(store_grant){"long", name}, &e), STORE_OK);
    assert_int_equal(store_remove_tenant(s, "test", "long", &e), STORE_OK);
    store_close(s);
}

static void add_line(void *ctx, const store_audit *a)
{
    assert_true(a->at > 1600000000 && strcmp(a->who, "test") == 0);
    buf_printf(ctx, "%lld %s %s (%s)\n", (long long)a->number, a->action, a->tenant, a->detail);
}

static int64_t count_old(sql *db)
{
    return sql_run(db, "SELECT number FROM audit WHERE number < 0", NULL, 0, NULL, NULL, &e);
}

/* With the next change, the lines go that are older than a year. */
static void test_old_audit(void **state)
{
    (void)state;
    store *s = open_store();
    store_tenant t = tenant_of("aged");
    sql *db = is_postgres ? sql_open_postgres(url, &e) : sql_open_sqlite(url, false, &e);
    for (int i = 0; i < 3; i++) {
        static const int days[] = {500, 366, 364};
        char *line =
            xasprintf("INSERT INTO audit (number, at, who, action, tenant, detail) VALUES (%d, %lld, 'x', 'x', "
                      "'x', '')",
                      i - 3, (long long)time(NULL) - days[i] * 86400LL);
        assert_int_equal(sql_run(db, line, NULL, 0, NULL, NULL, &e), 1);
        free(line);
    }
    assert_int_equal(count_old(db), 3);
    assert_int_equal(store_add_tenant(s, "test", &t, &e), STORE_OK);
    assert_int_equal(count_old(db), 1);
    assert_int_equal(sql_run(db, "DELETE FROM audit WHERE number < 0", NULL, 0, NULL, NULL, &e), 1);
    assert_int_equal(store_remove_tenant(s, "test", "aged", &e), STORE_OK);
    sql_close(db);
    store_close(s);
}

static void test_audit(void **state)
{
    (void)state;
    store *s = open_store();
    buf lines = {0};
    assert_int_equal(store_read_audit(s, NULL, 4, add_line, &lines, &e), 0);
    assert_string_equal(lines.data, "11 tenant remove acme ()\n10 grant add acme (acme/*)\n9 grant add acme (it's "
                                    "\"odd\" ä)\n8 key remove acme (two)\n");
    buf_clear(&lines);
    assert_int_equal(store_read_audit(s, "zeta", 100, add_line, &lines, &e), 0);
    assert_string_equal(lines.data,
                        "4 tenant remove zeta ()\n2 tenant add zeta (base yes, weight 1, in_flight 0, waiting 0, "
                        "requests_per_minute 0, tokens_per_minute 0, max_adapters 0, max_adapter_bytes 0)\n");
    buf_free(&lines);
    store_close(s);
}

/* What others may use of a tenant's adapters goes with it: a later tenant of its name is another. */
static void test_grants_of_one_that_is_gone(void **state)
{
    (void)state;
    static const char *const granted[] = {"acme/x", "acme/*", "acme-1/x", "Acme/x", "acme"};
    store_tenant acme = tenant_of("acme"), bob = tenant_of("bob");
    store *s = open_store();
    assert_int_equal(store_add_tenant(s, "test", &acme, &e), STORE_OK);
    assert_int_equal(store_add_tenant(s, "test", &bob, &e), STORE_OK);
    for (size_t i = 0; i < sizeof granted / sizeof *granted; i++)
        assert_int_equal(store_add_grant(s, "test", &(store_grant){"bob", granted[i]}, &e), STORE_OK);
    assert_int_equal(store_remove_tenant(s, "test", "acme", &e), STORE_OK);
    store_directory *d = store_read_directory(s, &e);
    assert_int_equal(d->n_grants, 3);
    for (size_t i = 0; i < d->n_grants; i++)
        assert_true(strncmp(d->grant[i].adapter, "acme/", 5) != 0);
    store_directory_free(d);
    assert_int_equal(store_remove_tenant(s, "test", "bob", &e), STORE_OK);
    store_close(s);
}

static void add_usage(void *ctx, const store_usage *u)
{
    buf_printf(ctx, "%s %s %.4s %lld: %lld %lld %lld %lld\n", u->tenant, u->adapter, u->digest, (long long)u->hour,
               (long long)u->requests, (long long)u->prompt, (long long)u->cached, (long long)u->output);
}

static void expect_usage(store *s, const store_period *p, const char *wanted)
{
    buf lines = {0};
    buf_add_str(&lines, "");
    assert_int_equal(store_read_usage(s, p, add_usage, &lines, &e), 0);
    assert_string_equal(lines.data, wanted);
    buf_free(&lines);
}

static void add_load(void *ctx, const store_load *l)
{
    buf_printf(ctx, "%s %lld %lld %lld %lld\n", l->tenant, (long long)l->requests, (long long)l->tokens,
               (long long)l->in_flight, (long long)l->waiting);
}

static void expect_load(store *s, const char *frontend, int64_t now, const char *wanted)
{
    buf lines = {0};
    buf_add_str(&lines, "");
    assert_int_equal(store_read_load(s, frontend, now, add_load, &lines, &e), 0);
    assert_string_equal(lines.data, wanted);
    buf_free(&lines);
}

static void test_usage(void **state)
{
    (void)state;
    const store_usage u[] = {{"a", "base", "", 7, 1, 10, 0, 5},
                             {"a", "sql", "d1g3", 7, 2, 4000000000, 3, 6},
                             {"b", "sql", "d1g3", 8, 1, 1, 0, 1}};
    const store_load l[] = {{"a", 3, 4000000021, 2, 1}, {"b", 1, 2, 1, 0}};
    store_batch b = {.frontend = "f1", .number = 1, .now = 1000, .usage = u, .n_usage = 3, .load = l, .n_load = 2};
    store *s = open_store(), *other = open_store();
    assert_int_equal(store_flush(s, &b, &e), 0);
    assert_int_equal(store_flush(s, &b, &e), 0); /* sent again: nothing */
    assert_int_equal(store_flush(other, &b, &e), 0);
    expect_usage(s, &(store_period){.to = 100},
                 "a base  7: 1 10 0 5\na sql d1g3 7: 2 4000000000 3 6\nb sql d1g3 8: 1 1 0 1\n");
    expect_usage(s, &(store_period){.tenant = "b", .to = 100}, "b sql d1g3 8: 1 1 0 1\n");
    expect_usage(s, &(store_period){.from = 8, .to = 9}, "b sql d1g3 8: 1 1 0 1\n");
    expect_usage(s, &(store_period){.from = 9, .to = 100}, "");
    b.number = 2;
    b.n_usage = 1;
    b.n_load = 1;
    assert_int_equal(store_flush(other, &b, &e), 0);
    b.number = 4;
    assert_int_equal(store_flush(other, &b, &e), 0); /* a database restored from a copy lacks 3 */
    b.number = 3;
    assert_int_equal(store_flush(other, &b, &e), -1);
    has("batch 3");
    b.frontend = "f2";
    b.number = 1;
    b.now = 1005;
    assert_int_equal(store_flush(s, &b, &e), 0);
    expect_usage(s, &(store_period){.tenant = "a", .to = 100},
                 "a base  7: 4 40 0 20\na sql d1g3 7: 2 4000000000 3 6\n");
    expect_load(s, "f1", 1010, "a 12 16000000084 2 1\nb 1 2 0 0\n");
    expect_load(s, "f2", 1010, "a 12 16000000084 2 1\nb 1 2 1 0\n");
    expect_load(s, "f3", 1010, "a 12 16000000084 4 2\nb 1 2 1 0\n");
    expect_load(s, "f3", 1011, "a 12 16000000084 2 1\nb 1 2 0 0\n"); /* f1 has been silent for too long */
    store_close(s);
    store_close(other);
}

/* A later release has been here. */
static void test_later_schema(void **state)
{
    (void)state;
    sql *db = is_postgres ? sql_open_postgres(url, &e) : sql_open_sqlite(url, false, &e);
    assert_int_equal(sql_run(db, "INSERT INTO schema_version (version) VALUES (99)", NULL, 0, NULL, NULL, &e), 1);
    assert_null(store_open(url, &e));
    has("version 99");
    assert_int_equal(sql_run(db, "DELETE FROM schema_version WHERE version = 99", NULL, 0, NULL, NULL, &e), 1);
    sql_close(db);
    store_close(open_store());
}

/* The connection is cut, or the server gone: an error, and afterwards it works again by itself. */
static void test_lost(void **state)
{
    (void)state;
    if (!is_postgres)
        return;
    store *s = open_store();
    int64_t change, again;
    assert_int_equal(store_read_change(s, &change, &e), 0);
    char *stop = xasprintf("%s/postgres.sh stop %s/pg", TEST_DATA, folder),
         *start = xasprintf("%s/postgres.sh start %s/pg >/dev/null", TEST_DATA, folder);
    assert_int_equal(system(stop), 0);
    assert_int_equal(store_read_change(s, &again, &e), -1);
    assert_int_equal(store_read_change(s, &again, &e), -1);
    has("PostgreSQL");
    assert_null(strchr(e.msg, '\n'));
    assert_int_equal(system(start), 0);
    assert_int_equal(store_read_change(s, &again, &e), 0);
    assert_int_equal(again, change);
    store_close(s);
    free(stop);
    free(start);
}

/* No room for another byte: an error, nothing half-written, and afterwards it works again. */
static void test_full_disk(void **state)
{
    (void)state;
    if (is_postgres)
        return;
    store *s = open_store();
    store_tenant t = tenant_of("late");
    struct rlimit was, none = {.rlim_cur = 0};
    getrlimit(RLIMIT_FSIZE, &was);
    none.rlim_max = was.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &none);
    store_result r = store_add_tenant(s, "test", &t, &e);
    setrlimit(RLIMIT_FSIZE, &was);
    assert_int_equal(r, STORE_FAILED);
    assert_int_equal(store_add_tenant(s, "test", &t, &e), STORE_OK);
    assert_int_equal(store_remove_tenant(s, "test", "late", &e), STORE_OK);
    store_close(s);
}

/* A file that is not where it was is no store that others see: not until it is back, and none is made in its place. */
static void test_moved_file(void **state)
{
    (void)state;
    if (is_postgres)
        return;
    store *s = open_store();
    store_tenant t = tenant_of("moved");
    char *elsewhere = xasprintf("%s.moved", url);
    assert_int_equal(store_add_tenant(s, "test", &t, &e), STORE_OK);
    assert_int_equal(rename(url, elsewhere), 0);
    assert_int_equal(store_remove_tenant(s, "test", "moved", &e), STORE_FAILED);
    has("moved, replaced or deleted");
    assert_int_equal(store_remove_tenant(s, "test", "moved", &e), STORE_FAILED);
    has("the file is gone");
    assert_int_equal(access(url, F_OK), -1);
    assert_int_equal(rename(elsewhere, url), 0);
    assert_int_equal(store_remove_tenant(s, "test", "moved", &e), STORE_OK);
    store_close(s);
    free(elsewhere);
}

/* What only reads makes no store, and writes nothing to one. */
static void test_existing(void **state)
{
    (void)state;
    store_close(open_store());
    char *readonly =
        is_postgres ? xasprintf("%s&options=-c%%20default_transaction_read_only%%3Don", url) : xstrdup(url);
    store *s = store_open_existing(readonly, &e);
    store_directory *d = s ? store_read_directory(s, &e) : NULL;
    if (!d)
        fail_msg("%s", e.msg);
    store_directory_free(d);
    store_close(s);
    free(readonly);
    char *none = is_postgres ? xasprintf("%s&options=-c%%20search_path%%3Dnowhere", url) : xasprintf("%s.none", url);
    assert_null(store_open_existing(none, &e));
    has("there is no store");
    assert_true(is_postgres || access(none, F_OK) == -1);
    free(none);
}

static void test_bad_places(void **state)
{
    (void)state;
    assert_null(store_open("/nowhere/at/all.db", &e));
    has("/nowhere/at/all.db: unable to open");
    assert_null(store_open("postgres://x@127.0.0.1:1/none", &e));
    has("PostgreSQL: connection to server at");
    assert_null(strstr(e.msg, "??")); /* which stood for ends of lines */
    char *text = xasprintf("%s/text", folder);
    FILE *f = fopen(text, "w");
    fputs("this is no database, though it has some length to it, more than a header's 100 bytes if all of it is "
          "counted, I think",
          f);
    fclose(f);
    assert_null(store_open(text, &e));
    has("not a database");
    free(text);
}

static int run_on_one(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tenants),
                                       cmocka_unit_test(test_names),
                                       cmocka_unit_test(test_keys),
                                       cmocka_unit_test(test_grants),
                                       cmocka_unit_test(test_audit),
                                       cmocka_unit_test(test_grants_of_one_that_is_gone),
                                       cmocka_unit_test(test_usage),
                                       cmocka_unit_test(test_adapters),
                                       cmocka_unit_test(test_old_audit),
                                       cmocka_unit_test(test_longest_grant),
                                       cmocka_unit_test(test_existing),
                                       cmocka_unit_test(test_later_schema),
                                       cmocka_unit_test(test_lost),
                                       cmocka_unit_test(test_full_disk),
                                       cmocka_unit_test(test_moved_file),
                                       cmocka_unit_test(test_bad_places),
                                       cmocka_unit_test(test_changes_at_the_same_time)};
    return cmocka_run_group_tests_name(is_postgres ? "PostgreSQL" : "SQLite", tests, NULL, NULL);
}

static char *start_postgres(void)
{
    char *command = xasprintf("%s/postgres.sh start %s/pg", TEST_DATA, folder), line[512] = "";
    FILE *f = popen(command, "r");
    char *got = fgets(line, sizeof line, f);
    free(command);
    line[strcspn(line, "\n")] = '\0';
    return pclose(f) == 0 && got ? xstrdup(line) : NULL;
}

int main(void)
{
    CHECK(mkdtemp(folder));
    CHECK(chmod(folder, 0755) == 0); /* the server may run as another user */
    url = xasprintf("%s/store.db", folder);
    int failed = run_on_one();
    free(url);
    is_postgres = true;
    url = start_postgres();
    failed += url ? run_on_one() : 1;
    char *command = xasprintf("%s/postgres.sh remove %s/pg; rm -rf %s", TEST_DATA, folder, folder);
    failed += system(command) != 0;
    free(command);
    free(url);
    return failed;
}
