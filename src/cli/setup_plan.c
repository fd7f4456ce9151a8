#include "setup_plan.h"

#include "base/toml_write.h"
#include "base/utf8.h"
#include "guard/worker/companion.h"

#include <gpuward.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOTES_MAX        (64u << 10)
#define CONFIG_MAX       (64u << 10)
#define PATTERN_MAX      200
#define NAME_PATTERN_MAX 121
#define NO_KIND          WORKER_KINDS /* the guard cannot move the server */

const struct setup_what_words setup_whats[SETUP_WHAT_COUNT] = {
#define X(name, word, plan, done) [STEP_##name] = { word, plan, done },
	SETUP_WHATS(X)
#undef X
};

static void __attribute__((format(printf, 2, 3)))
add_note(struct setup_plan *p, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	buf_addv(&p->notes, fmt, ap);
	va_end(ap);
	buf_addc(&p->notes, '\n');
}

void setup_server_text(const struct setup_server *s, char *out, size_t size)
{
	char where[200], text[300];

	switch (s->home) {
	case SETUP_UNIT: snprintf(where, sizeof(where), "unit %s", s->unit); break;
	case SETUP_USER_UNIT:
		snprintf(where, sizeof(where), "unit %s of user %lld", s->unit,
			 (long long)s->uid);
		break;
	case SETUP_CONTAINER:
		snprintf(where, sizeof(where), "container %s", s->container);
		break;
	default: snprintf(where, sizeof(where), "process %lld", (long long)s->pid);
	}
	snprintf(text, sizeof(text), "%s, port %u%s", where, s->port,
		 s->listens  ? ""
		 : s->unseen ? " (whether it listens there cannot be seen without root)"
			     : " (nothing listens there)");
	/* Other programs choose the names of units and containers: remove control
	 * characters. */
	utf8_clean(out, size, text);
}

/* Escapes a text for an extended regular expression. If the text is too long, cuts it between
 * two characters and returns false. */
static bool escape(char *out, size_t size, const char *text)
{
	size_t used = 0;

	for (size_t n; *text; text += n) {
		const bool special = strchr("\\.[]{}()*+?^$|", *text) != NULL;

		n = utf8_length(text);
		n = n ? n : 1;
		if (used + special + n >= size)
			break;
		if (special)
			out[used++] = '\\';
		memcpy(out + used, text, n);
		used += n;
	}
	out[used] = '\0';
	return !*text;
}

/* Writes the pattern of match.command, for a server without a unit of its own. Usually the
 * pattern contains the name of the server's program or script, or the end of the script's path.
 * If `whole` is set or nothing else is possible, it contains the beginning of the command
 * line. */
static void command_pattern(const struct setup_server *s, bool whole, char out[PATTERN_MAX])
{
	const char *last = strrchr(s->script, '/'), *before = last;
	const char *name = last ? last + 1 : s->script;
	char text[NAME_PATTERN_MAX];

	while (before && before > s->script && before[-1] != '/')
		before--;
	if (!whole && !s->sign->place && *name && escape(text, sizeof(text), name)) {
		snprintf(out, PATTERN_MAX, "(^|[/ ])%s( |$)", text);
		if (s->sign->word && !strchr(s->script, '.'))
			snprintf(out, PATTERN_MAX, "(^|[/ ])%s %.40s", text, s->sign->word);
	} else if (whole || !before || !s->sign->place || !strcasestr(before, s->sign->place) ||
		   !escape(out, PATTERN_MAX, before)) {
		out[0] = '^';
		(void)escape(out + 1, PATTERN_MAX - 1, s->command);
	}
}

/* Returns true if another server that needs match.command would have the same pattern. */
static bool is_shared(const struct setup_servers *all, const struct setup_server *s)
{
	char own[PATTERN_MAX], other[PATTERN_MAX];

	command_pattern(s, false, own);
	for (unsigned i = 0; i < all->count; i++) {
		const struct setup_server *o = &all->server[i];

		if (o == s || (o->home != SETUP_PLAIN && o->home != SETUP_CONTAINER))
			continue;
		command_pattern(o, false, other);
		if (strcmp(own, other) == 0)
			return true;
	}
	return false;
}

static void comment(struct buf *out, const char *text)
{
	buf_addf(out, "# %s\n", text);
}

static void write_match(struct buf *out, const struct setup_servers *all,
			const struct setup_server *s)
{
	char pattern[PATTERN_MAX + 32];

	if (s->home == SETUP_UNIT) {
		comment(out, "The processes of the worker: all processes of this unit.");
		toml_write_text(out, "match.unit", s->unit);
	} else if (s->home == SETUP_USER_UNIT) {
		comment(out, "The processes of the worker: all processes in this control "
			     "group, which is a unit of the user's systemd.");
		toml_write_text(out, "match.cgroup", s->cgroup);
	} else {
		command_pattern(s, is_shared(all, s), pattern);
		comment(out, "The processes of the worker: those with this command line (a "
			     "regular expression) and this user, and their children.");
		toml_write_text(out, "match.command", pattern);
		if (s->uid >= 0)
			buf_addf(out, "match.uid = %lld\n", (long long)s->uid);
	}
}

/* Returns the kind of worker that the guard moves by stopping its unit. */
static unsigned unit_kind(void)
{
	unsigned k = 0;

	while (!policy_kind_is(k, KIND_UNIT))
		k++;
	return k;
}

/* Returns true if the configuration can contain the texts that identify this server: the model,
 * and its unit or its command line. TOML allows only UTF-8, but these texts can contain any
 * bytes. */
static bool can_be_named(const struct setup_server *s)
{
	if (!utf8_is_valid(s->model))
		return false;
	switch (s->home) {
	case SETUP_UNIT: return utf8_is_valid(s->unit);
	case SETUP_USER_UNIT: return utf8_is_valid(s->cgroup);
	default: return utf8_is_valid(s->command) && utf8_is_valid(s->script);
	}
}

/* Returns the kind of worker with which the guard can move this server, or NO_KIND. */
static unsigned moving_kind(const struct setup_server *s)
{
	if (!can_be_named(s))
		return NO_KIND;
	if (s->stuck)
		return s->home == SETUP_UNIT ? unit_kind() : NO_KIND;
	if (policy_kind_is(s->sign->kind, KIND_NEEDS_MODEL) && !*s->model)
		return NO_KIND;
	return s->sign->kind;
}

static bool needs_companion(const struct setup_servers *all)
{
	for (unsigned i = 0; i < all->count; i++)
		if (moving_kind(&all->server[i]) == unit_kind())
			return true;
	return false;
}

static void kind_comment(struct buf *out, unsigned kind)
{
	static const char *const help[] = {
#define K(symbol, name, url, level, stop_s, traits, help) help,
#include "guard/kind.def"
	};
	char text[200];

	snprintf(text, sizeof(text), "How it leaves the GPU: %s.", help[kind]);
	comment(out, text);
}

/* Writes a name that no worker before server `at` has: ollama, ollama-2, and so on. */
static void write_name(struct buf *out, const struct setup_servers *all, unsigned at)
{
	unsigned same = 1;
	char name[64];

	for (unsigned i = 0; i < at; i++)
		same += all->server[i].sign == all->server[at].sign &&
			moving_kind(&all->server[i]) != NO_KIND;
	snprintf(name, sizeof(name), "%s", policy_kind_name(all->server[at].sign->kind));
	if (same > 1)
		snprintf(name + strlen(name), sizeof(name) - strlen(name), "-%u", same);
	toml_write_text(out, "name", name);
}

static void write_worker(struct setup_plan *p, const struct setup_servers *all, unsigned at)
{
	const struct setup_server *s = &all->server[at];
	const unsigned kind = moving_kind(s);
	struct buf *out = &p->config;
	char text[300], where[256];

	if (kind == NO_KIND)
		return;
	p->workers++;
	setup_server_text(s, where, sizeof(where));
	snprintf(text, sizeof(text), "%s, found as %s.", s->sign->title, where);
	buf_addc(out, '\n');
	comment(out, text);
	buf_adds(out, "[[worker]]\n");
	comment(out, "Its name in commands such as gpuward guard explain NAME.");
	write_name(out, all, at);
	kind_comment(out, kind);
	toml_write_text(out, "kind", policy_kind_name(kind));
	if (kind == s->sign->kind) {
		snprintf(text, sizeof(text), "http://127.0.0.1:%u", s->port);
		comment(out, "The address of the server.");
		toml_write_text(out, "url", text);
	}
	if (*s->model) {
		comment(out, "The model that it loads when it returns to the GPU.");
		toml_write_text(out, "model", s->model);
	}
	if (s->sign->need_text && (s->lacks || !*s->sign->needs)) {
		snprintf(text, sizeof(text), "Before the guard can evict it: %s.",
			 s->sign->need_text);
		comment(out, text);
	}
	write_match(out, all, s);
}

static void write_config(const struct setup_facts *f, const struct setup_answers *a,
			 struct setup_plan *p)
{
	struct buf *out = &p->config;
	const bool guard = a->guard && f->servers->count;

	buf_addf(out,
		 "# Written by gpuward setup on %s. You may change this file; then run sudo "
		 "systemctl reload gpuward.\n"
		 "# gpuward.toml(5) describes every key, gpuward config check finds "
		 "mistakes.\n\n"
		 "[service]\n",
		 f->date);
	if (f->token_configured) {
		comment(out, "The configuration already names a token.");
	} else {
		comment(out, "A request that changes something, such as an eviction, needs the "
			     "token in this file.");
		toml_write_text(out, "token_file", SETUP_TOKEN);
	}
	if (!guard)
		return;
	buf_adds(out, "\n[guard]\n");
	comment(out, "dry-run: the guard decides and reports, but moves no worker. sudo "
		     "gpuward guard mode enforce lets it act.");
	toml_write_text(out, "mode", "dry-run");
	if (needs_companion(f->servers)) {
		comment(out, "The socket of the program that may stop units; see "
			     "gpuward-companion(8).");
		toml_write_text(out, "companion", COMPANION_SOCKET);
	}
	for (unsigned i = 0; i < f->servers->count; i++)
		write_worker(p, f->servers, i);
}

static struct setup_step *add_step(struct setup_plan *p, enum setup_what what, const char *path,
				   const char *why)
{
	struct setup_step *s = &p->step[p->count++];

	*s = (struct setup_step){ .what = what, .why = why };
	snprintf(s->path, sizeof(s->path), "%s", path);
	return s;
}

static void add_file(struct setup_plan *p, const char *path, const char *text, mode_t mode,
		     const char *why)
{
	struct setup_step *s = add_step(p, STEP_FILE, path, why);

	s->text = strdup(text);
	s->mode = mode;
}

bool setup_is_configured(const struct setup_facts *f)
{
	return f->config == SETUP_THEIRS ||
	       (f->config != SETUP_OURS && f->drop_in == SETUP_THEIRS);
}

/* Plans the configuration file. Returns true if the plan contains a step that writes it. */
static bool plan_config(const struct setup_facts *f, struct setup_plan *p)
{
	const bool below = f->config == SETUP_COMMENT;

	if (setup_is_configured(f)) {
		add_note(p,
			 "%s has a configuration that a person wrote or changed, so setup does "
			 "not change it. The lines that setup would have written are below: "
			 "add the lines that you want, then run setup again.",
			 SETUP_FOLDER);
		p->print_config = true;
		return false;
	}
	if ((below ? f->drop_in : f->config) == SETUP_OURS) {
		if (!f->servers->count) {
			add_note(p, "The configuration that an earlier setup wrote is not "
				    "changed.");
			return false;
		}
		add_note(p, "The configuration that an earlier setup wrote is replaced: the "
			    "new one contains the servers that run now.");
	}
	if (below)
		add_step(p, STEP_FOLDER, SETUP_FOLDER "/gpuward.d", NULL)->mode = 0755;
	add_file(p, below ? SETUP_DROP_IN : SETUP_CONFIG, p->config.p, 0644,
		 "the configuration of the service");
	p->step[p->count - 1].replaces = (below ? f->drop_in : f->config) == SETUP_OURS;
	return true;
}

static void plan_token(const struct setup_facts *f, struct setup_plan *p)
{
	if (f->token_file != SETUP_ABSENT)
		return;
	add_file(p, SETUP_TOKEN, f->token, 0600,
		 "the token, which only the service and root can read");
	p->step[p->count - 1].of_account = f->account || f->manager != SETUP_NO_SYSTEMD;
}

/* Writes the configuration of the companion: which user may send requests, and for which
 * units. */
static void write_companion(const struct setup_servers *all, struct buf *out)
{
	buf_addf(out, "client %s\n", SETUP_ACCOUNT);
	for (unsigned i = 0; i < all->count; i++)
		if (moving_kind(&all->server[i]) == unit_kind())
			buf_addf(out, "unit %s\n", all->server[i].unit);
}

static int plan_companion(const struct setup_facts *f, struct setup_plan *p)
{
	struct buf text;
	int err;

	if (!needs_companion(f->servers))
		return 0;
	buf_init(&text, CONFIG_MAX);
	if (f->companion != SETUP_THEIRS)
		buf_adds(&text, "# Written by gpuward setup: what the guard may stop and "
				"start. See gpuward-companion(8).\n");
	write_companion(f->servers, &text);
	err = text.err;
	if (!err && f->companion == SETUP_THEIRS) {
		for (char *c = text.p; (c = strchr(c, '\n'));)
			*c = c[1] ? ';' : '\0';
		add_note(p,
			 "A person wrote or changed %s, so setup does not change it. The guard "
			 "needs these lines in it, which are separated by semicolons here: %s",
			 SETUP_COMPANION, text.p);
	} else if (!err) {
		add_file(p, SETUP_COMPANION, text.p, 0644,
			 "the units that the guard may stop and start");
		p->step[p->count - 1].replaces = f->companion == SETUP_OURS;
	}
	buf_done(&text);
	return err;
}

static void plan_user(const struct setup_facts *f, const struct setup_answers *a,
		      struct setup_plan *p)
{
	char path[256];

	if (!f->user || !a->copy || f->user_token == SETUP_OURS)
		return;
	snprintf(path, sizeof(path), "%s/" SETUP_USER_TOKEN, f->home);
	if (f->user_token == SETUP_THEIRS) {
		add_note(p,
			 "%s exists, and setup did not write it, so setup does not change it. "
			 "To replace it, delete it and run setup again.",
			 path);
		return;
	}
	if (f->user_token == SETUP_BLOCKED) {
		add_note(p,
			 "The copy of the token, %s, was not made: the home folder of %.60s is "
			 "missing, %.60s may not write there, or the path contains a link, "
			 "which setup does not follow. Fix this and run setup again, or make "
			 "the copy yourself: sudo install -D -o %.60s -m 600 %s %s",
			 path, f->user, f->user, f->user, SETUP_TOKEN, path);
		return;
	}
	for (unsigned i = 0; i < 2; i++) {
		char folder[256];

		snprintf(folder, sizeof(folder), "%s/%s", f->home,
			 i ? ".config/gpuward" : ".config");
		add_step(p, STEP_USER_FOLDER, folder, NULL)->mode = 0700;
	}
	add_step(p, STEP_USER_FILE, path,
		 "a copy of the token, so that your commands work without sudo");
	p->step[p->count - 1].mode = 0600;
	p->step[p->count - 1].text = strdup(f->token);
}

static void plan_service(const struct setup_facts *f, const struct setup_answers *a,
			 struct setup_plan *p, bool configured)
{
	const bool companion = configured && needs_companion(f->servers);

	if (f->manager == SETUP_NO_SYSTEMD) {
		add_note(p, "systemd does not run on this machine. Start the service yourself: "
			    "sudo gpuward serve");
	} else if (f->manager == SETUP_NO_UNIT) {
		add_note(p,
			 "The unit %s is not installed. Install gpuward (sudo make install, or "
			 "a package), or start the service yourself: sudo gpuward serve",
			 SETUP_SERVICE);
	} else if (f->manager == SETUP_RUNNING) {
		if (companion)
			add_step(p, STEP_UNIT, SETUP_SOCKET, "the right to stop units");
		add_step(p, STEP_RELOAD, SETUP_SERVICE,
			 "the service already runs: it reads the new configuration");
	} else if (f->port_user >= 0) {
		add_note(p,
			 "Port %u is in use (process %lld, %.60s), perhaps by another gpuward, "
			 "so the service is not started. Stop that process, then run sudo "
			 "systemctl enable --now gpuward.",
			 f->port, (long long)f->port_user, f->port_name);
	} else if (!a->start) {
		add_note(
			p,
			"To start the service later, run sudo systemctl enable --now gpuward.");
	} else {
		if (companion)
			add_step(p, STEP_UNIT, SETUP_SOCKET, "the right to stop units");
		add_step(p, STEP_UNIT, SETUP_SERVICE,
			 "the service, now and whenever the machine starts");
	}
}

static void note_server(struct setup_plan *p, const struct setup_server *s)
{
	const char *title = s->sign->title;

	if (!can_be_named(s)) {
		add_note(p,
			 "%s (process %lld) is left out: its command line, model file or unit "
			 "has a name that is not UTF-8, and the configuration allows only "
			 "UTF-8. Change the name to UTF-8, start the server again, and run "
			 "setup again.",
			 title, (long long)s->pid);
		return;
	}
	if (s->home == SETUP_PLAIN && *s->unit)
		add_note(p,
			 "%s (process %lld) is not the only program in the unit %s, so the "
			 "guard does not stop this unit%s.",
			 title, (long long)s->pid, s->unit,
			 moving_kind(s) == NO_KIND
				 ? ""
				 : "; it recognises the server by its command line");
	if (s->stuck && s->home != SETUP_UNIT)
		add_note(p,
			 "%s (process %lld) was started with one fixed model, which it cannot "
			 "unload. Run it as the main process of its own systemd unit, or start "
			 "it without a fixed model (as a router), and run setup again.",
			 title, (long long)s->pid);
	else if (s->sign->need_text &&
		 (s->lacks || !*s->sign->needs || moving_kind(s) == NO_KIND))
		add_note(p,
			 "%s (process %lld): before the guard can evict it, this is needed: "
			 "%s.%s",
			 title, (long long)s->pid, s->sign->need_text,
			 moving_kind(s) == NO_KIND ? " Then run setup again." : "");
	if (s->home == SETUP_CONTAINER)
		add_note(p,
			 "%s runs in a container. The guard reaches it at 127.0.0.1:%u: the "
			 "container must publish this port on this machine.",
			 title, s->port);
	else if (!s->listens && !s->unseen && moving_kind(s) == s->sign->kind)
		add_note(p,
			 "%s (process %lld) does not listen on port %u. Correct the key url in "
			 "its [[worker]].",
			 title, (long long)s->pid, s->port);
}

static void note_found(const struct setup_facts *f, const struct setup_answers *a,
		       struct setup_plan *p)
{
	for (unsigned i = 0; a->guard && i < f->servers->count; i++)
		note_server(p, &f->servers->server[i]);
	for (unsigned i = 0; i < f->servers->maybes; i++) {
		const struct setup_maybe *m = &f->servers->maybe[i];

		add_note(p,
			 "The process %.60s (pid %lld) listens on port %u, the usual port of "
			 "%s, but setup does not recognise it. If it is such a server, add a "
			 "[[worker]]; gpuward.toml(5) shows how.",
			 m->name, (long long)m->pid, m->port, m->sign->title);
	}
	if (f->servers->left_out)
		add_note(p, "%u servers are left out, because the guard cannot manage so many.",
			 f->servers->left_out);
	if (!f->servers->count)
		add_note(p,
			 "No inference server runs now. Start it and run setup again, or "
			 "describe it in %s: gpuward.toml(5) shows how.",
			 SETUP_CONFIG);
}

int setup_plan_make(const struct setup_facts *f, const struct setup_answers *a,
		    struct setup_plan *ret)
{
	bool configured;
	int err = 0;

	*ret = (struct setup_plan){ .count = 0 };
	buf_init(&ret->notes, NOTES_MAX);
	buf_init(&ret->config, CONFIG_MAX);
	write_config(f, a, ret);
	if (ret->config.err)
		return ret->config.err;
	if (f->manager != SETUP_NO_SYSTEMD && !f->account)
		add_step(ret, STEP_ACCOUNT, SETUP_ACCOUNT, "the user of the service");
	add_step(ret, STEP_FOLDER, SETUP_FOLDER,
		 "the folder for the token and the configuration")
		->mode = 0755;
	/* The configuration that is written or printed names the token file, so write the token
	 * file in both cases. */
	if (!setup_is_configured(f) || !f->token_configured)
		plan_token(f, ret);
	configured = plan_config(f, ret);
	if (configured && a->guard)
		err = plan_companion(f, ret);
	if (!setup_is_configured(f) || f->token_configured)
		plan_user(f, a, ret);
	note_found(f, a, ret);
	plan_service(f, a, ret, configured && a->guard);
	for (unsigned i = 0; i < ret->count; i++)
		if (!ret->step[i].text &&
		    (ret->step[i].what == STEP_FILE || ret->step[i].what == STEP_USER_FILE))
			return -GW_E_NOMEM;
	return err ? err : ret->notes.err;
}

void setup_plan_done(struct setup_plan *p)
{
	for (unsigned i = 0; i < p->count; i++)
		free(p->step[i].text);
	buf_done(&p->notes);
	buf_done(&p->config);
	p->count = 0;
}
