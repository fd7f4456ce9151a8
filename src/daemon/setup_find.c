#include "setup_find.h"

#include "device/workload.h"
#include "base/utf8.h"
#include "device/proc.h"
#include "guard/pid_lookup.h"

#include <gpuward.h>

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Maximum number of listening ports that are compared per process. */
#define PORTS        16
#define COMMAND_SIZE 16384

const struct setup_sign setup_signs[] = {
#define S(symbol, title, programs, word, modules, place, ports, variable, needs, text, stuck) \
	{ WORKER_##symbol, title,    programs, word, modules, place,                          \
	  ports,           variable, needs,    text, stuck },
#include "guard/kind_signs.def"
};
const unsigned setup_sign_count = sizeof(setup_signs) / sizeof(setup_signs[0]);

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* Copies a text. If the text does not fit, cuts it between two characters and returns false. */
static bool copy_text(char *out, size_t size, const char *text)
{
	size_t used = 0;

	for (size_t n; text[used]; used += n) {
		n = utf8_length(text + used);
		n = n ? n : 1; /* Copies an invalid byte; setup_plan refuses it later. */
		if (used + n >= size)
			break;
		memcpy(out + used, text + used, n);
	}
	out[used] = '\0';
	return !text[used];
}

/* True if an entry of a list such as "a|b*" matches this word. '*' at the end of an entry
 * matches any further characters. */
static bool list_has(const char *list, const char *word, size_t n)
{
	for (size_t len; list && *list; list += len + (list[len] == '|')) {
		len = strcspn(list, "|");
		if (len && list[len - 1] == '*' ? n >= len - 1 && !strncmp(list, word, len - 1)
						: n == len && !strncmp(list, word, len))
			return true;
	}
	return false;
}

static bool has_text(const char *where, const char *what)
{
	return strcasestr(where, what) != NULL;
}

/* Returns the value of an option of the list, written "--port 80" or "--port=80". Returns
 * NULL if the command line does not have the option, or "" if the option has no value. */
static const char *option_value(const struct setup_process *p, const char *list)
{
	for (unsigned i = 1; list && i < p->argc; i++) {
		size_t n = strcspn(p->argv[i], "=");

		if (p->argv[i][0] != '-' || !list_has(list, p->argv[i], n))
			continue;
		if (p->argv[i][n] == '=')
			return p->argv[i] + n + 1;
		return i + 1 < p->argc && p->argv[i + 1][0] != '-' ? p->argv[i + 1] : "";
	}
	return NULL;
}

static bool has_all(const struct setup_process *p, const char *list)
{
	char one[64];

	for (size_t n; *list; list += n + (list[n] == '|')) {
		n = strcspn(list, "|");
		snprintf(one, sizeof(one), "%.*s", (int)n, list);
		if (!option_value(p, one))
			return false;
	}
	return true;
}

static bool has_word(const struct setup_process *p, const char *word)
{
	for (unsigned i = 1; i < p->argc; i++)
		if (strcmp(p->argv[i], word) == 0)
			return true;
	return false;
}

static const char *environment_value(const struct setup_process *p, const char *name)
{
	size_t n = strlen(name);

	for (const char *v = p->environment; *v; v += strlen(v) + 1)
		if (strncmp(v, name, n) == 0 && v[n] == '=')
			return v + n + 1;
	return NULL;
}

static bool is_interpreter(const char *program)
{
	return list_has("python*|pypy*|sh|bash|dash|uv|node", program, strlen(program));
}

/* Returns the program or the script that runs. This is argv[0]. But if argv[0] is an
 * interpreter, this is its first argument that is not an option. *ret_module is the argument of
 * the option -m, or NULL. */
static const char *script_of(const struct setup_process *p, const char **ret_module)
{
	*ret_module = NULL;
	if (!p->argc || !is_interpreter(base_name(p->argv[0])))
		return p->argc ? p->argv[0] : "";
	for (unsigned i = 1; i < p->argc; i++) {
		if (strcmp(p->argv[i], "-m") == 0 && i + 1 < p->argc) {
			*ret_module = p->argv[i + 1];
			return "";
		}
		if (p->argv[i][0] != '-' && strcmp(p->argv[i], "run") != 0)
			return p->argv[i];
	}
	return "";
}

static bool sign_fits(const struct setup_sign *s, const struct setup_process *p)
{
	const char *module, *script = script_of(p, &module);
	const char *name = base_name(script);

	if (module)
		return list_has(s->modules, module, strlen(module));
	if (!*name || !list_has(s->programs, name, strlen(name)))
		return false;
	if (s->word && !has_word(p, s->word))
		return false;
	/* If programs of other kinds can have the same name, s->place is set. The path or the
	 * working folder of the program must then contain s->place. */
	return !s->place || has_text(script, s->place) || has_text(p->folder, s->place);
}

const struct setup_sign *setup_recognise(const struct setup_process *p)
{
	for (unsigned i = 0; i < setup_sign_count; i++)
		if (sign_fits(&setup_signs[i], p))
			return &setup_signs[i];
	return NULL;
}

static unsigned port_in(const char *text)
{
	const char *colon = text ? strrchr(text, ':') : NULL;
	char *end;
	unsigned long v;

	if (!text)
		return 0;
	v = strtoul(colon ? colon + 1 : text, &end, 10);
	return *end || end == (colon ? colon + 1 : text) || v > 65535 ? 0 : (unsigned)v;
}

static unsigned usual_port(const struct setup_sign *s)
{
	return port_in(policy_kind_url(s->kind));
}

void setup_read_command(const struct setup_process *p, struct setup_server *ret)
{
	const struct setup_sign *s = ret->sign;
	const char *module, *model, *script;
	unsigned port = port_in(option_value(p, s->port_options));

	if (!port && s->port_variable)
		port = port_in(environment_value(p, s->port_variable));
	ret->port = port ? port : usual_port(s);
	ret->lacks = s->needs && *s->needs && !has_all(p, s->needs);
	ret->stuck = s->stuck && option_value(p, s->stuck);
	script = script_of(p, &module);
	/* A path that does not fit counts as unknown, because a truncated path would be
	 * wrong. */
	if (!copy_text(ret->script, sizeof(ret->script), module ? module : script))
		ret->script[0] = '\0';
	model = option_value(p, "--config");
	if (model && strstr(model, ".kcpps") &&
	    !copy_text(ret->model, sizeof(ret->model), base_name(model)))
		ret->model[0] = '\0';
}

bool setup_unit_of(const char *cgroup, struct setup_server *ret)
{
	struct cgroup_unit u;
	char name[sizeof(ret->unit)];

	if (!cgroup_unit_find(cgroup, &u) || !cgroup_unit_service(&u, name, sizeof(name)))
		return false;
	ret->home = cgroup_unit_is_of_user(&u) ? SETUP_USER_UNIT : SETUP_UNIT;
	snprintf(ret->unit, sizeof(ret->unit), "%s", name);
	snprintf(ret->cgroup, sizeof(ret->cgroup), "%.*s", (int)(u.end - cgroup), cgroup);
	return true;
}

struct unit_members {
	const struct root *root;
	const struct setup_server *of;
	bool others;
};

static bool check_member(void *arg, const char *name)
{
	struct unit_members *m = arg;
	const int64_t pid = root_name_number(name);
	struct proc p;

	if (pid && pid != m->of->pid && proc_read(m->root, pid, &p) == 0 && !p.ended &&
	    proc_in_cgroup(p.cgroup, m->of->cgroup))
		m->others = !proc_in_tree(m->root, pid, m->of->pid);
	return !m->others;
}

/* True if the server is the main process of its unit, which means that it started all other
 * processes of the unit. Otherwise the guard must not stop the unit. For example, a user's job
 * in cron.service does not make cron.service an inference server. */
static bool owns_unit(const struct root *root, const struct setup_server *s)
{
	struct unit_members m = { .root = root, .of = s };

	return root_each_name(root, "proc", check_member, &m) == 0 && !m.others;
}

struct port_list {
	const struct root *root;
	int64_t pid;
	struct listening_socket of[64];
	unsigned count;
	unsigned own[PORTS], owned;
};

static void list_ports(struct port_list *l, const char *table)
{
	struct lines lines;
	char path[64], *line;

	root_path(path, sizeof(path), "proc/%lld/net/%s", (long long)l->pid, table);
	if (lines_open(&lines, l->root, path) != 0)
		return;
	while (l->count < 64 && (line = lines_next(&lines)))
		l->count += listening_socket_parse(line, &l->of[l->count]);
	lines_close(&lines);
}

static bool match_socket(void *arg, const char *name)
{
	struct port_list *l = arg;
	unsigned long long inode;
	char path[64], link[64];

	root_path(path, sizeof(path), "proc/%lld/fd/%.16s", (long long)l->pid, name);
	if (root_readlink(l->root, path, link, sizeof(link)) <= 0 ||
	    sscanf(link, "socket:[%llu]", &inode) != 1)
		return true;
	for (unsigned i = 0; i < l->count && l->owned < PORTS; i++)
		if (l->of[i].inode == inode)
			l->own[l->owned++] = l->of[i].port;
	return true;
}

/* Sets s->listens and s->unseen. If the process listens only on other ports, replaces the
 * expected port by one of them. */
static void check_port(const struct root *root, struct setup_server *s)
{
	struct port_list l = { .root = root, .pid = s->pid };
	char path[64];

	list_ports(&l, "tcp");
	list_ports(&l, "tcp6");
	root_path(path, sizeof(path), "proc/%lld/fd", (long long)s->pid);
	s->unseen = root_each_name(root, path, match_socket, &l) == -GW_E_PERM;
	for (unsigned i = 0; i < l.owned; i++)
		s->listens |= l.own[i] == s->port;
	if (!s->listens && l.owned) {
		s->port = l.own[0];
		s->listens = true;
	}
}

struct finding {
	const struct root *root;
	struct setup_servers *to;
	char command[COMMAND_SIZE], environment[COMMAND_SIZE], folder[512];
};

static void split_command(struct finding *f, long n, struct setup_process *p)
{
	for (long at = 0; at < n && p->argc < SETUP_ARGS;
	     at += (long)strlen(f->command + at) + 1)
		p->argv[p->argc++] = f->command + at;
	p->argv[p->argc] = NULL;
}

static bool read_process(struct finding *f, int64_t pid, struct setup_process *p)
{
	char path[64];
	long n;

	root_path(path, sizeof(path), "proc/%lld/cmdline", (long long)pid);
	n = root_read(f->root, path, f->command, sizeof(f->command) - 1);
	if (n <= 0)
		return false;
	f->command[n] = '\0';
	split_command(f, n, p);
	root_path(path, sizeof(path), "proc/%lld/cwd", (long long)pid);
	if (root_readlink(f->root, path, f->folder, sizeof(f->folder)) <= 0)
		f->folder[0] = '\0';
	p->folder = f->folder;
	p->environment = "";
	return p->argc > 0;
}

static void read_environment(struct finding *f, int64_t pid, struct setup_process *p)
{
	char path[64];
	long n;

	root_path(path, sizeof(path), "proc/%lld/environ", (long long)pid);
	n = root_read(f->root, path, f->environment, sizeof(f->environment) - 2);
	n = n > 0 ? n : 0;
	f->environment[n] = f->environment[n + 1] = '\0';
	p->environment = f->environment;
}

/* True if the list already has a server of the same kind that is in the same unit or container
 * as this process, or that is an ancestor of this process. */
static bool is_listed(const struct finding *f, const struct setup_server *s)
{
	for (unsigned i = 0; i < f->to->count; i++) {
		const struct setup_server *o = &f->to->server[i];

		if (o->sign != s->sign)
			continue;
		if (o->home == s->home && s->home != SETUP_PLAIN &&
		    strcmp(o->cgroup, s->cgroup) == 0 &&
		    strcmp(o->container, s->container) == 0)
			return true;
		if (proc_in_tree(f->root, s->pid, o->pid))
			return true;
	}
	return false;
}

static bool look_at(void *arg, const char *name)
{
	struct finding *f = arg;
	struct setup_process p = { .argc = 0 };
	struct setup_server s = { .pid = root_name_number(name), .home = SETUP_PLAIN };
	struct proc of;

	if (!s.pid || !read_process(f, s.pid, &p) || !(s.sign = setup_recognise(&p)) ||
	    proc_read(f->root, s.pid, &of) != 0 || of.ended)
		return true;
	read_environment(f, s.pid, &p);
	setup_read_command(&p, &s);
	s.uid = of.uid;
	(void)copy_text(s.command, sizeof(s.command), of.command);
	if (*of.container) {
		s.home = SETUP_CONTAINER;
		snprintf(s.container, sizeof(s.container), "%s", of.container);
	} else if (setup_unit_of(of.cgroup, &s) && !owns_unit(f->root, &s)) {
		s.home = SETUP_PLAIN;
	}
	if (is_listed(f, &s))
		return true;
	check_port(f->root, &s);
	if (f->to->count < SETUP_SERVERS)
		f->to->server[f->to->count++] = s;
	else
		f->to->left_out++;
	return true;
}

static int by_pid(const void *a, const void *b)
{
	const struct setup_server *x = a, *y = b;

	return (x->pid > y->pid) - (x->pid < y->pid);
}

/* Removes servers that another server started. For example, llama-swap starts llama-server. */
static void remove_children(const struct root *root, struct setup_servers *all)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < all->count; i++) {
		bool child = false;

		for (unsigned k = 0; k < all->count && !child; k++)
			child = k != i &&
				proc_in_tree(root, all->server[i].pid, all->server[k].pid);
		if (!child)
			all->server[kept++] = all->server[i];
	}
	all->count = kept;
	qsort(all->server, kept, sizeof(all->server[0]), by_pid);
}

struct owner {
	const struct root *root;
	struct port_owners at;
	int64_t pid;
};

static bool try_owner(void *arg, const char *name)
{
	struct owner *o = arg;
	char file[PORT_OWNER_FILE];
	int64_t pid = root_name_number(name);

	if (pid && port_owner_file(o->root, &o->at, pid, file) > 0)
		o->pid = pid;
	return !o->pid;
}

int64_t setup_port_user(const struct root *root, unsigned port, char *name, size_t size)
{
	struct owner o = { .root = root };
	struct proc of;

	snprintf(name, size, "unknown");
	if (port_owner_read(root, port, &o.at) != 0 || !o.at.count)
		return -1;
	root_each_name(root, "proc", try_owner, &o);
	if (o.pid && proc_read(root, o.pid, &of) == 0)
		utf8_clean(name, size, of.name);
	return o.pid;
}

static bool is_found_on(const struct setup_servers *all, unsigned port)
{
	for (unsigned i = 0; i < all->count; i++)
		if (all->server[i].port == port)
			return true;
	return false;
}

/* True for a port that few other programs use. */
static bool is_distinctive(unsigned port)
{
	return port != 8080 && port != 8000 && port != 5000;
}

static void find_maybes(const struct root *root, struct setup_servers *all)
{
	for (unsigned i = 0; i < setup_sign_count; i++) {
		struct setup_maybe m = { .sign = &setup_signs[i] };

		m.port = usual_port(m.sign);
		if (!is_distinctive(m.port) || is_found_on(all, m.port))
			continue;
		m.pid = setup_port_user(root, m.port, m.name, sizeof(m.name));
		if (m.pid >= 0)
			all->maybe[all->maybes++] = m;
	}
}

int setup_find(const struct root *root, struct setup_servers *ret)
{
	struct finding *f = calloc(1, sizeof(*f));
	int err;

	memset(ret, 0, sizeof(*ret));
	if (!f)
		return -GW_E_NOMEM;
	f->root = root;
	f->to = ret;
	err = root_each_name(root, "proc", look_at, f);
	free(f);
	if (err && err != -GW_E_NOENT)
		return err;
	remove_children(root, ret);
	find_maybes(root, ret);
	return 0;
}
