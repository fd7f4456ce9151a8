/* xid: the table of Xids. */
#include "health.h"

#include <stdlib.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

struct xid_row {
	unsigned xid;
	enum xid_class class;
	const char *text;
};

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

int xid_rule_read(const char *text, struct xid_rule *ret)
{
	char *end;
	unsigned long xid;

	if (*text < '0' || *text > '9')
		return -GW_E_PARSE;
	xid = strtoul(text, &end, 10);
	if (*end != '=' || xid > UINT32_MAX)
		return -GW_E_PARSE;
	for (unsigned i = 0; i < XID_CLASSES; i++)
		if (strcmp(class_names[i], end + 1) == 0) {
			*ret = (struct xid_rule){ (unsigned)xid, (enum xid_class)i };
			return 0;
		}
	return -GW_E_PARSE;
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
