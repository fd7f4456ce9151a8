/* desktop_notification: shows notifications on the desktop through the session bus
 * (org.freedesktop.Notifications).
 *
 * A notification may have one button.  A newer notification with the same tag replaces the older
 * one.  The caller polls the descriptor. */
#ifndef GW_CLI_DESKTOP_NOTIFICATION_H
#define GW_CLI_DESKTOP_NOTIFICATION_H

#include <stddef.h>

struct desktop;

/* Connects to the bus of DBUS_SESSION_BUS_ADDRESS, or else to the socket "bus" in
 * XDG_RUNTIME_DIR.  Returns 0, or a negative gw_error with a sentence in message. */
int desktop_open(struct desktop **ret, char *message, size_t size);
void desktop_close(struct desktop *d); /* d may be NULL */

int desktop_fd(const struct desktop *d);

/* Shows a notification.  button: label, or NULL.  Texts must be valid UTF-8; characters that a
 * desktop may take for markup are replaced.  Returns 0 or -GW_E_IO: the connection is lost. */
int desktop_show(struct desktop *d, const char *tag, const char *summary, const char *body,
		 const char *button);

/* Reads what has arrived.  Calls pressed for each button that was pressed.  Returns 0 or
 * -GW_E_IO: the connection is lost. */
int desktop_handle(struct desktop *d, void (*pressed)(void *arg, const char *tag), void *arg);

/* Returns the answer of the desktop if it refused the last notification, else "". */
const char *desktop_refusal(const struct desktop *d);

#endif
