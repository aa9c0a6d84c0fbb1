/* aws_profile.h - S3 credentials from the shared files of AWS's own tools
 *
 * Reads ~/.aws/credentials (AWS_SHARED_CREDENTIALS_FILE) and ~/.aws/config (AWS_CONFIG_FILE), for the profile that
 * AWS_PROFILE names, or "default". Credentials in the environment itself take precedence. */
#ifndef PUNICA_REGISTRY_AWS_PROFILE_H
#define PUNICA_REGISTRY_AWS_PROFILE_H

#include "registry/fetch.h"

/* Owned strings; NULL: no file has it. */
typedef struct { char *key, *secret, *session, *region, *endpoint; } aws_profile;

/* Reads the files, the credentials last, which win. Files that are missing or cannot be read are skipped. */
void aws_profile_read(aws_profile *p);
void aws_profile_deinit(aws_profile *p);

/* Fills in what the environment left open. o borrows from p. */
void aws_profile_complete(const aws_profile *p, fetch_options *o);

#endif
