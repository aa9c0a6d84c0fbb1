/* test_load.c - model_load: what is bound where, and which checkpoints are refused */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "base/buf.h"
#include "base/fp8.h"
#include "base/mem.h"
#include "model/model.h"
#include "support/holding_backend.h"
#include "support/model_files.h"
#include "support/test.h"

enum { HIDDEN = 8, HEADS = 4, KV = 2, DIM = 6, FFN = 10, VOCAB = 12, LAYERS = 2 };

/* What to do differently from a good checkpoint. */
typedef struct {
    const char *leave_out, *wrong_shape, *wrong_dtype, *not_finite; /* names of tensors, or NULL */
    const char *extra;
    const char *prefix; /* NULL: "model." */
    const char *config; /* members that follow the usual ones */
    dtype type;
    const char *scale_shape; /* of projections, which are then F8; NULL: they are as all else */
    const char *scale_name;  /* NULL: "weight_scale" */
} variant;

static const char *scale_name(const variant *v)
{
    return v->scale_name ? v->scale_name : "weight_scale";
}

/* MODULE.weight of numbers 1, 2, 3 ... 8 in F8, and its scales, 1, 2, 3 ... in F32. */
static void add_f8(st_file *f, const variant *v, const char *module, int rows, int cols)
{
    char name[128], shape[32];
    snprintf(name, sizeof name, "%s.weight", module);
    snprintf(shape, sizeof shape, "[%d, %d]", rows, cols);
    size_t n = (size_t)rows * (size_t)cols, at = st_add_raw(f, name, "F8_E4M3", shape, n);
    for (size_t i = 0; i < n; i++)
        f->data.data[at + i] = (char)e4m3_of_float((float)(1 + i % 8));
    if (v->not_finite && strcmp(name, v->not_finite) == 0)
        f->data.data[at + 3] = (char)0xff;
    snprintf(name, sizeof name, "%s.%s", module, scale_name(v));
    if (v->leave_out && strcmp(name, v->leave_out) == 0)
        return;
    bool per_row = strcmp(v->scale_shape, "rows") == 0;
    snprintf(shape, sizeof shape, "[%d, 1]", rows);
    size_t n_scales = per_row ? (size_t)rows : 1;
    at = st_add_raw(f, name, "F32", per_row ? shape : v->scale_shape, 4 * n_scales);
    for (size_t i = 0; i < n_scales; i++) {
        float scale = v->not_finite && strcmp(name, v->not_finite) == 0 ? INFINITY : (float)(1 + i);
        memcpy(f->data.data + at + 4 * i, &scale, 4);
    }
    snprintf(name, sizeof name, "%s.input_scale", module);
    st_add(f, name, DTYPE_F32, 0, 1);
}

static void add(st_file *f, const variant *v, const char *name, int rows, int cols)
{
    if (v->leave_out && strcmp(name, v->leave_out) == 0)
        return;
    if (v->wrong_dtype && strcmp(name, v->wrong_dtype) == 0) {
        char shape[32];
        snprintf(shape, sizeof shape, "[%d, %d]", rows, cols);
        st_add_raw(f, name, "I8", shape, (size_t)rows * (size_t)cols);
        return;
    }
    size_t at = f->data.len;
    st_add(f, name, v->type, rows, v->wrong_shape && strcmp(name, v->wrong_shape) == 0 ? cols + 2 : cols);
    if (v->not_finite && strcmp(name, v->not_finite) == 0)
        memset(f->data.data + at + dtype_size(v->type), 0xff, dtype_size(v->type));
}

static void add_layer(st_file *f, const variant *v, const char *prefix, int layer, bool qwen3)
{
    static const struct {
        const char *name;
        int rows, cols;
    } tensors[] = {
        {"self_attn.q_proj", HEADS * DIM, HIDDEN},
        {"self_attn.k_proj", KV * DIM, HIDDEN},
        {"self_attn.v_proj", KV * DIM, HIDDEN},
        {"self_attn.o_proj", HIDDEN, HEADS * DIM},
        {"mlp.gate_proj", FFN, HIDDEN},
        {"mlp.up_proj", FFN, HIDDEN},
        {"mlp.down_proj", HIDDEN, FFN},
        {"input_layernorm", 0, HIDDEN},
        {"post_attention_layernorm", 0, HIDDEN},
        {"self_attn.q_norm", 0, DIM},
        {"self_attn.k_norm", 0, DIM},
    };
    for (int i = 0; i < (qwen3 ? 11 : 9); i++) {
        char name[96];
        snprintf(name, sizeof name, "%slayers.%d.%s", prefix, layer, tensors[i].name);
        if (v->scale_shape && strstr(name, "_proj")) {
            add_f8(f, v, name, tensors[i].rows, tensors[i].cols);
            continue;
        }
        snprintf(name, sizeof name, "%slayers.%d.%s.weight", prefix, layer, tensors[i].name);
        add(f, v, name, tensors[i].rows, tensors[i].cols);
    }
}

static char *make_model(const variant *v)
{
    const char *prefix = v->prefix ? v->prefix : "model.";
    bool qwen3 = v->config && strstr(v->config, "qwen3");
    bool tied = v->config && strstr(v->config, "'tie_word_embeddings': true");
    st_file f = {0};
    char name[64];
    snprintf(name, sizeof name, "%sembed_tokens.weight", prefix);
    add(&f, v, name, VOCAB, HIDDEN);
    snprintf(name, sizeof name, "%snorm.weight", prefix);
    add(&f, v, name, 0, HIDDEN);
    if (!tied)
        add(&f, v, "lm_head.weight", VOCAB, HIDDEN);
    for (int i = 0; i < LAYERS; i++)
        add_layer(&f, v, prefix, i, qwen3);
    if (v->extra)
        st_add(&f, v->extra, v->type, 0, 4);
    char *dir = make_dir(),
         *config =
             xasprintf("{'hidden_size': %d, 'num_attention_heads': %d, 'num_key_value_heads': %d, 'head_dim': %d, "
                       "'intermediate_size': %d, 'vocab_size': %d, 'num_hidden_layers': %d, %s}",
                       HIDDEN, HEADS, KV, DIM, FFN, VOCAB, LAYERS, v->config ? v->config : "'model_type': 'llama'");
    buf file = st_finish(&f);
    put_file(dir, "model.safetensors", file.data, file.len);
    put_text(dir, "config.json", config);
    buf_free(&file);
    free(config);
    return dir;
}

static void binds_every_family_and_type(void **state)
{
    (void)state;
    static const char *const configs[] = {
        "'model_type': 'llama'",
        "'model_type': 'qwen3'",
        "'model_type': 'mistral', 'sliding_window': null, 'tie_word_embeddings': true",
    };
    for (int i = 0; i < 9; i++) {
        variant v = {.config = configs[i / 3],
                     .type = (dtype)(i % 3),
                     .prefix = i == 4 ? "" : NULL,
                     .extra = "model.layers.0.self_attn.rotary_emb.inv_freq"};
        char *dir = make_model(&v);
        backend be = {.ops = &holding_backend_ops, .owns_host_memory = true};
        err e = {{0}};
        model *m = model_load(&be, dir, WEIGHTS_STORED, &e);
        if (!m)
            fail_msg("%s", e.msg);
        const model_layer *l = &m->rank[0].layer[1];
        assert_int_equal(l->site[SITE_QKV].n, 3);
        assert_int_equal(l->site[SITE_QKV].part[1].w.rows, KV * DIM);
        assert_int_equal(l->site[SITE_O].part[0].w.cols, HEADS * DIM);
        assert_int_equal(l->site[SITE_DOWN].part[0].w.type, v.type);
        assert_int_equal(l->mlp_norm.type, DTYPE_F32);
        assert_int_equal(l->q_norm.data != NULL, i / 3 == 1);
        assert_null(l->site[SITE_QKV].part[0].bias.data);
        assert_int_equal(m->rank[0].lm_head.part[0].w.data == m->rank[0].embed.data, i / 3 == 2);
        /* the same values whatever the stored type */
        size_t embed_bytes = VOCAB * HIDDEN * dtype_size(v.type);
        const float *norm = m->rank[0].final_norm.data;
        for (size_t k = 0; k < HIDDEN; k++)
            assert_float_equal(norm[k], 1 + (double)((k * 37 + embed_bytes) % 128) / 128, 0);
        assert_float_equal(m->rank[0].inv_freq[0], 1, 0);
        model_free(m);
        drop_dir(dir);
    }
}

#define FP8(strategy)                                                                                 \
    "'model_type': 'llama', 'quantization_config': {'quant_method': 'compressed-tensors', 'format': " \
    "'float-quantized', "                                                                             \
    "'config_groups': {'g': {'weights': {'num_bits': 8, 'type': 'float', 'strategy': '" strategy "'}}}}"
#define BLOCKS "'model_type': 'llama', 'quantization_config': {'quant_method': 'fp8', 'weight_block_size': [128, 128]}"

/* Scales of each kind, and what becomes of them. */
static void binds_fp8(void **state)
{
    (void)state;
    static const struct {
        const char *config, *shape, *name;
    } kinds[] = {{FP8("tensor"), "[1]", NULL},
                 {FP8("tensor"), "[]", NULL},
                 {FP8("channel"), "rows", NULL},
                 {BLOCKS, "[1, 1]", "weight_scale_inv"}};
    for (int i = 0; i < 4; i++) {
        variant v = {
            .config = kinds[i].config, .type = DTYPE_BF16, .scale_shape = kinds[i].shape, .scale_name = kinds[i].name};
        char *dir = make_model(&v);
        backend be = {.ops = &holding_backend_ops, .owns_host_memory = true};
        err e = {{0}};
        model *m = model_load(&be, dir, WEIGHTS_FP8, &e); /* they are already: nothing changes */
        if (!m)
            fail_msg("kind %d: %s", i, e.msg);
        const proj *k = &m->rank[0].layer[1].site[SITE_QKV].part[1];
        assert_int_equal(k->w.type, DTYPE_F8);
        assert_true(k->scale.type == DTYPE_F32 && k->scale.rows == 1 && k->scale.cols == KV * DIM);
        for (int n = 0; n < KV * DIM; n++)
            assert_float_equal(((const float *)k->scale.data)[n], i == 2 ? n + 1 : 1, 0);
        assert_int_equal(m->rank[0].lm_head.part[0].w.type, DTYPE_BF16);
        model_free(m);
        drop_dir(dir);
    }
}

/* With WEIGHTS_FP8 each row's largest number becomes 448, and all are within half a step of what they were. */
static void quantises(void **state)
{
    (void)state;
    for (int type = 0; type < 3; type++) {
        variant v = {.type = (dtype)type};
        char *dir = make_model(&v);
        backend be = {.ops = &holding_backend_ops, .owns_host_memory = true};
        err e = {{0}};
        model *was = model_load(&be, dir, WEIGHTS_STORED, &e), *is = model_load(&be, dir, WEIGHTS_FP8, &e);
        assert_non_null(was);
        assert_non_null(is);
        assert_true(is->weight_bytes < was->weight_bytes);
        assert_int_equal(is->rank[0].lm_head.part[0].w.type, type);
        for (int s = 0; s < N_SITES; s++)
            for (int p = 0; p < is->rank[0].layer[1].site[s].n; p++) {
                const proj *from = &was->rank[0].layer[1].site[s].part[p], *to = &is->rank[0].layer[1].site[s].part[p];
                float *x = XNEW_ARRAY(float, (size_t)from->w.rows *(size_t)from->w.cols);
                tensor_convert(x, DTYPE_F32, &from->w);
                assert_true(to->w.type == DTYPE_F8 && to->w.rows == from->w.rows && to->scale.cols == from->w.rows);
                for (int i = 0; i < from->w.rows * from->w.cols; i++) {
                    float scale = ((const float *)to->scale.data)[i / from->w.cols];
                    float stored = e4m3_to_float(((const uint8_t *)to->w.data)[i]);
                    assert_true(fabsf(stored * scale - x[i]) <= x[i] / 16 * 1.0001f && fabsf(stored) <= 448);
                }
                free(x);
            }
        model_free(was);
        model_free(is);
        drop_dir(dir);
    }
}

static void refuses_what_does_not_fit(void **state)
{
    (void)state;
    static const struct {
        variant v;
        const char *why[2];
    } cases[] = {
        {{.leave_out = "model.layers.1.mlp.up_proj.weight"}, {"model.layers.1.mlp.up_proj.weight", "missing"}},
        {{.leave_out = "lm_head.weight"}, {"lm_head.weight", "missing"}},
        {{.leave_out = "model.embed_tokens.weight"}, {"embed_tokens.weight", "missing"}},
        {{.wrong_shape = "model.layers.0.self_attn.k_proj.weight"}, {"is [12, 10]", "must be [12, 8]"}},
        {{.wrong_shape = "model.norm.weight"}, {"model.norm.weight", "must be [8]"}},
        {{.wrong_dtype = "model.layers.0.self_attn.k_proj.weight"}, {"k_proj", "is I8"}},
        {{.not_finite = "model.layers.1.mlp.down_proj.weight"}, {"layers.1.mlp.down_proj", "NaN"}},
        {{.not_finite = "model.layers.0.input_layernorm.weight", .type = DTYPE_F16}, {"input_layernorm", "NaN"}},
        {{.not_finite = "lm_head.weight", .type = DTYPE_BF16}, {"lm_head", "NaN"}},
        {{.extra = "model.layers.0.self_attn.q_proj.bias"}, {"q_proj.bias", "no place"}},
        {{.extra = "model.layers.2.input_layernorm.weight"}, {"layers.2", "2 layers"}},
        {{.scale_shape = "rows"}, {"q_proj.weight", "is F8_E4M3; only F32, F16 and BF16 are supported"}},
        {{.config = FP8("channel"), .scale_shape = "rows", .leave_out = "model.layers.0.mlp.up_proj.weight_scale"},
         {"layers.0.mlp.up_proj.weight_scale", "missing"}},
        {{.config = FP8("channel"), .scale_shape = "[1]"}, {"q_proj.weight_scale", "must be [24, 1]"}},
        {{.config = FP8("channel"), .scale_shape = "[]"}, {"q_proj.weight_scale", "must be [24, 1]"}},
        {{.config = FP8("tensor"), .scale_shape = "rows"}, {"q_proj.weight_scale", "must be [1]"}},
        {{.config = BLOCKS, .scale_shape = "rows", .scale_name = "weight_scale_inv"},
         {"q_proj.weight_scale_inv", "must be [1, 1]"}},
        {{.config = BLOCKS, .scale_shape = "[1, 1]"}, {"q_proj.weight_scale_inv", "missing"}},
        {{.config = FP8("tensor"), .scale_shape = "[1]", .not_finite = "model.layers.1.mlp.down_proj.weight_scale"},
         {"layers.1.mlp.down_proj.weight_scale", "NaN or infinity"}},
        {{.config = FP8("tensor"), .scale_shape = "[1]", .not_finite = "model.layers.1.mlp.down_proj.weight"},
         {"layers.1.mlp.down_proj.weight", "NaN or infinity"}},
        {{.config = FP8("tensor"), .scale_shape = "[1]", .extra = "model.layers.1.mlp.down_proj.zero_point"},
         {"zero_point", "no place"}},
        {{.config = "'model_type': 'qwen2'"}, {"q_proj.bias", "missing"}},
        {{.config = "'model_type': 'llama', 'mlp_bias': true"}, {"gate_proj.bias", "missing"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *dir = make_model(&cases[i].v);
        backend be = {.ops = &holding_backend_ops, .owns_host_memory = true};
        err e = {{0}};
        assert_null(model_load(&be, dir, WEIGHTS_STORED, &e));
        if (!says(&e, cases[i].why[0]) || !says(&e, cases[i].why[1]))
            fail_msg("case %zu: \"%s\"", i, e.msg);
        drop_dir(dir);
    }
}

static void absent_directory(void **state)
{
    (void)state;
    backend be = {.ops = &holding_backend_ops, .owns_host_memory = true};
    err e = {{0}};
    assert_null(model_load(&be, "/nonexistent/model", WEIGHTS_STORED, &e));
    assert_true(says(&e, "not a directory"));
}

static void projections_have_names_and_shapes(void **state)
{
    (void)state;
    model_config c = {.hidden = HIDDEN, .n_heads = HEADS, .n_kv_heads = KV, .head_dim = DIM, .ffn = FFN};
    int site, part, in, out, n = 0;
    for (int s = 0; s < N_SITES; s++)
        for (int p = 0; p < model_site_parts(s); p++, n++) {
            const char *block, *name;
            model_proj_name(s, p, &block, &name);
            assert_true(model_find_proj(name, &site, &part) && site == s && part == p);
        }
    assert_int_equal(n, 7);
    assert_false(model_find_proj("lm_head", &site, &part));
    model_proj_shape(&c, SITE_QKV, 2, &in, &out);
    assert_true(in == HIDDEN && out == KV * DIM);
    model_proj_shape(&c, SITE_DOWN, 0, &in, &out);
    assert_true(in == FFN && out == HIDDEN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(binds_every_family_and_type),
        cmocka_unit_test(binds_fp8),
        cmocka_unit_test(quantises),
        cmocka_unit_test(refuses_what_does_not_fit),
        cmocka_unit_test(absent_directory),
        cmocka_unit_test(projections_have_names_and_shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
