/* Texts of the guard's tables that have a form of their own: addresses, paths, expressions, signals. */
#include "guard_config_read.h"

#include <ctype.h>
#include <regex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define WRONG    200

static const char *text(const struct guard_entry *e, enum guard_key key)
{
	return e->given[key] ? e->value[key].text : NULL;
}

/* ---- texts that have a form: NULL, or what is wrong ---- */

/* It is part of addresses and file names. */
static const char *check_name(const char *s, char out[static WRONG])
{
	(void)out;
	for (const char *p = s; *p; p++)
		if (!isalnum((unsigned char)*p) && !strchr("._-", *p))
			return "a name has letters, digits, dots, dashes and underscores";
	return strlen(s) > 63 ? "a name has at most 63 bytes" : NULL;
}

static bool is_part(const char *at, size_t n, const char *name)
{
	return n == strlen(name) && memcmp(at, name, n) == 0;
}

/* Where the paths begin that are the worker's own; a path before them may be a proxy's. */
static const char *worker_path(const char *path)
{
	while (*path) {
		const char *part = path + strspn(path, "/");
		size_t n = strcspn(part, "/");
		bool last = !part[n + strspn(part + n, "/")];

		if (is_part(part, n, "v1") ||
		    (last && (is_part(part, n, "api") || is_part(part, n, "sdapi"))))
			return path;
		path = part + n;
	}
	return NULL;
}

/* Clients are given http://HOST:PORT/v1; the guard's own calls have paths that begin before that. */
static const char *check_url_path(const char *url, const char *path, char out[static WRONG])
{
	const char *more = worker_path(path);

	if (!more)
		return NULL;
	snprintf(out, WRONG,
		 "write \"%.*s\", without %.40s: the guard puts the paths of its own calls "
		 "behind it",
		 (int)(more - url < 80 ? more - url : 80), url, more);
	return out;
}

static const char *check_http(const char *url, char out[static WRONG])
{
	const char *s = url, *wrong;
	bool tls = strncmp(s, "https://", 8) == 0;
	char host[300];

	if (!tls && strncmp(s, "http://", 7) != 0)
		return "write http://HOST:PORT or https://HOST:PORT";
	s += tls ? 8 : 7;
	if (strpbrk(s, "@?# \t"))
		return "write it without user, query and blanks; a token belongs in token_file";
	for (const char *p = s; *p; p++)
		if ((unsigned char)*p <= 0x20 || (unsigned char)*p >= 0x7f)
			return "it has characters that an address cannot have";
	snprintf(host, sizeof(host), "%.*s", (int)strcspn(s, "/"), s);
	if (!*host || *host == ':')
		return "the host is missing";
	/* Without a port it is the scheme's own. */
	if (!strchr(host[0] == '[' ? host + strcspn(host, "]") : host, ':'))
		snprintf(host + strlen(host), sizeof(host) - strlen(host), ":80");
	wrong = config_check_address(host);
	return wrong ? wrong : check_url_path(url, s + strcspn(s, "/"), out);
}

/* Of a unit: whose manager has it. */
static const char *check_manager(const char *s, char out[static WRONG])
{
	(void)out;
	if (strcmp(s, "user") == 0)
		return NULL;
	if (strncmp(s, "user@", 5) == 0 && s[5] && s[5] != '-' &&
	    !s[5 + strspn(s + 5, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				 "0123456789._-")])
		return NULL;
	return "of a unit it says whose manager has it: write \"user\" or \"user@NAME\", or "
	       "leave "
	       "it out for the system's";
}

static const char *check_engine(const char *s, char out[static WRONG])
{
	(void)out;
	if (strncmp(s, "unix:///", 8) == 0 && s[8])
		return NULL;
	return "of a container it is the socket of its engine: write \"unix:///PATH\"";
}

static const char *check_path(const char *s, char out[static WRONG])
{
	(void)out;
	return *s == '/' ? NULL : "write the whole path, from /";
}

static const char *check_exe(const char *s, char out[static WRONG])
{
	(void)out;
	return *s == '/' || *s == '*' ? NULL
				      : "write the whole path, from /, or begin with *: a "
					"program is known by its real path";
}

static const char *check_comm(const char *s, char out[static WRONG])
{
	size_t least = 0;

	for (const char *p = s; *p; p++)
		least += *p != '*';
	if (least <= 15)
		return NULL;
	snprintf(out, WRONG,
		 "the kernel keeps 15 bytes of a name, so nothing is ever called that; write "
		 "\"%.15s\", or use match.exe",
		 s);
	return out;
}

/* The largest number of "{3,40}", or 1. */
static unsigned long repetitions(const char *p)
{
	unsigned long most = 1;

	while (*p == ',' || isdigit((unsigned char)*p)) {
		char *end = NULL;
		unsigned long n = *p == ',' ? 0 : strtoul(p, &end, 10);

		most = n > most ? n : most;
		p = end ? end : p + 1;
	}
	return most;
}

/* C libraries unroll repetitions and recurse into parentheses: a short text could take all memory. */
static bool is_vast(const char *s)
{
	unsigned long times = 1;

	for (const char *p = s; times <= 1000 && (p = strchr(p, '{')); p++) {
		unsigned long n = repetitions(p + 1);

		times = n > 1000 ? n : times * n;
	}
	return times > 1000 || strlen(s) > 1000;
}

static const char *check_regex(const char *s, char out[static WRONG])
{
	char why[100];
	regex_t re;
	int rc;

	if (is_vast(s))
		return "it repeats too much, or is longer than 1000 bytes";
	rc = regcomp(&re, s, REG_EXTENDED | REG_NOSUB);
	if (rc == 0) {
		regfree(&re);
		return NULL;
	}
	regerror(rc, &re, why, sizeof(why));
	snprintf(out, WRONG, "this is no extended regular expression: %s", why);
	return out;
}

static const char *check_unit(const char *s, char out[static WRONG])
{
	static const char *const ends[] = { ".service", ".scope", ".slice" };

	for (unsigned i = 0; i < COUNT(ends); i++)
		if (strlen(s) > strlen(ends[i]) &&
		    strcmp(s + strlen(s) - strlen(ends[i]), ends[i]) == 0)
			return strchr(s, '/') ? "a unit has no / in its name" : NULL;
	snprintf(out, WRONG, "write the unit with its end, such as \"%.60s.service\"", s);
	return out;
}

static const char *check_container(const char *s, char out[static WRONG])
{
	(void)out;
	for (const char *p = s; *p; p++)
		if (!isalnum((unsigned char)*p) && !strchr("._-", *p))
			return "an id or a name has letters, digits, dots, dashes and "
			       "underscores";
	return NULL;
}

/* SIGSTOP keeps the memory where it is; ending the process is a level of its own. */
static const char *check_signal(const char *s, char out[static WRONG])
{
	int n = guard_signal(s);

	if (n == SIGKILL)
		return "SIGKILL ends the worker: that is max_level = 6 with allow_kill = true";
	if (n == SIGSTOP || n == SIGTSTP)
		return "a stopped process keeps its memory on the GPU";
	if (n)
		return NULL;
	snprintf(out, WRONG, "there is no signal of that name: write for example SIGUSR1");
	return out;
}

static const struct {
	enum guard_key key;
	const char *(*wrong)(const char *s, char out[static WRONG]);
} forms[] = {
	{ GUARD_KEY_name, check_name },
	{ GUARD_KEY_token_file, check_path },
	{ GUARD_KEY_evict_signal, check_signal },
	{ GUARD_KEY_resume_signal, check_signal },
	{ GUARD_KEY_match_unit, check_unit },
	{ GUARD_KEY_match_pidfile, check_path },
	{ GUARD_KEY_match_name, check_comm },
	{ GUARD_KEY_match_exe, check_exe },
	{ GUARD_KEY_match_command, check_regex },
	{ GUARD_KEY_match_container, check_container },
};

void guard_config_refuse(struct config_reader *r, struct guard_entry *e, enum guard_key key,
			 const char *value, const char *why)
{
	config_complain(r, &e->place[key], "%s: \"%.100s\": %s", guard_keys[key].row.key, value,
			why);
	e->given[key] = false;
	e->refused[key] = true;
}

/* What an url is depends on the kind. */
static void check_url(struct config_reader *r, struct guard_entry *e)
{
	const char *value = text(e, GUARD_KEY_url), *why;
	int kind = guard_entry_kind(e);
	char out[WRONG];

	if (!value)
		return;
	if (kind >= 0 && policy_kind_is((unsigned)kind, KIND_UNIT))
		why = check_manager(value, out);
	else if (kind >= 0 && policy_kind_is((unsigned)kind, KIND_CONTAINER))
		why = check_engine(value, out);
	else
		why = check_http(value, out);
	if (why)
		guard_config_refuse(r, e, GUARD_KEY_url, value, why);
}

static void check_forms(struct config_reader *r, struct guard_entry *e)
{
	char out[WRONG];

	for (unsigned i = 0; i < COUNT(forms); i++) {
		const char *value = text(e, forms[i].key);
		const char *why = value ? forms[i].wrong(value, out) : NULL;

		if (why)
			guard_config_refuse(r, e, forms[i].key, value, why);
	}
}

/* ---- lists ---- */

static void check_program(struct config_reader *r, struct guard_entry *e, enum guard_key key)
{
	if (e->given[key] && e->value[key].list.item[0][0] != '/')
		guard_config_refuse(
			r, e, key, e->value[key].list.item[0],
			"write the whole path of the program, from /: no shell looks for it");
}

static void check_types(struct config_reader *r, struct guard_entry *e)
{
	const struct config_list *l = &e->value[GUARD_KEY_match_type].list;

	for (unsigned i = 0; e->given[GUARD_KEY_match_type] && i < l->count; i++)
		if (!guard_process_type(l->item[i]))
			guard_config_refuse(r, e, GUARD_KEY_match_type, l->item[i],
					    "types are compute, graphics and mps");
}

#define DIGITS "0123456789"
#define HEX    DIGITS "abcdefABCDEF"

static bool is_made_of(const char *s, const char *set)
{
	return s[strspn(s, set)] == '\0';
}

static bool looks_like_gpu(const char *s)
{
	if (is_made_of(s, DIGITS))
		return strlen(s) <= 3;
	if (strncmp(s, "GPU-", 4) == 0)
		return s[4] && is_made_of(s + 4, HEX "-");
	return strchr(s, ':') || (strchr(s, '-') && *s != '-') || strcmp(s, "visible") == 0;
}

static void warn_gpu(struct config_reader *r, const struct guard_entry *e, enum guard_key key,
		     const char *s)
{
	if (!looks_like_gpu(s))
		config_warn(r, &e->place[key],
			    "%s: \"%.60s\" looks like no GPU: an index, an UUID (GPU-...) or a "
			    "PCI id was expected",
			    guard_keys[key].row.key, s);
}

static void check_gpus(struct config_reader *r, const struct guard_entry *e)
{
	const struct config_list *l = &e->value[GUARD_KEY_gpus].list;

	for (unsigned i = 0; e->given[GUARD_KEY_gpus] && i < l->count; i++)
		warn_gpu(r, e, GUARD_KEY_gpus, l->item[i]);
	if (e->given[GUARD_KEY_match_gpu])
		warn_gpu(r, e, GUARD_KEY_match_gpu, text(e, GUARD_KEY_match_gpu));
}

/* Of an id the beginning is enough, and a short one is that of many. */
static void check_short(struct config_reader *r, const struct guard_entry *e)
{
	const char *s = text(e, GUARD_KEY_match_container);

	if (s && e->table == GUARD_RULE && !is_made_of(s, HEX))
		config_warn(
			r, &e->place[GUARD_KEY_match_container],
			"match.container: a rule knows containers by their id, and \"%s\" is "
			"none: it never holds",
			s);
	if (s && strlen(s) < 4 && is_made_of(s, HEX))
		config_warn(r, &e->place[GUARD_KEY_match_container],
			    "match.container: every container whose id begins with \"%s\" is "
			    "meant: write more of it",
			    s);
}

/* ---- all of them ---- */

void guard_config_forms(struct config_reader *r, struct guard_entry *e)
{
	check_forms(r, e);
	check_url(r, e);
	check_program(r, e, GUARD_KEY_evict_command);
	check_program(r, e, GUARD_KEY_resume_command);
	check_types(r, e);
	check_gpus(r, e);
	check_short(r, e);
}
