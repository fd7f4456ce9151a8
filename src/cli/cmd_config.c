/* config: checks and prints the configuration of the service. */
#include "cli.h"
#include "output.h"

#include "daemon/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct given {
	bool origin, example;
	const char *config;
};

#define AT(member) offsetof(struct given, member)
static const struct option options[] = {
	OPTION_ROW(FLAG, 0, "origin", AT(origin), NULL,
		   "print: show for each value where it was set"),
	OPTION_ROW(FLAG, 0, "example", AT(example), NULL,
		   "print: write all settings with their defaults as comments, for a new "
		   "configuration file"),
	OPTION_ROW(TEXT, 0, "config", AT(config), "FILE",
		   "read this file; the same as the argument FILE"),
	OPTION_END,
};

struct reading {
	struct config config;
	struct config_faults faults;
	int err;
};

static void print_faults(const struct config_faults *f, bool warnings)
{
	for (unsigned i = 0; i < f->count; i++) {
		struct buf line;

		if (f->fault[i].warning && !warnings)
			continue;
		buf_init(&line, 8192);
		config_fault_text(&line, &f->fault[i]);
		fprintf(stderr, "%s\n", line.p);
		buf_done(&line);
	}
	if (f->more)
		fprintf(stderr, "and %u more\n", f->more);
}

static int check_text(const struct cli *c, const struct reading *r)
{
	const char *files = config_files(&r->config);

	print_faults(&r->faults, !c->quiet);
	if (r->err)
		return EXIT_USAGE;
	if (!c->quiet && *files)
		printf("%s: ok\n", files);
	else if (!c->quiet)
		printf("no configuration file found; the defaults are used\n");
	return EXIT_OK;
}

static int print_text(const struct cli *c, const struct reading *r)
{
	const struct given *g = c->own;
	struct buf out;
	int code;

	print_faults(&r->faults, !c->quiet);
	if (r->err)
		return EXIT_USAGE;
	buf_init(&out, (size_t)1 << 24);
	if (g->example)
		config_print_example(&out, &r->config);
	else
		config_print(&out, &r->config, g->origin);
	code = output_write(NULL, &out, true);
	buf_done(&out);
	return code;
}

static void fault_json(struct json *j, const struct config_fault *f)
{
	struct config_fault bare = *f;
	struct buf text;
	bool file = f->at.from == CONFIG_FILE;

	buf_init(&text, 8192);
	bare.warning = false;
	if (file)
		bare.at = (struct config_place){ 0 };
	/* if the mistake is not in a file, the text names the variable or option */
	config_fault_text(&text, &bare);
	json_object(j, NULL);
	json_string(j, "file", file ? f->at.name : NULL);
	if (f->at.line) {
		json_uint(j, "line", f->at.line);
		json_uint(j, "column", f->at.column);
	} else {
		json_null(j, "line");
		json_null(j, "column");
	}
	json_string(j, "message", text.p);
	json_object_end(j);
	buf_done(&text);
}

static void faults_json(struct json *j, const char *key, const struct config_faults *f,
			bool warnings)
{
	json_array(j, key);
	for (unsigned i = 0; i < f->count; i++)
		if (f->fault[i].warning == warnings)
			fault_json(j, &f->fault[i]);
	json_array_end(j);
}

static int print_json(const struct reading *r, bool values)
{
	struct cli_document doc;
	int code;

	cli_document_begin(&doc, true);
	json_object(&doc.json, NULL);
	json_int(&doc.json, "schema_version", RENDER_SCHEMA_VERSION);
	json_bool(&doc.json, "ok", r->err == 0);
	json_array(&doc.json, "files");
	for (unsigned i = 0; config_file(&r->config, i); i++)
		json_string(&doc.json, NULL, config_file(&r->config, i));
	json_array_end(&doc.json);
	faults_json(&doc.json, "errors", &r->faults, false);
	faults_json(&doc.json, "warnings", &r->faults, true);
	json_uint(&doc.json, "more", r->faults.more);
	if (values && r->err == 0)
		config_json(&doc.json, &r->config);
	json_object_end(&doc.json);
	code = cli_document_end(&doc);
	return code == EXIT_OK && r->err ? EXIT_USAGE : code;
}

static int config_run(struct cli *c)
{
	bool check = c->argc >= 1 && strcmp(c->argv[0], "check") == 0;
	bool print = c->argc >= 1 && strcmp(c->argv[0], "print") == 0;
	const struct given *g = c->own;
	struct reading *r;
	int code;

	if ((!check && !print) || c->argc > 2 || (g->config && c->argc == 2))
		return cli_usage(
			"usage: gpuward config check [FILE] or gpuward config print [FILE]");
	if (check && (g->origin || g->example))
		return cli_usage("%s works only with config print",
				 g->origin ? "--origin" : "--example");
	if (g->origin && g->example)
		return cli_usage("--origin and --example exclude each other: give one of them");
	r = calloc(1, sizeof(*r));
	if (!r)
		return cli_no_memory();
	r->err = config_read(&r->config, c->argc == 2 ? c->argv[1] : g->config, NULL, 0,
			     &r->faults);
	if (check)
		r->err = config_read_files(&r->config, &r->faults);
	if (c->json)
		code = print_json(r, print);
	else
		code = check ? check_text(c, r) : print_text(c, r);
	config_done(&r->config);
	config_faults_done(&r->faults);
	free(r);
	return code;
}

const struct command command_config = {
	.name = "config",
	.summary = "check or print the configuration of the service",
	.description = "Reads the configuration as gpuward serve does: FILE, or else the files "
		       "in their usual places, then environment variables. check reports each "
		       "mistake with its line. print writes the resulting configuration with "
		       "comments, in the format of the file.",
	.examples = "  gpuward config check\n"
		    "  gpuward config check /tmp/gpuward.toml\n"
		    "  gpuward config print --origin\n"
		    "  gpuward config print --example >gpuward.toml\n",
	.arguments = "check|print [FILE]",
	.options = options,
	.options_size = sizeof(struct given),
	.offline = true,
	.run = config_run,
};
