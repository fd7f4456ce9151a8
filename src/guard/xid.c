/* xid: the table of Xids. */
#include "health.h"

#include <stdlib.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static const struct xid_row rows[] = {
#define XID_TABLE(version)
#define X(number, class, text) { number, XID_##class, text },
#include "xid.def"
#undef X
#undef XID_TABLE
};

static const char *const class_names[XID_CLASSES] = {
	[XID_RESTART_APP] = "restart_app", [XID_RESET_GPU] = "reset_gpu",
	[XID_REBOOT] = "reboot",           [XID_RESTART_VM] = "restart_vm",
	[XID_MECHANICS] = "mechanics",     [XID_UVM] = "uvm",
	[XID_UPDATE] = "update",           [XID_VENDOR] = "vendor",
	[XID_IGNORE] = "ignore",           [XID_WORKFLOW] = "workflow",
	[XID_RECOVERY] = "recovery",       [XID_UNKNOWN] = "unknown",
};

static int by_number(const void *key, const void *row)
{
	unsigned a = *(const unsigned *)key, b = ((const struct xid_row *)row)->xid;

	return (a > b) - (a < b);
}

static const struct xid_row *find(unsigned xid)
{
	return bsearch(&xid, rows, COUNT(rows), sizeof(rows[0]), by_number);
}

enum xid_class xid_class_of(unsigned xid)
{
	const struct xid_row *r = find(xid);

	return r ? r->class : XID_UNKNOWN;
}

const char *xid_text(unsigned xid)
{
	const struct xid_row *r = find(xid);

	return r ? r->text : "unknown";
}

const char *xid_class_name(unsigned c)
{
	return c < XID_CLASSES ? class_names[c] : "unknown";
}

int xid_class_find(const char *name)
{
	for (unsigned i = 0; i < XID_CLASSES; i++)
		if (strcmp(class_names[i], name) == 0)
			return (int)i;
	return -GW_E_NOENT;
}

const char *xid_table_version(void)
{
#define XID_TABLE(version) version
#define X(number, class, text)
	return
#include "xid.def"
		;
#undef X
#undef XID_TABLE
}
