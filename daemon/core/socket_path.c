#include "socket_path.h"
