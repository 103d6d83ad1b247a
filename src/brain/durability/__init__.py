"""What makes a run resumable: journal, ledger and checkpoints."""
