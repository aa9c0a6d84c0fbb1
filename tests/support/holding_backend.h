/* holding_backend.h - a backend that only holds memory: enough to load model files, but it computes nothing */
#ifndef PUNICA_TESTS_SUPPORT_HOLDING_BACKEND_H
#define PUNICA_TESTS_SUPPORT_HOLDING_BACKEND_H

#include "backend/backend.h"

extern const backend_ops holding_backend_ops;

#endif
