/* digest_memo.c - see digest_memo.h */
#include "base/digest_memo.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/map.h"
#include "base/mem.h"

static const time_t MOMENT = 2; /* seconds: at least the resolution of any file system's timestamps */

typedef struct {
    memo_stamp is;
    digest d;
    bool for_good;
} known_digest;

struct digest_memo {
    pthread_mutex_t lock; /* guards all below */
    map *by_name;         /* to indices of known */
    known_digest *known;  /* [n] */
    size_t n, cap;
};

digest_memo *digest_memo_new(void)
{
    digest_memo *m = XNEW(digest_memo);
    *m = (digest_memo){.by_name = map_new(64)};
    CHECK(pthread_mutex_init(&m->lock, NULL) == 0);
    return m;
}

void digest_memo_free(digest_memo *m)
{
    if (!m)
        return;
    pthread_mutex_destroy(&m->lock);
    map_free(m->by_name);
    free(m->known);
    free(m);
}

int memo_stamp_of(memo_stamp *is, const char *dir, const char *const name[MEMO_FILES])
{
    for (int i = 0; i < MEMO_FILES; i++) {
        char *path = path_join(dir, name[i]);
        is->file[i] = file_stamp_of(path);
        free(path);
        if (!is->file[i].inode)
            return -1;
    }
    return 0;
}

bool memo_stamp_is_old(const memo_stamp *is)
{
    time_t now = (time_t)clock_wall();
    for (int i = 0; i < MEMO_FILES; i++)
        if (is->file[i].changed.tv_sec + MOMENT > now)
            return false;
    return true;
}

/* Finds a name's entry, or NULL. Call with the lock held. */
static known_digest *find_known(const digest_memo *m, const char *name)
{
    int64_t at;
    return map_get(m->by_name, name, strlen(name), &at) ? &m->known[at] : NULL;
}

bool digest_memo_find(digest_memo *m, const char *name, const memo_stamp *is, digest *d)
{
    pthread_mutex_lock(&m->lock);
    const known_digest *known = find_known(m, name);
    bool same = known && (is ? memcmp(&known->is, is, sizeof *is) == 0 : known->for_good);
    if (same)
        *d = known->d;
    pthread_mutex_unlock(&m->lock);
    return same;
}

void digest_memo_keep(digest_memo *m, const char *name, const memo_stamp *is, const digest *d)
{
    pthread_mutex_lock(&m->lock);
    known_digest *old = find_known(m, name);
    if (!old) {
        m->known = xgrow(m->known, &m->cap, m->n + 1, sizeof *m->known);
        map_put(m->by_name, name, strlen(name), (int64_t)m->n);
        old = &m->known[m->n++];
    }
    memset(old, 0, sizeof *old);
    if (is)
        memcpy(&old->is, is, sizeof *is);
    old->d = *d;
    old->for_good = !is;
    pthread_mutex_unlock(&m->lock);
}
