#include "evidence.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void note(struct evidence *e, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static void note(struct evidence *e, const char *fmt, ...)
{
	va_list ap;

	if (e->notes == EVIDENCE_NOTES)
		return;
	va_start(ap, fmt);
	vsnprintf(e->note[e->notes++], EVIDENCE_NOTE, fmt, ap);
	va_end(ap);
}

/* What a reader of the figures must know of the readings. */
static void judge_readings(struct evidence *e)
{
	const struct bundle_summary *s = &e->made.sum;

	if (!s->sums)
		note(e, "%s was not finished: it has no SHA256SUMS", e->path);
	else if (!s->whole)
		note(e, "%s/%s is not as it was written", e->path, s->spoilt);
	if (s->bad_lines)
		note(e, "%s: %llu lines of readings could not be read", e->path,
		     (unsigned long long)s->bad_lines);
	if (s->cut)
		note(e,
		     "%s: %u of %u windows were cut off: their figures go as far as the "
		     "readings do",
		     e->path, s->cut, s->windows);
}

/* Without its result: the figures of the readings alone. */
static int use_readings(struct evidence *e, const struct buf *text, const char *why,
			char *message, size_t size)
{
	if (result_read(&e->result, e->path, text->p, text->len, message, size) != 0)
		return -1;
	e->bundle_rebuilt = true;
	if (access(e->file, F_OK) != 0)
		note(e,
		     "%s has no result.json: its figures are worked out of its readings, and "
		     "its environment is not known",
		     e->path);
	else
		note(e,
		     "%s: its figures are worked out of its readings, and its environment is "
		     "not known",
		     why);
	return 0;
}

static int open_bundle(struct evidence *e, char *message, size_t size)
{
	char why[EVIDENCE_NOTE - 200] = "", readings[4900] = "";
	struct buf text;
	int err;

	buf_init(&text, 256u << 20);
	e->read = bundle_rebuild(e->path, &e->made, &text, readings, sizeof(readings)) == 0;
	snprintf(e->file, sizeof(e->file), "%s/result.json", e->path);
	err = result_load(&e->result, e->file, why, sizeof(why));
	if (err && e->read)
		err = use_readings(e, &text, why, message, size);
	else if (err) /* what is wrong with the bundle says more than that it has no result */
		snprintf(message, size, "%s", readings);
	else if (!e->read)
		note(e, "the readings are not used: %s", readings);
	if (!err && e->read)
		judge_readings(e);
	buf_done(&text);
	return err;
}

int evidence_open(struct evidence *e, const char *path, char *message, size_t size)
{
	struct stat st;

	memset(e, 0, sizeof(*e));
	e->path = path;
	e->bundle = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
	if (e->bundle)
		return open_bundle(e, message, size);
	return result_load(&e->result, path, message, size);
}

void evidence_close(struct evidence *e)
{
	result_free(&e->result);
}
