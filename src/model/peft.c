/* peft.c - see peft.h
 *
 * PEFT's rules, in the words of its configuration:
 *   target_modules, exclude_modules: a list holds whole names or endings after a dot; a string is a
 *     regular expression for the whole name; "all-linear" is every projection.
 *   layers_to_transform: keeps modules found by their ending whose layer number is listed; the
 *     number is the first after a component that layers_pattern (or anything) matches.
 *   rank_pattern, alpha_pattern: the first key, in the file's order, that as a regular expression
 *     matches the name or its ending after a dot.
 * Expressions are matched by PCRE2, which agrees with Python's re on names of modules. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "model/peft.h"

#include <float.h>
#include <math.h>
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "backend/batch.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/map.h"
#include "base/mem.h"
#include "model/config.h"

/* Real expressions need some hundred steps on a name and microseconds in all. */
#define MAX_STEPS 100000
#define MAX_SECONDS 3.0
#define MAX_EXPRESSION ((size_t)64 << 10)

/* Modules by list (names), by expression, or all linear ones; none of the three: no module. */
typedef struct {
    map *names;
    pcre2_code *expression;
    bool all_linear;
} module_set;

/* A key of rank_pattern or alpha_pattern. Keys of letters, digits, '_', '-' and '.' alone are
 * compared without the regex engine (expression NULL): there may be one for each module. */
typedef struct {
    const char *key;
    size_t key_len;
    pcre2_code *expression;
    double value;
} key_pattern;
typedef struct {
    key_pattern *items;
    size_t n;
} pattern_list;

struct peft_config {
    json_t *doc;
    module_set targets, excluded;
    bool by_layer, layers[MAX_LAYERS]; /* layers_to_transform, when by_layer */
    pcre2_code **layer_expressions;    /* [n_layer_expressions]; none: any component */
    size_t n_layer_expressions;
    int rank;
    double alpha;
    bool rslora;
    pattern_list ranks, alphas;
    const char *base_name;
    pcre2_match_context *limits;
    double deadline;
};

static const struct {
    const char *key, *why;
} refused[] = {
    {"use_dora", "DoRA is not supported"},
    {"modules_to_save", "it replaces whole modules of the base, which is not supported"},
    {"lora_bias", "a bias in lora_B is not supported"},
    {"fan_in_fan_out", "it was made for transposed base weights, which no supported model has"},
    {"trainable_token_indices", "it changes token embeddings, which is not supported"},
    {"layer_replication", "it repeats layers of the base, which is not supported"},
    {"megatron_config", "Megatron's parallel layers are not supported"},
    {"use_qalora", "QALoRA is not supported"},
    {"alora_invocation_tokens", "activated LoRA is not supported"},
    {"target_parameters", "adapting bare parameters is not supported"},
    {"use_bdlora", "block-diagonal LoRA is not supported"},
    {"arrow_config", "arrow routing is not supported"},
    {"kasa_config", "KaSA is not supported"},
    {"monteclora_config", "MonteCLoRA is not supported"},
};

/* Keys that have no effect on what a finished adapter computes: where it came from, how it was
 * trained or initialised (init_lora_weights is looked at on its own), or parameters of features that
 * are switched on by a key above. */
static const char *const harmless[] = {
    "auto_mapping",      "base_model_name_or_path",
    "corda_config",      "ensure_weight_tying",
    "eva_config",        "inference_mode",
    "loftq_config",      "lora_dropout",
    "lora_ga_config",    "megatron_core",
    "merge_weights",     "peft_version",
    "qalora_group_size", "revision",
    "runtime_config",    "task_type",
    "velora_config",
};

static const char *const understood[] = {
    "alpha_pattern",     "bias",           "exclude_modules",
    "init_lora_weights", "layers_pattern", "layers_to_transform",
    "lora_alpha",        "peft_type",      "r",
    "rank_pattern",      "target_modules", "use_rslora",
};

#define LENGTH(array) (sizeof(array) / sizeof(array)[0])

static bool is_in(const char *key, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(key, list[i]) == 0)
            return true;
    return false;
}

/* Returns whether a feature is used: null, false and empty all mean that it is not. */
static bool is_set(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_NULL:
    case JSON_FALSE: return false;
    case JSON_STRING: return json_string_length(v) > 0;
    case JSON_ARRAY: return json_array_size(v) > 0;
    case JSON_OBJECT: return json_object_size(v) > 0;
    default: return true;
    }
}

static int check_key(const char *key, const json_t *value, err *e)
{
    if (!is_set(value) || is_in(key, understood, LENGTH(understood)) || is_in(key, harmless, LENGTH(harmless)))
        return 0;
    for (size_t i = 0; i < LENGTH(refused); i++)
        if (strcmp(key, refused[i].key) == 0)
            return err_set(e, "\"%s\" is set: %s", key, refused[i].why);
    return err_set(e, "\"%.80s\" is set: its meaning is not known here, so the adapter might be served wrong", key);
}

static int check_keys(const json_t *doc, err *e)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)doc, key, value) if (check_key(key, value, e)) return -1;
    return 0;
}

static int check_kind(const json_t *doc, err *e)
{
    const char *type = "", *bias = "none";
    if (json_get_string(doc, "peft_type", &type, e) || json_get_string(doc, "bias", &bias, e))
        return -1;
    if (strcmp(type, "LORA") != 0)
        return err_set(e, "\"peft_type\" \"%.40s\" is not supported; LORA is", type);
    if (strcmp(bias, "none") != 0)
        return err_set(e, "\"bias\" is \"%.40s\": an adapter that changes biases is not supported", bias);
    return 0;
}

/* Some initialisations move part of the base weights into the adapter; it then fits only the changed
 * base, which is not in the adapter's files. (PEFT can convert such adapters when saving them, and
 * then sets init_lora_weights to true.) */
static int check_init(const json_t *doc, err *e)
{
    static const char *const plain[] = {"gaussian", "eva", "orthogonal", "mica"};
    const json_t *init = json_member(doc, "init_lora_weights");
    if (!init || json_is_boolean(init))
        return 0;
    const char *name = json_string_value(init);
    if (!name)
        return err_set(e, "\"init_lora_weights\" must be true, false or a name");
    for (size_t i = 0; i < LENGTH(plain); i++)
        if (strcasecmp(name, plain[i]) == 0)
            return 0;
    return err_set(e,
                   "\"init_lora_weights\" \"%.40s\" changes the base weights; save the adapter with "
                   "path_initial_model_for_weight_conversion to make it fit the plain base",
                   name);
}

static pcre2_code *compile(const char *text, size_t n, uint32_t options, const char *key, err *e)
{
    int code = 0;
    PCRE2_SIZE at = 0;
    if (n > MAX_EXPRESSION) {
        err_set(e, "\"%s\": a regular expression of %zu characters is too long", key, n);
        return NULL;
    }
    options |= PCRE2_ANCHORED | PCRE2_NEVER_UTF | PCRE2_NEVER_BACKSLASH_C;
    pcre2_code *re = pcre2_compile((PCRE2_SPTR)text, n, options, &code, &at, NULL);
    if (!re) {
        PCRE2_UCHAR why[120];
        pcre2_get_error_message(code, why, sizeof why);
        err_set(e, "\"%s\": \"%.120s\" is not a regular expression: %s", key, text, (const char *)why);
    }
    return re;
}

static int check_time(const peft_config *c, err *e)
{
    return clock_now() < c->deadline ? 0 : err_set(e, "the regular expressions in it take too long to match");
}

/* Returns whether re matches name: 1, 0, or -1 with e set. On 1 *group, unless group is NULL, is the number in the
 * group called "idx". */
static int match(const peft_config *c, const pcre2_code *re, const char *name, long *group, err *e)
{
    pcre2_match_data *m = pcre2_match_data_create_from_pattern(re, NULL);
    CHECK(m);
    int found = pcre2_match(re, (PCRE2_SPTR)name, strlen(name), 0, 0, m, c->limits);
    if (found >= 0 && group) {
        PCRE2_UCHAR digits[16];
        PCRE2_SIZE n = sizeof digits;
        bool fits = pcre2_substring_copy_byname(m, (PCRE2_SPTR) "idx", digits, &n) == 0;
        *group = fits ? strtol((const char *)digits, NULL, 10) : -1;
    }
    pcre2_match_data_free(m);
    if (found < 0 && found != PCRE2_ERROR_NOMATCH)
        return err_set(e, "one of the regular expressions in it is too costly to match");
    return check_time(c, e) ? -1 : found >= 0;
}

/* The text of a JSON string, or NULL if v is none or has a NUL in it. */
static const char *plain_string(const json_t *v)
{
    const char *s = json_string_value(v);
    return s && strlen(s) == json_string_length(v) ? s : NULL;
}

static int read_module_list(module_set *s, const json_t *list, const char *key, err *e)
{
    size_t i;
    const json_t *item;
    s->names = map_new(json_array_size(list));
    json_array_foreach((json_t *)list, i, item)
    {
        const char *name = plain_string(item);
        if (!name)
            return err_set(e, "\"%s\" must be a list of module names, or one string", key);
        map_put(s->names, name, strlen(name), 0);
    }
    return 0;
}

static int read_modules(module_set *s, const json_t *doc, const char *key, err *e)
{
    const json_t *v = json_member(doc, key);
    if (!v || !is_set(v))
        return 0;
    if (json_is_array(v))
        return read_module_list(s, v, key, e);
    const char *text = plain_string(v);
    if (!text)
        return err_set(e, "\"%s\" must be a list of module names, or one string", key);
    s->all_linear = strcasecmp(text, "all-linear") == 0;
    if (!s->all_linear)
        s->expression = compile(text, strlen(text), PCRE2_ENDANCHORED, key, e);
    return s->all_linear || s->expression ? 0 : -1;
}

static int read_targets(peft_config *c, err *e)
{
    if (read_modules(&c->targets, c->doc, "target_modules", e) ||
        read_modules(&c->excluded, c->doc, "exclude_modules", e))
        return -1;
    if (!c->targets.names && !c->targets.expression && !c->targets.all_linear)
        return err_set(e, "\"target_modules\" is missing or empty");
    if (c->excluded.all_linear)
        return err_set(e, "\"exclude_modules\" must be a list of module names, or a regular expression");
    return 0;
}

static int read_layer_number(peft_config *c, const json_t *v, err *e)
{
    double x = json_number_value(v);
    if (!json_is_number(v) || x < 0 || x != floor(x))
        return err_set(e, "\"layers_to_transform\" must be a layer number or a list of them");
    if (x < MAX_LAYERS)
        c->layers[(int)x] = true;
    return 0;
}

static int read_layers(peft_config *c, err *e)
{
    const json_t *v = json_member(c->doc, "layers_to_transform"), *item;
    c->by_layer = v && (!json_is_array(v) || json_array_size(v) > 0);
    if (!c->by_layer)
        return 0;
    if (!c->targets.names)
        return err_set(e, "\"layers_to_transform\" cannot go with \"target_modules\" that are a string");
    if (!json_is_array(v))
        return read_layer_number(c, v, e);
    size_t i;
    json_array_foreach((json_t *)v, i, item) if (read_layer_number(c, item, e)) return -1;
    return 0;
}

static int add_layer_expression(peft_config *c, const json_t *v, err *e)
{
    const char *text = plain_string(v);
    if (!text || strlen(text) > MAX_EXPRESSION)
        return err_set(e, "\"layers_pattern\" must be a string or a list of strings");
    char *whole = xasprintf("(?:^|.*?\\.)%s\\.(?P<idx>\\d+)\\.", text);
    pcre2_code *re = compile(whole, strlen(whole), 0, "layers_pattern", e);
    free(whole);
    if (!re)
        return -1;
    c->layer_expressions[c->n_layer_expressions++] = re;
    return 0;
}

static int read_layers_pattern(peft_config *c, err *e)
{
    const json_t *v = json_member(c->doc, "layers_pattern"), *item;
    if (!v || !is_set(v))
        return 0;
    if (!c->by_layer)
        return err_set(e, "\"layers_pattern\" is set, but \"layers_to_transform\" is not");
    size_t i, n = json_is_array(v) ? json_array_size(v) : 1;
    c->layer_expressions = XNEW_ARRAY(pcre2_code *, n);
    if (!json_is_array(v))
        return add_layer_expression(c, v, e);
    json_array_foreach((json_t *)v, i, item) if (add_layer_expression(c, item, e)) return -1;
    return 0;
}

static bool is_plain(const char *key)
{
    return key[strspn(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")] == 0;
}

static int read_pattern(key_pattern *p, const char *key, const json_t *value, const char *where, err *e)
{
    if (!json_is_number(value))
        return err_set(e, "\"%s\" of \"%.80s\" is not a number", where, key);
    *p = (key_pattern){.key = key, .key_len = strlen(key), .value = json_number_value(value)};
    if (is_plain(key))
        return 0;
    char *whole = xasprintf("(.*\\.)?(%s)$", key);
    p->expression = compile(whole, strlen(whole), 0, where, e);
    free(whole);
    return p->expression ? 0 : -1;
}

static int read_patterns(pattern_list *l, const json_t *doc, const char *where, err *e)
{
    json_t *all = json_member(doc, where), *value;
    if (all && !json_is_object(all))
        return err_set(e, "\"%s\" must be an object", where);
    l->items = XNEW_ARRAY(key_pattern, json_object_size(all));
    const char *key;
    json_object_foreach(all, key, value) if (read_pattern(&l->items[l->n++], key, value, where, e)) return -1;
    return 0;
}

static int read_scale(peft_config *c, err *e)
{
    long rank = 8;
    c->alpha = 8;
    if (json_get_int(c->doc, "r", 1, LORA_MAX_RANK, &rank, e) || json_get_double(c->doc, "lora_alpha", &c->alpha, e) ||
        json_get_bool(c->doc, "use_rslora", &c->rslora, e) || read_patterns(&c->ranks, c->doc, "rank_pattern", e) ||
        read_patterns(&c->alphas, c->doc, "alpha_pattern", e))
        return -1;
    c->rank = (int)rank;
    for (size_t i = 0; i < c->ranks.n; i++) {
        double r = c->ranks.items[i].value;
        if (!(r >= 1 && r <= LORA_MAX_RANK) || r != floor(r))
            return err_set(e, "\"rank_pattern\" gives \"%.80s\" rank %g; ranks are between 1 and %d",
                           c->ranks.items[i].key, r, LORA_MAX_RANK);
    }
    return 0;
}

static int read_all(peft_config *c, err *e)
{
    if (!json_is_object(c->doc))
        return err_set(e, "not a JSON object");
    c->base_name = "";
    if (check_kind(c->doc, e) || check_keys(c->doc, e) || check_init(c->doc, e) ||
        json_get_string(c->doc, "base_model_name_or_path", &c->base_name, e))
        return -1;
    return read_targets(c, e) || read_layers(c, e) || read_layers_pattern(c, e) || read_scale(c, e) ? -1 : 0;
}

peft_config *peft_config_parse(const char *text, size_t n, err *e)
{
    peft_config *c = XNEW(peft_config);
    c->deadline = clock_now() + MAX_SECONDS;
    c->limits = pcre2_match_context_create(NULL);
    CHECK(c->limits);
    pcre2_set_match_limit(c->limits, MAX_STEPS);
    c->doc = json_read_text(text, n, e);
    if (c->doc && read_all(c, e) == 0)
        return c;
    peft_config_free(c);
    return NULL;
}

static void free_modules(module_set *s)
{
    map_free(s->names);
    pcre2_code_free(s->expression);
}

static void free_patterns(pattern_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        pcre2_code_free(l->items[i].expression);
    free(l->items);
}

void peft_config_free(peft_config *c)
{
    if (!c)
        return;
    free_patterns(&c->alphas);
    free_patterns(&c->ranks);
    for (size_t i = 0; i < c->n_layer_expressions; i++)
        pcre2_code_free(c->layer_expressions[i]);
    free(c->layer_expressions);
    free_modules(&c->excluded);
    free_modules(&c->targets);
    pcre2_match_context_free(c->limits);
    json_decref(c->doc);
    free(c);
}

/* Returns whether the list has what follows one of the module's dots. */
static bool has_ending(const map *names, const char *module)
{
    for (const char *dot = strchr(module, '.'); dot; dot = strchr(dot + 1, '.'))
        if (map_get(names, dot + 1, strlen(dot + 1), NULL))
            return true;
    return false;
}

static bool has_name(const map *names, const char *module)
{
    return map_get(names, module, strlen(module), NULL);
}

static int is_excluded(const peft_config *c, const char *module, err *e)
{
    const module_set *s = &c->excluded;
    if (s->expression)
        return match(c, s->expression, module, NULL, e);
    return s->names && (has_name(s->names, module) || has_ending(s->names, module));
}

/* Returns whether the module's layer is one of layers_to_transform. 1, 0, or -1 with e set. */
static int in_layers(const peft_config *c, const char *module, err *e)
{
    long layer = -1;
    if (c->n_layer_expressions == 0 && sscanf(module, "model.layers.%ld.", &layer) != 1)
        return 0;
    for (size_t i = 0; i < c->n_layer_expressions; i++) {
        int found = match(c, c->layer_expressions[i], module, &layer, e);
        if (found < 0)
            return -1;
        if (found)
            break;
    }
    return layer >= 0 && layer < MAX_LAYERS && c->layers[layer];
}

static int is_target(const peft_config *c, const char *module, err *e)
{
    const module_set *s = &c->targets;
    if (s->all_linear)
        return strncmp(module, "model.layers.", strlen("model.layers.")) == 0;
    if (s->expression)
        return match(c, s->expression, module, NULL, e);
    if (has_name(s->names, module))
        return 1;
    if (!has_ending(s->names, module))
        return 0;
    return c->by_layer ? in_layers(c, module, e) : 1;
}

/* Returns whether a plain key, in which a dot stands for any character, is the module's name or its ending behind a
 * dot. */
static bool matches_plain(const key_pattern *p, const char *module, size_t module_len)
{
    if (p->key_len > module_len || (p->key_len < module_len && module[module_len - p->key_len - 1] != '.'))
        return false;
    const char *end = module + module_len - p->key_len;
    for (size_t i = 0; i < p->key_len; i++)
        if (p->key[i] != end[i] && p->key[i] != '.')
            return false;
    return true;
}

/* Sets *value to that of the first pattern that matches, if any does. -1 with e set. */
static int find_pattern(const peft_config *c, const pattern_list *l, const char *module, double *value, err *e)
{
    size_t module_len = strlen(module);
    for (size_t i = 0; i < l->n; i++) {
        const key_pattern *p = &l->items[i];
        int found = p->expression ? match(c, p->expression, module, NULL, e) : matches_plain(p, module, module_len);
        if (found < 0)
            return -1;
        if (found) {
            *value = p->value;
            return 0;
        }
    }
    return check_time(c, e);
}

int peft_config_lookup(const peft_config *c, const char *module, peft_module *out, err *e)
{
    *out = (peft_module){0};
    int excluded = is_excluded(c, module, e);
    if (excluded)
        return excluded < 0 ? -1 : 0;
    int target = is_target(c, module, e);
    if (target <= 0)
        return target;
    double rank = c->rank, alpha = c->alpha;
    if (find_pattern(c, &c->ranks, module, &rank, e) || find_pattern(c, &c->alphas, module, &alpha, e))
        return -1;
    double scale = alpha / (c->rslora ? sqrt(rank) : rank);
    if (!(fabs(scale) <= FLT_MAX))
        return err_set(e, "a lora_alpha of %g is too large", alpha);
    *out = (peft_module){.adapted = true, .rank = (int)rank, .scale = scale};
    return 0;
}

bool peft_config_rslora(const peft_config *c)
{
    return c->rslora;
}

const char *peft_config_base_name(const peft_config *c)
{
    return c->base_name;
}
