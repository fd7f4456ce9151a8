/* setup_plan: decides what `gpuward setup` does. From facts about the machine, it makes a list
 * of steps, and notes for the user.
 *
 * It is pure: it reads and writes no files. setup_apply.h carries out the steps. */
#ifndef GW_CLI_SETUP_PLAN_H
#define GW_CLI_SETUP_PLAN_H

#include "daemon/setup_find.h"

#include "base/buf.h"

#include <sys/types.h>

#define SETUP_FOLDER     "/etc/gpuward"
#define SETUP_CONFIG     SETUP_FOLDER "/gpuward.toml"
#define SETUP_DROP_IN    SETUP_FOLDER "/gpuward.d/setup.toml"
#define SETUP_TOKEN      SETUP_FOLDER "/token"
#define SETUP_COMPANION  SETUP_FOLDER "/companion.conf"
#define SETUP_ACCOUNT    "gpuward" /* the user of the service */
#define SETUP_SERVICE    "gpuward.service"
#define SETUP_SOCKET     "gpuward-companion.socket"
#define SETUP_USER_TOKEN ".config/gpuward/token" /* in the home folder of the user */

/* What setup finds at the path of a file that it wants to write. */
enum setup_file {
	SETUP_ABSENT,
	SETUP_OURS,    /* an earlier setup wrote the file, and it is unchanged */
	SETUP_THEIRS,  /* a person wrote or changed the file */
	SETUP_COMMENT, /* a person wrote the file, but it has only comments */
	SETUP_BLOCKED, /* setup cannot write there: a link, or missing permission */
};

/* Whether systemd can run the service. */
enum setup_manager {
	SETUP_NO_SYSTEMD,
	SETUP_NO_UNIT, /* systemd runs, but the unit is not installed */
	SETUP_STOPPED, /* the unit is installed and does not run */
	SETUP_RUNNING, /* the unit runs */
};

struct setup_facts {
	const struct setup_servers *servers;
	enum setup_manager manager;
	bool account; /* the user of the service exists */
	enum setup_file config, drop_in, token_file, companion, user_token;
	bool token_configured; /* a person's configuration names a token file that exists */
	unsigned port;         /* port of the service; 0: it listens only on UNIX sockets */
	/* Pid of another process that listens on this port. 0: the pid is not visible; -1: no
	 * process listens. */
	int64_t port_user;
	const char *port_name; /* name of this process */
	const char *token;     /* the token for a new token file */
	const char *user;      /* the user who gets a copy of the token; NULL: nobody */
	const char *home;      /* home folder of this user */
	const char *date;      /* today, such as "2026-01-31" */
};

/* Returns true if a person wrote a configuration. Setup then writes none. */
bool setup_is_configured(const struct setup_facts *f);

/* The answers to the questions of setup. With --yes, all are true. */
struct setup_answers {
	bool guard; /* the guard manages the servers that were found */
	bool copy;  /* the user gets a copy of the token */
	bool start; /* the service is started */
};

/* The kinds of steps: the word in the manifest, and what setup prints in the plan and after the
 * step.
 *   ACCOUNT      creates the account of the service
 *   USER_FOLDER  creates a folder in the home folder of the user, with the rights of that user
 *   USER_FILE    writes a file in that home folder, with the same rights
 *   UNIT         enables and starts a unit of systemd */
#define SETUP_WHATS(X)                                               \
	X(ACCOUNT, "account", "create the user", "created the user") \
	X(FOLDER, "folder", "create", "created")                     \
	X(FILE, "file", "write", "wrote")                            \
	X(USER_FOLDER, "user-folder", "create", "created")           \
	X(USER_FILE, "user-file", "write", "wrote")                  \
	X(UNIT, "unit", "enable and start", "enabled and started")   \
	X(RELOAD, "reload", "reload", "reloaded")

enum setup_what {
#define X(name, ...) STEP_##name,
	SETUP_WHATS(X)
#undef X
		SETUP_WHAT_COUNT
};

struct setup_what_words {
	const char *word, *plan, *done;
};
extern const struct setup_what_words setup_whats[SETUP_WHAT_COUNT];

struct setup_step {
	enum setup_what what;
	char path[256]; /* path of the file or folder, or name of the unit */
	char *text;     /* contents of a file */
	mode_t mode;
	bool of_account; /* the owner is the account of the service, not root */
	bool replaces;   /* the step replaces a file that an earlier setup wrote */
	const char *why; /* purpose of the step, for the user; NULL: the step is not printed */
};

#define SETUP_STEPS 16
struct setup_plan {
	struct setup_step step[SETUP_STEPS];
	unsigned count;
	/* Notes for the user, one per line: what setup does not do, and what the user can
	 * do. */
	struct buf notes;
	struct buf config; /* text of the new configuration file */
	bool print_config; /* no step writes config, so print it for the user */
	unsigned workers;  /* number of workers in config */
};

/* Makes the plan. Returns 0, -GW_E_NOMEM or -GW_E_SIZE (a text is too long). Call
 * setup_plan_done() afterwards, even after an error. */
int setup_plan_make(const struct setup_facts *f, const struct setup_answers *a,
		    struct setup_plan *ret);
void setup_plan_done(struct setup_plan *p);

/* Writes where a server runs, such as "unit ollama.service, port 11434". */
void setup_server_text(const struct setup_server *s, char *out, size_t size);

#endif
