/* self: what this process costs, from the kernel's own accounts. */
#ifndef GW_DAEMON_SELF_H
#define GW_DAEMON_SELF_H

#include "serve/view.h"

/* Fills the figures of the process in *ret and leaves the rest.  Counting descriptors costs most
 * and is done when `all`. */
void self_read(struct view_self *ret, bool all);

#endif
