#include "proc_visibility.h"

#include "base/buf.h"

#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

const char proc_visibility_remedy[] =
	"use match.unit, match.cgroup, match.command or match.name, or give "
	"the service CAP_SYS_PTRACE (for ports CAP_DAC_READ_SEARCH too)";

unsigned proc_visibility_now(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct set[_LINUX_CAPABILITY_U32S_3] = { 0 };
	unsigned have;

	if (syscall(SYS_capget, &head, set) != 0)
		return 0;
	have = set[0].effective;
	if (!(have >> CAP_SYS_PTRACE & 1))
		return 0;
	return have >> CAP_DAC_READ_SEARCH & 1 || have >> CAP_DAC_OVERRIDE & 1
		       ? PROC_VISIBILITY_ALL
		       : PROC_VISIBILITY_PROGRAMS;
}

/* With a unit or a pidfile the port is not needed to find the worker. */
const char *proc_visibility_lacks(const struct policy *p, unsigned worker, unsigned visible)
{
	const struct policy_match *m = &p->worker[worker].match;

	if (m->port && !m->unit && !m->pidfile && !(visible & PROC_VISIBILITY_PORTS))
		return "port";
	return m->exe && !(visible & PROC_VISIBILITY_PROGRAMS) ? "program" : NULL;
}

bool proc_visibility_missing(const struct policy *p, unsigned visible,
			     char out[static PROC_VISIBILITY_TEXT])
{
	unsigned n = 0;
	struct buf b;

	buf_init_fixed(&b, out, PROC_VISIBILITY_TEXT);
	buf_adds(&b, "this service cannot see enough of other users' processes to find ");
	for (unsigned i = 0; i < p->workers; i++) {
		const char *by = proc_visibility_lacks(p, i, visible);

		if (by && n++ < 4)
			buf_addf(&b, "%sworker %.40s (by %s)", n > 1 ? ", " : "",
				 p->worker[i].name, by);
	}
	for (unsigned i = 0; i < p->rules; i++)
		if (p->rule[i].match.exe && !(visible & PROC_VISIBILITY_PROGRAMS) && n++ < 4)
			buf_addf(&b, "%s%.60s (match.exe)", n > 1 ? ", " : "",
				 p->rule[i].text ? p->rule[i].text : "a rule");
	if (n > 4)
		buf_addf(&b, " and %u more", n - 4);
	buf_addf(&b, ": %s", proc_visibility_remedy);
	return n > 0;
}
