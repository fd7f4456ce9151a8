/* port_owner: which process listens on a TCP port.
 *
 * The kernel's tables list sockets by inode; only the open files of a process show which
 * sockets it has.  Those of another user's process cannot be read without privileges. */
#ifndef GW_GUARD_PORT_OWNER_H
#define GW_GUARD_PORT_OWNER_H

#include "base/root.h"

#include <stdint.h>

#define PORT_OWNER_SOCKETS 4    /* per port: one for each address */
#define PORT_OWNER_FILES   1024 /* open files per process that are read */
#define PORT_OWNER_FILE    48   /* size of the path of one */

struct port_owners { /* the sockets that listen on a port */
	uint64_t inode[PORT_OWNER_SOCKETS];
	unsigned count;
	int64_t uid; /* owner of the last one */
};

/* The caller zeroes ret.  Takes 3 ms.  0, or -GW_E_IO: it cannot be read now. */
int port_owner_read(const struct root *root, unsigned port, struct port_owners *ret);

/* The path of an open file of pid that is one of these sockets.  1; 0: it has none;
 * -GW_E_NOENT, -GW_E_PERM or -GW_E_IO: its files cannot be read. */
int port_owner_file(const struct root *root, const struct port_owners *at, int64_t pid,
		    char ret_file[static PORT_OWNER_FILE]);
/* Is that file still one of these sockets?  Reads one link. */
bool port_owner_known(const struct root *root, const struct port_owners *at, const char *file);

/* Does pid listen on this port? */
bool port_owner_is(const struct root *root, unsigned port, int64_t pid);

#endif
