#include "guard_subcommand.h"

#include "daemon/guard_config.h"
#include "daemon/recording.h"

#include "base/clock.h"
#include "base/file.h"
#include "guard/guard_query.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES_MAX (16u << 20)

struct replay {
	const struct cli *cli;
	const char *path;
	struct guard_settings settings;
	char missing[4000]; /* why there is no default policy; "": there is one */
	struct recording_reader *trace;
	struct buf out; /* of one line */
};

/* Reads the policy from the configuration at path.  If path is NULL, reads the service's
 * configuration, which is used for recordings without a policy.  An error is then stored in
 * `missing`, and reported only if such a recording needs the policy. */
static int read_policy(struct replay *r, const char *path)
{
	struct config c;
	int err = config_load(&c, path, NULL, 0, r->missing, sizeof(r->missing));

	if (!err) {
		err = guard_config_make(&c, &r->settings);
		config_done(&c);
		if (err)
			return cli_fail("%s", gw_strerror(err));
		if (!r->settings.policy.workers)
			snprintf(r->missing, sizeof(r->missing),
				 "%s has no [[worker]], so there is nothing to decide",
				 path ? path : "the configuration");
	}
	if (!path)
		return EXIT_OK;
	r->settings.policy.mode = GUARD_DRY_RUN;
	if (*r->missing)
		cli_error("%s", r->missing);
	return *r->missing ? EXIT_USAGE : EXIT_OK;
}

static const char *worker_name(const struct replay *r, const struct guard_decision *d)
{
	return recording_reader_policy(r->trace)->worker[d->worker].name;
}

static void write_json(struct replay *r, const struct guard_decision *d, const char *time)
{
	struct json j;

	json_init(&j, &r->out, false);
	json_object(&j, NULL);
	json_string(&j, "time_utc", time);
	json_string(&j, "worker", worker_name(r, d));
	json_string(&j, "from", guard_state_name(d->from));
	json_string(&j, "to", guard_state_name(d->to));
	json_array(&j, "mask");
	for (unsigned i = 0; i < GUARD_REASONS; i++)
		if (d->mask >> i & 1)
			json_string(&j, NULL, guard_reason_name(i));
	json_array_end(&j);
	json_bool(&j, "dry_run", d->dry);
	json_string(&j, "rule", *d->rule ? d->rule : NULL);
	json_string(&j, "evidence", *d->evidence ? d->evidence : NULL);
	json_object_end(&j);
	json_end(&j);
}

static void write_text(struct replay *r, const struct guard_decision *d, const char *time)
{
	buf_addf(&r->out, "%s  %s: %s to %s%s%s%s%s%s\n", time, worker_name(r, d),
		 guard_state_name(d->from), guard_state_name(d->to), *d->rule ? ", " : "",
		 d->rule, *d->evidence ? " (" : "", d->evidence, *d->evidence ? ")" : "");
}

static void print_decisions(struct replay *r)
{
	struct guard_decision d;
	uint64_t wall_ns;

	while (recording_next_decision(r->trace, &d, &wall_ns)) {
		char time[CLOCK_RFC3339_SIZE];

		clock_format_rfc3339(wall_ns, time);
		buf_clear(&r->out);
		if (r->cli->json)
			write_json(r, &d, time);
		else
			write_text(r, &d, time);
		fputs(r->out.p, stdout);
	}
}

static int read_lines(struct replay *r, FILE *f)
{
	struct buf line;
	unsigned long number = 0, entries = 0; /* entries: lines that are not empty */
	int err = 0, more;

	buf_init(&line, LINE_BYTES_MAX);
	/* A last line without newline is incomplete: the service ended while writing it. */
	while (!err && (more = file_read_line(f, &line)) != 0) {
		number++;
		entries += line.len > 0;
		err = more < 0                     ? more
		      : strlen(line.p) != line.len ? -GW_E_PARSE
						   : recording_read(r->trace, line.p);
		if (!err)
			print_decisions(r);
	}
	if (!err && !entries) {
		cli_error("%s %s: it is not a guard recording; name the file that record = "
			  "\"FILE\" in [guard] sets",
			  r->path,
			  line.len ? "has no complete line"
			  : number ? "has only empty lines"
				   : "is empty");
		err = -GW_E_PARSE;
	} else if (err == -GW_E_NOENT)
		cli_error("%s", r->missing);
	else if (err)
		cli_error("%s:%lu: %s", r->path, number,
			  err == -GW_E_PARSE       ? "this is not a line of a guard "
						     "recording; name the file that record = "
						     "\"FILE\" in [guard] sets"
			  : err == -GW_E_NOSUPPORT ? "a newer gpuward wrote this recording; "
						     "replay it with that version"
			  : err == -GW_E_SIZE ? "this line is longer than 16 MiB: it is not "
						"a guard recording"
					      : gw_strerror(err));
	buf_done(&line);
	return err == -GW_E_NOENT ? EXIT_USAGE : err ? EXIT_FAILED : EXIT_OK;
}

static void print_summary(const struct replay *r)
{
	struct recording_counts n = recording_counts(r->trace);
	const struct guard *g = recording_reader_guard(r->trace);
	unsigned evictions = 0, would = 0;

	for (unsigned i = 0; g && i < recording_reader_policy(r->trace)->workers; i++) {
		struct guard_status s;

		if (guard_status(g, i, &s) != 0)
			continue;
		evictions += s.evictions;
		would += s.would_evict;
	}
	fprintf(stderr,
		"%llu observations in %llu run%s of the service; last run: %u eviction%s, and "
		"%u in a dry run that were not carried out\n",
		(unsigned long long)n.scenes, (unsigned long long)n.runs,
		n.runs == 1 ? "" : "s", evictions, evictions == 1 ? "" : "s", would);
}

int guard_replay(const struct cli *c, const char *policy, const char *trace)
{
	struct replay r = { .cli = c, .path = trace };
	FILE *f = NULL;
	int code = read_policy(&r, policy);

	buf_init(&r.out, 16384);
	if (code == EXIT_OK &&
	    recording_reader_new(&r.settings.policy, policy != NULL, &r.trace) != 0)
		code = cli_no_memory();
	if (code == EXIT_OK && !(f = file_fopen(trace)))
		code = cli_fail("cannot read %s: %s", trace, file_strerror(errno));
	if (code == EXIT_OK)
		code = read_lines(&r, f);
	if (code == EXIT_OK && !c->quiet)
		print_summary(&r);
	if (f)
		fclose(f);
	recording_reader_free(r.trace);
	guard_settings_done(&r.settings);
	buf_done(&r.out);
	return code;
}
