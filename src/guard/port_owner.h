/* listen: who listens on a port of TCP, by the kernel's tables of sockets and the open files of processes.
 *
 * The tables name sockets, and only the files of a process say which are its own; of another user's they cannot
 * be seen without privileges. */
#ifndef GW_GUARD_PORT_OWNER_H
#define GW_GUARD_PORT_OWNER_H

#include "base/root.h"

#include <stdint.h>

#define PORT_OWNER_SOCKETS 4    /* on one port: one for each address */
#define PORT_OWNER_FILES   1024 /* open files of one process that are looked at */
#define PORT_OWNER_FILE    48   /* the path of one, with its NUL */

struct port_owners { /* on a port */
	uint64_t inode[PORT_OWNER_SOCKETS];
	unsigned count;
	int64_t uid; /* whose the last is */
};

/* ret is zeroed by the caller.  3 ms.  0, or -GW_E_IO: it cannot be told now. */
int port_owner_read(const struct root *root, unsigned port, struct port_owners *ret);

/* The file of pid that is one of these sockets.  1; 0: it has none; -GW_E_NOENT, -GW_E_PERM or -GW_E_IO: its files
 * cannot be seen. */
int port_owner_file(const struct root *root, const struct port_owners *at, int64_t pid,
		    char ret_file[static PORT_OWNER_FILE]);
/* Is that file still one of them?  One link is read. */
bool port_owner_known(const struct root *root, const struct port_owners *at, const char *file);

/* Does pid listen on this port? */
bool port_owner_is(const struct root *root, unsigned port, int64_t pid);

#endif
