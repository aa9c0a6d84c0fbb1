/* adapter_fetch.h - `punica adapter fetch`: an adapter from its source into a host's disk cache */
#ifndef PUNICA_CLI_ADAPTER_FETCH_H
#define PUNICA_CLI_ADAPTER_FETCH_H

int adapter_fetch(int argc, char **argv);       /* argv[0]: "fetch". Exit code */

#endif
