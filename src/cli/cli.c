#include "cli.h"

#include "base/array.h"
#include "base/number.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "base/utf8.h"

#include <assert.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <libgen.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const backends[] = { "auto", "all",
#define GW_BACKEND(symbol, name, modules, help) name,
#include <gpuward/backend.def>
					"none", NULL };
static const char *const colors[] = { "auto", "always", "never", NULL };

#define AT(member) offsetof(struct cli, member)

const struct option cli_common_options[] = {
	OPTION_ROW(LIST, 0, "gpu", AT(gpu), "SEL",
		   "only these GPUs: an index, a UUID or its beginning (at least 4 characters "
		   "after GPU-), a PCI id, cuda:N, or visible (the GPUs in "
		   "CUDA_VISIBLE_DEVICES); separate several by commas, or repeat the option"),
	OPTION_ROW(FLAG, 'j', "json", AT(json), NULL, "print JSON"),
	{ "backend", 0, OPTION_CHOICE, AT(backend), "NAME",
	  "auto, all, "
#define GW_BACKEND(symbol, name, modules, help) name ", "
#include <gpuward/backend.def>
	  "or none; auto uses the first backend that finds a GPU",
	  /* This row does not use OPTION_ROW(), because the arguments of a macro cannot contain
	   * #include. */
	  backends, NULL, 0, 0, 0, NULL },
	OPTION_ROW(TEXT, 0, "nvml-library", AT(nvml_library), "PATH",
		   "use this libnvidia-ml.so.1"),
	OPTION_OPTIONAL_ROW(0, "simulate", AT(simulate), "SCENARIO",
			    "use simulated GPUs: a built-in scenario or a TOML file (default: "
			    "demo; 'help' lists the scenarios)",
			    "demo"),
	OPTION_ROW(FLAG, 0, "wake", AT(wake), NULL,
		   "also read GPUs that are asleep; this wakes them"),
	OPTION_ROW(
		DURATION, 0, "timeout", AT(timeout_ns), "TIME",
		"stop waiting for a driver call after TIME (default: 10s; top and serve: 2s)"),
	OPTION_ROW(TEXT, 0, "root", AT(root), "DIR", "read /proc and /sys in DIR instead of /"),
	OPTION_CHOICE_ROW(0, "color", AT(color), "WHEN", "auto, always or never", colors),
	OPTION_ROW(FLAG, 'q', "quiet", AT(quiet), NULL,
		   "print only results and errors, no notes"),
	OPTION_ROW(FLAG, 'v', "verbose", AT(verbose), NULL,
		   "print more (snapshot, env, measure and run)"),
	OPTION_ROW(FLAG, 'h', "help", AT(help), NULL, "show this help"),
	OPTION_ROW(FLAG, 'V', "version", AT(version), NULL, "print the version"),
	OPTION_END,
};

static_assert(COUNT(cli_common_options) <= CLI_COMMON_MAX, "CLI_COMMON_MAX is too small");

bool cli_option_fits(const struct command *cmd, const struct option *o)
{
	static const size_t gpu_options[] = { AT(gpu),      AT(backend), AT(nvml_library),
					      AT(simulate), AT(wake),    AT(timeout_ns),
					      AT(root) };

	if (cmd->one_form && o->offset == AT(json))
		return false;
	if (cmd->names_gpu && o->offset == AT(gpu))
		return true;
	for (size_t i = 0; cmd->offline && i < COUNT(gpu_options); i++)
		if (o->offset == gpu_options[i])
			return false;
	return true;
}

void cli_options_of(const struct command *cmd, struct option ret[static CLI_COMMON_MAX])
{
	for (const struct option *o = cli_common_options; o->name; o++) {
		const bool verbose = o->offset == AT(verbose);

		if (!cli_option_fits(cmd, o) || (verbose && !cmd->verbose))
			continue;
		*ret = *o;
		if (verbose)
			ret->help = cmd->verbose;
		ret++;
	}
	*ret = (struct option){ .name = NULL };
}

#define SENTENCE 8192 /* size of a message in bytes; a longer message is cut */

/* Prints an error.  The message may quote files and services, so control characters are
 * replaced: they must not reach the terminal. */
void cli_error(const char *fmt, ...)
{
	char text[SENTENCE], clean[SENTENCE], *line = text;
	const char *left = "gpuward: ";
	va_list ap;

	fflush(stdout);
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	for (char *end; line; line = end) {
		end = strchr(line, '\n');
		if (end)
			*end++ = '\0';
		utf8_clean(clean, sizeof(clean), line);
		term_error_line(left, clean);
		left = "";
	}
}

static bool backend_is_named(const struct cli *c)
{
	static const char *const broad[] = { "auto", "all", "none" };

	for (size_t i = 0; c->backend && i < COUNT(broad); i++)
		if (strcmp(c->backend, broad[i]) == 0)
			return false;
	return c->backend != NULL;
}

/* Selects a separate cache folder per scenario. Simulated GPUs have the same UUIDs in all
 * scenarios, so cached data of one scenario must not be used for another one or for real
 * GPUs. */
static void separate_cache(const struct cli *c)
{
	static char part[40];
	const char *scenario = c->simulate ? c->simulate : getenv("GPUWARD_SIM");
	uint64_t sum = TEXT_HASH_START;
	char text[64 * 1024], unused[256];
	struct stat st;
	ssize_t n = -1;

	if (c->root)
		sum = text_hash(sum, c->root, strlen(c->root));
	if (scenario)
		sum = text_hash(sum, scenario, strlen(scenario));
	if (scenario && stat(scenario, &st) == 0 && S_ISREG(st.st_mode))
		n = file_read(scenario, text, sizeof(text), unused, sizeof(unused));
	/* The name of the folder depends on the content of the scenario file, because a person
	 * may edit the file. */
	if (n > 0)
		sum = text_hash(sum, text, (size_t)n);
	snprintf(part, sizeof(part), "/simulated-%016" PRIx64, sum);
	file_cache_apart(part);
}

int cli_open_options(const struct cli *c, struct gw_options *ret)
{
	struct gw_options o = { .size = sizeof(o),
				.flags = GW_OPEN_EXEC | GW_OPEN_NO_SHUTDOWN |
					 (c->wake ? GW_OPEN_WAKE : 0),
				.backend = c->backend,
				.nvml_library = c->nvml_library,
				.root = c->root,
				.deadline_ns = c->timeout_ns };
	int err;

	if (c->simulate) {
		if (c->nvml_library)
			return cli_usage("--simulate and --nvml-library exclude each other: "
					 "give one of them");
		if (c->backend && backend_is_named(c) && strcmp(c->backend, "nvml") != 0)
			return cli_usage("--simulate simulates NVML and cannot be used with "
					 "--backend %s",
					 c->backend);
		err = simulate_prepare(c->simulate, &o.nvml_library);
		if (err)
			return err;
		separate_cache(c);
		if (!o.backend)
			o.backend = "nvml";
	}
	if (c->nvml_library && !o.backend)
		/* The user named a library: do not try other backends. */
		o.backend = "nvml";
	*ret = o;
	return EXIT_OK;
}

bool cli_names_driver(const struct cli *c)
{
	return c->simulate || c->backend || c->nvml_library || c->root || c->wake;
}

int cli_open(struct cli *c, unsigned tiers)
{
	struct gw_options o;
	int err = cli_open_options(c, &o);

	if (err)
		return err;
	if (!o.deadline_ns)
		o.deadline_ns = 10 * NS_PER_S;
	err = gw_open(&o, &c->ctx);
	if (err) {
		if (c->root && err == -GW_E_NOENT)
			return cli_usage("--root '%s': no such folder", c->root);
		return cli_fail("cannot open the GPU drivers: %s", gw_strerror(err));
	}
	err = gw_snapshot_new(c->ctx, &c->snap);
	if (!err)
		err = gw_snapshot_take(c->snap, tiers);
	if (err)
		return cli_fail("%s", gw_strerror(err));
	if (!c->simulate && gw_snapshot_status(c->snap)->simulated)
		separate_cache(c);
	return cli_select(c);
}

bool cli_hung(const struct cli *c)
{
	if (!c->snap)
		return false;
	for (unsigned i = 0; i < gw_snapshot_device_count(c->snap); i++)
		if (gw_snapshot_device(c->snap, i)->state == GW_DEVICE_STALLED)
			return true;
	return gw_snapshot_status(c->snap)->cause == GW_CAUSE_STALLED;
}

void cli_close(struct cli *c)
{
	gw_snapshot_free(c->snap);
	gw_close(c->ctx);
}

static int select_devices(struct cli *c, const char *selector)
{
	/* The syntax check must work without a GPU, too, so it uses this empty device. */
	static const struct gw_device nobody;
	unsigned n = gw_snapshot_device_count(c->snap), found = 0;
	bool valid = gw_device_matches(&nobody, selector) >= 0;

	for (unsigned i = 0; i < n && i < sizeof(c->filter.selected); i++) {
		if (gw_device_matches(gw_snapshot_device(c->snap, i), selector) <= 0)
			continue;
		c->filter.selected[i] = true;
		found++;
	}
	if (!found && !valid)
		return cli_usage(
			"--gpu '%s' is not an index, UUID, PCI id, cuda:N or the word visible",
			selector);
	if (!found && strncasecmp(selector, "GPU-", 4) == 0 && strlen(selector) < 8)
		return cli_usage(
			"--gpu '%s' is too short: give at least 4 characters after GPU-",
			selector);
	if (!found) {
		cli_error("--gpu '%s': no such GPU (this machine has %u; see gpuward list)",
			  selector, n);
		return EXIT_NO_GPU;
	}
	return EXIT_OK;
}

int cli_select(struct cli *c)
{
	int code = EXIT_OK;

	memset(c->filter.selected, c->gpu.count == 0, sizeof(c->filter.selected));
	for (unsigned i = 0; i < c->gpu.count && code == EXIT_OK; i++)
		code = select_devices(c, c->gpu.item[i]);
	return code;
}

const struct gw_device *cli_next_device(const struct cli *c, unsigned *at)
{
	while (*at < gw_snapshot_device_count(c->snap))
		if (render_shows(&c->filter, (*at)++))
			return gw_snapshot_device(c->snap, *at - 1);
	return NULL;
}

int cli_device_exit_code(const struct cli *c)
{
	const struct gw_status *s = gw_snapshot_status(c->snap);
	const struct gw_device *d;
	bool bad = false;

	if (gw_snapshot_device_count(c->snap) == 0)
		return gw_cause_info(s->cause)->severity == GW_SEVERITY_ERROR ||
				       backend_is_named(c)
			       ? EXIT_NO_GPU
			       : EXIT_OK;
	for (unsigned at = 0; (d = cli_next_device(c, &at));)
		bad |= d->state != GW_DEVICE_OK && d->state != GW_DEVICE_ASLEEP;
	return bad ? EXIT_PARTIAL : EXIT_OK;
}

void cli_print_status(const struct cli *c)
{
	const struct gw_status *s = gw_snapshot_status(c->snap);
	const struct gw_cause_info *cause = gw_cause_info(s->cause);
	bool any = gw_snapshot_device_count(c->snap) > 0;
	char text[512];

	if (s->simulated)
		term_print_simulated(stdout);
	if (s->cause == GW_CAUSE_NONE || (any && c->quiet))
		return;
	if (s->cause == GW_CAUSE_NO_GPU)
		snprintf(text, sizeof(text), "N%s.",
			 /* The message is "no GPU was found": begin it with a capital
			  * letter. */
			 s->message + 1);
	else
		snprintf(text, sizeof(text), "%s%s.", any ? "" : "No GPU: ", s->message);
	term_wrap("", 0, text, term_width());
	if (!c->quiet && *cause->remedy)
		term_wrap("", 2, cause->remedy, term_width());
	cli_print_try(c);
}

void cli_print_try(const struct cli *c)
{
	const struct gw_status *s = gw_snapshot_status(c->snap);

	if (!c->quiet && !c->simulate && !c->root && gw_snapshot_device_count(c->snap) == 0 &&
	    (s->cause == GW_CAUSE_NONE || s->cause == GW_CAUSE_NO_GPU))
		term_wrap("", 2, "To try it on simulated GPUs, add --simulate.", term_width());
}

void cli_document_begin(struct cli_document *doc, bool pretty)
{
	buf_init(&doc->buf, 64u << 20);
	json_init(&doc->json, &doc->buf, pretty);
}

int cli_document_end(struct cli_document *doc)
{
	int err = json_end(&doc->json);

	if (err)
		cli_error("cannot build the output: %s", gw_strerror(err));
	else
		fwrite(doc->buf.p, 1, doc->buf.len, stdout);
	buf_done(&doc->buf);
	return err ? EXIT_FAILED : EXIT_OK;
}

enum term_style cli_state_style(enum gw_device_state state)
{
	switch (state) {
	case GW_DEVICE_OK: return TERM_GOOD;
	case GW_DEVICE_ASLEEP: return TERM_DIM;
	case GW_DEVICE_CLOSED: return TERM_WARN;
	default: return TERM_BAD;
	}
}

void cli_join(char *out, size_t size, char *const *argv)
{
	struct buf b;

	buf_init_fixed(&b, out, size);
	for (unsigned i = 0; argv[i]; i++)
		buf_addf(&b, "%s%s", i ? " " : "", argv[i]);
}

bool cli_find_part(char *out, size_t size, const char *built, const char *installed)
{
	char self[4096];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n > 0) {
		self[n] = '\0';
		dirname(self); /* shortens the path in place */
		snprintf(out, size, "%s/%s", self, built);
		if (access(out, R_OK) == 0)
			return true;
		snprintf(out, size, "%s/" GPUWARD_UP "/%s", self, installed);
		if (access(out, R_OK) == 0)
			return true;
	}
	snprintf(out, size, GPUWARD_PREFIX "/%s", installed);
	return access(out, R_OK) == 0;
}

bool cli_knows_own_path(void)
{
	char c;

	return readlink("/proc/self/exe", &c, 1) > 0;
}

static char library[4096 + 64];

/* Finds the library of the simulator: the file that GPUWARD_SIM_LIBRARY names, or else the file
 * in the build tree or in the installation. Writes its path to `library`. */
static bool find_library(void)
{
	const char *given = getenv("GPUWARD_SIM_LIBRARY");

	if (given && *given) {
		snprintf(library, sizeof(library), "%s", given);
		return access(library, R_OK) == 0;
	}
	return cli_find_part(library, sizeof(library), "sim/libnvidia-ml.so.1",
			     GPUWARD_LIBDIR "/gpuward/sim/libnvidia-ml.so.1");
}

/* Functions of the simulator; sim/gpuward-sim.h declares them. */
struct simulator {
	int (*load)(const char *scenario, char *error, size_t size);
	const char *const *(*scenarios)(void);
	const char *(*describe)(const char *scenario);
};

static bool load_symbols(void *lib, struct simulator *s)
{
	void *load = dlsym(lib, "gpuward_sim_load"),
	     *names = dlsym(lib, "gpuward_sim_scenarios"),
	     *describe = dlsym(lib, "gpuward_sim_describe");

	memcpy(&s->load, &load, sizeof(load));
	memcpy(&s->scenarios, &names, sizeof(names));
	memcpy(&s->describe, &describe, sizeof(describe));
	return load && names && describe;
}

static int list_scenarios(const struct simulator *s)
{
	const char *const *names = s->scenarios();

	printf("Built-in scenarios (--simulate=NAME):\n");
	for (; *names; names++) {
		char left[64];
		const char *text = s->describe(*names);

		snprintf(left, sizeof(left), "  %s", *names);
		term_wrap(left, 24, text ? text : "", term_width());
	}
	return -1;
}

int simulate_prepare(const char *scenario, const char **ret_library)
{
	struct simulator s;
	char error[512] = "";
	void *lib;

	if (!find_library())
		return cli_knows_own_path()
			       ? cli_fail("the simulator is neither at sim/libnvidia-ml.so.1 "
					  "next to this program nor at %s; set "
					  "GPUWARD_SIM_LIBRARY to its path",
					  library)
			       : cli_fail("cannot search for the simulator next to this "
					  "program: /proc/self/exe cannot be read; mount "
					  "/proc, or set GPUWARD_SIM_LIBRARY to the path of "
					  "the simulator");
	/* The library stays open: when the backend opens the library again, the backend gets
	 * the same library with this scenario. */
	lib = dlopen(library, RTLD_NOW | RTLD_LOCAL);
	if (!lib || !load_symbols(lib, &s))
		return cli_fail("%s is not the simulator: %s", library,
				lib ? "functions are missing" : dlerror());
	if (strcmp(scenario, "help") == 0)
		return list_scenarios(&s);
	if (s.load(scenario, error, sizeof(error)) != 0) {
		bool unknown = strstr(error, "no such scenario") != NULL;

		return cli_usage("%s%s", error,
				 unknown ? "; --simulate=help lists the built-in scenarios"
					 : "");
	}
	*ret_library = library;
	return EXIT_OK;
}

bool simulate_known(const char *name)
{
	void *lib = find_library() ? dlopen(library, RTLD_NOW | RTLD_LOCAL) : NULL;
	struct simulator s;
	bool known = false;

	if (lib && load_symbols(lib, &s))
		for (const char *const *n = s.scenarios(); *n; n++)
			known = known || strcmp(*n, name) == 0;
	if (lib)
		dlclose(lib);
	return known;
}
