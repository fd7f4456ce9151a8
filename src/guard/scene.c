/* Writes and reads scenes as lines of text. There is one table of fields per type of line. */
#include "scene.h"

#include "base/number.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum kind { END, U64, I64, REAL, UINT, INT, FLAG, HEALTH, TEXT, CHAIN };

struct field {
	enum kind kind;
	/* TEXT: size of the buffer, with the NUL. UINT: the value must be less than size; if
	 * size is 0, every value is valid. */
	unsigned size;
	size_t offset;
};

enum line { LINE_SCENE, LINE_GPU, LINE_PROCESS, LINE_ROOT, LINE_FORMER, LINE_END, LINES };

/* A line of changes has the time since the last scene, the additional time by which the wall
 * clock advanced, and one word per changed field. A word is: letter of the line type, position
 * of the line, '.', position of the field, '=', new value. */
#define CHANGE     'D'
#define CHAIN_SIZE (SCENE_ANCESTORS * sizeof(int64_t))

/* The last line of a scene has these numbers, so that a scene with lost lines does not count as
 * complete. */
struct line_counts {
	unsigned gpus, processes, roots;
};

/* clang-format off */
#define F(kind, of, name)       { kind, 0, offsetof(struct of, name) }
#define BELOW(n, of, name)      { UINT, n, offsetof(struct of, name) }
#define T(of, name)             { TEXT, sizeof(((struct of *)0)->name), offsetof(struct of, name) }

static const struct {
	char letter;
	struct field field[18];
} rows[LINES] = {
	[LINE_SCENE] = { 'S', { F(U64, scene, mono_ns), F(U64, scene, wall_ns),
		F(INT, scene, utc_offset_s), F(FLAG, scene, on_battery),
		F(U64, scene, host_free_bytes), F(UINT, scene, left_out),
		F(UINT, scene, game_clients) } },
	[LINE_GPU] = { 'G', { T(scene_gpu, uuid), T(scene_gpu, pci), F(UINT, scene_gpu, index),
		F(INT, scene_gpu, cuda), F(HEALTH, scene_gpu, health),
		F(FLAG, scene_gpu, simulated), F(FLAG, scene_gpu, display),
		F(FLAG, scene_gpu, hidden), F(U64, scene_gpu, total_bytes),
		F(U64, scene_gpu, used_bytes), F(U64, scene_gpu, free_bytes),
		F(FLAG, scene_gpu, memory_known), F(REAL, scene_gpu, temperature_c),
		F(REAL, scene_gpu, margin_c), F(UINT, scene_gpu, errors) } },
	[LINE_PROCESS] = { 'P', { F(I64, scene_process, id.pid), F(U64, scene_process, id.start_ticks),
		F(I64, scene_process, uid), BELOW(SCENE_GPUS, scene_process, gpu),
		F(UINT, scene_process, type), F(U64, scene_process, bytes),
		F(FLAG, scene_process, bytes_known), F(REAL, scene_process, sm_ratio),
		F(FLAG, scene_process, orphan), F(FLAG, scene_process, self),
		F(FLAG, scene_process, veiled),
		T(scene_process, name), T(scene_process, exe), T(scene_process, command),
		T(scene_process, cgroup), T(scene_process, container),
		F(CHAIN, scene_process, ancestor) } },
	[LINE_ROOT] = { 'R', { BELOW(POLICY_WORKERS, scene_root, worker), F(I64, scene_root, id.pid),
		F(U64, scene_root, id.start_ticks) } },
	[LINE_FORMER] = { 'F', { BELOW(POLICY_WORKERS, scene_root, worker), F(I64, scene_root, id.pid),
		F(U64, scene_root, id.start_ticks) } },
	[LINE_END] = { 'E', { F(UINT, line_counts, gpus), F(UINT, line_counts, processes),
		F(UINT, line_counts, roots) } },
};
static const char *const health[] = { "ok", "blind", "hung", "lost", "asleep" };
/* clang-format on */

const char *scene_health_name(enum scene_health h)
{
	return health[h];
}

static void add_chain(struct buf *out, const int64_t *pid)
{
	if (!pid[0])
		buf_addc(out, '-');
	for (unsigned i = 0; i < SCENE_ANCESTORS && pid[i]; i++)
		buf_addf(out, "%s%" PRId64, i ? "," : "", pid[i]);
}

static void add_field(struct buf *out, const void *p, enum kind kind)
{
	switch (kind) {
	case U64: buf_addf(out, "%" PRIu64, *(const uint64_t *)p); break;
	case I64: buf_addf(out, "%" PRId64, *(const int64_t *)p); break;
	case UINT: buf_addf(out, "%u", *(const unsigned *)p); break;
	case INT: buf_addf(out, "%d", *(const int *)p); break;
	case FLAG: buf_addc(out, *(const bool *)p ? '1' : '0'); break;
	case HEALTH: buf_adds(out, health[*(const enum scene_health *)p]); break;
	case REAL: tsv_add_real(out, *(const double *)p); break;
	case TEXT: tsv_add_text(out, p); break;
	case CHAIN: add_chain(out, p); break;
	case END: break;
	}
}

static void add_line(struct buf *out, enum line line, const void *of)
{
	buf_addc(out, rows[line].letter);
	for (const struct field *f = rows[line].field; f->kind != END; f++) {
		buf_addc(out, '\t');
		add_field(out, (const char *)of + f->offset, f->kind);
	}
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

/* The array in struct scene that has one element per line of a type. */
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

/* True if both fields are written as the same text. All NANs are written as the same text. */
static bool same_field(const void *a, const void *b, const struct field *f)
{
	switch (f->kind) {
	case U64:
	case I64: return memcmp(a, b, sizeof(uint64_t)) == 0;
	case REAL:
		return memcmp(a, b, sizeof(double)) == 0 ||
		       (!isfinite(*(const double *)a) && !isfinite(*(const double *)b));
	case UINT:
	case INT:
	case HEALTH: return memcmp(a, b, sizeof(int)) == 0;
	case FLAG: return *(const bool *)a == *(const bool *)b;
	case TEXT: return strcmp(a, b) == 0;
	case CHAIN: return memcmp(a, b, CHAIN_SIZE) == 0;
	case END: break;
	}
	return true;
}

static void add_changes_of(struct buf *out, enum line kind, unsigned i, const char *now,
			   const char *was)
{
	const struct field *first = rows[kind].field;

	/* Skip the two times of a scene, because a line of changes already begins with these
	 * times. */
	for (const struct field *f = first + (kind == LINE_SCENE ? 2 : 0); f->kind != END;
	     f++) {
		if (same_field(now + f->offset, was + f->offset, f))
			continue;
		buf_addf(out, "\t%c%u.%u=", rows[kind].letter, i, (unsigned)(f - first));
		add_field(out, now + f->offset, f->kind);
	}
}

static void add_changes(struct buf *out, const struct scene *now, const struct scene *was)
{
	uint64_t passed = now->mono_ns - was->mono_ns;

	buf_addf(out, "%c\t%" PRIu64 "\t%" PRId64, CHANGE, passed,
		 (int64_t)(now->wall_ns - was->wall_ns - passed));
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

/* True if both scenes are recorded with the same lines: they have the same numbers of GPUs,
 * processes and roots, and former roots at the same places. */
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

static bool to_unsigned(const char *s, unsigned below, unsigned *ret)
{
	uint64_t v;

	if (!number_u64(s, &v) || v > UINT32_MAX || (below && v >= below))
		return false;
	*ret = (unsigned)v;
	return true;
}

static bool to_int(const char *s, int *ret)
{
	int64_t v;

	if (!number_i64(s, &v) || v < INT32_MIN || v > INT32_MAX)
		return false;
	*ret = (int)v;
	return true;
}

static bool to_flag(const char *s, bool *ret)
{
	*ret = *s == '1';
	return (*s == '0' || *s == '1') && !s[1];
}

static bool to_health(const char *s, enum scene_health *ret)
{
	for (unsigned i = 0; i < sizeof(health) / sizeof(health[0]); i++) {
		*ret = (enum scene_health)i;
		if (strcmp(s, health[i]) == 0)
			return true;
	}
	return false;
}

static bool to_chain(char *s, int64_t *ret)
{
	unsigned n = 0;

	if (strcmp(s, "-") == 0)
		return true;
	for (char *next; s; s = next) {
		next = strchr(s, ',');
		if (next)
			*next++ = '\0';
		if (n == SCENE_ANCESTORS || !number_i64(s, &ret[n]) || ret[n++] == 0)
			return false;
	}
	return true;
}

static bool to_field(char *s, const struct field *f, void *p)
{
	switch (f->kind) {
	case U64: return number_u64(s, p);
	case I64: return number_i64(s, p);
	case UINT: return to_unsigned(s, f->size, p);
	case INT: return to_int(s, p);
	case FLAG: return to_flag(s, p);
	case HEALTH: return to_health(s, p);
	case REAL: return number_real(s, p);
	case TEXT: return tsv_text(s, p, f->size);
	case CHAIN: return to_chain(s, p);
	case END: break;
	}
	return false;
}

static bool read_fields(const char *line, enum line kind, void *of)
{
	char text[SCENE_LINE_MAX];
	const char *at = line + 2;

	for (const struct field *f = rows[kind].field; f->kind != END; f++)
		if (!tsv_take(&at, text, sizeof(text)) ||
		    !to_field(text, f, (char *)of + f->offset))
			return false;
	return *at == '\0' && at[-1] != '\t';
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
	s->reading = read_fields(line, LINE_SCENE, s);
	return s->reading;
}

static bool read_gpu(struct scene *s, const char *line)
{
	if (s->gpus == SCENE_GPUS)
		return false;
	memset(&s->gpu[s->gpus], 0, sizeof(s->gpu[0]));
	return read_fields(line, LINE_GPU, &s->gpu[s->gpus++]);
}

static bool read_process(struct scene *s, const char *line)
{
	struct scene_process *p = &s->process[s->processes];

	if (s->processes == SCENE_PROCESSES)
		return false;
	memset(p, 0, sizeof(*p));
	s->processes++;
	return read_fields(line, LINE_PROCESS, p) && p->gpu < s->gpus;
}

/* Reads a line of a root or of a former root. Both have the same fields. */
static bool read_root(struct scene *s, const char *line)
{
	const bool former = line[0] == rows[LINE_FORMER].letter;

	if (s->roots == SCENE_ROOTS)
		return false;
	s->root[s->roots] = (struct scene_root){ .how = former ? ROOT_FORMER : ROOT_FOUND };
	return read_fields(line, LINE_ROOT, &s->root[s->roots++]);
}

static bool read_end(struct scene *s, const char *line)
{
	struct line_counts t;

	s->reading = false;
	s->whole = read_fields(line, LINE_END, &t) && t.gpus == s->gpus &&
		   t.processes == s->processes && t.roots == s->roots;
	return s->whole;
}

static bool read_position(char **at, char end, uint64_t below, uint64_t *ret)
{
	char *stop = strchr(*at, end);

	if (!stop)
		return false;
	*stop = '\0';
	if (!number_u64(*at, ret) || *ret >= below)
		return false;
	*at = stop + 1;
	return true;
}

static bool read_change(struct scene *s, char *word)
{
	for (enum line k = LINE_SCENE; k < LINE_END; k++) {
		const struct list l = list_of(s, k);
		const struct field *f = rows[k].field;
		uint64_t i, field;
		char *of;

		if (*word != rows[k].letter)
			continue;
		word++;
		if (!read_position(&word, '.', l.n, &i) ||
		    !read_position(&word, '=', sizeof(rows[k].field) / sizeof(*f), &field) ||
		    f[field].kind == END)
			return false;
		of = (char *)s + l.offset + i * l.size + f[field].offset;
		if (f[field].kind == CHAIN || f[field].kind == TEXT)
			memset(of, 0, f[field].kind == TEXT ? f[field].size : CHAIN_SIZE);
		return to_field(word, &f[field], of) &&
		       (k != LINE_PROCESS || s->process[i].gpu < s->gpus);
	}
	return false;
}

static bool read_changes(struct scene *s, const char *line)
{
	char text[SCENE_LINE_MAX];
	const char *at = line + 2;
	uint64_t passed;
	int64_t stepped;

	if (!tsv_take(&at, text, sizeof(text)) || !number_u64(text, &passed) ||
	    !tsv_take(&at, text, sizeof(text)) || !number_i64(text, &stepped))
		return false;
	s->mono_ns += passed;
	s->wall_ns += passed + (uint64_t)stepped;
	while (*at)
		if (!tsv_take(&at, text, sizeof(text)) || !read_change(s, text))
			return false;
	return at[-1] != '\t';
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
