/* Tests that the OpenAPI document is JSON and describes every route of the table.
 * tests/e2e/openapi_check.py checks more; GPUWARD_OPENAPI=FILE writes the document,
 * GPUWARD_EXAMPLES=DIR the examples. */
#include "api_fixture.h"

#include "measure/model_energy.h"

#include <ctype.h>

API_TEST(every_route_is_described_with_its_method)
{
	static const char *const methods[] = { [HTTP_GET] = "get",
					       [HTTP_POST] = "post",
					       [HTTP_PUT] = "put",
					       [HTTP_DELETE] = "delete" };
	char version[32];

	begin(TWO_GPUS);
	get("/openapi.json", 200);
	at("openapi", "\"3.1.0\"");
	snprintf(version, sizeof(version), "\"%s\"", gw_version());
	at("info.version", version);
	for (unsigned i = 0; i < api_route_count; i++) {
		const char *path = api_routes[i].path;
		size_t n = strcspn(path, "*");
		char where[160], *got;

		if (strchr(path, '.')) /* json_at() splits its path at dots */
			continue;
		if (strstr(path, "/reset")) /* not listed, because it never succeeds */
			continue;
		snprintf(where, sizeof(where), "paths.%.*s%s.%s.operationId", (int)n, path,
			 path[n] ? "{file}" : "", methods[api_routes[i].method]);
		got = json_at(t.reply.body.p, where);
		if (!got)
			fail_msg("%s is not described", where);
		free(got);
	}
}

/* Fails if the operation does not describe the parameter whose name has n bytes. */
static void assert_parameter(const char *where, const char *in, const char *name, size_t n)
{
	char path[160], wanted[64], *got_in, *got_name;
	bool found = false, more = true;

	snprintf(wanted, sizeof(wanted), "\"%.*s\"", (int)n, name);
	for (unsigned i = 0; more && !found; i++) {
		snprintf(path, sizeof(path), "%s.parameters.%u.in", where, i);
		got_in = json_at(t.reply.body.p, path);
		snprintf(path, sizeof(path), "%s.parameters.%u.name", where, i);
		got_name = json_at(t.reply.body.p, path);
		more = got_in && got_name;
		found = more && strncmp(got_in + 1, in, strlen(in)) == 0 &&
			strcmp(got_name, wanted) == 0;
		free(got_in);
		free(got_name);
	}
	if (!found)
		fail_msg("%s: the parameter %s is not described", where, wanted);
}

API_TEST(every_parameter_of_a_route_is_described)
{
	static const struct {
		const char *method, *path, *params;
	} routes[] = {
#define R(id, method, path, handler, flags, tag, params, ...) { #method, path, params },
#include "serve/routes.def"
#undef R
	};

	begin(TWO_GPUS);
	get("/openapi.json", 200);
	for (unsigned i = 0; i < COUNT_OF(routes); i++) {
		const char *path = routes[i].path;
		char where[128], method[8] = "";

		for (unsigned c = 0; routes[i].method[c]; c++)
			method[c] = (char)tolower(routes[i].method[c]);
		if (strpbrk(path, ".*") || strstr(path, "/reset"))
			continue;
		snprintf(where, sizeof(where), "paths.%s.%s", path, method);
		for (const char *p = strchr(path, '{'); p; p = strchr(p + 1, '{'))
			assert_parameter(where, "path", p + 1, strcspn(p + 1, "}"));
		for (const char *p = routes[i].params; *p && *p != '*';) {
			size_t n = strcspn(p, " ");

			assert_parameter(where, "query", p, n);
			p += n + strspn(p + n, " ");
		}
	}
}

static void write_file(const char *dir, const char *name)
{
	char path[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s%s%s", dir, *name ? "/" : "", name);
	f = fopen(path, "w");
	assert_non_null(f);
	fputs(t.reply.body.p, f);
	fclose(f);
}

/* Two servers: one has a token counter, the other has none. */
static void load_models(void)
{
	static struct model_energy m;
	const char *uuid = gw_device_text(gw_snapshot_device(t.api.view.snap, 0), GW_T_UUID);
	struct model_worker *w;
	static struct model_list l = { .count = 1, .fresh = true };

	memset(&m, 0, sizeof(m));
	w = model_energy_worker(&m, "chat");
	w->present = true;
	for (unsigned i = 0; i <= 8; i++) {
		snprintf(l.of[0].model, sizeof(l.of[0].model), "qwen3-8b");
		l.of[0].tokens[MODEL_PROMPT] = 2000.0 * i;
		l.of[0].tokens[MODEL_GENERATED] = 1200.0 * i;
		if (i)
			model_energy_add(&m, w, 4100000, uuid, 4500, "measured");
		model_energy_settle(&m, w, &l, (100 + 15 * i) * NS_PER_S);
	}
	w = model_energy_worker(&m, "ollama");
	w->present = true;
	snprintf(w->why, sizeof(w->why), "Ollama has no token counter");
	snprintf(l.of[0].model, sizeof(l.of[0].model), "llama3:8b");
	l.of[0].tokens[MODEL_PROMPT] = l.of[0].tokens[MODEL_GENERATED] = NAN;
	model_energy_add(&m, w, 4100001, uuid, 800, "measured");
	model_energy_settle(&m, w, &l, 100 * NS_PER_S);
	model_energy_add(&m, w, 4100001, uuid, 120, "measured");
	t.api.view.models = &m;
}

API_TEST(the_models_have_tokens_and_joules_per_token)
{
	begin(TWO_GPUS);
	get("/api/v1/models", 200);
	at("models", "[]");
	load_models();
	get("/api/v1/models", 200);
	at("models.0.model", "\"qwen3-8b\"");
	at("models.0.generated_tokens", "9600");
	at("models.0.energy_joules", "36000");
	at("models.0.last_minute.seconds", "60");
	at("models.0.last_minute.joules_per_token", "3.75");
	at("models.0.since_start.tokens_per_second", "80");
	at("models.1.generated_tokens", "null");
	at("models.1.tokens_absent", "\"Ollama has no token counter\"");
	at("models.1.since_start.joules_per_token_absent", "\"the tokens are unknown\"");
	at("workers.1.waiting_joules", "120");
}

static void examples(const char *dir)
{
	static const struct {
		const char *name, *target;
	} rows[] = {
		{ "getGpuDevices.json", "/api/gpu/devices" },
		{ "getGpuDriver.json", "/api/gpu/driver" },
		{ "getSnapshot.json", "/api/v1/snapshot?gpu=0" },
		{ "getDevices.json", "/api/v1/devices?gpu=0" },
		{ "getDevice.json", "/api/v1/devices/0" },
		{ "getDeviceSeries.json", "/api/v1/devices/0/series?from=-1m&step=10s" },
		{ "getSeries.json", "/api/v1/series?gpu=0&from=-1m&step=10s" },
		{ "getProcesses.json", "/api/v1/processes?gpu=0" },
		{ "getProcessesHistory.json", "/api/v1/processes/history?gpu=0" },
		{ "getModels.json", "/api/v1/models" },
		{ "getWorkloads.json", "/api/v1/workloads?gpu=0" },
		{ "getWorkloadsHistory.json",
		  "/api/v1/workloads/history?running=with&kind=slurm" },
		{ "getEnvironment.json", "/api/v1/environment?gpu=0" },
		{ "getSensors.json", "/api/v1/sensors" },
		{ "getEvents.json", "/api/v1/events?limit=2" },
		{ "getSelf.json", "/api/v1/self" },
		{ "getHealthz.txt", "/healthz" },
		{ "getLivez.txt", "/livez" },
		{ "getHealthy.txt", "/-/healthy" },
		{ "getReadyz.txt", "/readyz" },
		{ "getReady.txt", "/-/ready" },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		get(rows[i].target, 200);
		write_file(dir, rows[i].name);
	}
}

static void window_examples(const char *dir)
{
	char path[96];

	post("/api/v1/windows", "{\"label\":\"prefill\",\"gpus\":[\"0\"]}", 201);
	write_file(dir, "openWindow.json");
	snprintf(path, sizeof(path), "%s/marks", fake_find(&fake.out, "Location"));
	run_for(8);
	post(path, "{\"label\":\"decode\"}", 201);
	write_file(dir, "markWindow.json");
	run_for(12);
	strcpy(strrchr(path, '/'), "/stop");
	post(path, "", 200);
	write_file(dir, "stopWindow.json");
	*strrchr(path, '/') = '\0';
	get(path, 200);
	write_file(dir, "getWindow.json");
	get("/api/v1/windows", 200);
	write_file(dir, "getWindows.json");
	t.ask_done = true;
	post("/api/v1/let-go", "", 200);
	write_file(dir, "letGo.json");
	post("/api/v1/resume", "", 200);
	write_file(dir, "resume.json");
}

API_TEST(the_document_and_its_examples_are_written)
{
	const char *out = getenv("GPUWARD_OPENAPI"), *dir = getenv("GPUWARD_EXAMPLES");

	begin("[[gpu]]\nprofile = \"h200\"\n"
	      "[[gpu.load]]\nkind = \"constant\"\nlevel = 0.5\n"
	      "[[gpu.process]]\nname = \"worker\"\nmemory = \"2 GiB\"\npid = 4100000\n");
	if (out) {
		get("/openapi.json", 200);
		write_file(out, "");
	}
	if (dir) {
		load_models();
		examples(dir);
		window_examples(dir);
	}
}

TEST_MAIN(sim_setup, NULL)
