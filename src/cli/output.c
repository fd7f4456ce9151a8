#include "output.h"
#include "cli.h"

#include "base/array.h"
#include "base/file.h"
#include "base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_standard(const char *path)
{
	return !path || strcmp(path, "-") == 0;
}

int output_print(const char *text, size_t n)
{
	fflush(stdout);
	if (file_write_all(STDOUT_FILENO, text, n) == 0 || errno == EPIPE)
		return EXIT_OK; /* EPIPE: the reader closed the pipe, which is not an error */
	return cli_fail("cannot write the output: %s", strerror(errno));
}

/* Lets signals end the program while it writes to a FIFO, because the program that reads the
 * FIFO may never read. Otherwise `measure` could not be ended: `measure` blocks these signals
 * until its result is written. */
static void unblock_stop_signals(sigset_t *ret_before)
{
	sigset_t stop;

	sigemptyset(&stop);
	sigaddset(&stop, SIGINT);
	sigaddset(&stop, SIGQUIT);
	sigaddset(&stop, SIGTERM);
	sigaddset(&stop, SIGHUP);
	pthread_sigmask(SIG_UNBLOCK, &stop, ret_before);
}

/* Writes a file. Prints a note if it replaced a file that was not empty. */
static int output_save(const char *path, const char *text, size_t n, bool quiet)
{
	char message[512];
	struct stat st = { .st_mode = 0 };
	bool there = stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0;
	sigset_t before;
	int err;

	if (S_ISFIFO(st.st_mode))
		unblock_stop_signals(&before);
	err = file_replace(path, text, n, message, sizeof(message));
	if (S_ISFIFO(st.st_mode))
		pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (err)
		return cli_fail("%s", message);
	if (there && !quiet)
		cli_error("replaced %s", path);
	return EXIT_OK;
}

/* Copies a file, for file systems without hard links. Returns 0, or -1 with errno. */
static int copy_file(const char *from, const char *to, mode_t mode)
{
	int in = open(from, O_RDONLY | O_CLOEXEC), out;
	char block[16384];
	ssize_t n = -1;
	int err;

	if (in < 0)
		return -1;
	out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode & 0777);
	while (out >= 0 && (n = read(in, block, sizeof(block))) > 0 &&
	       file_write_all(out, block, (size_t)n) == 0)
		;
	err = n == 0 ? 0 : errno;
	if (out >= 0 && close(out) != 0)
		err = errno;
	close(in);
	if (out >= 0 && err)
		(void)unlink(to);
	errno = err;
	return err ? -1 : 0;
}

/* The file that a result replaces, and where its previous content is kept. */
struct previous {
	char path[PATH_MAX];      /* path without symbolic links; "": there was no file */
	char kept[PATH_MAX + 32]; /* path of the previous content; "": none */
	int error;                /* errno if the previous content could not be kept; or 0 */
};

static void previous_keep(struct previous *p, const char *path)
{
	struct stat st;

	*p = (struct previous){ .error = 0 };
	if (stat(path, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size == 0)
		return;
	if (!realpath(path, p->path))
		snprintf(p->path, sizeof(p->path), "%s", path);
	snprintf(p->kept, sizeof(p->kept), "%s.old-%ld", p->path, (long)getpid());
	if (link(p->path, p->kept) == 0 || copy_file(p->path, p->kept, st.st_mode) == 0)
		return;
	p->error = errno;
	p->kept[0] = '\0';
}

/* Renames the kept file to FILE.old. Call it after the result is written: until then, an older
 * FILE.old stays. If another file system object has this name, for example a folder, the name
 * is FILE.old-PID. */
static void previous_name(struct previous *p, const char *path)
{
	char old[PATH_MAX + 32];
	const char *file = *p->path ? p->path : path;

	snprintf(old, sizeof(old), "%s.old", file);
	if (rename(p->kept, old) != 0) {
		snprintf(old, sizeof(old), "%s.old-%ld", file, (long)getpid());
		if (rename(p->kept, old) != 0)
			return;
	}
	snprintf(p->kept, sizeof(p->kept), "%s", old);
}

/* Writes a result where file_swap() is not possible. If two results are written at the same
 * time, one of them can be lost. */
static int save_over(const char *path, const struct buf *text, struct previous *p)
{
	int code;

	previous_keep(p, path);
	code = output_save(path, text->p, text->len, true);
	if (code != EXIT_OK && *p->kept)
		(void)unlink(p->kept); /* the file was not replaced */
	return code;
}

/* Writes a result with file_swap(). Returns an exit code, or -1 if file_swap() cannot be used
 * here. */
static int save_swapped(const char *path, const struct buf *text, struct previous *p)
{
	char message[512];
	struct stat st;
	int err;

	*p = (struct previous){ .error = 0 };
	if (!realpath(path, p->path))
		p->path[0] = '\0';
	err = file_swap(path, text->p, text->len, p->kept, sizeof(p->kept), message,
			sizeof(message));
	if (err == -GW_E_NOSUPPORT)
		return -1;
	if (err)
		return cli_fail("%s", message);
	/* An empty file, or a link to a file that does not exist, need not be kept. */
	if (*p->kept && lstat(p->kept, &st) == 0 && (!S_ISREG(st.st_mode) || st.st_size == 0)) {
		(void)unlink(p->kept);
		p->kept[0] = '\0';
	}
	return EXIT_OK;
}

/* Writes a result. If it replaces an older result, keeps the older one, because a measurement
 * may have taken hours. If two measurements write the same file at the same time, FILE and
 * FILE.old are their results. If three or more do, FILE and FILE.old are two of the results,
 * because there is only one FILE.old. */
static int save_result(const char *path, const struct buf *text, bool quiet)
{
	struct previous p;
	int code = save_swapped(path, text, &p);

	if (code < 0)
		code = save_over(path, text, &p);
	if (code != EXIT_OK)
		return code;
	if (p.error)
		cli_error("replaced %s; its previous content is lost, because it could not be "
			  "kept: %s",
			  path, strerror(p.error));
	if (!*p.kept)
		return code;
	previous_name(&p, path);
	if (!quiet)
		cli_error("replaced %s; its previous content is in %s", path, p.kept);
	return code;
}

int output_result(const char *path, bool print, const struct buf *text, bool quiet)
{
	bool file = path && !is_standard(path);
	int code = file ? save_result(path, text, quiet) : EXIT_OK;

	if ((print || (path && !file)) && output_print(text->p, text->len) != EXIT_OK)
		code = EXIT_FAILED;
	return code;
}

int output_possible(const char *path)
{
	char message[512];

	if (is_standard(path) || file_possible(path, message, sizeof(message)) == 0)
		return EXIT_OK;
	return cli_fail("%s", message);
}

int output_write(const char *path, const struct buf *text, bool quiet)
{
	if (text->err)
		return cli_fail("cannot build the output: %s", gw_strerror(text->err));
	if (is_standard(path)) {
		fwrite(text->p, 1, text->len, stdout); /* main() checks for write errors */
		return EXIT_OK;
	}
	return output_save(path, text->p, text->len, quiet);
}

/* Reads the state of the folder of the file at path. If path is a link, reads the folder of its
 * target, because output_save() replaces the target. */
static bool stat_folder(const char *path, struct stat *ret)
{
	char folder[PATH_MAX];
	char *slash;

	if (!realpath(path, folder))
		snprintf(folder, sizeof(folder), "%s", path);
	slash = strrchr(folder, '/');
	if (slash)
		slash[1] = '\0';
	return stat(slash ? folder : ".", ret) == 0;
}

static bool is_same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

int output_spares_input(const char *path, const char *input)
{
	struct stat out, folder, in;
	char result[4096];

	if (is_standard(path))
		return EXIT_OK;
	snprintf(result, sizeof(result), "%s/result.json", input);
	/* The input may be a bundle. Its result may be a link to another folder. */
	if (stat(path, &out) == 0 && ((stat(input, &in) == 0 && is_same_file(&in, &out)) ||
				      (stat(result, &in) == 0 && is_same_file(&in, &out))))
		return cli_usage("%s is an input file and would be overwritten; give "
				 "-o another file",
				 path);
	if (stat_folder(path, &folder) && stat(input, &in) == 0 && S_ISDIR(in.st_mode) &&
	    is_same_file(&in, &folder))
		return cli_usage("%s is inside the bundle %s and would change it; give "
				 "-o a file in another folder",
				 path, input);
	return EXIT_OK;
}

int output_spares(const char *path, char **inputs, int n)
{
	int code = EXIT_OK;

	for (int i = 0; i < n && code == EXIT_OK; i++)
		code = output_spares_input(path, inputs[i]);
	return code;
}

/* Copies path without the slashes at its end. Returns its last part. */
static const char *copy_path(const char *path, char out[static PATH_MAX])
{
	char *slash;
	size_t n;

	snprintf(out, PATH_MAX, "%s", path);
	n = strlen(out);
	while (n > 1 && out[n - 1] == '/')
		out[--n] = '\0';
	slash = strrchr(out, '/');
	return slash ? slash + 1 : out;
}

bool output_is_same(const char *output, const char *path)
{
	char path_a[PATH_MAX], path_b[PATH_MAX];
	const char *name_a = copy_path(output, path_a), *name_b = copy_path(path, path_b);
	struct stat folder_a, folder_b;

	return !is_standard(output) && strcmp(name_a, name_b) == 0 &&
	       stat_folder(path_a, &folder_a) && stat_folder(path_b, &folder_b) &&
	       is_same_file(&folder_a, &folder_b);
}

#define VALUE_COLUMN 35 /* the column in which values begin; to the right of the longest key */

void figure_line(const char *key, const char *fmt, ...)
{
	char text[1024], left[64];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	snprintf(left, sizeof(left), "  %-32s", key);
	if (VALUE_COLUMN + utf8_columns(text) <= term_width()) {
		printf("%s %s\n", left, text);
	} else {
		/* The value gets a line of its own, so that it is wrapped as little as possible
		 * and can be copied. */
		printf("  %s\n", key);
		term_wrap("", 4, text, term_width());
	}
}

const char *figure_process_type(unsigned type)
{
	static const char *const types[] = { "-", "C", "G", "C+G", "M", "C+M", "G+M", "C+G+M" };

	return types[type & 7];
}

/* If the text begins with a number of MiB, or with "100 of 8192 MiB", adds the first number
 * with a suitable unit. Returns the length of the replaced text, or 0 if there is no size. */
static size_t add_size(struct buf *out, const char *text)
{
	char bytes[16], *end, *unit;
	const double mib = strtod(text, &end);
	const bool part = strncmp(end, " of ", 4) == 0;

	unit = end;
	if (part)
		strtod(end + 4, &unit);
	if (strncmp(unit, " MiB", 4) != 0)
		return 0;
	buf_adds(out, figure_bytes(bytes, mib * 0x1p20));
	return (size_t)(end - text) + (part ? 0 : 4);
}

const char *figure_sizes(char *out, size_t size, const char *text)
{
	struct buf b;
	char before = ' ';

	buf_init_fixed(&b, out, size);
	while (*text) {
		size_t n = strchr(" (", before) && *text >= '0' && *text <= '9'
				   ? add_size(&b, text)
				   : 0;

		if (!n)
			buf_add(&b, text, n = 1);
		before = text[n - 1];
		text += n;
	}
	return out;
}

const char *figure_span(char out[static 16], double seconds)
{
	if (isnan(seconds))
		snprintf(out, 16, "-");
	else if (seconds < 120)
		snprintf(out, 16, "%.0f s", seconds);
	else if (seconds < 3570)
		snprintf(out, 16, "%.0f min", seconds / 60);
	else
		snprintf(out, 16, "%.3g h", rint(seconds / 360) / 10);
	return out;
}

const char *figure_run_time(char out[static 16], double seconds)
{
	const unsigned long s = seconds >= 0 && seconds < 1e12 ? (unsigned long)seconds : 0;

	if (isnan(seconds))
		snprintf(out, 16, "-");
	else if (s < 60)
		snprintf(out, 16, "%lus", s);
	else if (s < 3600)
		snprintf(out, 16, "%lum%02lus", s / 60, s % 60);
	else if (s < 86400)
		snprintf(out, 16, "%luh%02lum", s / 3600, s / 60 % 60);
	else
		snprintf(out, 16, "%lud%02luh", s / 86400, s / 3600 % 24);
	return out;
}

enum figure_unit figure_unit(const char *key)
{
	static const struct {
		const char *word;
		enum figure_unit unit;
	} units[] = {
		{ "bytes", UNIT_BYTES },       { "watts", UNIT_WATTS },
		{ "celsius", UNIT_CELSIUS },   { "hertz", UNIT_HERTZ },
		{ "seconds", UNIT_SECONDS },   { "joules", UNIT_JOULES },
		{ "ratio", UNIT_RATIO },       { "lanes", UNIT_LANES },
		{ "uncertainty", UNIT_RATIO }, /* it is a ratio, too */
	};
	const char *last = strrchr(key, '_'), *word = last ? last + 1 : key;
	size_t n = strcspn(word, ".");

	for (size_t i = 0; i < COUNT(units); i++)
		if (strlen(units[i].word) == n && strncmp(word, units[i].word, n) == 0)
			return units[i].unit;
	return UNIT_NONE;
}

void figure_number(const char *key, double v)
{
	char size[16];

	switch (figure_unit(key)) {
	case UNIT_BYTES: figure_line(key, "%s", figure_bytes(size, v)); return;
	case UNIT_WATTS: figure_line(key, "%.10g W", v); return;
	case UNIT_CELSIUS: figure_line(key, "%.10g %s", v, term_plain("°C")); return;
	case UNIT_HERTZ: figure_line(key, "%.10g MHz", v * 1e-6); return;
	case UNIT_SECONDS: figure_line(key, "%.10g s", v); return;
	case UNIT_JOULES: figure_line(key, "%.10g J", v); return;
	case UNIT_RATIO: figure_line(key, "%.4g %%", 100 * v); return;
	case UNIT_LANES: figure_line(key, "%.10g lanes", v); return;
	case UNIT_NONE: figure_line(key, "%.10g", v); return;
	}
}

void figure_add_gpu(struct buf *list, unsigned index, const char *name, const char *next)
{
	buf_addf(list, "%s%u", list->len ? ", " : "", index);
	if (*name && (!next || strcmp(name, next) != 0))
		buf_addf(list, " (%s)", name);
}

void figure_value(const struct gw_device *d, unsigned q, bool reasons)
{
	const struct gw_quantity_info *info = gw_quantity_info(q);
	char name[512];
	double v = 0;
	enum gw_absence why = gw_device_value(d, q, &v);

	if (why != GW_HAVE) {
		if (reasons)
			figure_line(info->key, "- (%s)", gw_absence_text(why));
	} else if (info->kind == GW_KIND_FLAG) {
		figure_line(info->key, "%s", v != 0 ? "yes" : "no");
	} else if (gw_quantity_name(q, v, name, sizeof(name)) == 0) {
		figure_line(info->key, "%s", *name ? name : "none");
	} else {
		figure_number(info->key, v);
	}
}

#define REPLACEMENT "\xef\xbf\xbd"

static const char *markup_reference(char c)
{
	switch (c) {
	case '&': return "&amp;";
	case '<': return "&lt;";
	case '>': return "&gt;";
	case '"': return "&quot;";
	case '\'': return "&#39;";
	default: return NULL;
	}
}

static bool is_forbidden(uint32_t code)
{
	return (code < 0x20 && code != '\t' && code != '\n' && code != '\r') ||
	       (code >= 0x7f && code < 0xa0) || (code & 0xfffe) == 0xfffe;
}

/* Adds the character at s, escaped.  Returns how many bytes the character has in s. */
static size_t add_character(struct buf *out, const char *s)
{
	const char *ref = markup_reference(*s);
	size_t n = utf8_length(s);

	if (ref)
		buf_adds(out, ref);
	else if (n == 0 || is_forbidden(utf8_decode(s, n)))
		buf_adds(out, REPLACEMENT);
	else
		buf_add(out, s, n);
	return n ? n : 1;
}

void markup_text(struct buf *out, const char *s)
{
	while (s && *s)
		s += add_character(out, s);
}

void markup_cut(struct buf *out, const char *s, size_t columns)
{
	bool whole = utf8_columns(s) <= columns;
	size_t used, n = strlen(s);
	const char *end;

	if (!whole)
		n = term_fit(s, n, columns ? columns - 1 : 0, &used);
	for (end = s + n; s < end;)
		s += add_character(out, s);
	buf_adds(out, whole ? "" : "…");
}

#define RATE_MOST 1e6

/* Returns the value of the option if it was given, else the value of the environment variable.
 * *ret_name is the name of the option or of the variable, for error messages. */
static const char *given_or_variable(const char *given, const char *option,
				     const char *variable, const char **ret_name)
{
	const char *v = given ? given : getenv(variable);

	*ret_name = given ? option : variable;
	return v && *v ? v : NULL;
}

static int read_rate(const char *given, const char *option, const char *variable,
		     const char *example, double *ret)
{
	const char *name, *end, *text = given_or_variable(given, option, variable, &name);
	double v;

	*ret = 0;
	if (!text)
		return given ? cli_usage("%s takes a number such as %s, not ''", name, example)
			     : EXIT_OK;
	v = number_parse(text, &end);
	/* number_parse() accepts more than a decimal number, such as hexadecimal and "nan". */
	if (end == text || *end || text[strspn(text, "0123456789.eE+-")] ||
	    !(v >= 0 && v <= RATE_MOST))
		return cli_usage("%s takes a number such as %s, not '%s'", name, example, text);
	*ret = v;
	return EXIT_OK;
}

static int read_currency(const char *given, char ret[static ENERGY_COST_CURRENCY])
{
	const char *name, *text = given_or_variable(given, "--price-currency",
						    "GPUWARD_ENERGY_PRICE_CURRENCY", &name);
	char clean[64];

	*ret = '\0';
	if (!text)
		return EXIT_OK;
	utf8_clean(clean, sizeof(clean), text);
	if (strlen(text) >= ENERGY_COST_CURRENCY || strcmp(clean, text) != 0)
		return cli_usage("%s takes a word of at most %d bytes such as EUR, not '%s'",
				 name, ENERGY_COST_CURRENCY - 1, clean);
	snprintf(ret, ENERGY_COST_CURRENCY, "%s", text);
	return EXIT_OK;
}

int cost_options_read(const struct cost_options *o, struct energy_cost *ret)
{
	int code = read_rate(o->price, "--price-per-kwh", "GPUWARD_ENERGY_PRICE_PER_KWH",
			     "0.31", &ret->price_per_kwh);

	if (code == EXIT_OK)
		code = read_rate(o->gco2, "--gco2-per-kwh", "GPUWARD_ENERGY_GCO2_PER_KWH",
				 "380", &ret->gco2_per_kwh);
	if (code == EXIT_OK)
		code = read_currency(o->currency, ret->currency);
	if (code == EXIT_OK && o->currency && !(ret->price_per_kwh > 0))
		code = cli_usage("--price-currency needs --price-per-kwh");
	return code;
}
