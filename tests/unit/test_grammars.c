/* test_grammars.c - the worker's cache of grammars: whose they are, and who makes room for whom */
#include <stdio.h>
#include <string.h>

#include "sim/toy.h"
#include "support/test.h"
#include "worker/grammars.h"

static grammars *new_cache(void)
{
    return grammars_new((vocabulary_source){.read = toy_vocabulary}, NULL);
}

/* The guide of a grammar, held. */
static guide *find(grammars *g, const char *salt, const char *text)
{
    guide *found;
    err e;
    assert_int_equal(grammars_find(g, salt, GRAMMAR_REGEX, text, strlen(text), &found, &e), GRAMMAR_READY);
    return found;
}

/* Returns whether a grammar is still there: was its guide. */
static bool has(grammars *g, const char *salt, const char *text, guide *was)
{
    guide *now = find(g, salt, text);
    guide_drop(now);
    return now == was;
}

static void a_grammar_is_shared_only_within_a_salt(void **state)
{
    (void)state;
    grammars *g = new_cache();
    guide *ann = find(g, "ann\n", "[a-m]+");
    assert_true(has(g, "ann\n", "[a-m]+", ann));
    assert_false(has(g, "bob\n", "[a-m]+", ann));
    assert_false(has(g, "ann\nhers", "[a-m]+", ann));
    assert_false(has(g, "", "[a-m]+", ann));
    assert_true(has(g, "ann\n", "[a-m]+", ann));
    guide_drop(ann);
    grammars_free(g);
}

/* However many salts a tenant gives its requests. */
static void who_has_most_makes_room(void **state)
{
    (void)state;
    grammars *g = new_cache();
    guide *ann = find(g, "ann\n", "[a-m]+"), *anna = find(g, "anna\nx", "[a-m]+"), *first = find(g, "bob\n", "x");
    for (int i = 0; i < 300; i++) {
        char salt[16], text[16];
        snprintf(salt, sizeof salt, "bob\n%d", i % 7);
        snprintf(text, sizeof text, "[a-m]{%d}", i + 1);
        guide_drop(find(g, salt, text));
    }
    assert_true(has(g, "ann\n", "[a-m]+", ann));
    assert_true(has(g, "anna\nx", "[a-m]+", anna));
    assert_false(has(g, "bob\n", "x", first));
    guide_drop(ann);
    guide_drop(anna);
    guide_drop(first);
    grammars_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_grammar_is_shared_only_within_a_salt),
                                       cmocka_unit_test(who_has_most_makes_room)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
