/* served_model.c - see served_model.h */
#include "cli/served_model.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "model/adapter.h"
#include "model/model_id.h"
#include "text/utf8.h"

/* Returns the last part of the path, without slashes at its end; the caller frees. */
static char *name_of(const char *dir)
{
    size_t end = strlen(dir);
    while (end > 1 && dir[end - 1] == '/')
        end--;
    size_t start = end;
    while (start > 0 && dir[start - 1] != '/')
        start--;
    return xstrndup(dir + start, end - start);
}

int served_model_read(served_model *m, const char *dir, const char *name, err *e)
{
    *m = (served_model){0};
    if (model_config_read(&m->config, dir, e))
        return -1;
    m->name = name ? xstrdup(name) : name_of(dir);
    m->id = model_id_of(dir, e);
    if (m->id && (!m->name[0] || !utf8_is_valid(m->name, strlen(m->name))))
        err_set(e, "the model needs a name in UTF-8: --name NAME");
    else if (m->id)
        return 0;
    served_model_deinit(m);
    return -1;
}

void served_model_deinit(served_model *m)
{
    free(m->name);
    free(m->id);
    model_config_deinit(&m->config);
    *m = (served_model){0};
}

static int check_adapter(void *ctx, const char *dir, err *e)
{
    return adapter_check_headers(dir, &((const served_model *)ctx)->config, e);
}

void served_model_apply(const served_model *m, const char *dir, frontend_options *o)
{
    o->model_dir = dir;
    o->model_name = m->name;
    o->link.model = m->id;
    o->context = m->config.max_positions;
    o->vocab = m->config.vocab;
    o->eos = m->config.eos;
    o->n_eos = m->config.n_eos;
    o->checker = (adapter_checker){check_adapter, (void *)m};
}
