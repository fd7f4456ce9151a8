#include "policy_text.h"

#include "base/buf.h"
#include "base/member.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MAX 8192 /* maximum size of one value, in bytes */

enum type { NUMBER, SIGNED, REAL, TEXT, ARGV };

/* Enums are written by name, so that a new value of an enum does not change the meaning of a
 * recording. */
static const char *const resumes[] = { "restore", "lazy", "never", NULL };
static const char *const kinds[] = {
#define K(symbol, name, url, level, stop_s, traits, help) [WORKER_##symbol] = #name,
#include "kind.def"
	NULL
};
/* Kinds in the order of their numbers in recordings before format version 5. Never change this
 * list. */
static const char *const old_kinds[] = { "ollama", "llamacpp",   "llamaswap", "vllm",
					 "sglang", "tabby",      "kobold",    "comfy",
					 "a1111",  "checkpoint", "systemd",   "container",
					 "exec",   "signal",     "callback",  NULL };
static const struct {
	const char *member;
	const char *const *names, *const *old;
} named[] = {
	{ "mode", guard_modes, guard_modes },
	{ "action", guard_actions, guard_actions },
	{ "resume", resumes, resumes },
	{ "kind", kinds, old_kinds },
};

/* Returns the position of a member in named[]; -1: the member is written as a number. */
static int find_named(const char *member)
{
	for (unsigned i = 0; i < sizeof(named) / sizeof(named[0]); i++)
		if (strcmp(named[i].member, member) == 0)
			return (int)i;
	return -1;
}

/* Returns the enum type of a member from its C type. A C type that is not listed does not
 * compile. */
#define TYPE(m) \
	_Generic((m),                      \
		const char *: TEXT,        \
		const char *const *: ARGV, \
		double: REAL,              \
		bool: NUMBER,              \
		int: SIGNED,               \
		unsigned: NUMBER,          \
		int64_t: SIGNED,           \
		uint64_t: NUMBER)

static const enum member_kind member_of[] = {
	[NUMBER] = MEMBER_UNSIGNED, [SIGNED] = MEMBER_SIGNED, [REAL] = MEMBER_HEX
};

struct put {
	struct buf *out;
	const char *prefix;
};

/* Writes a string, without the user and the password of a URL. Does not write token_file. */
static void put_words(const struct put *w, const char *name, const char *text)
{
	static const struct member words = { .kind = MEMBER_PLAIN };
	const char *host = text ? strstr(text, "://") : NULL, *at;
	char scheme[16];

	if (!text || strcmp(name, "token_file") == 0)
		return;
	at = host ? strchr(host + 3, '@') : NULL;
	if (at && (size_t)(at - host) < strcspn(host + 3, "/") + 3) {
		snprintf(scheme, sizeof(scheme), "%.*s", (int)(host + 3 - text), text);
		member_add(w->out, &words, scheme);
		text = at + 1;
	}
	member_add(w->out, &words, text);
}

/* Writes one member as a line. A string is written after '=', which distinguishes an empty
 * string from NULL. The words of a command are not written. Instead of them, 1 is written if
 * there is a command, otherwise 0. */
static void put(const struct put *w, const char *name, enum type type, unsigned size,
		const void *at)
{
	const char *text = type == TEXT ? *(const char *const *)at : NULL;

	buf_addf(w->out, "%s%s\t", w->prefix, name);
	if (type == ARGV)
		buf_addc(w->out, *(const char *const *const *)at ? '1' : '0');
	else if (type == NUMBER && find_named(name) >= 0)
		buf_adds(w->out, named[find_named(name)].names[*(const unsigned *)at]);
	else if (type != TEXT)
		member_add(w->out, &(struct member){ .kind = member_of[type], .size = size },
			   at);
	else if (text)
		buf_addc(w->out, '=');
	if (type == TEXT)
		put_words(w, name, text);
	buf_addc(w->out, '\n');
}

#define PUT_V(t, name)  put(w, #name, TYPE(p->name), (unsigned)sizeof(p->name), &p->name);
#define PUT_W(name)     PUT_V(, name)
#define PUT_S(of, name) put_##of(w, &p->name);
#define PUT_A(t, of, name, most, count)         \
	PUT_V(, count)                          \
	for (unsigned i = 0; i < p->count; i++) \
		put_##of(w, &p->name[i]);
#define PUT(of, LIST)                                                          \
	static void put_##of(const struct put *w, const struct policy_##of *p) \
	{                                                                      \
		LIST(PUT_V, PUT_W, PUT_S, PUT_A)                               \
	}

static void put_text(const struct put *w, const char *const *p)
{
	put(w, "text", TEXT, sizeof(*p), p);
}

PUT(match, POLICY_MATCH)
PUT(rule, POLICY_RULE)
PUT(span, POLICY_SPAN)
PUT(knobs, POLICY_KNOBS)
PUT(worker, POLICY_WORKER)

void policy_text_write(struct buf *out, const char *prefix, const struct policy *p)
{
	const struct put *w = &(struct put){ out, prefix };

	POLICY_ALL(PUT_V, PUT_W, PUT_S, PUT_A)
}

struct take {
	struct policy *policy; /* owns the strings */
	const char *line;      /* the next line to read */
	int err;
};

/* Returns the value of the next line if the line has this name, else NULL. */
static const char *next_value(struct take *r, const char *name, char value[static TEXT_MAX])
{
	size_t n = strlen(name), len;

	if (r->err || strncmp(r->line, name, n) != 0 || r->line[n] != '\t')
		return NULL;
	r->line += n + 1;
	len = strcspn(r->line, "\n");
	if (len >= TEXT_MAX) {
		r->err = -GW_E_PARSE;
		return NULL;
	}
	memcpy(value, r->line, len);
	value[len] = '\0';
	r->line += len + (r->line[len] == '\n');
	return value;
}

static void take_kept(struct take *r, const char *value, const char **ret)
{
	char text[TEXT_MAX];

	if (*value != '=')
		return;
	value++;
	r->err = member_take(
		&value, &(struct member){ .kind = MEMBER_PLAIN, .size = sizeof(text) }, text);
	if (!r->err && !(*ret = policy_keep(r->policy, text, strlen(text))))
		r->err = -GW_E_NOMEM;
}

/* Reads a name. An old recording has a number instead: a position in `old`. */
static int take_named(const char *value, const char *const *names, const char *const *old,
		      unsigned *ret)
{
	const struct member name = { .kind = MEMBER_NAME,
				     .size = sizeof(*ret),
				     .names = names };
	char *end;
	unsigned long n = strtoul(value, &end, 10), count = 0;

	while (old[count])
		count++;
	if (end != value && !*end && n < count)
		value = old[n];
	return member_take(&value, &name, ret);
}

static void take(struct take *r, const char *name, enum type type, unsigned size, void *at)
{
	static const char *const command[] = { "recorded", NULL };
	char text[TEXT_MAX];
	const char *value = next_value(r, name, text);

	if (!value)
		return;
	if (type == TEXT)
		take_kept(r, value, at);
	else if (type == NUMBER && find_named(name) >= 0)
		r->err = take_named(value, named[find_named(name)].names,
				    named[find_named(name)].old, at);
	else if (type == ARGV)
		*(const char *const **)at = *value == '1' ? command : NULL;
	else
		r->err = member_take(
			&value, &(struct member){ .kind = member_of[type], .size = size }, at);
}

static unsigned at_most(struct take *r, unsigned n, unsigned most)
{
	if (n <= most)
		return n;
	r->err = -GW_E_PARSE;
	return 0;
}

#define TAKE_V(t, name)  take(r, #name, TYPE(p->name), (unsigned)sizeof(p->name), &p->name);
#define TAKE_W(name)     TAKE_V(, name)
#define TAKE_S(of, name) take_##of(r, &p->name);
#define TAKE_A(t, of, name, most, count)                   \
	TAKE_V(, count)                                    \
	p->count = at_most(r, p->count, most);             \
	for (unsigned i = 0; !r->err && i < p->count; i++) \
		take_##of(r, &p->name[i]);
#define TAKE(of, LIST)                                               \
	static void take_##of(struct take *r, struct policy_##of *p) \
	{                                                            \
		LIST(TAKE_V, TAKE_W, TAKE_S, TAKE_A)                 \
	}

static void take_text(struct take *r, const char **p)
{
	take(r, "text", TEXT, sizeof(*p), p);
}

TAKE(match, POLICY_MATCH)
TAKE(rule, POLICY_RULE)
TAKE(span, POLICY_SPAN)
TAKE(knobs, POLICY_KNOBS)
TAKE(worker, POLICY_WORKER)

int policy_text_read(const char *text, struct policy *p)
{
	struct take *r = &(struct take){ p, text, 0 };

	*p = (struct policy){ .mode = GUARD_OBSERVE };
	POLICY_ALL(TAKE_V, TAKE_W, TAKE_S, TAKE_A)
	if (!r->err && *r->line)
		r->err = -GW_E_PARSE;
	for (unsigned i = 0; !r->err && i < p->workers; i++)
		if (!p->worker[i].name)
			r->err = -GW_E_PARSE;
	return r->err;
}
