/* identity.h - who this process is among its peers */
#ifndef PUNICA_NET_IDENTITY_H
#define PUNICA_NET_IDENTITY_H

#include <stdint.h>

/* 64 bits that nobody can guess, never 0. */
uint64_t identity_random(void);

/* This host's name, owned by the caller. */
char *identity_host(void);

#endif
