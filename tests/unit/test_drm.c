#include "device/drm.h"

#include "tree_test.h"

#define GPU(pci) "sys/bus/pci/devices/" pci

TEST(lists_nothing_without_a_pci_bus)
{
	struct pci_gpu gpu[4];

	assert_int_equal(drm_pci_list(&t.root, PCI_VENDOR_NVIDIA, gpu, 4), 0);
}

static const struct tree_row nvidia_laptop[] = {
	{ GPU("0000:01:00.0/vendor"), "0x10de\n" },
	{ GPU("0000:01:00.0/device"), "0x2782\n" },
	{ GPU("0000:01:00.0/class"), "0x030200\n" },
	{ GPU("0000:01:00.0/driver"), "-> ../../../bus/pci/drivers/nvidia" },
	{ GPU("0000:01:00.0/power/runtime_status"), "suspended\n" },
	/* sound function of the same GPU */
	{ GPU("0000:01:00.1/vendor"), "0x10de\n" },
	{ GPU("0000:01:00.1/class"), "0x040300\n" },
	{ GPU("0000:00:02.0/vendor"), "0x8086\n" },
	{ GPU("0000:00:02.0/class"), "0x030000\n" },
	{ GPU("0000:00:02.0/power/runtime_status"), "active\n" },
	{ 0 },
};

TEST(lists_a_sleeping_gpu_without_its_sound_function)
{
	struct pci_gpu gpu[4];

	tree_fill(&t, "", nvidia_laptop);
	assert_int_equal(drm_pci_list(&t.root, PCI_VENDOR_NVIDIA, gpu, 4), 1);
	assert_string_equal(gpu[0].pci, "0000:01:00.0");
	assert_string_equal(gpu[0].driver, "nvidia");
	assert_int_equal(gpu[0].device, 0x2782);
	assert_int_equal(gpu[0].class, 0x030200);
	assert_true(gpu[0].asleep);
	assert_int_equal(drm_pci_list(&t.root, PCI_VENDOR_INTEL, gpu, 4), 1);
	assert_string_equal(gpu[0].driver, "");
	assert_false(gpu[0].asleep);
}

TEST(lists_in_bus_order_and_counts_past_the_array)
{
	static const char *const id[] = { "0000:c1:00.0", "0000:01:00.0", "0001:01:00.0",
					  "0000:41:00.0", "0000:81:00.0" };
	struct pci_gpu gpu[5];
	char path[128];

	for (unsigned i = 0; i < 5; i++) {
		snprintf(path, sizeof(path), GPU("%s/vendor"), id[i]);
		tree_put(&t, path, "0x1002\n");
		snprintf(path, sizeof(path), GPU("%s/class"), id[i]);
		tree_put(&t, path, i ? "0x038000\n" : "0x120000\n");
	}
	assert_int_equal(drm_pci_list(&t.root, PCI_VENDOR_AMD, gpu, 5), 5);
	assert_string_equal(gpu[0].pci, "0000:01:00.0");
	assert_string_equal(gpu[3].pci, "0000:c1:00.0");
	assert_string_equal(gpu[4].pci, "0001:01:00.0");
	assert_int_equal(drm_pci_list(&t.root, PCI_VENDOR_AMD, gpu, 2), 5);
	assert_string_equal(gpu[0].pci, "0000:01:00.0");
	assert_string_equal(gpu[1].pci, "0000:41:00.0");
	assert_int_equal(drm_pci_list(&t.root, PCI_VENDOR_AMD, NULL, 0), 5);
}

TEST(leaves_out_unreadable_devices)
{
	struct pci_gpu gpu[2];

	tree_put(&t, GPU("0000:01:00.0/vendor"), "0x10de\n");
	tree_put(&t, GPU("0000:01:00.0/class"), "display\n");
	tree_put(&t, GPU("0000:02:00.0/vendor"), "");
	tree_put(&t, GPU("a-name-that-is-no-pci-id/vendor"), "0x10de\n");
	tree_put(&t, GPU("a-name-that-is-no-pci-id/class"), "0x030000\n");
	assert_int_equal(drm_pci_list(&t.root, PCI_VENDOR_NVIDIA, gpu, 2), 0);
}

TEST_MAIN(NULL, NULL)
