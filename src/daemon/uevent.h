/* uevent: reports when a GPU driver is loaded or removed.
 *
 * Receives the kernel's device events (netlink). Some containers do not allow this. In such a
 * container nothing is reported, and a new driver is found by the next periodic attempt to open
 * the drivers. The module runs on the loop's thread and never blocks. */
#ifndef GW_DAEMON_UEVENT_H
#define GW_DAEMON_UEVENT_H

#include "base/loop.h"

#include <stdbool.h>
#include <stddef.h>

/* Evaluates one kernel message: "ACTION@PATH", followed by "KEY=VALUE" entries. Each string
 * ends with NUL. The function is pure. */
enum uevent_news { UEVENT_NOTHING, UEVENT_CAME, UEVENT_GONE };
enum uevent_news uevent_read(const char *message, size_t size);

struct uevent;

/* Starts receiving. Calls moved(arg, false) after a driver or GPU was added (once for many
 * events), and moved(arg, true) while one is being removed. Returns 0, -GW_E_NOMEM, or -GW_E_IO
 * if kernel events are not available. */
int uevent_new(struct loop *loop, void (*moved)(void *arg, bool gone), void *arg,
	       struct uevent **ret);
void uevent_free(struct uevent *u); /* u may be NULL. */

#endif
