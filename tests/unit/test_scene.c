/* Tests scenes as text: a scene that is written reads back to the same bits, and invalid lines
 * are refused. */
#include "guard/scene.h"

#include "base/buf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "test.h"

static struct scene a, b; /* too large for a stack */
static uint64_t seed;

static uint64_t draw(void) /* splitmix64 */
{
	uint64_t z = (seed += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

/* Returns a small, large or extreme number. */
static uint64_t number(void)
{
	return draw() >> (draw() % 64);
}

static double real(void)
{
	uint64_t bits = draw();
	double v;

	if (bits % 5 == 0)
		return NAN;
	if (bits % 5 == 1)
		return (double)(int)(bits >> 40) / 8;
	if (bits % 5 == 2)
		return -0.0;
	bits = draw();
	memcpy(&v, &bits, sizeof(v));
	return isfinite(v) ? v : NAN;
}

static void text(char *out, size_t size)
{
	size_t n = draw() % 4 ? draw() % size : size - 1;

	memset(out, 0, size);
	for (size_t i = 0; i < n; i++)
		out[i] =
			(char)(draw() % 3 ? 'a' + (int)(draw() % 26) : 1 + (int)(draw() % 255));
}

static void random_gpu(struct scene_gpu *g)
{
	text(g->uuid, sizeof(g->uuid));
	text(g->pci, sizeof(g->pci));
	g->index = (unsigned)number();
	g->cuda = (int)(number() % 10) - 2;
	g->health = (enum scene_health)(draw() % 5);
	g->simulated = draw() & 1;
	g->display = draw() & 1;
	g->hidden = draw() & 1;
	g->total_bytes = number();
	g->used_bytes = number();
	g->free_bytes = number();
	g->memory_known = draw() & 1;
	g->temperature_c = real();
	g->margin_c = real();
	g->errors = (unsigned)number();
}

static void random_process(struct scene_process *p, unsigned gpus)
{
	p->id.pid = (int64_t)number();
	p->id.start_ticks = number();
	p->uid = (int64_t)(number() >> 1) - 1;
	p->gpu = (unsigned)(draw() % gpus);
	p->type = (unsigned)(draw() % 8);
	p->bytes = number();
	p->bytes_known = draw() & 1;
	p->sm_ratio = real();
	p->orphan = draw() & 1;
	p->self = draw() & 1;
	p->veiled = draw() & 1;
	text(p->name, sizeof(p->name));
	text(p->exe, sizeof(p->exe));
	text(p->command, sizeof(p->command));
	text(p->cgroup, sizeof(p->cgroup));
	text(p->container, sizeof(p->container));
	for (unsigned i = 0, n = (unsigned)(draw() % (SCENE_ANCESTORS + 1)); i < n; i++)
		p->ancestor[i] = (int64_t)(number() >> 1 | 1);
}

static void random_scene(struct scene *s)
{
	memset(s, 0, sizeof(*s));
	s->mono_ns = number();
	s->wall_ns = number();
	s->utc_offset_s = (int)(draw() % 100000) - 50000;
	s->on_battery = draw() & 1;
	s->host_free_bytes = number();
	s->left_out = (unsigned)number();
	s->game_clients = (unsigned)number();
	s->gpus = 1 + (unsigned)(draw() % SCENE_GPUS);
	s->processes = (unsigned)(draw() % 8 ? draw() % 16 : draw() % (SCENE_PROCESSES + 1));
	s->roots = (unsigned)(draw() % (SCENE_ROOTS + 1));
	for (unsigned i = 0; i < s->gpus; i++)
		random_gpu(&s->gpu[i]);
	for (unsigned i = 0; i < s->processes; i++)
		random_process(&s->process[i], s->gpus);
	for (unsigned i = 0; i < s->roots; i++)
		s->root[i] = (struct scene_root){ .worker = (unsigned)(draw() % POLICY_WORKERS),
						  .how = draw() % 4 ? ROOT_FOUND : ROOT_FORMER,
						  .id.pid = (int64_t)(number() >> 1),
						  .id.start_ticks = number() };
}

/* Feeds text line by line. Returns the result of the last line. */
static int feed(struct scene *s, char *lines)
{
	char *rest = NULL;
	int err = 0;

	for (char *l = strtok_r(lines, "\n", &rest); l; l = strtok_r(NULL, "\n", &rest)) {
		assert_true(strlen(l) < SCENE_LINE_MAX);
		err = scene_read(s, l);
		if (err < 0)
			return err;
	}
	return err;
}

static bool same_real(double x, double y)
{
	return (isnan(x) && isnan(y)) || memcmp(&x, &y, sizeof(x)) == 0;
}

/* Compares single fields, because padding bytes may differ. */
#define SAME(x, y, field) (memcmp(&(x)->field, &(y)->field, sizeof((x)->field)) == 0)

static void assert_same_gpu(const struct scene_gpu *x, const struct scene_gpu *y)
{
	assert_true(SAME(x, y, uuid) && SAME(x, y, pci) && SAME(x, y, index) &&
		    SAME(x, y, cuda) && SAME(x, y, health) && SAME(x, y, simulated) &&
		    SAME(x, y, display) && SAME(x, y, hidden) && SAME(x, y, total_bytes) &&
		    SAME(x, y, used_bytes) && SAME(x, y, free_bytes) &&
		    SAME(x, y, memory_known) && SAME(x, y, errors));
	assert_true(same_real(x->temperature_c, y->temperature_c));
	assert_true(same_real(x->margin_c, y->margin_c));
}

static void assert_same_process(const struct scene_process *x, const struct scene_process *y)
{
	assert_true(SAME(x, y, id.pid) && SAME(x, y, id.start_ticks) && SAME(x, y, uid) &&
		    SAME(x, y, gpu) && SAME(x, y, type) && SAME(x, y, bytes) &&
		    SAME(x, y, bytes_known) && SAME(x, y, orphan) && SAME(x, y, self) &&
		    SAME(x, y, veiled) && SAME(x, y, name) && SAME(x, y, exe) &&
		    SAME(x, y, command) && SAME(x, y, cgroup) && SAME(x, y, container) &&
		    SAME(x, y, ancestor));
	assert_true(same_real(x->sm_ratio, y->sm_ratio));
}

static void assert_same(const struct scene *x, const struct scene *y)
{
	assert_true(SAME(x, y, mono_ns) && SAME(x, y, wall_ns) && SAME(x, y, utc_offset_s) &&
		    SAME(x, y, on_battery) && SAME(x, y, host_free_bytes) && SAME(x, y, gpus) &&
		    SAME(x, y, processes) && SAME(x, y, left_out) && SAME(x, y, roots) &&
		    SAME(x, y, game_clients));
	for (unsigned i = 0; i < x->gpus; i++)
		assert_same_gpu(&x->gpu[i], &y->gpu[i]);
	for (unsigned i = 0; i < x->processes; i++)
		assert_same_process(&x->process[i], &y->process[i]);
	for (unsigned i = 0; i < x->roots; i++)
		assert_true(SAME(&x->root[i], &y->root[i], worker) &&
			    SAME(&x->root[i], &y->root[i], id.pid) &&
			    SAME(&x->root[i], &y->root[i], id.start_ticks) &&
			    (x->root[i].how == ROOT_FORMER) == (y->root[i].how == ROOT_FORMER));
}

TEST(any_scene_reads_back_to_the_same_bits)
{
	struct buf out;

	seed = (uint64_t)time(NULL);
	print_message("seed %llu\n", (unsigned long long)seed);
	buf_init(&out, 16 << 20);
	memset(&b, 0, sizeof(b)); /* values of one scene must not remain in the next */
	for (unsigned i = 0; i < 60; i++) {
		random_scene(&a);
		buf_clear(&out);
		scene_write(&out, &a);
		assert_int_equal(out.err, 0);
		assert_int_equal(feed(&b, out.p), 1);
		assert_same(&a, &b);
	}
	buf_done(&out);
}

/* Changes a few fields of the scene and advances its time. */
static void change(struct scene *s)
{
	s->mono_ns += draw() % 1000000000;
	s->wall_ns += draw() % 2000000000; /* the wall clock may be set */
	s->on_battery ^= draw() % 2;
	s->host_free_bytes = number();
	if (s->gpus) {
		struct scene_gpu *u = &s->gpu[draw() % s->gpus];

		u->temperature_c = draw() % 2 ? (double)NAN : 40.5;
		u->used_bytes = number();
		u->health = (enum scene_health)(draw() % 5);
		memset(u->pci, 0, sizeof(u->pci));
		snprintf(u->pci, sizeof(u->pci), "%u", (unsigned)(draw() % 100000));
	}
	if (s->roots && draw() % 4 == 0)
		s->root[draw() % s->roots].how = draw() % 2 ? ROOT_FORMER : ROOT_FOUND;
	for (unsigned i = 0; s->processes && i < draw() % 40; i++) {
		struct scene_process *p = &s->process[draw() % s->processes];

		p->bytes = number();
		p->sm_ratio = draw() % 2 ? 0.25 : (double)NAN;
		memset(p->name, 0, sizeof(p->name));
		snprintf(p->name, sizeof(p->name), "%.*s", (int)(draw() % 8), "a-\tb\\c=.");
		memset(p->ancestor, 0, sizeof(p->ancestor));
		p->ancestor[0] = (int64_t)(draw() % 3);
	}
}

TEST(what_changed_reads_back_to_the_same_bits)
{
	static struct scene last;
	struct buf out;
	unsigned short_ones = 0;

	print_message("seed %llu\n", (unsigned long long)seed);
	buf_init(&out, 16 << 20);
	memset(&b, 0, sizeof(b));
	for (unsigned i = 0; i < 200; i++) {
		if (i % 10 == 0)
			random_scene(&a);
		else
			change(&a);
		buf_clear(&out);
		scene_write_change(&out, &a, &last);
		assert_int_equal(out.err, 0);
		short_ones += out.p[0] == 'D';
		assert_int_equal(feed(&b, out.p), 1);
		assert_same(&a, &b);
	}
	assert_true(short_ones > 50);
	buf_done(&out);
}

TEST(a_scene_without_changes_is_written_as_a_short_line)
{
	static struct scene last;
	struct buf out;

	buf_init(&out, 16 << 20);
	random_scene(&a);
	a.mono_ns = a.wall_ns = 1000;
	scene_write_change(&out, &a, &last);
	buf_clear(&out);
	a.mono_ns += 100000000;
	a.wall_ns += 100000003;
	scene_write_change(&out, &a, &last);
	assert_string_equal(out.p, "D\t100000000\t3\n");
	buf_done(&out);
}

#define S      "S\t1\t2\t3600\t0\t5\t0\t0"
#define G      "G\tGPU\\2dx\t-\t0\t-2\tok\t0\t0\t0\t9\t8\t1\t1\t40\t-\t0"
#define P(gpu) "P\t7\t9\t-1\t" gpu "\t1\t5\t1\t-\t0\t0\t0\tname\t-\t-\t-\t-\t3,1"
#define R      "R\t0\t7\t9"

TEST(a_scene_is_whole_at_its_last_line)
{
	memset(&a, 0, sizeof(a));
	assert_int_equal(scene_read(&a, S), 0);
	assert_int_equal(scene_read(&a, G), 0);
	assert_int_equal(scene_read(&a, P("0")), 0);
	assert_int_equal(scene_read(&a, R), 0);
	assert_int_equal(scene_read(&a, "E\t1\t1\t1"), 1);
	assert_string_equal(a.gpu[0].uuid, "GPU-x");
	assert_true(isnan(a.gpu[0].margin_c));
	assert_int_equal(a.process[0].ancestor[1], 1);
	assert_int_equal(a.process[0].ancestor[2], 0);
}

TEST(a_scene_that_was_cut_short_ends_where_the_next_begins)
{
	char text_of[] = S "\n" G "\n" S "\n" G "\n" G "\nE\t2\t0\t0\n";

	memset(&a, 0, sizeof(a));
	assert_int_equal(feed(&a, text_of), 1);
	assert_int_equal(a.gpus, 2);
}

TEST(junk_is_refused)
{
	static const char *const junk[] = {
		"S",
		"S\t",
		"X\t1",
		"hello",
		G,
		P("0"),
		R,
		"E\t0\t0\t0",
		S "\t",
		S "\t1",
		"S\t1\t2\t3600\t2\t5\t0\t0",
		"S\t-1\t2\t3600\t0\t5\t0\t0",
		"S\t1x\t2\t3600\t0\t5\t0\t0",
		"S\t18446744073709551616\t2\t3600\t0\t5\t0\t0",
		"S\t1\t2\t3000000000\t0\t5\t0\t0",
		"S\t1\t2\t3600\t0\t5\t4294967296\t0",
		S "\nE\t1\t0\t0",
		S "\nE\t0\t0",
		S "\n" P("0"), /* a process on a GPU that the scene does not have */
		S "\n" G "\n" P("1"),
		S "\n" G "\n" P("64"),
		S "\n" G "\n" P("-"),
		S "\nR\t32\t7\t9", /* a policy has at most 32 workers */
		S "\nG\tu\t-\t0\t-2\tfine\t0\t0\t0\t9\t8\t1\t1\t40\t-\t0",
		S "\nG\tu\t-\t0\t-2\tok\t0\t0\t0\t9\t8\t1\t1\tnan\t-\t0",
		S "\nG\tu\t-\t0\t-2\tok\t0\t0\t0\t9\t8\t1\t1\tinf\t-\t0",
		S "\nG\tu\t-\t0\t-2\tok\t0\t0\t0\t9\t8\t1\t1\t1e999\t-\t0",
		S "\nG\tu\\\t-\t0\t-2\tok\t0\t0\t0\t9\t8\t1\t1\t4\t-\t0",
		S "\nG\tu\\00\t-\t0\t-2\tok\t0\t0\t0\t9\t8\t1\t1\t4\t-\t0",
		S "\nG\tu\t0123456789abcdef\t0\t-2\tok\t0\t0\t0\t9\t8\t1\t1\t4\t-\t0",
		S "\n" G
		  "\nP\t7\t9\t-1\t0\t1\t5\t1\t-\t0\t0\t0\ta name of 16 byt\t-\t-\t-\t-\t-",
		S "\n" G "\nP\t7\t9\t-1\t0\t1\t5\t1\t-\t0\t0\t0\tn\t-\t-\t-\t-\t1,,2",
		S "\n" G "\nP\t7\t9\t-1\t0\t1\t5\t1\t-\t0\t0\t0\tn\t-\t-\t-\t-\t0",
		S "\n" G "\nP\t7\t9\t-1\t0\t1\t5\t1\t-\t0\t0\t0\tn\t-\t-\t-\t-\t"
		  "1,2,3,4,5,6,7,8,9,10,11,12,13",
	};

	for (size_t i = 0; i < COUNT_OF(junk); i++) {
		char line[SCENE_LINE_MAX];

		memset(&a, 0, sizeof(a));
		snprintf(line, sizeof(line), "%s", junk[i]);
		if (feed(&a, line) != -GW_E_PARSE)
			fail_msg("taken: %s", junk[i]);
		assert_int_equal(scene_read(&a, ""), -GW_E_PARSE);
		/* lines are refused until a scene begins */
		assert_int_equal(scene_read(&a, G), -GW_E_PARSE);
		assert_int_equal(scene_read(&a, S), 0);
	}
}

TEST(more_than_there_is_room_for_is_refused)
{
	memset(&a, 0, sizeof(a));
	assert_int_equal(scene_read(&a, S), 0);
	for (unsigned i = 0; i < SCENE_GPUS; i++)
		assert_int_equal(scene_read(&a, G), 0);
	for (unsigned i = 0; i < SCENE_PROCESSES; i++)
		assert_int_equal(scene_read(&a, P("63")), 0);
	assert_int_equal(scene_read(&a, P("63")), -GW_E_PARSE);
	assert_int_equal(scene_read(&a, S), 0);
	for (unsigned i = 0; i < SCENE_ROOTS; i++)
		assert_int_equal(scene_read(&a, R), 0);
	assert_int_equal(scene_read(&a, R), -GW_E_PARSE);
	assert_int_equal(scene_read(&a, S), 0);
	for (unsigned i = 0; i < SCENE_GPUS; i++)
		assert_int_equal(scene_read(&a, G), 0);
	assert_int_equal(scene_read(&a, G), -GW_E_PARSE);
}

TEST(invalid_change_lines_are_refused)
{
	static const char *const lines[] = {
		"D\t1",
		"D\t-1\t0",
		"D\t1\tx",
		"D\t1\t0\t",
		"D\t1\t0\tS1.4=1",
		"D\t1\t0\tG1.8=1",
		"D\t1\t0\tG0.15=1",
		"D\t1\t0\tG0.8",
		"D\t1\t0\tP0.3=1",
		"D\t1\t0\tE0.0=1",
		"D\t1\t0\tG0.4=ill",
		"D\t1\t0\tR0.99=1",
		"D\t1\t0\tG.8=1",
		"D\t1\t0\tG0.8=",
	};

	memset(&a, 0, sizeof(a));
	/* no scene precedes this line */
	assert_int_equal(scene_read(&a, "D\t1\t0"), -GW_E_PARSE);
	for (size_t i = 0; i < COUNT_OF(lines); i++) {
		char whole[] = S "\n" G "\n" P("0") "\n" R "\nE\t1\t1\t1";

		assert_int_equal(feed(&a, whole), 1);
		assert_int_equal(scene_read(&a, "D\t1\t0\tG0.8=7\tR0.0=1"), 1);
		assert_int_equal(a.gpu[0].total_bytes, 7);
		assert_int_equal(a.root[0].worker, 1);
		if (scene_read(&a, lines[i]) != -GW_E_PARSE)
			fail_msg("taken: %s", lines[i]);
		assert_int_equal(scene_read(&a, "D\t1\t0"), -GW_E_PARSE);
	}
}

TEST_MAIN(NULL, NULL)
