"""What all emulated robots share: lines to a host, time, faults, and the backend that connects to them."""
