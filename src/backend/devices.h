/* devices.h - what this build can run a model on */
#ifndef PUNICA_BACKEND_DEVICES_H
#define PUNICA_BACKEND_DEVICES_H

#include "base/buf.h"

/* Append a line for each device. */
void backend_list_devices(buf *out);

#endif
