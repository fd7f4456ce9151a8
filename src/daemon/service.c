#include "service.h"

#include "container_resolver.h"
#include "suspend.h"
#include "engine.h"
#include "fleet_watch.h"
#include "notify.h"
#include "push.h"
#include "store.h"
#include "uevent.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem_trim.h"
#include "base/text.h"
#include "base/utf8.h"
#include "serve/api.h"
#include "serve/metrics.h"
#include "serve/windows.h"

#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define EVENT_PAIRS  20
#define MESSAGE_MAX  2000
#define TEXTFILE_MAX (4 * 1024 * 1024)
/* Maximum time for stopping, even if a driver call hangs. */
#define END_NS        (5 * NS_PER_S)
#define STORE_END_NS  NS_PER_S /* Maximum time for the last write of the store. */
#define STREAM_BYTES  (256 * 1024)
#define MEMORY_BYTES  (8 * 1024 * 1024) /* Maximum size of the history without a file. */
#define LISTENERS_MAX (CONFIG_LIST_MAX + NOTIFY_SOCKETS)

struct service {
	const struct service_options *options;
	struct config config;
	struct log log;
	struct loop *loop;
	struct loop_source *signals, *watchdog;
	struct store *store;
	struct engine *engine;
	struct container_resolver *containers;
	struct suspend *suspend;
	struct uevent *uevent;
	struct fleet_watch *fleet; /* NULL if no Prometheus is configured. */
	struct api api;
	struct textfile textfile; /* Not used if its path is empty. */
	struct push *push;        /* NULL until a push is configured. */
	struct log_latch store_bad, no_gpus, rests;
	struct notify notify;
	bool announced; /* The first tick was reported to systemd. */
	int end;
};

static enum log_level level_of(const char *severity)
{
	return strcmp(severity, "error") == 0     ? LOG_ERROR
	       : strcmp(severity, "warning") == 0 ? LOG_WARNING
						  : LOG_INFO;
}

/* Writes one log line per line of a message. */
static void log_lines(struct service *s, enum log_level level, char *message)
{
	for (char *line = message, *end; line && *line; line = end) {
		end = strchr(line, '\n');
		if (end)
			*end++ = '\0';
		if (*line)
			log_write(&s->log, level, line, NULL, 0);
	}
}

static void log_request(void *arg, const struct request *q, const struct reply *r,
			double seconds)
{
	struct service *s = ((struct api *)arg)->daemon;

	LOG(&s->log, r->status >= 500 ? LOG_WARNING : LOG_DEBUG, "request",
	    LOG_S("path", q->path), LOG_I("status", r->status), LOG_S("who", q->who),
	    LOG_S("id", q->id), LOG_D("seconds", seconds));
}

static void event_happened(void *arg, const struct view_event *e)
{
	struct service *s = arg;
	struct log_pair pair[EVENT_PAIRS];
	unsigned n = 0;
	struct buf line;

	pair[n++] = LOG_S("event", e->kind);
	if (e->uuid)
		pair[n++] = LOG_S("uuid", e->uuid);
	for (unsigned i = 0; i < e->pairs && n < EVENT_PAIRS; i++)
		pair[n++] = e->pair[i];
	log_write(&s->log, level_of(e->severity), e->text, pair, n);
	buf_init(&line, 4096);
	api_event_json(&line, e);
	if (!line.err)
		stream_push(s->api.stream,
			    strcmp(e->kind, "guard") == 0 ? STREAM_EVENT | STREAM_GUARD
							  : STREAM_EVENT,
			    "event", e->id, line.p, line.len);
	buf_done(&line);
}

static void push_tick(struct service *s)
{
	struct buf line;

	if (!stream_is_followed(s->api.stream, STREAM_TICK))
		return;
	api_look(&s->api);
	api_follow(&s->api);
	buf_init(&line, 1 << 20);
	api_tick_json(&line, &s->api.view);
	if (!line.err)
		stream_push(s->api.stream, STREAM_TICK, "tick", 0, line.p, line.len);
	buf_done(&line);
}

static void write_textfile(struct service *s)
{
	char message[MESSAGE_MAX] = "";
	bool news = false;
	struct buf text;
	int err;

	if (!*s->textfile.path)
		return;
	api_follow(&s->api);
	if (s->api.top)
		api_look(&s->api);
	buf_init(&text, TEXTFILE_MAX);
	metrics_render(&text, &s->api, METRICS_PROMETHEUS);
	err = textfile_write(&s->textfile, text.p, text.len, &news, message, sizeof(message));
	buf_done(&text);
	if (news)
		LOG(&s->log, err ? LOG_ERROR : LOG_INFO,
		    err ? message : "the metrics file is writable again",
		    LOG_S("path", s->textfile.path));
}

static void push_page(void *arg, const struct metrics_sink *sink)
{
	struct service *s = arg;

	if (s->api.top)
		api_look(&s->api);
	metrics_each(&s->api, sink);
}

static void push_log(void *arg, enum log_level level, const char *sentence)
{
	struct service *s = arg;

	log_write(&s->log, level, sentence, NULL, 0);
}

/* Starts, changes or ends the push if its settings changed. */
static void apply_push(struct service *s)
{
	const struct push_config config = { .loop = s->loop,
					    .clock = s->api.clock,
					    .page = push_page,
					    .log = push_log,
					    .arg = s };
	struct push_settings fresh;
	char dir[4096];
	bool changed;
	int err;

	push_settings_make(&s->config, config_state_dir(&s->config, dir, sizeof(dir)),
			   s->options->simulated, &fresh);
	err = push_change(&s->push, &config, &fresh, &changed);
	if (!changed)
		return;
	s->api.push = !err && *fresh.server.url ? push_look(s->push) : NULL;
	if (err)
		LOG(&s->log, LOG_ERROR, "metrics are not pushed",
		    LOG_S("why", gw_strerror(err)));
	else if (s->api.push)
		LOG(&s->log, LOG_INFO, "metrics are pushed", LOG_S("url", fresh.server.url),
		    LOG_S("queue", fresh.dir));
}

static void check_store(struct service *s)
{
	const char *problem = s->api.view.self.store_problem;
	char notice[MESSAGE_MAX];

	if (log_latch(&s->store_bad, problem))
		log_write(&s->log, problem ? LOG_ERROR : LOG_INFO,
			  problem ? problem : "history is stored again", NULL, 0);
	if (store_notice(s->store, notice, sizeof(notice)))
		log_write(&s->log, LOG_WARNING, notice, NULL, 0);
}

/* Gives memory back to the kernel, after the start or after a client has left. */
static void trim_memory(void)
{
	malloc_trim(0);
	mem_trim_code();
}

/* Reports the GPUs to systemd at the first tick, and stops the service if NVML is required but
 * missing. */
static void first_tick(struct service *s)
{
	const struct gw_status *status = gw_snapshot_status(s->api.view.snap);

	s->announced = true;
	trim_memory();
	notify_status(&s->notify, "%u GPU%s over %s", s->api.view.devices,
		      s->api.view.devices == 1 ? "" : "s", status->backend);
	if (s->config.device_require_nvml && !strstr(status->backend, "nvml")) {
		LOG(&s->log, LOG_ERROR,
		    s->config.guard_profile && strcmp(s->config.guard_profile, "desktop") == 0
			    ? "NVML is required (guard.profile = \"desktop\" sets "
			      "device.require_nvml) but cannot be used: the service stops; set "
			      "require_nvml = false in [device], and the service runs without "
			      "NVML until it can be used"
			    : "NVML is required (device.require_nvml) but cannot be used: the "
			      "service stops; set require_nvml = false in [device], and the "
			      "service runs without NVML until it can be used",
		    LOG_S("why", *status->message ? status->message : status->backend),
		    LOG_S("remedy", gw_cause_info(status->cause)->remedy));
		s->end = SERVICE_REFUSED;
		loop_stop(s->loop);
	}
}

static void log_empty_list(struct service *s)
{
	const struct gw_status *status = gw_snapshot_status(s->api.view.snap);
	bool empty = s->api.view.devices == 0;

	if (log_latch(&s->no_gpus, empty) && empty)
		LOG(&s->log, LOG_DEBUG, "no GPUs found",
		    LOG_S("cause", gw_cause_info(status->cause)->key));
}

static void take_view(void *arg)
{
	struct service *s = arg;

	s->api.view = *engine_view(s->engine);
}

static void service_tick(void *arg)
{
	struct service *s = arg;

	if (s->fleet)
		fleet_watch_tick(s->fleet);
	if (!s->api.view.snap) {
		notify_status(&s->notify, "%s", s->api.view.unopened);
		http_tick(s->api.http);
		return;
	}
	log_empty_list(s);
	windows_tick(s->api.windows, &s->api.view, clock_mono_ns(s->api.clock));
	if (s->api.push)
		push_look(s->push);
	if (s->api.push || windows_open_count(s->api.windows))
		api_follow(&s->api);
	http_tick(s->api.http);
	push_tick(s);
	write_textfile(s);
	check_store(s);
	suspend_tick(s->suspend);
	if (log_latch(&s->rests, s->api.view.pace.next_ns > s->api.view.interval_ns) &&
	    s->rests.on)
		trim_memory();
	if (!s->announced)
		first_tick(s);
}

static void meter_gone(void *arg)
{
	struct service *s = arg;

	windows_meter_gone(s->api.windows, &s->api.view);
	s->api.view.meter = NULL;
}

static void driver_moved(void *arg, bool gone)
{
	struct service *s = arg;

	engine_moved(s->engine, gone);
}

static void feed_watchdog(void *arg, uint64_t now_ns)
{
	struct service *s = arg;

	notify_watchdog(&s->notify);
	loop_set_time(s->watchdog, now_ns + s->notify.watchdog_ns / 2);
}

static void apply_log(struct service *s)
{
	enum log_level level = LOG_INFO;
	enum log_format format = LOG_LOGFMT;

	log_level_parse(s->config.log_level, &level);
	log_format_parse(s->config.log_format, &format);
	s->log.level = level;
	s->log.format = format;
}

/* Memory that http_config points to. */
struct listening {
	struct http_listener listener[LISTENERS_MAX];
	unsigned count;
	struct notify_socket given[NOTIFY_SOCKETS];
};

static void make_listeners(struct service *s, struct listening *l)
{
	const struct config *c = &s->config;
	char message[MESSAGE_MAX] = "";
	int given = notify_sockets(l->given, message, sizeof(message));

	log_lines(s, LOG_WARNING, message);
	for (int i = 0; i < given; i++)
		l->listener[l->count++] = (struct http_listener){ NULL, l->given[i].fd };
	if (given <= 0)
		for (unsigned i = 0; i < c->service_listen.count; i++)
			l->listener[l->count++] =
				(struct http_listener){ c->service_listen.item[i], -1 };
}

static struct http_config http_settings(struct service *s, const struct listening *l)
{
	const struct config *c = &s->config;

	return (struct http_config){
		.listener = l ? l->listener : NULL,
		.listeners = l ? l->count : 0,
		.token_file = c->service_token_file,
		.tls_cert = c->service_tls_cert,
		.tls_key = c->service_tls_key,
		.insecure = c->service_insecure,
		.hosts = c->service_hosts.item,
		.origins = c->service_origins.item,
		.connections = (unsigned)c->service_connections,
		.streams = (unsigned)c->service_streams,
		.header_ns = c->service_header_timeout,
		.body_ns = c->service_body_timeout,
		.idle_ns = c->service_idle_timeout,
		.unix_mode = (unsigned)strtoul(c->service_unix_mode, NULL, 8),
		.route = api_routes,
		.routes = api_route_count,
		.arg = &s->api,
		.mark = api_mark,
		.log = log_request,
	};
}

static void apply_textfile(struct service *s)
{
	const char *path = s->config.metrics_textfile;
	char message[MESSAGE_MAX] = "";

	if (strcmp(s->textfile.path, path ? path : "") == 0)
		return;
	if (*s->textfile.path)
		textfile_done(&s->textfile);
	s->textfile.path[0] = '\0';
	if (path && textfile_init(&s->textfile, path, message, sizeof(message)) != 0)
		log_lines(s, LOG_ERROR, message);
}

static void apply_fleet(struct service *s)
{
	if (fleet_watch_apply(&s->fleet, &s->config, s->api.clock) != 0)
		log_write(&s->log, LOG_ERROR, "out of memory: the fleet is not shown", NULL, 0);
	s->api.fleet = s->fleet ? fleet_watch_source(s->fleet) : NULL;
}

static void apply_config(struct service *s)
{
	apply_log(s);
	apply_textfile(s);
	apply_push(s);
	apply_fleet(s);
	s->api.top = (unsigned)s->config.metrics_processes;
	metrics_choose(&s->api.metrics, s->config.metrics_include.item,
		       s->config.metrics_exclude.item, s->config.metrics_dcgm);
	s->api.manage = s->config.manage_enabled;
	/* Without a configured token, any client may open windows, because windows change
	 * nothing on a GPU. */
	s->api.windows_open = !s->config.service_token_file;
	s->api.cost = (struct energy_cost){ .price_per_kwh = s->config.energy_price_per_kwh,
					    .gco2_per_kwh = s->config.energy_gco2_per_kwh };
	utf8_clean(s->api.cost.currency, sizeof(s->api.cost.currency),
		   s->config.energy_price_currency ? s->config.energy_price_currency : "");
}

/* Makes the guard's settings. If refresh is true, queries all container names now. refresh is
 * false if the settings are made because a container id changed. */
static int make_guard(struct service *s, bool refresh, struct guard_settings *ret)
{
	int err = guard_config_make(&s->config, ret);

	if (!err)
		container_resolver_apply(s->containers, &ret->policy, refresh);
	return err;
}

static void reload_guard(struct service *s, bool refresh)
{
	struct guard_settings guard;

	if (make_guard(s, refresh, &guard) == 0)
		engine_set_guard(s->engine, &guard);
	else
		engine_event(s->engine, "guard", NULL, "error",
			     "the guard keeps the old configuration: %s",
			     gw_strerror(-GW_E_NOMEM));
}

static struct engine_settings engine_settings(const struct service *s)
{
	return (struct engine_settings){
		.interval_ns = s->config.service_interval,
		.profile = metrics_need_profile(&s->api.metrics),
		.manage = s->config.manage_enabled,
		.workloads = { .keep_s = s->config.workloads_keep_s,
			       .history = (unsigned)s->config.workloads_history },
		.models_s = s->config.models_interval_s,
	};
}

/* Reads the configuration again. If the new configuration has an error, keeps the old one. */
static void reload_config(struct service *s)
{
	char message[MESSAGE_MAX] = "";
	struct config fresh, old = s->config;
	struct engine_settings settings;
	struct http_config h;

	notify_reloading(&s->notify, clock_mono_ns(s->api.clock));
	if (config_load(&fresh, s->options->config_path, s->options->flags,
			s->options->flag_count, message, sizeof(message)) != 0) {
		log_lines(s, LOG_ERROR, message);
		engine_event(s->engine, "config", NULL, "error",
			     "the new configuration has errors; the old one stays in use");
		notify_ready(&s->notify);
		return;
	}
	log_lines(s, LOG_WARNING, message);
	s->config = fresh;
	h = http_settings(s, NULL);
	if (http_reload(s->api.http, &h, message, sizeof(message)) != 0) {
		s->config = old;
		config_done(&fresh);
		log_lines(s, LOG_ERROR, message);
		engine_event(s->engine, "config", NULL, "error",
			     "the new configuration cannot be used; the old one stays in use");
	} else {
		log_lines(s, LOG_WARNING, message);
		apply_config(s);
		settings = engine_settings(s);
		engine_configure(s->engine, &settings);
		engine_event(s->engine, "config", NULL, "info",
			     "the configuration was reloaded%s",
			     config_needs_restart(&old, &fresh)
				     ? "; changes of addresses, drivers, job mapping or "
				       "database take effect at the next start"
				     : "");
		reload_guard(s, true);
		config_done(&old);
	}
	notify_ready(&s->notify);
}

static void container_changed(void *arg)
{
	reload_guard(arg, false);
}

static void container_unknown(void *arg, const char *sentence)
{
	struct service *s = arg;

	engine_event(s->engine, "guard", NULL, "warning", "%s", sentence);
}

static void service_signal(void *arg, int signal)
{
	struct service *s = arg;

	if (signal == SIGHUP) {
		reload_config(s);
		return;
	}
	LOG(&s->log, LOG_INFO, "stopping", LOG_S("signal", strsignal(signal)));
	loop_stop(s->loop);
}

static int open_store(struct service *s)
{
	char path[4096], message[MESSAGE_MAX] = "";
	const char *where =
		config_store_path(&s->config, s->options->simulated, path, sizeof(path));
	int err = store_open(where, where ? s->config.history_limit : MEMORY_BYTES, &s->store,
			     message, sizeof(message));
	bool bad;

	if (err)
		return err;
	bad = store_problem(s->store) != NULL;
	/* Mark the state of the store as logged, because the message below reports the same
	 * problem. */
	(void)log_latch(&s->store_bad, bad);
	log_lines(s, bad ? LOG_ERROR : LOG_WARNING, message);
	if (where && !bad)
		LOG(&s->log, LOG_INFO, "history is kept in a file", LOG_S("path", where));
	else if (!where)
		LOG(&s->log, LOG_INFO, "history is kept in memory only",
		    LOG_S("reason", strcmp(s->config.history_path, "none") == 0
					    ? "history is set to none"
				    : s->options->simulated ? "the GPUs are simulated"
							    : "no state directory is known"));
	return 0;
}

static int open_engine(struct service *s)
{
	const struct service_options *o = s->options;
	const struct config *c = &s->config;
	struct guard_settings guard;
	struct gw_options g = {
		.size = sizeof(g),
		.flags = GW_OPEN_EXEC | o->open_flags |
			 (c->device_enable_nvml ? 0 : (unsigned)GW_OPEN_NO_NVML),
		.backend = o->backend ? o->backend : c->device_backend,
		.nvml_library = o->nvml_library ? o->nvml_library : c->device_nvml_library,
		.root = o->root,
		.deadline_ns = o->deadline_ns ? o->deadline_ns : c->device_timeout,
	};

	return engine_new(
		&(struct engine_config){
			.options = &g,
			.settings = engine_settings(s),
			.hpc_job_mapping_dir = c->workloads_hpc_job_mapping_dir,
			.guard = make_guard(s, true, &guard) == 0 ? &guard : NULL,
			.loop = s->loop,
			.store = s->store,
			.changed = take_view,
			.ticked = service_tick,
			.meter_gone = meter_gone,
			.happened = event_happened,
			.arg = s },
		&s->engine);
}

/* Returns true if lines of the level info are logged, and the log goes to the same place as
 * standard output, such as a terminal or the journal. */
static bool log_is_stdout(const struct log *l)
{
	struct stat out, log;

	return l->level >= LOG_INFO && fstat(STDOUT_FILENO, &out) == 0 &&
	       fstat(l->fd, &log) == 0 && out.st_dev == log.st_dev && out.st_ino == log.st_ino;
}

static int open_http(struct service *s)
{
	char message[MESSAGE_MAX] = "";
	struct listening l = { .count = 0 };
	bool same, sentence;
	struct http_config h;
	int err;

	make_listeners(s, &l);
	h = http_settings(s, &l);
	err = http_new(s->loop, &h, &s->api.http, message, sizeof(message));
	log_lines(s, err ? LOG_ERROR : LOG_WARNING, message);
	if (err)
		return err == -GW_E_ARG || err == -GW_E_PERM ? SERVICE_REFUSED : SERVICE_FAILED;
	if (s->config.service_insecure)
		log_write(&s->log, LOG_WARNING,
			  "insecure is set: anyone who can reach an address can read "
			  "everything, without TLS",
			  NULL, 0);
	same = log_is_stdout(&s->log);
	sentence = !s->options->quiet && (!same || isatty(STDOUT_FILENO));
	for (unsigned i = 0; http_address(s->api.http, i); i++) {
		if (!same || !sentence)
			LOG(&s->log, LOG_INFO, "listening",
			    LOG_S("address", http_address(s->api.http, i)));
		if (sentence && file_accepts(STDOUT_FILENO)) {
			printf("gpuward is listening on %s\n", http_address(s->api.http, i));
			fflush(stdout);
		}
	}
	return SERVICE_OK;
}

/* Number of open files that the service and a few connections need, with a margin. With one GPU
 * and the guard, the service needed 20. */
#define SERVICE_FILES 64

/* Reports a limit of open files that is too low. Without this check, the first part of the
 * service that cannot open a file would report a different error. */
static bool service_has_files(struct service *s)
{
	struct rlimit limit;
	char text[200];

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_max >= SERVICE_FILES)
		return true;
	snprintf(text, sizeof(text),
		 "only %llu files may be open at a time, and the service needs %d: raise the "
		 "limit "
		 "(ulimit -n 1024, or LimitNOFILE=1024 in its unit)",
		 (unsigned long long)limit.rlim_max, SERVICE_FILES);
	log_write(&s->log, LOG_ERROR, text, NULL, 0);
	return false;
}

static const char start_failed[] = "cannot start: out of memory or threads; free some memory, "
				   "or raise the limit of threads "
				   "(TasksMax= in the unit), and restart gpuward";

/* Starts all parts of the service. Opens HTTP first, so that clients get answers while the
 * drivers are still being opened. */
static int service_begin(struct service *s)
{
	static const int signals[] = { SIGHUP, SIGTERM, SIGINT, 0 };
	char message[MESSAGE_MAX] = "";
	int end;

	if (!service_has_files(s))
		return SERVICE_FAILED;
	signal(SIGPIPE, SIG_IGN);
	if (notify_init(&s->notify, message, sizeof(message)) != 0)
		log_lines(s, LOG_WARNING, message);
	s->api.clock = clock_real();
	s->api.daemon = s;
	if (loop_new(&s->loop) != 0 ||
	    loop_add_signals(s->loop, signals, service_signal, s, &s->signals) != 0 ||
	    loop_add_timer(s->loop, feed_watchdog, s, &s->watchdog) != 0 ||
	    stream_new(STREAM_BYTES, &s->api.stream) != 0 ||
	    windows_new(&s->api.windows) != 0) {
		log_write(&s->log, LOG_ERROR, start_failed, NULL, 0);
		return SERVICE_FAILED;
	}
	windows_stream(s->api.windows, s->api.stream);
	apply_config(s);
	end = open_http(s);
	if (end != SERVICE_OK)
		return end;
	/* The store creates its folder. Open the store after HTTP, so that a service that
	 * cannot listen does not create a folder. */
	if (open_store(s) != 0 ||
	    container_resolver_new(
		    &(struct container_resolver_config){ .loop = s->loop,
							 .changed = container_changed,
							 .log = container_unknown,
							 .arg = s },
		    &s->containers) != 0 ||
	    open_engine(s) != 0 || suspend_new(s->loop, s->engine, &s->suspend) != 0) {
		log_write(&s->log, LOG_ERROR, start_failed, NULL, 0);
		return SERVICE_FAILED;
	}
	/* uevent is optional. Without it, a new driver is found a little later. */
	uevent_new(s->loop, driver_moved, s, &s->uevent);
	s->api.view = *engine_view(s->engine);
	engine_event(s->engine, "service", NULL, "info", "gpuward %s started", gw_version());
	if (s->notify.watchdog_ns)
		loop_set_time(s->watchdog, clock_mono_ns(s->api.clock));
	notify_ready(&s->notify);
	return SERVICE_OK;
}

/* Writes what is not stored yet, and closes the store. */
static void close_store(struct service *s)
{
	store_save(s->store);
	store_commit(s->store);
	if (store_flush(s->store, STORE_END_NS) != 0)
		LOG(&s->log, LOG_ERROR,
		    "counters, events and windows of this run could not be stored and are lost",
		    LOG_S("why", store_state(s->store)));
	store_close(s->store);
}

static void service_end(struct service *s)
{
	bool hangs = false;

	notify_stopping(&s->notify);
	if (s->engine && s->api.windows)
		windows_meter_gone(s->api.windows, &s->api.view);
	http_free(s->api.http);
	if (*s->textfile.path)
		textfile_done(&s->textfile);
	push_free(s->push);
	s->push = NULL;
	s->api.push = NULL;
	fleet_watch_free(s->fleet);
	s->api.fleet = NULL;
	uevent_free(s->uevent);
	container_resolver_free(s->containers);
	suspend_free(s->suspend);
	/* The last events of the guard cause new views. These views must not use the suspend
	 * module, which is already freed. */
	s->suspend = NULL;
	hangs = engine_end_guard(s->engine, END_NS) != 0;
	if (s->engine) /* This event comes after the guard's last events. */
		engine_event(s->engine, "service", NULL, "info", "gpuward stopped");
	if (hangs || engine_free(s->engine, END_NS) != 0) {
		log_write(&s->log, LOG_WARNING,
			  "a driver call has not returned; the service exits without waiting "
			  "for it",
			  NULL, 0);
		hangs = true;
	}
	if (s->store)
		close_store(s);
	if (hangs) {
		fflush(NULL);
		/* Do not run exit handlers: those of the driver library could wait for the
		 * driver call that hangs. */
		_exit(s->end);
	}
	windows_free(s->api.windows);
	api_done(&s->api);
	stream_free(s->api.stream);
	loop_remove(s->signals);
	loop_remove(s->watchdog);
	loop_free(s->loop);
	notify_done(&s->notify);
	config_done(&s->config);
}

int service_run(const struct service_options *options)
{
	char message[MESSAGE_MAX] = "";
	struct service *s = calloc(1, sizeof(*s));
	int err;

	if (!s)
		return SERVICE_FAILED;
	/* The threads of the service hardly allocate, so one heap is enough. Large tables come
	 * from mmap, which takes memory only for the pages that are used. M_MMAP_THRESHOLD is
	 * set, because otherwise the first free() of a large table would raise this
	 * threshold. */
	mallopt(M_ARENA_MAX, 1);
	mallopt(M_MMAP_THRESHOLD, 64 * 1024);
	s->options = options;
	log_init(&s->log, STDERR_FILENO, LOG_INFO, LOG_LOGFMT, clock_real());
	err = config_load(&s->config, options->config_path, options->flags, options->flag_count,
			  message, sizeof(message));
	if (err) {
		for (char *line = message, *rest = message; (line = strsep(&rest, "\n"));)
			fprintf(stderr, "gpuward: %s\n", line);
		free(s);
		return SERVICE_USAGE;
	}
	apply_log(s);
	if (*config_files(&s->config))
		LOG(&s->log, LOG_INFO, "configuration was read",
		    LOG_S("files", config_files(&s->config)));
	s->end = service_begin(s);
	if (s->end == SERVICE_OK) {
		/* Log the warnings only after service_begin(). One warning is about addresses
		 * that the service may refuse. If the service has refused one, service_begin()
		 * has already logged an error. */
		log_lines(s, LOG_WARNING, message);
		loop_run(s->loop);
	}
	err = s->end;
	service_end(s);
	free(s);
	return err;
}
