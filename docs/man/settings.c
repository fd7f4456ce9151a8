/* Fills in a manual page that it reads from standard input.  The settings in src/daemon/config.def
 * replace the lines "@settings@" and "@flags@".  The keys of [[worker]], [[rule]] and [[schedule]]
 * replace "@worker@", "@rule@" and "@schedule@", the kinds of workers replace "@kinds@", and the
 * kinds of workload replace "@workloads@".  The first argument replaces "@docdir@" within a line. */
#include "guard/policy.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Escapes the characters that scdoc treats as markup. */
static void text(const char *s)
{
	for (; *s; s++) {
		if (strchr("_*\\#[", *s))
			putchar('\\');
		putchar(*s);
	}
}

static void upper(const char *s)
{
	for (; *s; s++) {
		if (*s == '_' || *s == '.')
			putchar('\\');
		putchar(*s == '.' ? '_' : toupper((unsigned char)*s));
	}
}

static void sentence(const char *help)
{
	putchar(toupper((unsigned char)*help));
	text(help + 1);
	printf(".");
}

struct row {
	const char *section, *key, *type, *standard;
	double least, most;
	const char *choices, *flag, *help;
};

static const struct row rows[] = {
#define O(section, key, type, standard, least, most, choices, flag, help) \
	{ #section, #key, #type, standard, least, most, choices, flag, help },
#define D(key, type, standard, least, most, choices, flag, help) \
	{ "guard.defaults", #key, #type, standard, least, most, choices, flag, help },
#include "daemon/config.def"
#undef O
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

/* How the page describes a type, and the placeholder for the argument of a flag. */
static const struct {
	const char *type, *words, *unit, *metavar;
} types[] = {
	{ "BOOL", "true or false", "", NULL }, { "COUNT", "whole number", "", "N" },
	{ "NUMBER", "number", "", "X" },       { "DURATION", "time", " s", "TIME" },
	{ "BYTES", "size", " MiB", "SIZE" },   { "TEXT", "string", "", "FILE" },
	{ "CHOICE", "word", "", "WORD" },      { "LIST", "array of strings", "", "ADDRESS" },
};

static unsigned type_of(const struct row *r)
{
	unsigned i = 0;

	while (strcmp(types[i].type, r->type) != 0)
		i++;
	return i;
}

static void choices(const struct row *r)
{
	printf(" One of ");
	for (const char *p = r->choices; *p; p++)
		*p == '|' ? printf(", ") : putchar(*p);
	printf(".");
}

static void about(const struct row *r)
{
	sentence(r->help);
	if (r->choices)
		choices(r);
	if (r->most > 0) {
		double unit = strcmp(r->type, "BYTES") == 0 ? 0x1p20 : 1;

		printf(" From %.15g to %.15g%s.", r->least / unit, r->most / unit,
		       types[type_of(r)].unit);
	}
}

static void setting(const struct row *r)
{
	int bare = strcmp(r->section, "service") == 0;

	printf("*");
	text(r->key);
	printf("* (%s; default: ", types[type_of(r)].words);
	text(*r->standard ? r->standard : "empty");
	printf(")\n\t");
	about(r);
	printf(" *GPUWARD\\_");
	upper(bare ? "" : r->section);
	printf("%s", bare ? "" : "\\_");
	upper(r->key);
	printf("*");
	if (r->flag)
		printf(", *--%s*", r->flag);
	printf(".\n\n");
}

static void settings(void)
{
	for (size_t i = 0; i < ROWS; i++) {
		if (i == 0 || strcmp(rows[i].section, rows[i - 1].section) != 0)
			printf("## [%s]\n\n", rows[i].section);
		setting(&rows[i]);
	}
}

/* ---- the guard's tables ---- */

enum { WORKER = 1, RULE = 2, SCHEDULE = 4 };

const char policy_kind_choices[] =
#define K(symbol, name, url, level, stop_s, traits, help) "|" #name
#define I(symbol, name, url, level, stop_s, traits, help)
#include "guard/kind.def"
	;

static const struct {
	int of;
	struct row row;
} keys[] = {
#define G(id, of, key, type, least, most, choices, help) \
	{ of, { "", key, #type, "", least, most, choices, NULL, help } },
#include "daemon/guard_config.def"
};

static void table(int of)
{
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		if (!(keys[i].of & of))
			continue;
		printf("*");
		text(keys[i].row.key);
		printf("* (%s)\n\t", types[type_of(&keys[i].row)].words);
		about(&keys[i].row);
		printf("\n\n");
	}
}

static void kinds(void)
{
	static const struct {
		const char *name, *url, *help;
		unsigned level;
	} kind[] = {
#define K(symbol, name, url, level, stop_s, traits, help) { #name, url, help, level },
#define I(symbol, name, url, level, stop_s, traits, help)
#include "guard/kind.def"
	};

	for (size_t i = 0; i < sizeof(kind) / sizeof(kind[0]); i++) {
		printf("*%s* (level %u%s%s)\n\t", kind[i].name, kind[i].level,
		       kind[i].url ? ", " : "", kind[i].url ? kind[i].url : "");
		sentence(kind[i].help);
		printf("\n\n");
	}
}

static void flags(void)
{
	for (size_t i = 0; i < ROWS; i++) {
		const char *metavar = types[type_of(&rows[i])].metavar;

		if (!rows[i].flag)
			continue;
		printf("*--%s*", rows[i].flag);
		if (metavar)
			printf(" _%s_", metavar);
		printf("\n\t");
		about(&rows[i]);
		if (strcmp(rows[i].type, "DURATION") == 0)
			printf(" Default: %s.", rows[i].standard);
		printf("\n\n");
	}
}

static void with_folder(const char *line, const char *folder)
{
	static const char mark[] = "@docdir@";

	for (const char *at; (at = strstr(line, mark)); line = at + sizeof(mark) - 1)
		printf("%.*s%s", (int)(at - line), line, folder);
	fputs(line, stdout);
}

int main(int argc, char **argv)
{
	char line[4096];

	while (fgets(line, sizeof(line), stdin)) {
		if (strcmp(line, "@settings@\n") == 0)
			settings();
		else if (strcmp(line, "@flags@\n") == 0)
			flags();
		else if (strcmp(line, "@worker@\n") == 0)
			table(WORKER);
		else if (strcmp(line, "@kinds@\n") == 0)
			kinds();
		else if (strcmp(line, "@rule@\n") == 0)
			table(RULE);
		else if (strcmp(line, "@schedule@\n") == 0)
			table(SCHEDULE);
		else if (strcmp(line, "\t@workloads@\n") == 0)
			puts("\t"
#define WORKLOAD(symbol, word, name) word ", "
#include "device/workload.def"
#undef WORKLOAD
			);
		else
			with_folder(line, argc > 1 ? argv[1] : "");
	}
	return ferror(stdin) ? 1 : 0;
}
