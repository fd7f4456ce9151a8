#include "allow.h"

#include "guard/worker/wire.h"

#include <gpuward.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX 65536
#define UID_LAST (UINT32_MAX - 1) /* The kernel uses UINT32_MAX for "no user". */
#define BLANKS   " \t"
#define NO_SUCH  (-2)

static const char *const kinds[] = { "client", "unit", "checkpoint", "signal" };

/* Returns the uid in text, or NO_SUCH if text is not a valid uid. */
static int64_t uid_number(const char *text)
{
	char *end;
	unsigned long v;

	if (text[0] < '0' || text[0] > '9')
		return NO_SUCH;
	errno = 0;
	v = strtoul(text, &end, 10);
	return errno || *end || v > UID_LAST ? NO_SUCH : (int64_t)v;
}

/* Returns the uid of a user's name or number. Reads only /etc/passwd: other user databases
 * would load libraries into a program that runs as root. */
static int64_t uid_of(const char *name)
{
	size_t n = strlen(name);
	char line[1024], *number;
	int64_t found = uid_number(name);
	/* A name such as "root:x" would match the first two fields of a line. */
	FILE *f = found == NO_SUCH && !strchr(name, ':') ? fopen("/etc/passwd", "re") : NULL;

	while (f && found == NO_SUCH && fgets(line, sizeof(line), f)) {
		if (strncmp(line, name, n) != 0 || line[n] != ':')
			continue;
		number = strchr(line + n + 1, ':');
		if (number) {
			number[1 + strcspn(number + 1, ":\n")] = '\0';
			found = uid_number(number + 1);
		}
	}
	if (f)
		fclose(f);
	return found;
}

static bool copy_path(char out[static 256], const char *value)
{
	size_t n = strlen(value);

	if (value[0] != '/' || n >= 256)
		return false;
	memcpy(out, value, n + 1);
	return true;
}

/* Copies a path without doubled slashes. Returns false if a part is "." or "..", or if the path
 * is the root ("/" or "//"), because the root group contains every process. */
static bool copy_cgroup(char out[static 256], const char *value)
{
	size_t n = 0;

	if (value[0] != '/' || strlen(value) >= 256)
		return false;
	while (*(value += strspn(value, "/"))) {
		size_t part = strcspn(value, "/");

		if (strncmp(value, "..", part) == 0) /* true for ".." and for "." */
			return false;
		out[n++] = '/';
		memcpy(out + n, value, part);
		n += part;
		value += part;
	}
	out[n] = '\0';
	return n > 0;
}

static const char *read_key(struct allow_rule *r, const char *word)
{
	/* Refuse a field that occurs twice. Only its last value would be used, but a person
	 * may expect that both are used. */
	if ((strncmp(word, "exe=", 4) == 0 && r->exe[0]) ||
	    (strncmp(word, "cgroup=", 7) == 0 && r->cgroup[0]) ||
	    (strncmp(word, "uid=", 4) == 0 && r->uid != -1))
		return "exe=, cgroup= and uid= may each occur once: write one line per "
		       "program";
	if (strncmp(word, "exe=", 4) == 0)
		return copy_path(r->exe, word + 4) ? NULL : "exe= needs an absolute path";
	if (strncmp(word, "cgroup=", 7) == 0)
		return copy_cgroup(r->cgroup, word + 7)
			       ? NULL
			       : "cgroup= needs an absolute path below /";
	if (strncmp(word, "uid=", 4) != 0)
		return "there is a field that is not exe=, cgroup= or uid=";
	r->uid = uid_of(word + 4);
	return r->uid == NO_SUCH ? "there is no such user" : NULL;
}

static const char *read_words(struct allow_rule *r, char *rest)
{
	char *word = strtok_r(NULL, BLANKS, &rest), *more;
	const char *why = NULL;

	if (!word)
		return "a value is missing after the first word";
	if (r->kind == ALLOW_CHECKPOINT || r->kind == ALLOW_SIGNAL) {
		for (; word && !why; word = strtok_r(NULL, BLANKS, &rest))
			why = read_key(r, word);
		return why;
	}
	more = strtok_r(NULL, BLANKS, &rest);
	if (more)
		return "a client or unit line has more than two words";
	if (r->kind == ALLOW_UNIT && !wire_is_unit(word))
		return "this is not the name of a unit";
	if (r->kind == ALLOW_UNIT)
		snprintf(r->name, sizeof(r->name), "%s", word);
	else
		r->uid = uid_of(word);
	return r->uid == NO_SUCH ? "there is no such user in /etc/passwd" : NULL;
}

static const char *read_line(struct allow *a, char *line)
{
	struct allow_rule r = { .uid = -1 };
	char *rest, *word = strtok_r(line, BLANKS, &rest);
	const char *why;
	unsigned kind = 0;

	if (!word || word[0] == '#')
		return NULL;
	while (kind < sizeof(kinds) / sizeof(*kinds) && strcmp(word, kinds[kind]) != 0)
		kind++;
	if (kind == sizeof(kinds) / sizeof(*kinds))
		return "a line must begin with client, unit, checkpoint or signal";
	r.kind = (enum allow_kind)kind;
	why = read_words(&r, rest);
	if (!why && a->rules == ALLOW_RULES)
		return "there are more than 64 rules";
	if (!why)
		a->rule[a->rules++] = r;
	return why;
}

int allow_read(struct allow *ret, const char *path, char *text, char *message, size_t size)
{
	ret->path = path;
	ret->rules = 0;
	for (unsigned number = 1; text; number++) {
		char *line = strsep(&text, "\n");
		const char *why = read_line(ret, line);

		if (!why)
			continue;
		snprintf(message, size, "%s:%u: %s; nothing is allowed until this is fixed",
			 path, number, why);
		ret->rules = 0;
		return -GW_E_PARSE;
	}
	return 0;
}

static const char *refuse_file(int fd)
{
	struct stat st;

	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
		return "it is not a regular file";
	if (st.st_uid != 0 || (st.st_mode & (S_IWGRP | S_IWOTH)))
		return "users other than root can write it (run chown root and chmod go-w on "
		       "it)";
	return st.st_size >= FILE_MAX ? "it is too large" : NULL;
}

int allow_load(struct allow *ret, const char *path, char *message, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
	const char *why = fd < 0 ? strerror(errno) : refuse_file(fd);
	/* The buffer may be static, because the companion has no threads. */
	static char text[FILE_MAX];
	ssize_t n = -1;

	ret->path = path;
	ret->rules = 0;
	if (!why)
		n = read(fd, text, sizeof(text) - 1);
	if (fd >= 0)
		close(fd);
	if (!why && n >= 0 && !memchr(text, '\0', (size_t)n)) {
		text[n] = '\0';
		return allow_read(ret, path, text, message, size);
	}
	snprintf(message, size, "%s: %s; nothing is allowed", path,
		 why ? why : "it cannot be read as text");
	return -GW_E_PERM;
}

int allow_client(const struct allow *a, uid_t uid, char *message, size_t size)
{
	for (unsigned i = 0; i < a->rules; i++)
		if (a->rule[i].kind == ALLOW_CLIENT && a->rule[i].uid == (int64_t)uid)
			return 0;
	if (uid == 0)
		return 0;
	snprintf(message, size,
		 "user %u is not allowed; to allow it, add this line to %s: client %u", uid,
		 a->path, uid);
	return -GW_E_PERM;
}

int allow_unit(const struct allow *a, const char *unit, char *message, size_t size)
{
	for (unsigned i = 0; i < a->rules; i++)
		if (a->rule[i].kind == ALLOW_UNIT && strcmp(a->rule[i].name, unit) == 0)
			return 0;
	snprintf(message, size, "%s is not allowed; to allow it, add this line to %s: unit %s",
		 unit, a->path, unit);
	return -GW_E_PERM;
}

static bool rule_matches(const struct allow_rule *r, const struct proc *p)
{
	return (!r->exe[0] || strcmp(r->exe, p->exe) == 0) &&
	       (!r->cgroup[0] || (p->cgroup[0] && proc_in_cgroup(p->cgroup, r->cgroup))) &&
	       (r->uid < 0 || r->uid == p->uid);
}

int allow_process(const struct allow *a, enum allow_kind kind, const struct proc *p,
		  char *message, size_t size)
{
	bool grouped = p->cgroup[0] == '/' && p->cgroup[1];

	for (unsigned i = 0; i < a->rules; i++)
		if (a->rule[i].kind == kind && rule_matches(&a->rule[i], p))
			return 0;
	snprintf(message, size,
		 "process %" PRId64
		 " (%s) is not allowed; to allow it, add this line to %s: %s %s%s",
		 p->pid, p->name, a->path, kinds[kind],
		 grouped ? "cgroup=" : "exe=", grouped ? p->cgroup : p->exe);
	return -GW_E_PERM;
}
