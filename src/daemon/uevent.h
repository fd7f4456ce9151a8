/* uevent: knows when a GPU's driver comes or goes.
 *
 * Hears what the kernel tells of devices (netlink).  Where it may not be heard, such as in some containers, nothing
 * happens, and who waits for a driver finds it with its next try.  On the loop's thread; never blocks. */
#ifndef GW_DAEMON_UEVENT_H
#define GW_DAEMON_UEVENT_H

#include "base/loop.h"

#include <stdbool.h>
#include <stddef.h>

/* What one message of the kernel's says: "ACTION@PATH", then "KEY=VALUE"s, each with a NUL.  Pure. */
enum uevent_news { UEVENT_NOTHING, UEVENT_CAME, UEVENT_GONE };
enum uevent_news uevent_read(const char *message, size_t size);

struct uevent;

/* `moved`: a driver or a GPU was added (gone false; once for many) or is being taken away.  0, -GW_E_NOMEM or
 * -GW_E_IO: the kernel is not to be heard. */
int uevent_new(struct loop *loop, void (*moved)(void *arg, bool gone), void *arg,
	       struct uevent **ret);
void uevent_free(struct uevent *u); /* NULL is fine */

#endif
