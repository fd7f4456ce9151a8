/* top: shows the GPUs and the processes on them on a full screen, and handles keys. */
#include "cli.h"
#include "remote.h"
#include "top_reader.h"
#include "top_screen.h"
#include "top_terminal.h"

#include "base/array.h"
#include "base/clock.h"
#include "base/json_doc.h"
#include "daemon/peer_process.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DRIVER_NS   (2 * NS_PER_S) /* default of --timeout */
#define INTERVAL_NS (500 * NS_PER_MS)
#define FIND_NS     NS_PER_S /* longest wait for the first reply of a service */

struct given {
	const char *address, *sort, *filter;
	uint64_t interval_ns;
	bool direct;
};

#define given(cli) ((const struct given *)(cli)->own)

/* Returns true if the process still runs on this machine and belongs to this user. Otherwise
 * writes the reason to message. */
static bool may_end(const struct top_model *m, const struct top_process *p, char *message,
		    size_t size)
{
	const struct proc_id id = { p->pid, p->start_ticks };
	int64_t uid = -1;

	if (!m->local)
		snprintf(message, size, "pid %lld runs on another machine: end it there",
			 (long long)p->pid);
	else if (!p->start_ticks || peer_process_user(id, &uid) != 0)
		snprintf(message, size,
			 "pid %lld cannot be ended: it is gone, in a container, or simulated",
			 (long long)p->pid);
	else if (uid != (int64_t)getuid())
		snprintf(message, size,
			 "pid %lld belongs to %s: top ends only your own processes",
			 (long long)p->pid, *p->user ? p->user : "another user");
	else
		return true;
	return false;
}

/* Sends SIGTERM through a pidfd. The pidfd is opened before may_end() is called: it always
 * means the process that may_end() checks, even if another process gets the pid later. */
static void end_process(const struct top_model *m, const struct top_process *p, char *message,
			size_t size)
{
	int fd = (int)syscall(SYS_pidfd_open, (pid_t)p->pid, 0);

	if (may_end(m, p, message, size)) {
		if (fd >= 0 && syscall(SYS_pidfd_send_signal, fd, SIGTERM, NULL, 0) == 0)
			snprintf(message, size, "SIGTERM was sent to pid %lld",
				 (long long)p->pid);
		else
			snprintf(message, size, "SIGTERM could not be sent to pid %lld: %s",
				 (long long)p->pid, strerror(errno));
	}
	if (fd >= 0)
		close(fd);
}

struct top {
	struct cli *c;
	struct remote remote;
	bool service; /* true: read the figures from the service; false: from the driver */
	struct top_reader *reader;
	struct top_model model;
	struct top_ui ui;
	struct canvas canvas;
};

static void move_selection(struct top *t, long step)
{
	bool gpus = t->ui.focus == TOP_FOCUS_GPUS;
	unsigned n = gpus ? t->model.gpus : t->ui.rows;
	long to = (long)(gpus ? t->ui.gpu : t->ui.selected) + step;
	unsigned row = n == 0 || to < 0 ? 0 : to >= (long)n ? n - 1 : (unsigned)to;

	if (gpus)
		t->ui.gpu = row;
	else
		top_ui_select(&t->ui, &t->model, row);
}

static void change_sort(struct top *t, unsigned step)
{
	t->ui.order.column = (t->ui.order.column + step) % TOP_COLUMNS;
	t->ui.process_top = 0;
	snprintf(t->ui.message, sizeof(t->ui.message), "sorted by %s",
		 process_view_title(t->ui.order.column));
}

static void change_zoom(struct top *t, bool zoom)
{
	const struct top_process *p = top_ui_selected(&t->ui, &t->model);

	if (zoom && t->ui.focus == TOP_FOCUS_PROCESSES && p)
		t->ui.gpu = p->gpu;
	t->ui.zoom = zoom && t->model.gpus > 0;
	top_reader_zoom(t->reader, t->ui.zoom);
	t->ui.focus = TOP_FOCUS_PROCESSES;
}

static void change_gpu(struct top *t, unsigned step)
{
	if (t->model.gpus)
		t->ui.gpu = (t->ui.gpu + t->model.gpus + step) % t->model.gpus;
}

static void ask_to_end(struct top *t)
{
	const struct top_process *p = top_ui_selected(&t->ui, &t->model);

	if (!p)
		snprintf(t->ui.message, sizeof(t->ui.message), "there is no process to end");
	else if (may_end(&t->model, p, t->ui.message, sizeof(t->ui.message))) {
		/* Copy the process, because its index may change before the user answers. */
		t->ui.target = *p;
		t->ui.prompt = TOP_PROMPT_KILL;
	}
}

/* Handles a key while the user edits the filter. Ignores characters that are not ASCII, and
 * those for which there is no room. */
static void filter_key(struct top *t, int key)
{
	char *text = t->ui.order.filter;
	size_t n = strlen(text);

	if (key == TOP_KEY_ENTER)
		t->ui.prompt = TOP_PROMPT_NONE;
	else if (key == TOP_KEY_ESCAPE) {
		t->ui.prompt = TOP_PROMPT_NONE;
		text[0] = '\0';
	} else if (key == TOP_KEY_BACKSPACE && n > 0)
		text[n - 1] = '\0';
	else if (key >= ' ' && key < 127 && n + 1 < sizeof(t->ui.order.filter)) {
		text[n] = (char)key;
		text[n + 1] = '\0';
	}
}

static void kill_key(struct top *t, int key)
{
	t->ui.prompt = TOP_PROMPT_NONE;
	if (key == 'y' || key == 'Y')
		end_process(&t->model, &t->ui.target, t->ui.message, sizeof(t->ui.message));
	else
		snprintf(t->ui.message, sizeof(t->ui.message), "nothing was ended");
}

/* Handles a key while there is no question. Returns false if top must end. */
static bool command_key(struct top *t, int key)
{
	struct top_ui *ui = &t->ui;
	long page = ui->page > 1 ? (long)ui->page - 1 : 1;

	switch (key) {
	case 'q':
	case 'Q': return false;
	case '?':
	case 'h': ui->prompt = TOP_PROMPT_HELP; break;
	case '/': ui->prompt = TOP_PROMPT_FILTER; break;
	case ' ':
		ui->paused = !ui->paused;
		top_reader_pause(t->reader, ui->paused);
		break;
	case 'k': ask_to_end(t); break;
	case 'r': ui->order.reverse = !ui->order.reverse; break;
	case '<': change_sort(t, TOP_COLUMNS - 1); break;
	case '>': change_sort(t, 1); break;
	case TOP_KEY_LEFT:
		ui->zoom ? change_gpu(t, t->model.gpus - 1) : change_sort(t, TOP_COLUMNS - 1);
		break;
	case TOP_KEY_RIGHT: ui->zoom ? change_gpu(t, 1) : change_sort(t, 1); break;
	case TOP_KEY_ENTER: change_zoom(t, !ui->zoom); break;
	case TOP_KEY_ESCAPE: change_zoom(t, false); break;
	case TOP_KEY_TAB:
		ui->focus = ui->focus == TOP_FOCUS_GPUS || ui->zoom ? TOP_FOCUS_PROCESSES
								    : TOP_FOCUS_GPUS;
		break;
	case TOP_KEY_UP: move_selection(t, -1); break;
	case TOP_KEY_DOWN: move_selection(t, 1); break;
	case TOP_KEY_PAGE_UP: move_selection(t, -page); break;
	case TOP_KEY_PAGE_DOWN: move_selection(t, page); break;
	case TOP_KEY_HOME: move_selection(t, -1000000); break;
	case TOP_KEY_END: move_selection(t, 1000000); break;
	default: break;
	}
	return true;
}

/* Handles a key. Returns false if top must end. */
static bool take_key(struct top *t, int key)
{
	if (key == TOP_KEY_RESIZE)
		return true;
	t->ui.message[0] = '\0';
	switch (t->ui.prompt) {
	case TOP_PROMPT_FILTER: filter_key(t, key); return true;
	case TOP_PROMPT_KILL: kill_key(t, key); return true;
	case TOP_PROMPT_HELP: t->ui.prompt = TOP_PROMPT_NONE; return true;
	default: return command_key(t, key);
	}
}

static int draw(struct top *t)
{
	unsigned rows, columns;
	time_t now = time(NULL);
	struct tm local;

	localtime_r(&now, &local);
	strftime(t->ui.clock, sizeof(t->ui.clock), "%H:%M:%S", &local);
	t->ui.now_ns = clock_mono_ns(clock_real());
	top_terminal_size(&rows, &columns);
	if (top_ui_arrange(&t->ui, &t->model) != 0 ||
	    canvas_resize(&t->canvas, rows, columns) != 0)
		return -GW_E_NOMEM;
	top_screen_draw(&t->canvas, &t->model, &t->ui);
	top_terminal_show(&t->canvas);
	return 0;
}

/* Returns how many milliseconds to wait for a new model before the screen is drawn again; -1:
 * no limit. If the figures are old, the screen shows their age, which changes every second. */
static int top_wait_ms(const struct top *t)
{
	if (t->ui.paused)
		return -1;
	return top_model_old_s(&t->model, t->ui.now_ns) > 0 ? 1000 : 3000;
}

static int top_loop(struct top *t)
{
	struct pollfd fds[2] = { { STDIN_FILENO, POLLIN, 0 },
				 { top_reader_fd(t->reader), POLLIN, 0 } };
	int key;

	while (!stop_requested()) {
		if (draw(t) != 0)
			return -GW_E_NOMEM;
		if (poll(fds, 2, top_wait_ms(t)) < 0 && errno != EINTR)
			return -GW_E_IO;
		/* The terminal was closed: end the program. */
		if (fds[0].revents & (POLLHUP | POLLERR | POLLNVAL))
			return 0;
		while ((key = top_terminal_key()) != TOP_KEY_NONE) {
			if (!take_key(t, key))
				return 0;
			if (top_ui_arrange(&t->ui, &t->model) != 0)
				return -GW_E_NOMEM;
		}
		top_reader_take(t->reader, &t->model);
	}
	return 0;
}

static bool is_local(const char *address)
{
	static const char *const local[] = { "unix:", "127.", "localhost:", "[::1]:" };

	for (size_t i = 0; i < COUNT(local); i++)
		if (strncmp(address, local[i], strlen(local[i])) == 0)
			return true;
	return false;
}

static bool reads_driver(const struct cli *c)
{
	return given(c)->direct || cli_names_driver(c);
}

/* Decides whether to read the service or the driver, and opens this source. Returns an exit
 * code. */
static int open_source(struct top *t)
{
	struct cli *c = t->c;
	const char *variable = getenv("GPUWARD_ADDRESS");
	bool named = given(c)->address || (variable && *variable);
	char message[700];
	int code, err = -GW_E_NOENT;

	if (given(c)->address && reads_driver(c))
		return cli_usage("--address reads a service: leave out --direct and the "
				 "options for the driver, such as --backend");
	if (!reads_driver(c)) {
		struct remote_flags flags = { .address = given(c)->address };

		code = remote_open(&t->remote, &flags);
		if (code != EXIT_OK && named)
			return code;
		if (code == EXIT_OK)
			err = remote_request(&t->remote, "GET", "/api/v1/self", NULL, FIND_NS,
					     message, sizeof(message));
		t->service = !err && t->remote.status == 200;
		if (!t->service && named)
			return err ? cli_fail("%s", message)
				   : cli_fail("the server on %s is not a gpuward service: it "
					      "replied with status %d",
					      t->remote.address, t->remote.status);
	}
	if (t->service)
		return EXIT_OK;
	if (!c->timeout_ns)
		c->timeout_ns = DRIVER_NS;
	return cli_open(c, GW_TIERS_COMMON);
}

static int find_column(const char *name, enum top_column *ret)
{
	for (unsigned i = 0; i < TOP_COLUMNS; i++)
		if (strcasecmp(process_view_title(i), name) == 0) {
			*ret = i;
			return EXIT_OK;
		}
	return cli_usage("--sort takes the title of a column, such as SM%%, MEMORY, ENERGY, "
			 "CPU%% or PID, not '%s'",
			 name);
}

static int show(struct top *t)
{
	struct top_reader_options o = { .c = t->c,
					.remote = t->service ? &t->remote : NULL,
					.local = t->service && is_local(t->remote.address),
					.interval_ns = given(t->c)->interval_ns };
	char message[300];
	int err;

	/* Catch signals first, so that the terminal is restored after Ctrl-C. */
	stop_catch();
	err = top_terminal_begin(term_color(), &t->canvas.utf8, message, sizeof(message));
	if (err)
		return cli_fail("%s", message);
	err = top_reader_start(&o, &t->reader);
	if (!err)
		err = top_loop(t);
	top_terminal_end();
	if (t->reader && top_reader_stop(t->reader) != 0)
		/* the thread hangs in a driver call and still uses this memory */
		_exit(EXIT_OK);
	return err ? cli_fail("top ended: %s", gw_strerror(err)) : EXIT_OK;
}

static int top_run(struct cli *c)
{
	static struct top t;
	struct given *g = c->own;
	const char *kind = getenv("TERM");
	int code = EXIT_OK;

	t.c = c;
	top_model_init(&t.model);
	t.ui.order = (struct top_order){ .column = TOP_SM, .gpu = -1 };
	if (!g->interval_ns)
		g->interval_ns = INTERVAL_NS;
	if (g->interval_ns < 100 * NS_PER_MS || g->interval_ns > 3600 * NS_PER_S)
		return cli_usage("--interval takes a time from 100ms to 1h");
	if (g->sort)
		code = find_column(g->sort, &t.ui.order.column);
	if (code != EXIT_OK)
		return code;
	snprintf(t.ui.order.filter, sizeof(t.ui.order.filter), "%s",
		 g->filter ? g->filter : "");
	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO) || !kind ||
	    strcmp(kind, "dumb") == 0)
		return cli_usage("top needs a terminal; for a pipe, a file or a simple "
				 "terminal use gpuward snapshot -w");
	code = open_source(&t);
	if (code == EXIT_OK)
		code = show(&t);
	remote_close(&t.remote);
	top_model_done(&t.model);
	canvas_done(&t.canvas);
	free(t.ui.row);
	return code;
}

#define AT(member) offsetof(struct given, member)
static const struct option options[] = {
	OPTION_ROW(TEXT, 0, "address", AT(address), "ADDRESS",
		   "read the figures from the service at HOST:PORT or unix:PATH (default: the "
		   "service of this machine if it answers, else the driver)"),
	OPTION_ROW(FLAG, 0, "direct", AT(direct), NULL,
		   "read the driver, even if a service runs"),
	OPTION_ROW(DURATION, 'd', "interval", AT(interval_ns), "TIME",
		   "time between two readings, at least 100ms (default: 500ms)"),
	OPTION_ROW(TEXT, 0, "sort", AT(sort), "COLUMN",
		   "sort the processes by this column (default: SM%)"),
	OPTION_ROW(TEXT, 0, "filter", AT(filter), "TEXT",
		   "show only processes with this text in their pid, user, command, unit or "
		   "guard class"),
	OPTION_END,
};

const struct command command_top = {
	.name = "top",
	.summary = "watch GPUs and processes on a full screen with graphs and keys",
	.description = "Shows for each GPU its utilisation, power, memory and temperature as "
		       "bars and graphs, its energy, and why its clocks are limited. Also "
		       "shows the processes on the GPUs. Reads the service of this machine if "
		       "it answers, and then also shows the energy and the guard's class of "
		       "each process. Otherwise reads the driver. Keys: q quits, ? shows all "
		       "keys.",
	.examples = "  gpuward top\n"
		    "  gpuward top --simulate=eight-gpus\n"
		    "  gpuward top --address 10.0.0.7:9490 --sort MEMORY\n",
	.options = options,
	.options_size = sizeof(struct given),
	.one_form = true,
	.run = top_run,
};
