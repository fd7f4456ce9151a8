#include "workload.h"

#include "base/array.h"
#include "base/utf8.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether the path of a control group contains the name of a workload or only its id. */
enum name_source { NAME_PATH, NAME_ID };

static const struct {
	const char *word;
	enum name_source name;
} kinds[] = {
	{ "none", NAME_PATH },
#define WORKLOAD(symbol, word, name) { word, NAME_##name },
#include "workload.def"
#undef WORKLOAD
};

const char *workload_kind_word(enum workload_kind kind)
{
	return kinds[kind].word;
}

bool workload_equal(const struct workload *a, const struct workload *b)
{
	return a->kind == b->kind && strcmp(a->id, b->id) == 0;
}

bool workload_is_named(const struct workload *w)
{
	const char *slash = strchr(w->id, '/');

	return kinds[w->kind].name == NAME_PATH ||
	       (strcmp(w->name, slash ? slash + 1 : w->id) != 0 &&
		strlen(w->part) < WORKLOAD_ID_DIGITS);
}

struct component {
	const char *p;
	size_t n;
};

/* Returns the component at the start of path, which may begin with slashes. n is 0 at the
 * end. */
static struct component component_at(const char *path)
{
	path += strspn(path, "/");
	return (struct component){ path, strcspn(path, "/") };
}

static struct component component_after(struct component c)
{
	return component_at(c.p + c.n);
}

static bool component_is(struct component c, const char *word)
{
	return strlen(word) == c.n && memcmp(c.p, word, c.n) == 0;
}

static bool component_is_any(struct component c, const char *const *words, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (component_is(c, words[i]))
			return true;
	return false;
}

/* Removes a prefix or a suffix that is not the whole component. */
static bool cut_prefix(struct component *c, const char *prefix)
{
	size_t m = strlen(prefix);

	if (c->n <= m || memcmp(c->p, prefix, m) != 0)
		return false;
	*c = (struct component){ c->p + m, c->n - m };
	return true;
}

static bool cut_suffix(struct component *c, const char *suffix)
{
	size_t m = strlen(suffix);

	if (c->n <= m || memcmp(c->p + c->n - m, suffix, m) != 0)
		return false;
	c->n -= m;
	return true;
}

static bool ends_in(struct component c, const char *suffix)
{
	return cut_suffix(&c, suffix);
}

static bool is_number(struct component c)
{
	for (size_t i = 0; i < c.n; i++)
		if (c.p[i] < '0' || c.p[i] > '9')
			return false;
	return c.n > 0 && c.n <= 18;
}

/* True for letters, digits and a few signs: ids of pods and steps of jobs have no others. */
static bool is_plain(struct component c, size_t most)
{
	for (size_t i = 0; i < c.n; i++)
		if (!isalnum((unsigned char)c.p[i]) && !strchr("-_.+", c.p[i]))
			return false;
	return c.n > 0 && c.n <= most;
}

static void component_copy(struct component c, char *out, size_t size)
{
	snprintf(out, size, "%.*s", (int)c.n, c.p);
}

/* Writes an id. An id that is too long is cut and ends with a checksum, so that two such ids
 * differ. */
static void set_id(struct workload *w, long user, struct component c)
{
	char owner[24] = "";
	uint32_t sum = 2166136261u; /* FNV-1a */
	size_t room;

	if (user >= 0)
		snprintf(owner, sizeof(owner), "%ld/", user);
	room = sizeof(w->id) - 1 - strlen(owner);
	for (size_t i = 0; i < c.n; i++)
		sum = (sum ^ (unsigned char)c.p[i]) * 16777619u;
	if (c.n <= room)
		snprintf(w->id, sizeof(w->id), "%s%.*s", owner, (int)c.n, c.p);
	else
		snprintf(w->id, sizeof(w->id), "%s%.*s~%08x", owner, (int)(room - 9), c.p,
			 (unsigned)sum);
}

/* Finds the container in one component of a path, such as "docker-ID.scope". The names that
 * container runtimes use are known only here. `group` is a group above the container, such as
 * "docker", which determines the kind of an id without a prefix. Returns the start of the
 * digits of the id and sets *ret_kind, or returns NULL. */
static const char *container_id(struct component c, struct component group,
				enum workload_kind *ret_kind)
{
	/* Other prefixes are refused: "libpod-conmon-" belongs to a process that monitors a
	 * container but is not inside it. */
	static const struct {
		const char *prefix;
		enum workload_kind kind;
	} prefixes[] = {
		{ "docker-", WORKLOAD_DOCKER },
		{ "libpod-", WORKLOAD_PODMAN },
		{ "libpod-payload-", WORKLOAD_PODMAN },
		{ "cri-containerd-", WORKLOAD_CONTAINERD },
		{ "crio-", WORKLOAD_CONTAINERD },
		{ "nerdctl-", WORKLOAD_CONTAINERD },
	};
	/* In these groups, an id without a prefix is a Docker container. In other groups, it is
	 * a container of containerd. */
	static const char *const docker[] = { "docker", "ecs" };
	const char *id;
	size_t before, i = 0;

	cut_suffix(&c, ".scope");
	if (c.n < WORKLOAD_ID_DIGITS)
		return NULL;
	before = c.n - WORKLOAD_ID_DIGITS;
	id = c.p + before;
	for (size_t k = 0; k < WORKLOAD_ID_DIGITS; k++)
		if (!isxdigit((unsigned char)id[k]))
			return NULL;
	/* The kind for "...:cri-containerd:ID" and for most ids without a prefix. */
	*ret_kind = WORKLOAD_CONTAINERD;
	if (before == 0) {
		if (component_is_any(group, docker, COUNT(docker)))
			*ret_kind = WORKLOAD_DOCKER;
		return component_is(group, "libpod_parent") ? NULL : id; /* a pod of Podman */
	}
	while (i < COUNT(prefixes) &&
	       !component_is((struct component){ c.p, before }, prefixes[i].prefix))
		i++;
	if (i < COUNT(prefixes))
		*ret_kind = prefixes[i].kind;
	return i < COUNT(prefixes) || id[-1] == ':' ? id : NULL;
}

enum trust {
	TRUST_SYSTEM, /* Only root can create groups here, so every kind is recognised. */
	/* The path is below the service of a container runtime: only pods are recognised. */
	TRUST_RUNTIME,
	/* The path is below a group without a known meaning: only containers and units are
	 * recognised. */
	TRUST_PLAIN,
	/* The path is below user-UID.slice: only containers, units and the session of that user
	 * are recognised. */
	TRUST_USER,
	TRUST_NOTHING, /* The path is below a workload or a monitor: nothing is recognised. */
};

/* A position in the path of a control group. */
struct place {
	struct component at;
	enum trust trust;
	bool first; /* The component is the first one below the root or a container. */
	/* Our own cgroup namespace hides the groups above the first component. */
	bool hidden;
	char above[16]; /* the first component above `at` that is not a slice, cut; "": none */
	long uid;       /* owner of the process */
	long user;      /* user who owns the groups here; -1: none */
};

static void pod_found(struct component uid, struct component container, struct workload *w)
{
	enum workload_kind kind;
	const char *id = container_id(container, (struct component){ "", 0 }, &kind);

	w->kind = WORKLOAD_KUBERNETES;
	component_copy(uid, w->id, sizeof(w->id));
	for (char *p = w->id; *p; p++)
		*p = *p == '_' ? '-' : *p; /* in the name of a slice, '-' separates levels */
	if (id)
		snprintf(w->part, sizeof(w->part), "%.*s", WORKLOAD_ID_DIGITS, id);
}

/* Reads "[PARENT-]kubepods[-QOS]-podUID.slice", optionally followed by ":cri-containerd:ID".
 * This suffix occurs if the container runtime and the kubelet use different cgroup drivers. */
static bool find_pod_slice(const struct place *p, struct workload *w)
{
	static const char *const classes[] = { "kubepods", "kubepods-burstable",
					       "kubepods-besteffort" };
	struct component c = p->at, inside = component_after(p->at), front, uid;
	const char *colon = memchr(c.p, ':', c.n);
	size_t i;

	if (colon) {
		inside = c;
		c.n = (size_t)(colon - c.p);
	}
	if (!cut_suffix(&c, ".slice"))
		return false;
	for (i = 0; i + 4 < c.n && memcmp(c.p + i, "-pod", 4) != 0; i++)
		;
	if (i + 4 >= c.n)
		return false;
	front = (struct component){ c.p, i };
	uid = (struct component){ c.p + i + 4, c.n - i - 4 };
	for (i = 0; i < COUNT(classes); i++) {
		struct component k = front;

		if (component_is(k, classes[i]) ||
		    (cut_suffix(&k, classes[i]) && k.p[k.n - 1] == '-'))
			break;
	}
	if (i == COUNT(classes) || !is_plain(uid, 64))
		return false;
	pod_found(uid, inside, w);
	return true;
}

/* Reads "kubepods[/QOS]/podUID/ID" (the cgroupfs driver). */
static bool find_pod_path(const struct place *p, struct workload *w)
{
	static const char *const classes[] = { "burstable", "besteffort", "guaranteed" };
	struct component c = p->at;
	bool below = p->first && p->hidden;

	if (component_is(c, "kubepods")) {
		below = true;
		c = component_after(c);
	}
	if (below && component_is_any(c, classes, COUNT(classes)))
		c = component_after(c);
	if (!below || !cut_prefix(&c, "pod") || !is_plain(c, 64))
		return false;
	pod_found(c, component_after(c), w);
	return true;
}

static bool find_pod(const struct place *p, struct workload *w)
{
	return p->trust <= TRUST_RUNTIME && (find_pod_slice(p, w) || find_pod_path(p, w));
}

/* Reads "job_N[/step_S]". */
static bool find_job_at(struct component c, long uid, struct workload *w)
{
	if (!cut_prefix(&c, "job_") || !is_number(c))
		return false;
	w->kind = WORKLOAD_SLURM;
	component_copy(c, w->id, sizeof(w->id));
	if (uid >= 0)
		snprintf(w->space, sizeof(w->space), "%ld", uid);
	c = component_after(c);
	if (cut_prefix(&c, "step_") && is_plain(c, 40))
		component_copy(c, w->part, sizeof(w->part));
	return true;
}

/* Reads "[NODE_]slurmstepd.scope/job_N" (cgroup v2) or "slurm[_NODE]/uid_N/job_N" (v1). A node
 * name is in the path if several slurmd run on one machine. */
static bool find_job(const struct place *p, struct workload *w)
{
	struct component c = p->at, user = component_after(c);

	if (p->trust != TRUST_SYSTEM)
		return false;
	if (component_is(c, "slurmstepd.scope") || ends_in(c, "_slurmstepd.scope"))
		return find_job_at(user, p->uid, w);
	if (!p->first || !(component_is(c, "slurm") || cut_prefix(&c, "slurm_")) ||
	    !cut_prefix(&user, "uid_") || !is_number(user))
		return false;
	return find_job_at(component_after(user), strtol(user.p, NULL, 10), w);
}

static bool find_container(const struct place *p, struct workload *w)
{
	enum workload_kind kind;
	const struct component above = { p->above, strlen(p->above) };
	const char *id = container_id(p->at, above, &kind);

	if (!id)
		return false;
	w->kind = kind;
	set_id(w, p->user, (struct component){ id, WORKLOAD_ID_DIGITS });
	return true;
}

static void session_found(const struct place *p, struct workload *w)
{
	w->kind = WORKLOAD_SESSION;
	snprintf(w->id, sizeof(w->id), "%ld", p->user);
}

/* Finds a service. A desktop starts programs as app-NAME-NUMBER.scope or
 * app-NAME@NUMBER.service; these belong to the session. user@UID.service is the manager of a
 * user and not a workload. */
static bool find_unit(const struct place *p, struct workload *w)
{
	struct component c = p->at;
	struct cgroup_unit u;

	if (!cgroup_unit_find(c.p, &u) || u.name != c.p ||
	    !cgroup_unit_service(&u, w->name, sizeof(w->name)) ||
	    (p->trust == TRUST_USER && cut_prefix(&c, "app-")))
		return false;
	w->kind = WORKLOAD_UNIT;
	set_id(w, p->user, c);
	return true;
}

static bool find_session(const struct place *p, struct workload *w)
{
	struct component c = p->at;

	if (p->trust != TRUST_USER ||
	    !(ends_in(c, ".scope") || (ends_in(c, ".service") && cut_prefix(&c, "app-"))))
		return false;
	session_found(p, w);
	return true;
}

/* The first row that recognises a component decides. */
static const struct {
	bool (*find)(const struct place *p, struct workload *w);
	bool nested;       /* also recognised inside a container or below a container runtime */
	enum trust inside; /* trust for the path below the component */
} rows[] = {
	{ find_pod, true, TRUST_NOTHING },       /* Kubernetes */
	{ find_job, true, TRUST_NOTHING },       /* Slurm */
	{ find_container, false, TRUST_SYSTEM }, /* Docker, Podman, containerd */
	{ find_unit, false, TRUST_RUNTIME },     /* systemd units */
	{ find_session, false, TRUST_NOTHING },  /* sessions of users */
};

/* Sets the trust for the path below a component that no row recognises. */
static void place_pass(struct place *p)
{
	/* These groups do not change the trust: the kubelet's --cgroup-root, and the group that
	 * CRI-O and Podman create inside a scope. */
	static const char *const passed[] = { "kubelet", "container" };
	struct component c = p->at, number = c;

	p->first = false;
	if ((cut_prefix(&number, "user-") && cut_suffix(&number, ".slice") &&
	     is_number(number)) ||
	    (cut_prefix(&number, "user@") && cut_suffix(&number, ".service") &&
	     is_number(number))) {
		if (p->trust != TRUST_USER)
			p->user = strtol(number.p, NULL, 10);
		p->trust = TRUST_USER;
	} else if (ends_in(c, ".scope") || ends_in(c, ".service") || component_is(c, "lxc") ||
		   cut_prefix(&c, "lxc.")) {
		/* LXC, or a scope or service that no row recognises, such as a virtual machine,
		 * a container monitor or a service inside a container. Nothing below it is
		 * recognised. */
		p->trust = TRUST_NOTHING;
	} else if (!ends_in(c, ".slice") && !component_is_any(c, passed, COUNT(passed))) {
		if (p->trust == TRUST_SYSTEM)
			p->trust = TRUST_PLAIN;
		if (!p->above[0])
			component_copy(c, p->above, sizeof(p->above));
	}
}

/* True for the services of container runtimes, below which pods are recognised. The name can be
 * trusted, because only root can create a system service. */
static bool is_runtime(struct component c)
{
	static const char *const services[] = { "containerd.service",  "crio.service",
						"k3s.service",         "k3s-agent.service",
						"rke2-server.service", "rke2-agent.service" };

	return component_is_any(c, services, COUNT(services));
}

/* Sets the trust for the path below a component that a row recognised. `inside` is the value in
 * this row. */
static void place_enter(struct place *p, enum trust inside)
{
	if (p->trust != TRUST_SYSTEM && p->trust != TRUST_PLAIN)
		inside = TRUST_NOTHING; /* A user owns the group. */
	if (inside == TRUST_RUNTIME && !is_runtime(p->at))
		inside = TRUST_NOTHING;
	p->trust = inside;
	p->first = inside == TRUST_SYSTEM;
	p->hidden = false;
	p->above[0] = '\0';
}

/* Recognises the component at p. If *w is already a container or the unit of a container
 * runtime, only a nested kind replaces it. */
static bool place_find(struct place *p, struct workload *w)
{
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct workload found = { .kind = WORKLOAD_NONE };

		if ((w->kind != WORKLOAD_NONE && !rows[i].nested) || !rows[i].find(p, &found))
			continue;
		*w = found;
		place_enter(p, rows[i].inside);
		return true;
	}
	return false;
}

static void place_end(const struct place *p, struct workload *w)
{
	const char *slash;
	char clean[sizeof(w->name)];

	if (w->kind == WORKLOAD_NONE && p->user >= 0)
		session_found(p, w);
	slash = strchr(w->id, '/');
	if (!w->name[0])
		snprintf(w->name, sizeof(w->name), "%s", slash ? slash + 1 : w->id);
	if (p->user >= 0 && w->kind != WORKLOAD_SESSION && w->kind != WORKLOAD_NONE)
		snprintf(w->space, sizeof(w->space), "%ld", p->user);
	utf8_clean(clean, sizeof(clean), w->name);
	memcpy(w->name, clean, sizeof(clean));
	utf8_clean(clean, sizeof(w->id), w->id);
	memcpy(w->id, clean, sizeof(w->id));
}

void workload_from_cgroup(const char *cgroup, long uid, struct workload *ret)
{
	struct place p = { .trust = TRUST_SYSTEM, .first = true, .uid = uid, .user = -1 };

	memset(ret, 0, sizeof(*ret));
	if (!cgroup)
		return;
	p.at = component_at(cgroup);
	for (; component_is(p.at, ".."); p.at = component_after(p.at))
		p.hidden = true;
	for (; p.at.n > 0 && p.trust != TRUST_NOTHING; p.at = component_after(p.at))
		if (!place_find(&p, ret))
			place_pass(&p);
	place_end(&p, ret);
}

bool cgroup_unit_find(const char *cgroup, struct cgroup_unit *ret)
{
	*ret = (struct cgroup_unit){ .name = NULL };
	for (size_t n; *cgroup; cgroup += n + (cgroup[n] == '/')) {
		const struct component c = { cgroup, n = strcspn(cgroup, "/") };

		if (!ends_in(c, ".service") && !ends_in(c, ".scope"))
			continue;
		ret->name = cgroup;
		ret->end = cgroup + n;
		if (ret->manager_end || strncmp(cgroup, "user@", 5) != 0)
			return true;
		ret->manager_end = ret->end;
	}
	return ret->name;
}

bool cgroup_unit_service(const struct cgroup_unit *u, char *out, size_t size)
{
	const struct component c = { u->name, (size_t)(u->end - u->name) };

	*out = '\0';
	if (ends_in(c, ".service") && strncmp(u->name, "user@", 5) != 0)
		component_copy(c, out, size);
	return *out;
}

/* Copies the component and undoes the escapes of systemd, which writes a '-' inside a name as
 * "\x2d". */
static void copy_unescaped(struct component c, char *out, size_t size)
{
	char *to = out;

	component_copy(c, out, size);
	for (const char *s = out; *s; to++) {
		unsigned code;

		if (sscanf(s, "\\x%2x", &code) == 1 && code > 0 && s[2] && s[3]) {
			*to = (char)code;
			s += 4;
		} else {
			*to = *s++;
		}
	}
	*to = '\0';
}

/* Finds the id or the name of a container in one component of a path. parent is the component
 * before it. Returns false if the component names no container. */
static bool find_container_name(struct component c, struct component parent,
				char ret[static 256])
{
	enum workload_kind kind;
	const char *id = container_id(c, parent, &kind);
	bool scope = cut_suffix(&c, ".scope");

	if (id) {
		component_copy((struct component){ id, WORKLOAD_ID_SHOWN }, ret, 256);
		return true;
	}
	if (cut_prefix(&c, "lxc.payload.") || component_is(parent, "lxc") ||
	    component_is(parent, "lxc.payload")) {
		component_copy(c, ret, 256);
		return true;
	}
	if (cut_prefix(&c, "systemd-nspawn@")) {
		if (!cut_suffix(&c, ".service"))
			return false;
		copy_unescaped(c, ret, 256);
		return true;
	}
	if (!scope || !component_is(parent, "machine.slice") || !cut_prefix(&c, "machine-"))
		return false;
	copy_unescaped(c, ret, 256);
	return strncmp(ret, "qemu-", 5) != 0; /* a virtual machine is no container */
}

/* Writes the name or id of the innermost container, or "" if there is no container. Returns the
 * path below that container, or the whole path. */
static const char *below_container(const char *cgroup, char *out, size_t size)
{
	struct component parent = { "", 0 };
	const char *inside = cgroup;
	char name[256];

	out[0] = '\0';
	for (struct component c = component_at(cgroup); c.n > 0; c = component_after(c)) {
		if (find_container_name(c, parent, name)) {
			snprintf(out, size, "%s", name);
			inside = c.p + c.n;
		}
		parent = c;
	}
	return inside;
}

void cgroup_container_name(const char *cgroup, char *out, size_t size)
{
	(void)below_container(cgroup, out, size);
}

void cgroup_unit_name(const char *cgroup, char *out, size_t size)
{
	char container[256];
	struct cgroup_unit u;

	*out = '\0';
	if (cgroup_unit_find(below_container(cgroup, container, sizeof(container)), &u))
		snprintf(out, size, "%.*s", (int)(u.end - u.name), u.name);
}
