/* self: CPU, memory, threads and descriptors of this process, from /proc. */
#ifndef GW_DAEMON_SELF_H
#define GW_DAEMON_SELF_H

#include "serve/view.h"

/* Fills the process figures in *ret and leaves the rest. Counting descriptors is the most
 * expensive part and only done with `all`. */
void self_read(struct view_self *ret, bool all);

#endif
