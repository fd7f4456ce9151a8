#include "result_set.h"

#include "output.h"

#include "base/suggest.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <sys/stat.h>

/* True if file i was already named earlier on the command line. Reading it again would count it
 * as a second trial and make intervals too narrow. */
static bool given_twice(const struct cli *c, int i)
{
	struct stat a, b;

	if (stat(c->argv[i], &a) != 0 || !S_ISREG(a.st_mode))
		return false;
	for (int k = 0; k < i; k++)
		if (stat(c->argv[k], &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
			return true;
	return false;
}

/* True if the last result is a copy of an earlier one.  A bundle contains a copy of the file
 * that -o wrote. */
static bool is_copy(const struct result_set *r)
{
	const struct result_file *last = &r->v[r->n - 1];

	for (size_t i = 0; i + 1 < r->n; i++)
		if (result_file_same(&r->v[i], last)) {
			cli_error("%s and %s are the same measurement; give only one of them",
				  r->v[i].path, last->path);
			return true;
		}
	return false;
}

static int refuse_mixture(const struct result_set *r)
{
	struct buf b;
	int code = EXIT_OK;

	buf_init(&b, 1u << 16);
	if (comparison_mixes_gpus(r->v, r->n, &b)) {
		buf_adds(&b, ": results of different GPUs are not compared by default; to "
			     "compare them, give --across-gpus");
		code = cli_usage("%s", b.p);
	}
	buf_done(&b);
	return code;
}

static int result_set_load(struct result_set *r, const struct cli *c, bool across)
{
	char error[512];
	int code = EXIT_OK;

	if (c->argc == 0)
		return cli_usage("name at least one result file of gpuward measure");
	r->v = calloc((size_t)c->argc, sizeof(*r->v));
	if (!r->v)
		return cli_no_memory();
	for (int i = 0; i < c->argc; i++) {
		if (given_twice(c, i))
			return cli_usage("%s is given twice; give it only once", c->argv[i]);
		if (result_file_read(&r->v[r->n], c->argv[i], NULL, 0, error, sizeof(error)) ==
		    0) {
			r->n++;
			if (is_copy(r))
				return EXIT_USAGE;
		} else {
			code = cli_fail("%s", error);
		}
	}
	return code == EXIT_OK && !across ? refuse_mixture(r) : code;
}

int result_set_with(const struct cli *c, const char *output, bool across,
		    int (*work)(const struct cli *c, const struct result_set *r))
{
	struct result_set r = { .v = NULL };
	int code = output_spares(output, c->argv, c->argc);

	if (code == EXIT_OK)
		code = result_set_load(&r, c, across);
	if (code == EXIT_OK)
		code = work(c, &r);
	for (size_t i = 0; i < r.n; i++)
		result_file_free(&r.v[i]);
	free(r.v);
	return code;
}

static int refuse_reference(const struct comparison *c, const char *label)
{
	const char *near = suggest(label, (const char *const *)&c->rows[0].label, c->nrows,
				   sizeof(c->rows[0]));
	char clean[200], list[600] = "";
	struct buf b;

	if (near) {
		utf8_clean(clean, sizeof(clean), near);
		return cli_usage("--reference: no result has the label '%s' (did you mean "
				 "'%s'?)",
				 label, clean);
	}
	buf_init_fixed(&b, list, sizeof(list));
	for (size_t i = 0; i < c->nrows && b.len < 400; i++) {
		utf8_clean(clean, sizeof(clean), c->rows[i].label);
		buf_addf(&b, "%s'%s'", i ? ", " : "", clean);
	}
	return cli_usage("--reference: no result has the label '%s'; the labels are: %s", label,
			 list);
}

int result_set_compare(const struct result_set *r, const char *reference,
		       struct comparison *ret)
{
	int err = comparison_init(ret, r->v, r->n, reference);

	if (err == -GW_E_NOENT)
		return refuse_reference(ret, reference);
	if (err)
		return cli_no_memory();
	if (reference && ret->reference->used == 0)
		return cli_fail("--reference: '%s' has no usable run, so nothing can be "
				"compared with it",
				reference);
	return EXIT_OK;
}
