/* Any names and contents of the files in which kubelets, engines and batch systems record their
 * workloads: no crash; every name ends inside its field and has no control character. The first
 * byte of the input selects the file; for a kubelet the input is the name of a file. */
#include "text.h"

#include "base/clock.h"
#include "daemon/workload_names.h"

#include "../unit/tree.h"

#define ID  "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define POD "8f1c3a52-4c1e-4a7b-9d35-0a1b2c3d4e5f"

/* Where the input goes: into the content of a file or, if the path has %s, into the name of a
 * file. */
static const struct target {
	const char *path, *cgroup;
} targets[] = {
	{ "var/log/pods/%s/0.log", "/kubepods/burstable/pod" POD "/" ID },
	{ "var/log/pods/space_pod_" POD "/%s/0.log", "/kubepods/burstable/pod" POD "/" ID },
	{ "var/log/containers/%s", "/kubepods/burstable/pod" POD "/" ID },
	{ "var/lib/docker/containers/" ID "/config.v2.json",
	  "/system.slice/docker-" ID ".scope" },
	{ "var/lib/containers/storage/overlay-containers/containers.json",
	  "/machine.slice/libpod-" ID ".scope" },
	{ "etc/passwd",
	  "/user.slice/user-1000.slice/user@1000.service/app.slice/train.service" },
	{ "mapping/0", "/" },
};

static struct tree tree;

static void remove_tree(void)
{
	tree_done(&tree);
}

/* Returns false if the input cannot be a file name. */
static bool fill(const struct target *x, char *text, size_t size, char *path, size_t path_size)
{
	const bool named = strchr(x->path, '%');

	if (named && (size == 0 || size > 200 || strlen(text) != size || strchr(text, '/') ||
		      text[0] == '.'))
		return false;
	snprintf(path, path_size, "%.*s%s%s", (int)strcspn(x->path, "%"), x->path,
		 named ? text : "", named ? strchr(x->path, '%') + 2 : "");
	tree_put(&tree, "var/log/pods/space_pod_" POD "/main/0.log", "");
	if (named)
		tree_put(&tree, path, "-> /var/log/pods/space_pod_" POD "/main/0.log");
	else
		tree_bytes(&tree, path, text, size);
	return true;
}

static void check_field(const char *field, size_t size)
{
	if (!memchr(field, 0, size))
		abort();
	for (; *field; field++)
		if ((unsigned char)*field < ' ' || *field == 127)
			abort();
}

static void check(const char *cgroup)
{
	struct gw_process p = { .cgroup = cgroup, .uid = 1000, .mig_gpu_instance = -1 };
	struct clock_stepped now;
	struct workload_names *n;
	struct workload w;
	char mapping[100];

	clock_stepped_init(&now, NS_PER_S, 0);
	snprintf(mapping, sizeof(mapping), "%s/mapping", tree.path);
	if (workload_names_new(&(struct workload_names_config){ .root = tree.path,
								.hpc_job_mapping_dir = mapping,
								.clock = &now.clock },
			       &n) != 0)
		abort();
	workload_names_resolve(n, &p, &w);
	check_field(w.id, sizeof(w.id));
	check_field(w.space, sizeof(w.space));
	check_field(w.name, sizeof(w.name));
	check_field(w.part, sizeof(w.part));
	workload_names_free(n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct target *x;
	char *text, path[500];

	if (size == 0)
		return 0;
	if (!tree.path[0]) {
		tree_init(&tree);
		atexit(remove_tree);
	}
	x = &targets[data[0] % (sizeof(targets) / sizeof(*targets))];
	text = fuzz_text(data + 1, size - 1);
	if (fill(x, text, size - 1, path, sizeof(path))) {
		check(x->cgroup);
		path[strcspn(path, "/")] = '\0';
		tree_remove(&tree, path);
	}
	free(text);
	return 0;
}
