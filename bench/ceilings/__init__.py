"""What this machine does with nothing of ours in the way, each measured in the same run as what it is compared with."""
