/* setup_find: finds the inference servers that run on this machine, for `gpuward setup`.
 *
 * It reads only /proc: command lines, control groups and listening sockets. No server gets a
 * request, so none is loaded, woken or blocked.  guard/kind_signs.def has one row per kind. */
#ifndef GW_DAEMON_SETUP_FIND_H
#define GW_DAEMON_SETUP_FIND_H

#include "base/root.h"
#include "guard/policy.h"

#include <stdbool.h>
#include <stdint.h>

#define SETUP_SERVERS POLICY_WORKERS
#define SETUP_ARGS    256

enum setup_home {
	SETUP_UNIT,      /* a unit of the system's manager */
	SETUP_USER_UNIT, /* a unit of a user's manager */
	SETUP_CONTAINER,
	SETUP_PLAIN, /* a process in no unit of its own and in no container */
};

/* One row of kind_signs.def. */
struct setup_sign {
	enum policy_kind kind;
	const char *title, *programs, *word, *modules, *place, *port_options, *port_variable,
		*needs, *need_text, *stuck;
};
extern const struct setup_sign setup_signs[];
extern const unsigned setup_sign_count;

struct setup_server {
	const struct setup_sign *sign;
	int64_t pid, uid;
	enum setup_home home;
	/* name of the unit, for SETUP_UNIT and SETUP_USER_UNIT; for SETUP_PLAIN, a unit that
	 * also has other processes */
	char unit[128];
	char container[72]; /* id or name of the container */
	char cgroup[256];   /* path of the control group; set for SETUP_USER_UNIT */
	char command[160];  /* the command line as match.command compares it */
	char script[160];   /* path of the server's program or script, as far as it is known */
	/* port on which clients reach the server, as far as the command line shows */
	unsigned port;
	bool listens; /* a process of this server listens on that port */
	/* only root can see the sockets of the server, so `listens` is unknown */
	bool unseen;
	bool lacks;      /* the server was started without an option that the guard needs */
	bool stuck;      /* the guard cannot evict the server through its API */
	char model[160]; /* the .kcpps file of a KoboldCpp; "": none */
};

/* A process that listens on the usual port of a kind, but does not look like that kind. */
struct setup_maybe {
	const struct setup_sign *sign;
	unsigned port;
	int64_t pid; /* 0: the process is not visible */
	char name[64];
};

struct setup_servers {
	struct setup_server server[SETUP_SERVERS];
	struct setup_maybe maybe[SETUP_SERVERS];
	unsigned count, maybes, left_out;
};

/* The facts about one process that decide which kind of server it is. */
struct setup_process {
	const char *argv[SETUP_ARGS + 1]; /* ends with NULL */
	unsigned argc;
	const char *folder;      /* working folder; "": unknown */
	const char *environment; /* NUL-separated, ends with two NULs; "": unknown */
};

/* Returns the row that fits the process, or NULL. Pure. */
const struct setup_sign *setup_recognise(const struct setup_process *p);

/* Fills what the command line says about a recognised server: port, model, missing options.
 * Pure. */
void setup_read_command(const struct setup_process *p, struct setup_server *ret);

/* Finds the system or user unit in a path of a control group. Returns false if there is none.
 * Pure. */
bool setup_unit_of(const char *cgroup, struct setup_server *ret);

/* Searches /proc below root. Returns 0 or a negative gw_error. */
int setup_find(const struct root *root, struct setup_servers *ret);

/* Returns the pid of the process that listens on this port (0: the process is not visible), or
 * -1 if nothing listens there. */
int64_t setup_port_user(const struct root *root, unsigned port, char *name, size_t size);

#endif
