/* Keeps the history that demand.c needs: the contenders on each GPU, and the most memory that
 * each program ever held. */
#include "demand.h"

#include "base/number.h"
#include "base/text.h"

#include <math.h>
#include <string.h>

#define GROWN_BYTES (16 * MIB) /* smaller growth is ignored: desktop programs always grow */

uint64_t demand_hash(const char *text)
{
	return text_hash(TEXT_HASH_START, text, strlen(text));
}

/* True if the program is an interpreter. An interpreter is identified by its path and its
 * command line. */
static bool is_interpreter(const char *file)
{
	static const char *const names[] = { "python", "pypy", "node",   "nodejs", "deno",
					     "bun",    "java", "dotnet", "mono",   "sh",
					     "bash",   "dash", "zsh",    "fish",   "perl",
					     "ruby",   "php",  "lua",    "luajit", "julia",
					     "R",      "wine", "proton" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		size_t n = strlen(names[i]);
		char next = strncmp(file, names[i], n) == 0 ? file[n] : 'x';

		/* also true for "python3.11" and "wine64-preloader" */
		if (!((next >= 'a' && next <= 'z') || (next >= 'A' && next <= 'Z')))
			return true;
	}
	return false;
}

/* Returns a hash that identifies the program of a process; 0: unknown. */
static uint64_t program_of(const struct scene_process *p)
{
	const char *path = p->exe[0] ? p->exe : p->name, *slash = strrchr(path, '/');
	uint64_t id = demand_hash(path);

	if (!is_interpreter(slash ? slash + 1 : path))
		return id;
	return p->command[0] ? text_hash(id, p->command, strlen(p->command)) : 0;
}

struct demand_life *demand_life_find(const struct demand *d, const struct scene_process *p,
				     uint64_t gpu)
{
	for (unsigned i = 0; i < d->lives; i++) {
		const struct demand_life *l = &d->life[i];

		if (l->pid == p->id.pid && l->start_ticks == p->id.start_ticks && l->gpu == gpu)
			return (struct demand_life *)l;
	}
	return NULL;
}

const struct demand_exe *demand_exe_find(const struct demand *d, uint64_t exe)
{
	for (unsigned i = 0; exe && i < DEMAND_EXES; i++)
		if (d->exe[i].used_ns && d->exe[i].exe == exe)
			return &d->exe[i];
	return NULL;
}

/* Keeps the peak memory of a process that ended. If the table is full, replaces the program of
 * which the last process ended longest ago. */
static void life_end(struct demand *d, const struct demand_life *l, uint64_t now_ns)
{
	struct demand_exe *e = (struct demand_exe *)demand_exe_find(d, l->exe);

	if (!l->exe)
		return;
	if (!e) {
		e = &d->exe[0];
		for (unsigned i = 1; i < DEMAND_EXES; i++)
			if (d->exe[i].used_ns < e->used_ns)
				e = &d->exe[i];
		*e = (struct demand_exe){ .exe = l->exe };
	}
	if (l->peak_bytes > e->peak_bytes)
		e->peak_bytes = l->peak_bytes;
	e->used_ns = now_ns;
}

static struct demand_life *life_begin(struct demand *d, const struct scene_process *p,
				      uint64_t gpu, uint64_t now_ns)
{
	if (d->lives == SCENE_PROCESSES)
		return NULL;

	struct demand_life *l = &d->life[d->lives++];

	*l = (struct demand_life){ .pid = p->id.pid,
				   .start_ticks = p->id.start_ticks,
				   .gpu = gpu,
				   .exe = program_of(p),
				   .first_ns = d->begun ? now_ns : 0,
				   .mark_bytes = p->bytes_known ? p->bytes : 0 };
	return l;
}

static void life_update(struct demand_life *l, const struct scene_process *p, uint64_t now_ns)
{
	l->seen = true;
	if (!isnan(p->sm_ratio)) {
		l->busy_ratio = p->sm_ratio;
		l->busy_ns = now_ns;
	}
	if (!p->bytes_known)
		return;
	if (p->bytes >= l->mark_bytes + GROWN_BYTES) {
		l->grown_ns = now_ns;
		l->mark_bytes = p->bytes;
	}
	if (p->bytes > l->peak_bytes)
		l->peak_bytes = p->bytes;
}

/* True if this GPU was read in this scene. A process that is missing because of a failed
 * reading has not ended. */
static bool was_read(const struct scene *s, uint64_t gpu)
{
	for (unsigned i = 0; i < s->gpus; i++)
		if (demand_hash(s->gpu[i].uuid) == gpu)
			return (s->gpu[i].health == SCENE_OK ||
				s->gpu[i].health == SCENE_ASLEEP) &&
			       !s->gpu[i].errors;
	return false;
}

/* Updates the processes in the history. If `fresh` is true, also adds new processes. */
static void update_lives(struct demand *d, const struct scene *s, const struct verdict *v,
			 bool fresh)
{
	for (unsigned i = 0; i < s->processes; i++) {
		const struct scene_process *p = &s->process[i];

		if (v[i].class != CLASS_CONTENDER || p->gpu >= s->gpus)
			continue;

		uint64_t gpu = demand_hash(s->gpu[p->gpu].uuid);
		struct demand_life *l = demand_life_find(d, p, gpu);

		if (!l && fresh)
			l = life_begin(d, p, gpu, s->mono_ns);
		if (l && !l->seen)
			life_update(l, p, s->mono_ns);
	}
}

void demand_observe(struct demand *d, const struct scene *s, const struct verdict *v)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < d->lives; i++)
		d->life[i].seen = false;
	update_lives(d, s, v, false);
	/* Remove processes that ended, to make room for new ones. */
	for (unsigned i = 0; i < d->lives; i++) {
		if (d->life[i].seen || !was_read(s, d->life[i].gpu))
			d->life[kept++] = d->life[i];
		else
			life_end(d, &d->life[i], s->mono_ns);
	}
	d->lives = kept;
	update_lives(d, s, v, true);
	d->begun = true;
}
