/*
 * Descriptors 0 to 2, which whoever started the program may have left closed.
 *
 * The next sockets and files would get those numbers: what is printed or logged would go into them,
 * and libuv aborts when one of them is closed.
 */
#pragma once

/* First line of a program. Closed ones become /dev/null, opened the wrong way round: reading and
 * printing fail as they would have. */
void standard_streams_occupy(void);
