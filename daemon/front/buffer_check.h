/*
 * Checks of a buffer request, for buffer.c.
 */
#pragma once

#include "buffer.h"

enum status buffer_check_name(const struct buffer_request *request, struct fault *ret_fault);
enum status buffer_check_request(const struct buffer_request *request, struct fault *ret_fault);
/* Of offset and allocation; zeros are right for whatever is not imported. */
enum status buffer_check_import(const struct buffer_request *request, struct fault *ret_fault);
