"""All that only an array on a device needs; loaded when the first such array comes."""
