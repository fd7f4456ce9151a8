/* Writes and reads scenes as lines of text. There is one list of members per type of line. */
#include "scene.h"

#include "base/array.h"
#include "base/member.h"
#include "base/text.h"

#include <math.h>
#include <string.h>

enum line { LINE_SCENE, LINE_GPU, LINE_PROCESS, LINE_ROOT, LINE_FORMER, LINE_END, LINES };

/* A line of changes has a struct step and one word per changed member. A word is: letter of the
 * line type, position of the line, '.', position of the member in its list, '=', new value. */
#define CHANGE 'D'

struct step {
	uint64_t passed_ns; /* time since the last scene */
	int64_t wall_ns;    /* additional time by which the wall clock advanced */
};

/* The last line of a scene has these numbers, so that a scene with lost lines does not count as
 * complete. */
struct line_counts {
	unsigned gpus, processes, roots;
};

static const char *const health[] = { "ok", "blind", "hung", "lost", "asleep", NULL };

/* clang-format off */
#define U(m)        { MEMBER(UNSIGNED, struct OF, m) }
#define BELOW(n, m) { MEMBER(UNSIGNED, struct OF, m), .max = (n) - 1 }
#define I(m)        { MEMBER(SIGNED, struct OF, m) }
#define D(m)        { MEMBER(REAL, struct OF, m) }
#define T(m)        { MEMBER(TEXT, struct OF, m) }

static const struct {
	char letter;
	struct member member[18];
} rows[LINES] = {
#define OF scene
	[LINE_SCENE] = { 'S', { U(mono_ns), U(wall_ns), I(utc_offset_s), U(on_battery),
		U(host_free_bytes), U(left_out), U(game_clients) } },
#undef OF
#define OF scene_gpu
	[LINE_GPU] = { 'G', { T(uuid), T(pci), U(index), I(cuda),
		{ MEMBER(NAME, struct OF, health), .names = health }, U(simulated), U(display),
		U(hidden), U(total_bytes), U(used_bytes), U(free_bytes), U(memory_known),
		D(temperature_c), D(margin_c), U(errors) } },
#undef OF
#define OF scene_process
	[LINE_PROCESS] = { 'P', { I(id.pid), U(id.start_ticks), I(uid), BELOW(SCENE_GPUS, gpu),
		U(type), U(bytes), U(bytes_known), D(sm_ratio), U(orphan), U(self), U(veiled),
		T(name), T(exe), T(command), T(cgroup), T(container),
		{ MEMBER(PIDS, struct OF, ancestor) } } },
#undef OF
#define OF scene_root
	[LINE_ROOT] = { 'R', { BELOW(POLICY_WORKERS, worker), I(id.pid), U(id.start_ticks) } },
	[LINE_FORMER] = { 'F', { BELOW(POLICY_WORKERS, worker), I(id.pid), U(id.start_ticks) } },
#undef OF
#define OF line_counts
	[LINE_END] = { 'E', { U(gpus), U(processes), U(roots) } },
#undef OF
};
#define OF step
static const struct member step_members[] = { U(passed_ns), I(wall_ns), { 0 } };
#undef OF
/* clang-format on */

const char *scene_health_name(enum scene_health h)
{
	return health[h];
}

static void add_line(struct buf *out, enum line line, const void *of)
{
	buf_addc(out, rows[line].letter);
	members_add(out, rows[line].member, of);
	buf_addc(out, '\n');
}

void scene_write(struct buf *out, const struct scene *s)
{
	const struct line_counts t = { s->gpus, s->processes, s->roots };

	add_line(out, LINE_SCENE, s);
	for (unsigned i = 0; i < s->gpus; i++)
		add_line(out, LINE_GPU, &s->gpu[i]);
	for (unsigned i = 0; i < s->processes; i++)
		add_line(out, LINE_PROCESS, &s->process[i]);
	for (unsigned i = 0; i < s->roots; i++)
		add_line(out, s->root[i].how == ROOT_FORMER ? LINE_FORMER : LINE_ROOT,
			 &s->root[i]);
	add_line(out, LINE_END, &t);
}

/* An array in struct scene. Each of its elements is written as one line of the same type. */
struct list {
	size_t offset;
	unsigned n;
	size_t size;
};

static struct list list_of(const struct scene *s, enum line kind)
{
	switch (kind) {
	case LINE_SCENE: return (struct list){ 0, 1, sizeof(*s) };
	case LINE_GPU:
		return (struct list){ offsetof(struct scene, gpu), s->gpus, sizeof(s->gpu[0]) };
	case LINE_PROCESS:
		return (struct list){ offsetof(struct scene, process), s->processes,
				      sizeof(s->process[0]) };
	case LINE_ROOT:
		return (struct list){ offsetof(struct scene, root), s->roots,
				      sizeof(s->root[0]) };
	default: return (struct list){ 0, 0, 0 };
	}
}

/* True if both values are written as the same text. All NANs are written as the same text. */
static bool same_value(const struct member *m, const void *a, const void *b)
{
	if (m->kind == MEMBER_TEXT)
		return strcmp(a, b) == 0;
	return memcmp(a, b, m->size) == 0 ||
	       (m->kind == MEMBER_REAL && !isfinite(*(const double *)a) &&
		!isfinite(*(const double *)b));
}

static void add_changes_of(struct buf *out, enum line kind, unsigned i, const char *now,
			   const char *was)
{
	const struct member *first = rows[kind].member;

	/* Skip the two times of a scene, because a line of changes already begins with these
	 * times. */
	for (const struct member *m = first + (kind == LINE_SCENE ? 2 : 0);
	     m->kind != MEMBER_END; m++) {
		if (same_value(m, now + m->offset, was + m->offset))
			continue;
		buf_addf(out, "\t%c%u.%u=", rows[kind].letter, i, (unsigned)(m - first));
		member_add(out, m, now + m->offset);
	}
}

static void add_changes(struct buf *out, const struct scene *now, const struct scene *was)
{
	struct step step = { .passed_ns = now->mono_ns - was->mono_ns };

	step.wall_ns = (int64_t)(now->wall_ns - was->wall_ns - step.passed_ns);
	buf_addc(out, CHANGE);
	members_add(out, step_members, &step);
	for (enum line k = LINE_SCENE; k < LINE_END; k++) {
		const struct list l = list_of(now, k);
		const char *a = (const char *)now + l.offset, *b = (const char *)was + l.offset;

		for (unsigned i = 0; i < l.n; i++, a += l.size, b += l.size)
			if (k == LINE_SCENE || memcmp(a, b, l.size) != 0)
				add_changes_of(out, k, i, a, b);
	}
	buf_addc(out, '\n');
}

void scene_copy(struct scene *to, const struct scene *s)
{
	memcpy(to, s, offsetof(struct scene, gpu));
	to->gpus = s->gpus < SCENE_GPUS ? s->gpus : SCENE_GPUS;
	to->processes = s->processes < SCENE_PROCESSES ? s->processes : SCENE_PROCESSES;
	to->roots = s->roots < SCENE_ROOTS ? s->roots : SCENE_ROOTS;
	memcpy(to->gpu, s->gpu, to->gpus * sizeof(s->gpu[0]));
	memcpy(to->process, s->process, to->processes * sizeof(s->process[0]));
	memcpy(to->root, s->root, to->roots * sizeof(s->root[0]));
	to->left_out = s->left_out;
	to->game_clients = s->game_clients;
}

/* True if both scenes are recorded with the same lines. They then have the same numbers of
 * GPUs, processes and roots, and their former roots are at the same places. */
static bool same_lines(const struct scene *a, const struct scene *b)
{
	if (a->gpus != b->gpus || a->processes != b->processes || a->roots != b->roots)
		return false;
	for (unsigned i = 0; i < a->roots; i++)
		if ((a->root[i].how == ROOT_FORMER) != (b->root[i].how == ROOT_FORMER))
			return false;
	return true;
}

void scene_write_change(struct buf *out, const struct scene *s, struct scene *last)
{
	char text[SCENE_LINE_MAX];
	struct buf line;

	buf_init_fixed(&line, text, sizeof(text));
	if (last->whole && same_lines(s, last) && s->mono_ns >= last->mono_ns)
		add_changes(&line, s, last);
	if (line.len && !line.err)
		buf_add(out, line.p, line.len);
	else
		scene_write(out, s);
	scene_copy(last, s);
	last->whole = true;
}

static bool read_members(const char *line, enum line kind, void *of)
{
	line++;
	return members_take(&line, rows[kind].member, of) == 0 && !*line;
}

static enum line line_of(const char *line)
{
	enum line l = LINES;

	for (unsigned i = 0; i < LINES; i++)
		if (line[0] && rows[i].letter == line[0] && line[1] == '\t')
			l = (enum line)i;
	return l;
}

/* Begins a scene. Unused array entries are not cleared, because that would take longer than
 * reading. */
static bool read_scene(struct scene *s, const char *line)
{
	s->gpus = s->processes = s->roots = 0;
	s->whole = false;
	s->reading = read_members(line, LINE_SCENE, s);
	return s->reading;
}

static bool read_gpu(struct scene *s, const char *line)
{
	if (s->gpus == SCENE_GPUS)
		return false;
	memset(&s->gpu[s->gpus], 0, sizeof(s->gpu[0]));
	return read_members(line, LINE_GPU, &s->gpu[s->gpus++]);
}

static bool read_process(struct scene *s, const char *line)
{
	struct scene_process *p = &s->process[s->processes];

	if (s->processes == SCENE_PROCESSES)
		return false;
	memset(p, 0, sizeof(*p));
	s->processes++;
	return read_members(line, LINE_PROCESS, p) && p->gpu < s->gpus;
}

/* Reads a line of a root or of a former root. Both have the same fields. */
static bool read_root(struct scene *s, const char *line)
{
	const bool former = line[0] == rows[LINE_FORMER].letter;

	if (s->roots == SCENE_ROOTS)
		return false;
	s->root[s->roots] = (struct scene_root){ .how = former ? ROOT_FORMER : ROOT_FOUND };
	return read_members(line, LINE_ROOT, &s->root[s->roots++]);
}

static bool read_end(struct scene *s, const char *line)
{
	struct line_counts t;

	s->reading = false;
	s->whole = read_members(line, LINE_END, &t) && t.gpus == s->gpus &&
		   t.processes == s->processes && t.roots == s->roots;
	return s->whole;
}

/* Reads one word of a line of changes. */
static bool read_change(struct scene *s, const char **at)
{
	for (enum line k = LINE_SCENE; k < LINE_END; k++) {
		const struct list l = list_of(s, k);
		const struct member *m = rows[k].member;
		uint64_t i, member;
		void *of;

		if (**at != rows[k].letter)
			continue;
		++*at;
		if (!text_read_number(at, UINT32_MAX, &i) || i >= l.n ||
		    !text_read_word(at, ".") ||
		    !text_read_number(at, COUNT(rows[k].member) - 1, &member) ||
		    m[member].kind == MEMBER_END || !text_read_word(at, "="))
			return false;
		of = (char *)s + l.offset + i * l.size + m[member].offset;
		memset(of, 0, m[member].size);
		return member_take(at, &m[member], of) == 0 &&
		       (k != LINE_PROCESS || s->process[i].gpu < s->gpus);
	}
	return false;
}

static bool read_changes(struct scene *s, const char *line)
{
	const char *at = line + 1;
	struct step step;

	if (members_take(&at, step_members, &step) != 0)
		return false;
	s->mono_ns += step.passed_ns;
	s->wall_ns += step.passed_ns + (uint64_t)step.wall_ns;
	while (text_read_word(&at, "\t"))
		if (!read_change(s, &at))
			return false;
	return *at == '\0';
}

int scene_read(struct scene *ret, const char *line)
{
	static bool (*const take[LINES])(struct scene *,
					 const char *) = { read_scene, read_gpu,  read_process,
							   read_root,  read_root, read_end };
	const enum line kind = line_of(line);

	if (line[0] == CHANGE && line[1] == '\t' && ret->whole) {
		ret->whole = read_changes(ret, line);
		return ret->whole ? 1 : -GW_E_PARSE;
	}
	/* LINE_SCENE begins a scene, even if the last scene is incomplete. */
	if (kind != LINE_SCENE && !ret->reading)
		return -GW_E_PARSE;
	if (kind == LINES || !take[kind](ret, line)) {
		ret->reading = false;
		return -GW_E_PARSE;
	}
	return kind == LINE_END;
}

bool scene_gpu_matches(const struct scene_gpu *g, const char *selector)
{
	const char *text[GW_TEXTS] = { [GW_T_UUID] = g->uuid, [GW_T_PCI] = g->pci };
	uint8_t absence[GW_TEXTS];
	struct gw_device d = { .index = g->index,
			       .cuda_ordinal = g->cuda,
			       .text_count = GW_TEXTS,
			       .text = text,
			       .text_absence = absence };

	memset(absence, GW_ABSENT_NOT_READ, sizeof(absence));
	if (g->uuid[0])
		absence[GW_T_UUID] = GW_HAVE;
	if (g->pci[0])
		absence[GW_T_PCI] = GW_HAVE;
	return gw_device_matches(&d, selector) == 1;
}
