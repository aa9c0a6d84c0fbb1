/* test_wire.c - packing messages piece by piece, frames on a pipe, the HTTP upgrade, sampling on the wire */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "net/frames.h"
#include "net/pack.h"
#include "net/proof.h"
#include "net/upgrade.h"
#include "support/test.h"
#include "worker/wire_sampling.h"

static Tokens tokens_of(uint64_t id, uint32_t *token)
{
    Tokens t = TOKENS__INIT;
    t.id = id;
    t.index = 3;
    t.n_tokens = 1;
    t.tokens = token;
    return t;
}

/* The same Step packed whole and piece by piece. */
static void pieces_make_the_same_message_as_the_whole(void **state)
{
    (void)state;
    uint32_t token = 300;
    Tokens a = tokens_of(1, &token), b = tokens_of(2, &token), *both[] = {&a, &b};
    Step s = STEP__INIT;
    s.n_seen = 1000;
    s.pages_free = -3;
    s.reset = 4;
    s.n_requests = 2;
    s.n_tokens = 2;
    s.tokens = both;
    Message m = MESSAGE__INIT;
    m.what_case = MESSAGE__WHAT_STEP;
    m.step = &s;
    buf whole = {0}, body = {0}, pieces = {0};
    pack_message(&whole, &m);
    s.n_tokens = 0;
    step__pack(&s, (uint8_t *)buf_extend(&body, step__get_packed_size(&s)));
    pack_field(&body, STEP_TOKENS, &a.base);
    pack_field(&body, STEP_TOKENS, &b.base);
    pack_bytes(&pieces, MESSAGE__WHAT_STEP, body.data, body.len);

    unpacker *u = unpacker_new(1 << 20);
    const Message *got = unpacker_read(u, pieces.data, pieces.len);
    buf again = {0};
    pack_message(&again, got);
    assert_int_equal(again.len, whole.len);
    assert_memory_equal(again.data, whole.data, whole.len);

    step_numbers n;
    assert_true(pack_peek_step(whole.data, whole.len, &n));
    assert_true(n.n_seen == 1000 && n.reset == 4 && n.n_requests == 2);
    assert_true(pack_peek_step(pieces.data, pieces.len, &n));
    assert_true(n.n_seen == 1000 && n.reset == 4 && n.n_requests == 2);
    for (size_t cut = 0; cut < whole.len; cut++) { /* exact size: a read past the end is seen */
        char *part = xmalloc(cut + 1);
        memcpy(part, whole.data, cut);
        assert_false(pack_peek_step(part, cut, &n));
        free(part);
    }
    unpacker_free(u);
    buf_free(&whole);
    buf_free(&body);
    buf_free(&pieces);
    buf_free(&again);
}

static void a_peek_at_something_else_says_so(void **state)
{
    (void)state;
    step_numbers n;
    static const char *const other[] = {"\x0a\x00", "\x32\x02\x08", "\x32\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
                                        "\x35\x01\x01\x01\x01", "\xff"};
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        assert_false(pack_peek_step(other[i], strlen(other[i]), &n));
}

/* Growing messages in the same memory; one that is over the limit; and small ones after it. */
static void an_unpacker_keeps_to_its_limit(void **state)
{
    (void)state;
    unpacker *u = unpacker_new(100000);
    for (uint32_t n_tokens = 1; n_tokens <= 200000; n_tokens = n_tokens >= 200000 ? n_tokens + 1 : n_tokens * 3) {
        uint32_t *token = XNEW_ARRAY(uint32_t, n_tokens);
        token[n_tokens - 1] = 7;
        Request r = REQUEST__INIT;
        r.n_tokens = n_tokens;
        r.tokens = token;
        Message m = MESSAGE__INIT;
        m.what_case = MESSAGE__WHAT_SUBMIT;
        m.submit = &r;
        buf packed = {0};
        pack_message(&packed, &m);
        const Message *got = unpacker_read(u, packed.data, packed.len);
        if (n_tokens * sizeof *token > 100000)
            assert_null(got);
        else
            assert_int_equal(got->submit->tokens[n_tokens - 1], 7);
        buf_free(&packed);
        free(token);
    }
    assert_null(unpacker_read(u, "\xff\xff", 2));
    assert_non_null(unpacker_read(u, "", 0));
    unpacker_free(u);
}

static void frames_come_out_whole_however_they_come_in(void **state)
{
    (void)state;
    int fd[2];
    assert_int_equal(pipe(fd), 0);
    buf frames = {0};
    frame_add(&frames, "one", 3);
    frame_add(&frames, "", 0);
    frame_add(&frames, "three", 5);
    frame_reader r = {.fd = fd[0]};
    const char *expected[] = {"one", "", "three"};
    int n_got = 0;
    err e;
    assert_false(frame_reader_wait(&r, 0));
    for (size_t i = 0; i < frames.len; i++) {
        assert_int_equal(write(fd[1], frames.data + i, 1), 1);
        assert_true(frame_reader_wait(&r, 1));
        assert_int_equal(frame_reader_fill(&r, &e), 1);
        size_t n;
        for (const void *bytes; (bytes = frame_reader_next(&r, &n)); n_got++) {
            assert_int_equal(n, strlen(expected[n_got]));
            assert_memory_equal(bytes, expected[n_got], n);
        }
    }
    assert_int_equal(n_got, 3);
    assert_int_equal(write(fd[1], "\1\0\0\0!\xff\xff\xff\xff", 9), 9);
    assert_int_equal(frame_reader_fill(&r, &e), 1);
    size_t n;
    assert_false(frame_reader_is_stuck(&r));
    assert_non_null(frame_reader_next(&r, &n));
    assert_true(frame_reader_is_stuck(&r) && !frame_reader_next(&r, &n));
    assert_int_equal(write(fd[1], "?", 1), 1);
    assert_int_equal(frame_reader_fill(&r, &e), -1);
    frame_reader_deinit(&r);
    frame_reader again = {.fd = fd[0]};
    close(fd[1]);
    assert_int_equal(frame_reader_fill(&again, &e), -1);
    frame_reader_deinit(&again);
    close(fd[0]);
    buf_free(&frames);
}

static void an_upgrade_is_agreed_on(void **state)
{
    (void)state;
    char key[UPGRADE_KEY_SIZE], other[UPGRADE_KEY_SIZE], read[UPGRADE_KEY_SIZE];
    upgrade_make_key(key, (const uint8_t *)"sixteen bytes...");
    upgrade_make_key(other, (const uint8_t *)"sixteen others..");
    assert_string_equal(key, "c2l4dGVlbiBieXRlcy4uLg==");
    buf request = {0}, response = {0};
    err e;
    upgrade_write_request(&request, "host", key);
    assert_int_equal(upgrade_head_length(request.data, request.len, &e), (int)request.len);
    assert_int_equal(upgrade_head_length(request.data, request.len - 1, &e), 0);
    assert_int_equal(upgrade_read_request(request.data, request.len, read, &e), 0);
    assert_string_equal(read, key);
    upgrade_write_response(&response, read);
    assert_int_equal(upgrade_check_response(response.data, response.len, key, &e), 0);
    assert_int_equal(upgrade_check_response(response.data, response.len, other, &e), -1);
    buf_clear(&response);
    upgrade_write_refusal(&response, "no");
    assert_int_equal(upgrade_check_response(response.data, response.len, key, &e), -1);
    assert_non_null(strstr(e.msg, "400"));
    buf_free(&request);
    buf_free(&response);
}

static void a_proof_is_good_for_one_side_secret_and_pair_of_hellos(void **state)
{
    (void)state;
    buf hello[2] = {0};
    buf_add_str(&hello[0], "hello from here");
    buf_add_str(&hello[1], "hello from there");
    uint8_t mac[PROOF_BYTES];
    proof_make("secret", SIDE_CONNECTING, hello, mac);
    assert_true(proof_is_right("secret", SIDE_CONNECTING, hello, mac, sizeof mac));
    assert_false(proof_is_right("secret", SIDE_LISTENING, hello, mac, sizeof mac));
    assert_false(proof_is_right("Secret", SIDE_CONNECTING, hello, mac, sizeof mac));
    assert_false(proof_is_right("secret", SIDE_CONNECTING, hello, mac, sizeof mac - 1));
    assert_false(proof_is_right("secret", SIDE_CONNECTING, hello, mac, 0));
    hello[1].data[0]++;
    assert_false(proof_is_right("secret", SIDE_CONNECTING, hello, mac, sizeof mac));
    hello[1].data[0]--;
    buf moved[2] = {0}; /* a byte from one to the other: the same text in all */
    buf_add(&moved[0], hello[0].data, hello[0].len - 1);
    buf_add(&moved[1], &hello[0].data[hello[0].len - 1], 1);
    buf_add(&moved[1], hello[1].data, hello[1].len);
    assert_false(proof_is_right("secret", SIDE_CONNECTING, moved, mac, sizeof mac));
    for (int i = 0; i < 2; i++) {
        buf_free(&hello[i]);
        buf_free(&moved[i]);
    }
}

static Sampling good_sampling(void)
{
    Sampling s = SAMPLING__INIT;
    s.temperature = 0.5f;
    s.top_k = 3;
    s.top_p = 0.9f;
    s.min_p = 0.1f;
    s.repetition_penalty = 1.1f;
    s.presence_penalty = 0.2f;
    s.frequency_penalty = 0.3f;
    s.seed = 0xfedcba9876543210u;
    s.min_tokens = 2;
    s.ignore_eos = 1;
    s.n_logprobs = 3;
    return s;
}

static int read_sampling(const Sampling *s, uint32_t max_tokens, sampling_params *out, err *e)
{
    buf packed = {0};
    sampling__pack(s, (uint8_t *)buf_extend(&packed, sampling__get_packed_size(s)));
    wire_sampling got;
    int status = wire_sampling_read(&got, packed.data, packed.len, max_tokens, e);
    if (status == 0) {
        *out = got.params;
        wire_sampling_deinit(&got);
    }
    buf_free(&packed);
    return status;
}

static void sampling_survives_the_wire(void **state)
{
    (void)state;
    Sampling s = good_sampling();
    int32_t stop[] = {5, 6};
    s.n_stop_ids = 2;
    s.stop_ids = stop;
    sampling_params got = {0};
    err e;
    assert_int_equal(read_sampling(&s, 10, &got, &e), 0);
    assert_true(got.temperature == 0.5f && got.top_k == 3 && got.top_p == 0.9f && got.min_p == 0.1f);
    assert_true(got.repetition_penalty == 1.1f && got.presence_penalty == 0.2f && got.frequency_penalty == 0.3f);
    assert_true(got.seed == 0xfedcba9876543210u && got.max_tokens == 10 && got.min_tokens == 2 && got.ignore_eos);
    assert_true(got.n_stop == 2 && got.stop[0] == 5 && got.stop[1] == 6 && got.n_logprobs == 2);
    s.n_logprobs = 0;
    assert_int_equal(read_sampling(&s, UINT32_MAX, &got, &e), 0);
    assert_true(got.n_logprobs == -1 && got.max_tokens == INT_MAX);
}

static void bad_sampling_is_an_error(void **state)
{
    (void)state;
    sampling_params got = {0};
    err e;
    Sampling s = good_sampling();
    s.n_logprobs = -5;
    assert_int_equal(read_sampling(&s, 10, &got, &e), -1);
    s.n_logprobs = INT_MIN;
    assert_int_equal(read_sampling(&s, 10, &got, &e), -1);
    s = good_sampling();
    s.n_logprobs = MAX_LOGPROBS + 2;
    assert_int_equal(read_sampling(&s, 10, &got, &e), -1);
    s = good_sampling();
    int32_t stop[MAX_STOP_IDS + 1] = {0};
    s.n_stop_ids = MAX_STOP_IDS + 1;
    s.stop_ids = stop;
    assert_int_equal(read_sampling(&s, 10, &got, &e), -1);
    s = good_sampling();
    s.top_p = 0;
    assert_int_equal(read_sampling(&s, 10, &got, &e), -1);
    assert_int_equal(read_sampling(&s, 0, &got, &e), -1);
    assert_int_equal(wire_sampling_read(&(wire_sampling){0}, "\xff\xff", 2, 10, &e), -1);
    s = good_sampling();
    s.n_biased = 1;
    s.biased = stop;
    assert_int_equal(read_sampling(&s, 10, &got, &e), -1); /* a token without its bias */
    s = good_sampling();
    s.n_bad_ids = 2;
    s.bad_ids = stop;
    s.n_bad_lengths = 2;
    s.bad_lengths = (uint32_t[]){1, 2};
    assert_int_equal(read_sampling(&s, 10, &got, &e), -1);
    s.bad_lengths = (uint32_t[]){2, 0};
    assert_int_equal(read_sampling(&s, 10, &got, &e), -1);
}

static void token_rules_survive_the_wire(void **state)
{
    (void)state;
    Sampling s = good_sampling();
    int32_t id[] = {7, 8, 9};
    s.n_biased = s.n_bias = 2;
    s.biased = id;
    s.bias = (float[]){-1, 2};
    s.n_allowed_ids = s.n_bad_ids = 3;
    s.allowed_ids = s.bad_ids = id;
    s.n_bad_lengths = 2;
    s.bad_lengths = (uint32_t[]){2, 1};
    s.grammar_kind = GRAMMAR_REGEX;
    s.grammar = (ProtobufCBinaryData){3, (uint8_t *)"a\0b"};
    buf packed = {0};
    err e;
    sampling__pack(&s, (uint8_t *)buf_extend(&packed, sampling__get_packed_size(&s)));
    wire_sampling got;
    assert_int_equal(wire_sampling_read(&got, packed.data, packed.len, 10, &e), 0);
    const token_rules *r = &got.rules;
    assert_true(r->n_bias == 2 && r->biased[1] == 8 && r->bias[1] == 2 && r->n_allowed == 3 && r->allowed[2] == 9);
    assert_true(r->n_bad == 2 && r->bad_indptr[1] == 2 && r->bad_indptr[2] == 3 && r->bad[2] == 9 && !r->grammar);
    assert_true(got.wire->grammar_kind == GRAMMAR_REGEX && got.wire->grammar.len == 3 &&
                memcmp(got.wire->grammar.data, "a\0b", 3) == 0);
    wire_sampling_deinit(&got);
    buf_free(&packed);
}

static void logprobs_survive_the_wire(void **state)
{
    (void)state;
    sample_result r = {.token = 4, .logprob = -0.5f, .top = {{4, -0.5f}, {9, -2}}};
    buf packed = {0};
    wire_logprobs_write(&packed, &r, 2);
    LogprobList *list = logprob_list__unpack(NULL, packed.len, (uint8_t *)packed.data);
    assert_int_equal(list->n_tokens, 1);
    assert_true(list->tokens[0]->logprob == -0.5f);
    assert_int_equal(list->tokens[0]->n_top, 2);
    assert_true(list->tokens[0]->top[1]->token == 9 && list->tokens[0]->top[1]->logprob == -2);
    logprob_list__free_unpacked(list, NULL);
    buf_free(&packed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_make_the_same_message_as_the_whole),
        cmocka_unit_test(a_peek_at_something_else_says_so),
        cmocka_unit_test(an_unpacker_keeps_to_its_limit),
        cmocka_unit_test(frames_come_out_whole_however_they_come_in),
        cmocka_unit_test(an_upgrade_is_agreed_on),
        cmocka_unit_test(a_proof_is_good_for_one_side_secret_and_pair_of_hellos),
        cmocka_unit_test(sampling_survives_the_wire),
        cmocka_unit_test(bad_sampling_is_an_error),
        cmocka_unit_test(token_rules_survive_the_wire),
        cmocka_unit_test(token_rules_survive_the_wire),
        cmocka_unit_test(logprobs_survive_the_wire),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
