#include "simulate.h"

#include "cli.h"

#include <dlfcn.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char library[4096 + 64];

/* Looks where GPUWARD_SIM_LIBRARY says, else next to the program (build tree), else where it is
 * installed. */
static bool find_library(void)
{
	const char *given = getenv("GPUWARD_SIM_LIBRARY");
	char self[4096];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (given && *given) {
		snprintf(library, sizeof(library), "%s", given);
		return access(library, R_OK) == 0;
	}
	if (n > 0) {
		self[n] = '\0';
		snprintf(library, sizeof(library), "%s/sim/libnvidia-ml.so.1", dirname(self));
		if (access(library, R_OK) == 0)
			return true;
	}
	snprintf(library, sizeof(library), "%s",
		 GPUWARD_LIBDIR "/gpuward/sim/libnvidia-ml.so.1");
	return access(library, R_OK) == 0;
}

/* The functions of sim/gpuward-sim.h that are used here. */
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
		return cli_fail(
			"the simulator is neither at sim/libnvidia-ml.so.1 next to this "
			"program nor at %s; set GPUWARD_SIM_LIBRARY to its path",
			library);
	/* Keep it open: the backend's dlopen() then gets the same library with this
	 * scenario. */
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
