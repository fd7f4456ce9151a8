/* Writes a bundle. */
#include "bundle.h"
#include "bundle_file.h"

#include "base/array.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/number.h"
#include "base/sha256.h"
#include "base/toml_write.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEVICES  64
#define FLUSH_AT 16384

struct writer {
	int fd;              /* -1: the file is not open */
	struct buf pending;  /* lines that are not written to the file yet */
	struct buf windows;  /* lines for BUNDLE_WINDOWS, written at the end */
	uint64_t flushed_ns; /* time of the last written event */
};

struct bundle {
	char dir[3072];
	struct writer events[DEVICES];
	int error;          /* the first error; 0: none */
	char message[4400]; /* the message of that error */
};

const char *bundle_path(char *out, size_t size, const char *dir, const char *name, int gpu)
{
	if (gpu < 0)
		snprintf(out, size, "%s/%s", dir, name);
	else
		snprintf(out, size, "%s/gpu%d.%s", dir, gpu, name);
	return out;
}

static int keep_error(struct bundle *b, int err, const char *message)
{
	if (err && !b->error) {
		b->error = err;
		snprintf(b->message, sizeof(b->message), "%s", message);
	}
	return err;
}

static void add_text(struct buf *b, const char *key, const char *text)
{
	if (text)
		toml_write_text(b, key, text);
}

static int write_text_file(struct bundle *b, const char *path, struct buf *text, char *message,
			   size_t size)
{
	int err = text->err;

	if (err)
		snprintf(message, size, "%s: %s", path, gw_strerror(err));
	else
		err = file_replace(path, text->p, text->len, message, size);
	buf_done(text);
	return keep_error(b, err, message);
}

static bool is_empty(const char *dir)
{
	DIR *d = opendir(dir);
	bool empty = true;
	const struct dirent *e;

	while (d && empty && (e = readdir(d)))
		empty = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0;
	if (d)
		closedir(d);
	return empty;
}

static int write_manifest(struct bundle *b, const struct bundle_about *about, char *message,
			  size_t size)
{
	char path[4096], time[CLOCK_RFC3339_SIZE];
	struct buf t;

	buf_init(&t, 65536);
	clock_format_rfc3339(about->wall_ns, time);
	buf_addf(&t, "schema = %d\ntool = \"gpuward\"\nversion = \"%s\"\ncreated = %s\n",
		 BUNDLE_SCHEMA, gw_version(), time);
	if (about->mono_ns)
		buf_addf(&t, "monotonic_ns = %" PRIu64 "\n", about->mono_ns);
	if (about->simulated)
		buf_adds(&t, "simulated = true\n");
	add_text(&t, "label", about->label);
	add_text(&t, "command", about->command);
	return write_text_file(b, bundle_path(path, sizeof(path), b->dir, BUNDLE_MANIFEST, -1),
			       &t, message, size);
}

int bundle_create(const char *dir, const struct bundle_about *about, struct bundle **ret,
		  char *message, size_t size)
{
	struct bundle *b;
	int err;

	if (strlen(dir) >= sizeof(b->dir)) {
		snprintf(message, size, "the path of the bundle is too long");
		return -GW_E_SIZE;
	}
	err = file_make_directory(dir, message, size);
	if (err)
		return err;
	if (!is_empty(dir)) {
		snprintf(message, size, "%s is not empty; a bundle needs an empty folder", dir);
		return -GW_E_STATE;
	}
	b = calloc(1, sizeof(*b));
	if (!b) {
		snprintf(message, size, "%s", gw_strerror(GW_E_NOMEM));
		return -GW_E_NOMEM;
	}
	snprintf(b->dir, sizeof(b->dir), "%s", dir);
	for (unsigned i = 0; i < DEVICES; i++) {
		b->events[i].fd = -1;
		buf_init(&b->events[i].pending, 4 * FLUSH_AT);
		buf_init(&b->events[i].windows, 1 << 20);
	}
	err = write_manifest(b, about, message, size);
	if (err) {
		free(b);
		return err;
	}
	*ret = b;
	return 0;
}

static int write_setup(struct bundle *b, unsigned n, const struct bundle_gpu *gpu,
		       char *message, size_t size)
{
	const struct energy_setup *s = gpu->setup;
	char path[4096];
	struct buf t;

	buf_init(&t, 65536);
	buf_addf(&t, "schema = %d\n", BUNDLE_SCHEMA);
	add_text(&t, "uuid", gpu->uuid);
	add_text(&t, "name", gpu->name);
	add_text(&t, "driver", gpu->driver);
	add_text(&t, "shape", bundle_shape_name(s->shape));
	toml_write_real(&t, "spacing_s", s->spacing_s);
	toml_write_real(&t, "window_s", s->window_s);
	toml_write_real(&t, "lag_s", s->lag_s);
	toml_write_real(&t, "look_ratio", s->look_ratio);
	toml_write_real(&t, "limit_w", s->limit_w);
	toml_write_real(&t, "interval_s", gpu->interval_s);
	buf_addf(&t, "counter = %s\nmig = %s\n", s->counter ? "true" : "false",
		 s->mig ? "true" : "false");
	return write_text_file(b, bundle_path(path, sizeof(path), b->dir, BUNDLE_SETUP, (int)n),
			       &t, message, size);
}

int bundle_add(struct bundle *b, unsigned number, const struct bundle_gpu *gpu, char *message,
	       size_t size)
{
	char path[4096];
	struct buf t;
	int err;

	if (number >= DEVICES) {
		snprintf(message, size, "a bundle holds at most %d GPUs", DEVICES);
		return -GW_E_SIZE;
	}
	err = write_setup(b, number, gpu, message, size);
	if (err)
		return err;
	buf_init(&t, 65536);
	(void)sensor_compose(&t, &gpu->setup->sensor); /* write_text_file() reports t.err */
	err = write_text_file(
		b, bundle_path(path, sizeof(path), b->dir, BUNDLE_SENSOR, (int)number), &t,
		message, size);
	if (err)
		return err;
	bundle_path(path, sizeof(path), b->dir, BUNDLE_EVENTS, (int)number);
	b->events[number].fd =
		open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
	if (b->events[number].fd < 0)
		return keep_error(b, file_failed(message, size, path, "written"), message);
	buf_adds(&b->events[number].pending, BUNDLE_HEADER);
	return 0;
}

static void flush_events(struct bundle *b, unsigned device)
{
	struct writer *w = &b->events[device];
	char path[4096], message[4400];

	if (w->fd >= 0 && w->pending.len &&
	    file_write_all(w->fd, w->pending.p, w->pending.len) != 0) {
		bundle_path(path, sizeof(path), b->dir, BUNDLE_EVENTS, (int)device);
		keep_error(b, file_failed(message, sizeof(message), path, "written"), message);
		/* The file may now end with a partial line, so write nothing more to it. */
		close(w->fd);
		w->fd = -1;
	}
	buf_clear(&w->pending);
}

void bundle_event(void *bundle, unsigned device, const struct event *e)
{
	struct bundle *b = bundle;
	struct writer *w;

	if (device >= DEVICES || b->events[device].fd < 0)
		return;
	w = &b->events[device];
	event_write(&w->pending, e);
	if (w->pending.len > FLUSH_AT || e->t_ns - w->flushed_ns > NS_PER_S ||
	    e->type == EVENT_OPEN || e->type == EVENT_CLOSE || e->type == EVENT_RESULT) {
		flush_events(b, device);
		w->flushed_ns = e->t_ns;
	}
}

void bundle_window(struct bundle *b, unsigned device, unsigned id, const char *label,
		   const struct gw_energy *e)
{
	struct buf *out;
	const double v[] = { e->joules.low,     e->joules.best,    e->joules.high,
			     e->counter_joules, e->samples_joules, e->seconds };

	if (device >= DEVICES)
		return;
	out = &b->events[device].windows;
	buf_addf(out, "%u\t%u", device, id);
	for (unsigned i = 0; i < COUNT(v); i++) {
		char text[NUMBER_SIZE] = "-";

		if (isfinite(v[i]))
			number_format(v[i], text);
		buf_addf(out, "\t%s", text);
	}
	buf_addf(out, "\t%s\t%s\t", gw_meter_kind_name(e->meter),
		 gw_validity_name(e->validity));
	for (const char *s = label; *s; s++)
		buf_addc(out, (unsigned char)*s < 0x20 ? ' ' : *s);
	buf_addc(out, '\n');
}

int bundle_file(struct bundle *b, const char *name, const char *text, size_t n, char *message,
		size_t size)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s", b->dir, name);
	return keep_error(b, file_replace(path, text, n, message, size), message);
}

int bundle_sum(const char *path, char out[static 65])
{
	struct sha256 s;
	char part[65536];
	ssize_t n;
	int fd = file_open(path);

	if (fd < 0)
		return -1;
	sha256_init(&s);
	while ((n = read(fd, part, sizeof(part))) > 0)
		sha256_add(&s, part, (size_t)n);
	close(fd);
	sha256_end(&s, out);
	return n < 0 ? -1 : 0;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static void write_sums(struct bundle *b)
{
	struct dirent **list = NULL;
	int n = scandir(b->dir, &list, NULL, by_name);
	char path[4096], sum[65], message[4400];
	struct buf t;

	buf_init(&t, 1 << 20);
	for (int i = 0; i < n; i++) {
		if (list[i]->d_name[0] != '.' && strcmp(list[i]->d_name, BUNDLE_SUMS) != 0) {
			snprintf(path, sizeof(path), "%s/%s", b->dir, list[i]->d_name);
			if (bundle_sum(path, sum) == 0)
				buf_addf(&t, "%s  %s\n", sum, list[i]->d_name);
		}
		free(list[i]);
	}
	free(list);
	write_text_file(b, bundle_path(path, sizeof(path), b->dir, BUNDLE_SUMS, -1), &t,
			message, sizeof(message));
}

static void write_windows(struct bundle *b)
{
	char path[4096], message[4400];
	struct buf all;

	buf_init(&all, DEVICES << 20);
	for (unsigned i = 0; i < DEVICES; i++) {
		buf_add(&all, b->events[i].windows.p, b->events[i].windows.len);
		buf_done(&b->events[i].windows);
	}
	write_text_file(b, bundle_path(path, sizeof(path), b->dir, BUNDLE_WINDOWS, -1), &all,
			message, sizeof(message));
}

int bundle_close(struct bundle *b, char *message, size_t size)
{
	char path[4096], text[4400];
	int err;

	for (unsigned i = 0; i < DEVICES; i++) {
		if (b->events[i].fd >= 0) {
			flush_events(b, i);
			if (b->events[i].fd >= 0 &&
			    (fsync(b->events[i].fd) != 0 || close(b->events[i].fd) != 0)) {
				bundle_path(path, sizeof(path), b->dir, BUNDLE_EVENTS, (int)i);
				keep_error(b, file_failed(text, sizeof(text), path, "written"),
					   text);
			}
		}
		buf_done(&b->events[i].pending);
	}
	write_windows(b);
	if (!b->error)
		write_sums(b);
	err = b->error;
	if (err)
		snprintf(message, size, "%s", b->message);
	free(b);
	return err;
}
