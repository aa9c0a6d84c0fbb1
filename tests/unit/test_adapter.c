/* test_adapter.c - PEFT adapters: what PEFT's configuration means, what is refused, and that the
 * backend form holds the same numbers */
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "base/buf.h"
#include "base/mem.h"
#include "model/adapter.h"
#include "model/model.h"
#include "support/holding_backend.h"
#include "support/model_files.h"
#include "support/test.h"

enum { HIDDEN = 8, HEADS = 4, KV = 2, DIM = 6, FFN = 10, LAYERS = 3 };

static const model_config base = {.family = "llama",
                                  .n_layers = LAYERS,
                                  .hidden = HIDDEN,
                                  .n_heads = HEADS,
                                  .n_kv_heads = KV,
                                  .head_dim = DIM,
                                  .ffn = FFN,
                                  .vocab = 16};

/* Tensors of an adapter of the modules whose "layer.name" stands in `modules`, comma separated;
 * "1.q_proj:4" gives rank 4 instead of 2. */
typedef struct {
    const char *modules;
    const char *extra;     /* name of one more tensor, [2] */
    const char *leave_out; /* the end of a tensor's name that is not written */
    const char *a, *b;     /* NULL: "lora_A.weight", "lora_B.weight" */
    dtype type;
    bool wrong_shape, not_finite; /* the first tensor */
} weights;

static void add(st_file *f, const weights *w, const char *module, const char *suffix, int rows, int cols)
{
    char *name = xasprintf("base_model.model.%s.%s", module, suffix);
    size_t n = strlen(name), end = w->leave_out ? strlen(w->leave_out) : 0, at = f->data.len;
    if (!end || n < end || strcmp(name + n - end, w->leave_out) != 0)
        st_add(f, name, w->type, rows + (w->wrong_shape && at == 0 ? 1 : 0), cols);
    if (w->not_finite && at == 0)
        memset(f->data.data + 4, 0xff, 4);
    free(name);
}

static buf make_weights(const weights *w)
{
    st_file f = {0};
    char *list = xstrdup(w->modules), *save = NULL;
    for (char *item = strtok_r(list, ",", &save); item; item = strtok_r(NULL, ",", &save)) {
        int layer = atoi(item), rank = strchr(item, ':') ? atoi(strchr(item, ':') + 1) : 2, site, part, in, out;
        char *name = xstrndup(strchr(item, '.') + 1, strcspn(strchr(item, '.') + 1, ":"));
        assert_true(model_find_proj(name, &site, &part));
        model_proj_shape(&base, site, part, &in, &out);
        const char *block, *same;
        model_proj_name(site, part, &block, &same);
        char *module = xasprintf("model.layers.%d.%s.%s", layer, block, name);
        add(&f, w, module, w->a ? w->a : "lora_A.weight", rank, in);
        add(&f, w, module, w->b ? w->b : "lora_B.weight", out, rank);
        free(module);
        free(name);
    }
    if (w->extra)
        st_add(&f, w->extra, DTYPE_F32, 0, 2);
    free(list);
    return st_finish(&f);
}

/* Members of adapter_config.json beside peft_type. */
static adapter *open_adapter(const char *members, const weights *w, buf *file, err *e)
{
    char *config = quoted(xasprintf("{'peft_type': 'LORA', %s}", members));
    *file = make_weights(w);
    adapter *a = adapter_open_memory("mine", config, strlen(config), file->data, file->len, &base, e);
    free(config);
    return a;
}

static void accepts(const char *members, const weights *w, const char *ranks)
{
    buf file, found = {0};
    err e = {{0}};
    adapter *a = open_adapter(members, w, &file, &e);
    if (!a)
        fail_msg("%s: %s", members, e.msg);
    for (int i = 0; i < LAYERS * N_SITES; i++)
        for (int p = 0; p < model_site_parts(i % N_SITES); p++)
            if (adapter_rank(a, i / N_SITES, i % N_SITES, p)) {
                const char *block, *name;
                model_proj_name(i % N_SITES, p, &block, &name);
                buf_printf(&found, "%d.%s:%d ", i / N_SITES, name, adapter_rank(a, i / N_SITES, i % N_SITES, p));
            }
    assert_string_equal(found.data, ranks);
    buf_free(&found);
    adapter_close(a);
    buf_free(&file);
}

static void refuses(const char *members, const weights *w, const char *why)
{
    buf file;
    err e = {{0}};
    adapter *a = open_adapter(members, w, &file, &e);
    if (a || !says(&e, why) || strncmp(e.msg, "mine: ", 6) != 0)
        fail_msg("%s: wanted \"%s\", got \"%s\"", members, why, a ? "success" : e.msg);
    buf_free(&file);
}

static void target_modules(void **state)
{
    (void)state;
    weights qv = {.modules = "0.q_proj,0.v_proj,1.q_proj,1.v_proj,2.q_proj,2.v_proj"};
    const char *all_qv = "0.q_proj:2 0.v_proj:2 1.q_proj:2 1.v_proj:2 2.q_proj:2 2.v_proj:2 ";
    accepts("'r': 2, 'target_modules': ['q_proj', 'v_proj']", &qv, all_qv);
    accepts("'r': 2, 'target_modules': ['self_attn.q_proj', 'v_proj', 'unknown']", &qv, all_qv);
    accepts("'r': 2, 'target_modules': '.*\\\\.(q|v)_proj'", &qv, all_qv);
    accepts("'r': 2, 'target_modules': ['q_proj', 'k_proj', 'v_proj'], 'exclude_modules': ['k_proj']", &qv, all_qv);
    accepts("'r': 2, 'target_modules': '.*self_attn.*', 'exclude_modules': '.*\\\\.[ko]_proj'", &qv, all_qv);
    accepts("'r': 2, 'target_modules': ['model.layers.1.mlp.up_proj']", &(weights){.modules = "1.up_proj"},
            "1.up_proj:2 ");
    accepts("'r': 2, 'target_modules': ['1.mlp.up_proj', '2.mlp.up_proj']",
            &(weights){.modules = "1.up_proj,2.up_proj"}, "1.up_proj:2 2.up_proj:2 ");
    accepts("'r': 2, 'target_modules': 'all-linear', 'exclude_modules': '.*layers\\\\.[12].*'",
            &(weights){.modules = "0.q_proj,0.k_proj,0.v_proj,0.o_proj,0.gate_proj,0.up_proj,0.down_proj"},
            "0.q_proj:2 0.k_proj:2 0.v_proj:2 0.o_proj:2 0.gate_proj:2 0.up_proj:2 0.down_proj:2 ");
    refuses("'r': 2, 'target_modules': ['q_proj']", &qv, "does not target");
    refuses("'r': 2, 'target_modules': ['q_proj', 'v_proj', 'o_proj']", &qv, "lora_A and lora_B are missing");
    refuses("'r': 2, 'target_modules': '(q|v)_proj'", &qv, "does not target"); /* not the whole name */
    refuses("'r': 2, 'target_modules': ['proj']", &qv, "does not target");
    refuses("'r': 2, 'target_modules': ['q_proj', 'v_proj', 'lm_head']", &qv, "targets lm_head");
    refuses("'r': 2, 'target_modules': ['q_proj', 'v_proj', 'embed_tokens']", &qv, "embed_tokens");
    refuses("'r': 2, 'target_modules': []", &qv, "target_modules");
    refuses("'r': 2", &qv, "target_modules");
    refuses("'r': 2, 'target_modules': [1]", &qv, "target_modules");
    refuses("'r': 2, 'target_modules': '(q_proj'", &qv, "not a regular expression");
    refuses("'r': 2, 'target_modules': '(([a-z.0-9_]+)+)+[!?]'", &qv, "too costly");
    refuses("'r': 2, 'target_modules': ['c_attn']", &(weights){.modules = ""}, "match none");
}

static void layers(void **state)
{
    (void)state;
    weights one = {.modules = "1.q_proj"}, two = {.modules = "0.q_proj,2.q_proj"};
    accepts("'r': 2, 'target_modules': ['q_proj'], 'layers_to_transform': 1", &one, "1.q_proj:2 ");
    accepts("'r': 2, 'target_modules': ['q_proj'], 'layers_to_transform': [2, 0, 77], 'layers_pattern': null", &two,
            "0.q_proj:2 2.q_proj:2 ");
    accepts("'r': 2, 'target_modules': ['q_proj'], 'layers_to_transform': [1], 'layers_pattern': 'layers'", &one,
            "1.q_proj:2 ");
    accepts("'r': 2, 'target_modules': ['q_proj'], 'layers_to_transform': [1], 'layers_pattern': ['h', 'lay.rs']", &one,
            "1.q_proj:2 ");
    accepts("'r': 2, 'target_modules': ['model.layers.1.self_attn.q_proj'], 'layers_to_transform': [0]", &one,
            "1.q_proj:2 ");
    refuses("'r': 2, 'target_modules': ['q_proj'], 'layers_to_transform': [1], 'layers_pattern': 'h'", &one,
            "not target");
    refuses("'r': 2, 'target_modules': ['q_proj'], 'layers_to_transform': [0]", &one, "layers.0.self_attn.q_proj");
    refuses("'r': 2, 'target_modules': ['q_proj'], 'layers_to_transform': [-1]", &one, "layers_to_transform");
    refuses("'r': 2, 'target_modules': ['q_proj'], 'layers_to_transform': '1'", &one, "layers_to_transform");
    refuses("'r': 2, 'target_modules': '.*q_proj', 'layers_to_transform': 1", &one, "layers_to_transform");
    refuses("'r': 2, 'target_modules': ['q_proj'], 'layers_pattern': 'layers'", &one, "layers_pattern");
    refuses("'r': 2, 'target_modules': ['q_proj'], 'layers_to_transform': 1, 'layers_pattern': '('", &one,
            "layers_pattern");
}

static void patterns(void **state)
{
    (void)state;
    weights w = {.modules = "0.q_proj:4,0.v_proj:2,1.q_proj:4,1.v_proj:3,2.q_proj:5,2.v_proj:2"};
    const char *ranks = "0.q_proj:4 0.v_proj:2 1.q_proj:4 1.v_proj:3 2.q_proj:5 2.v_proj:2 ";
    const char *qv = "'r': 2, 'target_modules': ['q_proj', 'v_proj']";
    static const char *const same[] = {
        "{'layers.2.self_attn.q_proj': 5, 'model.layers.1.self_attn.v_proj': 3, 'q_proj': 4}",
        "{'^model.layers.2.self_attn.q_proj': 5, '.*1.*v_proj': 3, '(q_proj|k_proj)': 4}",
        "{'2.self.attn.q_proj': 5, '1\\\\.[a-z_]+\\\\.v_proj': 3, 'q_proj': 4, 'self_attn.q_proj': 6}",
    };
    for (int i = 0; i < 3; i++) {
        char *members = xasprintf("%s, 'rank_pattern': %s", qv, same[i]);
        accepts(members, &w, ranks);
        free(members);
    }
    char *members = xasprintf("%s, 'rank_pattern': {'q_proj': 4, '1.self_attn.v_proj': 3, "
                              "'layers.2.self_attn.q_proj': 5}",
                              qv);
    refuses(members, &w, "rank 4 make it [4, 8]"); /* the first that matches counts */
    free(members);
    refuses("'target_modules': ['q_proj'], 'rank_pattern': {'q_proj': 0}", &w, "between 1 and 512");
    refuses("'target_modules': ['q_proj'], 'rank_pattern': {'q_proj': 2.5}", &w, "between 1 and 512");
    refuses("'target_modules': ['q_proj'], 'rank_pattern': {'q_proj': 513}", &w, "between 1 and 512");
    refuses("'target_modules': ['q_proj'], 'rank_pattern': {'q_proj': true}", &w, "rank_pattern");
    refuses("'target_modules': ['q_proj'], 'rank_pattern': {'[': 4}", &w, "rank_pattern");
    refuses("'target_modules': ['q_proj'], 'rank_pattern': [4]", &w, "rank_pattern");
    refuses("'target_modules': ['q_proj'], 'alpha_pattern': {'q_proj': '4'}", &w, "alpha_pattern");
}

static void scales(void **state)
{
    (void)state;
    weights w = {.modules = "0.q_proj:4,1.q_proj:4,2.q_proj:4"};
    static const struct {
        const char *members;
        double min, max;
    } cases[] = {
        {"'lora_alpha': 16", 4, 4},
        {"'lora_alpha': 1.5", 0.375, 0.375},
        {"'task_type': 'CAUSAL_LM'", 2, 2}, /* PEFT's default alpha of 8 */
        {"'lora_alpha': 16, 'use_rslora': true", 8, 8},
        {"'lora_alpha': 16, 'alpha_pattern': {'layers.1.self_attn.q_proj': 2, '0.*': 32}", 0.5, 8},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *members = xasprintf("'r': 4, 'target_modules': ['q_proj'], %s", cases[i].members);
        buf file;
        err e = {{0}};
        adapter *a = open_adapter(members, &w, &file, &e);
        if (!a)
            fail_msg("%s", e.msg);
        assert_float_equal(adapter_describe(a)->scale_min, cases[i].min, 1e-12);
        assert_float_equal(adapter_describe(a)->scale_max, cases[i].max, 1e-12);
        adapter_close(a);
        buf_free(&file);
        free(members);
    }
    refuses("'r': 4, 'target_modules': ['q_proj'], 'lora_alpha': 1e300", &w, "too large");
    refuses("'r': 4, 'target_modules': ['q_proj'], 'lora_alpha': '16'", &w, "lora_alpha");
}

static void refused_configurations(void **state)
{
    (void)state;
    weights w = {.modules = "0.q_proj,1.q_proj,2.q_proj"};
    static const struct {
        const char *member, *why;
    } cases[] = {
        {"'use_dora': true", "DoRA"},
        {"'modules_to_save': ['lm_head']", "modules_to_save"},
        {"'bias': 'all'", "bias"},
        {"'lora_bias': true", "lora_bias"},
        {"'fan_in_fan_out': true", "fan_in_fan_out"},
        {"'trainable_token_indices': [1]", "trainable_token_indices"},
        {"'layer_replication': [[0, 1]]", "layer_replication"},
        {"'megatron_config': {'a': 1}", "megatron_config"},
        {"'use_qalora': true", "QALoRA"},
        {"'alora_invocation_tokens': [5]", "alora_invocation_tokens"},
        {"'target_parameters': ['a']", "target_parameters"},
        {"'arrow_config': {'top_k': 3}", "arrow_config"},
        {"'use_bdlora': {'nblocks': 2}", "use_bdlora"},
        {"'init_lora_weights': 'pissa_niter_16'", "pissa_niter_16"},
        {"'init_lora_weights': 'olora'", "olora"},
        {"'init_lora_weights': 'loftq'", "loftq"},
        {"'init_lora_weights': 1", "init_lora_weights"},
        {"'some_new_feature': true", "some_new_feature"},
        {"'some_number': 0.5", "some_number"},
        {"'r': 0", "between 1 and 512"},
        {"'r': 100000", "between 1 and 512"},
        {"'r': 99999999999999999999", "between 1 and 512"},
        {"'r': '8'", "integer"},
        {"'use_rslora': 1", "use_rslora"},
        {"'peft_type': 'LOHA'", "duplicate"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *members = xasprintf("'target_modules': ['q_proj'], %s", cases[i].member);
        refuses(members, &w, cases[i].why);
        free(members);
    }
    accepts("'r': 2, 'target_modules': ['q_proj'], 'use_dora': false, 'modules_to_save': null, 'bias': 'none', "
            "'trainable_token_indices': null, 'loftq_config': {}, 'eva_config': null, "
            "'megatron_core': 'megatron.core', 'lora_dropout': 0.1, 'init_lora_weights': 'gaussian', "
            "'peft_version': '0.21', 'newer': null, "
            "'qalora_group_size': 16, 'auto_mapping': {'a': 'b'}, 'inference_mode': true",
            &w, "0.q_proj:2 1.q_proj:2 2.q_proj:2 ");
}

static void refused_weights(void **state)
{
    (void)state;
    const char *q = "'r': 2, 'target_modules': ['q_proj']";
    const char *all = "0.q_proj,1.q_proj,2.q_proj";
    static const struct {
        const char *name, *why;
    } extras[] = {
        {"base_model.model.model.embed_tokens.lora_embedding_A", "embedding"},
        {"base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector", "DoRA"},
        {"base_model.model.lm_head.weight", "lm_head"},
        {"base_model.model.model.embed_tokens.weight", "embed_tokens"},
        {"base_model.model.model.layers.0.self_attn.q_proj.base_layer.weight", "weight of the base"},
        {"base_model.model.model.layers.0.self_attn.q_proj.lora_B.bias", "bias"},
        {"base_model.model.model.layers.3.self_attn.q_proj.lora_A.weight", "the base has 3 layers"},
        {"base_model.model.model.layers.00.self_attn.q_proj.lora_A.weight", "is not lora_A"},
        {"base_model.model.model.layers.99999999999999999999.self_attn.q_proj.lora_A.weight", "is not lora_A"},
        {"base_model.model.model.layers.0.self_attn.q_proj.lora_A.default.weight", "same place"},
        {"base_model.model.model.layers.0.self_attn.q_proj.lora_A.a.b.weight", "is not lora_A"},
        {"base_model.model.model.layers.0.mlp.q_proj.lora_A.weight", "is not lora_A"},
        {"base_model.model.transformer.h.0.attn.c_attn.lora_A.weight", "is not lora_A"},
        {"", "is not lora_A"},
    };
    for (size_t i = 0; i < sizeof extras / sizeof extras[0]; i++)
        refuses(q, &(weights){.modules = all, .extra = extras[i].name}, extras[i].why);
    refuses(q, &(weights){.modules = all, .leave_out = "1.self_attn.q_proj.lora_B.weight"}, "its lora_B is missing");
    refuses(q, &(weights){.modules = all, .leave_out = "1.self_attn.q_proj.lora_A.weight"}, "its lora_A is missing");
    refuses(q, &(weights){.modules = all, .wrong_shape = true}, "is [3, 8]; the base and rank 2 make it [2, 8]");
    refuses(q, &(weights){.modules = all, .not_finite = true}, "NaN");
    refuses(q, &(weights){.modules = all, .not_finite = true, .type = DTYPE_F16}, "NaN");
    refuses("'r': 3, 'target_modules': ['q_proj']", &(weights){.modules = all}, "rank 3 make it [3, 8]");
    accepts(q, &(weights){.modules = all, .a = "lora_A.default.weight", .b = "lora_B.default.weight"},
            "0.q_proj:2 1.q_proj:2 2.q_proj:2 ");
}

static void described(void **state)
{
    (void)state;
    buf file;
    err e = {{0}};
    weights w = {.modules = "0.q_proj,0.down_proj,2.q_proj,2.down_proj:5", .type = DTYPE_BF16};
    adapter *a = open_adapter("'r': 2, 'lora_alpha': 3, 'target_modules': ['q_proj', 'down_proj'], "
                              "'layers_to_transform': [0, 2], 'rank_pattern': {'2.mlp.down_proj': 5}, "
                              "'base_model_name_or_path': 'org/base'",
                              &w, &file, &e);
    if (!a)
        fail_msg("%s", e.msg);
    const adapter_info *f = adapter_describe(a);
    assert_int_equal(f->rank_min, 2);
    assert_int_equal(f->rank_max, 5);
    assert_int_equal(f->n_projections, 4);
    assert_int_equal(f->n_layers, 2);
    assert_true(f->has[SITE_QKV][0] && f->has[SITE_DOWN][0] && !f->has[SITE_O][0] && !f->mixed_types);
    assert_int_equal(f->n_params, 2 * 2 * (HIDDEN + HEADS * DIM) + (2 + 5) * (FFN + HIDDEN));
    assert_int_equal(f->bytes, 2 * f->n_params);
    assert_int_equal(f->type, DTYPE_BF16);
    assert_string_equal(f->base_name, "org/base");
    assert_int_equal(strlen(f->digest), 64);
    adapter_close(a);
    buf_free(&file);
}

/* What st_add gave element i of a tensor that begins at this byte of the data. */
static double value(size_t i, size_t at)
{
    return 1 + (double)((i * 37 + at) % 128) / 128;
}

static float element(const tensor *t, size_t row, size_t col)
{
    size_t i = row * (size_t)t->cols + col;
    if (t->type == DTYPE_F32)
        return ((float *)t->data)[i];
    uint16_t h = ((uint16_t *)t->data)[i];
    /* all values are in [1, 2), so the mantissa is enough */
    return t->type == DTYPE_BF16 ? 1 + (float)(h & 0x7f) / 128 : 1 + (float)(h & 0x3ff) / 1024;
}

/* Ranks below, at and beyond the size of the squares in which B is transposed. */
static void backend_form(void **state)
{
    (void)state;
    static const int ranks[] = {1, 3, 4, 7, 8, 13, 16, 33};
    for (int i = 0; i < 3 * 8; i++) {
        int type = i / 8, rank = ranks[i % 8];
        buf file;
        err e = {{0}};
        char *modules = xasprintf("1.q_proj,1.v_proj:%d,1.down_proj", rank);
        char *members = xasprintf("'r': 2, 'target_modules': ['q_proj', 'v_proj', 'down_proj'], 'lora_alpha': 4, "
                                  "'layers_to_transform': [1], 'rank_pattern': {'v_proj': %d}",
                                  rank);
        weights w = {.modules = modules, .type = (dtype)type};
        adapter *a = open_adapter(members, &w, &file, &e);
        if (!a)
            fail_msg("%s", e.msg);
        backend be = {.ops = &holding_backend_ops, .owns_host_memory = true};
        lora *l = adapter_to_lora(a, &be);
        assert_int_equal(l->n_sites, LAYERS * N_SITES);
        assert_int_equal(l->max_rank_sum, 2 + rank);
        const lora_part *v = &l->site[N_SITES + SITE_QKV].part[2];
        assert_int_equal(l->site[N_SITES + SITE_QKV].part[1].rank, 0);
        assert_int_equal(l->site[SITE_QKV].part[2].rank, 0);
        assert_int_equal(v->rank, rank);
        assert_float_equal(v->scale, 4.0 / rank, 1e-6);
        assert_true(v->b.rows == rank && v->b.cols == KV * DIM && v->a.rows == rank && v->a.cols == HIDDEN);
        assert_int_equal((uintptr_t)v->a.data % 64 + (uintptr_t)v->b.data % 64, 0);
        /* in the file lora_A and lora_B of q come first, then lora_A of v, then its lora_B */
        size_t size = dtype_size(w.type), a_at = (2 * HIDDEN + HEADS * DIM * 2) * size,
               b_at = a_at + (size_t)rank * HIDDEN * size;
        for (size_t r = 0; r < (size_t)rank; r++) {
            for (size_t c = 0; c < KV * DIM; c++)
                assert_float_equal(element(&v->b, r, c), value(c * (size_t)rank + r, b_at), 1e-6);
            for (size_t c = 0; c < HIDDEN; c++)
                assert_float_equal(element(&v->a, r, c), value(r * HIDDEN + c, a_at), 1e-6);
        }
        lora_free(l, NULL);
        adapter_close(a);
        buf_free(&file);
        free(modules);
        free(members);
    }
}

static void random_adapters(void **state)
{
    (void)state;
    backend be = {.ops = &holding_backend_ops, .owns_host_memory = true};
    err e;
    lora *l = lora_random(&base, 1, 3, DTYPE_BF16, 1), *again = lora_upload(l, &be, &e);
    assert_true(again && l->bytes == again->bytes && l->data != again->data);
    assert_memory_equal(l->site[1].part[0].b.data, again->site[1].part[0].b.data, 2 * 3 * HIDDEN);
    assert_int_equal(l->max_rank_sum, 9);
    for (int i = 0; i < l->n_sites; i++)
        for (int p = 0; p < 3; p++)
            assert_int_equal(l->site[i].part[p].rank, p < model_site_parts(i % N_SITES) ? 3 : 0);
    lora_free(l, NULL);
    lora_free(again, &be);
    lora_free(NULL, &be);
}

static void directories(void **state)
{
    (void)state;
    char *dir = make_dir();
    err e = {{0}};
    assert_null(adapter_open("/nonexistent/adapter", &base, &e));
    assert_true(says(&e, "not a directory"));
    assert_null(adapter_open(dir, &base, &e));
    assert_true(says(&e, "adapter_config.json"));
    put_text(dir, "adapter_config.json", "{'peft_type': 'LORA', 'r': 2, 'target_modules': ['q_proj']}");
    assert_null(adapter_open(dir, &base, &e));
    assert_true(says(&e, "adapter_model.safetensors"));
    put_text(dir, "adapter_model.bin", "x");
    assert_null(adapter_open(dir, &base, &e));
    assert_true(says(&e, "adapter_model.bin is not read"));
    buf file = make_weights(&(weights){.modules = "0.q_proj,1.q_proj,2.q_proj"});
    put_file(dir, "adapter_model.safetensors", file.data, file.len);
    adapter *a = adapter_open(dir, &base, &e);
    if (!a)
        fail_msg("%s", e.msg);
    adapter_close(a);
    put_file(dir, "adapter_model.safetensors", file.data, file.len - 3);
    assert_null(adapter_open(dir, &base, &e));
    assert_true(says(&e, "truncated"));
    buf_free(&file);
    drop_dir(dir);
}

/* A digest that is remembered is not computed again, for as long as the files are the same; of files that were written
 * a moment ago none is remembered. */
static void known_digests(void **state)
{
    (void)state;
    static const char *const names[MEMO_FILES] = {"adapter_config.json", "adapter_model.safetensors"};
    char *dir = make_dir();
    err e = {{0}};
    put_text(dir, names[0], "{'peft_type': 'LORA', 'r': 2, 'target_modules': ['q_proj']}");
    buf file = make_weights(&(weights){.modules = "0.q_proj,1.q_proj,2.q_proj"}),
        other = make_weights(&(weights){.modules = "0.q_proj,1.q_proj,2.q_proj", .type = DTYPE_F16});
    put_file(dir, names[1], file.data, file.len);
    digest_memo *memo = digest_memo_new();
    digest d, marked = {{1, 2, 3}};
    char hex[DIGEST_HEX];
    digest_to_hex(&marked, hex);
    memo_stamp is;
    adapter *a = adapter_open_again(dir, &base, memo, &e);
    assert_int_equal(memo_stamp_of(&is, dir, names), 0);
    assert_true(a && !digest_memo_find(memo, dir, &is, &d));
    adapter_close(a);
    digest_memo_keep(memo, dir, &is, &marked);
    a = adapter_open_again(dir, &base, memo, &e);
    assert_string_equal(adapter_describe(a)->digest, hex);
    adapter_close(a);
    put_file(dir, names[1], other.data, other.len);
    a = adapter_open_again(dir, &base, memo, &e);
    assert_string_not_equal(adapter_describe(a)->digest, hex);
    adapter_close(a);
    memset(&is.file[0].changed, 0, sizeof is.file[0].changed);
    assert_false(memo_stamp_is_old(&is));
    memset(&is.file[1].changed, 0, sizeof is.file[1].changed);
    assert_true(memo_stamp_is_old(&is));
    digest_memo_free(memo);
    buf_free(&file);
    buf_free(&other);
    drop_dir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(target_modules),
        cmocka_unit_test(layers),
        cmocka_unit_test(patterns),
        cmocka_unit_test(scales),
        cmocka_unit_test(refused_configurations),
        cmocka_unit_test(refused_weights),
        cmocka_unit_test(described),
        cmocka_unit_test(backend_form),
        cmocka_unit_test(random_adapters),
        cmocka_unit_test(directories),
        cmocka_unit_test(known_digests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
