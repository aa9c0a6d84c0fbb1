/* adapter_files.c - see adapter_files.h */
#include "registry/adapter_files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "model/adapter.h"

#define MAX_TEXT ADAPTER_MAX_CONFIG /* bytes of every file but the weights; text/chat.c would read more */

const char *const adapter_file_name[N_ADAPTER_FILES] = {
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    "chat_template.jinja",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "additional_chat_templates/default.jinja",
    "additional_chat_templates/tool_use.jinja",
};

int adapter_file_find(const char *path)
{
    for (int i = 0; i < N_ADAPTER_FILES; i++)
        if (strcmp(path, adapter_file_name[i]) == 0)
            return i;
    return -1;
}

bool adapter_files_are_in(const char *dir)
{
    char *path = path_join(dir, adapter_file_name[FILE_CONFIG]);
    bool there = file_exists(path);
    free(path);
    return there;
}

char *adapter_files_find(const char *dir, const char *name)
{
    char *path = path_child(dir, name), *folder = path ? path_resolve(path) : NULL;
    free(path);
    if (folder && adapter_files_are_in(folder))
        return folder;
    free(folder);
    return NULL;
}

int adapter_file_make_folder(const char *path, err *e)
{
    char *folder = xstrndup(path, (size_t)(strrchr(path, '/') - path));
    int status = mkdir(folder, 0700) && errno != EEXIST ? err_set_local(e, "%s: %s", folder, strerror(errno)) : 0;
    free(folder);
    return status;
}

size_t adapter_file_limit(int file, size_t whole)
{
    return file == FILE_WEIGHTS || whole < MAX_TEXT ? whole : MAX_TEXT;
}

/* Appends the template's files, name and size before the content, so that no two sets of files look the same. */
static int add_extras(buf *all, const char *dir, err *e)
{
    for (int i = N_NEEDED; i < N_ADAPTER_FILES; i++) {
        char *path = path_join(dir, adapter_file_name[i]);
        buf content = {0};
        int status = 0;
        if (file_exists(path) && (status = file_read(&content, path, MAX_TEXT, e)) == 0) {
            buf_printf(all, "%s %zu ", adapter_file_name[i], content.len);
            buf_add(all, content.data, content.len);
        }
        buf_free(&content);
        free(path);
        if (status)
            return -1;
    }
    return 0;
}

int adapter_id_make(char id[ADAPTER_ID], const char *dir, const char *digest_hex, err *e)
{
    buf extras = {0};
    int status = add_extras(&extras, dir, e);
    snprintf(id, ADAPTER_ID, "%s", digest_hex);
    if (status == 0 && extras.len) {
        digest d;
        char hex[DIGEST_HEX];
        digest_of_parts(&d, (const digest_part[]){{extras.data, extras.len}}, 1);
        digest_to_hex(&d, hex);
        snprintf(id, ADAPTER_ID, "%s+%.16s", digest_hex, hex);
    }
    buf_free(&extras);
    return status;
}

bool adapter_id_is_valid(const char *id)
{
    static const char hex[] = "0123456789abcdef";
    size_t n = strspn(id, hex);
    if (n != DIGEST_HEX - 1)
        return false;
    return !id[n] || (id[n] == '+' && strspn(id + n + 1, hex) == 16 && !id[n + 17]);
}

size_t adapter_files_bytes(const char *dir)
{
    size_t sum = 0;
    for (int i = 0; i < N_ADAPTER_FILES; i++) {
        char *path = path_join(dir, adapter_file_name[i]);
        sum += (size_t)file_stamp_of(path).size;
        free(path);
    }
    return sum;
}
