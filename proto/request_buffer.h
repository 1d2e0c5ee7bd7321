/*
 * Decoders of the buffer methods, for the table in request.c. Inside proto/ only.
 */
#pragma once

#include "fields.h"
#include "request.h"

void request_decode_create(struct fields *fields, struct request *request);
void request_decode_register(struct fields *fields, struct request *request);
void request_decode_import(struct fields *fields, struct request *request);
void request_decode_open(struct fields *fields, struct request *request);
void request_decode_free(struct fields *fields, struct request *request);
void request_decode_write(struct fields *fields, struct request *request);
void request_decode_read(struct fields *fields, struct request *request);
void request_decode_copy(struct fields *fields, struct request *request);
