"""Every broker that is measured, Homing included: one file each."""
