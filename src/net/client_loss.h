/* client_loss.h - why a client was lost before its answer was complete */
#ifndef PUNICA_NET_CLIENT_LOSS_H
#define PUNICA_NET_CLIENT_LOSS_H

typedef enum { CLIENT_LEFT, CLIENT_DOES_NOT_READ } client_loss;

#endif
