#pragma once

/* One OS thread: both proxies see the same memory. */
inline void fence_proxy_async_shared_cta()
{
}

inline void fence_proxy_async_global()
{
}
