#include "classify.h"

#include "device/workload.h"

#include <fnmatch.h>
#include <math.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	RULE_PATTERNS,
	WORKER_PATTERNS = POLICY_RULES,
	PATTERNS = POLICY_RULES + POLICY_WORKERS
};

struct classifier {
	const struct policy *policy;
	regex_t pattern[PATTERNS]; /* patterns of the rules, then of the workers */
	bool compiled[PATTERNS];
};

const char *guard_class_name(unsigned c)
{
	static const char *const name[GUARD_CLASSES] = {
		[CLASS_SELF] = "self",           [CLASS_WORKER] = "worker",
		[CLASS_SYSTEM] = "system",       [CLASS_IGNORED] = "ignored",
		[CLASS_CONTENDER] = "contender", [CLASS_ORPHAN] = "orphan",
		[CLASS_UNKNOWN] = "unknown",
	};

	return c < GUARD_CLASSES ? name[c] : "unknown";
}

/* Size of a pattern after the C library expanded it: x{3} becomes xxx, and x+ becomes xx*. */
struct pattern_size {
	unsigned long atoms;
	/* Number of atoms that match several characters or are repeated. The time for one match
	 * grows with the square of this number. */
	unsigned long wide;
};

#define PATTERN_DEPTH 16 /* greatest depth of nested parentheses */

/* Returns the character after the bracket expression at p. A backslash in a bracket expression
 * is an ordinary character. */
static const char *after_bracket(const char *p)
{
	p += p[1] == '^' ? 2 : 1;
	p += *p == ']';
	p += strcspn(p, "]");
	return p + (*p == ']');
}

/* Returns how many copies of its atom the quantifier at p produces; 0: there is no quantifier
 * at p. */
static unsigned long pattern_copies(const char *p)
{
	unsigned long low, high;
	char *end;

	if (*p == '*' || *p == '?')
		return 1;
	if (*p == '+')
		return 2;
	if (*p != '{')
		return 0;
	low = strtoul(p + 1, &end, 10);
	high = *end == ',' ? strtoul(end + 1, NULL, 10) : low;
	return high > low ? high : low < CLASSIFY_PATTERN_MAX ? low + 1 : low;
}

/* Adds the last atom or group again, as often as its quantifier says. */
static void pattern_repeat(struct pattern_size *sum, struct pattern_size *last,
			   unsigned long copies)
{
	const unsigned long all =
		copies > CLASSIFY_PATTERN_MAX ? CLASSIFY_PATTERN_MAX + 1 : last->atoms * copies;

	sum->atoms += all - last->atoms;
	sum->wide += all - last->wide;
	*last = (struct pattern_size){ all, all };
}

const char *classify_pattern_fault(const char *pattern)
{
	struct pattern_size sum[PATTERN_DEPTH] = { 0 }, last = { 0 };
	unsigned depth = 0;
	unsigned long copies;

	if (strlen(pattern) > CLASSIFY_PATTERN_MAX)
		return "it is longer than 1000 bytes";
	for (const char *p = pattern; *p;) {
		if (*p == '(') {
			if (++depth == PATTERN_DEPTH)
				return "its parentheses are nested too deeply";
			sum[depth] = (struct pattern_size){ 0 };
			p++;
			continue;
		}
		if ((copies = pattern_copies(p))) {
			pattern_repeat(&sum[depth], &last, copies);
			p += *p == '{' ? strcspn(p, "}") : 0;
			p += *p != '\0';
		} else {
			last = (struct pattern_size){ 1, *p == '.' || *p == '[' };
			if (*p == ')' && depth)
				last = sum[depth--];
			if (*p == '\\' && p[1] >= '1' && p[1] <= '9')
				return "it has a back-reference such as \\1, and matching one "
				       "can "
				       "take hours";
			p = *p == '[' ? after_bracket(p) : p + 1 + (*p == '\\' && p[1]);
			sum[depth].atoms += last.atoms;
			sum[depth].wide += last.wide;
		}
		if (sum[depth].wide > CLASSIFY_PATTERN_WIDE ||
		    sum[depth].atoms > CLASSIFY_PATTERN_MAX)
			return "it has too many repetitions, and one match could take seconds: "
			       "write .* instead of a large number of repetitions";
	}
	return NULL;
}

static void compile(struct classifier *c, unsigned i, const char *pattern)
{
	if (pattern && !classify_pattern_fault(pattern))
		c->compiled[i] =
			regcomp(&c->pattern[i], pattern, REG_EXTENDED | REG_NOSUB) == 0;
}

static void compile_all(struct classifier *c, const struct policy *p)
{
	c->policy = p;
	for (unsigned i = 0; i < p->rules; i++)
		compile(c, RULE_PATTERNS + i, p->rule[i].match.command);
	for (unsigned i = 0; i < p->workers; i++)
		compile(c, WORKER_PATTERNS + i, p->worker[i].match.command);
}

static void classifier_clear(struct classifier *c)
{
	for (unsigned i = 0; i < PATTERNS; i++)
		if (c->compiled[i])
			regfree(&c->pattern[i]);
}

int classifier_new(const struct policy *p, struct classifier **ret)
{
	struct classifier *c = calloc(1, sizeof(*c));

	if (!c)
		return -GW_E_NOMEM;
	compile_all(c, p);
	*ret = c;
	return 0;
}

void classifier_free(struct classifier *c)
{
	if (!c)
		return;
	classifier_clear(c);
	free(c);
}

static bool command_matches(const struct classifier *c, unsigned i, const char *text)
{
	return c->compiled[i] && regexec(&c->pattern[i], text, 0, NULL, 0) == 0;
}

void classifier_match_command(const struct classifier *c, struct scene_process *p)
{
	memset(p->patterns, 0, sizeof(p->patterns));
	for (unsigned i = 0; i < PATTERNS; i++)
		if (command_matches(c, i, p->command))
			p->patterns[i / 64] |= UINT64_C(1) << i % 64;
	p->command_match = COMMAND_MATCHED;
}

static bool command_fits(const struct classifier *c, unsigned i, const struct scene_process *p)
{
	if (p->command_match == COMMAND_UNMATCHED)
		return command_matches(c, i, p->command);
	return p->command_match == COMMAND_MATCHED && p->patterns[i / 64] >> i % 64 & 1;
}

static bool glob(const char *pattern, const char *text)
{
	return fnmatch(pattern, text, FNM_NOESCAPE) == 0;
}

bool classify_name_fits(const char *pattern, const char *name)
{
	char cut[SCENE_NAME_BYTES + 1];

	if (!*name)
		return false;
	if (glob(pattern, name))
		return true;
	if (strlen(pattern) <= SCENE_NAME_BYTES || strcspn(pattern, "*?[") < SCENE_NAME_BYTES)
		return false;
	memcpy(cut, pattern, SCENE_NAME_BYTES);
	cut[SCENE_NAME_BYTES] = '\0';
	return strcmp(cut, name) == 0;
}

/* True if the pattern matches. The kernel adds " (deleted)" to the path of a program that was
 * upgraded while it runs. */
bool classify_exe_fits(const char *pattern, const char *exe)
{
	static const char deleted[] = " (deleted)";
	char whole[sizeof(((struct scene_process *)0)->exe)];
	size_t n = strlen(exe);

	if (!n)
		return false;
	if (glob(pattern, exe))
		return true;
	if (n <= sizeof(deleted) - 1 || strcmp(exe + n - (sizeof(deleted) - 1), deleted) != 0)
		return false;
	snprintf(whole, sizeof(whole), "%.*s", (int)(n - (sizeof(deleted) - 1)), exe);
	return glob(pattern, whole);
}

/* True if the pattern matches the control group or one of its parents. */
static bool cgroup_fits(const char *pattern, const char *path)
{
	char part[sizeof(((struct scene_process *)0)->cgroup)];
	char *end;

	snprintf(part, sizeof(part), "%s", path);
	while (*part) {
		if (glob(pattern, part))
			return true;
		end = strrchr(part, '/');
		if (!end || end == part)
			return false;
		*end = '\0';
	}
	return false;
}

/* True if a user may have chosen the name of the control group: user 1000 can create groups
 * with any name below user@1000.service. False if the match names this user, by uid or by the
 * user's socket in url. */
static bool container_is_pretended(const struct policy_match *m, const char *url,
				   const char *cgroup)
{
	const char *at = strstr(cgroup, "/user@");
	const long long uid = at ? strtoll(at + strlen("/user@"), NULL, 10) : -1;
	char folder[40];

	snprintf(folder, sizeof(folder), "/run/user/%lld/", uid);
	return at && m->uid != uid && (!url || !strstr(url, folder));
}

/* True if the match names the container of p. Names must be equal. Of ids only the first digits
 * are compared: p has 12 digits, and the match may have fewer or more. */
static bool container_fits(const struct policy_match *m, const char *url,
			   const struct scene_process *p)
{
	static const char digits[] = "0123456789abcdef";
	const char *wanted = m->container, *has = p->container;
	const size_t n = strlen(wanted);

	if (!n || container_is_pretended(m, url, p->cgroup))
		return false;
	if (strlen(has) == WORKLOAD_ID_SHOWN && !has[strspn(has, digits)] &&
	    !wanted[strspn(wanted, digits)])
		return strncmp(wanted, has, n < WORKLOAD_ID_SHOWN ? n : WORKLOAD_ID_SHOWN) == 0;
	return strcmp(wanted, has) == 0;
}

bool classify_in_unit(const char *path, const char *unit, bool user)
{
	const char *end = path + strlen(path);
	struct cgroup_unit u;
	char name[256];

	snprintf(name, sizeof(name), "%s%s", unit, strchr(unit, '.') ? "" : ".service");
	if (cgroup_unit_find(path, &u))
		end = user || !u.manager_end ? u.end : u.manager_end;
	if (user)
		path = u.manager_end;
	for (size_t n; path && path < end; path += n + (path[n] == '/')) {
		n = strcspn(path, "/");
		if (n == strlen(name) && memcmp(path, name, n) == 0)
			return true;
	}
	return false;
}

static bool in_worker_unit(const struct policy_worker *w, const struct scene_process *p)
{
	const bool user =
		policy_kind_is(w->kind, KIND_UNIT) && w->url && strncmp(w->url, "user", 4) == 0;

	return classify_in_unit(p->cgroup, w->match.unit, user);
}

static bool is_not_empty(const struct policy_match *m)
{
	return policy_match_names(m) || m->uid >= 0 || m->type || m->vram_ge ||
	       m->util_ge > 0 || m->gpu;
}

static bool process_fits(const struct classifier *c, unsigned pattern,
			 const struct policy_match *m, const char *url,
			 const struct scene_process *p)
{
	return (!m->name || classify_name_fits(m->name, p->name)) &&
	       (!m->exe || classify_exe_fits(m->exe, p->exe)) &&
	       (!m->cgroup || cgroup_fits(m->cgroup, p->cgroup)) &&
	       (!m->container || container_fits(m, url, p)) &&
	       (m->uid < 0 || m->uid == p->uid) && (!m->command || command_fits(c, pattern, p));
}

/* True if type, memory, utilisation and GPU fit. An unknown value does not fit. */
static bool use_fits(const struct policy_match *m, const struct scene *s,
		     const struct scene_process *p)
{
	return (!m->type || (m->type & p->type)) &&
	       (!m->vram_ge || (p->bytes_known && p->bytes >= m->vram_ge)) &&
	       (!(m->util_ge > 0) || (!isnan(p->sm_ratio) && p->sm_ratio >= m->util_ge)) &&
	       (!m->gpu || (p->gpu < s->gpus && scene_gpu_matches(&s->gpu[p->gpu], m->gpu)));
}

bool classifier_fits(const struct classifier *c, const struct scene *s, unsigned worker,
		     const struct scene_process *p, bool on_gpu)
{
	const struct policy_worker *w = &c->policy->worker[worker];
	const struct policy_match *m = &w->match;

	return (!m->unit || in_worker_unit(w, p)) &&
	       process_fits(c, WORKER_PATTERNS + worker, m, w->url, p) &&
	       (!on_gpu || use_fits(m, s, p));
}

/* True if the process itself matches the worker. A worker with a port or a pidfile is found by
 * its roots, so another process of the same program does not match. Every process in the
 * worker's unit belongs to the worker. */
static bool matches_worker(const struct classifier *c, const struct scene *s, unsigned worker,
			   const struct scene_process *p)
{
	const struct policy_worker *w = &c->policy->worker[worker];
	const struct policy_match *m = &w->match;

	if (p->orphan)
		return false;
	if (m->unit && in_worker_unit(w, p))
		return true;
	return policy_match_searches(m) && classifier_fits(c, s, worker, p, true);
}

static unsigned root_distance(const struct scene_root *r, const struct scene_process *p)
{
	const unsigned n = scene_generations(p, r->id.pid);

	return n || scene_is(p, r) ? n : SCENE_FAR; /* SCENE_FAR: the root's pid was reused */
}

/* Returns how many generations p is below the nearest root of the worker. 0: p is a root, or p
 * itself matches the worker; SCENE_FAR: no root is an ancestor of p. */
static unsigned distance(const struct classifier *c, const struct scene *s, unsigned worker,
			 const struct scene_process *p)
{
	unsigned best = matches_worker(c, s, worker, p) ? 0 : SCENE_FAR;

	for (unsigned i = 0; i < s->roots && best > 0; i++) {
		unsigned d = scene_root_of(&s->root[i], worker) ? root_distance(&s->root[i], p)
								: SCENE_FAR;

		if (d < best)
			best = d;
	}
	return best;
}

/* Returns the nearest worker, or -1. *ret_second is another worker at the same distance, or
 * -1. */
static int nearest_worker(const struct classifier *c, const struct scene *s,
			  const struct scene_process *p, int *ret_second)
{
	unsigned best = SCENE_FAR;
	int found = -1;

	*ret_second = -1;
	for (unsigned i = 0; i < c->policy->workers; i++) {
		unsigned d = distance(c, s, i, p);

		if (d < best) {
			best = d;
			found = (int)i;
			*ret_second = -1;
		} else if (d == best && d != SCENE_FAR && *ret_second < 0) {
			*ret_second = (int)i;
		}
	}
	return found;
}

int classifier_worker(const struct classifier *c, const struct scene *s,
		      const struct scene_process *p)
{
	int second;

	return nearest_worker(c, s, p, &second);
}

/* Arrays instead of pointers: the relocation of each pointer would add 24 bytes to the
 * library. */
#define BUILT_IN "built in: "
static const struct {
	char why[sizeof(BUILT_IN) + 15]; /* BUILT_IN, followed by the name */
	char exe[28];
} systems[] = {
#define D(folder)
#define S(name, exe) { BUILT_IN name, exe },
#include "system.def"
#undef S
#undef D
};

static const char *const folders[] = {
#define D(folder) folder,
#define S(name, exe)
#include "system.def"
#undef S
#undef D
};

static bool is_system_file(const char *exe, const char *pattern)
{
	const char *file = strrchr(exe, '/');

	for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++)
		if (strncmp(exe, folders[i], strlen(folders[i])) == 0)
			return classify_exe_fits(pattern, file + 1);
	return false;
}

/* True if p runs a program of the system. Without privileges the path of another user's program
 * is hidden; then the command line decides. */
static bool exe_is_system(const struct scene_process *p, const char *pattern)
{
	char called[sizeof(p->command)];

	if (p->exe[0])
		return is_system_file(p->exe, pattern);
	snprintf(called, sizeof(called), "%.*s", (int)strcspn(p->command, " "), p->command);
	if (called[0] == '/')
		return is_system_file(called, pattern);
	return !called[0] || glob(pattern, called);
}

static const char *system_program(const struct scene_process *p)
{
	for (size_t i = 0; i < sizeof(systems) / sizeof(systems[0]); i++)
		if (classify_name_fits(systems[i].why + strlen(BUILT_IN), p->name) &&
		    exe_is_system(p, systems[i].exe))
			return systems[i].why;
	return NULL;
}

static bool has_root(const struct scene *s, unsigned worker)
{
	for (unsigned i = 0; i < s->roots; i++)
		if (scene_root_of(&s->root[i], worker))
			return true;
	return false;
}

/* True if p may belong to a worker that was not found. There are three cases. The program of p
 * is hidden, and everything else fits the match of such a worker. Or the program of p is
 * hidden, and a socket of the same user listens on the port of such a worker (veiled). Or the
 * command line of p was not yet compared with the patterns of a new policy. */
static bool may_be_worker(const struct classifier *c, const struct scene *s,
			  const struct scene_process *p)
{
	if (p->veiled || p->command_match == COMMAND_PENDING)
		return true;
	for (unsigned i = 0; !p->exe[0] && i < c->policy->workers; i++) {
		struct policy_match m = c->policy->worker[i].match;

		if (!m.exe || has_root(s, i))
			continue;
		m.exe = NULL;
		if (process_fits(c, WORKER_PATTERNS + i, &m, c->policy->worker[i].url, p))
			return true;
	}
	return false;
}

static struct verdict make_verdict(enum guard_class class, enum guard_action action,
				   const char *why)
{
	return (struct verdict){ class, action, -1, -1, -1, why, false };
}

static struct verdict worker_verdict(const struct policy *p, int worker, int also)
{
	const struct policy_worker *w = &p->worker[worker];
	struct verdict v = make_verdict(CLASS_WORKER, GUARD_WATCH, w->text ? w->text : w->name);

	v.worker = worker;
	v.also = also;
	return v;
}

static struct verdict maybe_worker_verdict(void)
{
	struct verdict v = make_verdict(CLASS_UNKNOWN, GUARD_WATCH,
					"it may be a worker: its program is hidden, or was not "
					"compared with the new configuration yet");

	v.maybe_worker = true;
	return v;
}

static struct verdict rule_verdict(const struct policy_rule *r, unsigned i)
{
	const bool contends = r->action == GUARD_CONTEND || r->action == GUARD_CONTEND_NOW;
	struct verdict v = make_verdict(contends ? CLASS_CONTENDER : CLASS_IGNORED, r->action,
					r->text ? r->text : "a rule");

	v.rule = (int)i;
	return v;
}

/* Returns the first rule that fits, or -1. */
static int first_rule(const struct classifier *c, const struct scene *s,
		      const struct scene_process *p)
{
	for (unsigned i = 0; i < c->policy->rules; i++) {
		const struct policy_match *m = &c->policy->rule[i].match;

		if (is_not_empty(m) && process_fits(c, RULE_PATTERNS + i, m, NULL, p) &&
		    use_fits(m, s, p))
			return (int)i;
	}
	return -1;
}

static struct verdict verdict_of(const struct classifier *c, const struct scene *s,
				 const struct scene_process *p)
{
	const struct policy *policy = c->policy;
	const char *system;
	int i, also;

	if (p->self)
		return make_verdict(CLASS_SELF, GUARD_IGNORE, "gpuward itself");
	if ((i = nearest_worker(c, s, p, &also)) >= 0)
		return worker_verdict(policy, i, also);
	if (p->orphan)
		return make_verdict(CLASS_ORPHAN, GUARD_WATCH, "it is not in /proc");
	if ((i = first_rule(c, s, p)) >= 0)
		return rule_verdict(&policy->rule[i], (unsigned)i);
	if (may_be_worker(c, s, p))
		return maybe_worker_verdict();
	if (policy->any)
		return make_verdict(CLASS_CONTENDER, GUARD_CONTEND, "demand = \"any\"");
	if ((system = system_program(p)))
		return make_verdict(CLASS_SYSTEM, GUARD_IGNORE, system);
	if (policy->unknown_contends)
		return make_verdict(CLASS_CONTENDER, GUARD_CONTEND,
				    "no rule matches it (unknown = contend)");
	return make_verdict(CLASS_UNKNOWN, GUARD_WATCH, "no rule matches it");
}

void classifier_run(const struct classifier *c, const struct scene *s, struct verdict *ret)
{
	for (unsigned i = 0; i < s->processes; i++)
		ret[i] = verdict_of(c, s, &s->process[i]);
}

void classify(const struct policy *p, const struct scene *s, struct verdict *ret)
{
	struct classifier c = { .policy = p };
	unsigned i = 0;

	while (i < s->processes && s->process[i].command_match != COMMAND_UNMATCHED)
		i++;
	if (i < s->processes)
		compile_all(&c, p);
	classifier_run(&c, s, ret);
	classifier_clear(&c);
}

void classify_conflict(const struct policy *p, const struct scene_process *one,
		       const struct verdict *v, char *out, size_t size)
{
	snprintf(out, size,
		 "process %lld (%.15s) matches worker %.40s and worker %.40s: narrow the match "
		 "of one of them",
		 (long long)one->id.pid, one->name, p->worker[v->worker].name,
		 p->worker[v->also].name);
}

/* The first 15 bytes of nvidia-cuda-mps-server and nvidia-cuda-mps-control, which the kernel
 * stores as their names. */
#define MPS_NAME "nvidia-cuda-mps"

bool classify_mps_serves_worker(const struct scene *s, const struct verdict *v)
{
	/* the GPUs with an MPS server, and the GPUs with a worker */
	uint64_t served = 0, used = 0;

	for (unsigned i = 0; i < s->processes; i++) {
		const struct scene_process *p = &s->process[i];
		bool worker = v[i].class == CLASS_WORKER;
		bool service = strncmp(p->name, MPS_NAME, strlen(MPS_NAME)) == 0;

		if (worker && p->type & GW_PROCESS_MPS)
			return true;
		if (p->gpu >= SCENE_GPUS)
			continue;
		used |= (uint64_t)worker << p->gpu;
		served |= (uint64_t)service << p->gpu;
	}
	return (used & served) != 0;
}
