#pragma once

template <int COUNT> inline void setmaxnreg_dec()
{
}

template <int COUNT> inline void setmaxnreg_inc()
{
}
