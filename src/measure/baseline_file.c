/* Baselines in files: one per state in which a GPU was idle.
 *
 * The name contains the GPU, the kind and a hash of the rest of the key, so finding one means
 * opening one file; the other files of that GPU show what is different. The first line is a
 * hash of the rest, so that a cut file is ignored. */
#include "baseline.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/toml.h"
#include "base/toml_write.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_BYTES 4096
#define PATH_BYTES 1024
#define DEGREES    10.0
#define SAME_W     0.5
#define HEAD       "# gpuward baseline "
#define HEAD_BYTES (sizeof(HEAD) - 1 + 16 + 1) /* hash in hex, newline */

int baseline_directory(char *out, size_t size)
{
	return file_cache_directory("baseline", out, size);
}

static void file_prefix(const char *uuid, struct buf *b)
{
	for (; *uuid; uuid++) {
		bool plain = (*uuid >= '0' && *uuid <= '9') || (*uuid >= 'a' && *uuid <= 'z') ||
			     (*uuid >= 'A' && *uuid <= 'Z') || *uuid == '-';

		buf_addc(b, plain ? *uuid : '_');
	}
	buf_addc(b, '.');
}

/* "DIR/UUID.KIND.HASH.toml".  0 or -GW_E_SIZE. */
static int file_path(const struct baseline *key, const char *dir, char out[static PATH_BYTES])
{
	char state[512];
	struct buf b;
	long long deciwatts = isnan(key->limit_w) ? -1 : llround(10 * key->limit_w);
	int n = snprintf(state, sizeof(state), "%s\n%s\n%s\n%lld\n%d", key->uuid, key->driver,
			 key->vbios, deciwatts, key->persistence);

	buf_init_fixed(&b, out, PATH_BYTES);
	buf_addf(&b, "%s/", dir);
	file_prefix(key->uuid, &b);
	buf_addf(&b, "%s.%016" PRIx64 ".toml", baseline_kind_name(key->kind),
		 toml_sum(TOML_SUM_START, state, (size_t)n));
	return b.err;
}

static void put(struct buf *b, const struct baseline *v)
{
	toml_write_text(b, "uuid", v->uuid);
	toml_write_text(b, "driver", v->driver);
	toml_write_text(b, "vbios", v->vbios);
	toml_write_text(b, "kind", baseline_kind_name(v->kind));
	toml_write_real(b, "limit_watts", v->limit_w);
	buf_addf(b, "persistence = %d\n", v->persistence);
	toml_write_real(b, "power_watts", v->power_w);
	toml_write_real(b, "standard_error_watts", v->u_w);
	toml_write_real(b, "seconds", v->seconds);
	toml_write_real(b, "temperature_celsius", v->temperature_c);
	buf_addf(b, "taken_unix_ns = %" PRIu64 "\n", v->wall_ns);
	buf_addf(b, "codes = %" PRIu64 "\n", v->codes);
}

int baseline_save(const struct baseline *v, const char *dir, char *message, size_t size)
{
	char path[PATH_BYTES], text[FILE_BYTES], head[HEAD_BYTES + 1];
	struct buf b;
	int err;

	if (v->codes & UINT64_C(1) << GW_CODE_BASELINE_CONTENDED) {
		snprintf(message, size, "the GPU was not idle: %s", v->evidence);
		return -GW_E_STATE;
	}
	if (!*v->uuid) {
		snprintf(message, size,
			 "the GPU reports no UUID, which the name of the file needs");
		return -GW_E_ARG;
	}
	buf_init_fixed(&b, text, sizeof(text));
	snprintf(head, sizeof(head), HEAD "%016x\n", 0u);
	buf_adds(&b, head);
	put(&b, v);
	err = b.err ? b.err : file_path(v, dir, path);
	if (err) {
		snprintf(message, size, "a name is too long");
		return err;
	}
	snprintf(head, sizeof(head), HEAD "%016" PRIx64 "\n",
		 toml_sum(TOML_SUM_START, text + HEAD_BYTES, b.len - HEAD_BYTES));
	memcpy(text, head, HEAD_BYTES);
	err = file_make_directory(dir, message, size);
	return err ? err : file_replace(path, text, b.len, message, size);
}

static bool get_text(const struct toml_node *top, const char *key, char *out, size_t size)
{
	const struct toml_node *n = toml_get(top, key);

	if (!n || n->type != TOML_STRING || n->v.string.len >= size)
		return false;
	memcpy(out, n->v.string.text, n->v.string.len);
	out[n->v.string.len] = '\0';
	return true;
}

static bool get_number(const struct toml_node *top, const char *key, double *ret)
{
	const struct toml_node *n = toml_get(top, key);

	if (!n || n->type != TOML_FLOAT)
		return false;
	*ret = n->v.real;
	return true;
}

static bool get_count(const struct toml_node *top, const char *key, int64_t least, int64_t *ret)
{
	const struct toml_node *n = toml_get(top, key);

	if (!n || n->type != TOML_INTEGER || n->v.integer < least)
		return false;
	*ret = n->v.integer;
	return true;
}

static bool get_kind(const struct toml_node *top, enum baseline_kind *ret)
{
	char name[32];

	if (!get_text(top, "kind", name, sizeof(name)))
		return false;
	for (unsigned k = 0; k < BASELINE_KINDS; k++)
		if (strcmp(name, baseline_kind_name(k)) == 0) {
			*ret = (enum baseline_kind)k;
			return true;
		}
	return false;
}

static bool get(const struct toml_node *top, struct baseline *v)
{
	int64_t persistence, wall, codes;

	memset(v, 0, sizeof(*v));
	if (!get_text(top, "uuid", v->uuid, sizeof(v->uuid)) ||
	    !get_text(top, "driver", v->driver, sizeof(v->driver)) ||
	    !get_text(top, "vbios", v->vbios, sizeof(v->vbios)) || !get_kind(top, &v->kind) ||
	    !get_number(top, "limit_watts", &v->limit_w) ||
	    !get_count(top, "persistence", -1, &persistence) ||
	    !get_number(top, "power_watts", &v->power_w) ||
	    !get_number(top, "standard_error_watts", &v->u_w) ||
	    !get_number(top, "seconds", &v->seconds) ||
	    !get_number(top, "temperature_celsius", &v->temperature_c) ||
	    !get_count(top, "taken_unix_ns", 0, &wall) || !get_count(top, "codes", 0, &codes))
		return false;
	v->persistence = (int)persistence;
	v->wall_ns = (uint64_t)wall;
	v->codes = (uint64_t)codes;
	return v->power_w >= 0 && v->power_w < 1e5 && v->u_w >= 0 && v->seconds > 0;
}

/* Returns 0, -GW_E_NOENT or -GW_E_PARSE. */
static int read_file(const char *path, struct baseline *ret)
{
	char text[FILE_BYTES], head[HEAD_BYTES + 1];
	struct toml_error error;
	struct toml *doc;
	int err = 0, fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -GW_E_NOENT;
	n = read(fd, text, sizeof(text));
	close(fd);
	if (n <= (ssize_t)HEAD_BYTES)
		return -GW_E_PARSE;
	snprintf(head, sizeof(head), HEAD "%016" PRIx64 "\n",
		 toml_sum(TOML_SUM_START, text + HEAD_BYTES, (size_t)n - HEAD_BYTES));
	if (memcmp(text, head, HEAD_BYTES) != 0 ||
	    toml_parse(text, (size_t)n, &doc, &error) != 0)
		return -GW_E_PARSE;
	if (!get(toml_top(doc), ret))
		err = -GW_E_PARSE;
	toml_free(doc);
	return err;
}

static bool same_limit(double a, double b)
{
	return (isnan(a) && isnan(b)) || fabs(a - b) <= SAME_W;
}

static bool same_card(const struct baseline *a, const struct baseline *b)
{
	return strcmp(a->uuid, b->uuid) == 0 && strcmp(a->driver, b->driver) == 0 &&
	       strcmp(a->vbios, b->vbios) == 0;
}

/* Why a cannot be used for the state of key; "": it can. */
static void explain_difference(const struct baseline *a, const struct baseline *key,
			       double ttl_s, uint64_t now_ns, char *why, size_t size)
{
	double age_s = ((double)now_ns - (double)a->wall_ns) * 1e-9;

	why[0] = '\0';
	if (a->kind != key->kind || !same_card(a, key))
		snprintf(why, size, "the stored one belongs to another driver (%s, now %s)",
			 a->driver, key->driver);
	else if (!same_limit(a->limit_w, key->limit_w))
		snprintf(why, size,
			 "the stored one is for a limit of %.0f W, but the limit is %.0f W now",
			 a->limit_w, key->limit_w);
	else if (a->persistence != key->persistence)
		snprintf(why, size, "persistence mode has changed since");
	else if (age_s < 0)
		snprintf(why, size, "the wall clock was set back since it was taken");
	else if (age_s > ttl_s)
		snprintf(why, size, "it is %.0f minutes old; the maximum is %.0f", age_s / 60,
			 ttl_s / 60);
	else if (fabs(a->temperature_c - key->temperature_c) > DEGREES)
		snprintf(why, size,
			 "it was taken at %.0f degrees Celsius, but the GPU has %.0f now",
			 a->temperature_c, key->temperature_c);
}

/* Is this a file of that GPU and kind? uuid NULL: of any. */
static bool file_matches(const char *name, const char *uuid, const char *kind)
{
	char start[256];
	size_t n = strlen(name);
	struct buf b;

	if (n < 5 || strcmp(name + n - 5, ".toml") != 0)
		return false;
	if (!uuid)
		return true;
	buf_init_fixed(&b, start, sizeof(start));
	file_prefix(uuid, &b);
	buf_adds(&b, kind);
	return !b.err && strncmp(name, start, b.len) == 0;
}

/* Why there is none for this state: how an existing one differs. */
static void explain_missing(const struct baseline *key, const char *dir, double ttl_s,
			    uint64_t now_ns, char *why, size_t size)
{
	char path[PATH_BYTES];
	struct baseline other;
	struct dirent *e;
	DIR *d = opendir(dir);

	snprintf(why, size, "none is stored");
	while (d && (e = readdir(d))) {
		int n = snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);

		if (file_matches(e->d_name, key->uuid, baseline_kind_name(key->kind)) &&
		    n > 0 && (size_t)n < sizeof(path) && read_file(path, &other) == 0) {
			explain_difference(&other, key, ttl_s, now_ns, why, size);
			break;
		}
	}
	if (d)
		closedir(d);
}

int baseline_load(struct baseline *key, const char *dir, double ttl_s, uint64_t wall_now_ns,
		  char *why, size_t size)
{
	char path[PATH_BYTES];
	struct baseline found;
	int err = file_path(key, dir, path);

	if (!err)
		err = read_file(path, &found);
	if (err == -GW_E_PARSE) {
		snprintf(why, size, "%s is damaged and was ignored", path);
		return -GW_E_NOENT;
	}
	if (err) {
		explain_missing(key, dir, ttl_s, wall_now_ns, why, size);
		return -GW_E_NOENT;
	}
	explain_difference(&found, key, ttl_s, wall_now_ns, why, size);
	if (*why)
		return -GW_E_NOENT;
	*key = found;
	return 0;
}

bool baseline_kept(const char *uuid, enum baseline_kind kind, const char *dir)
{
	bool found = false;
	struct dirent *e;
	DIR *d = opendir(dir);

	while (d && !found && (e = readdir(d)))
		found = file_matches(e->d_name, uuid, baseline_kind_name(kind));
	if (d)
		closedir(d);
	return found;
}

unsigned baseline_clear(const char *uuid, const char *dir)
{
	unsigned deleted = 0;
	struct dirent *e;
	DIR *d = opendir(dir);

	while (d && (e = readdir(d)))
		if (file_matches(e->d_name, uuid, "") && unlinkat(dirfd(d), e->d_name, 0) == 0)
			deleted++;
	if (d)
		closedir(d);
	return deleted;
}
