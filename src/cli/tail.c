#include "tail.h"

#include "base/buf.h"

#include <gpuward.h>

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

int tail_open(struct tail *t)
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC) != 0)
		return -GW_E_IO;
	/* Only the reading end: the command expects a pipe that blocks. */
	fcntl(fds[0], F_SETFL, O_NONBLOCK);
	t->read_fd = fds[0];
	t->write_fd = fds[1];
	t->fill = 0;
	return 0;
}

void tail_close(struct tail *t)
{
	close(t->read_fd);
	close(t->write_fd);
}

static void tail_append(struct tail *t, const char *text, size_t n)
{
	size_t over;

	if (n > TAIL_BYTES) {
		text += n - TAIL_BYTES;
		n = TAIL_BYTES;
	}
	over = t->fill + n > TAIL_BYTES ? t->fill + n - TAIL_BYTES : 0;
	memmove(t->text, t->text + over, t->fill - over);
	t->fill -= over;
	memcpy(t->text + t->fill, text, n);
	t->fill += n;
}

/* Reads at most one full pipe, so a command that never stops writing cannot block us. */
void tail_drain(struct tail *t)
{
	char text[4096];
	ssize_t n = 1;

	for (unsigned i = 0; i < 16 && n > 0; i++) {
		n = read(t->read_fd, text, sizeof(text));
		if (n > 0)
			tail_append(t, text, (size_t)n);
	}
}

void tail_clear(struct tail *t)
{
	tail_drain(t);
	t->fill = 0;
}

void tail_lines(struct tail *t, unsigned lines, char *out, size_t size)
{
	size_t end, at;
	struct buf b;

	tail_drain(t);
	end = t->fill;
	while (end > 0 && t->text[end - 1] == '\n')
		end--;
	for (at = end; at > 0; at--)
		if (t->text[at - 1] == '\n' && --lines == 0)
			break;
	buf_init_fixed(&b, out, size);
	if (at < end)
		buf_adds(&b, "\n  ");
	for (; at < end; at++) {
		unsigned char c = (unsigned char)t->text[at];

		if (c == '\n')
			buf_adds(&b, "\n  ");
		else if (c >= ' ' && c != 0x7f)
			buf_addc(&b, (char)c);
	}
}
