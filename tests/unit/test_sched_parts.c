/* test_sched_parts.c - what the scheduler is built on, against plain arrays: ids to pointers, a slab, the queue by
 * arrival, the order of GPUs, who was given what; what is read from the wire */
#include <math.h>
#include <string.h>

#include "base/id_map.h"
#include "base/rng.h"
#include "base/slab.h"
#include "scheduler/gpu_order.h"
#include "scheduler/prefixes.h"
#include "scheduler/sched_wire.h"
#include "scheduler/signals.h"
#include "scheduler/wait_queue.h"
#include "scheduler/wire_end.h"
#include "support/test.h"

static int draw(uint64_t *counter, int below)
{
    return (int)(rng_u64(11, (*counter)++) % (uint64_t)below);
}

static void ids_come_and_go(void **state)
{
    (void)state;
    enum { IDS = 3000 };
    static char item[IDS];
    bool there[IDS] = {0};
    uint64_t counter = 0;
    size_t n = 0;
    id_map *m = id_map_new();
    for (int i = 0; i < 100000; i++) {
        int k = draw(&counter, IDS);
        uint64_t id = (uint64_t)k << (k % 3 * 20); /* also ids that share their low bits */
        assert_ptr_equal(id_map_get(m, id), there[k] ? &item[k] : NULL);
        if (there[k])
            id_map_remove(m, id);
        else
            id_map_put(m, id, &item[k]);
        there[k] = !there[k];
        n += there[k] ? 1 : (size_t)-1;
        assert_int_equal(id_map_count(m), n);
    }
    for (int k = 0; k < IDS; k++)
        assert_ptr_equal(id_map_get(m, (uint64_t)k << (k % 3 * 20)), there[k] ? &item[k] : NULL);
    id_map_free(m);
}

static void slab_pieces_are_apart(void **state)
{
    (void)state;
    enum { PIECES = 20000, SIZE = 200 };
    static unsigned char *piece[PIECES];
    uint64_t counter = 0;
    slab *s = slab_new(SIZE);
    memset(piece, 0, sizeof piece);
    for (int i = 0; i < 60000; i++) {
        int k = draw(&counter, PIECES);
        if (piece[k]) {
            for (int b = 0; b < SIZE; b++)
                assert_int_equal(piece[k][b], k % 251 + 1); /* nobody else wrote there */
            slab_give(s, piece[k]);
            piece[k] = NULL;
            continue;
        }
        piece[k] = slab_take(s);
        assert_int_equal((uintptr_t)piece[k] % 64, 0);
        memset(piece[k], k % 251 + 1, SIZE);
    }
    slab_free(s);
}

static void slabs_grow_what_is_there(void **state)
{
    (void)state;
    enum { PIECES = 2000 };
    static unsigned char *piece[PIECES];
    static size_t used[PIECES], room[PIECES];
    uint64_t counter = 0;
    slabs *s = slabs_new();
    memset(piece, 0, sizeof piece);
    for (int i = 0; i < 40000; i++) {
        int k = draw(&counter, PIECES);
        for (size_t b = 0; b < used[k]; b++)
            assert_int_equal(piece[k][b], k % 251 + 1); /* nobody else wrote there */
        if (draw(&counter, 4) == 0) {
            slabs_give(s, piece[k], room[k]);
            piece[k] = NULL;
            used[k] = room[k] = 0;
            continue;
        }
        used[k] = 2 * used[k] + (size_t)draw(&counter, 3);
        used[k] = used[k] > 10000 ? 1 : used[k];
        piece[k] = slabs_grow(s, piece[k], &room[k], used[k]);
        assert_true(room[k] >= used[k]);
        if (piece[k])
            memset(piece[k], k % 251 + 1, room[k]);
    }
    for (int k = 0; k < PIECES; k++)
        slabs_give(s, piece[k], room[k]);
    slabs_free(s);
}

static void the_first_of_the_queue_came_first(void **state)
{
    (void)state;
    enum { ITEMS = 500 };
    static wait_item item[ITEMS];
    bool in[ITEMS] = {0};
    uint64_t counter = 0;
    wait_queue q = {0};
    for (int i = 0; i < 20000; i++) {
        int k = draw(&counter, ITEMS);
        if (in[k]) {
            wait_queue_remove(&q, &item[k]);
        } else {
            item[k] = (wait_item){draw(&counter, 50), (uint64_t)k, 0}; /* many arrive at once */
            wait_queue_put(&q, &item[k]);
        }
        in[k] = !in[k];
        assert_int_equal(wait_queue_has(&q, &item[k]), in[k]);
        wait_item *first = NULL;
        for (int j = 0; j < ITEMS; j++)
            if (in[j] && (!first || wait_before(&item[j], first)))
                first = &item[j];
        assert_ptr_equal(wait_queue_first(&q), first);
        if (i % 100 == 0)
            wait_queue_check(&q);
    }
    wait_queue_deinit(&q);
}

enum { NODES = 300 };

static gpu_node *naive_find(gpu_node *node, room_kind kind, int64_t n_tokens)
{
    gpu_node *best = NULL;
    for (int i = 0; i < NODES; i++)
        if (node[i].room[kind] >= n_tokens && (!best || gpu_order_before(best, &node[i])))
            best = &node[i];
    return best;
}

static void the_fullest_gpu_with_room_is_found(void **state)
{
    (void)state;
    static gpu_node node[NODES];
    uint64_t counter = 0;
    gpu_order o = {0};
    for (int i = 0; i < NODES; i++)
        node[i] = (gpu_node){.rank = (uint64_t)(i * 7 % NODES), .priority = rng_mix((uint64_t)i + 1)};
    for (int i = 0; i < 30000; i++) {
        gpu_node *n = &node[draw(&counter, NODES)];
        int64_t any = draw(&counter, 3) ? draw(&counter, 1000) : 0;
        gpu_order_set(&o, n, draw(&counter, 4) ? n->n_running : draw(&counter, 8),
                      (int64_t[N_ROOMS]){any, draw(&counter, 2) ? any : 0});
        int64_t want = 1 + draw(&counter, 1000);
        assert_ptr_equal(gpu_order_find(&o, ROOM_ANY, want), naive_find(node, ROOM_ANY, want));
        assert_ptr_equal(gpu_order_find(&o, ROOM_SUSPECT, want), naive_find(node, ROOM_SUSPECT, want));
        if (i % 100 == 0) {
            int n_with_room = 0;
            for (int k = 0; k < NODES; k++)
                n_with_room += node[k].room[ROOM_ANY] > 0;
            assert_int_equal(gpu_order_check(&o), n_with_room);
        }
    }
}

/* Marks of other tenants, adapters, versions or tokens are others; the last GPU that was given one is found, however
 * many others came since that have room. */
static void who_was_given_a_beginning_is_found(void **state)
{
    (void)state;
    enum { N = 100 };
    int token[N + 1];
    for (int i = 0; i <= N; i++)
        token[i] = i;
    shares_tenant one = {.number = 0}, other = {.number = 1};
    request r = {.tenant = &one, .what = {.token = token, .n_tokens = N}}, of[5] = {r, r, r, r, r};
    of[1].tenant = &other;
    of[2].what.adapter = "sql";
    of[3].what.adapter = "sql";
    of[3].what.digest = "1";
    of[3].what.digest_bytes = 1;
    of[4].what.token = token + 1;
    prefixes *p = prefixes_new(1000);
    prefix_marks m[5];
    uint32_t life;
    gpu g = {.number = 7, .life = 3};
    for (int i = 0; i < 5; i++) {
        prefixes_mark(p, &of[i], &m[i]);
        assert_int_equal(m[i].n, N / PREFIX_UNIT);
        for (int k = 0; k < N / PREFIX_UNIT; k++)
            assert_int_equal(prefixes_find(p, m[i].mark[k], &life), -1);
        g.number++;
        prefixes_add(p, &m[i], &g);
    }
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < N / PREFIX_UNIT; k++) /* of 6 units the first, second, fourth and last are kept */
            assert_int_equal(prefixes_find(p, m[i].mark[k], &life), k == 2 || k == 4 ? -1 : 8 + i);
    assert_int_equal(life, 3);
    g = (gpu){.number = 2, .life = 4};
    m[0].n = 2;
    prefixes_add(p, &m[0], &g);
    assert_int_equal(prefixes_find(p, m[0].mark[1], &life), 2);
    assert_int_equal(life, 4);
    assert_int_equal(prefixes_find(p, m[0].mark[3], &life), 8);
    for (uint64_t i = 1; i <= 100000; i++) /* the last of them and no other */
        prefixes_add(p, &(prefix_marks){{rng_mix(i)}, 1}, &g);
    assert_int_equal(prefixes_find(p, m[0].mark[1], &life), -1);
    assert_int_equal(prefixes_find(p, rng_mix(100000), &life), 2);
    prefixes_free(p);
    p = prefixes_new(0);
    prefixes_mark(p, &r, &m[0]);
    assert_int_equal(m[0].n, 0);
    prefixes_free(p);
}

static void hear_nothing(void *ctx, const command *c)
{
    (void)ctx;
    (void)c;
}

/* Whatever a runner calls its GPU, a page of metrics stays one. */
static void labels_are_escaped(void **state)
{
    (void)state;
    scheduler_options o = scheduler_options_default();
    scheduler *s = scheduler_new(&o, hear_nothing, NULL);
    buf page = {0};
    scheduler_gpu_up(s, 0, 0, &(gpu_info){.uuid = "a\"} 1\nb\\c", .max_batch = 1, .n_pages = 1, .page_len = 16});
    signals_write_metrics(&page, s, 1, 0);
    assert_non_null(strstr(page.data, "{uuid=\"a\\\"} 1\\nb\\\\c\"} 0\n"));
    buf_free(&page);
    scheduler_free(s);
}

/* Both sets have the same members; of these, workers report four, and whatever else one sends is refused. */
static void every_end_has_its_counterpart_on_the_wire(void **state)
{
    (void)state;
    int n_reported = 0;
    assert_int_equal(end_reason__descriptor.n_values, N_END_REASONS);
    for (unsigned i = 0; i < end_reason__descriptor.n_values; i++) {
        EndReason wire = (EndReason)end_reason__descriptor.values[i].value;
        int n_same = 0;
        for (int r = 0; r < N_END_REASONS; r++)
            n_same += wire_end_pack((end_reason)r) == wire;
        assert_int_equal(n_same, 1);
        end_reason r;
        if (!wire_end_read_report(wire, &r))
            continue;
        assert_int_equal(wire_end_pack(r), wire);
        assert_true(r == END_STOP || r == END_LENGTH || r == END_FAILED || r == END_EVICTED);
        n_reported++;
    }
    assert_int_equal(n_reported, 4);
    end_reason none;
    assert_false(wire_end_read_report((EndReason)N_END_REASONS, &none) || wire_end_read_report((EndReason)-1, &none));
}

/* 0 would say that a retry is no use. */
static void a_retry_is_never_put_off_for_long(void **state)
{
    (void)state;
    static const double said[] = {0, 2.5, 3600, 4000, INFINITY, -1, NAN}, read[] = {0, 2.5, 3600, 3600, 3600, 0, 0};
    enum { N = sizeof said / sizeof *said };
    End end[N], *ends[N];
    for (int i = 0; i < N; i++) {
        end[i] = (End)END__INIT;
        end[i].why = END_REASON__FAILED;
        end[i].retry_after = said[i];
        ends[i] = &end[i];
    }
    Step step = STEP__INIT;
    step.ends = ends;
    step.n_ends = N;
    step_scratch scratch = {0};
    gpu_report out;
    assert_true(sched_wire_read_step(&step, &scratch, &out));
    for (int i = 0; i < N; i++)
        assert_true(out.ends[i].retry_after == read[i]);
    step_scratch_deinit(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_come_and_go),
        cmocka_unit_test(slab_pieces_are_apart),
        cmocka_unit_test(slabs_grow_what_is_there),
        cmocka_unit_test(the_first_of_the_queue_came_first),
        cmocka_unit_test(the_fullest_gpu_with_room_is_found),
        cmocka_unit_test(who_was_given_a_beginning_is_found),
        cmocka_unit_test(labels_are_escaped),
        cmocka_unit_test(every_end_has_its_counterpart_on_the_wire),
        cmocka_unit_test(a_retry_is_never_put_off_for_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
