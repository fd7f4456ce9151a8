#include "uevent.h"

#include "base/clock.h"

#include <gpuward.h>

#include <errno.h>
#include <linux/netlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define MESSAGE_MAX 8192 /* The kernel sends at most 2 KiB of variables. */
/* Time to wait for more events, because loading a module sends many. */
#define GATHER_NS     (NS_PER_S / 5)
#define KERNEL_GROUP  1
#define DISPLAY_CLASS '3' /* First digit of the PCI classes "30000", "30200" and "38000". */

/* Names of kernel modules. Each name stands between two blanks. */
static const char modules[] = " "
#define GW_BACKEND(symbol, name, modules, help) modules " "
#include <gpuward/backend.def>
	;

static const struct {
	const char *action;
	enum uevent_news news;
} actions[] = { { "add", UEVENT_CAME },
		{ "bind", UEVENT_CAME },
		{ "remove", UEVENT_GONE },
		{ "unbind", UEVENT_GONE } };

/* Returns the value of a key, or NULL. The message must end with a NUL. */
static const char *message_value(const char *message, size_t size, const char *key)
{
	size_t n = strlen(key);

	for (const char *p = message; p < message + size; p += strlen(p) + 1)
		if (strncmp(p, key, n) == 0 && p[n] == '=')
			return p + n + 1;
	return NULL;
}

static bool is_module(const char *path)
{
	char word[64];

	if (strncmp(path, "/module/", 8) != 0 || !path[8] || strpbrk(path + 8, " /"))
		return false;
	snprintf(word, sizeof(word), " %s ", path + 8);
	return strstr(modules, word) != NULL;
}

/* True for a path such as ".../0000:01:00.0/drm/card1". USB displays and the boot framebuffer
 * also have cards, but without a PCI address before "/drm". */
static bool is_card_of_pci(const char *path)
{
	const char *drm = strstr(path, "/drm/card"), *at = drm;
	unsigned part[4];
	int n = 0;

	while (at && at > path && at[-1] != '/')
		at--;
	return drm && !strpbrk(drm + strlen("/drm/card"), "/-") &&
	       sscanf(at, "%8x:%2x:%2x.%1x%n", &part[0], &part[1], &part[2], &part[3], &n) ==
		       4 &&
	       at + n == drm;
}

/* True if the event is about a GPU or its driver. The removal of a /dev/dri node is relevant:
 * it comes before the removal of the GPU, so the service can still close the node in time. The
 * addition of a node is not relevant, because the event for the addition of its GPU is
 * enough. */
static bool is_relevant(const char *subsystem, const char *path, const char *pci_class,
			bool gone)
{
	if (strcmp(subsystem, "pci") == 0)
		return pci_class && *pci_class == DISPLAY_CLASS && strlen(pci_class) == 5;
	if (strcmp(subsystem, "drm") == 0)
		return gone && is_card_of_pci(path);
	return strcmp(subsystem, "module") == 0 && is_module(path);
}

enum uevent_news uevent_read(const char *message, size_t size)
{
	const char *action, *path, *subsystem;

	if (size == 0 || message[size - 1] != '\0')
		return UEVENT_NOTHING;
	action = message_value(message, size, "ACTION");
	path = message_value(message, size, "DEVPATH");
	subsystem = message_value(message, size, "SUBSYSTEM");
	if (!action || !path || !subsystem)
		return UEVENT_NOTHING;
	for (unsigned i = 0; i < sizeof(actions) / sizeof(*actions); i++)
		if (strcmp(action, actions[i].action) == 0 &&
		    is_relevant(subsystem, path, message_value(message, size, "PCI_CLASS"),
				actions[i].news == UEVENT_GONE))
			return actions[i].news;
	return UEVENT_NOTHING;
}

struct uevent {
	void (*moved)(void *arg, bool gone);
	void *arg;
	struct loop_source *source, *timer;
	bool gathering;
	int fd;
};

static void uevent_gathered(void *arg, uint64_t now_ns)
{
	struct uevent *u = arg;

	(void)now_ns;
	u->gathering = false;
	u->moved(u->arg, false);
}

static void uevent_handle(struct uevent *u, enum uevent_news news)
{
	if (news == UEVENT_GONE)
		u->moved(u->arg, true);
	if (news == UEVENT_CAME && !u->gathering) {
		u->gathering = true; /* Later events do not extend the wait. */
		loop_set_time(u->timer, clock_mono_ns(clock_real()) + GATHER_NS);
	}
}

/* Reads kernel messages. Only the kernel and processes with CAP_NET_ADMIN can send to this
 * socket. */
static void uevent_readable(void *arg, int fd, uint32_t events)
{
	struct uevent *u = arg;
	char message[MESSAGE_MAX];
	ssize_t n;

	(void)events;
	while ((n = recv(fd, message, sizeof(message), MSG_DONTWAIT)) > 0)
		uevent_handle(u, uevent_read(message, (size_t)n));
	/* Events were lost. One of them may be about a driver. */
	if (n < 0 && errno == ENOBUFS)
		uevent_handle(u, UEVENT_CAME);
}

static int open_kernel_socket(void)
{
	struct sockaddr_nl a = { .nl_family = AF_NETLINK, .nl_groups = KERNEL_GROUP };
	int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
			NETLINK_KOBJECT_UEVENT);

	if (fd >= 0 && bind(fd, (const struct sockaddr *)&a, sizeof(a)) != 0) {
		close(fd);
		return -1;
	}
	return fd;
}

int uevent_new(struct loop *loop, void (*moved)(void *arg, bool gone), void *arg,
	       struct uevent **ret)
{
	struct uevent *u = calloc(1, sizeof(*u));

	*ret = NULL;
	if (!u)
		return -GW_E_NOMEM;
	*u = (struct uevent){ .moved = moved, .arg = arg, .fd = open_kernel_socket() };
	if (u->fd < 0 || loop_add_timer(loop, uevent_gathered, u, &u->timer) != 0 ||
	    loop_add_fd(loop, u->fd, EPOLLIN, uevent_readable, u, &u->source) != 0) {
		uevent_free(u);
		return -GW_E_IO;
	}
	*ret = u;
	return 0;
}

void uevent_free(struct uevent *u)
{
	if (!u)
		return;
	loop_remove(u->source);
	loop_remove(u->timer);
	if (u->fd >= 0)
		close(u->fd);
	free(u);
}
