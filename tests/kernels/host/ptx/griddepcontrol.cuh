#pragma once

inline void griddepcontrol_wait()
{
}

inline void griddepcontrol_launch_dependents()
{
}
