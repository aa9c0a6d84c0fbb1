/* aws_profile.h - S3's credentials as AWS's own tools keep them: the shared files
 *
 * ~/.aws/credentials (AWS_SHARED_CREDENTIALS_FILE) and ~/.aws/config (AWS_CONFIG_FILE), of the profile that AWS_PROFILE
 * names, or "default". What the environment says itself goes before. */
#ifndef PUNICA_REGISTRY_AWS_PROFILE_H
#define PUNICA_REGISTRY_AWS_PROFILE_H

#include "registry/fetch.h"

/* Each NULL where no file has it. */
typedef struct { char *key, *secret, *session, *region, *endpoint; } aws_profile;

/* Files that are not there, or cannot be read, have nothing to say. */
void aws_profile_read(aws_profile *p);
void aws_profile_deinit(aws_profile *p);

/* Fills what the environment left open. o borrows from p. */
void aws_profile_complete(const aws_profile *p, fetch_options *o);

#endif
