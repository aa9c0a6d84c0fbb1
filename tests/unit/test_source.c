/* test_source.c - what a source's text means, which URLs its files have, which addresses may be connected to */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "registry/networks.h"
#include "registry/places.h"
#include "registry/source.h"
#include "support/model_files.h"
#include "support/test.h"

static bool permits(const ip_network *allowed, int n, const char *address)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    if (inet_pton(AF_INET, address, &v4.sin_addr) == 1)
        return networks_permit(allowed, n, (struct sockaddr *)&v4);
    assert_int_equal(inet_pton(AF_INET6, address, &v6.sin6_addr), 1);
    return networks_permit(allowed, n, (struct sockaddr *)&v6);
}

/* The first and last of each special network, and their neighbours. */
static void only_public_addresses_are_permitted(void **state)
{
    (void)state;
    static const char *const refused[] = {
        "0.0.0.0",         "0.255.255.255",    "10.0.0.0",       "10.255.255.255",  "100.64.0.0",   "100.127.255.255",
        "127.0.0.1",       "127.255.255.255",  "169.254.0.0",    "169.254.169.254", "172.16.0.0",   "172.31.255.255",
        "192.168.0.1",     "192.168.255.255",  "198.18.0.0",     "198.19.255.255",  "224.0.0.1",    "239.255.255.255",
        "240.0.0.1",       "255.255.255.255",  "192.0.2.1",      "203.0.113.9",     "::",           "::1",
        "::ffff:10.0.0.1", "::ffff:127.0.0.1", "::127.0.0.1",    "64:ff9b::a00:1",  "64:ff9b:1::1", "100::1",
        "2001::1",         "2001:db8::1",      "2002:7f00:1::1", "3fff::1",         "fc00::1",      "fdff::1",
        "fe80::1",         "fec0::1",          "ff02::1",        "4000::1",         "1fff::1"};
    static const char *const good[] = {
        "1.1.1.1",        "9.255.255.255",   "11.0.0.0",    "100.63.255.255",  "100.128.0.0", "126.255.255.255",
        "128.0.0.0",      "169.253.255.255", "169.255.0.0", "172.15.255.255",  "172.32.0.0",  "192.167.255.255",
        "192.169.0.0",    "198.17.255.255",  "198.20.0.0",  "223.255.255.255", "2001:200::1", "2606:4700::1111",
        "::ffff:1.1.1.1", "2a00::1",         "2003::1"};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        if (permits(NULL, 0, refused[i]))
            fail_msg("%s is permitted", refused[i]);
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        if (!permits(NULL, 0, good[i]))
            fail_msg("%s is refused", good[i]);
    assert_false(networks_permit(NULL, 0, &(struct sockaddr){.sa_family = AF_UNIX}));
}

static void allowed_networks_are_permitted_and_no_more(void **state)
{
    (void)state;
    ip_network n[3];
    err e;
    assert_int_equal(ip_network_parse(&n[0], "10.1.128.0/17", &e), 0);
    assert_int_equal(ip_network_parse(&n[1], "fd00:1::/33", &e), 0);
    assert_int_equal(ip_network_parse(&n[2], "127.0.0.1", &e), 0);
    assert_true(permits(n, 3, "10.1.128.0") && permits(n, 3, "10.1.255.255") && permits(n, 3, "::ffff:10.1.200.1"));
    assert_false(permits(n, 3, "10.1.127.255") || permits(n, 3, "10.2.128.0"));
    assert_true(permits(n, 3, "fd00:1:7fff::1") && permits(n, 3, "127.0.0.1"));
    assert_false(permits(n, 3, "fd00:1:8000::1") || permits(n, 3, "127.0.0.2") || permits(n, 3, "::1"));
    static const char *const bad[] = {"",
                                      "x",
                                      "10.0.0.0/33",
                                      "10.0.0.0/",
                                      "10.0.0.0/-1",
                                      "10.0.0.0/8x",
                                      "10.0.0.0/4294967304",
                                      "::/129",
                                      "10.0.0",
                                      "1.2.3.4/ 8",
                                      "0000:0000:0000:0000:0000:0000:0000:0000:0000:0000:0000"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (ip_network_parse(&n[0], bad[i], &e) == 0)
            fail_msg("\"%s\" is a network", bad[i]);
    assert_int_equal(ip_network_parse(&n[0], "0.0.0.0/0", &e), 0);
    assert_int_equal(ip_network_parse(&n[1], "::/0", &e), 0);
    assert_true(permits(n, 1, "10.0.0.1") && !permits(n, 1, "fe80::1") && permits(n, 2, "fe80::1"));
}

static void sources_are_understood(void **state)
{
    (void)state;
    source s;
    err e;
    assert_int_equal(
        source_parse(&s,
                     "https://me:pw@host/a/"
                     "b.tar.gz?sign=1#sha256=BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD",
                     &e),
        0);
    assert_true(s.kind == SOURCE_HTTP && s.is_archive);
    assert_string_equal(s.url, "https://me:pw@host/a/b.tar.gz?sign=1");
    assert_string_equal(s.shown, "https://host/a/b.tar.gz");
    assert_string_equal(s.want, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    source_deinit(&s);
    assert_int_equal(source_parse(&s, "hf://me/mine@refs/pr/3", &e), 0);
    assert_string_equal(s.repository, "me/mine");
    assert_string_equal(s.revision, "refs/pr/3");
    source_deinit(&s);
    assert_int_equal(source_parse(&s, "file:///a b/c.zip", &e), 0);
    assert_string_equal(s.url, "/a b/c.zip");
    assert_true(s.is_archive);
    source_deinit(&s);
    assert_int_equal(source_parse(&s, "http://host/?token=secret#x", &e), -1);
    assert_null(strstr(e.msg, "secret"));
}

static void files_have_urls(void **state)
{
    (void)state;
    static const char listing[] =
        "{\"sha\": \"abc123\", \"siblings\": [{\"rfilename\": \"adapter_config.json\"}, {\"rfilename\": \"../x\"}]}";
    source s;
    places p;
    err e;
    char revision[64];
    assert_int_equal(source_parse(&s, "http://host/a%20b?q=1", &e), 0);
    assert_int_equal(places_of_http(&p, &s, &e), 0);
    assert_string_equal(p.url[FILE_CONFIG], "http://host/a%20b/adapter_config.json?q=1");
    places_deinit(&p);
    source_deinit(&s);
    assert_int_equal(source_parse(&s, "s3://bucket/a b/+/", &e), 0);
    assert_int_equal(places_of_s3(&p, &s, NULL, "eu-west-1", &e), 0);
    assert_string_equal(p.url[FILE_WEIGHTS],
                        "https://bucket.s3.eu-west-1.amazonaws.com/a%20b/%2B/adapter_model.safetensors");
    places_deinit(&p);
    assert_int_equal(places_of_s3(&p, &s, "http://minio:9000", "eu-west-1", &e), 0);
    assert_string_equal(p.url[FILE_CONFIG], "http://minio:9000/bucket/a%20b/%2B/adapter_config.json");
    places_deinit(&p);
    source_deinit(&s);
    assert_int_equal(source_parse(&s, "hf://me/mine@a/b", &e), 0);
    char *url = places_hub_listing("https://hub/", &s);
    assert_string_equal(url, "https://hub/api/models/me/mine/revision/a%2Fb");
    free(url);
    assert_int_equal(places_of_hub(&p, &s, "https://hub", listing, strlen(listing), revision, &e), 0);
    assert_string_equal(p.url[FILE_CONFIG], "https://hub/me/mine/resolve/abc123/adapter_config.json");
    assert_null(p.url[FILE_WEIGHTS]);
    places_deinit(&p);
    source_deinit(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_public_addresses_are_permitted),
        cmocka_unit_test(allowed_networks_are_permitted_and_no_more),
        cmocka_unit_test(sources_are_understood),
        cmocka_unit_test(files_have_urls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
