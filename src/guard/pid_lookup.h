/* pid_lookup: finds the process that a pidfile names, or that listens on a TCP port. */
#ifndef GW_GUARD_PID_LOOKUP_H
#define GW_GUARD_PID_LOOKUP_H

#include "base/root.h"

#include <stdint.h>
#include <time.h>

/* The content of a pidfile. The guard may signal the process that the file names, so a user who
 * can write the file must not be able to name a process of another user. Therefore a file is
 * trusted only if two conditions hold. The file and all its folders belong to root, to the user
 * of the calling process or to the owner of the named process. No other user can write them.
 * The group root and the group of the calling process may write them. Links are not followed,
 * except that /var/run is /run. */
struct pidfile {
	int64_t pid;
	struct timespec written; /* when the file was last written */
	const char
		*fault; /* why the file is not trusted: "other users can write it"; or NULL */
};

/* What to do about a fault, as the end of a sentence. */
#define PIDFILE_REMEDY                                                                \
	"let the worker write the file into a folder that only root or the worker's " \
	"user can write, and set match.pidfile to its path without links"

/* Reads which process the file names. Returns 0; -GW_E_STATE: the file is not trusted, and
 * ret->fault says why; -GW_E_NOENT, -GW_E_IO or -GW_E_PARSE: the file names no process now, or
 * cannot be read. */
int pidfile_read(const struct root *root, const char *path, struct pidfile *ret);

/* The kernel's tables of TCP ports list sockets by inode. Only the open files of a process show
 * which sockets the process has. The open files of another user's process cannot be read
 * without privileges. */

#define PORT_OWNER_SOCKETS 4    /* maximum number of sockets per port: one per address */
#define PORT_OWNER_FILES   1024 /* maximum number of open files read per process */
#define PORT_OWNER_FILE    48   /* size of the path of an open file */

struct port_owners { /* the sockets that listen on a port */
	uint64_t inode[PORT_OWNER_SOCKETS];
	unsigned count;
	int64_t uid; /* user who owns the last of these sockets */
};

struct listening_socket {
	unsigned port, uid;
	unsigned long long inode;
};

/* Reads a line of /proc/net/tcp or tcp6. Returns false if the line is not about a listening
 * socket. */
bool listening_socket_parse(const char *line, struct listening_socket *ret);

/* Finds the sockets that listen on the port. The caller zeroes ret. Takes 3 ms. Returns 0, or
 * -GW_E_IO: the tables cannot be read now. */
int port_owner_read(const struct root *root, unsigned port, struct port_owners *ret);

/* Finds an open file of pid that is one of the sockets in `at`, and writes its path. Returns 1;
 * 0: pid has no such file; -GW_E_NOENT, -GW_E_PERM or -GW_E_IO: the files of pid cannot be
 * read. */
int port_owner_file(const struct root *root, const struct port_owners *at, int64_t pid,
		    char ret_file[static PORT_OWNER_FILE]);
/* True if the open file with this path is still one of the sockets in `at`. Reads one link. */
bool port_owner_known(const struct root *root, const struct port_owners *at, const char *file);

/* True if pid listens on this port. */
bool port_owner_is(const struct root *root, unsigned port, int64_t pid);

/* Finds the servers of a port: at most cap processes that listen on the port. If one of these
 * processes descends from another, only the ancestor counts. The ancestors of `self` do not
 * count. A service manager does not count either, because it opens sockets for other programs.
 * Returns the number of servers; 0 also if /proc cannot be read. Reads the open files of all
 * processes, which takes milliseconds. */
unsigned port_owner_servers(const struct root *root, unsigned port, int64_t self,
			    int64_t *ret_pid, unsigned cap);

#endif
