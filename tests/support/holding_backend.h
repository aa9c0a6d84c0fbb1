/* holding_backend.h - a backend that only holds memory: what model files need to be loaded, and nothing is computed */
#ifndef PUNICA_TESTS_SUPPORT_HOLDING_BACKEND_H
#define PUNICA_TESTS_SUPPORT_HOLDING_BACKEND_H

#include "backend/backend.h"

extern const backend_ops holding_backend_ops;

#endif
