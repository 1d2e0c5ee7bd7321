#include "nvrtc.h"
