/* guard_recover: the subcommand `gpuward guard recover`. It reads the guard's journal after a
 * crash of the service, and restores the processes that are still checkpointed. */
#include "guard_subcommand.h"

#include "daemon/journal_record.h"
#include "daemon/service.h"
#include "daemon/store.h"
#include "guard/worker.h"
#include "guard/worker/companion.h"
#include "guard/process_cache.h"

#include "base/clock.h"
#include "base/number.h"
#include "serve/render.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TARGETS (POLICY_WORKERS * GUARD_TARGETS)
/* Largest number of records with checkpointed processes. It is larger than the number of
 * workers, because the journal may contain workers that were removed from the configuration. */
#define RECORDS    (POLICY_WORKERS * 4)
#define STORE_ROWS 65536

enum outcome { RESTORED, GONE, NOT_RESTORED };

/* A checkpointed process. */
struct put_away {
	struct proc_id target;
	unsigned record; /* index of the worker's record */
	enum outcome outcome;
	char message[500]; /* for NOT_RESTORED: the reason */
};

struct recovering {
	struct put_away process[TARGETS];
	unsigned count;
	struct guard_record record[RECORDS];
	unsigned records;
	char companion[256]; /* socket of the companion; "": none is configured */
	unsigned unreadable; /* number of records that cannot be read or do not fit */
	/* the configuration has a mistake, so this may be the wrong journal */
	bool unsure;
};

static void recover_add_record(void *arg, const char *id, const char *json)
{
	struct recovering *r = arg;
	struct guard_record_more more;
	struct guard_record *record = &r->record[r->records];

	(void)id;
	if (r->records == RECORDS || guard_record_read(json, record, &more) != 0) {
		r->unreadable++;
		return;
	}
	if (!record->put_away_count)
		return;
	for (unsigned i = 0; i < record->put_away_count && r->count < TARGETS; i++) {
		struct put_away *p = &r->process[r->count++];

		p->record = r->records;
		p->target = (struct proc_id){ record->put_away[i].pid,
					      record->put_away[i].start_ticks };
	}
	r->records++;
}

/* Reads the journal. If the journal exists but cannot be read, this is an error, because it may
 * contain checkpointed processes. store_peek() works while a service runs. If store_peek()
 * fails, store_open() is tried, which also works with a full disk or a file of an older
 * version. */
static int read_store(const char *path, const struct config *c, struct recovering *r)
{
	char message[2000] = "";
	struct store *s;
	int code = EXIT_OK;

	if (access(path, F_OK) != 0 && errno == ENOENT)
		return EXIT_OK; /* no service has written a journal */
	if (store_peek(path, "guard", STORE_ROWS, recover_add_record, r) >= 0)
		return EXIT_OK;
	r->count = r->records = r->unreadable = 0;
	if (store_open(path, c->history_limit, &s, message, sizeof(message)) != 0)
		return cli_fail("cannot open the journal %s: %s", path, message);
	if (*message)
		cli_error("%s", message);
	if (store_each_document(s, "guard", STORE_ROWS, recover_add_record, r) < 0 ||
	    !store_lasting(s))
		code = cli_fail("cannot read the journal %s: %s", path, store_state(s));
	store_close(s);
	return code;
}

static int read_journal(struct recovering *r)
{
	char path[4096];
	const char *where;
	struct config c;
	/* A mistake in the configuration must not prevent the restore: remote_config() uses the
	 * valid settings. */
	int code = remote_config(&c, &r->unsure, false);

	if (code != EXIT_OK)
		return code;
	snprintf(r->companion, sizeof(r->companion), "%s",
		 c.guard_companion ? c.guard_companion : "");
	where = config_store_path(&c, false, path, sizeof(path));
	if (where)
		code = read_store(where, &c, r);
	if (r->unreadable)
		cli_error("%u records of the journal %s cannot be read, so their processes are "
			  "not restored; if a process stays suspended, restart it",
			  r->unreadable, where);
	config_done(&c);
	return code;
}

/* Returns true if the record lists p as checkpointed. */
static bool record_has_process(const struct guard_record *r, const struct gw_process *p)
{
	for (unsigned i = 0; i < r->put_away_count; i++)
		if (r->put_away[i].pid == p->pid &&
		    r->put_away[i].start_ticks == p->start_ticks)
			return true;
	return false;
}

/* Returns the memory on the device that the processes of this record use now. Only processes
 * that are already restored use memory. */
static double held_bytes(const struct gw_process_list *list, unsigned device,
			 const struct guard_record *r)
{
	double sum = 0;

	for (unsigned i = 0; list && i < gw_process_list_count(list); i++) {
		const struct gw_process *p = gw_process_list_get(list, i);

		if (p->device == device && p->memory_absence == GW_HAVE &&
		    record_has_process(r, p))
			sum += (double)p->memory_bytes;
	}
	return sum;
}

static bool is_on_gpu(const struct gw_process_list *list, int64_t pid, uint64_t start_ticks)
{
	for (unsigned i = 0; list && i < gw_process_list_count(list); i++) {
		const struct gw_process *p = gw_process_list_get(list, i);

		if (p->pid == pid && p->start_ticks == start_ticks)
			return true;
	}
	return false;
}

/* Returns true if all processes of the record that still exist use a GPU. They are then
 * restored already and need no more memory. */
static bool all_on_gpu(const struct root *root, const struct gw_process_list *list,
		       const struct guard_record *r)
{
	for (unsigned i = 0; i < r->put_away_count; i++) {
		const int64_t pid = r->put_away[i].pid;
		const uint64_t ticks = r->put_away[i].start_ticks;

		if (process_identity(root, (struct proc_id){ pid, ticks }) == IDENTITY_SAME &&
		    !is_on_gpu(list, pid, ticks))
			return false;
	}
	return true;
}

/* Returns false if a GPU has too little free memory, because a restore without enough memory
 * kills the process. If the free memory is unknown, for example because NVML is missing,
 * returns true. */
static bool has_free_memory(const struct gw_snapshot *snap, const struct gw_process_list *list,
			    const struct guard_record *r, char *message, size_t size)
{
	for (unsigned i = 0; snap && i < gw_snapshot_device_count(snap); i++) {
		const struct gw_device *d = gw_snapshot_device(snap, i);
		const char *uuid = gw_device_text(d, GW_T_UUID);
		double free_bytes;

		if (!uuid || gw_device_value(d, GW_Q_MEMORY_FREE, &free_bytes) != GW_HAVE)
			continue;
		for (unsigned k = 0; k < r->gpus; k++) {
			double need = (double)r->gpu[k].need_bytes - held_bytes(list, i, r);

			if (strcmp(r->gpu[k].uuid, uuid) != 0 || free_bytes >= need)
				continue;
			snprintf(message, size,
				 "the process needs %.0f MiB on %s, where only %.0f MiB are "
				 "free, and a restore without enough memory would kill it; "
				 "free some memory and run this again",
				 need / MIB, uuid, free_bytes / MIB);
			return false;
		}
	}
	return true;
}

/* Returns true if the processes of this record may be restored. Reads the free memory again in
 * each call, because earlier restores used some of it. */
static bool may_restore(const struct cli *c, const struct root *root,
			const struct guard_record *r, char *message, size_t size)
{
	struct gw_process_list *list = NULL;
	bool may;

	if (c->ctx && gw_process_list_new(c->ctx, &list) == 0)
		(void)gw_process_list_take(list);
	if (c->snap)
		(void)gw_snapshot_take(c->snap, GW_TIER_STATIC | GW_TIER_FAST);
	may = all_on_gpu(root, list, r) || has_free_memory(c->snap, list, r, message, size);
	gw_process_list_free(list);
	return may;
}

static void print_gone(const struct cli *c, int64_t pid, const char *worker,
		       enum process_identity is)
{
	static const char *const gone[] = {
		[IDENTITY_ENDED] = "ended",
		[IDENTITY_OTHER] = "ended, and another process has its pid now",
	};

	if (!c->quiet && !c->json)
		printf("process %" PRId64 " of worker %s %s: nothing to restore\n", pid, worker,
		       gone[is]);
}

static unsigned restore_all(const struct cli *c, const struct root *root, struct recovering *r,
			    unsigned *ret_gone)
{
	unsigned failed = 0, judged = UINT_MAX;
	char why[500] = "";
	bool room = true;

	for (unsigned i = 0; i < r->count; i++) {
		struct put_away *p = &r->process[i];
		const struct guard_record *record = &r->record[p->record];
		const struct proc_id *t = &p->target;
		enum process_identity is = process_identity(root, *t);

		if (is != IDENTITY_SAME) {
			++*ret_gone;
			p->outcome = GONE;
			print_gone(c, t->pid, record->worker, is);
			continue;
		}
		if (judged != p->record)
			room = may_restore(c, root, record, why, sizeof(why));
		judged = p->record;
		if (!room)
			snprintf(p->message, sizeof(p->message), "%s", why);
		if (!room || companion_recover(r->companion, root, t, 1, p->message,
					       sizeof(p->message)) != 0) {
			failed++;
			p->outcome = NOT_RESTORED;
			cli_error("process %" PRId64 " of worker %s is not restored: %s",
				  t->pid, record->worker, p->message);
		}
	}
	return failed;
}

/* Opens the GPUs to read their free memory. Ignores errors, because the restore works without
 * this check. */
static void open_gpus(struct cli *c)
{
	struct gw_options o;

	if (cli_open_options(c, &o) != EXIT_OK)
		return;
	o.deadline_ns = 10 * NS_PER_S;
	if (gw_open(&o, &c->ctx) == 0 && gw_snapshot_new(c->ctx, &c->snap) == 0)
		gw_snapshot_take(c->snap, GW_TIER_STATIC | GW_TIER_FAST);
}

static int print_json(const struct recovering *r)
{
	static const char *const words[] = { "restored", "gone", "put-away" };
	struct cli_document doc;

	cli_document_begin(&doc, true);
	json_object(&doc.json, NULL);
	json_int(&doc.json, "schema_version", RENDER_SCHEMA_VERSION);
	json_array(&doc.json, "processes");
	for (unsigned i = 0; i < r->count; i++) {
		const struct put_away *p = &r->process[i];

		json_object(&doc.json, NULL);
		json_int(&doc.json, "pid", p->target.pid);
		json_string(&doc.json, "worker", r->record[p->record].worker);
		json_string(&doc.json, "result", words[p->outcome]);
		json_string(&doc.json, "message",
			    p->outcome == NOT_RESTORED ? p->message : NULL);
		json_object_end(&doc.json);
	}
	json_array_end(&doc.json);
	json_object_end(&doc.json);
	return cli_document_end(&doc);
}

static int restore_and_report(struct cli *c, struct recovering *r)
{
	struct root root;
	unsigned failed, gone = 0;

	if (r->count == 0 && r->unsure)
		return cli_usage("the journal names no process, but this may be the wrong "
				 "journal because the configuration has a mistake; fix the "
				 "configuration and run this again");
	if (r->count == 0) {
		if (!c->quiet && !c->json)
			printf("no process is checkpointed\n");
		return EXIT_OK;
	}
	if (root_open(&root, c->root) != 0)
		return cli_fail("cannot read /proc, so no process was restored; mount /proc "
				"and run this again");
	open_gpus(c);
	failed = restore_all(c, &root, r, &gone);
	root_close(&root);
	if (failed)
		cli_error(
			"%u of %u processes are not restored; fix the cause and run this again",
			failed, r->count);
	else if (!c->quiet && !c->json && gone < r->count)
		printf("all processes are restored (%u)\n", r->count - gone);
	return failed ? EXIT_FAILED : EXIT_OK;
}

int guard_recover(struct cli *c)
{
	struct recovering *r = calloc(1, sizeof(*r));
	int code;

	if (!r)
		return cli_no_memory();
	code = read_journal(r);
	if (code == EXIT_OK) {
		code = restore_and_report(c, r);
		if (c->json && print_json(r) != EXIT_OK)
			code = EXIT_FAILED;
	}
	free(r);
	return code;
}
