/* noring: the driver's library without its power ring (and its counter), so that gpuward
 * polls. It is linked with the real library, which handles all other calls. */
int nvmlDeviceGetSamples(void);
int nvmlDeviceGetTotalEnergyConsumption(void);

int nvmlDeviceGetSamples(void)
{
	return 3; /* NOT_SUPPORTED */
}

#ifdef NO_COUNTER
int nvmlDeviceGetTotalEnergyConsumption(void)
{
	return 3;
}
#endif
