#include "request.h"
