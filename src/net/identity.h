/* identity.h - who this process is among its peers */
#ifndef PUNICA_NET_IDENTITY_H
#define PUNICA_NET_IDENTITY_H

/* Returns this host's name, owned by the caller. */
char *identity_host(void);

#endif
