/* test_accounts.c - a frontend's tenants and usage beside a real store, on a real loop and thread */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "frontend/accounts.h"
#include "support/test.h"
#include "support/waiting.h"

static char folder[] = "/tmp/punica-accounts-XXXXXX";
static char *url;
static event_loop *loop;
static store *s; /* another process's, so to speak */
static err e;

static char *add_tenant(const char *name, int64_t in_flight)
{
    static char key[STORE_KEY_TEXT];
    assert_int_equal(
        store_add_tenant(s, "test", &(store_tenant){.name = name, .weight = 1, .in_flight = in_flight}, &e), STORE_OK);
    assert_int_equal(store_add_key(s, "test", &(store_key){.tenant = name, .name = "k"}, key, &e), STORE_OK);
    return key;
}

static void add_up(void *ctx, const store_usage *u)
{
    *(int64_t *)ctx += u->prompt + u->output;
}

/* All tokens of the tenant that are in the store. */
static int64_t written(const char *of)
{
    int64_t n = 0;
    assert_int_equal(store_read_usage(s, &(store_period){.tenant = of, .to = INT64_MAX / 3600}, add_up, &n, &e), 0);
    return n;
}

static accounts *open_accounts(void)
{
    accounts *a = accounts_new(&loop->base, url, "base", (accounts_news){0}, &e);
    if (!a)
        fail_msg("%s", e.msg);
    return a;
}

static tenant *find(accounts *a, const char *key)
{
    return tenants_find(accounts_tenants(a), key, 1);
}

/* Whoever adds a tenant elsewhere is heard of; what is used is written, all of it, also at the end. */
static void test_both_ways(void **state)
{
    (void)state;
    accounts *a = open_accounts();
    char *key = add_tenant("both", 0);
    UNTIL(loop, find(a, key));
    account_entry bill = {.who = find(a, key), .model = "sql", .version = &(digest){{7}}};
    int64_t n = 0;
    for (int i = 0; i < 300; i++) {
        accounts_count(a, &bill, i == 0, i == 0 ? 100 : 0, 0, i % 5);
        n += (i == 0 ? 100 : 0) + i % 5;
        if (i % 3 == 0)
            waiting_turn(loop);
    }
    UNTIL(loop, written("both") == n);
    assert_int_equal(store_remove_key(s, "test", "both", "k", &e), STORE_OK);
    UNTIL(loop, !find(a, key));
    accounts_count(a, &bill, 0, 0, 0, 17); /* a stream that has begun */
    accounts_free(a);
    assert_int_equal(written("both"), n + 17);
}

static bool is_down(accounts *a)
{
    buf page = {0};
    accounts_write_metrics(a, &page);
    bool down = strstr(page.data, "punica_store_up 0\n");
    buf_free(&page);
    return down;
}

/* While nothing can be written tenants go on, and nothing is lost or counted twice afterwards. */
static void test_full_disk(void **state)
{
    (void)state;
    accounts *a = open_accounts();
    char *key = add_tenant("full", 0);
    UNTIL(loop, find(a, key));
    account_entry bill = {.who = find(a, key), .model = "sql"};
    struct rlimit was, none;
    getrlimit(RLIMIT_FSIZE, &was);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = was.rlim_max};
    setrlimit(RLIMIT_FSIZE, &none);
    accounts_count(a, &bill, 1, 5, 0, 1);
    UNTIL(loop, is_down(a));
    for (int i = 0; i < 100; i++) {
        accounts_count(a, &bill, 0, 0, 0, 1);
        waiting_turn(loop);
    }
    assert_ptr_equal(find(a, key), bill.who);
    setrlimit(RLIMIT_FSIZE, &was);
    UNTIL(loop, !is_down(a) && written("full") == 106);
    PASS(loop, 0.6);
    assert_int_equal(written("full"), 106);
    accounts_free(a);
    assert_int_equal(written("full"), 106);
}

/* Two frontends: what one has in hand, the other counts. */
static void test_two(void **state)
{
    (void)state;
    accounts *a = open_accounts(), *b = open_accounts();
    char *key = add_tenant("two", 3);
    api_error refused;
    UNTIL(loop, find(a, key) && find(b, key));
    tenant_begin(find(a, key), 0, 3, 10);
    UNTIL(loop, tenant_check(find(b, key), 0, 1, 1, &refused));
    assert_int_equal(refused.status, 429);
    tenant_first_token(find(a, key));
    tenant_end(find(a, key), false);
    UNTIL(loop, tenant_check(find(b, key), 0, 1, 1, &refused) == 0);
    assert_int_equal(tenant_check(find(b, key), 0, 2, 1, &refused), -1);
    tenant_end(find(a, key), true);
    tenant_end(find(a, key), true);
    accounts_free(a);
    UNTIL(loop, tenant_check(find(b, key), 0, 3, 1, &refused) == 0);
    accounts_free(b);
}

typedef struct {
    account_task t;
    int ran, done, dropped;
} asked;

static void run(account_task *t, store *of)
{
    (void)of;
    ((asked *)t)->ran++;
}

static void done(account_task *t)
{
    ((asked *)t)->done++;
}

static void drop(account_task *t)
{
    ((asked *)t)->dropped++;
}

/* What operators ask is done soon, in order; what is left at the end is dropped. */
static void test_tasks(void **state)
{
    (void)state;
    accounts *a = open_accounts();
    enum { MANY = 100 };
    asked x[3] = {0}, many[MANY] = {0};
    for (int i = 0; i < MANY; i++) {
        many[i].t = (account_task){.run = run, .done = done, .drop = drop};
        accounts_ask(a, &many[i].t);
    }
    UNTIL(loop, many[MANY - 1].done);
    for (int i = 0; i < MANY; i++)
        assert_true(many[i].done == 1 && many[i].ran == 1);
    for (int i = 0; i < 3; i++)
        x[i].t = (account_task){.run = run, .done = done, .drop = drop};
    double begin = clock_now();
    accounts_ask(a, &x[0].t);
    accounts_ask(a, &x[1].t);
    UNTIL(loop, x[0].done && x[1].done);
    assert_true(clock_now() - begin < 2);
    assert_true(x[0].ran == 1 && x[1].ran == 1 && !x[0].dropped && !x[1].dropped);
    accounts_ask(a, &x[2].t);
    accounts_free(a);
    assert_true(x[2].dropped == 1 && x[2].done == 0);
}

static void test_no_store(void **state)
{
    (void)state;
    assert_null(accounts_new(&loop->base, "/nowhere/at/all.db", "base", (accounts_news){0}, &e));
    assert_non_null(strstr(e.msg, "/nowhere/at/all.db"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_both_ways), cmocka_unit_test(test_full_disk),
                                       cmocka_unit_test(test_two), cmocka_unit_test(test_tasks),
                                       cmocka_unit_test(test_no_store)};
    CHECK(mkdtemp(folder));
    url = xasprintf("%s/store.db", folder);
    loop = event_loop_new();
    s = store_open(url, &e);
    CHECK(s);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    store_close(s);
    event_loop_free(loop);
    char *command = xasprintf("rm -rf %s", folder);
    failed += system(command) != 0;
    free(command);
    free(url);
    return failed;
}
