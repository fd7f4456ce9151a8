/* Any content of one file of /proc, of the powercap counters or of a pidfile: no crash, and
 * every figure is possible. The first byte of the input selects the file. */
#include "text.h"

#include "device/host.h"
#include "device/proc.h"
#include "device/rapl.h"
#include "guard/pid_lookup.h"

#include "../unit/tree.h"

#include <math.h>

#define RAPL "sys/class/powercap/intel-rapl:0/"

static const struct tree_row files[] = {
	{ "proc/5/stat", "5 (train) S 1 5 5 0 -1 4194560 0 0 0 0 1 2 0 0 20 0 1 0 777 0 0\n" },
	{ "proc/5/status", "Name:\ttrain\nTgid:\t5\nPPid:\t1\nUid:\t1000\t1000\t1000\t1000\n" },
	{ "proc/5/cmdline", "python3" },
	{ "proc/5/cgroup", "0::/user.slice/user-1000.slice/session-2.scope\n" },
	{ "proc/5/fd/3", "-> socket:[4242]" },
	{ "proc/stat", "cpu  10 0 10 80 0 0 0 0 0 0\nbtime 1700000000\n" },
	{ "proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 500 kB\n" },
	{ "proc/net/tcp",
	  "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  "
	  "timeout inode\n   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 "
	  "00000000  1000        0 4242 1\n" },
	{ "proc/net/tcp6", "" },
	{ "etc/passwd", "alice:x:1000:1000::/home/alice:/bin/sh\n" },
	{ "run/worker.pid", "5\n" },
	{ RAPL "name", "package-0\n" },
	{ RAPL "energy_uj", "1000\n" },
	{ RAPL "max_energy_range_uj", "262143328850\n" },
	{ 0 },
};

static struct tree tree;

static void remove_tree(void)
{
	tree_done(&tree);
}

static void check_process(void)
{
	struct port_owners at = { 0 };
	char user[64], file[PORT_OWNER_FILE];
	struct pidfile pid;
	struct proc p;
	uint64_t t;

	if (proc_read(&tree.root, 5, &p) == 0 &&
	    (!memchr(p.name, 0, sizeof(p.name)) || !memchr(p.command, 0, sizeof(p.command)) ||
	     !memchr(p.cgroup, 0, sizeof(p.cgroup))))
		abort();
	(void)proc_start_ticks(&tree.root, 5, &t);
	(void)proc_lives(&tree.root, 5, 777);
	(void)proc_began_ns(&tree.root, 777, &t);
	(void)proc_in_tree(&tree.root, 5, 1);
	(void)proc_in_child_namespace(&tree.root);
	proc_user(&tree.root, 1000, user, sizeof(user));
	if (!*user || !memchr(user, 0, sizeof(user)))
		abort();
	if (port_owner_read(&tree.root, 8080, &at) == 0 && at.count > PORT_OWNER_SOCKETS)
		abort();
	(void)port_owner_file(&tree.root, &at, 5, file);
	if (pidfile_read(&tree.root, "/run/worker.pid", &pid) == 0 && pid.pid < 1)
		abort();
}

static void check_machine(void)
{
	struct host_report r;
	struct rapl rapl;
	struct host h;

	host_init(&h, &tree.root);
	host_read(&h, &r);
	for (unsigned q = 0; q < GW_HOST_QUANTITIES; q++)
		if (r.why[q] == GW_HAVE && !(isfinite(r.v[q]) && r.v[q] >= 0))
			abort();
	rapl_open(&rapl, &tree.root);
	rapl_read(&rapl);
	for (unsigned i = 0; i < rapl.count; i++)
		if (rapl.counter[i].why == GW_HAVE && !(rapl.counter[i].joules >= 0))
			abort();
	rapl_close(&rapl);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct tree_row *x;

	if (size == 0)
		return 0;
	if (!tree.path[0]) {
		tree_init(&tree);
		atexit(remove_tree);
		tree_fill(&tree, "", files);
	}
	x = &files[data[0] % (sizeof(files) / sizeof(*files) - 1)];
	if (strncmp(x->text, "-> ", 3) == 0)
		return 0;
	tree_bytes(&tree, x->path, (const char *)data + 1, size - 1);
	check_process();
	check_machine();
	tree_put(&tree, x->path, x->text);
	return 0;
}
