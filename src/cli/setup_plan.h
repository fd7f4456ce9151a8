/* setup_plan: decides what `gpuward setup` does: makes a list of steps and notes from facts
 * about the machine.
 *
 * Pure: it reads and writes nothing.  setup_apply.h carries the steps out. */
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
#define SETUP_USER_TOKEN ".config/gpuward/token" /* path below the home of the user */

/* What setup finds at the path of a file that it wants to write. */
enum setup_file {
	SETUP_ABSENT,
	SETUP_OURS,    /* an earlier setup wrote it, and it is unchanged */
	SETUP_THEIRS,  /* a person wrote or changed the file */
	SETUP_COMMENT, /* a person's file without any setting */
	SETUP_BLOCKED, /* the path has a link, or a folder of it is missing */
};

enum setup_manager {
	SETUP_NO_SYSTEMD,
	SETUP_NO_UNIT, /* systemd runs, but the unit is not installed */
	SETUP_STOPPED, /* the unit is installed */
	SETUP_RUNNING,
};

struct setup_facts {
	const struct setup_servers *servers;
	enum setup_manager manager;
	bool account; /* the user of the service exists */
	enum setup_file config, drop_in, token_file, companion, user_token;
	bool token_configured; /* the existing configuration names a token file */
	unsigned port;         /* port of the service; 0: only UNIX sockets */
	/* another process listens on this port: its pid (0: not visible); -1: none */
	int64_t port_user;
	const char *port_name;
	const char *token; /* the token for a new token file */
	const char *user;  /* the user who gets a copy of the token; NULL: nobody */
	const char *home;
	const char *date; /* "2026-01-31" */
};

/* True if a person wrote a configuration, so that setup writes none. */
bool setup_is_configured(const struct setup_facts *f);

/* Answers of the person; `--yes` means yes to each. */
struct setup_answers {
	bool guard, copy, start;
};

/* What a step does: the word of the manifest, and what setup prints before and after the step.
 *   ACCOUNT      creates the user of the service
 *   USER_FOLDER  and USER_FILE: as the user, below the home
 *   UNIT         enables and starts the unit */
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
	bool of_account; /* belongs to the user of the service, not to root */
	bool replaces;   /* an unchanged file of an earlier setup is replaced */
	const char *why; /* reason for the step, which setup prints */
};

#define SETUP_STEPS 16
struct setup_plan {
	struct setup_step step[SETUP_STEPS];
	unsigned count;
	struct buf notes; /* paragraphs for people: what is not done, and what to do about it */
	/* the lines of the configuration for the guard, even if they are not written to a
	 * file */
	struct buf config;
	bool print_config; /* config is not written: print it */
	unsigned workers;  /* number of workers in config */
};

/* Returns 0, -GW_E_NOMEM or -GW_E_SIZE (a text is too long); call setup_plan_done() in any
 * case. */
int setup_plan_make(const struct setup_facts *f, const struct setup_answers *a,
		    struct setup_plan *ret);
void setup_plan_done(struct setup_plan *p);

/* Writes how a server runs: "unit ollama.service, port 11434". */
void setup_server_text(const struct setup_server *s, char *out, size_t size);

#endif
