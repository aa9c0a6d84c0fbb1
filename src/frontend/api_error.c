/* api_error.c - see api_error.h */
#include "frontend/api_error.h"

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/json.h"
#include "frontend/json_text.h"

static const char *type_of(int status)
{
    return status == 429 ? "rate_limit_error" : status >= 500 ? "server_error" : "invalid_request_error";
}

int api_error_set(api_error *e, int status, const char *param, const char *code, const char *fmt, ...)
{
    *e = (api_error){.status = status, .type = type_of(status), .param = param, .code = code};
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e->what.msg, sizeof e->what.msg, fmt, ap);
    va_end(ap);
    return -1;
}

int api_error_bad(api_error *e, const char *param)
{
    err why = e->what;
    return api_error_set(e, 400, param, NULL, "%s", why.msg);
}

int api_error_no_model(api_error *e, const char *name)
{
    return api_error_set(e, 404, "model", "model_not_found",
                         "there is no model \"%s\" here (GET /v1/models lists them)", name);
}

int api_error_retry_after(const api_error *e)
{
    bool passes = e->retry_after > 0 || e->status == 429 || e->status == 503;
    return passes ? (int)fmin(fmax(ceil(e->retry_after), 1), 86400) : 0;
}

void api_error_write(const api_error *e, buf *out)
{
    json_add_take(out, json_pack("{s:{s:o, s:s, s:s?, s:s?}}", "error", "message", json_text(e->what.msg), "type",
                                 e->type, "param", e->param, "code", e->code));
}
