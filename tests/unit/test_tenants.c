/* test_tenants.c - limits, views and the ledger of usage, without a store or a clock */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "frontend/ledger.h"
#include "frontend/rate.h"
#include "frontend/tenants.h"
#include "support/test.h"

static bool near(double a, double b)
{
    return a - b < 1e-6 && b - a < 1e-6;
}

static void test_rate(void **state)
{
    (void)state;
    rate r = {0};
    assert_true(near(rate_left(&r, 60, 100), 60) && rate_wait(&r, 60, 100, 60) == 0 &&
                rate_wait(&r, 60, 100, 1000) == 0);
    rate_use(&r, 60, 100, 50);
    assert_true(near(rate_left(&r, 60, 100), 10) && near(rate_wait(&r, 60, 100, 11), 1) &&
                near(rate_reset(&r, 60, 100), 50));
    assert_true(near(rate_wait(&r, 60, 100, 1000), 50)); /* more than it holds: until it is full */
    assert_true(near(rate_left(&r, 60, 130), 40) && near(rate_left(&r, 60, 1000), 60));
    rate_use(&r, 60, 1000, 90); /* a debt */
    assert_true(rate_left(&r, 60, 1000) == 0 && near(rate_wait(&r, 60, 1000, 1), 31) &&
                near(rate_reset(&r, 60, 1000), 90));
    double taken = 0;
    for (double now = 2000; now < 2600; now += 0.01) /* whatever is taken as soon as it may be: the rate holds */
        if (rate_wait(&r, 600, now, 7) == 0) {
            rate_use(&r, 600, now, 7);
            taken += 7;
        }
    assert_true(taken <= 6600 + 7 && taken >= 6600 - 7);
}

static void test_view(void **state)
{
    (void)state;
    const store_grant grant[] = {{"t", "zebra"}, {"t", "ape"}, {"t", "team/*"}, {"t", "bear"}};
    model_view *v = model_view_new("t", "base", false, grant, 4);
    assert_true(model_view_has(v, "ape") && model_view_has(v, "bear") && model_view_has(v, "zebra") &&
                model_view_has(v, "team/x"));
    assert_false(model_view_has(v, "apes") || model_view_has(v, "ap") || model_view_has(v, "") ||
                 model_view_has(v, "team") || model_view_has(v, "base") || model_view_has(v, "team/*x") == false ||
                 model_view_has_base(v));
    assert_true(model_view_is(v, false, grant, 4));
    assert_false(model_view_is(v, true, grant, 4) || model_view_is(v, false, grant, 3) ||
                 model_view_is(v, false, grant + 1, 3) || model_view_is(v, false, NULL, 0));
    assert_ptr_equal(model_view_keep(v), v);
    model_view_release(v);
    assert_true(model_view_has(v, "ape"));
    model_view_release(v);
    v = model_view_new("t", "base", true, NULL, 0);
    assert_true(model_view_has(v, "base") && !model_view_has(v, "ape") && model_view_has(NULL, "anything") &&
                model_view_is(v, true, NULL, 0));
    assert_false(model_view_is(v, true, grant, 1));
    model_view_release(v);
    v = model_view_new("t", "base", false, &(store_grant){"t", "*"}, 1);
    assert_true(model_view_has(v, "ape") && !model_view_has(v, "base")); /* all adapters are not the base */
    model_view_release(v);
}

static void test_ledger(void **state)
{
    (void)state;
    ledger *l = ledger_new(3);
    const digest d = {{1}}, other = {{2}};
    ledger_place a = {0}, b = {0}, c = {0}, x = {0}, y = {0};
    ledger_add(l, &a, &(ledger_key){"t", "sql", &d, 7}, 1, 10, 0, 1);
    ledger_add(l, &a, &(ledger_key){"t", "sql", &d, 7}, 0, 0, 0, 5);
    ledger_add(l, &b, &(ledger_key){"t", "sql", &other, 7}, 1, 20, 0, 1);
    ledger_add(l, &a, &(ledger_key){"t", "sql", &d, 8}, 0, 0, 0, 2);   /* the hour has changed */
    ledger_add(l, &c, &(ledger_key){"t", "json", &d, 7}, 1, 30, 0, 3); /* no room: by tenant alone */
    ledger_add(l, &c, &(ledger_key){"t", "json", &d, 7}, 0, 0, 0, 1);
    ledger_add(l, &x, &(ledger_key){"s", "json", &d, 7}, 1, 40, 0, 1);
    size_t n;
    store_usage *u = ledger_take(l, &n);
    assert_int_equal(n, 5);
    assert_true(strcmp(u[0].tenant, "s") == 0 && strcmp(u[0].adapter, "") == 0 && u[0].prompt == 40);
    assert_true(strcmp(u[1].tenant, "t") == 0 && strcmp(u[1].adapter, "") == 0 && u[1].prompt == 30 &&
                u[1].output == 4 && u[1].hour == 7);
    assert_true(u[2].hour == 7 && u[2].prompt == 10 && u[2].output == 6 && u[2].requests == 1 &&
                strncmp(u[2].digest, "0100", 4) == 0);
    assert_true(u[3].hour == 8 && u[3].prompt == 0 && u[3].output == 2 && strncmp(u[4].digest, "0200", 4) == 0);
    ledger_rows_free(u, n);
    ledger_add(l, &a, &(ledger_key){"t", "sql", &d, 8}, 0, 0, 0, 9); /* a place of before */
    ledger_add(l, &y, &(ledger_key){"t", "base", NULL, 8}, 1, 1, 0, 1);
    u = ledger_take(l, &n);
    assert_true(n == 2 && strcmp(u[0].adapter, "base") == 0 && u[0].digest[0] == '\0' && u[1].output == 9 &&
                u[1].prompt == 0);
    ledger_rows_free(u, n);
    u = ledger_take(l, &n);
    assert_int_equal(n, 0);
    ledger_rows_free(u, n);
    ledger_free(l);
}

static digest digest_of(const char *text)
{
    digest d;
    digest_of_parts(&d, &(digest_part){text, strlen(text)}, 1);
    return d;
}

/* Two tenants, of which the first has these limits and the key "k". */
static tenants *all_of(const store_tenant *first)
{
    tenants *all = tenants_new("base");
    store_tenant t[] = {*first, {.name = "zeta", .weight = 1, .base = true}};
    store_key k[] = {{.tenant = first->name, .name = "k", .of = digest_of("k")},
                     {.tenant = "zeta", .name = "z", .of = digest_of("z"), .expires = 100},
                     {.tenant = "nobody", .name = "n", .of = digest_of("n")}};
    store_grant g[] = {{first->name, "sql"}, {"zeta", "rot13"}};
    const store_directory d = {.tenant = t, .n_tenants = 2, .key = k, .n_keys = 3, .grant = g, .n_grants = 2};
    tenants_apply(all, &d);
    return all;
}

static void test_find(void **state)
{
    (void)state;
    tenants *all = all_of(&(store_tenant){.name = "acme", .weight = 2});
    tenant *acme = tenants_find(all, "k", 1e9), *zeta = tenants_find(all, "z", 99.9);
    assert_string_equal(tenant_name(acme), "acme");
    assert_string_equal(tenant_name(zeta), "zeta");
    assert_true(tenant_weight(acme) == 2 && model_view_has(tenant_view(acme), "sql") &&
                !model_view_has(tenant_view(acme), "rot13"));
    assert_true(model_view_has(tenant_view(zeta), "rot13") && model_view_has(tenant_view(zeta), "base"));
    assert_null(tenants_find(all, "z", 100));
    assert_null(tenants_find(all, "n", 1));
    assert_null(tenants_find(all, "", 1));
    assert_null(tenants_find(all, "kk", 1));
    tenant_keep(acme);
    tenant_begin(acme, 0, 1, 5);
    const store_directory nothing = {0};
    tenants_apply(all, &nothing);
    assert_int_equal(tenants_count(all), 0);
    assert_null(tenants_find(all, "k", 1));
    tenant_first_token(acme); /* its call goes on */
    tenant_use(acme, 1, 5, 1);
    tenant_end(acme, false);
    assert_string_equal(tenant_name(acme), "acme");
    tenant_release(acme);
    tenants_free(all);
}

static void test_limits(void **state)
{
    (void)state;
    tenants *all = all_of(&(store_tenant){
        .name = "acme", .weight = 1, .in_flight = 3, .waiting = 2, .requests_per_minute = 6, .tokens_per_minute = 600});
    tenant *t = tenants_find(all, "k", 1);
    api_error e;
    assert_int_equal(tenant_check(t, 0, 2, 100, &e), 0);
    assert_true(tenant_check(t, 0, 3, 1, &e) == -1 && e.status == 400); /* more than may ever wait */
    tenant_begin(t, 0, 2, 100);
    assert_true(tenant_check(t, 0, 1, 1, &e) == -1 && e.status == 429 && e.retry_after == 1 &&
                strstr(e.what.msg, "2 waiting"));
    tenant_first_token(t);
    assert_int_equal(tenant_check(t, 0, 1, 1, &e), 0);
    tenant_first_token(t);
    assert_true(tenant_check(t, 0, 2, 1, &e) == -1 && strstr(e.what.msg, "3 requests at once"));
    tenant_end(t, false);
    assert_int_equal(tenant_check(t, 0, 2, 500, &e), 0);
    assert_true(tenant_check(t, 0, 2, 510, &e) == -1 && strstr(e.what.msg, "600 tokens per minute") &&
                e.retry_after == 1);
    tenant_use(t, 0, 100, 300); /* the prompt was counted when it began */
    assert_true(tenant_check(t, 0, 1, 300, &e) == -1 && e.retry_after == 10);
    assert_int_equal(tenant_check(t, 10, 1, 300, &e), 0);
    tenant_begin(t, 10, 1, 0);
    tenant_end(t, true);
    tenant_begin(t, 10, 1, 0);
    tenant_end(t, true);
    tenant_begin(t, 10, 1, 0);
    tenant_end(t, true); /* 5 in 10 s, in which one has come back */
    assert_int_equal(tenant_check(t, 10, 2, 1, &e), 0);
    tenant_begin(t, 10, 2, 1);
    tenant_end(t, true);
    tenant_end(t, true);
    assert_true(tenant_check(t, 10, 1, 1, &e) == -1 && strstr(e.what.msg, "6 requests per minute") &&
                e.retry_after == 10);
    tenants_free(all);
}

/* What others did is told by the store, of which this frontend's own part is known. */
static void test_others(void **state)
{
    (void)state;
    tenants *all = all_of(&(store_tenant){
        .name = "acme", .weight = 1, .in_flight = 10, .requests_per_minute = 100, .tokens_per_minute = 1000});
    tenant *t = tenants_find(all, "k", 1);
    api_error e;
    size_t n;
    store_load *told = tenants_report_loads(all, &n);
    assert_int_equal(n, 0);
    free(told);
    /* of long ago: the beginning to count from */
    tenants_apply_load(all, 0, &(store_load){"acme", 5000, 70000, 0, 0}, 0, 0);
    assert_int_equal(tenant_check(t, 0, 1, 1000, &e), 0);
    tenant_begin(t, 0, 4, 50);
    tenant_use(t, 0, 50, 10);
    told = tenants_report_loads(all, &n);
    assert_true(n == 1 && told[0].requests == 4 && told[0].tokens == 60 && told[0].in_flight == 4 &&
                told[0].waiting == 4);
    free(told);
    assert_true(tenants_are_busy(all) && tenants_have_limits(all));
    /* 90 requests and 400 tokens are others' */
    tenants_apply_load(all, 0, &(store_load){"acme", 5094, 70460, 5, 0}, 4, 60);
    assert_true(tenant_check(t, 0, 2, 1, &e) == -1 && strstr(e.what.msg, "at once"));
    assert_true(tenant_check(t, 0, 1, 541, &e) == -1 && strstr(e.what.msg, "tokens"));
    assert_int_equal(tenant_check(t, 0, 1, 540, &e), 0);
    tenants_apply_load(all, 0, &(store_load){"acme", 5094, 70460, 0, 0}, 0, 0);
    assert_true(tenant_check(t, 0, 6, 1, &e) == 0);
    assert_true(tenant_check(t, 0, 7, 1, &e) == -1 && strstr(e.what.msg, "at once"));
    told = tenants_report_loads(all, &n);
    assert_int_equal(n, 0); /* nothing new */
    free(told);
    tenants_free(all);
}

/* A tenant that is removed while it has requests, and added again, begins anew: also for other frontends. */
static void test_added_again(void **state)
{
    (void)state;
    const store_tenant acme = {.name = "acme", .weight = 1, .in_flight = 1};
    tenants *all = all_of(&acme);
    size_t n;
    tenant *t = tenant_keep(tenants_find(all, "k", 1));
    tenant_begin(t, 0, 1, 10);
    free(tenants_report_loads(all, &n));
    assert_int_equal(n, 1);
    tenants_apply(all, &(store_directory){0});
    tenants_apply(all, &(store_directory){.tenant = (store_tenant *)&acme, .n_tenants = 1});
    store_load *told = tenants_report_loads(all, &n);
    assert_true(n == 1 && told[0].in_flight == 0 && told[0].waiting == 0 && told[0].requests == 0);
    free(told);
    free(tenants_report_loads(all, &n));
    assert_int_equal(n, 0);
    tenant_end(t, true);
    tenant_release(t);
    tenants_free(all);
}

static void add_header(void *ctx, const char *name, const char *value)
{
    buf_printf(ctx, "%s=%s ", name, value);
}

static void test_headers(void **state)
{
    (void)state;
    tenants *all =
        all_of(&(store_tenant){.name = "acme", .weight = 1, .requests_per_minute = 60, .tokens_per_minute = 6000});
    buf out = {0};
    tenant *t = tenants_find(all, "k", 1);
    tenant_begin(t, 0, 1, 30);
    tenant_headers(t, 0, add_header, &out);
    assert_string_equal(
        out.data, "x-ratelimit-limit-requests=60 x-ratelimit-remaining-requests=59 x-ratelimit-reset-requests=1s "
                  "x-ratelimit-limit-tokens=6000 x-ratelimit-remaining-tokens=5970 x-ratelimit-reset-tokens=300ms ");
    buf_clear(&out);
    tenant_use(t, 0, 0, 9000);
    tenant_headers(t, 0, add_header, &out);
    assert_non_null(strstr(out.data, "x-ratelimit-remaining-tokens=0 x-ratelimit-reset-tokens=1m31s"));
    buf_clear(&out);
    tenant_use(t, 0, 0, 2968);
    tenant_headers(t, 0, add_header, &out);
    assert_non_null(strstr(out.data, "x-ratelimit-reset-tokens=2m0s")); /* 119.98 s: not 1m60s */
    buf_clear(&out);
    tenant_headers(tenants_find(all, "z", 1), 0, add_header, &out);
    assert_int_equal(out.len, 0);
    buf_free(&out);
    tenants_free(all);
}

/* However many tenants there are, the page of metrics names a few, and its sums are those of all. */
static void test_metrics(void **state)
{
    (void)state;
    enum { MANY = 100 };
    tenants *all = tenants_new("base");
    store_tenant t[MANY];
    store_key k[MANY];
    char name[MANY][16];
    for (int i = 0; i < MANY; i++) {
        snprintf(name[i], sizeof name[i], "t%03d", i);
        t[i] = (store_tenant){.name = name[i], .weight = 1};
        k[i] = (store_key){.tenant = name[i], .name = "k", .of = digest_of(name[i])};
    }
    tenants_apply(all, &(store_directory){.tenant = t, .n_tenants = MANY, .key = k, .n_keys = MANY});
    for (int i = 0; i < MANY; i++)
        tenant_use(tenants_find(all, name[i], 1), 0, 0, i);
    buf page = {0};
    tenants_write_metrics(all, &page);
    long sum = 0;
    int n = 0;
    for (const char *at = page.data; (at = strstr(at, "\npunica_tenant_output_tokens_total{")); at++, n++)
        sum += atol(strchr(at, '}') + 1);
    assert_int_equal(n, 21);
    assert_int_equal(sum, MANY * (MANY - 1) / 2);
    assert_true(strstr(page.data, "tokens_total{tenant=\"t099\"} 99") && strstr(page.data, "\"t080\"") &&
                !strstr(page.data, "\"t079\""));
    buf_free(&page);
    tenants_apply(all, &(store_directory){0});
    tenants_write_metrics(all, &page);
    assert_non_null(strstr(page.data, "output_tokens_total{tenant=\"other\"} 4950\n"));
    buf_free(&page);
    tenants_free(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rate),        cmocka_unit_test(test_view),    cmocka_unit_test(test_ledger),
        cmocka_unit_test(test_find),        cmocka_unit_test(test_limits),  cmocka_unit_test(test_others),
        cmocka_unit_test(test_added_again), cmocka_unit_test(test_headers), cmocka_unit_test(test_metrics)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
