/* test_config.c - config.json of every family and both generations, and what is refused */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "model/config.h"
#include "support/model_files.h"
#include "support/test.h"

#define SIZES "'hidden_size': 64, 'intermediate_size': 96, 'num_hidden_layers': 4, 'vocab_size': 320"
#define LLAMA "'model_type': 'llama', 'num_attention_heads': 4, " SIZES

/* Parse {members}; generation may be NULL. */
static int parse(model_config *c, const char *members, const char *generation, err *e)
{
    char *text = quoted(xasprintf("{%s}", members)), *second = generation ? quoted(xstrdup(generation)) : NULL;
    int status = model_config_parse(c, text, strlen(text), second, second ? strlen(second) : 0, e);
    free(second);
    free(text);
    return status;
}

static model_config good(const char *members, const char *generation)
{
    model_config c;
    err e;
    if (parse(&c, members, generation, &e))
        fail_msg("%s: %s", members, e.msg);
    return c;
}

static void refuses(const char *members, const char *why)
{
    model_config c;
    err e = {{0}};
    if (parse(&c, members, NULL, &e) == 0 || !says(&e, why) || strncmp(e.msg, "config.json: ", 13) != 0)
        fail_msg("%s: wanted \"%s\", got \"%s\"", members, why, e.msg);
    assert_null(c.layer_slides);
}

static void defaults(void **state)
{
    (void)state;
    model_config c = good(LLAMA, NULL);
    assert_string_equal(c.family, "llama");
    assert_true(c.hidden == 64 && c.ffn == 96 && c.n_layers == 4 && c.vocab == 320 && c.max_positions == 2048);
    assert_true(c.n_heads == 4 && c.n_kv_heads == 4 && c.head_dim == 16);
    assert_true(c.rope == ROPE_PLAIN && c.rope_theta == 10000 && c.window == 0);
    assert_false(c.tie_embeddings || c.qkv_bias || c.o_bias || c.mlp_bias || c.qk_norm);
    assert_float_equal(c.rms_eps, 1e-6, 1e-12);
    assert_true(c.bos == 1 && c.n_eos == 1 && c.eos[0] == 2 && c.type == DTYPE_F32);
    model_config_deinit(&c);
}

static void families(void **state)
{
    (void)state;
    model_config c = good(LLAMA ", 'num_key_value_heads': 2, 'head_dim': 24, 'attention_bias': true, "
                                "'mlp_bias': true, 'tie_word_embeddings': true, 'rms_norm_eps': 1e-05, "
                                "'torch_dtype': 'bfloat16'",
                          NULL);
    assert_true(c.n_kv_heads == 2 && c.head_dim == 24 && c.qkv_bias && c.o_bias && c.mlp_bias && c.tie_embeddings);
    assert_true(c.type == DTYPE_BF16 && c.rms_eps == 1e-5f);
    model_config_deinit(&c);
    c = good("'model_type': 'qwen2', 'num_attention_heads': 4, 'dtype': 'float16', " SIZES, NULL);
    assert_true(c.qkv_bias && !c.o_bias && !c.qk_norm && c.type == DTYPE_F16 && c.bos == -1 && c.n_eos == 0);
    model_config_deinit(&c);
    c = good("'model_type': 'qwen3', 'num_attention_heads': 4, " SIZES, NULL);
    assert_true(!c.qkv_bias && c.qk_norm && c.head_dim == 128);
    model_config_deinit(&c);
    refuses("'model_type': 'gpt2'", "'gpt2' is not supported; supported: llama, mistral, qwen2, qwen3");
    refuses(SIZES, "model_type");
    refuses("'model_type': 3", "model_type");
}

static void sliding_windows(void **state)
{
    (void)state;
#define MISTRAL "'model_type': 'mistral', 'num_attention_heads': 4, " SIZES
#define QWEN "'model_type': 'qwen2', 'num_attention_heads': 4, " SIZES
    static const struct {
        const char *members;
        int window;
        const char *slides;
    } cases[] = {
        {MISTRAL, 4096, "1111"},
        {MISTRAL ", 'sliding_window': null", 0, "0000"},
        {MISTRAL ", 'sliding_window': 7", 7, "1111"},
        {QWEN ", 'sliding_window': 7", 0, "0000"},
        {QWEN ", 'sliding_window': 7, 'use_sliding_window': true", 7, "0000"},
        {QWEN ", 'sliding_window': 7, 'use_sliding_window': true, 'max_window_layers': 3", 7, "0001"},
        {QWEN ", 'sliding_window': 7, 'use_sliding_window': true, 'max_window_layers': 3, "
              "'layer_types': ['sliding_attention', 'full_attention', 'full_attention', 'sliding_attention']",
         7, "1001"},
        {QWEN ", 'layer_types': ['full_attention', 'full_attention', 'full_attention', 'full_attention']", 0, "0000"},
        {LLAMA ", 'sliding_window': 7", 0, "0000"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        model_config c = good(cases[i].members, NULL);
        assert_int_equal(c.window, cases[i].window);
        for (int k = 0; k < 4; k++)
            assert_int_equal(c.layer_slides[k], cases[i].slides[k] == '1');
        model_config_deinit(&c);
    }
    refuses(MISTRAL ", 'sliding_window': 0", "sliding_window");
    refuses(MISTRAL ", 'layer_types': ['full_attention']", "layer_types");
    refuses(MISTRAL ", 'layer_types': [1, 2, 3, 4]", "layer_types");
    refuses(MISTRAL ", 'layer_types': ['linear_attention', 'a', 'b', 'c']", "linear_attention");
    refuses(QWEN ", 'layer_types': ['full_attention', 'full_attention', 'full_attention', 'sliding_attention']",
            "no 'sliding_window' is in force");
}

static void both_generations_of_rope(void **state)
{
    (void)state;
    static const char *const same[] = {
        LLAMA
        ", 'rope_theta': 500000.0, 'max_position_embeddings': 131072, 'rope_scaling': {'rope_type': 'llama3', "
        "'factor': 8.0, 'low_freq_factor': 1.0, 'high_freq_factor': 4.0, 'original_max_position_embeddings': 8192}",
        LLAMA ", 'rope_theta': 500000, 'rope_scaling': {'type': 'llama3', 'factor': 8, 'low_freq_factor': 1, "
              "'high_freq_factor': 4, 'original_max_position_embeddings': 8192}",
        LLAMA ", 'max_position_embeddings': 8192, 'rope_parameters': {'rope_type': 'llama3', 'rope_theta': 500000.0, "
              "'factor': 8.0, 'low_freq_factor': 1.0, 'high_freq_factor': 4.0}",
    };
    for (int i = 0; i < 3; i++) {
        model_config c = good(same[i], NULL);
        assert_true(c.rope == ROPE_LLAMA3 && c.rope_theta == 500000 && c.rope_factor == 8);
        assert_true(c.rope_low == 1 && c.rope_high == 4 && c.rope_original == 8192);
        model_config_deinit(&c);
    }
    model_config c = good(LLAMA ", 'rope_parameters': {'rope_type': 'default', 'rope_theta': 7000}, "
                                "'rope_scaling': null",
                          NULL);
    assert_true(c.rope == ROPE_PLAIN && c.rope_theta == 7000);
    model_config_deinit(&c);
    c = good(LLAMA ", 'rope_scaling': {'type': 'linear', 'factor': 2.5}", NULL);
    assert_true(c.rope == ROPE_LINEAR && c.rope_factor == 2.5);
    model_config_deinit(&c);
    static const struct {
        const char *rope, *why;
    } bad[] = {
        {"{'type': 'yarn', 'factor': 4}", "'yarn'"},
        {"{'rope_type': 'dynamic', 'factor': 4}", "'dynamic'"},
        {"{'rope_type': 'longrope'}", "'longrope'"},
        {"{'rope_type': 'linear'}", "needs 'factor'"},
        {"{'rope_type': 'linear', 'factor': 0}", "factor"},
        {"{'rope_type': 'linear', 'factor': '2'}", "factor"},
        {"{'rope_type': 'llama3', 'factor': 8}", "low_freq_factor"},
        {"{'rope_type': 'llama3', 'factor': 8, 'low_freq_factor': 4, 'high_freq_factor': 4}", "must be larger"},
        {"{'rope_theta': -1}", "rope_theta"},
        {"{'partial_rotary_factor': 0.5}", "partial_rotary_factor"},
        {"{'full_attention': {'rope_theta': 1}}", "by layer type"},
        {"7", "must be an object"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char *members = xasprintf("%s, '%s': %s", LLAMA, i % 2 ? "rope_scaling" : "rope_parameters", bad[i].rope);
        refuses(members, bad[i].why);
        free(members);
    }
}

/* Reference values: Transformers' formula evaluated in float32 (theta 500000, head_dim 128, factor 8, low 1,
 * high 4, original 8192). */
static void frequencies(void **state)
{
    (void)state;
    static const struct {
        int i;
        double value;
    } wanted[] = {
        {0, 1.0},
        {1, 0.814617217},
        {20, 0.0165604409},
        {28, 0.00321144611},
        {29, 0.00216657063},
        {30, 0.00137189368},
        {31, 0.00085675146},
        {32, 0.000524846022},
        {33, 0.00031269365},
        {34, 0.000178507791},
        {35, 9.5562129e-05},
        {36, 7.78465546e-05},
        {40, 3.42810235e-05},
        {63, 3.06892588e-07},
    };
    model_config c = {.head_dim = 128,
                      .rope_theta = 500000,
                      .rope = ROPE_LLAMA3,
                      .rope_factor = 8,
                      .rope_low = 1,
                      .rope_high = 4,
                      .rope_original = 8192};
    float f[64], plain[64];
    model_config_inv_freq(&c, f);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        assert_true(fabs(f[wanted[i].i] - wanted[i].value) < 2e-6 * wanted[i].value);
    c.rope = ROPE_PLAIN;
    model_config_inv_freq(&c, plain);
    assert_true(fabs(plain[63] / f[63] - 8) < 1e-5);
    c.rope = ROPE_LINEAR;
    model_config_inv_freq(&c, f);
    for (int i = 0; i < 64; i++)
        assert_true(fabs(plain[i] / f[i] - 8) < 1e-5);
}

static void end_tokens(void **state)
{
    (void)state;
    model_config c =
        good(LLAMA ", 'bos_token_id': 5, 'eos_token_id': [7, 8]", "{'eos_token_id': [8, 9, 400], 'bos_token_id': 6}");
    assert_true(c.bos == 6 && c.n_eos == 3 && c.eos[0] == 7 && c.eos[1] == 8 && c.eos[2] == 9);
    model_config_deinit(&c);
    c = good(LLAMA ", 'bos_token_id': null, 'eos_token_id': null", "{}");
    assert_true(c.bos == -1 && c.n_eos == 0);
    model_config_deinit(&c);
    c = good(LLAMA, "{'eos_token_id': 9}");
    assert_true(c.n_eos == 1 && c.eos[0] == 9);
    model_config_deinit(&c);
    refuses(LLAMA ", 'eos_token_id': '</s>'", "eos_token_id");
    refuses(LLAMA ", 'eos_token_id': [[2]]", "eos_token_id");
    refuses(LLAMA ", 'eos_token_id': -2", "eos_token_id");
    refuses(LLAMA ", 'eos_token_id': [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]", "more than 16");
    err e = {{0}};
    assert_int_equal(parse(&c, LLAMA, "[]", &e), -1);
    assert_true(says(&e, "generation_config.json"));
    assert_int_equal(parse(&c, LLAMA, "", &e), -1);
}

static void bad_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *members, *why;
    } cases[] = {
        {"'num_attention_heads': 0", "num_attention_heads"},
        {"'num_attention_heads': '4'", "integer"},
        {"'num_attention_heads': 5", "not a multiple of 'num_attention_heads'"},
        {"'num_attention_heads': 64, 'head_dim': 3", "even"},
        {"'num_attention_heads': 64", "even"},
        {"'num_attention_heads': 4, 'num_key_value_heads': 3", "num_key_value_heads"},
        {"'num_attention_heads': 4, 'num_key_value_heads': 0", "num_key_value_heads"},
        {"'num_attention_heads': 1048576, 'head_dim': 1024", "wide"},
        {"'num_attention_heads': 4, 'head_dim': 99999999", "head_dim"},
        {"'num_attention_heads': 4, 'rms_norm_eps': -1", "rms_norm_eps"},
        {"'num_attention_heads': 4, 'hidden_act': 'gelu'", "gelu"},
        {"'num_attention_heads': 4, 'partial_rotary_factor': 0.25", "partial_rotary_factor"},
        {"'num_attention_heads': 4, 'torch_dtype': 'float8_e4m3fn'", "float8_e4m3fn"},
        {"'num_attention_heads': 4, 'tie_word_embeddings': 1", "tie_word_embeddings"},
        {"'num_attention_heads': 4, 'max_position_embeddings': 0", "max_position_embeddings"},
        {"'num_attention_heads': 4, 'rope_theta': 1e400", "overflow"},
        {"'num_attention_heads': 99999999999999999999999", "between"},
        {"'num_hidden_layers': 5", "duplicate"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *members = xasprintf("'model_type': 'llama', %s, %s", SIZES, cases[i].members);
        refuses(members, cases[i].why);
        free(members);
    }
    refuses("'model_type': 'llama', 'hidden_size': 64", "'intermediate_size' is missing");
    refuses("'model_type': 'llama', 'hidden_size': 64.5", "'hidden_size' must be an integer");
    refuses("'model_type': 'llama', 'hidden_size': 2000000", "between 1 and 1048576");
}

#define CT(group, more) \
    "'quantization_config': {'quant_method': 'compressed-tensors', 'config_groups': {'group_0': {" group "}}" more "}"
#define FLOATS "'weights': {'num_bits': 8, 'type': 'float', 'symmetric': true, 'strategy': "
#define FORMAT ", 'format': 'float-quantized', 'ignore': ['lm_head']"

static void quantisation(void **state)
{
    (void)state;
    static const struct {
        const char *members;
        quant_kind kind;
        const char *scale;
    } good[] = {
        {"'quantization_config': null", QUANT_NONE, NULL},
        {CT(FLOATS "'tensor'}, 'input_activations': {'dynamic': false}", FORMAT), QUANT_TENSOR, "weight_scale"},
        {CT(FLOATS "'channel'}, 'output_activations': null", FORMAT ", 'kv_cache_scheme': null"), QUANT_CHANNEL,
         "weight_scale"},
        {CT(FLOATS "'block', 'block_structure': [128, 128]}", FORMAT), QUANT_BLOCK, "weight_scale"},
        {"'quantization_config': {'quant_method': 'fp8', 'weight_block_size': [128, 128], 'activation_scheme': "
         "'dynamic', 'fmt': 'e4m3'}",
         QUANT_BLOCK, "weight_scale_inv"},
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        model_config c;
        err e = {{0}};
        char *members = xasprintf(LLAMA ", %s", good[i].members);
        if (parse(&c, members, NULL, &e))
            fail_msg("case %zu: %s", i, e.msg);
        assert_int_equal(c.quant, good[i].kind);
        assert_true(!good[i].scale ? !c.quant_scale : strcmp(c.quant_scale, good[i].scale) == 0);
        model_config_deinit(&c);
        free(members);
    }
    static const struct {
        const char *members, *why;
    } bad[] = {
        {"'quantization_config': 8", "must be an object"},
        {"'quantization_config': {'bits': 4}", "'quant_method' '' is not supported"},
        {"'quantization_config': {'quant_method': 'awq', 'bits': 4}",
         "'quantization_config': 'quant_method' 'awq' is not supported"},
        {CT(FLOATS "'channel'}", ", 'format': 'int-quantized'"), "format 'int-quantized'"},
        {CT(FLOATS "'group', 'group_size': 128}", FORMAT), "'strategy' 'group'"},
        {CT(FLOATS "'block', 'block_structure': [64, 128]}", FORMAT), "'block_structure' must be [128, 128]"},
        {CT(FLOATS "'block'}", FORMAT), "'block_structure' must be [128, 128]"},
        {CT("'weights': {'num_bits': 4, 'type': 'float', 'strategy': 'channel'}", FORMAT), "4 bits"},
        {CT("'weights': {'num_bits': 8, 'type': 'int', 'strategy': 'channel'}", FORMAT), "'int'"},
        {CT("'weights': {'num_bits': 8, 'type': 'float', 'symmetric': false, 'strategy': 'channel'}", FORMAT),
         "not symmetric"},
        {CT("'weights': null", FORMAT), "'weights' must be an object"},
        {CT(FLOATS "'channel'}, 'output_activations': {'num_bits': 8}", FORMAT), "output_activations"},
        {CT(FLOATS "'channel'}", FORMAT ", 'kv_cache_scheme': {'num_bits': 8}"), "kv_cache_scheme"},
        {"'quantization_config': {'quant_method': 'compressed-tensors', 'format': 'float-quantized'}", "config_groups"},
        {"'quantization_config': {'quant_method': 'fp8', 'weight_block_size': [64, 64]}", "must be [128, 128]"},
        {"'quantization_config': {'quant_method': 'fp8'}", "'weight_block_size' must be [128, 128]"},
        {"'quantization_config': {'quant_method': 'fp8', 'weight_block_size': [128, 128], 'activation_scheme': "
         "'static'}",
         "'static'"},
        {"'quantization_config': {'quant_method': 'fp8', 'weight_block_size': [128, 128], 'fmt': 'e5m2'}", "e5m2"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char *members = xasprintf(LLAMA ", %s", bad[i].members);
        refuses(members, bad[i].why);
        free(members);
    }
}

static void files(void **state)
{
    (void)state;
    char *dir = make_dir();
    model_config c;
    err e = {{0}};
    assert_int_equal(model_config_read(&c, dir, &e), -1);
    assert_true(says(&e, "config.json"));
    put_text(dir, "config.json", "{" LLAMA "}");
    assert_int_equal(model_config_read(&c, dir, &e), 0);
    model_config_deinit(&c);
    put_text(dir, "generation_config.json", "{'eos_token_id': 3}");
    assert_int_equal(model_config_read(&c, dir, &e), 0);
    assert_int_equal(c.eos[0], 3);
    model_config_deinit(&c);
    put_text(dir, "generation_config.json", "");
    assert_int_equal(model_config_read(&c, dir, &e), -1);
    assert_true(says(&e, "/generation_config.json: not valid JSON"));
    put_text(dir, "config.json", "[]");
    assert_int_equal(model_config_read(&c, dir, &e), -1);
    assert_true(says(&e, "/config.json: not a JSON object"));
    drop_dir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),        cmocka_unit_test(families),
        cmocka_unit_test(sliding_windows), cmocka_unit_test(both_generations_of_rope),
        cmocka_unit_test(frequencies),     cmocka_unit_test(end_tokens),
        cmocka_unit_test(bad_numbers),     cmocka_unit_test(quantisation),
        cmocka_unit_test(files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
