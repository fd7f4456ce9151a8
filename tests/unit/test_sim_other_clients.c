/* Tests the calls of the simulator that only programs other than gpuward make. */
#include "sim_client.h"

#include <string.h>

#define LOOK(symbol) (*(void **)&look = dlsym(sim_library, symbol), assert_non_null(look))

TEST(a_short_pci_info_is_not_written_past_its_end)
{
	static const char *const symbols[] = { "nvmlDeviceGetPciInfo",
					       "nvmlDeviceGetPciInfo_v2" };
	abi_return (*look)(abi_device, void *);

	start("[[gpu]]\nbus = 7\n");
	for (size_t i = 0; i < 2; i++) {
		struct {
			struct abi_pci_v2 pci;
			char after[32];
		} out;

		memset(&out, 0x5a, sizeof(out));
		LOOK(symbols[i]);
		assert_int_equal(look(device(0), &out.pci), 0);
		assert_string_equal(out.pci.bus_id, "0000:07:00.0");
		assert_int_equal(out.pci.bus, 7);
		for (size_t k = 0; k < sizeof(out.after); k++)
			assert_int_equal(out.after[k], 0x5a);
		assert_int_equal(look(device(0), NULL), ABI_INVALID_ARGUMENT);
	}
}

TEST(a_value_replaces_each_number_of_a_fan_range_and_of_statistics)
{
	abi_return (*look)(abi_device, void *);
	abi_return (*pair)(abi_device, uint32_t *, uint32_t *);
	abi_return (*three)(abi_device, uint32_t *, uint32_t *, uint32_t *);
	struct abi_sram_status sram = { .version = ABI_TAG(struct abi_sram_status, 1) };
	struct abi_repair repair = { .version = ABI_TAG(struct abi_repair, 1) };
	struct abi_row_histogram rows;
	struct abi_capture capture;
	struct abi_memory memory;
	uint32_t v[3];

	start("[[gpu]]\nprofile = \"h200\"\n[[gpu]]\nprofile = \"rtx4090\"\n"
	      "[[fault]]\ncall = \"*\"\nvalue = 77\n");
	*(void **)&pair = dlsym(sim_library, "nvmlDeviceGetMinMaxFanSpeed");
	assert_int_equal(pair(device(1), &v[0], &v[1]), 0);
	assert_true(v[0] == 77 && v[1] == 77);
	*(void **)&three = dlsym(sim_library, "nvmlDeviceGetEncoderStats");
	assert_int_equal(three(device(0), &v[0], &v[1], &v[2]), 0);
	assert_true(v[0] == 77 && v[1] == 77 && v[2] == 77);
	LOOK("nvmlDeviceGetFBCStats");
	assert_int_equal(look(device(0), &capture), 0);
	assert_true(capture.sessions == 77 && capture.average_fps == 77 &&
		    capture.average_latency == 77);
	LOOK("nvmlDeviceGetConfComputeProtectedMemoryUsage");
	assert_int_equal(look(device(0), &memory), 0);
	assert_true(memory.total == 77 && memory.free == 77 && memory.used == 77);
	assert_int_equal(nvml_row_histogram(device(0), &rows), 0);
	assert_true(rows.max == 77 && rows.high == 77 && rows.none == 77);
	assert_int_equal(nvml_repair(device(0), &repair), 0);
	assert_true(repair.channel == 77 && repair.tpc == 77);
	assert_int_equal(nvml_sram_status(device(0), &sram), 0);
	assert_true(sram.counter[10] == 77 && sram.threshold_exceeded == 77);
}

TEST(the_extended_pci_info_has_the_class_of_the_card)
{
	abi_return (*look)(abi_device, struct abi_pci_ext *);
	struct abi_pci_ext out = { .version = ABI_TAG(struct abi_pci_ext, 1) };
	struct abi_pci plain;

	start("[[gpu]]\nprofile = \"h200\"\n[[gpu]]\nprofile = \"rtx4090\"\n");
	LOOK("nvmlDeviceGetPciInfoExt");
	assert_int_equal(look(device(0), &out), 0);
	assert_int_equal(nvml_pci(device(0), &plain), 0);
	assert_string_equal(out.bus_id, plain.bus_id);
	assert_int_equal(out.device_id, plain.device_id);
	assert_int_equal(out.subsystem_id, plain.subsystem_id);
	assert_int_equal(out.base_class, 3);
	assert_int_equal(out.sub_class, 2);
	assert_int_equal(look(device(1), &out), 0);
	assert_int_equal(out.sub_class, 0);
	out.version = 0;
	assert_int_equal(look(device(0), &out), ABI_ARGUMENT_VERSION_MISMATCH);
}

TEST(the_kinds_of_a_clock_agree_with_their_own_calls)
{
	abi_return (*look)(abi_device, uint32_t, uint32_t, uint32_t *);
	uint32_t now, set, a, b;

	start("[[gpu]]\n[[gpu.load]]\nkind = \"constant\"\n[[gpu]]\nprofile = \"rtx4090\"\n");
	sim_step(2 * S);
	LOOK("nvmlDeviceGetClock");
	for (uint32_t kind = 0; kind < 4; kind++) {
		assert_int_equal(nvml_clock(device(0), kind, &now), 0);
		assert_int_equal(nvml_given_clock(device(0), kind, &set), 0);
		assert_int_equal(look(device(0), kind, 0, &a), 0);
		assert_int_equal(look(device(0), kind, 1, &b), 0);
		assert_int_equal(a, now);
		assert_int_equal(b, set);
	}
	assert_int_equal(look(device(0), 0, 4, &a), ABI_INVALID_ARGUMENT);
	assert_int_equal(look(device(1), 0, 1, &a), ABI_NOT_SUPPORTED); /* a GeForce */
}

TEST(ecc_errors_are_in_the_memory_and_not_in_the_caches)
{
	abi_return (*look)(abi_device, uint32_t, uint32_t, uint32_t, uint64_t *);
	uint64_t n = 0;

	start("[[gpu]]\necc_corrected = 4\n[[gpu]]\nprofile = \"rtx4090\"\n"
	      "[[gpu]]\nprofile = \"v100\"\n");
	LOOK("nvmlDeviceGetMemoryErrorCounter");
	assert_int_equal(look(device(0), 0, 1, 2, &n), 0);
	assert_int_equal(n, 4);
	assert_int_equal(look(device(0), 0, 1, 7, &n), 0);
	assert_int_equal(n, 0);
	assert_int_equal(look(device(0), 0, 1, 0, &n), ABI_NOT_SUPPORTED);
	assert_int_equal(look(device(0), 0, 1, 8, &n), ABI_INVALID_ARGUMENT);
	assert_int_equal(look(device(1), 0, 1, 2, &n), ABI_NOT_SUPPORTED);
}

TEST(only_cards_without_row_remapping_list_retired_pages)
{
	abi_return (*look)(abi_device, uint32_t, uint32_t *, uint64_t *);
	uint32_t count = 9;

	start("[[gpu]]\nprofile = \"v100\"\n[[gpu]]\nprofile = \"h200\"\n");
	LOOK("nvmlDeviceGetRetiredPages");
	assert_int_equal(look(device(0), 0, &count, NULL), 0);
	assert_int_equal(count, 0);
	assert_int_equal(look(device(1), 0, &count, NULL), ABI_NOT_SUPPORTED);
}

TEST(the_firmware_has_the_version_of_the_driver)
{
	abi_return (*look)(abi_device, char *);
	char text[80];

	start("[driver]\nversion = \"550.163.01\"\n[[gpu]]\nprofile = \"h100\"\n"
	      "[[gpu]]\nprofile = \"p100\"\n");
	LOOK("nvmlDeviceGetGspFirmwareVersion");
	assert_int_equal(look(device(0), text), 0);
	assert_string_equal(text, "550.163.01");
	assert_int_equal(look(device(1), text), ABI_NOT_SUPPORTED);
}

TEST(what_no_simulated_gpu_has_is_not_supported)
{
	abi_return (*look)(abi_device, void *);
	uint32_t out = 7;

	start_named("idle-h200");
	LOOK("nvmlDeviceGetNvLinkState");
	assert_int_equal(look(device(0), &out), ABI_NOT_SUPPORTED);
	assert_int_equal(look(NULL, &out), ABI_INVALID_ARGUMENT);
	assert_int_equal(out, 7);
}

TEST_MAIN(sim_library_setup, NULL)
