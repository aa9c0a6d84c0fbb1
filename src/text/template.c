/* template.c - see template.h */
#include "text/template.h"

#include <stdint.h>
#include <string.h>

#include "text/component.h"

#define MAX_ITEMS 1024

typedef struct {
    template *t;
    bool has_template;
} template_reading;

static void insert(template *t, size_t at, int id)
{
    ids_add(&t->items, id);
    for (size_t i = t->items.n - 1; i > at; i--)
        t->items.items[i] = t->items.items[i - 1];
    t->items.items[at] = id;
}

static void remove_at(template *t, size_t at)
{
    t->items.n--;
    for (size_t i = at; i < t->items.n; i++)
        t->items.items[i] = t->items.items[i + 1];
}

/* {"id": NAME, "ids": [...], "tokens": [...]} under "special_tokens". */
static int add_special(template *t, const json_t *specials, const char *name, err *e)
{
    const json_t *list = json_object_get(json_object_get(specials, name), "ids");
    if (!json_is_array(list))
        return err_set(e, "\"special_tokens\" has no ids for \"%s\"", name);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *id = json_array_get(list, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= INT32_MAX)
            return err_set(e, "\"special_tokens\": \"%s\" has an id that is none", name);
        ids_add(&t->items, (int)json_integer_value(id));
    }
    return 0;
}

/* {"SpecialToken": {"id": NAME, "type_id": 0}} or {"Sequence": {"id": "A", "type_id": 0}}. */
static int add_piece(template *t, const json_t *piece, const json_t *specials, err *e)
{
    const char *special = json_string_value(json_object_get(json_object_get(piece, "SpecialToken"), "id"));
    const char *sequence = json_string_value(json_object_get(json_object_get(piece, "Sequence"), "id"));
    if (json_object_size(piece) != 1 || (!special && (!sequence || strcmp(sequence, "A") != 0)))
        return err_set(e, "\"single\" may hold only SpecialToken and Sequence A");
    if (special)
        return add_special(t, specials, special, e);
    for (size_t i = 0; i < t->items.n; i++)
        if (t->items.items[i] == TEMPLATE_TEXT)
            return err_set(e, "\"single\" has the text twice");
    ids_add(&t->items, TEMPLATE_TEXT);
    return 0;
}

static int read_template(template *t, const json_t *spec, err *e)
{
    const json_t *single = json_object_get(spec, "single");
    if (component_keys(spec, "type single pair special_tokens", e))
        return -1;
    if (!json_is_array(single))
        return err_set(e, "\"single\" must be an array");
    t->items.n = 0;
    for (size_t i = 0; i < json_array_size(single); i++) {
        if (add_piece(t, json_array_get(single, i), json_object_get(spec, "special_tokens"), e))
            return -1;
        if (t->items.n > MAX_ITEMS)
            return err_set(e, "more than %d items", MAX_ITEMS);
    }
    return 0;
}

static int add_step(void *self, const char *type, const json_t *spec, err *e)
{
    template_reading *r = self;
    if (strcmp(type, "ByteLevel") == 0) /* it only moves offsets, which we do not compute */
        return component_keys(spec, "type add_prefix_space trim_offsets use_regex", e);
    if (strcmp(type, "TemplateProcessing") != 0)
        return err_set(e, "this type is not supported");
    if (r->has_template)
        return err_set(e, "there can be only one");
    r->has_template = true;
    return read_template(r->t, spec, e);
}

int template_init(template *t, const json_t *spec, err *e)
{
    *t = (template){0};
    ids_add(&t->items, TEMPLATE_TEXT);
    template_reading r = {.t = t};
    if (component_each(spec, "post_processor", "processors", add_step, &r, e) == 0)
        return 0;
    template_deinit(t);
    return -1;
}

void template_deinit(template *t)
{
    ids_free(&t->items);
}

void template_set_first(template *t, int id, bool present)
{
    bool there = t->items.n > 0 && t->items.items[0] == id;
    if (present && !there)
        insert(t, 0, id);
    if (!present && there)
        remove_at(t, 0);
}

void template_set_last(template *t, int id, bool present)
{
    bool there = t->items.n > 0 && t->items.items[t->items.n - 1] == id;
    if (present && !there)
        insert(t, t->items.n, id);
    if (!present && there)
        remove_at(t, t->items.n - 1);
}
