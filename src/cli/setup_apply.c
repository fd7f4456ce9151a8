#include "setup_apply.h"

#include "cli.h"

#include "base/child.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/json_doc.h"
#include "base/sha256.h"
#include "serve/render.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ENTRIES      64
#define SYSTEMCTL_NS (90 * NS_PER_S)

/* One entry of the manifest. */
struct entry {
	enum setup_what what;
	char path[256];
	/* checksums of the last two contents that setup wrote; "": none */
	char sum[2][65];
	char user[64];        /* for STEP_USER_FILE and STEP_USER_FOLDER: the user */
	bool enabled, active; /* for STEP_UNIT: the state of the unit before setup */
};

struct setup_manifest {
	struct entry entry[ENTRIES];
	unsigned count;
};

static void read_entry(const struct json_doc *o, struct setup_manifest *m)
{
	struct entry *e = &m->entry[m->count];
	const char *what = json_doc_string(o, "what"), *path = json_doc_string(o, "path");

	if (!what || !path || m->count == ENTRIES)
		return;
	*e = (struct entry){ .enabled = json_doc_true(o, "enabled"),
			     .active = json_doc_true(o, "active") };
	snprintf(e->path, sizeof(e->path), "%s", path);
	json_doc_copy(o, "user", e->user, sizeof(e->user));
	for (size_t i = 0; i < 2; i++)
		json_doc_copy(json_doc_at(o, "sha256", i), "", e->sum[i], sizeof(e->sum[i]));
	for (unsigned w = 0; w < SETUP_WHAT_COUNT; w++) {
		if (strcmp(setup_whats[w].word, what) != 0)
			continue;
		e->what = (enum setup_what)w;
		m->count++;
	}
}

int setup_manifest_load(const struct setup_place *at, struct setup_manifest **ret)
{
	struct setup_manifest *m = calloc(1, sizeof(*m));
	char path[PATH_MAX], *text = malloc(SETUP_FILE_MAX), message[200] = "";
	struct json_doc *o = NULL;
	int code = EXIT_OK;
	struct stat st;
	long n;

	if (!text || !m) {
		free(text);
		free(m);
		return cli_no_memory();
	}
	n = setup_read(AT_FDCWD, setup_path(at, SETUP_MANIFEST, path), text, SETUP_FILE_MAX,
		       &st);
	if (n == -ENOENT || (n == -EACCES && geteuid() != 0))
		/* there is no manifest, or this user may not read it and can only print the
		 * plan */
		;
	/* The undo removes, as root, what this file lists, so other users must not be able to
	 * write it. */
	else if (n >= 0 && ((st.st_uid != 0 && st.st_uid != geteuid()) || (st.st_mode & 022)))
		code = cli_fail("%s is not used, because users other than root can write it; "
				"check its content, then run chown root and chmod 600 on it",
				path);
	else if (n < 0 || json_doc_new(text, (size_t)n, &o, message, sizeof(message)) != 0)
		code = cli_fail(
			"%s cannot be read: %s; fix or remove this file. It is the list of "
			"what setup wrote; without it, setup --undo removes nothing",
			path, n < 0 ? strerror((int)-n) : message);
	for (size_t i = 0; o && i < json_doc_count(o, "steps"); i++)
		read_entry(json_doc_at(o, "steps", i), m);
	json_doc_free(o);
	free(text);
	if (code == EXIT_OK)
		*ret = m;
	else
		free(m);
	return code;
}

static void write_entry(struct json *j, const struct entry *e)
{
	json_object(j, NULL);
	json_string(j, "what", setup_whats[e->what].word);
	json_string(j, "path", e->path);
	if (*e->user)
		json_string(j, "user", e->user);
	if (*e->sum[0]) {
		json_array(j, "sha256");
		for (unsigned i = 0; i < 2; i++)
			if (*e->sum[i])
				json_string(j, NULL, e->sum[i]);
		json_array_end(j);
	}
	if (e->what == STEP_UNIT) {
		json_bool(j, "enabled", e->enabled);
		json_bool(j, "active", e->active);
	}
	json_object_end(j);
}

static int manifest_save(const struct setup_place *at, const struct setup_manifest *m)
{
	char path[PATH_MAX];
	struct buf out;
	struct json j;
	int err;

	buf_init(&out, SETUP_FILE_MAX - 1);
	json_init(&j, &out, true);
	json_object(&j, NULL);
	json_int(&j, "schema_version", RENDER_SCHEMA_VERSION);
	json_array(&j, "steps");
	for (unsigned i = 0; i < m->count; i++)
		write_entry(&j, &m->entry[i]);
	json_array_end(&j);
	json_object_end(&j);
	json_end(&j);
	setup_path(at, SETUP_MANIFEST, path);
	err = out.err ? ENOMEM
		      : setup_put(path, &(struct setup_contents){ .text = out.p,
								  .mode = 0600,
								  .uid = (uid_t)-1,
								  .replaces = true });
	buf_done(&out);
	return err ? cli_fail("%s cannot be written: %s; this step was not carried out", path,
			      strerror(err))
		   : EXIT_OK;
}

static struct entry *find_entry(struct setup_manifest *m, const char *path)
{
	for (unsigned i = 0; i < m->count; i++)
		if (strcmp(m->entry[i].path, path) == 0)
			return &m->entry[i];
	return NULL;
}

/* Returns true if all lines of a configuration file are comments or empty. */
static bool is_comment(const char *text)
{
	for (; *text; text += strcspn(text, "\n"), text += *text == '\n') {
		size_t n = strspn(text, " \t\r");

		if (text[n] && text[n] != '\n' && text[n] != '#')
			return false;
	}
	return true;
}

static bool is_ours(const struct entry *e, const char *text, size_t n)
{
	char sum[65];

	sha256_hex(text, n, sum);
	return e && (strcmp(e->sum[0], sum) == 0 || strcmp(e->sum[1], sum) == 0);
}

enum setup_file setup_look(const struct setup_place *at, struct setup_manifest *m,
			   const char *path)
{
	enum setup_file found = SETUP_THEIRS;
	char full[PATH_MAX], *text = malloc(SETUP_FILE_MAX);
	struct stat st;
	long n = text ? setup_read(AT_FDCWD, setup_path(at, path, full), text,
				   SETUP_FILE_MAX - 1, &st)
		      : -ENOMEM;

	if (n == -ENOENT || n == -ENOTDIR)
		found = SETUP_ABSENT;
	if (n >= 0) {
		text[n] = '\0';
		if (is_ours(find_entry(m, path), text, (size_t)n))
			found = SETUP_OURS;
		else if (strlen(text) == (size_t)n && is_comment(text))
			found = SETUP_COMMENT;
	}
	free(text);
	return found;
}

enum setup_file setup_look_user(const struct setup_place *at, const char *path,
				const char *text)
{
	char sum[65];
	int err;

	sha256_hex(text, strlen(text), sum);
	err = setup_as_user(at, &(struct setup_home_request){ .verb = HOME_LOOK,
							      .path = path,
							      .sum = { sum, NULL } });
	if (err == ENOENT &&
	    setup_as_user(at, &(struct setup_home_request){ .verb = HOME_MAY_CREATE,
							    .path = path }) != 0)
		err = EACCES;
	return err == 0               ? SETUP_OURS
	       : err == ENOENT        ? SETUP_ABSENT
	       : err == SETUP_CHANGED ? SETUP_THEIRS
				      : SETUP_BLOCKED;
}

/* Runs systemctl; `option` may be NULL. Returns its exit status, or a negative gw_error. */
static int systemctl(const char *verb, const char *option, const char *unit)
{
	const char *argv[] = { "systemctl", verb, option ? option : unit, option ? unit : NULL,
			       NULL };

	return child_run(argv, clock_mono_ns(clock_real()) + SYSTEMCTL_NS, NULL, 0);
}

static int run_sysusers(void)
{
	static const char *const argv[] = { "systemd-sysusers", NULL };

	return child_run(argv, clock_mono_ns(clock_real()) + SYSTEMCTL_NS, NULL, 0);
}

static bool exists(const struct setup_place *at, const char *path)
{
	char full[PATH_MAX];
	struct stat st;

	return lstat(setup_path(at, path, full), &st) == 0;
}

/* Adds the step to the manifest. Call it before the step is carried out. Returns an exit
 * code. */
static int record(const struct setup_place *at, const struct setup_step *s,
		  struct setup_manifest *m)
{
	const bool folder = s->what == STEP_FOLDER || s->what == STEP_USER_FOLDER;
	struct entry *e = find_entry(m, s->path);

	if (folder && (e || exists(at, s->path)))
		/* Either the manifest already lists this folder, or setup did not create it and
		 * the undo must not remove it. */
		return EXIT_OK;
	if (!e && m->count == ENTRIES)
		return cli_fail("%s lists too many steps; run sudo gpuward setup --undo, then "
				"setup again",
				SETUP_MANIFEST);
	if (!e) {
		e = &m->entry[m->count++];
		*e = (struct entry){ .what = s->what };
		snprintf(e->path, sizeof(e->path), "%s", s->path);
		if (s->what == STEP_UNIT) {
			e->enabled = systemctl("is-enabled", "--quiet", s->path) == 0;
			e->active = systemctl("is-active", "--quiet", s->path) == 0;
		}
	}
	if (s->what == STEP_USER_FILE || s->what == STEP_USER_FOLDER)
		snprintf(e->user, sizeof(e->user), "%s", at->user);
	if (s->text) {
		char sum[65];

		sha256_hex(s->text, strlen(s->text), sum);
		if (strcmp(e->sum[0], sum) != 0) {
			memcpy(e->sum[1], e->sum[0], sizeof(sum));
			memcpy(e->sum[0], sum, sizeof(sum));
		}
	}
	return manifest_save(at, m);
}

static int make_folder(const struct setup_place *at, const struct setup_step *s)
{
	char full[PATH_MAX];

	setup_path(at, s->path, full);
	if (mkdir(full, s->mode) == 0)
		return chmod(full, s->mode) == 0 ? 0 : errno;
	return errno == EEXIST ? 0 : errno;
}

static int make_file(const struct setup_place *at, const struct setup_step *s)
{
	struct setup_contents c = { s->text, s->mode, (uid_t)-1, (gid_t)-1, s->replaces };
	char full[PATH_MAX];

	/* With a prefix, the account may not exist yet; root then owns the file. */
	if (s->of_account && geteuid() == 0 &&
	    setup_account(at->prefix, SETUP_ACCOUNT, &c.uid, &c.gid, NULL, 0, NULL, 0) != 0 &&
	    !*at->prefix)
		return ENOENT;
	return setup_put(setup_path(at, s->path, full), &c);
}

static const char *step_error(const struct setup_step *s, int err, char out[static 300])
{
	if (s->what == STEP_ACCOUNT)
		snprintf(out, 300,
			 "systemd-sysusers did not create the user %s; check that the file "
			 "sysusers.d/gpuward.conf is installed",
			 s->path);
	else if (s->what == STEP_UNIT || s->what == STEP_RELOAD)
		snprintf(out, 300, "systemctl could not %s %s; journalctl -u %s shows why",
			 s->what == STEP_UNIT ? "start" : "reload", s->path, s->path);
	else if (err == ELOOP || err == ENOTDIR)
		snprintf(out, 300,
			 "%s is a symbolic link or is below one; setup does not follow links",
			 s->path);
	else
		snprintf(out, 300, "%s cannot be written: %s", s->path, strerror(err));
	return out;
}

static int do_step(const struct setup_place *at, const struct setup_step *s)
{
	switch (s->what) {
	case STEP_ACCOUNT: return run_sysusers();
	case STEP_FOLDER: return make_folder(at, s);
	case STEP_FILE: return make_file(at, s);
	case STEP_USER_FOLDER:
		return setup_as_user(at, &(struct setup_home_request){ .verb = HOME_FOLDER,
								       .path = s->path,
								       .mode = s->mode });
	case STEP_USER_FILE:
		return setup_as_user(at, &(struct setup_home_request){ .verb = HOME_PUT,
								       .path = s->path,
								       .text = s->text,
								       .mode = s->mode });
	case STEP_UNIT:
		(void)systemctl("daemon-reload", NULL, NULL);
		return systemctl("enable", "--now", s->path);
	default: return systemctl("reload-or-restart", NULL, s->path);
	}
}

static bool is_of_user(enum setup_what what)
{
	return what == STEP_USER_FOLDER || what == STEP_USER_FILE;
}

/* Prints that the user gets no copy of the token. Removes the entries for the copy from the
 * manifest, so that only its first `before` entries stay. Returns an exit code. */
static int skip_copy(const struct setup_place *at, struct setup_manifest *m, unsigned before,
		     const char *why)
{
	const bool recorded = m->count > before;

	cli_error("%s, so %s has no copy of the token and needs sudo for commands that change "
		  "something. To make the copy: sudo install -D -o %s -m 600 %s %s/%s",
		  why, at->user, at->user, SETUP_TOKEN, at->home, SETUP_USER_TOKEN);
	m->count = before;
	return recorded ? manifest_save(at, m) : EXIT_OK;
}

int setup_apply(const struct setup_place *at, struct setup_manifest *m,
		const struct setup_plan *p, bool quiet)
{
	int code = EXIT_OK;
	char text[300];
	bool no_copy = false;

	for (unsigned i = 0; code == EXIT_OK && i < p->count; i++) {
		const struct setup_step *s = &p->step[i];
		const unsigned before = m->count;
		const bool own = s->what == STEP_FOLDER && strcmp(s->path, SETUP_FOLDER) == 0;
		const bool there = s->what == STEP_FOLDER && exists(at, s->path);
		int err;

		if (no_copy && is_of_user(s->what))
			continue;
		/* Create this folder before the manifest is written, because the manifest lies
		 * in it. If setup is interrupted here, the undo removes the empty folder
		 * without a manifest. */
		if (own && !there && (err = do_step(at, s)) != 0)
			code = cli_fail("%s", step_error(s, err, text));
		if (code == EXIT_OK && own && !there) {
			struct entry *e = &m->entry[m->count++];

			*e = (struct entry){ .what = STEP_FOLDER };
			snprintf(e->path, sizeof(e->path), "%s", s->path);
			code = manifest_save(at, m);
		} else if (code == EXIT_OK) {
			/* The manifest does not list an account or a reload, because the undo
			 * does not remove them. */
			code = s->what == STEP_ACCOUNT || s->what == STEP_RELOAD
				       ? EXIT_OK
				       : record(at, s, m);
			err = code == EXIT_OK ? do_step(at, s) : 0;
			/* EINTR: the child process was killed, perhaps after it wrote the
			 * file. */
			if (err && err != EINTR && is_of_user(s->what)) {
				no_copy = true;
				code = skip_copy(at, m, before, step_error(s, err, text));
				continue;
			}
			if (err)
				code = cli_fail("%s", step_error(s, err, text));
		}
		if (code == EXIT_OK && !quiet && !there && s->why)
			printf("  %s %s: %s\n", setup_whats[s->what].done, s->path, s->why);
	}
	return code;
}

struct undo {
	const struct setup_place *at;
	bool quiet;
	bool dry_run;    /* print what would be removed, and remove nothing */
	unsigned kept;   /* number of entries that were not removed */
	unsigned failed; /* how many of them could not be removed because of an error */
};

static void report_kept(struct undo *u, const char *path, const char *why)
{
	u->kept++;
	printf("  %s %s: %s\n", u->dry_run ? "keep" : "kept", path, why);
}

/* Prints the result of a removal; err is 0, an errno or SETUP_CHANGED. */
static void report(struct undo *u, const struct entry *e, int err)
{
	if (!err && (!u->quiet || u->dry_run))
		printf("  %s %s\n", u->dry_run ? "remove" : "removed", e->path);
	else if (err == SETUP_CHANGED)
		report_kept(u, e->path, "it was changed after setup wrote it");
	else if (err && err != ENOENT) {
		report_kept(u, e->path, strerror(err));
		u->failed++;
	}
}

static void undo_file(struct undo *u, const struct entry *e)
{
	const char *const sum[2] = { e->sum[0], e->sum[1] };
	char full[PATH_MAX], temporary[PATH_MAX + 16];
	int err;

	setup_path(u->at, e->path, full);
	snprintf(temporary, sizeof(temporary), "%s" SETUP_NEW_FILE, full);
	if (!u->dry_run)
		unlink(temporary);
	err = setup_compare(AT_FDCWD, full, sum);
	if (!err && !u->dry_run && unlink(full) != 0)
		err = errno;
	report(u, e, err);
}

/* In a dry run, the folder still contains its files, so it is not known whether the undo would
 * remove it. */
static void undo_folder_dry(const struct entry *e)
{
	printf("  remove %s if it is then empty\n", e->path);
}

static void undo_folder(struct undo *u, const struct entry *e)
{
	char full[PATH_MAX];
	int err;

	if (u->dry_run) {
		undo_folder_dry(e);
		return;
	}
	err = rmdir(setup_path(u->at, e->path, full)) == 0 ? 0 : errno;
	if ((err == ENOTEMPTY || err == EEXIST) && !u->quiet)
		printf("  kept %s: it is not empty\n", e->path);
	/* It is not an error if the folder contains files of other programs. */
	report(u, e, err == ENOTEMPTY || err == EEXIST ? ENOENT : err);
}

static void undo_user(struct undo *u, const struct entry *e)
{
	struct setup_place at = *u->at;
	const bool folder = e->what == STEP_USER_FOLDER;
	char home[PATH_MAX];
	int err;

	if (setup_account(at.prefix, e->user, &at.uid, &at.gid, home, sizeof(home), NULL, 0) !=
		    0 ||
	    strncmp(e->path, home, strlen(home)) != 0) {
		report_kept(u, e->path,
			    "its user does not exist, or has another home folder now");
		return;
	}
	if (u->dry_run && folder) {
		undo_folder_dry(e);
		return;
	}
	at.user = e->user;
	at.home = home;
	err = setup_as_user(&at,
			    &(struct setup_home_request){ .verb = u->dry_run ? HOME_LOOK
								  : folder ? HOME_REMOVE_FOLDER
									   : HOME_REMOVE,
							  .path = e->path,
							  .sum = { e->sum[0], e->sum[1] } });
	/* A user's folder, such as .config, usually contains other files, so print nothing if
	 * it is not empty. */
	report(u, e, folder && (err == ENOTEMPTY || err == EEXIST) ? ENOENT : err);
}

/* Restores the state of a unit from before setup. */
static void undo_unit(struct undo *u, const struct entry *e)
{
	static const char *const will[2][2] = { { "disable and stop", "disable" },
						{ "stop", NULL } };
	static const char *const did[2][2] = { { "disabled and stopped", "disabled" },
					       { "stopped", NULL } };
	const char *const action = will[e->enabled][e->active];
	char why[64];
	int err = 0;

	if (!action)
		return;
	if (u->dry_run) {
		printf("  %s %s\n", action, e->path);
		return;
	}
	if (!e->enabled)
		err = systemctl("disable", "--quiet", e->path);
	if (!e->active)
		err = systemctl("stop", NULL, e->path) || err;
	if (err) {
		snprintf(why, sizeof(why), "systemctl could not %s it", action);
		report_kept(u, e->path, why);
		u->failed++;
	} else if (!u->quiet)
		printf("  %s %s\n", did[e->enabled][e->active], e->path);
}

/* Removes the manifest, and then its folder if the folder is empty. */
static int remove_manifest(struct undo *u, const struct entry *folder)
{
	char full[PATH_MAX], temporary[PATH_MAX + 16];

	if (u->dry_run) {
		undo_folder_dry(folder);
		return EXIT_OK;
	}
	setup_path(u->at, SETUP_MANIFEST, full);
	snprintf(temporary, sizeof(temporary), "%s" SETUP_NEW_FILE, full);
	unlink(temporary);
	if (unlink(full) != 0 && errno != ENOENT)
		return cli_fail("%s cannot be removed: %s", full, strerror(errno));
	undo_folder(u, folder);
	return EXIT_OK;
}

/* Removes what one entry describes. Returns true if the entry must stay in the manifest: its
 * removal failed, or it is a folder that may contain a file that could not be removed. */
static bool undo_entry(struct undo *u, const struct entry *e)
{
	const unsigned before = u->failed;

	switch (e->what) {
	case STEP_FOLDER:
		if (strcmp(e->path, SETUP_FOLDER) != 0)
			undo_folder(u, e);
		return u->failed > 0;
	case STEP_FILE: undo_file(u, e); break;
	case STEP_USER_FOLDER: undo_user(u, e); return u->failed > 0;
	case STEP_USER_FILE: undo_user(u, e); break;
	case STEP_UNIT: undo_unit(u, e); break;
	default: break;
	}
	return u->failed > before;
}

/* Keeps only the failed entries in the manifest, so that the next undo tries them again. */
static int keep_failed(const struct setup_place *at, struct setup_manifest *m,
		       const bool failed[static ENTRIES])
{
	unsigned n = 0;
	int code;

	for (unsigned i = 0; i < m->count; i++)
		if (failed[i])
			m->entry[n++] = m->entry[i];
	m->count = n;
	code = manifest_save(at, m);
	return code != EXIT_OK ? code
			       : cli_fail("some files could not be removed; fix the causes "
					  "above and run sudo gpuward setup --undo again");
}

int setup_is_done(const struct setup_place *at, bool *ret)
{
	struct setup_manifest *m = NULL;
	int code = setup_manifest_load(at, &m);

	*ret = m && m->count > 0;
	free(m);
	return code;
}

int setup_undo(const struct setup_place *at, bool quiet, bool dry_run)
{
	const struct entry own = { .what = STEP_FOLDER, .path = SETUP_FOLDER };
	struct setup_manifest *m = NULL;
	int code = setup_manifest_load(at, &m);
	struct undo u = { at, quiet || !m || m->count == 0, dry_run, 0, 0 };
	bool failed[ENTRIES] = { false };

	if (code == EXIT_OK && m->count == 0 && !quiet)
		printf("setup wrote nothing here, so there is nothing to undo\n");
	for (unsigned i = code == EXIT_OK ? m->count : 0; i-- > 0;)
		failed[i] = undo_entry(&u, &m->entry[i]);
	if (code == EXIT_OK && u.failed && !dry_run)
		code = keep_failed(at, m, failed);
	else if (code == EXIT_OK && !(dry_run && m->count == 0))
		code = remove_manifest(&u, &own);
	if (code == EXIT_OK && u.kept && !quiet && !dry_run)
		printf("If you do not need the files that were kept, delete them yourself.\n");
	free(m);
	return code;
}
