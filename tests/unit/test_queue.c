/* test_queue.c - the hand-over between threads */
#include <pthread.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/queue.h"
#include "support/test.h"

enum { N_ITEMS = 20000 };

static void *produce(void *q)
{
    for (int i = 0; i < N_ITEMS; i++) {
        int *item = XNEW(int);
        *item = i;
        queue_push(q, item);
    }
    return NULL;
}

static void items_arrive_once_and_in_order(void **state)
{
    (void)state;
    queue *q = queue_new();
    pthread_t a;
    pthread_create(&a, NULL, produce, q);
    int next = 0;
    for (; next < N_ITEMS; next++) {
        int *item = queue_pop(q);
        assert_int_equal(*item, next);
        free(item);
    }
    pthread_join(a, NULL);
    assert_null(queue_try_pop(q));
    queue_free(q);
}

static void *wait_for_close(void *q)
{
    return queue_pop(q);
}

static void close_wakes_those_who_wait(void **state)
{
    (void)state;
    queue *q = queue_new();
    pthread_t a;
    void *got = q;
    pthread_create(&a, NULL, wait_for_close, q);
    queue_close(q);
    pthread_join(a, &got);
    assert_null(got);
    queue_free(q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(items_arrive_once_and_in_order),
                                       cmocka_unit_test(close_wakes_those_who_wait)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
