/* setup_find: finds the inference servers that run on this machine, for `gpuward setup`.
 *
 * It reads only /proc: command lines, control groups and listening sockets. No server gets a
 * request, so no model is loaded and no server is woken or blocked. guard/kind_signs.def has
 * one row per kind. */
#ifndef GW_DAEMON_SETUP_FIND_H
#define GW_DAEMON_SETUP_FIND_H

#include "base/root.h"
#include "guard/policy.h"

#include <stdbool.h>
#include <stdint.h>

#define SETUP_SERVERS POLICY_WORKERS
#define SETUP_ARGS    256

enum setup_home {
	SETUP_UNIT,      /* A unit of the system's manager. */
	SETUP_USER_UNIT, /* A unit of a user's manager. */
	SETUP_CONTAINER,
	SETUP_PLAIN, /* A process that is in no container and in no unit of its own. */
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
	/* For SETUP_UNIT and SETUP_USER_UNIT: name of the unit. For SETUP_PLAIN: name of a
	 * unit that also has other processes. */
	char unit[128];
	char container[72]; /* Id or name of the container. */
	char cgroup[256];   /* Path of the control group. Set for SETUP_USER_UNIT. */
	char command[160];  /* The command line as match.command compares it. */
	/* Path of the program or script of the server. "" if it is unknown. */
	char script[160];
	/* The port on which clients reach the server; see setup_read_command(). */
	unsigned port;
	bool listens; /* A process of this server listens on that port. */
	/* Only root can see the sockets of the server. `listens` is then unknown. */
	bool unseen;
	bool lacks;      /* The server was started without an option that the guard needs. */
	bool stuck;      /* The guard cannot evict the server through its API. */
	char model[160]; /* The .kcpps file of a KoboldCpp. "" if there is none. */
};

/* A process that listens on the usual port of a kind, but does not look like that kind. */
struct setup_maybe {
	const struct setup_sign *sign;
	unsigned port;
	int64_t pid; /* 0 if the process is not visible. */
	char name[64];
};

struct setup_servers {
	struct setup_server server[SETUP_SERVERS];
	struct setup_maybe maybe[SETUP_SERVERS];
	unsigned count, maybes, left_out;
};

/* The facts about one process that decide which kind of server it is. */
struct setup_process {
	const char *argv[SETUP_ARGS + 1]; /* Ends with NULL. */
	unsigned argc;
	const char *folder; /* Working folder. "" if it is unknown. */
	/* Variables separated by NUL. The last one ends with two NULs. "" if they are
	 * unknown. */
	const char *environment;
};

/* Returns the row that fits the process, or NULL. Pure. */
const struct setup_sign *setup_recognise(const struct setup_process *p);

/* Sets the port, the model and the script of a recognised server from its command line. The port
 * can also come from its environment, or is the usual port. Sets `lacks` and `stuck` from its
 * options. Pure. */
void setup_read_command(const struct setup_process *p, struct setup_server *ret);

/* Finds the system or user unit in a path of a control group. Returns false if there is none.
 * Pure. */
bool setup_unit_of(const char *cgroup, struct setup_server *ret);

/* Searches /proc below root. Returns 0 or a negative gw_error. */
int setup_find(const struct root *root, struct setup_servers *ret);

/* Returns the pid of the process that listens on this port, or 0 if the process is not
 * visible. Returns -1 if no process listens there. */
int64_t setup_port_user(const struct root *root, unsigned port, char *name, size_t size);

#endif
