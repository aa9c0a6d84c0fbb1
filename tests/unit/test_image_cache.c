/* test_image_cache.c - which adapter images stay in pinned memory, and that what comes back is what went in */
#include <stdlib.h>
#include <string.h>

#include "engine/image_cache.h"
#include "model/lora.h"
#include "model/model.h"
#include "support/test.h"

/* An adapter of one part with about `kb` kilobytes, all of value `fill`. */
static lora *make(int kb, int fill)
{
    lora *l = lora_new(1);
    l->site[SITE_O].part[0] =
        (lora_part){.rank = 1, .scale = 1, .a = {NULL, DTYPE_F16, 1, 256 * kb}, .b = {NULL, DTYPE_F16, 1, 256 * kb}};
    lora_place(l);
    memset(l->data, fill, l->bytes);
    return l;
}

static void check_image(const lora *l, int kb, int fill)
{
    assert_non_null(l);
    assert_int_equal(l->bytes, kb * 1024);
    const char *a = l->site[SITE_O].part[0].a.data, *b = l->site[SITE_O].part[0].b.data;
    for (int i = 0; i < kb * 512; i++)
        assert_true(a[i] == fill && b[i] == fill);
}

static void the_least_recently_used_go(void **state)
{
    (void)state;
    backend *be = backend_cpu_new(1);
    image_cache *c = image_cache_new(be, 40 * 1024);
    assert_null(image_cache_find(c, "a"));
    check_image(image_cache_add(c, "a", make(16, 1)), 16, 1);
    check_image(image_cache_add(c, "b", make(16, 2)), 16, 2);
    check_image(image_cache_add(c, "c", make(8, 3)), 8, 3);
    check_image(image_cache_find(c, "a"), 16, 1);
    check_image(image_cache_add(c, "d", make(12, 4)), 12, 4); /* in b's place */
    assert_null(image_cache_find(c, "b"));
    check_image(image_cache_find(c, "c"), 8, 3);
    check_image(image_cache_find(c, "a"), 16, 1);
    check_image(image_cache_find(c, "d"), 12, 4);
    check_image(image_cache_add(c, "e", make(4, 5)), 4, 5); /* the gap behind d */
    assert_non_null(image_cache_find(c, "c"));
    check_image(image_cache_add(c, "f", make(40, 6)), 40, 6); /* all of it */
    assert_null(image_cache_find(c, "a"));
    assert_null(image_cache_find(c, "e"));
    image_cache_free(c);
    be->ops->free(be);
}

static void what_does_not_fit_is_still_served(void **state)
{
    (void)state;
    backend *be = backend_cpu_new(1);
    image_cache *c = image_cache_new(be, 8 * 1024);
    check_image(image_cache_add(c, "small", make(4, 1)), 4, 1);
    check_image(image_cache_add(c, "large", make(12, 2)), 12, 2);
    check_image(image_cache_find(c, "large"), 12, 2);
    check_image(image_cache_find(c, "small"), 4, 1);
    check_image(image_cache_add(c, "larger", make(16, 3)), 16, 3);
    assert_null(image_cache_find(c, "large"));
    image_cache_free(c);
    image_cache_free(NULL);
    be->ops->free(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_least_recently_used_go),
        cmocka_unit_test(what_does_not_fit_is_still_served),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
