/* aws_profile.c - see aws_profile.h */
#include "registry/aws_profile.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"

#define MAX_FILE ((size_t)1 << 20)

typedef struct {
    const char *name;
    char **to;
} profile_key;

/* Trims spaces around the text, in place. */
static char *trim(char *text)
{
    text += strspn(text, " \t\r");
    size_t n = strlen(text);
    while (n > 0 && strchr(" \t\r", text[n - 1]))
        text[--n] = '\0';
    return text;
}

/* Returns whether a line is the head of a section; then sets *in if it is that of the profile. ~/.aws/config writes all
 * but the default one as "[profile NAME]". */
static bool is_head(char *line, const char *profile, bool *in)
{
    size_t n = strlen(line);
    if (line[0] != '[' || line[n - 1] != ']')
        return false;
    line[n - 1] = '\0';
    char *name = trim(line + 1);
    if (strncmp(name, "profile ", 8) == 0)
        name = trim(name + 8);
    *in = strcmp(name, profile) == 0;
    return true;
}

static void read_setting(const profile_key *known, char *line)
{
    char *equals = strchr(line, '=');
    if (!equals || line[0] == '#' || line[0] == ';')
        return;
    *equals = '\0';
    char *name = trim(line), *value = trim(equals + 1);
    for (; known->name; known++)
        if (strcmp(known->name, name) == 0 && *value) {
            free(*known->to);
            *known->to = xstrdup(value);
        }
}

static void read_file(const char *path, const char *profile, const profile_key *known)
{
    buf text = {0};
    err none;
    bool in = false;
    if (file_read(&text, path, MAX_FILE, &none) == 0 && text.len) {
        char *rest = text.data;
        for (char *line; (line = strsep(&rest, "\n"));) {
            bool nested = *line == ' ' || *line == '\t'; /* a part of the setting above */
            line = trim(line);
            if (*line && !is_head(line, profile, &in) && in && !nested)
                read_setting(known, line);
        }
    }
    buf_free(&text);
}

/* Returns where a file is: where a variable says, or in the home folder. Owned by the caller; NULL: nowhere. */
static char *find_file(const char *variable, const char *in_home)
{
    const char *path = getenv(variable), *home = getenv("HOME");
    if (path && *path)
        return xstrdup(path);
    return home && *home ? path_join(home, in_home) : NULL;
}

void aws_profile_read(aws_profile *p)
{
    *p = (aws_profile){0};
    const profile_key known[] = {{"aws_access_key_id", &p->key},     {"aws_secret_access_key", &p->secret},
                                 {"aws_session_token", &p->session}, {"region", &p->region},
                                 {"endpoint_url", &p->endpoint},     {NULL, NULL}};
    const char *profile = getenv("AWS_PROFILE");
    profile = profile && *profile ? profile : "default";
    char *path[] = {find_file("AWS_CONFIG_FILE", ".aws/config"),
                    find_file("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials")};
    for (size_t i = 0; i < sizeof path / sizeof *path; i++) {
        if (path[i])
            read_file(path[i], profile, known);
        free(path[i]);
    }
}

void aws_profile_deinit(aws_profile *p)
{
    free(p->key);
    free(p->secret);
    free(p->session);
    free(p->region);
    free(p->endpoint);
    *p = (aws_profile){0};
}

void aws_profile_complete(const aws_profile *p, fetch_options *o)
{
    if (!o->s3_key && !o->s3_secret && p->key && p->secret) { /* never half from the environment */
        o->s3_key = p->key;
        o->s3_secret = p->secret;
        o->s3_session = p->session;
    }
    o->s3_endpoint = o->s3_endpoint ? o->s3_endpoint : p->endpoint;
    o->s3_region = o->s3_region ? o->s3_region : p->region;
}
