"""What this machine and this process have. The public function is `backendcfg.detect`."""
