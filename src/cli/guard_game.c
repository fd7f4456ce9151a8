#include "guard_game.h"

#include "base/json.h"
#include "output.h"

#include <stdio.h>
#include <stdlib.h>

int64_t guard_game_pid(const char *text)
{
	char *end;
	long v = text ? strtol(text, &end, 10) : 0;

	if (text && *text && !*end && v > 0 && v <= INT32_MAX)
		return v;
	if (text)
		cli_error("--pid wants the number of a process, not '%s'", text);
	else
		cli_error("guard game wants --pid PID: whose game it is; in a script of "
			  "GameMode --pid $PPID");
	return -1;
}

static int start_game(const struct cli *c, struct remote *r, int64_t pid, uint64_t for_ns,
		      const char *reason)
{
	struct buf body;
	struct json j;
	int code;

	buf_init(&body, 4096);
	json_init(&j, &body, false);
	json_object(&j, NULL);
	json_int(&j, "pid", pid);
	if (for_ns)
		json_double(&j, "ttl_s", (double)for_ns * 1e-9);
	if (reason)
		json_string(&j, "reason", reason);
	json_object_end(&j);
	json_end(&j);
	code = remote_want(r, "POST", "/api/v1/guard/games", body.p);
	buf_done(&body);
	if (code == EXIT_OK && c->json)
		return output_print(r->body.p, r->body.len);
	if (code == EXIT_OK && !c->quiet)
		printf("workers leave until process %lld ends%s\n", (long long)pid,
		       for_ns ? ", or the time is over" : "");
	return code;
}

int guard_game(const struct cli *c, struct remote *r, bool start, int64_t pid, uint64_t for_ns,
	       const char *reason)
{
	char path[64];
	int code;

	if (start)
		return start_game(c, r, pid, for_ns, reason);
	snprintf(path, sizeof(path), "/api/v1/guard/games/%lld", (long long)pid);
	code = remote_want(r, "DELETE", path, NULL); /* the answer is empty */
	if (code == EXIT_OK && !c->quiet && !c->json)
		printf("the game of process %lld is over\n", (long long)pid);
	return code;
}
