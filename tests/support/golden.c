/* golden.c - see golden.h */
#include "support/golden.h"

#include <dirent.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/mem.h"
#include "engine/batch_builder.h"
#include "model/adapter.h"
#include "support/test.h"

static int golden_push_ids(int *out, const json_t *array)
{
    for (size_t i = 0; i < json_array_size(array); i++)
        out[i] = (int)json_integer_value(json_array_get(array, i));
    return (int)json_array_size(array);
}

lora *golden_adapter(const golden_set *g, const char *name)
{
    err e;
    char *path = xasprintf("%s/adapters/%s", g->dir, name);
    adapter *a = adapter_open(path, &g->m->config, &e);
    if (!a)
        fail_msg("%s", e.msg);
    lora *host = adapter_to_lora(a, g->be);
    adapter_close(a);
    free(path);
    return host;
}

static golden_case golden_read_case(const golden_set *g, const json_t *doc)
{
    const json_t *prompt = json_object_get(doc, "prompt"), *tokens = json_object_get(doc, "tokens");
    golden_case c = {.doc = doc, .token = XNEW_ARRAY(int, json_array_size(prompt) + json_array_size(tokens))};
    c.n_prompt = c.n_tokens = golden_push_ids(c.token, prompt);
    c.n_tokens += golden_push_ids(c.token + c.n_tokens, tokens);
    c.adapter = json_string_value(json_object_get(doc, "adapter"));
    if (c.adapter) {
        err e;
        lora *host = golden_adapter(g, c.adapter);
        if (!(c.lora = lora_upload(host, g->be, &e)))
            fail_msg("%s", e.msg);
        lora_free(host, NULL);
    }
    assert_int_equal(kv_pool_reserve(g->pool, &c.kv, c.n_tokens), 0);
    return c;
}

static void golden_make_kv(golden_set *g)
{
    err e;
    g->kv[0] = forward_kv(g->m, g->form, 1024, 16);
    if (forward_kv_alloc(g->m, g->kv, &e))
        fail_msg("%s", e.msg);
    g->pool = kv_pool_new(g->kv->n_pages, 0, g->kv->page_len);
}

golden_set golden_open(backend *be, const char *dir, kv_form form)
{
    err e;
    golden_set g = {.dir = xstrdup(dir), .be = be, .form = form};
    char *model_dir = path_join(dir, "model"), *golden_path = path_join(dir, "golden.json");
    g.m = model_load(be, model_dir, WEIGHTS_STORED, &e);
    g.doc = g.m ? json_read_file(golden_path, (size_t)64 << 20, &e) : NULL;
    if (!g.doc)
        fail_msg("%s", e.msg);
    golden_make_kv(&g);
    const json_t *list = json_object_get(g.doc, "cases");
    g.n = (int)json_array_size(list);
    g.at = XNEW_ARRAY(golden_case, (size_t)g.n);
    for (int i = 0; i < g.n; i++) {
        g.at[i] = golden_read_case(&g, json_array_get(list, (size_t)i));
        g.at[i].row = g.n_rows;
        g.n_rows += g.at[i].n_tokens;
    }
    assert_true(g.n > 0);
    free(golden_path);
    free(model_dir);
    return g;
}

void golden_close(golden_set *g)
{
    for (int i = 0; i < g->n; i++) {
        kv_pool_release(g->pool, &g->at[i].kv);
        lora_free(g->at[i].lora, g->be);
        free(g->at[i].token);
    }
    kv_pool_free(g->pool);
    forward_kv_release(g->m, g->kv);
    json_decref(g->doc);
    model_free(g->m);
    free(g->at);
    free(g->dir);
}

float *golden_run(golden_set *g)
{
    err e;
    batch_item *items = XNEW_ARRAY(batch_item, (size_t)g->n + 1);
    int *out_row = XNEW_ARRAY(int, (size_t)g->n_rows);
    for (int i = 0; i < g->n; i++)
        items[i] = (batch_item){.owner = &g->at[i],
                                .token = g->at[i].token,
                                .n_rows = g->at[i].n_tokens,
                                .kv = &g->at[i].kv,
                                .lora = g->at[i].lora};
    batch_builder *bb = batch_builder_new();
    batch b = *batch_build(bb, items, g->n, items + g->n, 0);
    for (int i = 0; i < g->n; i++) { /* the builder has sorted the items by adapter */
        const golden_case *c = items[i].owner;
        for (int k = 0; k < c->n_tokens; k++)
            out_row[c->row + k] = b.prefill_indptr[i] + k;
    }
    b.n_out = g->n_rows;
    b.out_row = out_row;
    forward *f = forward_new(
        g->m,
        &(forward_limits){g->n_rows, g->n_rows, g->n_rows, g->kv->n_pages, g->kv->page_len, 3 * LORA_MAX_RANK, g->form},
        &e);
    if (!f)
        fail_msg("%s", e.msg);
    size_t bytes = (size_t)g->n_rows * (size_t)g->m->config.vocab * sizeof(float);
    float *logits = xmalloc(bytes);
    g->be->ops->download(g->be, logits, forward_run(f, &b, g->kv)->data, bytes);
    if (g->be->ops->sync(g->be, &e))
        fail_msg("%s", e.msg);
    forward_free(f);
    batch_builder_free(bb);
    free(out_row);
    free(items);
    return logits;
}

engine_request golden_request(const golden_set *g, int i)
{
    const golden_case *c = &g->at[i];
    engine_request r = {.id = (uint64_t)i,
                        .arrival = (uint64_t)i,
                        .adapter = c->adapter,
                        .token = c->token,
                        .n_tokens = c->n_prompt,
                        .n_prompt = c->n_prompt,
                        .sampling = sampling_default()};
    r.sampling.max_tokens = c->n_tokens - c->n_prompt;
    r.sampling.ignore_eos = true;
    return r;
}

void golden_each_family(void (*check)(const char *dir, const char *family))
{
    const char *data = getenv("PUNICA_TEST_DATA");
    char *models = path_join(data ? data : TEST_DATA, "golden/models");
    int n = 0;
    DIR *families = opendir(models);
    assert_non_null(families);
    for (struct dirent *d; (d = readdir(families));) {
        if (d->d_name[0] == '.')
            continue;
        char *dir = path_join(models, d->d_name);
        check(dir, d->d_name);
        free(dir);
        n++;
    }
    closedir(families);
    free(models);
    assert_true(n >= 5);
}
