/* Any content of one file of a bundle: the bundle is recomputed or refused with a message. The
 * first byte of the input selects the file; the other files come from tests/fixtures. */
#include "text.h"

#include "measure/bundle.h"

#include <gpuward.h>

#include "../unit/tree.h"

#include <math.h>

#define FILES 6

static const char *const names[FILES] = { "manifest.toml",    "gpu0.setup.toml",
					  "gpu0.sensor.toml", "gpu0.events",
					  "windows.tsv",      "SHA256SUMS" };
static struct tree tree;

static void remove_tree(void)
{
	tree_done(&tree);
}

/* Makes a small bundle with only the first events, because each execution reads all events. */
static void start(void)
{
	static char text[8000];
	char path[512];

	tree_init(&tree);
	atexit(remove_tree);
	for (unsigned i = 0; i < FILES; i++) {
		FILE *f;
		size_t n;

		snprintf(path, sizeof(path), "%s/%s", FUZZ_BUNDLE, names[i]);
		f = fopen(path, "r");
		if (!f)
			abort();
		n = fread(text, 1, sizeof(text), f);
		fclose(f);
		tree_bytes(&tree, names[i], text, n);
	}
}

static void check_window(void *arg, const struct bundle_found *f)
{
	(void)arg;
	if (!f->label || !f->setup || f->energy.joules.low > f->energy.joules.high)
		abort();
}

static void check_power(void *arg, uint64_t t_ns, double watts)
{
	(void)arg;
	(void)t_ns;
	if (!isfinite(watts))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char message[400] = "", name[100];
	struct bundle_summary s;
	const char *file;
	bool simulated;

	if (size == 0)
		return 0;
	if (!tree.path[0])
		start();
	file = names[data[0] % FILES];
	renameat(tree.root.fd, file, tree.root.fd, "kept");
	tree_bytes(&tree, file, (const char *)data + 1, size - 1);
	if (bundle_recompute(tree.path, check_window, NULL, &s, message, sizeof(message)) !=
		    0 &&
	    !*message)
		abort();
	bundle_power(tree.path, 0, check_power, NULL, name, sizeof(name), &simulated, message,
		     sizeof(message));
	renameat(tree.root.fd, "kept", tree.root.fd, file);
	return 0;
}
