#include "guard_recover.h"

#include "daemon/guard_record.h"
#include "daemon/service.h"
#include "daemon/store.h"
#include "guard/worker.h"
#include "guard/worker/companion.h"

#include <stdio.h>
#include <stdlib.h>

#define TARGETS (POLICY_WORKERS * 16)

struct recovering {
	struct checkpoint_target target[TARGETS];
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
	for (unsigned i = 0; i < record.put_away_count && r->count < TARGETS; i++)
		r->target[r->count++] =
			(struct checkpoint_target){ record.put_away[i].pid,
						    record.put_away[i].start_ticks };
}

static int read_journal(struct recovering *r)
{
	char path[4096], message[2000] = "";
	const char *where;
	struct store *s;
	struct config c;

	if (config_load(&c, NULL, NULL, 0, message, sizeof(message)) != 0) {
		cli_error("%s", message);
		return EXIT_USAGE;
	}
	snprintf(r->companion, sizeof(r->companion), "%s",
		 c.guard_companion ? c.guard_companion : "");
	where = service_store_path(&c, false, path, sizeof(path));
	if (where && store_open(where, c.history_limit, &s, message, sizeof(message)) == 0) {
		if (*message)
			cli_error("%s", message);
		store_kept(s, "guard", POLICY_WORKERS, take, r);
		store_close(s);
	}
	config_done(&c);
	return EXIT_OK;
}

static int bring_back(const struct cli *c, const struct recovering *r)
{
	char message[500] = "";
	struct root root;
	int err;

	if (r->count == 0) {
		if (!c->quiet)
			printf("no process is put away\n");
		return EXIT_OK;
	}
	if (root_open(&root, c->root) != 0) {
		cli_error("/proc cannot be read");
		return EXIT_FAILED;
	}
	err = companion_recover(r->companion, &root, r->target, r->count, message,
				sizeof(message));
	root_close(&root);
	if (err)
		cli_error("not all of %u processes are back: %s", r->count, message);
	else if (!c->quiet)
		printf("of %u processes none is put away any more\n", r->count);
	return err ? EXIT_FAILED : EXIT_OK;
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
