/* sleeping: GPUs that are runtime suspended are listed and left alone.
 *
 * A vendor's library or program opens all of its GPUs at once, so one that sleeps keeps all of
 * them unopened. */
#ifndef GW_DEVICE_SLEEPING_H
#define GW_DEVICE_SLEEPING_H

#include "backend.h"

/* Where a GPU of this PCI vendor sleeps and GW_OPEN_WAKE is not set: makes a slot for each of them,
 * asleep or unread for its sake, sets the cause, and returns true. */
bool sleeping_list(struct backend *b, uint32_t vendor);

#endif
