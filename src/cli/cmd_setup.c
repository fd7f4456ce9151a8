/* setup: prepares a machine for the guard. It finds GPUs and inference servers, writes a token
 * and a configuration, and starts the service. */
#include "cli.h"
#include "setup_apply.h"
#include "setup_service.h"

#include "base/child.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/utf8.h"
#include "daemon/config.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define QUESTION_NS (20 * NS_PER_S) /* time limit for systemctl */

#define TRY_IT                                                                  \
	"\"Try it on a simulated card\" in GUARD.md (in docs, or installed in " \
	"/usr/share/doc/gpuward)"

struct given {
	bool yes, undo, dry_run;
};

#define AT(member) offsetof(struct given, member)
static const struct option options[] = {
	OPTION_ROW(FLAG, 'y', "yes", AT(yes), NULL,
		   "ask nothing: answer each question with yes"),
	OPTION_ROW(FLAG, 0, "dry-run", AT(dry_run), NULL,
		   "print what would be done, and change nothing"),
	OPTION_ROW(FLAG, 0, "undo", AT(undo), NULL,
		   "remove what setup wrote, and stop the service that it started"),
	OPTION_END,
};

/* All facts about the machine, and the texts to which they point. */
struct machine {
	struct setup_place at;
	struct setup_facts facts;
	struct setup_servers servers;
	struct setup_manifest *manifest;
	char user[64], home[PATH_MAX], token[SECRET_MAX + 1], port_name[64], date[16];
};

/* Finds the user who called sudo or pkexec, and who gets a copy of the token. */
static void find_user(struct machine *m)
{
	const char *name = getenv("SUDO_USER"), *number = getenv("PKEXEC_UID");
	uid_t uid = number ? (uid_t)strtoul(number, NULL, 10) : 0;

	if ((!name || !*name) && !number)
		return;
	if (setup_account(m->at.prefix, name && *name ? name : NULL, &uid, &m->at.gid, m->home,
			  sizeof(m->home), m->user, sizeof(m->user)) != 0 ||
	    uid == 0)
		return;
	m->at.uid = uid;
	m->at.user = m->facts.user = m->user;
	m->at.home = m->facts.home = m->home;
}

static int make_token(char out[static 66])
{
	unsigned char bytes[32];

	if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
		return cli_fail(
			"cannot make a token, because the kernel returns no random numbers: %s",
			strerror(errno));
	for (unsigned i = 0; i < sizeof(bytes); i++)
		snprintf(out + 2 * i, 3, "%02x", bytes[i]);
	snprintf(out + 64, 2, "\n");
	return EXIT_OK;
}

/* Reads the token from the existing token file, because the user's copy must contain the same
 * token. */
static int find_token(struct machine *m)
{
	char path[PATH_MAX], message[300];

	snprintf(path, sizeof(path), "%s" SETUP_TOKEN, m->at.prefix);
	if (geteuid() != 0 && access(path, R_OK) != 0)
		/* This is not an error: a user who may not read the token can only print the
		 * plan. */
		return EXIT_OK;
	if (secret_read(path, m->token, message, sizeof(message)) != 0)
		return cli_fail("%s; fix or remove this file and run setup again", message);
	strcat(m->token, "\n");
	return EXIT_OK;
}

/* Reads the configuration of the service without the parts that have mistakes. With a prefix,
 * reads only the main file. Returns an exit code. */
static int read_configuration(const struct machine *m, struct config *ret)
{
	char path[PATH_MAX], message[600];

	if (!*m->at.prefix)
		return config_load_rest(ret, message, sizeof(message)) == -GW_E_NOMEM
			       ? cli_no_memory()
			       : EXIT_OK;
	snprintf(path, sizeof(path), "%s" SETUP_CONFIG, m->at.prefix);
	if (config_load(ret, path, NULL, 0, message, sizeof(message)) != 0 &&
	    config_load_text(ret, "the defaults", "", 0, message, sizeof(message)) != 0)
		return cli_fail("%s", message);
	return EXIT_OK;
}

/* Reads the token from the file that a person's configuration names, because the user's copy
 * must contain the same token. */
static void find_configured_token(struct machine *m, const struct config *c)
{
	char message[600], token[SECRET_MAX];

	m->facts.token_configured =
		!*m->at.prefix && c->service_token_file &&
		secret_read(c->service_token_file, token, message, sizeof(message)) == 0;
	if (m->facts.token_configured)
		snprintf(m->token, sizeof(m->token), "%s\n", token);
	explicit_bzero(token, sizeof(token));
}

/* Finds a port on which the service will listen. If there are several, prefers one that another
 * process already uses, because that process keeps the service from starting. */
static void find_port(struct machine *m, const struct root *root, const struct config *c)
{
	struct setup_facts *f = &m->facts;

	f->port_user = -1;
	for (unsigned i = 0; i < c->service_listen.count && f->port_user < 0; i++) {
		const char *address = c->service_listen.item[i], *colon = strrchr(address, ':');
		const unsigned port = strncmp(address, "unix:", 5) == 0 || !colon
					      ? 0
					      : (unsigned)strtoul(colon + 1, NULL, 10);

		if (!port)
			continue;
		f->port_user = setup_port_user(root, port, m->port_name, sizeof(m->port_name));
		if (!f->port || f->port_user >= 0)
			f->port = port;
	}
}

/* Returns SETUP_THEIRS if gpuward.d contains a file that a person wrote or changed, otherwise
 * the state of setup.toml. */
static enum setup_file look_at_drop_ins(const struct machine *m)
{
	enum setup_file found = SETUP_ABSENT;
	char path[PATH_MAX];
	struct dirent *e;
	DIR *d;

	snprintf(path, sizeof(path), "%s" SETUP_FOLDER "/gpuward.d", m->at.prefix);
	d = opendir(path);
	while (d && (e = readdir(d))) {
		const char *end = strrchr(e->d_name, '.');

		if (e->d_name[0] == '.' || !end || strcmp(end, ".toml") != 0)
			continue;
		found = strcmp(e->d_name, "setup.toml") == 0 && found != SETUP_THEIRS
				? setup_look(&m->at, m->manifest, SETUP_DROP_IN)
				: SETUP_THEIRS;
	}
	if (d)
		closedir(d);
	return found;
}

static bool systemctl_says(const char *verb)
{
	const char *const argv[] = { "systemctl", verb, SETUP_SERVICE, NULL };

	return child_run(argv, clock_mono_ns(clock_real()) + QUESTION_NS, NULL, 0) == 0;
}

static enum setup_manager find_manager(const struct machine *m)
{
	if (*m->at.prefix || access("/run/systemd/system", F_OK) != 0)
		return SETUP_NO_SYSTEMD;
	if (!systemctl_says("cat"))
		return SETUP_NO_UNIT;
	return systemctl_says("is-active") ? SETUP_RUNNING : SETUP_STOPPED;
}

static int find_files(struct machine *m, const struct config *c)
{
	struct setup_facts *f = &m->facts;
	char path[PATH_MAX];
	uid_t uid;
	gid_t gid;
	int code;

	f->account =
		setup_account(m->at.prefix, SETUP_ACCOUNT, &uid, &gid, NULL, 0, NULL, 0) == 0;
	f->config = setup_look(&m->at, m->manifest, SETUP_CONFIG);
	f->drop_in = look_at_drop_ins(m);
	f->companion = setup_look(&m->at, m->manifest, SETUP_COMPANION);
	if (setup_is_configured(f))
		find_configured_token(m, c);
	if (!f->token_configured) {
		f->token_file = setup_look(&m->at, m->manifest, SETUP_TOKEN);
		code = f->token_file == SETUP_ABSENT ? make_token(m->token) : find_token(m);
		if (code != EXIT_OK)
			return code;
	}
	f->token = m->token;
	if (f->user) {
		snprintf(path, sizeof(path), "%s/" SETUP_USER_TOKEN, f->home);
		f->user_token = setup_look_user(&m->at, path, m->token);
	}
	return EXIT_OK;
}

static int find_all(const struct cli *c, struct machine *m)
{
	char time[CLOCK_RFC3339_SIZE];
	struct config config;
	struct root root;
	int err, code;

	m->at.prefix = c->root ? c->root : "";
	code = setup_manifest_load(&m->at, &m->manifest);
	if (code != EXIT_OK)
		return code;
	find_user(m);
	clock_format_rfc3339(clock_wall_ns(clock_real()), time);
	snprintf(m->date, sizeof(m->date), "%.10s", time);
	m->facts.date = m->date;
	m->facts.servers = &m->servers;
	m->facts.port_name = m->port_name;
	m->facts.manager = find_manager(m);
	code = read_configuration(m, &config);
	if (code != EXIT_OK)
		return code;
	err = root_open(&root, c->root);
	if (!err) {
		err = setup_find(&root, &m->servers);
		find_port(m, &root, &config);
		root_close(&root);
	}
	code = err ? cli_fail("the processes of this machine cannot be read: %s",
			      gw_strerror(err))
		   : find_files(m, &config);
	config_done(&config);
	return code;
}

static void print_gpus(const struct cli *c)
{
	const struct gw_status *s = gw_snapshot_status(c->snap);
	unsigned n = gw_snapshot_device_count(c->snap);

	if (s->simulated)
		term_print_simulated(stdout);
	printf("GPUs:\n");
	for (unsigned i = 0; i < n; i++) {
		const struct gw_device *d = gw_snapshot_device(c->snap, i);
		const char *name = gw_device_text(d, GW_T_NAME);

		printf("  %u %s (%s)\n", d->index, name ? name : "unknown",
		       gw_device_state_name(d->state));
	}
	if (s->driver_version)
		printf("  driver %s\n", s->driver_version);
}

static void print_servers(const struct machine *m)
{
	char where[256], line[400];

	printf("Inference servers:\n");
	for (unsigned i = 0; i < m->servers.count; i++) {
		setup_server_text(&m->servers.server[i], where, sizeof(where));
		snprintf(line, sizeof(line), "%s: %s", m->servers.server[i].sign->title, where);
		term_wrap("", 2, line, term_width());
	}
	if (!m->servers.count)
		printf("  no server that setup knows is running\n");
}

static void print_notes(const struct setup_plan *p)
{
	const char *at = p->notes.p, *end;

	if (!p->notes.len)
		return;
	printf("\nNotes:\n");
	for (; (end = strchr(at, '\n')); at = end + 1) {
		const size_t n = (size_t)(end - at);
		char *line = strndup(at, n), *clean = malloc(n + 1);

		if (line && clean) /* a note may contain names that other programs chose */
			utf8_clean(clean, n + 1, line);
		term_wrap(" -", 4, line && clean ? clean : gw_strerror(-GW_E_NOMEM),
			  term_width());
		free(line);
		free(clean);
	}
	if (p->print_config)
		printf("\n%s", p->config.p);
}

static void print_plan(const struct setup_plan *p)
{
	printf("\nSetup would:\n");
	for (unsigned i = 0; i < p->count; i++)
		if (p->step[i].why)
			printf("  %s %s: %s\n", setup_whats[p->step[i].what].plan,
			       p->step[i].path, p->step[i].why);
	if (!p->print_config)
		printf("\nThe configuration:\n\n%s", p->config.p);
}

/* Prints whether the guard acts. Asks the service for its mode, because a mode that a person
 * set at run time can differ from the configuration. */
static void print_mode(const struct machine *m, const struct setup_plan *p)
{
	bool starts = false;
	char mode[16] = "";

	for (unsigned i = 0; i < p->count; i++)
		starts |= p->step[i].what == STEP_UNIT || p->step[i].what == STEP_RELOAD;
	if (!setup_service_mode(&m->at, starts, mode))
		printf("\nWhen the service runs, the guard begins with a dry run: it decides "
		       "and reports, but moves\nnothing. A mode that was set earlier with "
		       "gpuward guard mode stays in force;\ngpuward guard status shows the "
		       "mode.\n");
	else if (strcmp(mode, guard_modes[GUARD_ENFORCE]) == 0)
		printf("\nThe guard acts: its mode is enforce. For a dry run, in which it "
		       "moves nothing:\n"
		       "sudo gpuward guard mode dry-run\n");
	else
		printf("\nThe guard begins with a dry run: it decides and reports, but moves "
		       "nothing (mode %s).\n",
		       mode);
	printf("Load a model, start a game, and see what the guard decides: gpuward guard "
	       "status\n");
	if (strcmp(mode, guard_modes[GUARD_ENFORCE]) != 0)
		printf("If that looks right, let the guard act:  sudo gpuward guard mode "
		       "enforce\n");
}

/* Prints what a person should do next. */
static void print_next(const struct machine *m, const struct setup_plan *p)
{
	if (p->workers && !p->print_config) {
		print_mode(m, p);
		printf("\nFor games that use GameMode, put these lines into "
		       "~/.config/gamemode.ini:\n"
		       "  [custom]\n"
		       "  start=gpuward guard game start --pid $PPID --reason gamemode\n"
		       "  end=gpuward guard game end --pid $PPID\n"
		       "For other games, set this launch option in Steam:\n"
		       "  gpuward run --vram 8G --anyway -- %%command%%\n"
		       "Replace 8G with the GPU memory that the game needs; gpuward top shows "
		       "it while\n"
		       "you play.\n"
		       "For a desktop notification when a worker leaves the GPU or returns to "
		       "it:\n"
		       "  systemctl --user enable --now gpuward-notify\n");
	}
	printf("\n");
	if (m->facts.port)
		printf("To see the GPUs in a browser: http://127.0.0.1:%u\n", m->facts.port);
	printf("To remove what setup wrote: sudo gpuward setup --undo\n");
}

/* Asks a question. Returns 1 for yes, 0 for no, -1 if the input ended. */
static int ask(const char *question)
{
	char answer[64];

	printf("%s [Y/n] ", question);
	fflush(stdout);
	if (!fgets(answer, sizeof(answer), stdin))
		return -1;
	return answer[strspn(answer, " \t")] != 'n' && answer[strspn(answer, " \t")] != 'N';
}

static int ask_all(const struct machine *m, struct setup_answers *a)
{
	char text[256];
	int guard = 1, copy = 1, start = 1;

	printf("\n");
	if (m->servers.count)
		guard = ask("Shall the guard manage these servers? It begins with a dry run, "
			    "which moves nothing.");
	if (guard >= 0 && m->facts.user && m->facts.user_token == SETUP_ABSENT) {
		snprintf(text, sizeof(text),
			 "Shall %s get a copy of the token, to move workers and register games "
			 "without sudo?",
			 m->facts.user);
		copy = ask(text);
	}
	if (guard >= 0 && copy >= 0 && m->facts.manager == SETUP_STOPPED)
		start = ask("Shall the service start now and at each start of the machine?");
	*a = (struct setup_answers){ guard > 0, copy > 0, start > 0 };
	return guard < 0 || copy < 0 || start < 0
		       ? cli_fail("no answer was given, so nothing was changed")
		       : EXIT_OK;
}

/* Checks the planned configuration. If it had a mistake, the service could not start. */
static int check_config(const struct setup_plan *p)
{
	char message[1000];
	struct config c;

	if (config_load_text(&c, "the new configuration", p->config.p, p->config.len, message,
			     sizeof(message)) != 0)
		return cli_fail("%s; nothing was changed. This is a defect of gpuward: please "
				"report it with the output of gpuward setup --dry-run",
				message);
	config_done(&c);
	return EXIT_OK;
}

/* Prints why nothing is changed. Returns an exit code: EXIT_OK for a dry run. */
static int refuse(const struct cli *c)
{
	const struct given *g = c->own;

	printf("\n");
	fflush(stdout);
	if (g->dry_run)
		return EXIT_OK;
	if (c->simulate)
		cli_error("setup starts a service for real GPUs only, but --simulate is given: "
			  "nothing was changed; " TRY_IT " shows how to try "
			  "the guard without setup");
	else if (geteuid() != 0 && !c->root)
		cli_error("only root can write %s and start the service, so nothing was "
			  "changed; run sudo gpuward setup",
			  SETUP_FOLDER);
	else
		cli_error("setup cannot ask questions, because the input or output is not a "
			  "terminal, so nothing was changed; to answer all questions with yes, "
			  "run sudo gpuward setup --yes");
	return EXIT_FAILED;
}

static int carry_out(struct cli *c, struct machine *m)
{
	const struct given *g = c->own;
	const bool may = !g->dry_run && !c->simulate && (geteuid() == 0 || c->root) &&
			 (g->yes || (isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)));
	struct setup_answers answers = { true, true, true };
	struct setup_plan plan;
	int code = may && !g->yes ? ask_all(m, &answers) : EXIT_OK, err;

	if (code != EXIT_OK)
		return code;
	err = setup_plan_make(&m->facts, &answers, &plan);
	if (err)
		code = cli_fail("the plan cannot be made: %s; nothing was changed",
				gw_strerror(err));
	else if (!may) {
		print_plan(&plan);
		print_notes(&plan);
		code = refuse(c);
	} else {
		code = check_config(&plan);
		if (code == EXIT_OK && !c->quiet)
			printf("\nDone:\n");
		if (code == EXIT_OK)
			code = setup_apply(&m->at, m->manifest, &plan, c->quiet);
		if (code == EXIT_OK) {
			print_notes(&plan);
			if (!c->quiet)
				print_next(m, &plan);
		} else {
			cli_error("setup is not complete; fix the error and run sudo gpuward "
				  "setup again, or remove what was written with sudo gpuward "
				  "setup --undo");
		}
	}
	setup_plan_done(&plan);
	return code;
}

/* Returns the port that the configuration of the service now names; 0: none. */
static unsigned service_port(const struct cli *c)
{
	struct machine *m = calloc(1, sizeof(*m));
	struct config config;
	struct root root;
	unsigned port = 0;

	if (!m)
		return 0;
	m->at.prefix = c->root ? c->root : "";
	if (read_configuration(m, &config) == EXIT_OK) {
		if (root_open(&root, c->root) == 0) {
			find_port(m, &root, &config);
			port = m->facts.port;
			root_close(&root);
		}
		config_done(&config);
	}
	free(m);
	return port;
}

/* Prints a note if a service still runs after the undo. Setup did not start this service, so
 * the undo does not stop it. */
static void print_still_running(const struct cli *c, unsigned port)
{
	struct root root;
	char name[64] = "";
	int64_t pid = -1;

	if (port && root_open(&root, c->root) == 0) {
		pid = setup_port_user(&root, port, name, sizeof(name));
		root_close(&root);
	}
	if (pid > 0 && strncmp(name, "gpuward", 7) == 0)
		printf("A gpuward service still runs (process %lld, port %u): setup did not "
		       "start it. Stop it yourself if you do not need it.\n",
		       (long long)pid, port);
}

static int undo(const struct cli *c)
{
	const struct given *g = c->own;
	const struct setup_place at = { .prefix = c->root ? c->root : "" };
	const unsigned port = service_port(c); /* setup_undo() removes the configuration */
	bool done;
	int code;

	if (geteuid() != 0 && !c->root)
		return cli_fail("only root can undo the setup; run sudo gpuward setup --undo");
	code = setup_is_done(&at, &done);
	if (code != EXIT_OK)
		return code;
	if (done && g->dry_run)
		printf("Undo would:\n");
	/* Do this before the files are removed, because it needs the running service and its
	 * token. */
	if (done)
		setup_service_forget(&at, c->quiet, g->dry_run);
	code = setup_undo(&at, c->quiet, g->dry_run);
	if (code == EXIT_OK && !g->dry_run && !c->quiet)
		print_still_running(c, port);
	return code;
}

/* Prints why the machine has no GPU and what to do about it. Returns EXIT_NO_GPU. */
static int refuse_without_gpu(const struct cli *c)
{
	const struct gw_status *s = gw_snapshot_status(c->snap);
	bool none = s->cause == GW_CAUSE_NONE || s->cause == GW_CAUSE_NO_GPU;

	cli_error("%s; the guard needs a GPU, so nothing was changed. %s%s",
		  *s->message ? s->message : "no GPU was found: no driver reports one",
		  none ? "If this machine has a GPU, install its driver. To try the guard "
			 "without a GPU: " TRY_IT "."
		       : gw_cause_info(s->cause)->remedy,
		  none && !c->simulate ? " To see what setup would do on a machine with a GPU: "
					 "gpuward setup --dry-run --simulate."
				       : "");
	return EXIT_NO_GPU;
}

static int set_up(struct cli *c)
{
	struct machine *m;
	int code;

	m = calloc(1, sizeof(*m));
	if (!m)
		return cli_no_memory();
	code = cli_open(c, GW_TIER_STATIC);
	if (code == EXIT_OK && gw_snapshot_device_count(c->snap) == 0)
		code = refuse_without_gpu(c);
	if (code == EXIT_OK)
		code = find_all(c, m);
	if (code == EXIT_OK) {
		print_gpus(c);
		print_servers(m);
		code = carry_out(c, m);
	}
	explicit_bzero(m->token, sizeof(m->token));
	free(m->manifest);
	free(m);
	return code;
}

static int setup_run(struct cli *c)
{
	const struct given *g = c->own;
	const struct setup_place at = { .prefix = c->root ? c->root : "" };
	int lock, code = setup_begin(&at, !g->dry_run && (geteuid() == 0 || c->root), &lock);

	if (code == EXIT_OK)
		code = g->undo ? undo(c) : set_up(c);
	setup_end(&at, lock);
	return code;
}

const struct command command_setup = {
	.name = "setup",
	.summary = "prepare this machine for the guard, or undo that",
	.description =
		"Finds the GPUs and the inference servers that run now, asks at most three "
		"questions, writes a token and /etc/gpuward/gpuward.toml, gives the calling "
		"user a copy of the token, and starts the service with the guard in dry-run. "
		"It sends no request to any server, and overwrites no file that a person wrote "
		"or changed. With --root, it reads and writes below DIR and starts nothing.",
	.examples = "  sudo gpuward setup\n"
		    "  gpuward setup --dry-run\n"
		    "  sudo gpuward setup --undo\n",
	.options = options,
	.options_size = sizeof(struct given),
	.one_form = true,
	.run = setup_run,
};
