/* digest_memo.h - digests that were computed before, of folders whose files have not changed since
 *
 * By name, of as many as there are. Files are the same as long as their stamps are (base/file.h). Any thread. */
#ifndef PUNICA_BASE_DIGEST_MEMO_H
#define PUNICA_BASE_DIGEST_MEMO_H

#include "base/digest.h"
#include "base/file.h"

typedef struct digest_memo digest_memo;

/* Of the files that a digest is of; to be compared as bytes. */
enum { MEMO_FILES = 2 };
typedef struct { file_stamp file[MEMO_FILES]; } memo_stamp;

digest_memo *digest_memo_new(void);
void digest_memo_free(digest_memo *m);

/* -1: some file is not in the folder. */
int memo_stamp_of(memo_stamp *is, const char *dir, const char *const name[MEMO_FILES]);

/* Whether the files were left alone for a while: another write in the moment of the last one might leave the same
 * stamp. */
bool memo_stamp_is_old(const memo_stamp *is);

/* The digest that is kept under a name with this stamp, or for good (is NULL). */
bool digest_memo_find(digest_memo *m, const char *name, const memo_stamp *is, digest *d);

/* Keep a digest in place of the one there was. is: as the files were before they were read and after; NULL: for good.
 */
void digest_memo_keep(digest_memo *m, const char *name, const memo_stamp *is, const digest *d);

#endif
