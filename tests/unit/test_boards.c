/* Tests the figures of AMD and Intel boards with file contents that other people recorded.
 *
 * Each file of tests/fixtures/boards is one board with one kernel: the contents of its files and
 * the figures that gpuward must show. tests/fixtures/README.md explains the lines of a file. */
#include "gpu_tree.h"

#include <ctype.h>
#include <dirent.h>
#include <glob.h>

#define BOARDS_MIN 18

/* The board that is being read. */
static struct {
	char source[300]; /* file and line, for messages */
	char gpu[128];    /* folder of the PCI device */
	bool open;
} board;

static _Noreturn void refuse(const char *what)
{
	fail_msg("%s: %s", board.source, what);
	abort();
}

/* Returns the next word of a line and ends it with a NUL. */
static char *take_word(char **line)
{
	char *word = *line + strspn(*line, " ");
	size_t n = strcspn(word, " ");

	if (n == 0)
		refuse("a word is missing");
	*line = word + n + (word[n] != '\0');
	word[n] = '\0';
	return word;
}

static unsigned quantity_named(const char *key)
{
	for (unsigned q = 0; q < GW_QUANTITIES; q++)
		if (strcmp(gw_quantity_info(q)->key, key) == 0)
			return q;
	refuse("no quantity has this name");
}

/* "backend NAME": starts an empty world. */
static void do_backend(char *line)
{
	const char *name = take_word(&line);

	world_init(strcmp(name, "intel") == 0 ? &backend_intel : &backend_amdgpu);
	assert_string_equal(name, w->b.ops->name);
	tree_put(&w->tree, "proc/uptime", "100.00 100.00\n");
}

/* "gpu [PORT]... PCI": the PCI ids of the ports above the GPU, from the root port down, and
 * then the PCI id of the GPU. */
static void do_gpu(char *line)
{
	char folder[200] = "", link[300], target[300];
	const char *pci = NULL;

	while (*line) {
		pci = take_word(&line);
		snprintf(folder + strlen(folder), sizeof(folder) - strlen(folder), "/%s", pci);
	}
	if (!pci)
		refuse("the PCI id is missing");
	snprintf(board.gpu, sizeof(board.gpu), PCI "%s", pci);
	snprintf(target, sizeof(target), "sys/devices/pci0000:00%s/", folder);
	tree_folders(&w->tree, target);
	snprintf(target, sizeof(target), "-> ../../../devices/pci0000:00%s", folder);
	snprintf(link, sizeof(link), "%s", board.gpu);
	tree_put(&w->tree, link, target);
}

/* Writes the path of a file: below the GPU, or in /proc. */
static void full_path(const char *path, char *out, size_t size)
{
	if (strncmp(path, "proc/", 5) == 0)
		snprintf(out, size, "%s", path);
	else
		snprintf(out, size, "%s/%s", board.gpu, path);
}

/* "file PATH TEXT": \n and \t in the text are a newline and a tab; a newline is added. */
static void do_file(char *line)
{
	char path[400], text[4000];
	size_t n = 0;

	full_path(take_word(&line), path, sizeof(path));
	for (; *line && n < sizeof(text) - 2; line++, n++) {
		text[n] = *line;
		if (line[0] == '\\' && (line[1] == 'n' || line[1] == 't'))
			text[n] = *++line == 'n' ? '\n' : '\t';
	}
	text[n] = '\0';
	/* a link, as tree_put() takes it, has no newline */
	if (strncmp(text, "-> ", 3) != 0)
		text[n++] = '\n';
	text[n] = '\0';
	tree_put(&w->tree, path, text);
}

/* "hex PATH DIGITS...": a binary file; "*N" repeats the previous byte N more times. */
static void do_hex(char *line)
{
	char path[400], bytes[4096];
	size_t n = 0;

	full_path(take_word(&line), path, sizeof(path));
	while (*line) {
		const char *word = take_word(&line);
		unsigned v, used = 0;

		if (word[0] == '*') {
			for (long again = strtol(word + 1, NULL, 10);
			     again > 0 && n > 0 && n < sizeof(bytes); again--, n++)
				bytes[n] = bytes[n - 1];
			continue;
		}
		for (; n < sizeof(bytes) && sscanf(word + used, "%2x", &v) == 1; used += 2)
			bytes[n++] = (char)v;
	}
	tree_bytes(&w->tree, path, bytes, n);
}

/* "read": reads all figures. The first "read" also opens the GPU. */
static void do_read(char *line)
{
	if (!board.open)
		world_open(1);
	board.open = true;
	r = world_read(0, GW_TIERS_ALL);
	assert_int_equal(r->state, GW_DEVICE_OK);
}

/* "wait SECONDS" */
static void do_wait(char *line)
{
	clock_step(&w->clock, (uint64_t)(strtod(take_word(&line), NULL) * NS_PER_S));
}

static void do_want(char *line)
{
	unsigned q = quantity_named(take_word(&line));
	const char *text = take_word(&line);
	double want = strtod(text, NULL);

	if (isdigit((unsigned char)text[0])) {
		if (r->why[q] != GW_HAVE)
			refuse(gw_absence_key(r->why[q]));
		if (r->v[q] < want * (1 - 1e-9) || r->v[q] > want * (1 + 1e-9))
			fail_msg("%s: the value is %.12g", board.source, r->v[q]);
	} else if (strcmp(gw_absence_key(r->why[q]), text) != 0) {
		fail_msg("%s: the reason is \"%s\", the value %g", board.source,
			 gw_absence_key(r->why[q]), r->v[q]);
	}
}

static void do_name(char *line)
{
	assert_text(r, GW_T_NAME, line);
}

/* "process PID BYTES": the process is in the list with this memory. */
static void do_process(char *line)
{
	struct usage_list l = { 0 };
	long long pid = strtoll(take_word(&line), NULL, 10);
	unsigned long long bytes = strtoull(take_word(&line), NULL, 10), found = 0;
	int err;

	assert_int_equal(w->b.ops->processes(w->b.slot[0], &l, &err), GW_HAVE);
	for (unsigned i = 0; i < l.count; i++)
		if (l.p[i].pid == pid && l.p[i].memory_why == GW_HAVE)
			found = l.p[i].memory_bytes;
	usage_done(&l);
	if (found != bytes)
		fail_msg("%s: the memory is %llu", board.source, found);
}

static void do_line(char *line)
{
	static const struct {
		const char *word;
		void (*fn)(char *line);
	} command[] = {
		{ "backend", do_backend }, { "gpu", do_gpu },   { "file", do_file },
		{ "hex", do_hex },         { "read", do_read }, { "wait", do_wait },
		{ "want", do_want },       { "name", do_name }, { "process", do_process },
	};
	const char *word;

	line[strcspn(line, "\n")] = '\0';
	if (line[0] == '\0' || line[0] == '#')
		return;
	word = take_word(&line);
	for (size_t i = 0; i < COUNT_OF(command); i++) {
		if (strcmp(command[i].word, word) != 0)
			continue;
		command[i].fn(line);
		return;
	}
	refuse("the line begins with an unknown word");
}

static void check_board(const char *path)
{
	FILE *f = fopen(path, "re");
	unsigned number = 0;
	bool has_source = false;
	char line[6000];

	assert_non_null(f);
	memset(&board, 0, sizeof(board));
	while (fgets(line, sizeof(line), f)) {
		snprintf(board.source, sizeof(board.source), "%s:%u", strrchr(path, '/') + 1,
			 ++number);
		has_source = has_source || strncmp(line, "# source: ", 10) == 0;
		do_line(line);
	}
	fclose(f);
	if (!has_source || !board.open)
		refuse("the board has no line \"# source: \" or no line \"read\"");
	world_teardown(NULL);
}

TEST(every_recorded_board_has_its_figures)
{
	const char *source = getenv("GPUWARD_TEST_SOURCE");
	char pattern[300];
	glob_t g;

	snprintf(pattern, sizeof(pattern), "%s/tests/fixtures/boards/*.board",
		 source ? source : ".");
	assert_int_equal(glob(pattern, 0, NULL, &g), 0);
	assert_true(g.gl_pathc >= BOARDS_MIN);
	for (size_t i = 0; i < g.gl_pathc; i++)
		check_board(g.gl_pathv[i]);
	globfree(&g);
}

TEST_MAIN(NULL, NULL)
