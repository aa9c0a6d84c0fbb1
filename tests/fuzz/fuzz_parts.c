/* fuzz_parts.c - any text as an output: the first two bytes say by which rules, and how it is cut into pieces. What has
 * been told must stay, and the parts of a text that came in pieces must be those of the whole. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "frontend/output_parts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool begins_with(const buf *all, const buf *beginning)
{
    return all->len >= beginning->len &&
           (beginning->len == 0 || memcmp(all->data, beginning->data, beginning->len) == 0);
}

static bool same(const buf *a, const buf *b)
{
    return a->len == b->len && begins_with(a, b);
}

/* Each piece is read where nothing lies behind it. */
static void read_in_pieces(output_parts *p, const parts_rules *r, const char *text, size_t n, uint64_t seed)
{
    for (size_t i = 0, step = 0; i < n; step++) {
        i += 1 + rng_u64(seed, step) % 7;
        i = i < n ? i : n;
        size_t content = p->content.len, reasoning = p->reasoning.len;
        int calls = p->n_calls;
        char *so_far = xmalloc(i);
        memcpy(so_far, text, i);
        output_parts_read(p, r, so_far, i, false);
        free(so_far);
        CHECK(p->content.len >= content && p->reasoning.len >= reasoning && p->n_calls >= calls && p->at <= i);
    }
    output_parts_read(p, r, text, n, true);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    const parts_rules r = {.tools = (tools_format)(data[0] % (TOOLS_NAMED + 1)),
                           .tool_name = "f",
                           .one_call = data[0] & 0x40,
                           .thinks = (data[0] >> 3) % 3};
    size_t n = size - 2;
    char *text = xmalloc(n + 1);
    for (size_t i = 0; i < n; i++)
        text[i] = data[i + 2] ? (char)data[i + 2] : ' ';
    output_parts whole = {0}, pieces = {0};
    output_parts_read(&whole, &r, text, n, true);
    read_in_pieces(&pieces, &r, text, n, data[1]);
    CHECK(same(&whole.content, &pieces.content) && same(&whole.reasoning, &pieces.reasoning) &&
          whole.n_calls == pieces.n_calls);
    for (int i = 0; i < whole.n_calls; i++)
        CHECK(strcmp(whole.call[i].name, pieces.call[i].name) == 0 &&
              same(&whole.call[i].arguments, &pieces.call[i].arguments));
    output_parts_free(&whole);
    output_parts_free(&pieces);
    free(text);
    return 0;
}
