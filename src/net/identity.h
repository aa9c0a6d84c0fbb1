/* identity.h - who this process is among its peers */
#ifndef PUNICA_NET_IDENTITY_H
#define PUNICA_NET_IDENTITY_H

#include <stddef.h>
#include <stdint.h>

/* 64 bits that nobody can guess, never 0. */
uint64_t identity_random(void);

/* "host/pid", for logs. */
void identity_name(char *out, size_t n);

#endif
