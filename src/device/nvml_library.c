/* nvml_library: finds and loads the NVIDIA management library.
 *
 * The library is opened with dlopen(), never linked. A container has the library only if the
 * container runtime mounts it, so the error message names the setting of the runtime that is
 * missing. */
#include "nvml.h"

#include "environment.h"

#include "base/array.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#ifdef __aarch64__
#define NVML_TRIPLET "aarch64-linux-gnu"
#else
#define NVML_TRIPLET "x86_64-linux-gnu"
#endif

/* The loader looks for the first name in its cache and its folders. The paths are for
 * containers in which the loader does not search the right folder. The NVIDIA runtime mounts
 * the library into the library folder of Debian or of other systems; GKE mounts it into
 * /usr/local/nvidia. The driver container of the GPU operator has its own tree below
 * /run/nvidia/driver. The name without a version is last, because it is usually the toolkit's
 * stub. */
static const char *const candidates[] = {
	"libnvidia-ml.so.1",
	"/usr/lib/" NVML_TRIPLET "/libnvidia-ml.so.1",
	"/usr/lib64/libnvidia-ml.so.1",
	"/usr/local/nvidia/lib64/libnvidia-ml.so.1",
	"/run/nvidia/driver/usr/lib/" NVML_TRIPLET "/libnvidia-ml.so.1",
	"/run/nvidia/driver/usr/lib64/libnvidia-ml.so.1",
	"/usr/lib/wsl/lib/libnvidia-ml.so.1",
	"libnvidia-ml.so",
};

static void resolve_path(void *lib, const char *asked, char *out, size_t size)
{
	struct link_map *map = NULL;
	char real[PATH_MAX];

	if (dlinfo(lib, RTLD_DI_LINKMAP, &map) != 0 || !map || !map->l_name[0])
		snprintf(out, size, "%s", asked);
	else if (realpath(map->l_name, real))
		snprintf(out, size, "%s", real);
	else
		snprintf(out, size, "%s", map->l_name);
}

/* Loads one candidate. A stub is refused before any of its functions is called, because the
 * functions of a stub print to the terminal and run programs. */
static void *load_library(struct backend *b, const char *path)
{
	void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	const char *why;

	if (!lib) {
		why = dlerror();
		if (why && !strstr(why, "No such file or directory"))
			backend_fail(b, GW_CAUSE_BAD_LIBRARY, "%s", why);
		return NULL;
	}
	resolve_path(lib, path, b->library_path, sizeof(b->library_path));
	if (strstr(b->library_path, "/stubs/")) {
		backend_fail(b, GW_CAUSE_STUB_LIBRARY, "%s", b->library_path);
		b->library_path[0] = '\0';
		dlclose(lib);
		return NULL;
	}
	return lib;
}

static void *load_named(struct backend *b, const char *path)
{
	struct stat st;
	void *lib;

	if (!*path) {
		backend_fail(b, GW_CAUSE_BAD_LIBRARY, "the name of the library is empty");
		return NULL;
	}
	if (strchr(path, '/') && stat(path, &st) != 0) {
		backend_fail(b, GW_CAUSE_BAD_LIBRARY, "%s: no such file", path);
		return NULL;
	}
	if (strchr(path, '/') && S_ISDIR(st.st_mode)) {
		backend_fail(b, GW_CAUSE_BAD_LIBRARY, "%s is a directory", path);
		return NULL;
	}
	lib = load_library(b, path);
	if (!lib && b->cause == GW_CAUSE_NO_LIBRARY)
		backend_fail(b, GW_CAUSE_BAD_LIBRARY, "%s: no such library", path);
	return lib;
}

static bool names_capability(const char *list, const char *word)
{
	size_t n = strlen(word);

	for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',')
		if (strncmp(at, word, n) == 0 && (at[n] == ',' || !at[n]))
			return true;
	return false;
}

void nvml_runtime_setting(const char *container, const char *visible, const char *capabilities,
			  char *out, size_t size)
{
	bool pod = strcmp(container, "kubernetes") == 0;

	out[0] = '\0';
	if (!*container || strcmp(container, "wsl") == 0)
		return;
	if (!visible || !*visible || strcmp(visible, "void") == 0)
		snprintf(
			out, size,
			"in this container NVIDIA_VISIBLE_DEVICES is %s, so the NVIDIA runtime "
			"mounts nothing; set NVIDIA_VISIBLE_DEVICES=all and "
			"NVIDIA_DRIVER_CAPABILITIES=utility",
			!visible   ? "not set"
			: *visible ? "\"void\""
				   : "empty");
	else if (capabilities && *capabilities && !names_capability(capabilities, "utility") &&
		 !names_capability(capabilities, "all"))
		snprintf(
			out, size,
			"in this container NVIDIA_DRIVER_CAPABILITIES is \"%.40s\", which does "
			"not include utility; set NVIDIA_DRIVER_CAPABILITIES=utility",
			capabilities);
	else
		snprintf(out, size,
			 "NVIDIA_VISIBLE_DEVICES is set, but the NVIDIA runtime did not start "
			 "this container; %s",
			 pod ? "set runtimeClassName: nvidia in the pod, or mount the driver's "
			       "folder of libraries at /usr/local/nvidia/lib64"
			     : "start it with --device nvidia.com/gpu=all (podman), --gpus all "
			       "(docker) or --runtime=nvidia");
}

/* Called if none of the candidates exists; the cause is already GW_CAUSE_NO_LIBRARY. In a
 * container, adds to the message which setting of the container runtime is missing. */
static void no_library(struct backend *b)
{
	char container[32], setting[300];

	environment_container(b->env->root, container, sizeof(container));
	nvml_runtime_setting(container, getenv("NVIDIA_VISIBLE_DEVICES"),
			     getenv("NVIDIA_DRIVER_CAPABILITIES"), setting, sizeof(setting));
	if (*setting)
		backend_fail(b, GW_CAUSE_NO_LIBRARY, "%s", setting);
}

void *nvml_library_open(struct backend *b)
{
	void *lib;

	backend_fail(b, GW_CAUSE_NO_LIBRARY, NULL);
	if (b->env->nvml_library)
		return load_named(b, b->env->nvml_library);
	if (!b->env->root->real) {
		backend_fail(b, GW_CAUSE_NO_LIBRARY,
			     "not searched for, because the root directory is not /");
		return NULL;
	}
	for (size_t i = 0; i < COUNT(candidates); i++) {
		lib = load_library(b, candidates[i]);
		if (lib)
			return lib;
	}
	if (b->cause == GW_CAUSE_NO_LIBRARY)
		no_library(b);
	return NULL;
}
