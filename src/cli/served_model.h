/* served_model.h - what a frontend must know of the model it serves, read from the model's directory */
#ifndef PUNICA_CLI_SERVED_MODEL_H
#define PUNICA_CLI_SERVED_MODEL_H

#include "frontend/frontend.h"
#include "model/config.h"

typedef struct {
    model_config config;
    char *name; /* what clients call it */
    char *id;   /* model/model_id.h */
} served_model;

/* Reads the model in dir. name NULL: the directory's own. 0, or -1 with e set; m then needs no deinit. */
int served_model_read(served_model *m, const char *dir, const char *name, err *e);
void served_model_deinit(served_model *m);

/* Fills in what o says of the model; m must outlive it. */
void served_model_apply(const served_model *m, const char *dir, frontend_options *o);

#endif
