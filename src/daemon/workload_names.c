#include "workload_names.h"

#include "container_resolver.h"
#include "job_mapping.h"

#include "base/json_doc.h"
#include "base/root.h"
#include "base/utf8.h"
#include "device/proc.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ROWS_MAX  256
#define FILE_SIZE (1024 * 1024) /* Podman's list of 1,500 containers fits into this size. */

/* The facts about one workload, or about one container of a pod. */
struct row {
	struct workload_names *of;
	struct workload found; /* The key of the row, as workload_from_cgroup() returned it. */
	char space[sizeof(((struct workload *)0)->space)];
	char name[sizeof(((struct workload *)0)->name)];
	char part[sizeof(((struct workload *)0)->part)];
	struct container_query *query; /* NULL if no query is running. */
	/* Monotonic time of the next lookup. UINT64_MAX if all names are known. */
	uint64_t due_ns;
	unsigned tries;
	uint64_t used; /* Value of workload_names.uses when this row was last used. */
};

struct workload_names {
	struct loop *loop;
	const struct clock *clock;
	struct root root;
	char root_path[PATH_MAX]; /* Without a slash at its end. "" for "/". */
	struct job_mapping *mapping;
	struct row *row[ROWS_MAX];
	unsigned rows;
	uint64_t uses;
};

/* Replaces the number of a user by the login name. */
static void set_user(struct workload_names *n, char *text, size_t size)
{
	char name[64], *end;
	long uid = strtol(text, &end, 10);

	if (!*text || *end)
		return;
	proc_user(&n->root, uid, name, sizeof(name));
	utf8_clean(text, size, name);
}

/* Results of a search in the kubelet's log directories. */
struct pod_search {
	struct row *row;
	/* Name of the pod's folder below var/log/pods: NAMESPACE_POD_UID. "" if the folder was
	 * not found. */
	char folder[NAME_MAX + 1];
	/* The last container that was found. Valid only if `containers` is 1. */
	char only[NAME_MAX + 1];
	unsigned containers;
};

static bool ends_with(const char *text, const char *end)
{
	const size_t n = strlen(text), m = strlen(end);

	return n > m && strcmp(text + n - m, end) == 0;
}

/* Parses NAMESPACE_POD_UID. Neither a namespace nor a pod can have '_' in its name. */
static bool pod_folder(void *arg, const char *name)
{
	struct pod_search *s = arg;
	struct row *r = s->row;
	const char *uid = strrchr(name, '_'), *pod = strchr(name, '_');
	char text[NAME_MAX + 1];

	if (!uid || pod == uid || strcmp(uid + 1, r->found.id) != 0)
		return true;
	snprintf(s->folder, sizeof(s->folder), "%s", name);
	snprintf(text, sizeof(text), "%.*s", (int)(pod - name), name);
	utf8_clean(r->space, sizeof(r->space), text);
	snprintf(text, sizeof(text), "%.*s", (int)(uid - pod - 1), pod + 1);
	utf8_clean(r->name, sizeof(r->name), text);
	return false;
}

static bool pod_container(void *arg, const char *name)
{
	struct pod_search *s = arg;

	s->containers++;
	snprintf(s->only, sizeof(s->only), "%s", name);
	return s->containers < 2;
}

/* Parses the name of the link POD_NAMESPACE_CONTAINER-ID.log. The kubelet cuts a name of more
 * than 255 bytes, so the id may be cut. */
static bool pod_link(void *arg, const char *name)
{
	struct pod_search *s = arg;
	struct row *r = s->row;
	char front[NAME_MAX + 1], text[NAME_MAX + 1], *dash;
	size_t n;

	snprintf(front, sizeof(front), "%.*s_%.*s_", (int)sizeof(r->name), r->name,
		 (int)sizeof(r->space), r->space);
	n = strlen(front);
	if (strncmp(name, front, n) != 0 || !ends_with(name, ".log"))
		return true;
	snprintf(text, sizeof(text), "%.*s", (int)(strlen(name + n) - 4), name + n);
	dash = strrchr(text, '-');
	if (!dash || dash == text || !dash[1] ||
	    strncmp(dash + 1, r->found.part, strlen(dash + 1)) != 0 ||
	    (strlen(dash + 1) != WORKLOAD_ID_DIGITS && strlen(name) != NAME_MAX))
		return true;
	*dash = '\0';
	utf8_clean(r->part, sizeof(r->part), text);
	return false;
}

static bool look_pod(struct row *r)
{
	const struct root *root = &r->of->root;
	struct pod_search s = { .row = r };
	char path[NAME_MAX + 32];

	(void)root_each_name(root, "var/log/pods", pod_folder, &s);
	if (!s.folder[0])
		return false;
	if (!r->found.part[0])
		return true;
	(void)root_each_name(root, "var/log/containers", pod_link, &s);
	if (strcmp(r->part, r->found.part) != 0)
		return true;
	/* Without links, the name can be found only if the pod has one container. */
	root_path(path, sizeof(path), "var/log/pods/%s", s.folder);
	(void)root_each_name(root, path, pod_container, &s);
	if (s.containers == 1)
		utf8_clean(r->part, sizeof(r->part), s.only);
	return s.containers == 1;
}

/* Returns the id of the user that owns a rootless container, or -1 for a container of the
 * system. */
static long container_owner(const struct row *r)
{
	return strchr(r->found.id, '/') ? strtol(r->found.id, NULL, 10) : -1;
}

static const char *container_id(const struct row *r)
{
	const char *slash = strchr(r->found.id, '/');

	return slash ? slash + 1 : r->found.id;
}

/* Sets the name from a file or from an answer of the container engine. Docker writes a slash
 * before the name. Returns false if the name is empty. */
static bool container_named(struct row *r, const char *name)
{
	name += *name == '/';
	if (!*name)
		return false;
	utf8_clean(r->name, sizeof(r->name), name);
	r->due_ns = UINT64_MAX;
	return true;
}

/* Opens a file in the home of a user. Returns a descriptor or -1. Refuses symbolic links: a
 * link could lead to a network file system with a server that does not respond, and reading
 * from that file system would block. */
static int open_without_links(const struct root *root, const char *path)
{
	struct open_how how = { .flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY,
				.resolve = RESOLVE_NO_SYMLINKS };

	return (int)syscall(__NR_openat2, root->fd, path, &how, sizeof(how));
}

/* Reads a JSON file. of_user is true if a user owns the file; links are then refused.
 * Returns NULL if the file cannot be read or is not JSON. */
static struct json_doc *read_json(const struct root *root, const char *path, bool of_user)
{
	struct json_doc *doc = NULL;
	char message[200], *text = malloc(FILE_SIZE);
	long n = -1;

	if (text && !of_user) {
		n = root_read(root, path, text, FILE_SIZE);
	} else if (text) {
		int fd = open_without_links(root, path);

		n = fd < 0 ? -1 : read(fd, text, FILE_SIZE);
		if (fd >= 0)
			close(fd);
	}
	if (n > 0 && n < FILE_SIZE - 1 &&
	    json_doc_new(text, (size_t)n, &doc, message, sizeof(message)) != 0)
		doc = NULL;
	free(text);
	return doc;
}

/* Finds the name in Docker's file about the container, which only root can read. */
static bool look_docker_file(struct row *r)
{
	char path[PATH_MAX];
	struct json_doc *doc;
	const char *name;
	bool found;

	root_path(path, sizeof(path), "var/lib/docker/containers/%s/config.v2.json",
		  container_id(r));
	doc = container_owner(r) < 0 ? read_json(&r->of->root, path, false) : NULL;
	name = doc ? json_doc_string(doc, "Name") : NULL;
	found = name && container_named(r, name);
	json_doc_free(doc);
	return found;
}

/* True if path (relative to the root) is on a file system of this machine. Reads the list of
 * mounts and does not access the path, because an access to a network file system blocks if its
 * server does not respond. */
static bool is_local(const struct root *root, const char *path)
{
	static const char *const types[] = { "ext4",  "ext3",     "ext2",  "xfs",
					     "btrfs", "bcachefs", "ramfs", "zfs",
					     "f2fs",  "overlay",  "tmpfs" };
	char full[PATH_MAX + 1], point[256], type[32];
	struct lines l;
	size_t best = 0;
	bool local = false;
	char *line;

	if (!root->real)
		return true;
	if (lines_open(&l, root, "proc/self/mountinfo") < 0)
		return false;
	snprintf(full, sizeof(full), "/%s", path);
	while ((line = lines_next(&l))) {
		const char *dash = strstr(line, " - ");
		size_t n;

		if (!dash || sscanf(line, "%*s %*s %*s %*s %255s", point) != 1 ||
		    sscanf(dash, " - %31s", type) != 1)
			continue;
		n = strlen(point);
		/* proc_in_cgroup() checks whether one path is below another, so it can also
		 * compare a path with a mount point. */
		if (n < best || !proc_in_cgroup(full, point))
			continue;
		best = n;
		local = false;
		for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
			local |= strcmp(type, types[i]) == 0;
	}
	lines_close(&l);
	return local;
}

/* Finds the container's name in containers.json of a Podman storage. folder is the path of the
 * storage, relative to r->of->root. */
static bool look_storage(struct row *r, const char *folder)
{
	static const char *const drivers[] = { "overlay", "vfs" };
	const bool of_user = container_owner(r) >= 0;
	char path[PATH_MAX];
	bool found = false;

	for (size_t d = 0; d < sizeof(drivers) / sizeof(drivers[0]) && !found; d++) {
		struct json_doc *doc;
		size_t count;

		root_path(path, sizeof(path), "%s/%s-containers/containers.json", folder,
			  drivers[d]);
		doc = !of_user || is_local(&r->of->root, path)
			      ? read_json(&r->of->root, path, of_user)
			      : NULL;
		count = doc ? json_doc_count(doc, "") : 0;
		for (size_t i = 0; i < count && !found; i++) {
			const struct json_doc *c = json_doc_at(doc, "", i);
			const char *id = json_doc_string(c, "id");
			const struct json_doc *first = json_doc_at(c, "names", 0);
			const char *name = first ? json_doc_string(first, "") : NULL;

			found = id && name && strcmp(id, container_id(r)) == 0 &&
				container_named(r, name);
		}
		json_doc_free(doc);
	}
	return found;
}

/* Writes the home of a user from etc/passwd, or "" if there is none. */
static void find_home(const struct root *root, long uid, char *out, size_t size)
{
	struct lines l;
	char *line;

	*out = '\0';
	if (lines_open(&l, root, "etc/passwd") < 0)
		return;
	while (!*out && (line = lines_next(&l))) {
		long number;
		char home[256];

		if (sscanf(line, "%*[^:]:%*[^:]:%ld:%*[^:]:%*[^:]:%255[^:]", &number, home) !=
			    2 &&
		    sscanf(line, "%*[^:]:%*[^:]:%ld:%*[^:]::%255[^:]", &number, home) != 2)
			continue;
		if (number == uid && home[0] == '/')
			snprintf(out, size, "%s", home);
	}
	lines_close(&l);
}

static bool look_podman_file(struct row *r)
{
	const struct root *root = &r->of->root;
	char home[256], folder[320];

	if (container_owner(r) < 0)
		return look_storage(r, "var/lib/containers/storage");
	find_home(root, container_owner(r), home, sizeof(home));
	if (!*home)
		return false;
	snprintf(folder, sizeof(folder), "%s/.local/share/containers/storage", home + 1);
	return look_storage(r, folder);
}

static void container_answer(void *arg, int error, const struct buf *answer)
{
	struct row *r = arg;
	char name[256];

	r->query = NULL;
	if (!error && container_query_read(answer, "Name", name, sizeof(name)) == 0)
		(void)container_named(r, name);
}

/* Asks the container engine for the name. system is the socket of the system's engine.
 * of_user is the socket of a user's own engine, below run/user/UID. */
static void ask_engine(struct row *r, const char *system, const char *of_user)
{
	const long owner = container_owner(r);
	char path[PATH_MAX + 64];

	if (!r->of->loop)
		return;
	if (owner < 0)
		snprintf(path, sizeof(path), "%s/%s", r->of->root_path, system);
	else
		snprintf(path, sizeof(path), "%s/run/user/%ld/%s", r->of->root_path, owner,
			 of_user);
	if (container_query_start(r->of->loop, path, container_id(r), container_answer, r,
				  &r->query) != 0)
		/* The engine cannot be reached. The next lookup tries again. */
		r->query = NULL;
}

static bool look_docker(struct row *r)
{
	if (look_docker_file(r))
		return true;
	ask_engine(r, "run/docker.sock", "docker.sock");
	return false;
}

static bool look_podman(struct row *r)
{
	if (look_podman_file(r))
		return true;
	ask_engine(r, "run/podman/podman.sock", "podman/podman.sock");
	return false;
}

static bool look_session(struct row *r)
{
	set_user(r->of, r->name, sizeof(r->name));
	return strcmp(r->name, r->found.name) != 0;
}

/* For each kind of workload, the function that finds the names. NULL if the only name is in the
 * path of the control group. A function returns true if it has found all names; otherwise it is
 * called again later. */
static bool (*const lookup[WORKLOAD_KINDS])(struct row *) = {
	[WORKLOAD_KUBERNETES] = look_pod,
	[WORKLOAD_DOCKER] = look_docker,
	[WORKLOAD_PODMAN] = look_podman,
	[WORKLOAD_SESSION] = look_session,
};

static void look_again(struct row *r)
{
	static const unsigned wait_s[] = { 2, 10, 60 };
	const unsigned last = sizeof(wait_s) / sizeof(wait_s[0]) - 1;

	r->due_ns = clock_mono_ns(r->of->clock) +
		    wait_s[r->tries < last ? r->tries : last] * NS_PER_S;
	r->tries++;
	if (!lookup[r->found.kind] || lookup[r->found.kind](r))
		r->due_ns = UINT64_MAX;
}

static void row_free(struct row *r)
{
	container_query_cancel(r->query);
	free(r);
}

/* Returns the place for a new row: the end of the table, or if the table is full, the place of
 * the row that was not used for the longest time. */
static unsigned row_place(struct workload_names *n)
{
	unsigned oldest = 0;

	if (n->rows < ROWS_MAX)
		return n->rows++;
	for (unsigned i = 1; i < n->rows; i++)
		if (n->row[i]->used < n->row[oldest]->used)
			oldest = i;
	row_free(n->row[oldest]);
	return oldest;
}

/* Returns the row of a workload, or NULL if out of memory. */
static struct row *row_of(struct workload_names *n, const struct workload *w)
{
	struct row *r;

	for (unsigned i = 0; i < n->rows; i++)
		if (workload_equal(&n->row[i]->found, w) &&
		    strcmp(n->row[i]->found.space, w->space) == 0 &&
		    (w->kind != WORKLOAD_KUBERNETES ||
		     strcmp(n->row[i]->found.part, w->part) == 0))
			return n->row[i];
	r = calloc(1, sizeof(*r));
	if (!r)
		return NULL;
	r->of = n;
	r->found = *w;
	memcpy(r->space, w->space, sizeof(r->space));
	memcpy(r->name, w->name, sizeof(r->name));
	memcpy(r->part, w->part, sizeof(r->part));
	set_user(n, r->space, sizeof(r->space));
	n->row[row_place(n)] = r;
	return r;
}

/* Sets the job that the batch system's prolog recorded for the GPU of the process. Used if the
 * process is in no control group of Slurm. */
static void map_job(struct workload_names *n, const struct gw_process *p, struct workload *w)
{
	char ids[sizeof(w->id)];

	if (w->kind == WORKLOAD_SLURM ||
	    !job_mapping_find(n->mapping, p->device, p->mig_gpu_instance, ids, sizeof(ids)))
		return;
	*w = (struct workload){ .kind = WORKLOAD_SLURM };
	memcpy(w->id, ids, sizeof(ids));
	memcpy(w->name, ids, sizeof(ids));
	if (p->uid >= 0)
		snprintf(w->space, sizeof(w->space), "%lld", (long long)p->uid);
}

void workload_names_resolve(struct workload_names *n, const struct gw_process *p,
			    struct workload *ret)
{
	struct row *r;

	workload_from_cgroup(p->cgroup, (long)p->uid, ret);
	if (n->mapping)
		map_job(n, p, ret);
	r = ret->kind == WORKLOAD_NONE ? NULL : row_of(n, ret);
	if (!r)
		return;
	r->used = ++n->uses;
	if (!r->query && clock_mono_ns(n->clock) >= r->due_ns)
		look_again(r);
	memcpy(ret->space, r->space, sizeof(ret->space));
	memcpy(ret->name, r->name, sizeof(ret->name));
	if (ret->kind == WORKLOAD_KUBERNETES)
		memcpy(ret->part, r->part, sizeof(ret->part));
}

/* True if the main thread may read the mapping directory. Otherwise logs why not. */
static bool may_map(const struct workload_names *n, const struct workload_names_config *config)
{
	const char *dir = config->hpc_job_mapping_dir;
	char line[512];

	if (!dir || !*dir)
		return false;
	if (is_local(&n->root, dir + strspn(dir, "/")))
		return true;
	snprintf(line, sizeof(line),
		 "the job mapping directory %.300s is not used: it is not on a local file "
		 "system (such as ext4, xfs or tmpfs), and a server that hangs would block the "
		 "service; set workloads.hpc_job_mapping_dir to a folder below /run",
		 dir);
	if (config->log)
		config->log(config->arg, line);
	return false;
}

int workload_names_new(const struct workload_names_config *config, struct workload_names **ret)
{
	struct workload_names *n = calloc(1, sizeof(*n));
	int err = n ? root_open(&n->root, config->root) : -GW_E_NOMEM;

	if (err) {
		free(n);
		return err;
	}
	n->loop = config->loop;
	n->clock = config->clock ? config->clock : clock_real();
	if (!n->root.real)
		snprintf(n->root_path, sizeof(n->root_path), "%s", config->root);
	if (may_map(n, config)) {
		n->mapping = job_mapping_new(config->hpc_job_mapping_dir, n->clock, config->log,
					     config->arg);
		if (!n->mapping) {
			workload_names_free(n);
			return -GW_E_NOMEM;
		}
	}
	*ret = n;
	return 0;
}

void workload_names_free(struct workload_names *n)
{
	if (!n)
		return;
	for (unsigned i = 0; i < n->rows; i++)
		row_free(n->row[i]);
	job_mapping_free(n->mapping);
	root_close(&n->root);
	free(n);
}
