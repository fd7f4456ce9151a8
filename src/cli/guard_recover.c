#include "guard_recover.h"

#include "daemon/guard_record.h"
#include "daemon/service.h"
#include "daemon/store.h"
#include "guard/worker.h"
#include "guard/worker/companion.h"
#include "guard/worker/identity.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define TARGETS (POLICY_WORKERS * 16)
#define RECORDS (POLICY_WORKERS * 4) /* also of workers that are gone from the configuration */

struct recovering {
	struct checkpoint_target target[TARGETS];
	char worker[TARGETS][64]; /* whose each is */
	unsigned count;
	char companion[256]; /* "": there is none */
};

static void take(void *arg, const char *id, const char *json)
{
	struct recovering *r = arg;
	char notes[WORKER_NOTES_SIZE];
	struct guard_record record;

	(void)id;
	if (guard_record_read(json, &record, notes, sizeof(notes)) != 0)
		return;
	for (unsigned i = 0; i < record.put_away_count && r->count < TARGETS; i++) {
		snprintf(r->worker[r->count], sizeof(r->worker[0]), "%s", record.worker);
		r->target[r->count++] =
			(struct checkpoint_target){ record.put_away[i].pid,
						    record.put_away[i].start_ticks };
	}
}

/* A journal that cannot be read may name somebody: that is not the same as nobody.  A service that runs goes on
 * beside us; what a plain reader cannot open (a full disk, a file of an older version), the store may. */
static int read_store(const char *path, const struct config *c, struct recovering *r)
{
	char message[2000] = "";
	struct store *s;
	int code = EXIT_OK;

	if (access(path, F_OK) != 0 && errno == ENOENT)
		return EXIT_OK; /* nothing was ever kept */
	if (store_peek(path, "guard", RECORDS, take, r) >= 0)
		return EXIT_OK;
	r->count = 0;
	if (store_open(path, c->history_limit, &s, message, sizeof(message)) != 0) {
		cli_error("the journal %s cannot be opened: %s", path, message);
		return EXIT_FAILED;
	}
	if (*message)
		cli_error("%s", message);
	if (store_kept(s, "guard", RECORDS, take, r) < 0 || !store_lasting(s)) {
		cli_error("the journal %s cannot be read: %s", path, store_state(s));
		code = EXIT_FAILED;
	}
	store_close(s);
	return code;
}

static int read_journal(struct recovering *r)
{
	char path[4096], message[2000] = "";
	const char *where;
	struct config c;
	int code = EXIT_OK;

	if (config_load(&c, NULL, NULL, 0, message, sizeof(message)) != 0) {
		cli_error("%s", message);
		return EXIT_USAGE;
	}
	snprintf(r->companion, sizeof(r->companion), "%s",
		 c.guard_companion ? c.guard_companion : "");
	where = service_store_path(&c, false, path, sizeof(path));
	if (where)
		code = read_store(where, &c, r);
	config_done(&c);
	return code;
}

static unsigned restore_all(const struct cli *c, const struct root *root,
			    const struct recovering *r, unsigned *ret_gone)
{
	static const char *const gone[] = {
		[IDENTITY_ENDED] = "ended",
		[IDENTITY_OTHER] =
			"ended, and its number is another process's now, which is left alone",
	};
	char message[500];
	unsigned failed = 0;

	for (unsigned i = 0; i < r->count; i++) {
		const struct checkpoint_target *t = &r->target[i];
		enum identity is = identity_of(root, t->pid, t->start_ticks);

		if (is != IDENTITY_SAME) {
			++*ret_gone;
			if (!c->quiet)
				printf("process %" PRId64
				       " of worker %s %s: nothing to restore\n",
				       t->pid, r->worker[i], gone[is]);
		} else if (companion_recover(r->companion, root, t, 1, message,
					     sizeof(message)) != 0) {
			failed++;
			cli_error("process %" PRId64 " of worker %s is still put away: %s",
				  t->pid, r->worker[i], message);
		}
	}
	return failed;
}

static int bring_back(const struct cli *c, const struct recovering *r)
{
	struct root root;
	unsigned failed, gone = 0;

	if (r->count == 0) {
		if (!c->quiet)
			printf("no process is put away\n");
		return EXIT_OK;
	}
	if (root_open(&root, c->root) != 0) {
		cli_error("/proc cannot be read");
		return EXIT_FAILED;
	}
	failed = restore_all(c, &root, r, &gone);
	root_close(&root);
	if (failed)
		cli_error("%u of %u processes are not back; the journal still names them: run "
			  "it again when that is mended",
			  failed, r->count);
	else if (!c->quiet && gone < r->count)
		printf("of %u processes none is put away any more\n", r->count - gone);
	return failed ? EXIT_FAILED : EXIT_OK;
}

int guard_recover(struct cli *c)
{
	struct recovering *r = calloc(1, sizeof(*r));
	int code;

	if (!r) {
		cli_error("%s", gw_strerror(-GW_E_NOMEM));
		return EXIT_FAILED;
	}
	code = read_journal(r);
	if (code == EXIT_OK)
		code = bring_back(c, r);
	free(r);
	return code;
}
