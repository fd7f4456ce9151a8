/* uevent: reports when a GPU driver is loaded or removed.
 *
 * Receives the kernel's device events (netlink). Where that is not allowed, as in some
 * containers, nothing happens, and a driver is found by the next periodic attempt. Runs on
 * the loop's thread and never blocks. */
#ifndef GW_DAEMON_UEVENT_H
#define GW_DAEMON_UEVENT_H

#include "base/loop.h"

#include <stdbool.h>
#include <stddef.h>

/* Evaluates one kernel message: "ACTION@PATH", then "KEY=VALUE" entries, each NUL-terminated.
 * Pure. */
enum uevent_news { UEVENT_NOTHING, UEVENT_CAME, UEVENT_GONE };
enum uevent_news uevent_read(const char *message, size_t size);

struct uevent;

/* moved: a driver or GPU was added (gone false; once for many events) or is being removed. 0,
 * -GW_E_NOMEM or -GW_E_IO: kernel events are not available. */
int uevent_new(struct loop *loop, void (*moved)(void *arg, bool gone), void *arg,
	       struct uevent **ret);
void uevent_free(struct uevent *u); /* NULL is fine */

#endif
