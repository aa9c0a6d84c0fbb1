/* shape_openai.c - completions and chats, as OpenAI's API has them; api_reply.h writes them */
#include <stdlib.h>

#include "base/mem.h"
#include "frontend/api_shape.h"

typedef struct {
    api_stream events;
    bool include_usage;
} stream;

static void *stream_new(const api_head *h, const api_usage *u)
{
    (void)u;
    stream *s = XNEW(stream);
    s->include_usage = h->include_usage;
    api_stream_init(&s->events, h, h->include_usage);
    return s;
}

static void stream_free(void *ctx)
{
    stream *s = ctx;
    api_stream_deinit(&s->events);
    free(s);
}

static void stream_add(void *ctx, buf *out, const api_choice *news)
{
    const api_stream *s = &((stream *)ctx)->events;
    if (s->chat && news->first)
        api_write_role(out, s, news->index);
    api_write_chunk(out, s, news);
}

static void stream_end(void *ctx, buf *out, const api_usage *u)
{
    const stream *s = ctx;
    if (s->include_usage)
        api_write_usage(out, &s->events, u);
    api_write_done(out);
}

static void stream_fail(void *ctx, buf *out, const api_error *e)
{
    (void)ctx;
    api_write_stream_error(out, e);
}

#define AS_IT_IS                                                                                                     \
    .write = api_write_response, .write_error = api_error_write, .stream_new = stream_new, .stream_add = stream_add, \
    .stream_end = stream_end, .stream_fail = stream_fail, .stream_free = stream_free

const api_shape shape_completions = {.id_prefix = "cmpl-", AS_IT_IS};
const api_shape shape_chat = {.id_prefix = "chatcmpl-", .chat = true, AS_IT_IS};
