#include "daemon/uevent.h"

#include "test.h"

#define DEVICE "/devices/pci0000:00/0000:01:00.0"

/* '|' stands for the NUL between two variables. */
static enum uevent_news news(const char *text)
{
	size_t n = strlen(text) + 1;
	char *copy = malloc(n); /* a sanitizer detects reads past the end */
	enum uevent_news r;

	assert_non_null(copy);
	memcpy(copy, text, n);
	for (size_t i = 0; i < n; i++)
		if (copy[i] == '|')
			copy[i] = '\0';
	r = uevent_read(copy, n);
	free(copy);
	return r;
}

#define ROW(news, action, path, more)                                                       \
	{                                                                                   \
		news, action "@" path "|ACTION=" action "|DEVPATH=" path "|SUBSYSTEM=" more \
	}

TEST(events_of_gpu_drivers_are_recognised)
{
	static const struct {
		enum uevent_news news;
		const char *text;
	} rows[] = {
		ROW(UEVENT_CAME, "bind", DEVICE, "pci|DRIVER=nvidia|PCI_CLASS=30200|SEQNUM=9"),
		ROW(UEVENT_GONE, "unbind", DEVICE, "pci|PCI_CLASS=30000"),
		ROW(UEVENT_GONE, "remove", DEVICE, "pci|PCI_CLASS=38000"),
		ROW(UEVENT_NOTHING, "bind", DEVICE, "pci|PCI_CLASS=20000"),
		ROW(UEVENT_NOTHING, "bind", DEVICE, "pci|PCI_CLASS=3"),
		ROW(UEVENT_NOTHING, "bind", DEVICE, "pci"),
		ROW(UEVENT_NOTHING, "change", DEVICE, "pci|PCI_CLASS=30200"),
		ROW(UEVENT_CAME, "add", "/module/nvidia", "module"),
		ROW(UEVENT_GONE, "remove", "/module/xe", "module"),
		ROW(UEVENT_NOTHING, "add", "/module/nvidiafb", "module"),
		ROW(UEVENT_GONE, "remove", DEVICE "/drm/card1", "drm"),
		ROW(UEVENT_NOTHING, "add", DEVICE "/drm/card1", "drm"),
		ROW(UEVENT_NOTHING, "remove", DEVICE "/drm/card1/card1-DP-1", "drm"),
		ROW(UEVENT_NOTHING, "remove", DEVICE "/usb1/1-2/1-2:1.0/drm/card2", "drm"),
		ROW(UEVENT_NOTHING, "remove", "/devices/platform/evdi.0/drm/card2", "drm"),
		ROW(UEVENT_NOTHING, "remove", "/drm/card2", "drm"),
		ROW(UEVENT_NOTHING, "add", "/devices/virtual/net/veth1", "net"),
		{ UEVENT_NOTHING, "libudev|garbage" },
		{ UEVENT_NOTHING, "ACTION=bind" },
		{ UEVENT_NOTHING, "" },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++)
		if (news(rows[i].text) != rows[i].news)
			fail_msg("row %zu: %s", i, rows[i].text);
}

TEST(an_event_without_an_end_is_ignored)
{
	assert_int_equal(uevent_read("ACTION=bind", 11), UEVENT_NOTHING);
	assert_int_equal(uevent_read("", 0), UEVENT_NOTHING);
}

TEST_MAIN(NULL, NULL)
