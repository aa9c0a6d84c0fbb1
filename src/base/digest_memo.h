/* digest_memo.h - memoised digests of folders, by name, valid while the files do not change
 *
 * Files count as unchanged as long as their stamps are the same (base/file.h). Nothing is evicted. Any thread. */
#ifndef PUNICA_BASE_DIGEST_MEMO_H
#define PUNICA_BASE_DIGEST_MEMO_H

#include "base/digest.h"
#include "base/file.h"

typedef struct digest_memo digest_memo;

/* The stamps of the files that a digest covers; to be compared as bytes. */
enum { MEMO_FILES = 2 };
typedef struct { file_stamp file[MEMO_FILES]; } memo_stamp;

digest_memo *digest_memo_new(void);
void digest_memo_free(digest_memo *m);

/* Stamps the files of a folder. -1: one of them is missing. */
int memo_stamp_of(memo_stamp *is, const char *dir, const char *const name[MEMO_FILES]);

/* Returns whether the files were last changed more than a moment ago: a second write within the clock's resolution
 * might leave the same stamp. */
bool memo_stamp_is_old(const memo_stamp *is);

/* Finds the digest kept under a name with this stamp, or for good (is NULL). False: there is none; *d is unchanged. */
bool digest_memo_find(digest_memo *m, const char *name, const memo_stamp *is, digest *d);

/* Keeps a digest in place of any older one of that name. is: the stamp, the same before and after the files were read;
 * NULL: keep it for good, whatever the files are. */
void digest_memo_keep(digest_memo *m, const char *name, const memo_stamp *is, const digest *d);

#endif
